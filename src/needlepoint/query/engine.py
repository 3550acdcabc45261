"""A query from SQL to Arrow.

    plan      the SQL against tables without files: columns and predicate of every scan
    narrow    steps rule out files and find rows: an access plan for each table
    read      few rows by page, the rest by native scan
    run       the same SQL, every predicate included, over what was read

Nothing is skipped but what a step proved away, and every predicate is evaluated again at the end, so an index that is
stale, partial or broken costs time and not rows.

Floats need care. Parquet statistics leave NaN out, while SQL orders it above all numbers; DataFusion trusts the
statistics and loses rows (`f > 1` misses NaN, and a column of 0.5 and NaN reads as all 0.5). So queries that touch a
float column run without collected statistics, and float columns in predicates reach it behind `nanvl(f, f)`, which is
`f` but tells the pruner nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import datafusion
import pyarrow as pa

from needlepoint.access import AccessPlan
from needlepoint.errors import FileChanged
from needlepoint.predicate import Bounds, Zones
from needlepoint.query import catalog
from needlepoint.query.cards import Cards
from needlepoint.query.explain import Level, Report, TableReport
from needlepoint.query.failures import clear_error
from needlepoint.query.native import NativeScans, metrics
from needlepoint.query.planning import Request, requests
from needlepoint.query.result import Result
from needlepoint.query.scan import Reading, as_frame, read_pages, rows_read, settle, total_rows
from needlepoint.query.steps import Question, narrow
from needlepoint.settings import Settings
from needlepoint.stores.base import KeyStore
from needlepoint.tables import partitions
from needlepoint.tables.definitions import Index
from needlepoint.tables.registry import Registry
from needlepoint.tables.snapshots import Snapshot, Snapshots

MOST_TRIES = 5

_READ_ONLY = (
    datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What is worked out once for a snapshot and used by every query on it."""

    snapshot: Snapshot
    partition_zones: Zones
    zones: Zones
    stub: datafusion.Table


@dataclass(slots=True)
class _Planned:
    """A query whose reading is decided but not done."""

    readings: dict[str, Reading]
    questions: dict[str, Question]
    schema: pa.Schema
    context: datafusion.SessionContext
    views: list[tuple[str, str]]


