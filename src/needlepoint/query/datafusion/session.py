"""Session contexts, and the tables that they resolve: other ones while planning than while running."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import datafusion
from datafusion.catalog import CatalogProvider, SchemaProvider

from needlepoint import forks
from needlepoint.query.datafusion import udfs
from needlepoint.query.known_names import CATALOG, SCHEMA

CORES = os.cpu_count() or 1
# Parts per core for files with embedded indexes: parts of equal size have different amounts of data.
PARTS_OF_UNEVEN = 4
_THREADS = "TOKIO_WORKER_THREADS"
# Of lent contexts; the limit of memory, which a user chooses, is one of their options.
MOST_KINDS_IDLE = 32

Kept = TypeVar("Kept")

_tables: ContextVar[Mapping[str, datafusion.Table]] = ContextVar("tables")


@contextmanager
def tables(found: Mapping[str, datafusion.Table]) -> Iterator[None]:
    """Within this block, in this thread or task, these are the tables."""
    token = _tables.set(found)
    try:
        yield
    finally:
        _tables.reset(token)


class TableNames(SchemaProvider):
    """The tables of the current query. DataFusion reads information_schema in its own threads, which do not have the
    context variable: they see the `listed` tables, of a context that is lent to one query."""

    def __init__(self) -> None:
        self.listed: Mapping[str, datafusion.Table] = {}

    @property
    def table_names(self) -> list[str]:  # type: ignore[override]  # DataFusion 55 reads an attribute here
        return list(_tables.get(self.listed))

    def table(self, name: str) -> datafusion.Table | None:
        return _tables.get(self.listed).get(name)

    def table_exist(self, name: str) -> bool:
        return name in _tables.get(self.listed)


class _Catalog(CatalogProvider):
    def __init__(self, names: TableNames) -> None:
        self._schema = names

    def schema_names(self) -> set[str]:
        return {SCHEMA}

    def schema(self, name: str) -> SchemaProvider | None:  # type: ignore[override]  # a Python provider is accepted
        return self._schema if name == SCHEMA else None


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What DataFusion may do without wrong results.

    statistics    not with floats: statistics exclude NaN, and rows with it are lost
    top_groups    not with floats: where it keeps only the first groups, each NaN is a group; and not where a projection
                  gives the name of a column to another value, by which it then chooses the groups
    pushdown      not with files that it can only read whole, and not with filters on nested columns
    moves         not after an internal failure: sorted parts of a union may lose an order that a condition implies;
                  not with a total of no rows: a condition on the total, which is FALSE, may have moved below it;
                  always with joins: what the logical plan does not move, the physical one moves by name
    regrouping    not after an internal failure: a sum beside count(DISTINCT) becomes a sum of sums, of a wider decimal
    parallel      not after an internal failure: some plans of joins lose the partitioning that they need; and not after
                  the limit of memory was reached: one partition needs less
    own_filters   not where the inputs of a join share a name that any table may have: it applies a filter to the wrong
                  column (plan_facts.py); not with joins by floats, whose zeros its filter distinguishes, or by lists
                  and structs, of which it loses some; tables are then behind a barrier (table_provider.py)
    equijoins     not where filters are stacked over such joins: no filter passes a join without keys
    sorted_parts  not with unions: it drops a column that is constant in each part from the keys of ORDER BY with LIMIT
    unique_keys   not with groups of a join of groups: it drops keys of ORDER BY that others do not determine
    fewer_keys    not with groups of these: it drops keys of groups too, together with all columns that are not used
    leaves        not with joins and projections: for a struct's field it makes a projection with a duplicate name
    footers       not of objects: it uses a cached footer for any object of the same path, size and second
    generation    of the cached footers (footers.py); a context has those of one generation

    And for speed:

    late          it filters rows while it reads them, not after (filter_choice.py)
    even          it gives each core the same number of bytes of a file, even if many bytes at the end are not data

    And the limit of memory, in bytes, of all that runs in the context; 0 for none.
    """

    statistics: bool = True
    top_groups: bool = True
    pushdown: bool = True
    moves: bool = True
    regrouping: bool = True
    parallel: bool = True
    own_filters: bool = True
    equijoins: bool = True
    sorted_parts: bool = True
    unique_keys: bool = True
    fewer_keys: bool = True
    leaves: bool = True
    footers: bool = True
    generation: int = 0
    late: bool = True
    even: bool = True
    memory: int = 0


class Contexts:
    """One context for each set of options, without those of older generations."""

    def __init__(self, make: Callable[[SessionOptions], datafusion.SessionContext]) -> None:
        self._make = make
        self._made: dict[SessionOptions, datafusion.SessionContext] = {}

    def __call__(self, options: SessionOptions) -> datafusion.SessionContext:
        found = self._made.get(options)
        if found is None:
            found = self._make(options)
            # A new dictionary: other threads may be reading the old one.
            self._made = {**without_older(self._made, options), options: found}
        return found

    def clear(self) -> None:
        self._made = {}


def without_older(made: Mapping[SessionOptions, Kept], options: SessionOptions) -> dict[SessionOptions, Kept]:
    """Without what has footers of an older generation than these options."""
    return {each: kept for each, kept in made.items() if not each.footers or each.generation >= options.generation}


