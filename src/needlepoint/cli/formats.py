"""Rows as text and bytes: JSON, CSV, Arrow, Parquet, and the lines of a table on the screen.

Text has one form per value, whatever the format: dates and times as ISO 8601, decimals as written, bytes as
hexadecimal digits.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import math
from collections.abc import Callable
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from needlepoint.cli.screen import grid
from needlepoint.errors import UsageError
from needlepoint.printable import json_safe, printable, printable_lines

_ROWS_AT_ONCE = 10_000
# On the screen: a text this short is not cut, and so many characters are between two columns.
_SHORT, _GAP = 14, 3


def write_json(table: pa.Table, stream: IO[bytes]) -> None:
    """One array of objects, a line each."""
    _refuse_same_names(table)
    separator = b"["
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        part = table.slice(start, _ROWS_AT_ONCE)
        columns = [json_values(column) for column in part.columns]
        for row in zip(*columns, strict=True) if columns else [()] * part.num_rows:
            line = json.dumps(dict(zip(part.column_names, row, strict=True)), ensure_ascii=False)
            # A lone half of a surrogate pair has no UTF-8; no valid Arrow string holds one.
            stream.write(separator + b"\n" + json_safe(line).encode())
            separator = b","
    stream.write(b"[]\n" if separator == b"[" else b"\n]\n")


def write_csv(table: pa.Table, stream: IO[bytes]) -> None:
    """With a header. Text is quoted, so that an empty text ("") is not NULL (nothing)."""
    import pyarrow.csv

    if not table.num_columns:
        return
    arrays = [_csv_column(column) for column in table.columns]
    pyarrow.csv.write_csv(pa.Table.from_arrays(arrays, names=table.column_names), stream)


def write_csv_for_terminal(table: pa.Table, stream: IO[bytes]) -> None:
    """CSV has no escapes: what a terminal cannot show is not the value any more. Files and pipes get it as it is."""
    text = io.BytesIO()
    write_csv(table, text)
    stream.write(printable_lines(text.getvalue().decode()).encode())


def write_arrow(table: pa.Table, stream: IO[bytes]) -> None:
    """Arrow's IPC stream format."""
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)


def write_parquet(table: pa.Table, stream: IO[bytes]) -> None:
    import pyarrow.parquet

    _refuse_same_names(table)
    try:
        pyarrow.parquet.write_table(table, stream, compression="zstd")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise UsageError(
            f"Parquet cannot hold the answer: {error}.", hint="CAST the column to another type."
        ) from error


WRITERS: dict[str, Callable[[pa.Table, IO[bytes]], None]] = {
    "json": write_json,
    "csv": write_csv,
    "arrow": write_arrow,
    "parquet": write_parquet,
}
BINARY = ("arrow", "parquet")


def _refuse_same_names(table: pa.Table) -> None:
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise UsageError(f"two columns of the answer are named '{twice[0]}'.", hint="Rename one with AS.")


def json_values(column: pa.ChunkedArray) -> list[Any]:
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


def screen_table(table: pa.Table, console: Console) -> Table:
    """The rows as a table of text. Where a terminal is narrow, long values are cut, but no numbers and short ones.

    Where even that is too wide, every value has a line of its own.
    """
    columns = [screen_values(column) for column in table.columns]
    names = [printable(name) for name in table.column_names]
    numbers = [_is_number(field.type) for field in table.schema]
    full = [max(map(cell_len, [name, *values])) for name, values in zip(names, columns, strict=True)]
    widths = _fitting(full, numbers, console.width - _GAP * len(full))
    if widths is None:
        return _screen_records(names, columns)
    shown = grid(console)
    for name, number, width in zip(names, numbers, widths, strict=True):
        side: Literal["left", "right"] = "right" if number else "left"
        shown.add_column(Text(name), justify=side, no_wrap=True, overflow="ellipsis", width=width)
    for row in zip(*columns, strict=True):
        shown.add_row(*map(Text, row))
    return shown


def _fitting(full: list[int], numbers: list[bool], room: int) -> list[int] | None:
    """Widths that fit: the widest texts are cut first, and none below what is short. None if nothing helps.

    >>> _fitting([9, 50, 30, 5], [True, False, False, False], 60)
    [9, 23, 23, 5]
    """
    for limit in range(min(room, max(full)), _SHORT - 1, -1):
        widths = [width if number else min(width, limit) for width, number in zip(full, numbers, strict=True)]
        if sum(widths) <= room:
            return widths
    return full if sum(full) <= room else None


def _screen_records(names: list[str], columns: list[list[str]]) -> Table:
    shown = Table.grid("", "", padding=(0, 2))
    for number, row in enumerate(zip(*columns, strict=True)):
        if number:
            shown.add_row()
        for name, value in zip(names, row, strict=True):
            shown.add_row(Text(name, style="bold"), Text(value, overflow="fold"))
    return shown


def screen_values(column: pa.ChunkedArray) -> list[str]:
    """The values of a column, each on one line."""
    if pa.types.is_floating(column.type):
        return ["NULL" if value is None else str(value) for value in column.to_pylist()]
    return [printable(_as_text(value)) for value in json_values(column)]


def _as_text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case list() | dict():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    type = column.type
    if pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_boolean(type) or pa.types.is_null(type):
        return column
    if _is_text(type):
        return column.cast(pa.large_string())
    values = json_values(column)
    return pa.array([None if value is None else _as_text(value) for value in values], pa.large_string())


def _iso(column: pa.ChunkedArray) -> list[Any]:
    """Arrow writes all dates there are; Python's end with the year 9999, and its times with microseconds."""
    text = column.cast(pa.string())
    if pa.types.is_timestamp(column.type):
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
    values: list[Any] = text.to_pylist()
    return values


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))