class Engine:
    def __init__(
        self,
        registry: Registry,
        stores: Callable[[Index], KeyStore],
        settings: Settings,
    ) -> None:
        self._registry = registry
        self._stores = stores
        self._settings = settings
        self.snapshots = Snapshots(registry, settings.refresh)
        self.cards = Cards(registry, settings.cache_bytes)
        self._natives = NativeScans()
        self._context = catalog.make_context(collect_statistics=True)
        self._careful_context = catalog.make_context(collect_statistics=False)
        self._prepared: dict[str, _Prepared] = {}
        self._fresh_stores: dict[int, int] = {}

    # The story

    def sql(self, query: str, parameters: Mapping[str, Any] | None = None, *, use_indexes: bool = True) -> Result:
        """Run a query. A file that changes meanwhile is noticed, and the query planned again."""
        for attempt in range(MOST_TRIES):
            try:
                return self._run_once(query, parameters, use_indexes)
            except FileChanged:
                if attempt == MOST_TRIES - 1:
                    raise
                self.snapshots.forget()
        raise AssertionError

    def explain(self, query: str, parameters: Mapping[str, Any] | None = None) -> Report:
        """The report of a query that is planned but not run."""
        with clear_error(query, self._names()):
            planned = self._plan(query, parameters, use_indexes=True)
        return Report(lambda: [self._table_report(planned, name, None) for name in planned.readings], executed=False)

    def _run_once(self, query: str, parameters: Mapping[str, Any] | None, use_indexes: bool) -> Result:
        with clear_error(query, self._names()):
            started = time.perf_counter()
            planned = self._plan(query, parameters, use_indexes)
            decided = time.perf_counter()
            frames = {name: self._read(reading, planned.context) for name, reading in planned.readings.items()}
            read = time.perf_counter()
            with self._tables(planned.context, planned.views, {}, frames):
                frame = self._frame(planned.context, query, parameters)
                batches = frame.collect()
            self._check_listings(planned)
            table = _conformed(batches, planned.schema)
            finished = time.perf_counter()
        seconds = {"plan": decided - started, "read": read - decided, "run": finished - read}
        report = Report(lambda: self._table_reports(planned, frame), executed=True, seconds=seconds)
        return Result(table, report)

    # Plan

    def _plan(self, query: str, parameters: Mapping[str, Any] | None, use_indexes: bool) -> _Planned:
        prepared: dict[str, _Prepared] = {}
        views, context = self._views(query), self._context
        with self._tables(context, views, prepared):
            frame = self._frame(context, query, parameters)
            schemas = {name: found.snapshot.table.schema for name, found in prepared.items()}
            asked = requests(frame.optimized_logical_plan(), schemas)
            schema = frame.schema()
        readings, questions = {}, {}
        for name, request in asked.items():
            readings[name], questions[name] = self._narrow(prepared[name], request, use_indexes)
        if any(_has_float(reading) for reading in readings.values()):
            context = self._careful_context
        return _Planned(readings, questions, schema, context, views)

    def _narrow(self, prepared: _Prepared, request: Request, use_indexes: bool) -> tuple[Reading, Question]:
        snapshot = prepared.snapshot
        question = Question(
            snapshot,
            request.predicate,
            prepared.partition_zones,
            prepared.zones,
            self._store_of(snapshot),
            self._settings.range_limit,
        )
        plan = AccessPlan.scan_all(len(snapshot.files))
        if use_indexes:
            plan = narrow(plan, question)
        reading = Reading(snapshot, request.columns, plan, request.opaque)
        settle(reading, self.cards)
        return reading, question

    def _store_of(self, snapshot: Snapshot) -> Callable[[Index], KeyStore]:
        def store(index: Index) -> KeyStore:
            found = self._stores(index)
            if self._fresh_stores.get(index.id) != snapshot.sequence:
                found.refresh()
                self._fresh_stores[index.id] = snapshot.sequence
            return found

        return store

    def _prepare(self, name: str) -> _Prepared:
        snapshot = self.snapshots.current(name)
        held = self._prepared.get(name)
        if held is not None and held.snapshot is snapshot:
            return held
        table = snapshot.table
        fields = [table.schema.field(column) for column in table.partitions]
        fixed = [_partition_bounds(partitions.typed(file.path, fields, table.location)) for file in snapshot.files]
        stored = [
            {column: bounds for column, bounds in file.bounds.items() if column not in table.partitions}
            for file in snapshot.files
        ]
        zones = Zones.of([{**bounds, **values} for bounds, values in zip(stored, fixed, strict=True)])
        stub = datafusion.Table(self._natives.scan(self._context, table.schema, ["/nonexistent/"]))
        self._prepared[name] = prepared = _Prepared(snapshot, Zones.of(fixed), zones, stub)
        return prepared

    # Read and run

    def _read(self, reading: Reading, context: datafusion.SessionContext) -> datafusion.Table:
        pages = read_pages(reading, self.cards)
        return datafusion.Table(as_frame(reading, pages, self._natives, context))

    @contextmanager
    def _tables(
        self,
        context: datafusion.SessionContext,
        views: list[tuple[str, str]],
        prepared: dict[str, _Prepared],
        ready: Mapping[str, datafusion.Table] | None = None,
    ) -> Iterator[None]:
        """What names mean: the tables that are ready, else stubs without rows, whose snapshots go to `prepared`.

        While a query runs, only a table that no part of its plan scans is still a stub.
        """

        def stub(name: str) -> datafusion.Table:
            prepared[name] = found = self._prepare(name)
            return found.stub

        found = _Lazy(stub, self._registry.table_names())
        found.seen.update(ready or {})
        with catalog.tables(found):
            for name, query in views:
                found.seen[name] = datafusion.Table(self._frame(context, query, None))
            yield

    def _views(self, query: str) -> list[tuple[str, str]]:
        """All views when the query may name one: a view can be made of others."""
        views = self._registry.views()
        named = any(re.search(rf"\b{re.escape(name)}\b", query, re.IGNORECASE) for name, _ in views)
        return views if named else []

    def _frame(
        self, context: datafusion.SessionContext, query: str, parameters: Mapping[str, Any] | None
    ) -> datafusion.DataFrame:
        return context.sql_with_options(query, _READ_ONLY, param_values=dict(parameters) if parameters else None)

    def _check_listings(self, planned: _Planned) -> None:
        """A native listing sees the directory as it is while it runs; it must be the snapshot all the same."""
        for name, reading in planned.readings.items():
            if reading.listed:
                self.snapshots.forget()
                if self.snapshots.current(name).files != reading.snapshot.files:
                    raise FileChanged(reading.snapshot.table.location, "changed during the query")

    def _names(self) -> Callable[[], list[str]]:
        return lambda: [*self._registry.table_names(), *(name for name, _ in self._registry.views())]

    # Report

    def _table_reports(self, planned: _Planned, frame: datafusion.DataFrame) -> list[TableReport]:
        natively = any(reading.scanned for reading in planned.readings.values())
        found = metrics(frame.execution_plan()) if natively else {"bytes": 0, "rows": 0}
        alone = sum(bool(reading.scanned) for reading in planned.readings.values()) == 1
        return [
            self._table_report(planned, name, found if alone and reading.scanned else None)
            for name, reading in planned.readings.items()
        ]

    def _table_report(self, planned: _Planned, name: str, native: Mapping[str, int] | None) -> TableReport:
        reading, question = planned.readings[name], planned.questions[name]
        files = reading.snapshot.files
        cards = [card for card in map(self.cards.get, reading.paged) if card is not None]
        scanned_rows = total_rows(reading.scanned)
        read = rows_read(reading) + (native["rows"] if native else scanned_rows or 0)
        scanned_bytes = native["bytes"] if native else sum(file.identity.size for file in reading.scanned)
        return TableReport(
            table=name,
            files=Level(len(reading.scanned) + len(reading.paged), len(files)),
            row_groups=Level(sum(s.row_groups for s in reading.stats), sum(card.num_row_groups for card in cards)),
            pages=Level(sum(s.pages for s in reading.stats), sum(len(card.pages.offset) for card in cards)),
            rows=Level(read, total_rows(files)),
            bytes=Level(
                sum(s.bytes_read for s in reading.stats) + scanned_bytes, sum(file.identity.size for file in files)
            ),
            page_read_files=len(reading.paged),
            scanned_files=len(reading.scanned),
            steps=tuple(question.steps),
            indexes=tuple(question.indexes),
        )


