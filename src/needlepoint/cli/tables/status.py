"""`needle status`"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from needlepoint.cli.messages import one_line, say
from needlepoint.cli.options import common_options, open_lake

if TYPE_CHECKING:
    from rich.console import Console

    from needlepoint.lake import Status, TableStatus


@click.command("status")
@click.option("--format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@common_options
def command(format: str) -> None:
    """Show tables, indexes and waiting events.

    A file counts as indexed when it has everything that is declared. Unknown files are in a table's directory and not
    yet in the registry: they are scanned, and `needle sync` adds them. Dead entries of an index belong to removed
    files; `needle sweep` removes them.

    \b
    Examples:
      needle status
      needle status --format json
    """
    with open_lake(reads=True) as lake:
        status = lake.status()
    if format == "json":
        say(json.dumps(asdict(status), indent=2))
        return
    from needlepoint.cli.screen import output

    _show(status, output())


def _rows(table: TableStatus) -> str:
    """The rows of unknown files are not counted: they are new, or were changed, perhaps through another table."""
    known = f"{table.rows:,}" if table.rows or not table.unknown else ""
    return " + ".join(filter(None, (known, "?" if table.unknown else "")))


def _show(status: Status, console: Console) -> None:
    from needlepoint.cli.screen import duration, fitted, grid
    from needlepoint.printable import count, size_text

    console.print(f"lake {status.root}")
    console.print(f"store {status.store}")
    known = status.registry
    packs = f"cards {size_text(status.card_bytes)} in {count(status.card_packs, 'pack')}"
    if known.kind == "sqlite":  # a file of the store
        console.print(f"registry {size_text(known.bytes)}, {packs}")
    else:
        answers = f"answers in {duration(known.seconds)}"
        console.print(f"registry {known.place}, {size_text(known.bytes)}, {answers}, {packs}")
    headers = ("table", "files", "rows", "size", "indexed", "unknown", "partitions")
    tables = grid(console, *headers, right=headers[1:6])
    for table in status.tables:
        numbers = (f"{table.files:,}", _rows(table))
        left = (f"{table.indexed:,}", f"{table.unknown:,}", ", ".join(table.partitions) or "-")
        version = f" ({table.format}, version {table.version})" if table.version else ""
        cells = ("?",) * 5 if table.problem else (*numbers, size_text(table.bytes), *left[:2])
        tables.add_row(f"{table.name}{version}", *cells, left[2])
    if status.tables:
        console.print(fitted(tables, console))
    for table in status.tables:
        if table.problem:
            console.print(f"{table.name}: {one_line(table.problem)}")
        if table.passed_over:
            console.print(f"{table.name}: {count(table.passed_over, 'file')} passed over; `needle sync` names them")
    columns = ("index", "table", "column", "kind", "files", "entries", "size")
    indexes = grid(console, *columns, right=columns[4:])
    for index in (each for table in status.tables for each in table.indexes):
        dead = f" + {index.dead:,} dead" if index.dead else ""
        sizes = (f"{index.files:,}", f"{index.entries:,}{dead}", size_text(index.bytes))
        indexes.add_row(index.name, index.table, index.column, index.kind, *sizes)
    if indexes.row_count:
        console.print(fitted(indexes, console))
    if (state := status.published) is not None:
        behind = f", {count(state.lag, 'change')} behind" if state.lag else ""
        problem = f": {one_line(state.problem)}" if state.problem else ""
        console.print(f"published at change {state.published:,}{behind}{problem}")
    console.print(f"cards {size_text(status.card_bytes)} in {count(status.card_packs, 'pack')}")
    for index in (each for table in status.tables for each in table.indexes):
        if index.store:
            console.print(f"{index.name} is in {index.store}")
        if index.problem:
            console.print(f"{index.name}: {one_line(index.problem)}")
    about = "about " if status.approximate_events else ""
    console.print(f"{about}{count(status.waiting_events, 'event')} waiting, {status.events_set_aside:,} set aside")
