"""INT96: the timestamps of Spark (by default), Hive and Impala. Read as microseconds, as Spark reads them.

    | nanoseconds of the day, 8 bytes | Julian day, 4 bytes |      little-endian, both signed

pyarrow reads nanoseconds, and those beyond the year 2262 as another time without a word: Spark's year 9999 as 1816.
What is finer than a microsecond is cut off, here and in scans, by the same arithmetic (arrow-rs, Int96::to_micros).

>>> nine = np.array([(82_800_000_000_000, 5_373_484)], _INT96)  # 9999-12-31 23:00
>>> decoded(pa.chunked_array([pa.array([nine.tobytes()], pa.binary(12))]), pa.timestamp("us"))[0].value
253402297200000000
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from needlepoint.errors import NotParquet
from needlepoint.objects import Identity, as_source
from needlepoint.parquet.format import thrift
from needlepoint.parquet.format.thrift import Writer

UNIT = "us"
# parquet.thrift, Type
INT96, FIXED_LENGTH = 3, 7
BYTES = 12

_INT96 = np.dtype([("nanoseconds", "<i8"), ("day", "<i4")])
_EPOCH = 2_440_588  # the Julian day of 1970-01-01
_MICROSECONDS_OF_A_DAY = 86_400_000_000
# The seconds that 64 bits of a unit hold.
_MOST_SECONDS = {"us": 2**63 // 10**6, "ns": 2**63 // 10**9}
_HINT = "Write it with other timestamps (Spark: spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS)."


def as_binary(element: bytes) -> bytes:
    """The schema element of a flat INT96 column as one of 12 plain bytes: their encodings are the same."""
    # SchemaElement { 1: type, 2: type_length, 3: repetition_type, 4: name }
    fields = thrift.parse(element)
    writer = Writer()
    writer.integer32(1, FIXED_LENGTH)
    writer.integer32(2, BYTES)
    repetition = fields.optional_integer32(3)
    if repetition is not None:
        writer.integer32(3, repetition)
    writer.binary(4, fields.binary(4))
    return writer.finish()


def decoded(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Columns of 12 bytes as timestamps of a type, in the unit used here; a zone only affects how they are shown."""
    return pa.chunked_array([_micros(chunk).cast(type) for chunk in column.chunks], type)


def _micros(array: pa.Array) -> pa.Array:
    if not len(array):
        return pa.array([], pa.int64())
    values = np.frombuffer(array.buffers()[1], _INT96, len(array), array.offset * BYTES)
    nanoseconds, days = values["nanoseconds"], values["day"].astype(np.int64)
    # Towards zero, as arrow-rs divides.
    micros = nanoseconds // 1000 + ((nanoseconds < 0) & (nanoseconds % 1000 != 0))
    with np.errstate(over="ignore"):
        micros = (days - _EPOCH) * _MICROSECONDS_OF_A_DAY + micros
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(micros, pa.int64(), mask=nulls)


def check(
    path: str,
    identity: Identity,
    schema: pq.ParquetSchema,
    columns: Sequence[str] | None = None,
    unit: str = UNIT,
) -> None:
    """NotParquet, with path and column, when pyarrow would read an INT96 of these columns (None: of all) wrong."""
    leaves = [schema.column(number) for number in range(len(schema))]
    found = [each.path for each in leaves if each.physical_type == "INT96" and each.max_repetition_level == 0]
    wanted = [name for name in found if columns is None or name in columns]
    if not wanted:
        return
    with pq.ParquetFile(as_source(path, identity), coerce_int96_timestamp_unit="s") as file:
        for batch in file.iter_batches(columns=wanted):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if pa.types.is_timestamp(column.type) and _is_beyond(column, unit):
                    raise NotParquet(path, f"column '{name}' has INT96 timestamps beyond what {unit} hold", hint=_HINT)


def _is_beyond(seconds: pa.Array, unit: str) -> bool:
    ends = pc.min_max(seconds.cast(pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is not None and not -_MOST_SECONDS[unit] < low <= high < _MOST_SECONDS[unit] - 1
