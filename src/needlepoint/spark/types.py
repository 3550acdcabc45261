"""Arrow's types in Spark, and batches as Spark needs them.

    uint8, uint16, uint32      the next wider signed integer, as Spark's own Parquet reader has it
    uint64                     decimal(20, 0), likewise
    float16                    float
    timestamp with a zone      timestamp; without one timestamp_ntz; in microseconds, never truncated
    date64, time32             date, time
    fixed_size_binary          binary

Spark checks the types of a batch and not its buffers: a batch must have exactly the Arrow types that Spark has for the
DataFrame's schema, names of list elements and nullability included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from needlepoint.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_MOST_DIGITS = 38
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
}
_ALIKE = (
    pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_string,
    pa.types.is_binary, pa.types.is_date32, pa.types.is_decimal128,
)  # fmt: skip


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema of a DataFrame with these columns. UsageError for types that Spark does not have."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    fields = []
    for field in schema:
        try:
            type = from_arrow_type(_known(field.type))
        except (PySparkException, _Unknown):
            raise UsageError(
                f"column '{field.name}' is {field.type}, which Spark does not have.",
                hint="Leave it out: name the other ones in `columns`.",
            ) from None
        fields.append(StructField(field.name, type))
    return StructType(fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of batches for a DataFrame with this schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return found


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly this schema. UsageError when a value does not fit."""
    return pa.RecordBatch.from_arrays(
        [_cast(column, field) for column, field in zip(batch.columns, schema, strict=True)], schema=schema
    )


def is_read_alike(type: pa.DataType) -> bool:
    """Whether Spark's Parquet reader reads columns of this type as DataFusion and pyarrow do."""
    if pa.types.is_list(type):
        return is_read_alike(type.value_type)
    if pa.types.is_struct(type):
        return all(is_read_alike(child.type) for child in type.fields)
    if pa.types.is_timestamp(type):
        return bool(type.unit == "us")
    return any(check(type) for check in _ALIKE)


class _Unknown(Exception):
    pass


def _known(type: pa.DataType) -> pa.DataType:
    """A type of Spark that holds the same values."""
    if type in _WIDER:
        return _WIDER[type]
    if pa.types.is_decimal(type):
        if type.precision > _MOST_DIGITS or type.scale < 0:
            raise _Unknown
        return pa.decimal128(type.precision, type.scale)
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        return pa.list_(_known_field(type.value_field))
    if pa.types.is_struct(type):
        return pa.struct([_known_field(child) for child in type.fields])
    if pa.types.is_map(type):
        return pa.map_(_known_field(type.key_field), _known_field(type.item_field))
    return type


def _known_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _known(field.type), field.nullable)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"column '{field.name}' holds a value that does not fit Spark's type: {error}.",
            hint="Leave it out: name the other ones in `columns`.",
        ) from None