T = TypeVar("T")


class _Lazy(Mapping[str, T]):
    """Names whose values are made when asked for; `seen` are those that were."""

    def __init__(self, make: Callable[[str], T], names: list[str]) -> None:
        self._make = make
        self._names = names
        self.seen: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self.seen:
            if name not in self._names:
                raise KeyError(name)
            self.seen[name] = self._make(name)
        return self.seen[name]

    def __contains__(self, name: object) -> bool:
        return name in self.seen or name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter({*self._names, *self.seen})

    def __len__(self) -> int:
        return len({*self._names, *self.seen})


def _has_float(reading: Reading) -> bool:
    schema = reading.snapshot.table.schema
    return any(pa.types.is_floating(schema.field(name).type) for name in reading.columns)


def _partition_bounds(values: Mapping[str, Any]) -> dict[str, Bounds]:
    found = {}
    for name, scalar in values.items():
        value = partitions.ordinal(scalar)
        found[name] = Bounds(value, value, nulls=int(value is None), rows=1)
    return found


def _conformed(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The same types whichever way the rows came."""
    batches = [batch if isinstance(batch, pa.RecordBatch) else batch.to_pyarrow() for batch in batches]
    if not batches:
        return schema.empty_table()
    table = pa.Table.from_batches(batches)
    return table if table.schema.types == schema.types else table.cast(schema)
