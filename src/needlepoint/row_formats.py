"""Rows as bytes: JSON, lines of JSON, CSV, Arrow and Parquet, from batches, in bounded memory.

Text has one form per value, whatever the format: dates and times as ISO 8601, decimals as written, bytes as
hexadecimal digits.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.errors import UsageError
from needlepoint.printable import json_safe

Batches = Iterable[pa.RecordBatch]
Encoder = Callable[[pa.Schema, Batches], Iterator[bytes]]

_ROWS_AT_ONCE = 10_000
_encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder for each row
_ROW_GROUP = 64 << 20  # bytes


def encode_json(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    """One array of objects, a line each."""
    separator = "["
    for lines in _json_lines(schema, batches):
        yield (separator + "\n" + ",\n".join(lines)).encode()
        separator = ","
    yield b"[]\n" if separator == "[" else b"\n]\n"


def encode_ndjson(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    """An object a line."""
    for lines in _json_lines(schema, batches):
        yield ("\n".join(lines) + "\n").encode()


def _json_lines(schema: pa.Schema, batches: Batches) -> Iterator[list[str]]:
    _refuse_same_names(schema)
    names = schema.names
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            part = batch.slice(start, _ROWS_AT_ONCE)
            columns = [json_values(column) for column in part.columns]
            rows = zip(*columns, strict=True) if columns else [()] * part.num_rows
            lines = (_encode(dict(zip(names, row, strict=True))) for row in rows)
            # A lone half of a surrogate pair has no UTF-8; no valid Arrow string holds one.
            yield [json_safe(line) for line in lines]


def encode_csv(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    """With a header. Text is quoted, so that an empty text ("") is not NULL (nothing)."""
    if schema.names:
        yield _csv(schema, [_csv_column(pa.array([], field.type)) for field in schema], header=True)
        for batch in batches:
            if batch.num_rows:
                yield _csv(schema, [_csv_column(column) for column in batch.columns], header=False)


def _csv(schema: pa.Schema, arrays: list[pa.Array], *, header: bool) -> bytes:
    import pyarrow.csv

    sink = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=header)
    pyarrow.csv.write_csv(pa.Table.from_arrays(arrays, names=schema.names), sink, options)
    return sink.getvalue()


def encode_arrow(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    """Arrow's IPC stream format."""
    sink = _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


def encode_parquet(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    """One Parquet file."""
    import pyarrow.parquet

    _refuse_same_names(schema)
    sink = _Sink()
    try:
        with pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
            for group in _row_groups(batches):
                writer.write_table(pa.Table.from_batches(group, schema))
                yield sink.taken()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise UsageError(
            f"Parquet cannot hold the answer: {error}.", hint="CAST the column to another type."
        ) from error
    yield sink.taken()


def _row_groups(batches: Batches) -> Iterator[list[pa.RecordBatch]]:
    group, size = list[pa.RecordBatch](), 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


class _Sink(io.RawIOBase):
    """Bytes that a library writes, to be taken piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._written = 0

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._written += len(piece)
        return len(piece)

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True


def described(schema: pa.Schema) -> list[dict[str, str]]:
    """The names and types of columns, for JSON."""
    return [{"name": field.name, "type": str(field.type)} for field in schema]


ENCODERS: dict[str, Encoder] = {
    "json": encode_json,
    "ndjson": encode_ndjson,
    "csv": encode_csv,
    "arrow": encode_arrow,
    "parquet": encode_parquet,
}
BINARY = ("arrow", "parquet")


def _refuse_same_names(schema: pa.Schema) -> None:
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise UsageError(f"two columns of the answer are named '{twice[0]}'.", hint="Rename one with AS.")


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as JSON has them."""
    type = column.type
    if pa.types.is_temporal(type) and not pa.types.is_duration(type) and not pa.types.is_interval(type):
        return _iso(column)
    values: list[Any] = column.to_pylist()
    if pa.types.is_integer(type) or pa.types.is_boolean(type) or _is_text(type):
        return values
    return [json_value(value) for value in values]


def json_value(value: Any) -> Any:
    """One value, also inside lists and structs."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case decimal.Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return f"PT{value.total_seconds():f}S"
        case pa.MonthDayNano():
            return f"P{value.months}M{value.days}DT{value.nanoseconds / 1e9:f}S"
        case list():
            return [json_value(each) for each in value]
        case dict():
            return {str(name): json_value(each) for name, each in value.items()}
        case tuple():  # an entry of a map
            return [json_value(each) for each in value]
    return str(value)


def value_text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case list() | dict():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def _csv_column(column: pa.Array) -> pa.Array:
    type = column.type
    if pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_boolean(type) or pa.types.is_null(type):
        return column
    if _is_text(type):
        return column.cast(pa.large_string())
    values = json_values(column)
    return pa.array([None if value is None else value_text(value) for value in values], pa.large_string())


def _iso(column: pa.Array) -> list[Any]:
    """Arrow writes all dates there are; Python's end with the year 9999, and its times with microseconds."""
    text = column.cast(pa.string())
    if pa.types.is_timestamp(column.type):
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
    values: list[Any] = text.to_pylist()
    return values


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))
