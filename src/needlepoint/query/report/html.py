"""HTML for notebooks: rows as a table, a report as pictures of its funnel and of its files.

Colours follow the notebook (`currentColor`), in light and in dark. All texts are escaped.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pyarrow as pa

from needlepoint.access import SKIPPED
from needlepoint.printable import count, printable
from needlepoint.query.report.explain import Level, Report, TableReport
from needlepoint.query.report.lake_map import TableMap

MOST_ROWS, MOST_COLUMNS, MOST_CHARACTERS = 20, 20, 100
_BAR, _LINE = 240, 22  # pixels
_MAP, _CELL, _MOST_CELLS = 600, 14, 1000


def table_html(table: pa.Table) -> str:
    """The first rows and columns, and how many there are."""
    shown = table.slice(0, MOST_ROWS).select(range(min(MOST_COLUMNS, table.num_columns)))
    head = "".join(f"<th title='{_text(field.type)}'>{_text(field.name)}</th>" for field in shown.schema)
    columns = [[_text(value) for value in column.to_pylist()] for column in shown.columns]
    rows = "".join(f"<tr>{''.join(f'<td>{value}</td>' for value in row)}</tr>" for row in zip(*columns, strict=True))
    size = [f"{table.num_columns - shown.num_columns:,} more columns"] if table.num_columns > MOST_COLUMNS else []
    size = [count(table.num_rows, "row") + (f", {MOST_ROWS} shown" if table.num_rows > MOST_ROWS else ""), *size]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><small>{'; '.join(size)}</small>"


def report_html(report: Report) -> str:
    """The funnel and the map of each table, and the whole text to unfold."""
    pictures = "".join(_funnel(table) + _map(files) for table, files in zip(report.tables, report.maps, strict=True))
    return f"{pictures}<details><summary>explain</summary><pre>{escape(str(report))}</pre></details>"


def _funnel(table: TableReport) -> str:
    levels = [
        ("files", table.files), ("row groups", table.row_groups), ("pages", table.pages), ("rows", table.rows),
        ("bytes", table.bytes),
    ]  # fmt: skip
    lines = "".join(_bar(number, name, level) for number, (name, level) in enumerate(levels))
    size = f"width='600' height='{_LINE * len(levels)}' font-size='13' font-family='sans-serif' fill='currentColor'"
    name = _text(table.table)
    return f"<div><b>{name}</b></div><svg role='img' aria-label='what was read of {name}' {size}>{lines}</svg>"


def _bar(number: int, name: str, level: Level) -> str:
    """What was read in full colour, before what there is; any share above zero shows."""
    share = min(1.0, level.read / level.total) if level.total else 0.0
    width = max(2.0, _BAR * share) if level.read and level.total else 0.0
    y = _LINE * number
    return (
        f"<text x='0' y='{y + 15}'>{name}</text>"
        f"<rect x='90' y='{y + 4}' width='{_BAR}' height='14' opacity='0.15'/>"
        f"<rect x='90' y='{y + 4}' width='{width:.1f}' height='14' fill='#2a78d6'/>"
        f"<text x='{100 + _BAR}' y='{y + 15}'>{level}</text>"
    )


def _map(table: TableMap) -> str:
    """The files one after the other in lines of cells, as wide as they are large. What is read of them is in full
    colour; many files share a cell."""
    files = len(table.paths)
    if not files:
        return ""
    cells = np.array_split(np.arange(files), min(files, _MOST_CELLS))
    sizes = np.array([sum(table.bytes[at] for at in cell) for cell in cells], float)
    lines = -(-len(cells) // 50)
    widths = np.maximum(3.0, sizes / max(1.0, sizes.sum()) * _MAP * lines)
    drawn, x, y = [], 0.0, 0
    for cell, width in zip(cells, np.minimum(widths, _MAP).tolist(), strict=True):
        if x + width > _MAP + 1:
            x, y = 0.0, y + _CELL + 2
        read = int(np.count_nonzero(table.access[cell]))
        fill = f"fill='#2a78d6' opacity='{0.4 + 0.6 * read / len(cell):.2f}'" if read else "opacity='0.15'"
        place = f"x='{x:.1f}' y='{y}' width='{width - 1:.1f}' height='{_CELL}'"
        drawn.append(f"<rect {place} {fill}><title>{_text(_cell_text(table, cell.tolist(), read))}</title></rect>")
        x += width
    size = f"width='{_MAP}' height='{y + _CELL}' fill='currentColor'"
    return f"<svg role='img' aria-label='the files of {_text(table.table)}' {size}>{''.join(drawn)}</svg>"


def _cell_text(table: TableMap, cell: list[int], read: int) -> str:
    if len(cell) > 1:
        return f"{count(len(cell), 'file')} from {table.paths[cell[0]]}, {read:,} read"
    at = cell[0]
    if table.access[at] != SKIPPED:
        return f"{table.paths[at]}, read"
    return f"{table.paths[at]}, skipped {table.steps[table.step[at]] if table.step[at] >= 0 else ''}".rstrip()


def _text(value: Any) -> str:
    if value is None:
        return "<i>NULL</i>"
    text = value if isinstance(value, str) else str(value)
    return escape(printable(text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"), quote=True)
