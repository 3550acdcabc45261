"""A query from SQL to Arrow.

    plan      the SQL against tables without files: columns and predicate of every scan
    prune     steps rule out files and find rows: an access plan for each table
    read      few rows by page, the rest by native scan
    run       the same SQL, every predicate included, over what was read

Only what a step ruled out is skipped, and every predicate is evaluated again at the end. So a stale, partial or broken
index costs time, not rows.

Each step passes an immutable value to the next one:

    Request -> PruningContext -> PruningResult -> ScanPlan -> ScanMetrics

Point lookups run here. All other SQL runs in sql_queries.py, which is imported with the first query of that kind.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from needlepoint.errors import NeedlepointError, UnknownName
from needlepoint.indexes import LEAF_FILES, store_of
from needlepoint.objects import concurrently, is_url
from needlepoint.parquet import Caches
from needlepoint.query.attempt import Attempt, CannotSkip, EngineFault
from needlepoint.query.cache.card_cache import CardCache
from needlepoint.query.cache.index_cache import IndexCache
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.known_names import KnownNames, visible_tables
from needlepoint.query.point_lookup import PointLookup, PointLookups, recognise
from needlepoint.query.report.query_history import QueryHistory
from needlepoint.query.result import Result
from needlepoint.query.row_stream import ROOM
from needlepoint.query.running import Limits, OutOfMemory, RunningQueries, RunningQuery
from needlepoint.query.scan.costs import costs_of
from needlepoint.query.scan.held_files import QueryRetries
from needlepoint.query.scan.scan_plan import WORTH_SECONDS
from needlepoint.query.sql.parameters import check_parameters
from needlepoint.query.timed_choice import TimedChoice
from needlepoint.settings import Settings
from needlepoint.stores import KeyStore
from needlepoint.tables import Index, Snapshot, Snapshots
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    from needlepoint.query.scan_planner import ScanPlanner
    from needlepoint.query.sql_queries import SqlQueries

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
        self._states: dict[str, TableState] = {}
        self._fresh_stores: dict[int, tuple[int, weakref.ref[KeyStore]]] = {}
        self.lookups = PointLookups(self, settings.access, settings.range_limit)

    @cached_property
    def scan_planner(self) -> ScanPlanner:
        """Imported with the first lookup whose rows no key index names."""
        from needlepoint.query.scan_planner import ScanPlanner

        return ScanPlanner(self, self._settings.access, self._settings.range_limit)

    @cached_property
    def queries(self) -> SqlQueries:
        """Imported with the first query that needs DataFusion."""
        from needlepoint.query.sql_queries import SqlQueries

        return SqlQueries(self, self._settings.access, self._settings.range_limit)

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

        try:
            return run(Attempt.FIRST)
        except CannotSkip:
            attempt = Attempt.WHOLE
        except (EngineFault, OutOfMemory):
            attempt = Attempt.PLAIN
        return self.queries.run_again(run, attempt)

    def with_replan(self, ask: Callable[[bool], Answer], *, holding: bool = True) -> Answer:
        """Retry with a new snapshot when a file changed; the argument of `ask` says whether files may be listed. See
        `query/scan/held_files.py`."""
        return self._retries.run(ask, holding)

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
            recognised = self.recognised(query, parameters)
            if recognised is None:
                return self.queries.run(query, parameters, use_indexes, attempt, may_list, running, room, started)
            lookup, state = recognised
            found = self.lookups.run(lookup, state, use_indexes, pushdown=attempt is Attempt.FIRST)
            if not isinstance(found, Result):
                plan = self.queries.plans.of_lookup(query, lookup, state, replace(found, may_list=may_list), attempt)
                return self.queries.run_plan(plan, query, parameters, use_indexes, running, room, started)
            running.limits.check_rows(len(found))
            return found

    @contextmanager
    def _clear_error(self, query: str) -> Iterator[None]:
        """Within this block, DataFusion's errors become ours."""
        try:
            yield
        except (NeedlepointError, KeyboardInterrupt, AssertionError):
            raise
        except BaseException:
            with self.queries.clear_error(query):
                raise

    # Tables

    def recognised(self, query: str, parameters: Mapping[str, Any] | None) -> tuple[PointLookup, TableState] | None:
        """The point lookup of a query. A word that looks like a column name can have another meaning in SQL: with such
        a word, DataFusion is asked once for each set of columns whether it is one."""
        form = recognise(query)
        state = None if form is None else self.state_named(form.table)
        lookup = None if form is None or state is None else form.lookup(state.types, parameters)
        if form is None or state is None or lookup is None:
            return None
        shape = (*lookup.columns, "", *lookup.values)
        if shape not in state.lookups and not lookup.has_keywords:
            state.lookups[shape] = True
        if shape not in state.lookups:
            logical = self.queries.planner.plan(query, parameters, [], {form.table: state})
            state.lookups[shape] = lookup.agrees(logical.requests.get(form.table), logical.schema)
        return (lookup, state) if state.lookups[shape] else None

    def state_named(self, table: str) -> TableState | None:
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
        found = self._refreshed(index)
        self._keep_fresh({index.id: found}, snapshot)
        return found

    def _refreshed(self, index: Index) -> KeyStore:
        found = self._stores(index)
        found.refresh(self._registry.indexes.runs(index))
        return found

    def _keep_fresh(self, stores: Mapping[int, KeyStore], snapshot: Snapshot) -> None:
        # Not the stores themselves: a replaced generation must be closed when its last reader is done.
        current = {id: each for id, each in self._fresh_stores.items() if each[1]() is not None}
        new = {id: (snapshot.sequence, weakref.ref(store)) for id, store in stores.items()}
        self._fresh_stores = {**current, **new}

    def _read_manifests(self, state: TableState) -> None:
        """Those of all key indexes in the bucket at once, so that no lookup waits for its own."""
        indexes = [index for index in state.key_indexes.values() if store_of(index) == LEAF_FILES]

        def ask(index: Index) -> KeyStore | None:
            try:
                return self._refreshed(index)
            except NeedlepointError:
                return None  # a lookup reports the problem

        found = concurrently(ask, indexes) if indexes else []
        read = {index.id: store for index, store in zip(indexes, found, strict=True) if store is not None}
        self._keep_fresh(read, state.snapshot)

    def state(self, name: str) -> TableState:
        """The newest snapshot of a table, with its cached state."""
        snapshot = self.snapshots.current(name)
        held = self._states.get(name)
        if held is not None and held.snapshot is snapshot:
            return held
        schema = snapshot.table.schema
        state = TableState(
            snapshot,
            self._registry,
            lambda: self.queries.natives.stub(schema),
            lambda: self.queries.empty_table(schema),
        )
        if held is not None and held.snapshot.table.id == snapshot.table.id:
            state.inherit(held)
        if held is not None:
            self._forget_gone(held, state)
            if "queries" in self.__dict__:  # else nothing was planned
                self.queries.plans.kept.forget(name)
        self._states[name] = state
        if is_url(snapshot.table.location):
            self._read_manifests(state)
        return state

    def _forget_gone(self, before: TableState, now: TableState) -> None:
        """Drop what caches keep of files that are gone: a process may run for months."""
        if gone := before.positions.keys() - now.positions.keys():
            files, location = before.snapshot.files, before.snapshot.table.location
            self.cards.forget(gone)
            self.file_indexes.forget(gone)
            self.caches.forget({f"{location}/{files[before.positions[id]].path}" for id in gone})

    def visible(self, limits: Limits | None) -> tuple[frozenset[str], list[str]]:
        """The tables and views that a query with these limits can name."""
        known = self.known.all()
        known = known if limits is None or limits.tables is None else known.only(limits.tables)
        return known.tables, [name for name, _ in known.views]
