"""DataFusion asks here for the tables of a query, which are other ones while planning and while running."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import datafusion
from datafusion.catalog import CatalogProvider, SchemaProvider

from needlepoint.query import text_functions

CATALOG, SCHEMA = "needle", "lake"
CORES = os.cpu_count() or 1
# Files with indexes in them are cut into so many parts for each core: one of them has less data than another.
PARTS_OF_UNEVEN = 4

_tables: ContextVar[Mapping[str, datafusion.Table]] = ContextVar("tables")
# DataFusion fills information_schema from threads of its own, which have no context: they list the latest query's.
_remembered: Mapping[str, datafusion.Table] = {}


@contextmanager
def tables(found: Mapping[str, datafusion.Table]) -> Iterator[None]:
    """Within this block, in this thread or task, these are the tables."""
    token = _tables.set(found)
    try:
        yield
    finally:
        _tables.reset(token)


def remember(found: Mapping[str, datafusion.Table]) -> None:
    global _remembered
    _remembered = found


class _Schema(SchemaProvider):
    @property
    def table_names(self) -> list[str]:  # type: ignore[override]  # DataFusion 55 reads an attribute here
        return list(_tables.get(_remembered))

    def table(self, name: str) -> datafusion.Table | None:
        return _tables.get(_remembered).get(name)

    def table_exist(self, name: str) -> bool:
        return name in _tables.get(_remembered)


class _Catalog(CatalogProvider):
    def __init__(self) -> None:
        self._schema = _Schema()

    def schema_names(self) -> set[str]:
        return {SCHEMA}

    def schema(self, name: str) -> SchemaProvider | None:  # type: ignore[override]  # a Python provider is accepted
        return self._schema if name == SCHEMA else None


@dataclass(frozen=True, slots=True)
class Care:
    """What DataFusion must not do for an answer to be right.

    statistics   it loses NaN through them, which they leave out
    pushdown     it takes a filter over a join for one side's, by the name of a column (datafusion#25296)
    hash_joins   likewise below a hash join, into the arms of a union, whatever it may push into a scan
    footers      it takes one that it remembers for that of any file or object of the same path, size and second

    And for an answer to be quick:

    even         it gives each core the same number of bytes of a file, also where many at the end are no data
    """

    statistics: bool = True
    pushdown: bool = True
    hash_joins: bool = True
    footers: bool = True
    even: bool = True


def make_context(
    care: Care, known: text_functions.Known | None = None, threads: int | None = None
) -> datafusion.SessionContext:
    """A context that is so careful. `known` is what scores are made with; it uses all cores unless `threads` says how
    many."""
    pushdown = care.pushdown
    settings = {
        "datafusion.catalog.information_schema": "true",
        "datafusion.execution.collect_statistics": str(care.statistics).lower(),
        "datafusion.optimizer.prefer_hash_join": str(care.hash_joins).lower(),
        "datafusion.execution.parquet.pushdown_filters": str(pushdown).lower(),
        "datafusion.execution.parquet.reorder_filters": str(pushdown).lower(),
        "datafusion.execution.parquet.enable_page_index": str(pushdown).lower(),
        "datafusion.optimizer.enable_dynamic_filter_pushdown": str(pushdown).lower(),
        # Over a join, DataFusion 55 makes of a struct's field in a filter a projection with the same name twice.
        "datafusion.optimizer.enable_leaf_expression_pushdown": str(pushdown).lower(),
    }
    if threads is not None or not care.even:
        settings["datafusion.execution.target_partitions"] = str(threads or CORES * PARTS_OF_UNEVEN)
    config = datafusion.SessionConfig(settings).with_default_catalog_and_schema(CATALOG, SCHEMA)
    context = datafusion.SessionContext(config)
    context.register_catalog_provider(CATALOG, _Catalog())
    text_functions.register(context, known or text_functions.Known())
    # A directory listing would otherwise be remembered for ever.
    context.sql("SET datafusion.runtime.list_files_cache_limit = '0'")
    if not care.footers:
        context.sql("SET datafusion.runtime.metadata_cache_limit = '0'")
    return context
