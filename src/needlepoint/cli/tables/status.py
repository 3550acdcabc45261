"""`needle status`"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from needlepoint.cli.messages import one_line, say
from needlepoint.cli.options import common_options, format_option, open_lake

if TYPE_CHECKING:
    from rich.console import Console

    from needlepoint.lake import Status, TableStatus


@click.command("status", short_help="Show tables, indexes, waiting events and stores.")
@format_option
@common_options
def command(format: str) -> None:
    """Show the tables of the lake, their indexes, and the stores that keep them: registry, indexes and queue.

    Of a table: a file is `indexed` when it is described and all indexes of the table cover it. `unknown` files are in
    the table's directory and not in the registry yet: queries scan them, and `needle sync` adds them. Of an index:
    `dead` entries belong to removed files; `needle sweep` removes them.

    Of a store: `behind` is what it lacks, which are files that an index does not cover yet, events that wait for an
    indexer, or changes that readers on other machines cannot see yet. `health` is `well`, or `problem` with a line
    about it below. A server that does not answer within three seconds is a problem. Nothing is changed, and the exit
    code is 0 also with problems; `needle verify` looks for damage.

    \b
    Examples:
      needle status
      needle status --format json
    """
    from needlepoint.cli.screen import output

    with open_lake(reads=True) as lake:
        status = lake.status()
        # Now: a server that does not answer may delay the end.
        if format == "json":
            say(json.dumps(asdict(status), indent=2))
        else:
            _show(status, output())


def _rows(table: TableStatus) -> str:
    """The rows of unknown files are not counted: they are new, or were changed, perhaps through another table."""
    known = f"{table.rows:,}" if table.rows or not table.unknown else ""
    return " + ".join(filter(None, (known, "?" if table.unknown else "")))


def _show(status: Status, console: Console) -> None:
    from needlepoint.cli.screen import fitted, grid
    from needlepoint.printable import count, size_text

    console.print(f"lake {status.root}")
    console.print(f"store {status.store}")
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
    _show_stores(status, console)
    for index in (each for table in status.tables for each in table.indexes):
        if index.store:
            console.print(f"{index.name} is in {index.store}")
        if index.problem:
            console.print(f"{index.name}: {one_line(index.problem)}")
    about = "about " if status.approximate_events else ""
    waiting = f"{about}{count(status.waiting_events, 'event')} waiting"
    handled = " (`needle indexer` handles them)" if status.waiting_events else ""
    console.print(f"{waiting}{handled}, {status.events_set_aside:,} set aside")


def _show_stores(status: Status, console: Console) -> None:
    """Where everything is: its size, its format, what it lacks, and whether it can be used."""
    from needlepoint.cli.screen import fitted, grid
    from needlepoint.printable import count, size_text

    names = ("store", "place", "size", "format", "behind", "health")
    stores = grid(console, *names, right=("size", "format"))
    for each in status.stores:
        size = "?" if each.bytes is None else size_text(each.bytes)
        oldest = "the oldest " if each.unit == "event" else ""
        age = f", {oldest}{_age(each.seconds)}" if each.behind and each.seconds is not None else ""
        behind = f"{count(each.behind, each.unit)}{age}" if each.behind else "-"
        health = "problem" if each.problem else "well"
        place = each.place.removeprefix(f"{status.store}/").removeprefix(f"{status.root}/")
        part = f"{each.part} in {each.name}" if each.name else each.part
        stores.add_row(part, place, size, "-" if each.format is None else str(each.format), behind, health)
    console.print(fitted(stores, console))
    for each in status.stores:
        if each.problem and each.part not in ("keys", "packs"):  # their indexes follow
            console.print(f"{each.part}: {one_line(each.problem)}")
    if (state := status.published) is not None:
        behind = f", {count(state.lag, 'change')} behind" if state.lag else ""
        console.print(f"published at change {state.published:,}{behind}")


def _age(seconds: float) -> str:
    """
    >>> _age(3.2), _age(300), _age(90_000)
    ('3 s', '5 min', '25 h')
    """
    for length, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
