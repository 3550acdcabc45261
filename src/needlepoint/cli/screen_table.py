"""Rows on the screen, as a table of text."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from needlepoint.cli.screen import grid
from needlepoint.printable import printable
from needlepoint.row_formats import json_values, value_text

# On the screen: a text this short is not cut, and so many characters are between two columns.
_SHORT, _GAP = 14, 3


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
    return [printable(value_text(value)) for value in json_values(column)]


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))
