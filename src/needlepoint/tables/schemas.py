"""One schema for the files of a table.

Files of one table may differ: columns come and go, integers and floats get wider. What cannot be read as one
type is a conflict, and the error names both files.
"""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa

from needlepoint.errors import SchemaConflict
from needlepoint.predicate import Ordinal


def plain(type: pa.DataType) -> pa.DataType:
    """The type SQL works with: encodings and offsets widths of the same values are the same type.

    >>> plain(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    """
    if isinstance(type, pa.BaseExtensionType):
        return plain(type.storage_type)
    if pa.types.is_dictionary(type):
        return plain(type.value_type)
    if pa.types.is_large_string(type) or pa.types.is_string_view(type):
        return pa.string()
    if pa.types.is_large_binary(type) or pa.types.is_binary_view(type):
        return pa.binary()
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return pa.list_(plain_field(type.value_field))
    if pa.types.is_struct(type):
        return pa.struct([plain_field(child) for child in type.fields])
    return type


def plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain(field.type), nullable=True)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([plain_field(field) for field in schema])


def unify(base: pa.Schema, base_path: str, other: pa.Schema, other_path: str) -> pa.Schema:
    """The schema that holds the columns of both, in the order they were first seen."""
    if base.equals(other):
        return base
    fields = {field.name: field for field in base}
    for field in other:
        known = fields.get(field.name)
        if known is None:
            fields[field.name] = field
            continue
        wider = _wider(known.type, field.type)
        if wider is None:
            raise SchemaConflict(
                f"column '{field.name}' is {known.type} in {base_path} but {field.type} in {other_path}.",
                hint="Rewrite one of them with the other's type, or move it out of the table.",
            )
        fields[field.name] = pa.field(field.name, wider)
    return pa.schema(list(fields.values()))


def _wider(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left.equals(right) or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    for same_family in (pa.types.is_signed_integer, pa.types.is_unsigned_integer, pa.types.is_floating):
        if same_family(left) and same_family(right):
            return left if left.bit_width >= right.bit_width else right
    if pa.types.is_decimal128(left) and pa.types.is_decimal128(right) and left.scale == right.scale:
        return left if left.precision >= right.precision else right
    return None


def ordinal(scalar: Any) -> Ordinal | None:
    """The scalar as predicate.py compares it; None for NULL and for types without an order here."""
    type = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_integer(type) or pa.types.is_boolean(type):
        return int(scalar.as_py())
    if pa.types.is_floating(type):
        return float(scalar.as_py())
    if pa.types.is_decimal(type):
        with decimal.localcontext(prec=100):
            return int(scalar.as_py().scaleb(type.scale))
    if pa.types.is_temporal(type) and hasattr(scalar, "value"):
        return int(scalar.value)
    value = scalar.as_py()
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None
