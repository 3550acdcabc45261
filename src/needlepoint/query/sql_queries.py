"""SQL that DataFusion plans, and runs unless pages hold all its rows: what each query needs, how its tables are
scanned, the run, and other attempts if it fails.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import datafusion
import pyarrow as pa

from needlepoint.errors import FileChanged, SqlError, UnknownName
from needlepoint.indexes.text import WordIndex
from needlepoint.query.attempt import Attempt, CannotSkip, EngineFault
from needlepoint.query.cache.index_cache import words_of
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion.errors import clear_error, raise_cause
from needlepoint.query.datafusion.filter_choice import FilterChoice
from needlepoint.query.datafusion.native_scan import NativeScans, with_views
from needlepoint.query.datafusion.planner import LogicalQuery, Planner
from needlepoint.query.datafusion.scoring import count_terms
from needlepoint.query.datafusion.session import ContextPool, Contexts, SessionOptions, make_context
from needlepoint.query.datafusion.session_options import session_options
from needlepoint.query.datafusion.unreadable import unreadable
from needlepoint.query.execution import CannotMerge, Execution, QueryPlan, maps, reports
from needlepoint.query.point_lookup import PointLookup
from needlepoint.query.query_plans import QueryPlans
from needlepoint.query.ranked_search import RankedSearches, recognise
from needlepoint.query.report.explain import Report
from needlepoint.query.result import Result
from needlepoint.query.row_stream import NO_END
from needlepoint.query.running import Limits, OutOfMemory, RunningQuery
from needlepoint.query.scan.scan_plan import ScanMetrics, ScanPlan
from needlepoint.query.scan.table_provider import as_frame, check_counted, check_present, empty_batch
from needlepoint.query.sql.parameters import check_parameters
from needlepoint.query.sql.request import everything
from needlepoint.query.sql.statements import quoted

if TYPE_CHECKING:
    from needlepoint.query.engine import Engine

# A table is narrowed by the keys of another one if it has at least this many times more rows: an index must be much
# faster than a scan. Of a table with fewer rows, ORDER BY with LIMIT reads all at once.
TIMES_LARGER, LEAST_ROWS = 20, 10_000
# The forms of ranked searches are kept by their texts; a longer one goes to DataFusion.
LONGEST_SEARCH = 10_000
_SCORE = re.compile(r"\bscore\s*\(", re.IGNORECASE)


class SqlQueries:
    """Runs SQL with the tables and caches of an engine. `access` and `range_limit` are the settings of these names."""

    def __init__(self, engine: Engine, access: str, range_limit: int) -> None:
        self.engine = engine
        self.natives = NativeScans()
        self.filters = FilterChoice()
        self._contexts = Contexts(make_context)
        self._context = self._contexts(SessionOptions())
        self._lent_contexts = ContextPool()
        self.planner = Planner(self._context, self.names)
        self.plans = QueryPlans(self, access, range_limit)
        self.searches = RankedSearches(self, access)
        self.times_larger = TIMES_LARGER
        self.least_rows = LEAST_ROWS
        self.unskippable: set[str] = set()

    # Run

    def run(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        use_indexes: bool | str,
        attempt: Attempt,
        may_list: bool,
        running: RunningQuery,
        room: int,
        started: float,
    ) -> Result:
        """The result of a query that is no point lookup."""
        if use_indexes is True and attempt is Attempt.FIRST and (ranked := self._ranked(query, parameters)) is not None:
            running.limits.check_rows(len(ranked))
            return ranked
        asked = (query, parameters, use_indexes, attempt, may_list, running)
        plan, tops = self.plans.of(*asked)

        def run(plan: QueryPlan, room: int) -> Result:
            return self.run_plan(plan, query, parameters, use_indexes, running, room, started)

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

    def run_plan(
        self,
        plan: QueryPlan,
        query: str,
        parameters: Mapping[str, Any] | None,
        use_indexes: bool | str,
        running: RunningQuery,
        room: int,
        started: float,
    ) -> Result:
        """The result of a plan of this query."""
        began = time.perf_counter()
        execution = Execution(self, plan, running, started, is_noted=use_indexes is True and running.is_noted)
        found = execution.run(parameters, room, lambda: self._whole(query, parameters, use_indexes, running))
        if plan.shape and found.is_complete:
            self.filters.note(plan.shape, plan.options.late, time.perf_counter() - began)
        return found

    def run_again(self, run: Callable[[Attempt], Result], attempt: Attempt) -> Result:
        """The result of a query whose first attempt failed."""
        fault = None
        while True:
            try:
                return run(attempt)
            except CannotSkip as error:
                raise unreadable(error, error.scans) from error
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
        started = time.perf_counter()
        plan = self.plans.of_lookup(query, lookup, state, scan, Attempt.FIRST)
        try:
            with self.clear_error(query):
                return self.run_plan(plan, query, parameters, True, running, self.engine.room, started)
        except (CannotSkip, EngineFault, OutOfMemory):
            return self.engine.run_sql(query, parameters, True, running)

    def explain(self, query: str, parameters: Mapping[str, Any] | None = None, limits: Limits | None = None) -> Report:
        """The report of a query that is planned but not run."""
        parameters = check_parameters(query, parameters)
        with self.engine.run(query, limits), self.clear_error(query):
            plan = self.engine.with_replan(lambda _: self.plans.first(query, parameters))
        return Report(lambda: reports(self.engine, plan, {}), lambda: maps(self.engine, plan), executed=False)

    def schema(
        self, query: str, parameters: Mapping[str, Any] | None = None, limits: Limits | None = None
    ) -> pa.Schema:
        """The schema of the result of a query that is not run."""
        parameters = check_parameters(query, parameters)
        with self.engine.run(query, limits), self.clear_error(query):
            if (recognised := self.engine.recognised(query, parameters)) is not None:
                lookup, state = recognised
                return pa.schema([(name, state.types[name]) for name in lookup.columns])
            return self.plans.schema(query, parameters)

    def clear_error(self, query: str) -> AbstractContextManager[None]:
        """Within this block, DataFusion's errors become ours."""
        return clear_error(query, self.names)

    def _whole(
        self, query: str, parameters: Mapping[str, Any] | None, use_indexes: bool | str, running: RunningQuery
    ) -> pa.Table:
        """The rows of a query whose first run did not get to its end."""
        with self.engine.run(query, running.limits, running.id) as again:
            return self.engine.run_sql(query, parameters, use_indexes, again, room=NO_END).to_arrow()

    def _ranked(self, query: str, parameters: Mapping[str, Any] | None) -> Result | None:
        """The result of a ranked search, if DataFusion agrees that the query is one, and text indexes cover it."""
        if len(query) > LONGEST_SEARCH or not _SCORE.search(query):
            return None
        form = recognise(query)
        state = None if form is None else self.engine.state_named(form.table)
        search = None if form is None or state is None else form.search(state.types, parameters)
        if search is None or state is None:
            return None
        if search.shape not in state.lookups:
            logical = self.planner.plan(query, parameters, [], {search.table: state})
            state.lookups[search.shape] = search.agrees(logical, state.types)
        return self.searches.run(search, state) if state.lookups[search.shape] else None

    # Plan

    def plan_sql(self, query: str, state: TableState) -> LogicalQuery:
        """The logical plan of a query on this table only."""
        return self.planner.plan(query, None, [], {state.snapshot.table.name: state})

    def names(self) -> list[str]:
        """All tables and views."""
        known = self.engine.known.current()
        return [*known.tables, *(name for name, _ in known.views)]

    def empty_table(self, schema: pa.Schema) -> datafusion.Table:
        return datafusion.Table(self._context.read_batches([empty_batch(with_views(schema))]))

    # Read

    @contextmanager
    def context_of(
        self, plan: QueryPlan, limits: Limits, tables: Mapping[str, datafusion.Table]
    ) -> Iterator[datafusion.SessionContext]:
        """The context to run a plan in: one of this query only, if it has scores, lists tables or limits memory."""
        if not (plan.scores or plan.lists_tables or limits.memory):
            yield self._contexts(plan.options)
            return
        statistics = count_terms(plan.scores, plan.states, self)
        with self._lent_contexts.lent(replace(plan.options, memory=limits.memory)) as lent:
            lent.known.statistics, lent.names.listed = statistics, tables
            yield lent.context

    def words(self, state: TableState, column: str, position: int) -> WordIndex | None:
        """The text index of a file, if it has a readable one."""
        return words_of(self.engine.file_indexes, state, column, position)

    def read(self, state: TableState, column: str, positions: Sequence[int]) -> Iterator[pa.Array]:
        """A column of all rows of these files."""
        scan = self.engine.scan_planner.plan(state, everything([column]), use_indexes=False, positions=positions)
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
        check_present(scan)
        check_counted(scan)
        if done.listed:
            self.engine.snapshots.forget()
            now = self.engine.snapshots.current(scan.snapshot.table.name)
            if not now.listable or now.files != scan.snapshot.files:
                raise FileChanged(scan.snapshot.table.location, "changed during the query")
