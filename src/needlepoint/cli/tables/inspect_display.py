"""The anatomy of a file on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding

from needlepoint.cli.screen import grid, is_too_wide
from needlepoint.printable import count, printable, size_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from needlepoint.parquet.inspect import Anatomy, ColumnAnatomy, PageAnatomy, Segment

MOST_COLUMNS, MOST_PAGES, MOST_NAMES = 40, 40, 5
WIDTH = 40
LONGEST_BOUND = 24


def show(console: Console, anatomy: Anatomy, *, everything: bool) -> None:
    groups, columns = count(len(anatomy.row_groups), "row group"), count(len(anatomy.columns), "column")
    rows = count(anatomy.rows, "row")
    console.print(f"{printable(anatomy.path)}: {size_text(anatomy.size)}, {rows} in {groups}, {columns}")
    writer = "an unnamed writer" if anatomy.created_by is None else printable(anatomy.created_by)
    console.print(f"written by {writer}, format version {anatomy.version}")
    _show_layout(console, anatomy)
    shown = list(anatomy.columns)
    if not everything and len(shown) > MOST_COLUMNS:
        shown = sorted(shown, key=lambda column: -column.compressed)[:MOST_COLUMNS]
    if shown:
        console.print()
        _show_columns(console, shown)
        console.print()
        _show_page_sizes(console, shown)
    left = len(anatomy.columns) - len(shown)
    if left:
        rest = sum(column.compressed for column in anatomy.columns) - sum(column.compressed for column in shown)
        console.print(f"… and {count(left, 'smaller column')} of {size_text(rest)}; --all shows all")
    console.print()
    _show_keys(console, anatomy)
    _show_advice(console, anatomy)


def _grid(console: Console, *headers: str, right: tuple[str, ...]) -> Table:
    """Where the terminal is too narrow, texts are broken; numbers and the names in the first column are not."""
    table = grid(console, *headers, right=right)
    table.padding, table.pad_edge = (0, 1, 0, 0), False
    for column in table.columns[1:]:
        column.min_width = len(str(column.header))
        if column.justify == "left":
            column.no_wrap, column.overflow = False, "fold"
    return table


def _print(console: Console, table: Table) -> None:
    if is_too_wide(table, console):
        table.box = None  # which takes a blank between columns
    console.print(table)


def _show_layout(console: Console, anatomy: Anatomy) -> None:
    console.print()
    table = _grid(console, "part", "where", "bytes", "share", right=("bytes", "share"))
    for kind, total in anatomy.bytes_by_kind().items():
        where = bar([each for each in anatomy.segments if each.kind == kind], anatomy.size)
        table.add_row(kind, where, size_text(total), _share(total / anatomy.size))
    _print(console, table)


def bar(segments: Sequence[Segment], total: int) -> str:
    """Where segments are in a file: each character stands for a part of it, full where they fill more than half.

    >>> from needlepoint.parquet.inspect.layout import Segment
    >>> bar([Segment("data", 0, 500), Segment("data", 990, 1000)], 1000)
    '████████████████████░░░░░░░░░░░░░░░░░░░▒'
    """
    filled = [0.0] * WIDTH
    for segment in segments:
        first, last = segment.start * WIDTH / total, segment.end * WIDTH / total
        for cell in range(int(first), min(WIDTH, int(last) + 1)):
            filled[cell] += max(0.0, min(last, cell + 1) - max(first, cell))
    return "".join("█" if part > 0.5 else "▒" if part > 0 else "░" for part in filled)


def _show_columns(console: Console, columns: Sequence[ColumnAnatomy]) -> None:
    right = ("bytes", "share", "ratio", "dict", "NULLs")
    table = _grid(console, "column", "type", "encoding", "codec", *right, right=right)
    for column in columns:
        table.add_row(
            printable(column.name),
            printable(column.type),
            ", ".join(column.encodings).lower().replace("rle_dictionary", "dictionary"),
            ", ".join(column.codecs).lower(),
            size_text(column.compressed),
            _share(column.share),
            f"{column.uncompressed / column.compressed:.1f}" if column.compressed else "-",
            size_text(column.dictionary_bytes) if column.dictionary_bytes else "-",
            "?" if column.nulls is None else f"{column.nulls:,}",
        )
    _print(console, table)


def _show_page_sizes(console: Console, columns: Sequence[ColumnAnatomy]) -> None:
    right = ("pages", "rows", "max rows", "bytes", "max bytes")
    table = _grid(console, "column", *right, "bounds", "index", "bloom", right=right)
    for column in columns:
        pages = column.pages
        figures = ["?"] * 5
        if pages is not None:
            rows = ["?" if number is None else f"{number:,}" for number in (pages.median_rows, pages.max_rows)]
            figures = [f"{pages.count:,}", *rows, size_text(pages.median_bytes), size_text(pages.max_bytes)]
        has = (column.statistics, column.page_index, column.bloom_filters)
        table.add_row(printable(column.name), *figures, *(_some(number, column.chunks) for number in has))
    _print(console, table)


def _some(number: int, of: int) -> str:
    return "no" if number == 0 else "yes" if number == of else f"{number:,} of {of:,}"


def _show_keys(console: Console, anatomy: Anatomy) -> None:
    keys = ", ".join(f"{printable(each.key)} ({size_text(each.bytes)})" for each in anatomy.key_values)
    console.print(f"keys: {keys or 'none'}")
    for index in anatomy.indexes:
        columns = f" of {', '.join(map(printable, index.columns))}" if index.columns else ""
        length = "" if index.length is None else f", {size_text(index.length)} at {index.offset:,}"
        unpacked = "" if index.size is None or index.codec == "none" else f", {size_text(index.size)} unpacked"
        version = "" if index.version is None else f", version {index.version}"
        verdict = f": not used, {index.problem}" if index.problem else ": valid" if index.version is not None else ""
        details = f"{columns}{version}{length}{unpacked}{verdict}"
        console.print(f"embedded index: {printable(index.kind)}{details}")


def _show_advice(console: Console, anatomy: Anatomy) -> None:
    console.print()
    if not anatomy.advice:
        console.print("advice: none, nothing here is in the way of lookups")
        return
    console.print("advice")
    for advice in anatomy.advice:
        names = ", ".join(map(printable, advice.columns[:MOST_NAMES]))
        left = len(advice.columns) - MOST_NAMES
        more = f" and {left:,} more" if left > 0 else ""
        console.print(f"- {advice.problem}" + (f" ({names}{more})" if names else ""))
        console.print(Padding(advice.remedy, (0, 0, 0, 2), expand=False))


def show_pages(console: Console, path: str, column: str, pages: Sequence[PageAnatomy], *, everything: bool) -> None:
    data = sum(page.kind == "data" for page in pages)
    total = size_text(sum(page.bytes for page in pages))
    console.print(f"{printable(path)}, column {printable(column)}: {count(data, 'data page')}, {total}")
    right = ("group", "offset", "first row", "rows", "bytes")
    table = _grid(console, *right, "encoding", "NULLs", "min", "max", right=(*right, "NULLs"))
    shown = pages if everything else pages[:MOST_PAGES]
    for page in shown:
        numbers = (page.first_row, page.rows)
        table.add_row(
            str(page.row_group),
            f"{page.offset:,}",
            *("-" if number is None else f"{number:,}" for number in numbers),
            f"{page.bytes:,}",
            ("dictionary, " if page.kind == "dictionary" else "") + page.encoding.lower(),
            "-" if page.nulls is None else f"{page.nulls:,}",
            *(_bound(value) for value in (page.min, page.max)),
        )
    if shown:
        _print(console, table)
    if len(shown) < len(pages):
        console.print(f"… and {count(len(pages) - len(shown), 'more page')}; --all shows all")


def _bound(value: object) -> str:
    text = "-" if value is None else printable(str(value))
    return text if len(text) <= LONGEST_BOUND else text[: LONGEST_BOUND - 1] + "…"


def _share(share: float) -> str:
    """
    >>> _share(0.5), _share(0.0123), _share(0.00001)
    ('50 %', '1.2 %', '0.0 %')
    """
    return f"{share:.0%}".replace("%", " %") if share >= 0.1 else f"{share:.1%}".replace("%", " %")
