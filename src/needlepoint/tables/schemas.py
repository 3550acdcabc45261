"""One schema for the files of a table.

Files of one table may differ: columns come and go, integers and floats get wider, timestamps and times finer. What
cannot be read as one type is a conflict, and the error names both files.
"""

from __future__ import annotations

import decimal
import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import SchemaConflict
from needlepoint.predicate import Ordinal

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_OLD_WRITER = re.compile(r"parquet-mr(?! version (?:1\.\d\d|[2-9]|\d\d))")
_MISORDERED = b"needlepoint.misordered"


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
        both = wider(known.type, field.type)
        if both is None:
            raise SchemaConflict(
                f"column '{field.name}' is {known.type} in {base_path} but {field.type} in {other_path}.",
                hint="Write one of them with the other's type, or leave it out of the table.",
            )
        fields[field.name] = pa.field(field.name, both)
    return pa.schema(list(fields.values()))


def wider(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both; None where there is none."""
    if left.equals(right) or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    for same_family in (pa.types.is_signed_integer, pa.types.is_unsigned_integer, pa.types.is_floating):
        if same_family(left) and same_family(right):
            return left if left.bit_width >= right.bit_width else right
    if pa.types.is_decimal128(left) and pa.types.is_decimal128(right) and left.scale == right.scale:
        return left if left.precision >= right.precision else right
    if pa.types.is_time(left) and pa.types.is_time(right):
        return left if is_finer(left, right) else right
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and (left.tz is None) == (right.tz is None):
        # A zone says how an instant is shown: the first one stays. A timestamp without a zone is not an instant, and
        # cannot be compared with one.
        return left if is_finer(left, right) else pa.timestamp(right.unit, left.tz)
    return None


# Units. The ordinals of timestamps and times count them, so ordinals of two units must not be compared.


def unit_of(type: pa.DataType) -> str | None:
    """The unit of timestamps and times; None for every other type."""
    return str(type.unit) if pa.types.is_timestamp(type) or pa.types.is_time(type) else None


def is_finer(type: pa.DataType, other: pa.DataType) -> bool:
    """Finer, or as fine."""
    return PER_SECOND[type.unit] >= PER_SECOND[other.unit]


def scale(unit: str | None, type: pa.DataType) -> int | None:
    """The factor from ordinals in a unit to ordinals of a type; None where it is not a whole number.

    >>> scale("us", pa.timestamp("ns")), scale("ns", pa.timestamp("us")), scale(None, pa.int64())
    (1000, None, 1)
    """
    wanted = unit_of(type)
    if unit == wanted:
        return 1
    if unit is None or wanted is None or PER_SECOND[wanted] < PER_SECOND[unit]:
        return None
    return PER_SECOND[wanted] // PER_SECOND[unit]


def differing(schema: pa.Schema, unified: pa.Schema) -> frozenset[str]:
    """The timestamps and times of a schema that have another unit or zone in the unified one."""
    return frozenset(
        field.name
        for field in schema
        if unit_of(field.type) is not None and not unified.field(field.name).type.equals(field.type)
    )


def with_misordered(schema: pa.Schema, metadata: pq.FileMetaData) -> pa.Schema:
    """The schema of a file, with the decimals in its metadata that parquet-mr before 1.10 stored as bytes: their bounds
    are ordered by bytes and not by numbers, and DataFusion 55 uses them."""
    try:
        old = _OLD_WRITER.match(metadata.created_by or "") is not None
    except UnicodeDecodeError:  # pyarrow decodes the name of the writer, which can be any bytes
        old = True
    if not old:
        return schema.with_metadata(None)
    columns = [metadata.schema.column(at) for at in range(metadata.num_columns)]
    names = [
        column.path
        for column in columns
        if column.physical_type in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
        and column.path in schema.names
        and pa.types.is_decimal(schema.field(column.path).type)
    ]
    return schema.with_metadata({_MISORDERED: json.dumps(names)})


def misordered(schema: pa.Schema) -> frozenset[str]:
    """The columns that `with_misordered` recorded."""
    return frozenset(json.loads((schema.metadata or {}).get(_MISORDERED, b"[]")))


def refined(schema: pa.Schema, unified: pa.Schema) -> frozenset[str]:
    """The columns of a schema whose ordinals mean something else in the unified one."""
    changed = differing(schema, unified)
    return frozenset(name for name in changed if schema.field(name).type.unit != unified.field(name).type.unit)


def respelled(before: pa.Schema, after: pa.Schema) -> frozenset[str]:
    """The columns of both schemas whose ordinals in one mean something else in the other, or nothing.

    >>> sorted(respelled(pa.schema({"a": pa.int32(), "b": pa.int32()}), pa.schema({"a": pa.int64(), "b": pa.string()})))
    ['b']
    """
    common = [field for field in before if field.name in after.names]
    return frozenset(field.name for field in common if not _same_ordinals(field.type, after.field(field.name).type))


def _same_ordinals(left: pa.DataType, right: pa.DataType) -> bool:
    if unit_of(left) != unit_of(right):
        return False
    return left.equals(right) or (wider(left, right) is not None and not pa.types.is_null(left))


def too_far(path: str, column: str, type: pa.DataType) -> SchemaConflict:
    return SchemaConflict(
        f"column '{column}' of {path} has values beyond what {type} can hold, the unit of other files of the table.",
        hint="Write those others in its unit (Spark: spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS); where "
        "the table has the finer unit already, drop it and create it again.",
    )


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
    if pa.types.is_temporal(type) and not pa.types.is_interval(type) and hasattr(scalar, "value"):
        return int(scalar.value)
    value = scalar.as_py()
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None
