"""From SQL to planned scans: what a query needs of each table, narrowed by indexes, joins and LIMIT."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from needlepoint.access import Rows
from needlepoint.errors import NeedlepointError
from needlepoint.predicate import Constant, Predicate
from needlepoint.query import ranked_rows, semi_joins, top_rows
from needlepoint.query.aggregates.facts import Sources
from needlepoint.query.aggregates.known import KnownPart, known_part, of_scan
from needlepoint.query.attempt import Attempt
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion.filter_choice import first_choice
from needlepoint.query.datafusion.plan_cache import plan_key
from needlepoint.query.datafusion.planner import LogicalQuery
from needlepoint.query.datafusion.session import SessionOptions
from needlepoint.query.datafusion.session_options import session_options
from needlepoint.query.execution import QueryPlan
from needlepoint.query.kept_plans import KeptPlans
from needlepoint.query.known_names import Names
from needlepoint.query.point_lookup import PointLookup
from needlepoint.query.running import RunningQuery
from needlepoint.query.scan.held_files import is_holding
from needlepoint.query.scan.page_reader import read_pages
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.sql import literals
from needlepoint.query.sql.plan_facts import PlanFacts
from needlepoint.query.sql.refusals import refuse_unsupported
from needlepoint.query.sql.request import everything
from needlepoint.query.sql.rewriting.conditions import as_truths
from needlepoint.query.sql.table_selection import TableSelection
from needlepoint.query.sql.tokens import without_values, words
from needlepoint.query.sql.top_rows import RankedRows
from needlepoint.query.sql.views import View, views_named

if TYPE_CHECKING:
    from needlepoint.query.sql_queries import SqlQueries

_ALL = Constant(True)
_NO_ROWS: Mapping[int, Rows] = {}
_CATALOG_WORDS = {"show", "describe", "information_schema"}


class QueryPlans:
    """Plans queries with the engine's tables, planner and caches. `access` and `range_limit` are the settings of these
    names."""

    def __init__(self, queries: SqlQueries, access: str, range_limit: int) -> None:
        self._queries = queries
        self._engine = queries.engine
        self._access = access
        self._range_limit = range_limit
        self.kept = KeptPlans()

    def schema(self, query: str, parameters: Mapping[str, Any] | None) -> pa.Schema:
        """The schema of the result."""
        known = self._engine.known.current()
        views = views_named(query, known.views)
        return self._queries.planner.plan(query, parameters, views, self._states_of(query, views, known)).schema

    def first(self, query: str, parameters: Mapping[str, Any] | None) -> QueryPlan:
        """The first plan that a query is run with."""
        plan, tops = self.of(query, parameters)
        return next(tops, plan)

    def of_lookup(
        self, query: str, lookup: PointLookup, state: TableState, scan: ScanPlan, attempt: Attempt
    ) -> QueryPlan:
        """The plan of a point lookup that needs a scan."""
        schema = pa.schema([(name, state.types[name]) for name in lookup.columns])
        options = session_options([scan], attempt=attempt)
        selection = TableSelection(lookup.columns, lookup.request.predicate)
        return QueryPlan(
            query, {lookup.table: state}, {lookup.table: scan}, (), schema, options, [], selection=selection
        )

    def of(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        use_indexes: bool | str = True,
        attempt: Attempt = Attempt.FIRST,
        may_list: bool = True,
        running: RunningQuery | None = None,
        from_indexes: bool = True,
    ) -> tuple[QueryPlan, Iterator[QueryPlan]]:
        """The plan of a query, and others to try before, for the rows that ORDER BY with LIMIT probably keeps. Unless
        `from_indexes` is false, indexes answer what they can of an aggregate."""
        engine, known = self._engine, self._engine.known.current()
        views = views_named(query, known.views)
        states = self._states_of(query, views, known)
        is_usual = use_indexes is True and attempt is Attempt.FIRST and from_indexes and may_list
        key = self._key(query, parameters, views, states, running) if is_usual else None
        kept = None if key is None else self.kept.get(key, states)
        if kept is not None:
            plan = kept.plan
            return replace(plan, options=self._options(plan.scans, kept.facts, attempt, plan.shape)), iter(())
        if attempt is Attempt.OPAQUE:
            query, views = as_truths(query), [(name, as_truths(view)) for name, view in views]
        scale = literals.WIDE_SCALE if attempt.follows_failure else 0
        logical = self._queries.planner.plan(query, parameters, views, states, scale, keep_keys=attempt.follows_failure)
        refuse_unsupported([query, *(view for _, view in views)], logical.facts)
        # DataFusion 55 pushes down a filter on a list, and does not apply it in a file without the column.
        nested = any(request.nested for request in logical.requests.values())
        if attempt is Attempt.FIRST and (nested or not self._queries.unskippable.isdisjoint(states)):
            attempt = Attempt.WHOLE
        may_narrow = use_indexes is True and self._access != "scan"
        # A query that holds its files reads them: what is known is of the versions in the registry.
        may_count = may_narrow and from_indexes and attempt is Attempt.FIRST and not is_holding()
        counted = self._known_part(logical, states) if may_count else None

        def plan_scan(name: str, joined: Predicate = _ALL) -> ScanPlan:
            state, request = states[name], logical.requests[name]
            hidden = state.misleading & request.columns if logical.facts.own_filters else ()
            asked = request.hiding(hidden, state.zeros(logical.zeros))
            whole, parts = (None, _NO_ROWS) if counted is None else counted.to_read()
            scan = engine.scan_planner.plan(state, asked, use_indexes, attempt is Attempt.FIRST, whole, joined, parts)
            # A held version of a file is not the one that the state describes.
            may_know = attempt is Attempt.FIRST and not scan.held
            compared = logical.compared & asked.columns if may_know else ()
            return replace(scan, may_list=may_list, filled=state.filled(compared, scan.access.states != 0))

        scans = {name: plan_scan(name) for name in logical.requests}
        if counted is not None:
            counted, scans[counted.aggregate.table] = of_scan(counted, scans[counted.aggregate.table])
        found = semi_joins.SemiJoins(scans, {})
        if logical.edges and may_narrow:
            found = self._narrowed(logical, scans, states, plan_scan, running)
        scans = found.scans
        # A table that is named and not scanned costs nothing if it is complete, and is wrong if it is not.
        unscanned = tuple(
            engine.scan_planner.plan(state, everything(state.types), use_indexes=False)
            for name, state in states.items()
            if name not in logical.requests
        )
        is_timed = attempt is Attempt.FIRST and counted is None and self._queries.filters.is_worth(scans.values())
        shape = without_values(query) if is_timed else ""
        plan = QueryPlan(
            logical.query,
            states,
            scans,
            unscanned,
            logical.schema,
            self._options(scans, logical.facts, attempt, shape),
            logical.views,
            logical.scores,
            logical.facts.outer_constants,
            lists_tables=not _CATALOG_WORDS.isdisjoint(words(query)),
            grows=logical.facts.grows,
            reads=found.reads,
            shape=shape,
            misled=frozenset(name for name, state in states.items() if logical.facts.misleads(state.types)),
            known=counted,
            selection=logical.selection if attempt is Attempt.FIRST else None,
        )
        if key is not None and logical.top is None:
            plan = self.kept.keep(key, plan, logical.facts)
        may_narrow = may_narrow and counted is None
        return plan, self._top_plans(plan, logical, plan_scan, attempt) if may_narrow else iter(())

    def _key(
        self,
        query: str,
        parameters: Mapping[str, Any] | None,
        views: list[View],
        states: Mapping[str, TableState],
        running: RunningQuery | None,
    ) -> Hashable | None:
        """What the plan depends on besides the states; None if it depends on more."""
        has_limit = running is not None and running.limits.memory
        if has_limit or is_holding() or not self._queries.unskippable.isdisjoint(states):
            return None
        return plan_key(query, parameters, views, states, ())

    def _options(self, scans: Mapping[str, ScanPlan], facts: PlanFacts, attempt: Attempt, shape: str) -> SessionOptions:
        """The options for one run: when to filter depends on earlier ones."""
        late = not shape or self._queries.filters.choose(shape, first_choice(scans.values(), facts.joins))
        return replace(session_options(scans.values(), facts, attempt), late=late)

    def _known_part(self, logical: LogicalQuery, states: Mapping[str, TableState]) -> KnownPart | None:
        """What indexes know of the aggregate of a query."""
        if logical.aggregate is None or logical.requests.keys() != {logical.aggregate.table}:
            return None
        engine, state = self._engine, states[logical.aggregate.table]
        stores = partial(engine.key_store, snapshot=state.snapshot)
        sources = Sources(state, stores, engine.cards, engine.file_indexes, self._range_limit)
        return known_part(logical.aggregate, sources)

    def _narrowed(
        self,
        logical: LogicalQuery,
        scans: Mapping[str, ScanPlan],
        states: Mapping[str, TableState],
        plan_scan: Callable[[str, Predicate], ScanPlan],
        running: RunningQuery | None,
    ) -> semi_joins.SemiJoins:
        """Narrow tables by the keys of those that they are joined with."""
        engine = self._engine
        check: Callable[[], None] = running.check if running is not None else lambda: None
        return semi_joins.narrow(
            logical.edges,
            scans,
            states,
            plan_scan,
            lambda scan: read_pages(scan, engine.cards, engine.caches, check),
            self._queries.times_larger,
            running.limits.memory if running is not None else 0,
        )

    def _top_plans(
        self, plan: QueryPlan, logical: LogicalQuery, plan_scan: Callable[[str, Predicate], ScanPlan], attempt: Attempt
    ) -> Iterator[QueryPlan]:
        if logical.top is None:
            return
        top, state = logical.top, plan.states[logical.top.table]
        predicate, rows = logical.requests[top.table].predicate, plan.scans[top.table].access.count(state.file_rows)
        attempts = top_rows.Attempts.of(top)
        plan, least_rows = replace(plan, attempts=attempts), self._queries.least_rows
        if isinstance(top, RankedRows):
            for scan in ranked_rows.scans(top, plan.scans[top.table], state, self._queries, attempts, least_rows):
                # The cost model does not know what scores cost: a scan computes one for each row.
                scan = self._engine.scan_planner.with_access(scan, predicate, attempt is Attempt.FIRST, "pages")
                if 2 * scan.access.count(state.file_rows) < rows:
                    options = session_options([scan], logical.facts, attempt)
                    yield replace(plan, scans={top.table: scan}, options=options, shape="")
            return
        source = top_rows.TopSource(
            state,
            predicate,
            self._engine.cards,
            lambda index: self._engine.key_store(index, state.snapshot),
        )
        for condition in top_rows.thresholds(top, source, attempts, least_rows):
            scan = plan_scan(top.table, condition)
            if scan.undecided is not None and not scan.undecided.by_pages:
                # All rows are scanned, to know how long that takes.
                whole = replace(plan.scans[top.table], undecided=scan.undecided)
                yield replace(plan, scans={top.table: whole}, attempts=None)
                return
            if 2 * scan.access.count(state.file_rows) < rows:
                why = f"{top_rows.described(condition)} for the first {top.wanted}"
                scan = replace(scan, only=condition, narrowed_by=(why,))
                options = session_options([scan], logical.facts, attempt)
                yield replace(plan, scans={top.table: scan}, options=options, shape="")

    def _states_of(self, query: str, views: list[View], known: Names) -> dict[str, TableState]:
        """The tables that a query may name. They are prepared before, because DataFusion asks for them from inside its
        runtime, where it cannot be called again. A query that lists tables leaves out those whose files are missing or
        cannot be described, unless it names them."""
        said = words(query).union(*(words(view) for _, view in views))
        states = {name: self._engine.state(name) for name in known.tables & said}
        for name in known.tables - states.keys() if said & _CATALOG_WORDS else ():
            with contextlib.suppress(NeedlepointError):
                states[name] = self._engine.state(name)
        return states