def make_context(
    options: SessionOptions,
    known: udfs.ScoreStatistics | None = None,
    names: TableNames | None = None,
    threads: int | None = None,
    subqueries_as_joins: bool = False,
    without_rules: Iterable[str] = (),
) -> datafusion.SessionContext:
    """A context with these options. `known` has the score statistics. It uses all cores, or `threads` threads. With
    `subqueries_as_joins`, scalar subqueries are inputs of nodes, so the plan shows all scans. `without_rules` names
    optimizer rules to remove."""
    forks.begin()
    _start_threads()
    pushdown = options.pushdown
    settings = {
        "datafusion.catalog.information_schema": "true",
        "datafusion.execution.collect_statistics": str(options.statistics).lower(),
        "datafusion.execution.parquet.pushdown_filters": str(pushdown and options.late).lower(),
        "datafusion.execution.parquet.reorder_filters": str(pushdown and options.late).lower(),
        "datafusion.execution.parquet.enable_page_index": str(pushdown).lower(),
        "datafusion.optimizer.enable_topk_aggregation": str(options.top_groups).lower(),
        "datafusion.optimizer.repartition_sorts": str(options.sorted_parts).lower(),
        # Set one by one: the setting for all three would enable the third again.
        "datafusion.optimizer.enable_topk_dynamic_filter_pushdown": str(pushdown and options.own_filters).lower(),
        "datafusion.optimizer.enable_join_dynamic_filter_pushdown": str(pushdown and options.own_filters).lower(),
        # For two aggregates it makes `k > NULL OR m > 7`, which is never TRUE for an m of 7, for any k.
        "datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown": "false",
        "datafusion.optimizer.enable_leaf_expression_pushdown": str(pushdown and options.leaves).lower(),
        "datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery": str(not subqueries_as_joins).lower(),
    }
    if options.memory:
        # Each sort reserves this much to merge what it spilled: 10 MiB by default, more than a small limit allows.
        reserved = min(10 << 20, options.memory // 16)
        settings["datafusion.execution.sort_spill_reservation_bytes"] = str(reserved)
    if not options.parallel:
        settings["datafusion.execution.target_partitions"] = "1"
    elif threads is not None or not options.even:
        settings["datafusion.execution.target_partitions"] = str(threads or CORES * PARTS_OF_UNEVEN)
    config = datafusion.SessionConfig(settings).with_default_catalog_and_schema(CATALOG, SCHEMA)
    context = datafusion.SessionContext(config, _runtime(options.memory))
    context.register_catalog_provider(CATALOG, _Catalog(names or TableNames()))
    udfs.register(context, known or udfs.ScoreStatistics())
    removed = [*without_rules]
    removed += [] if options.equijoins else ["extract_equijoin_predicate"]
    removed += [] if options.moves else ["push_down_filter"]
    removed += [] if options.unique_keys else ["eliminate_duplicated_expr"]
    removed += [] if options.fewer_keys else ["optimize_projections"]
    removed += [] if options.regrouping else ["single_distinct_aggregation_to_group_by"]
    for rule in removed:
        if not context.remove_optimizer_rule(rule):
            raise RuntimeError(f"DataFusion has no rule '{rule}', which this version of Needlepoint removes.")
    # Otherwise a directory listing is cached forever.
    context.sql("SET datafusion.runtime.list_files_cache_limit = '0'")
    if not options.footers:
        context.sql("SET datafusion.runtime.metadata_cache_limit = '0'")
    return context


@functools.cache
def _start_threads() -> None:
    with more_threads():
        datafusion.SessionContext().sql("SELECT 1").collect()


@contextmanager
def more_threads() -> Iterator[None]:
    """Threads of DataFusion that start within this block are more than there are cores. A join that multiplies its
    inputs does not notice that it was cancelled, and would leave no thread to other queries. How many threads a query
    uses is another number, of its partitions."""
    given = os.environ.get(_THREADS)
    os.environ[_THREADS] = given or str(max(16, 4 * CORES))
    try:
        yield
    finally:
        if given is None:
            del os.environ[_THREADS]


def _runtime(memory: int) -> datafusion.RuntimeEnvBuilder | None:
    """Sorts and groups that need more memory spill to the directory of temporary files."""
    if not memory:
        return None
    return datafusion.RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(memory)


@dataclass(frozen=True, slots=True)
class LentContext:
    """A context of one query at a time: with its own statistics for scores, names for information_schema, memory."""

    context: datafusion.SessionContext
    known: udfs.ScoreStatistics
    names: TableNames

    @classmethod
    def make(cls, options: SessionOptions) -> LentContext:
        known, names = udfs.ScoreStatistics(), TableNames()
        return cls(make_context(options, known, names), known, names)


class ContextPool:
    """As many contexts as were lent at the same time, reused."""

    def __init__(self) -> None:
        self._idle: dict[SessionOptions, list[LentContext]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def lent(self, options: SessionOptions) -> Iterator[LentContext]:
        with self._lock:
            if options not in self._idle:
                self._idle = without_older(self._idle, options)
                while len(self._idle) >= MOST_KINDS_IDLE:
                    self._idle.pop(next(iter(self._idle)))
            idle = self._idle.setdefault(options, [])
            taken = idle.pop() if idle else None
        lent = taken or LentContext.make(options)
        try:
            yield lent
        finally:
            lent.known.statistics, lent.names.listed = {}, {}
            with self._lock:
                idle.append(lent)
