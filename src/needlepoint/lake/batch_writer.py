"""What a batch, a compaction or a retrofit needs to know of its table before it writes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from needlepoint.errors import NameTaken, NotIndexable, UnknownName, UsageError
from needlepoint.maintenance import choose
from needlepoint.maintenance.choose import Choice, Wish
from needlepoint.objects import Identity
from needlepoint.parquet.write.retrofit import RetrofitReport, retrofit
from needlepoint.tables.discovery import discover_schema, discover_table, read_schemas
from needlepoint.tables.formats.table_formats import decide, is_of_others
from needlepoint.tables.model import File, Table
from needlepoint.tables.staged_file import StagedFile

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake


def refuse_of_others(lake: Lake, name: str, hint: str = "Write to it with its own tools, then sync.") -> None:
    """The log of a table has the sizes of its files, and readers go by them."""
    if name in lake.registry.table_names() and is_of_others(format := lake.registry.table(name).format):
        kind = format.partition("=")[0].capitalize()
        raise UsageError(f"table '{name}' is a table of {kind}, whose files are not written here.", hint=hint)


def refuse_removing(lake: Lake, name: str) -> None:
    """Before any work is done for a batch that would be refused at its end."""
    refuse_of_others(lake, name)
    lake.registry.refuse_shared(lake.registry.table(name).id)


def table_for(lake: Lake, name: str, staged: Sequence[StagedFile], staging: str) -> Table:
    """The schema of the batch must fit the table before any of it is published."""
    paths = [file.path.removeprefix(f"{staging}/") for file in staged]
    if name not in lake.registry.table_names():
        if not staged:
            raise UsageError(f"the first batch of table '{name}' is empty.", hint="It has no schema to go by.")
        found = discover_table(staging, paths, skip_unfinished=False)
        # Another first batch may be quicker: then this one is a second.
        with contextlib.suppress(NameTaken):
            place = _own_place(lake, name)
            return lake.registry.create_table(name, place, found.schema, found.partitions, found.mixed)
    table = lake.registry.table(name)
    if staged:
        known = lake.registry.paths(table)
        found = discover_schema(staging, read_schemas(staging, paths), [*known, *paths], base=table)
        if found.adds_to(table):
            table = lake.registry.widen_schema(table, found.schema, found.mixed)
    return table


def _own_place(lake: Lake, name: str) -> str:
    """Where a table lies that its first batch makes."""
    decided, place = decide(lake.place(name, None), None)
    if is_of_others(decided):
        raise UsageError(
            f"{place} is a table of {decided.capitalize()}, which is not written here.",
            hint=f"`needle create-table {name}` makes it a table to be read; choose another name to write.",
        )
    return place


def choose_files(lake: Lake, table: str, wish: Wish) -> Choice:
    """What a compaction would rewrite of a table, which is synced first."""
    refuse_removing(lake, table)
    choose.check(lake.registry.table(table), wish)
    lake.sync(table)
    found = lake.registry.table(table)

    def largest_page(file: File) -> int:
        card = lake.engine.cards.get(file)
        return 0 if card is None else card.largest_page()

    files = [file for file in lake.registry.files(found) if file.rows is not None]
    return choose.choose(found, files, wish, largest_page)


def retrofit_table(lake: Lake, table: str, page_index: bool, bloom: Sequence[str]) -> list[RetrofitReport]:
    refuse_of_others(lake, table, "Its own tools can write them: see docs/tables-of-others.md.")
    found = lake.registry.table(table)
    for column in bloom:
        found.field(column)
        if column in found.partitions:
            raise NotIndexable(f"column '{column}' of table '{table}' is a partition column.")
    lake.sync(table)
    done: list[RetrofitReport] = []

    def change(path: str, identity: Identity) -> Identity:
        done.append(_retrofit(path, page_index, bloom, identity))
        return done[-1].identity

    lake.indexer.rewrite(found, change)
    return done


def _retrofit(path: str, page_index: bool, bloom: Sequence[str], identity: Identity) -> RetrofitReport:
    try:
        return retrofit(path, page_index, bloom, identity)
    except UnknownName as error:
        return _retrofit(path, page_index, [column for column in bloom if column != error.name], identity)
