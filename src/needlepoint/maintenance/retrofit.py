"""Add the format's own page indexes and bloom filters to the files of a table, each in its place."""

from __future__ import annotations

from collections.abc import Sequence

from needlepoint.errors import NotIndexable, UnknownName
from needlepoint.maintenance.swap import MaintenanceContext
from needlepoint.objects import Identity
from needlepoint.parquet.write import RetrofitReport, retrofit


def retrofit_table(
    context: MaintenanceContext, table: str, page_index: bool, bloom: Sequence[str]
) -> list[RetrofitReport]:
    found = context.registry.tables.get(table)
    for column in bloom:
        found.field(column)
        if column in found.partitions:
            raise NotIndexable(f"column '{column}' of table '{table}' is a partition column.")
    context.sync(table)
    done: list[RetrofitReport] = []

    def change(path: str, identity: Identity) -> Identity:
        done.append(_retrofit(path, page_index, bloom, identity))
        return done[-1].identity

    context.indexer.rewrite(found, change)
    return done


def _retrofit(path: str, page_index: bool, bloom: Sequence[str], identity: Identity) -> RetrofitReport:
    """A file that lacks one of the columns gets no filter of it."""
    try:
        return retrofit(path, page_index, bloom, identity)
    except UnknownName as error:
        return _retrofit(path, page_index, [column for column in bloom if column != error.name], identity)
