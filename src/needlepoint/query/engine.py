"""A query from SQL to Arrow.

    plan      the SQL against tables without files: columns and predicate of every scan
    prune     steps rule out files and find rows: an access plan for each table
    read      few rows by page, the rest by native scan
    run       the same SQL, every predicate included, over what was read

Only what a step ruled out is skipped, and every predicate is evaluated again at the end. So a stale, partial or broken
index costs time, not rows.

Each step passes an immutable value to the next one:

    Request -> PruningContext -> PruningResult -> ScanPlan -> ScanMetrics

Floats need care. Parquet statistics exclude NaN, while SQL orders it above all numbers. DataFusion trusts the
statistics and loses rows (`f > 1` misses NaN, and a column of 0.5 and NaN reads as all 0.5). So queries on a float
column run without collected statistics, and DataFusion sees float columns of predicates as `nanvl(f, f)`, which equals
`f` but hides it from pruning. The same applies to all float columns of a query for which DataFusion makes filters
itself, as for ORDER BY with LIMIT. Its lists of four and more values distinguish -0.0 from 0.0: there, zeros get the
sign of the zero in the list.

Timestamps and times with different units in different files are hidden as `greatest(t, t)`. DataFusion casts a file's
column to the table's finer unit, then moves the cast to the literal and truncates it to the coarser unit: `t < 1001 ns`
becomes `t < 1 us`, which loses 1 us. It does so with predicates, and with its own filters for ORDER BY and min.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from needlepoint.errors import FileChanged, NeedlepointError, SqlError, UnknownName
from needlepoint.parquet import Caches
from needlepoint.query.attempt import Attempt, CannotSkip, EngineFault
from needlepoint.query.cache.card_cache import CardCache
from needlepoint.query.cache.index_cache import IndexCache, words_of
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.known_names import KnownNames, visible_tables
from needlepoint.query.point_lookup import PointLookup, PointLookups, recognise
from needlepoint.query.report.explain import Report
from needlepoint.query.report.query_history import QueryHistory
from needlepoint.query.result import Result
from needlepoint.query.row_stream import NO_END, ROOM
from needlepoint.query.running import Limits, OutOfMemory, RunningQueries, RunningQuery
from needlepoint.query.scan.costs import costs_of
from needlepoint.query.scan.held_files import QueryRetries
from needlepoint.query.scan.scan_plan import WORTH_SECONDS, ScanMetrics, ScanPlan
from needlepoint.query.sql.parameters import check_parameters
from needlepoint.query.sql.request import everything
from needlepoint.query.timed_choice import TimedChoice
from needlepoint.settings import Settings
from needlepoint.stores import KeyStore
from needlepoint.tables import Index, Snapshot, Snapshots
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    import datafusion

    from needlepoint.indexes.text import WordIndex
    from needlepoint.query.datafusion.filter_choice import FilterChoice
    from needlepoint.query.datafusion.native_scan import NativeScans
    from needlepoint.query.datafusion.planner import LogicalQuery, Planner
    from needlepoint.query.datafusion.session import ContextPool, Contexts
    from needlepoint.query.execution import QueryPlan
    from needlepoint.query.query_plans import QueryPlans
    from needlepoint.query.ranked_search import RankedSearches
    from needlepoint.query.scan_planner import ScanPlanner

# A table is narrowed by the keys of another one if it has at least this many times more rows: an index must be much
# faster than a scan. Of a table with fewer rows, ORDER BY with LIMIT reads all at once.
TIMES_LARGER, LEAST_ROWS = 20, 10_000
# The forms of ranked searches are kept by their texts; a longer one goes to DataFusion.
LONGEST_SEARCH = 10_000
_SCORE = re.compile(r"\bscore\s*\(", re.IGNORECASE)

Answer = TypeVar("Answer")


class Engine:
    def __init__(
        self,
        registry: Registry,
        stores: Callable[[Index], KeyStore],
        file_indexes: IndexCache,
        settings: Settings,
        history: QueryHistory,
        scratch: Path,
    ) -> None:
        self._registry = registry
        self._stores = stores
        self.file_indexes = file_indexes
        self._settings = settings
        self.history = history
        self.costs = costs_of(settings.costs, Path(settings.store))
        self.snapshots = Snapshots(
            registry, settings.refresh, settings.object_refresh, skip_unfinished=settings.unfinished == "skip"
        )
        self._retries = QueryRetries(self.snapshots.forget, scratch, registry.locks)
        self.cards = CardCache(registry, settings.cache_bytes)
        self.caches = Caches.of(settings.dictionary_bytes, settings.page_bytes, local_pages=False)
        self.accesses = TimedChoice(WORTH_SECONDS)
        self.known = KnownNames(registry)
        self.running = RunningQueries(settings.slow_seconds)
        self._limits = Limits(settings.query_seconds, settings.query_rows, settings.query_memory)
        self.room = ROOM
        self.times_larger = TIMES_LARGER
        self.least_rows = LEAST_ROWS
        self.unskippable: set[str] = set()
        self._states: dict[str, TableState] = {}
        self._fresh_stores: dict[int, tuple[int, weakref.ref[KeyStore]]] = {}
        self.lookups = PointLookups(self, settings.access, settings.range_limit)

    @cached_property
    def scan_planner(self) -> ScanPlanner:
        """Imported with the first lookup whose rows no key index names."""
        from needlepoint.query.scan_planner import ScanPlanner

        return ScanPlanner(self, self._settings.access, self._settings.range_limit)

    # What runs SQL. It is imported with the first query that is no point lookup.

    @cached_property
    def natives(self) -> NativeScans:
        from needlepoint.query.datafusion.native_scan import NativeScans

        return NativeScans()

    @cached_property
    def filters(self) -> FilterChoice:
        from needlepoint.query.datafusion.filter_choice import FilterChoice

        return FilterChoice()

    @cached_property
    def _contexts(self) -> Contexts:
        from needlepoint.query.datafusion.session import Contexts, make_context

        return Contexts(make_context)

    @cached_property
    def _lent_contexts(self) -> ContextPool:
        from needlepoint.query.datafusion.session import ContextPool

        return ContextPool()

    @property
    def _context(self) -> datafusion.SessionContext:
        from needlepoint.query.datafusion.session import SessionOptions

        return self._contexts(SessionOptions())

    @cached_property
    def planner(self) -> Planner:
        from needlepoint.query.datafusion.planner import Planner

        return Planner(self._context, self.names)

    @cached_property
    def plans(self) -> QueryPlans:
        from needlepoint.query.query_plans import QueryPlans

        return QueryPlans(self, self._settings.access, self._settings.range_limit)

    @cached_property
    def searches(self) -> RankedSearches:
        from needlepoint.query.ranked_search import RankedSearches

        return RankedSearches(self, self._settings.access)

    # Run

    def sql(
        self,
        query: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        use_indexes: bool | str = True,
        limits: Limits | None = None,
        query_id: str = "",
        is_noted: bool = True,
    ) -> Result:
        """Run a query. If a file changes meanwhile, plan the query again.

        `use_indexes` can name the only index to use; it is then used at any cost. `query_id` names the
        query in `running`. Unless `is_noted`, it leaves no trace in the history.
        """
        parameters = check_parameters(query, parameters)
        with self.run(query, limits, query_id) as running:
            running.is_noted = is_noted
            return self.run_sql(query, parameters, use_indexes, running)

    def sql_at_once(self, query: str, parameters: Mapping[str, Any] | None, limits: Limits) -> Result | None:
        """The result of a point lookup that takes a millisecond or two; None for any other query."""
        form = recognise(query)
        state = None if form is None else self.fresh_state(form.table, limits)
        if form is None or state is None:
            return None
        lookup = form.lookup(state.types, check_parameters(query, parameters))
        if lookup is None or not state.lookups.get((*lookup.columns, "", *lookup.values), False):
            return None
        return self.checked_at_once(lookup, state, limits)

    def fresh_state(self, name: str, limits: Limits) -> TableState | None:
        """The state of a table that a query may read, if it is known without reading anything."""
        if limits.tables is not None and name not in limits.tables:
            return None
        held = self._states.get(name)
        return held if held is not None and held.snapshot is self.snapshots.fresh(name) else None

    def checked_at_once(self, lookup: PointLookup, state: TableState, limits: Limits) -> Result | None:
        found = self.lookups.at_once(lookup, state)
        if found is not None:
            limits.check_rows(len(found))
        return found

    @contextmanager
    def run(self, query: str, limits: Limits | None = None, query_id: str = "") -> Iterator[RunningQuery]:
        """Within this block, a query is listed in `running`; after it too, while the rest of its rows is read."""
        running = self.running.begin(query, limits or self._limits, query_id)
        token = visible_tables.set(running.limits.tables)
        try:
            yield running
        finally:
            visible_tables.reset(token)
            if not running.is_kept:
                self.running.end(running)

    @contextmanager
    def kept(self, running: RunningQuery) -> Iterator[None]:
        """The same, for a query that has returned."""
        running.is_kept = True
        try:
            yield
        finally:
            self.running.end(running)

    def run_sql(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        use_indexes: bool | str,
        running: RunningQuery,
        room: int | None = None,
    ) -> Result:
        """The result of a query that is listed as running; it is retried where that can help. A result of more than
        `room` bytes is not complete yet: see row_stream.py."""

        def run(attempt: Attempt) -> Result:
            return self.with_replan(
                lambda first: self._run_once(
                    query, parameters, use_indexes, attempt, first, running, self.room if room is None else room
                )
            )

        attempt, fault = Attempt.FIRST, None
        while True:
            try:
                return run(attempt)
            except CannotSkip as error:
                if attempt is not Attempt.FIRST:
                    from needlepoint.query.datafusion.unreadable import unreadable

                    raise unreadable(error, error.scans) from error
                attempt = Attempt.WHOLE
            except (EngineFault, OutOfMemory) as failure:
                if not attempt.follows_failure:
                    attempt = Attempt.PLAIN
                elif attempt is Attempt.PLAIN and isinstance(failure, EngineFault):
                    attempt, fault = Attempt.OPAQUE, failure
                else:
                    raise
            except (SqlError, UnknownName):
                if fault is None:
                    raise
                raise fault from None  # written differently, the query may not be valid

    def run_planned(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        lookup: PointLookup,
        state: TableState,
        scan: ScanPlan,
        running: RunningQuery,
    ) -> Result:
        """The result of a query that is this point lookup, and needs this scan of the table in this state."""
        from needlepoint.query.execution import Execution

        started = time.perf_counter()
        plan = self.plans.of_lookup(query, lookup, state, scan, Attempt.FIRST)
        try:
            with self._clear_error(query):
                execution = Execution(self, plan, running, started, is_noted=True)
                return execution.run(parameters, self.room, lambda: self._whole(query, parameters, True, running))
        except (CannotSkip, EngineFault, OutOfMemory):
            return self.run_sql(query, parameters, True, running)

    def with_replan(self, ask: Callable[[bool], Answer], *, holding: bool = True) -> Answer:
        """Retry with a new snapshot when a file changed; the argument of `ask` says whether files may be listed. See
        `query/scan/held_files.py`."""
        return self._retries.run(ask, holding)

    def explain(self, query: str, parameters: Mapping[str, Any] | None = None, limits: Limits | None = None) -> Report:
        """The report of a query that is planned but not run."""
        parameters = check_parameters(query, parameters)
        from needlepoint.query.execution import maps, reports

        with self.run(query, limits), self._clear_error(query):
            plan = self.with_replan(lambda _: self.plans.first(query, parameters))
        return Report(lambda: reports(self, plan, {}), lambda: maps(self, plan), executed=False)

    def schema(
        self, query: str, parameters: Mapping[str, Any] | None = None, limits: Limits | None = None
    ) -> pa.Schema:
        """The schema of the result of a query that is not run."""
        parameters = check_parameters(query, parameters)
        with self.run(query, limits), self._clear_error(query):
            if (recognised := self._recognised(query, parameters)) is not None:
                lookup, state = recognised
                return pa.schema([(name, state.types[name]) for name in lookup.columns])
            return self.plans.schema(query, parameters)

    def _run_once(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        use_indexes: bool | str,
        attempt: Attempt,
        may_list: bool,
        running: RunningQuery,
        room: int,
    ) -> Result:
        with self._clear_error(query):
            running.check()
            started = time.perf_counter()
            recognised = self._recognised(query, parameters)
            asked = (query, parameters, use_indexes, attempt, may_list, running)
            if recognised is None and use_indexes is True and attempt is Attempt.FIRST:
                ranked = self._ranked(query, parameters)
                if ranked is not None:
                    running.limits.check_rows(len(ranked))
                    return ranked
            if recognised is None:
                plan, tops = self.plans.of(*asked)
            else:
                lookup, state = recognised
                found = self.lookups.run(lookup, state, use_indexes, pushdown=attempt is Attempt.FIRST)
                if isinstance(found, Result):
                    running.limits.check_rows(len(found))
                    return found
                scan = replace(found, may_list=may_list)
                plan, tops = self.plans.of_lookup(query, lookup, state, scan, attempt), iter(())
            from needlepoint.query.execution import CannotMerge, Execution

            def run(plan: QueryPlan, room: int) -> Result:
                began = time.perf_counter()
                execution = Execution(self, plan, running, started, is_noted=use_indexes is True and running.is_noted)
                found = execution.run(parameters, room, lambda: self._whole(query, parameters, use_indexes, running))
                if plan.shape and found.is_complete:
                    self.filters.note(plan.shape, plan.options.late, time.perf_counter() - began)
                return found

            if plan.known is not None:
                try:
                    return run(plan, room)
                except CannotMerge:
                    plan, tops = self.plans.of(*asked, from_indexes=False)
            for top in tops:
                result = run(top, NO_END)  # complete: it has few rows, and may not be the last
                if top.attempts is None or top.attempts.is_enough(len(result)):
                    return result
            return run(plan, room)

    @contextmanager
    def _clear_error(self, query: str) -> Iterator[None]:
        """Within this block, DataFusion's errors become ours."""
        try:
            yield
        except (NeedlepointError, KeyboardInterrupt, AssertionError):
            raise
        except BaseException:
            from needlepoint.query.datafusion.errors import clear_error

            with clear_error(query, self.names):
                raise

    def _whole(
        self, query: str, parameters: Mapping[str, Any] | None, use_indexes: bool | str, running: RunningQuery
    ) -> pa.Table:
        """The rows of a query whose first run did not get to its end."""
        with self.run(query, running.limits, running.id) as again:
            return self.run_sql(query, parameters, use_indexes, again, room=NO_END).to_arrow()

    # Plan

    def plan_sql(self, query: str, state: TableState) -> LogicalQuery:
        """The logical plan of a query on this table only."""
        return self.planner.plan(query, None, [], {state.snapshot.table.name: state})

    def _recognised(self, query: str, parameters: Mapping[str, Any] | None) -> tuple[PointLookup, TableState] | None:
        """The point lookup of a query. A word that looks like a column name can have another meaning in SQL: with such
        a word, DataFusion is asked once for each set of columns whether it is one."""
        form = recognise(query)
        state = None if form is None else self._state_named(form.table)
        lookup = None if form is None or state is None else form.lookup(state.types, parameters)
        if form is None or state is None or lookup is None:
            return None
        shape = (*lookup.columns, "", *lookup.values)
        if shape not in state.lookups and not lookup.has_keywords:
            state.lookups[shape] = True
        if shape not in state.lookups:
            logical = self.planner.plan(query, parameters, [], {form.table: state})
            state.lookups[shape] = lookup.agrees(logical.requests.get(form.table), logical.schema)
        return (lookup, state) if state.lookups[shape] else None

    def _ranked(self, query: str, parameters: Mapping[str, Any] | None) -> Result | None:
        """The result of a ranked search, if DataFusion agrees that the query is one, and text indexes cover it."""
        if len(query) > LONGEST_SEARCH or not _SCORE.search(query):
            return None
        from needlepoint.query.ranked_search import recognise

        form = recognise(query)
        state = None if form is None else self._state_named(form.table)
        search = None if form is None or state is None else form.search(state.types, parameters)
        if search is None or state is None:
            return None
        if search.shape not in state.lookups:
            logical = self.planner.plan(query, parameters, [], {search.table: state})
            state.lookups[search.shape] = search.agrees(logical, state.types)
        return self.searches.run(search, state) if state.lookups[search.shape] else None

    def _state_named(self, table: str) -> TableState | None:
        """The state of a table that the query may read; None if there is no such table."""
        if table not in self._states and table not in self.known.current().tables:
            return None
        if (visible := visible_tables.get()) is not None and table not in visible:
            return None
        try:
            return self.state(table)
        except UnknownName:  # it was dropped, and a view may have its name now
            self._states.pop(table, None)
            return None

    def key_store(self, index: Index, snapshot: Snapshot) -> KeyStore:
        """The store of a key index, with at least the entries that the snapshot relies on."""
        sequence, known = self._fresh_stores.get(index.id, (None, None))
        held = known() if known is not None and sequence == snapshot.sequence else None
        if held is not None:
            return held
        found = self._stores(index)
        found.refresh(self._registry.indexes.runs(index))
        # Not the store itself: a replaced generation must be closed when its last reader is done.
        current = {id: each for id, each in self._fresh_stores.items() if each[1]() is not None}
        self._fresh_stores = {**current, index.id: (snapshot.sequence, weakref.ref(found))}
        return found

    def state(self, name: str) -> TableState:
        """The newest snapshot of a table, with its cached state."""
        snapshot = self.snapshots.current(name)
        held = self._states.get(name)
        if held is not None and held.snapshot is snapshot:
            return held
        schema = snapshot.table.schema
        state = TableState(
            snapshot, self._registry, lambda: self.natives.stub(schema), lambda: self._empty_table(schema)
        )
        if held is not None and held.snapshot.table.id == snapshot.table.id:
            state.inherit(held)
        if held is not None:
            self._forget_gone(held, state)
            if "plans" in self.__dict__:  # else nothing was planned
                self.plans.kept.forget(name)
        self._states[name] = state
        return state

    def _empty_table(self, schema: pa.Schema) -> datafusion.Table:
        import datafusion

        from needlepoint.query.datafusion.native_scan import with_views
        from needlepoint.query.scan.table_provider import empty_batch

        return datafusion.Table(self._context.read_batches([empty_batch(with_views(schema))]))

    def _forget_gone(self, before: TableState, now: TableState) -> None:
        """Drop what caches keep of files that are gone: a process may run for months."""
        if gone := before.positions.keys() - now.positions.keys():
            files, location = before.snapshot.files, before.snapshot.table.location
            self.cards.forget(gone)
            self.file_indexes.forget(gone)
            self.caches.forget({f"{location}/{files[before.positions[id]].path}" for id in gone})

    # Read

    @contextmanager
    def context_of(
        self, plan: QueryPlan, limits: Limits, tables: Mapping[str, datafusion.Table]
    ) -> Iterator[datafusion.SessionContext]:
        """The context to run a plan in: one of this query only, if it has scores, lists tables or limits memory."""
        if not (plan.scores or plan.lists_tables or limits.memory):
            yield self._contexts(plan.options)
            return
        from needlepoint.query.datafusion.scoring import count_terms

        statistics = count_terms(plan.scores, plan.states, self)
        with self._lent_contexts.lent(replace(plan.options, memory=limits.memory)) as lent:
            lent.known.statistics, lent.names.listed = statistics, tables
            yield lent.context

    def words(self, state: TableState, column: str, position: int) -> WordIndex | None:
        """The text index of a file, if it has a readable one."""
        return words_of(self.file_indexes, state, column, position)

    def read(self, state: TableState, column: str, positions: Sequence[int]) -> Iterator[pa.Array]:
        """A column of all rows of these files."""
        import datafusion

        from needlepoint.query.datafusion.errors import raise_cause
        from needlepoint.query.datafusion.session_options import session_options
        from needlepoint.query.scan.table_provider import as_frame
        from needlepoint.query.sql.statements import quoted

        scan = self.scan_planner.plan(state, everything([column]), use_indexes=False, positions=positions)
        # It has no predicate, so it needs none of what a query is retried without.
        found = as_frame(scan, None, self.natives, self._contexts(session_options([scan], attempt=Attempt.PLAIN)))
        try:
            for batch in found.frame.select(datafusion.col(quoted(column))).execute_stream():
                yield batch.to_pyarrow().column(0).cast(state.types[column])
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # as in execution.py
            raise_cause(error, [scan])
        self.check_files(scan, ScanMetrics(listed=found.listed))

    def check_files(self, scan: ScanPlan, done: ScanMetrics) -> None:
        """Raise FileChanged if a scanned file changed, or if a native listing, which reads the current directory, did
        not match the snapshot."""
        from needlepoint.query.scan.table_provider import check_counted, check_present

        check_present(scan)
        check_counted(scan)
        if done.listed:
            self.snapshots.forget()
            now = self.snapshots.current(scan.snapshot.table.name)
            if not now.listable or now.files != scan.snapshot.files:
                raise FileChanged(scan.snapshot.table.location, "changed during the query")

    def names(self) -> list[str]:
        known = self.known.current()
        return [*known.tables, *(name for name, _ in known.views)]

    def visible(self, limits: Limits | None) -> tuple[frozenset[str], list[str]]:
        """The tables and views that a query with these limits can name."""
        known = self.known.all()
        known = known if limits is None or limits.tables is None else known.only(limits.tables)
        return known.tables, [name for name, _ in known.views]
