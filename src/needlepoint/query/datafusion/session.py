"""DataFusion asks here for the tables of a query, which are other ones while planning and while running."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import datafusion
from datafusion.catalog import CatalogProvider, SchemaProvider

from needlepoint import forks
from needlepoint.query.datafusion import udfs

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
class SessionOptions:
    """What DataFusion may do, where the answer stays right.

    statistics    not with floats: it loses NaN, which statistics leave out
    top_groups    not with floats: where it keeps only the first groups, each NaN is one of its own
    pushdown      not with files that it can read only whole, and not with filters on nested columns
    moves         not after a failure inside it: sorted parts of a union may lose an order that a condition implies;
                  always with joins: what the logical plan does not move, the physical one moves by name
    own_filters   not where a join's inputs share a name: it takes a filter for that of the wrong column
                  (plan_facts.py); tables then stand behind a barrier (table_provider.py)
    equijoins     not where filters are stacked over such joins: a join without keys lets no filter pass
    sorted_parts  not with unions: it drops a column that is constant in each part from the keys of ORDER BY with LIMIT
    leaves        not with joins and projections: of a struct's field it makes a projection with the same name twice
    footers       not of objects: it takes a remembered one for that of any object of the same path, size and second

    And for an answer to be quick:

    even          it gives each core the same number of bytes of a file, also where many at the end are no data
    """

    statistics: bool = True
    top_groups: bool = True
    pushdown: bool = True
    moves: bool = True
    own_filters: bool = True
    equijoins: bool = True
    sorted_parts: bool = True
    leaves: bool = True
    footers: bool = True
    even: bool = True


def make_context(
    options: SessionOptions,
    known: udfs.Known | None = None,
    threads: int | None = None,
    subqueries_as_joins: bool = False,
    without_rules: Iterable[str] = (),
) -> datafusion.SessionContext:
    """A context that is so careful. `known` is what scores are made with; it uses all cores unless `threads` says how
    many. With `subqueries_as_joins` scalar subqueries are inputs of nodes, so that a plan shows all that it reads.
    `without_rules` are rules of the optimizer that it does without."""
    forks.begin()
    pushdown = options.pushdown
    settings = {
        "datafusion.catalog.information_schema": "true",
        "datafusion.execution.collect_statistics": str(options.statistics).lower(),
        "datafusion.execution.parquet.pushdown_filters": str(pushdown).lower(),
        "datafusion.execution.parquet.reorder_filters": str(pushdown).lower(),
        "datafusion.execution.parquet.enable_page_index": str(pushdown).lower(),
        "datafusion.optimizer.enable_topk_aggregation": str(options.top_groups).lower(),
        "datafusion.optimizer.repartition_sorts": str(options.sorted_parts).lower(),
        # One by one: the setting for all three would set the third again.
        "datafusion.optimizer.enable_topk_dynamic_filter_pushdown": str(pushdown and options.own_filters).lower(),
        "datafusion.optimizer.enable_join_dynamic_filter_pushdown": str(pushdown and options.own_filters).lower(),
        # With two aggregates it makes `k > NULL OR m > 7`, which is never TRUE for an m of 7, whatever k is.
        "datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown": "false",
        "datafusion.optimizer.enable_leaf_expression_pushdown": str(pushdown and options.leaves).lower(),
        "datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery": str(not subqueries_as_joins).lower(),
    }
    if threads is not None or not options.even:
        settings["datafusion.execution.target_partitions"] = str(threads or CORES * PARTS_OF_UNEVEN)
    config = datafusion.SessionConfig(settings).with_default_catalog_and_schema(CATALOG, SCHEMA)
    context = datafusion.SessionContext(config)
    context.register_catalog_provider(CATALOG, _Catalog())
    udfs.register(context, known or udfs.Known())
    removed = [*without_rules]
    removed += [] if options.equijoins else ["extract_equijoin_predicate"]
    removed += [] if options.moves else ["push_down_filter"]
    for rule in removed:
        if not context.remove_optimizer_rule(rule):
            raise RuntimeError(f"DataFusion has no rule '{rule}', which this version of Needlepoint does without.")
    # A directory listing would otherwise be remembered for ever.
    context.sql("SET datafusion.runtime.list_files_cache_limit = '0'")
    if not options.footers:
        context.sql("SET datafusion.runtime.metadata_cache_limit = '0'")
    return context
