"""A planned query that runs: it reads rows by page, then DataFusion runs the SQL over them and the scans."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import datafusion
import pyarrow as pa

from needlepoint.errors import NeedlepointError
from needlepoint.query.aggregates.known import KnownPart
from needlepoint.query.aggregates.merge import above, merged, read_part
from needlepoint.query.attempt import CannotSkip
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion.batch_stream import BatchStream
from needlepoint.query.datafusion.errors import raise_cause
from needlepoint.query.datafusion.final_sort import sort_correctly
from needlepoint.query.datafusion.kept_frames import KeptFrames
from needlepoint.query.datafusion.native_scan import metrics
from needlepoint.query.datafusion.scoring import Score
from needlepoint.query.datafusion.session import SessionOptions
from needlepoint.query.report.explain import Report, TableReport
from needlepoint.query.report.lake_map import TableMap
from needlepoint.query.report.table_report import table_map, table_report
from needlepoint.query.result import ReadBytes, Result
from needlepoint.query.row_stream import NO_END, RowStream
from needlepoint.query.running import RunningQuery
from needlepoint.query.scan.held_files import keep_held
from needlepoint.query.scan.late_materialization import matching_exactly
from needlepoint.query.scan.page_reader import PageRead, read_pages
from needlepoint.query.scan.scan_plan import ScanMetrics, ScanPlan
from needlepoint.query.scan.table_provider import as_frame, check_before
from needlepoint.query.sql.table_selection import TableSelection
from needlepoint.query.sql.views import View
from needlepoint.query.top_rows import Attempts

if TYPE_CHECKING:
    from needlepoint.query.engine import Engine
    from needlepoint.query.sql_queries import SqlQueries

# A query of files with as many rows, or an unknown number, runs as a stream.
MOST_ROWS = 200_000
# Rows that match are counted for the history if as many were read by page.
COUNTED_ROWS = 1000


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query with planned scans. `unscanned` tables are named in it, but not read. `reads` has the rows of tables that
    were read to plan the others. It `lists_tables` if it reads information_schema. If it reads only the rows that an
    ORDER BY with LIMIT may keep, it is one of several `attempts`, and its result may not be the whole. `shape` is the
    query without its values, if its times are worth comparing. `misled` tables get no filters from DataFusion's
    physical plan: they may be for other tables. If a part of an aggregate is `known`, only the rest is read. A
    `selection` needs no DataFusion if its rows are read by page. A plan that is kept for other runs has `frames`."""

    query: str
    states: Mapping[str, TableState]
    scans: Mapping[str, ScanPlan]
    unscanned: tuple[ScanPlan, ...]
    schema: pa.Schema
    options: SessionOptions
    views: list[View]
    scores: tuple[Score, ...] = ()
    outer_constants: bool = False
    lists_tables: bool = False
    grows: bool = False
    reads: Mapping[str, PageRead] = field(default_factory=dict)
    attempts: Attempts | None = None
    shape: str = ""
    misled: frozenset[str] = frozenset()
    known: KnownPart | None = None
    selection: TableSelection | None = None
    frames: KeptFrames | None = None

    def fits(self, room: int) -> bool:
        """Whether the result is small, however many of the rows match. A small file can have very many rows."""
        if self.grows:
            return False
        rows = size = 0.0
        for scan in self.scans.values():
            for file, share in scan.bounded_shares(self.options.pushdown):
                rows += (MOST_ROWS if file.rows is None else file.rows) * share
                size += file.identity.size * share
        return rows < MOST_ROWS and size <= room


@dataclass(frozen=True, slots=True)
class _TableRead:
    """A table that is ready for the query, and the metrics so far."""

    table: datafusion.Table
    metrics: ScanMetrics


class CannotMerge(Exception):
    """A part of an aggregate is known, but DataFusion cannot go on with it: the query reads everything."""


class Execution:
    """One run of a plan, with the caches of these queries."""

    def __init__(
        self, queries: SqlQueries, plan: QueryPlan, running: RunningQuery, started: float, *, is_noted: bool
    ) -> None:
        self._queries = queries
        self._engine = queries.engine
        self._plan = plan
        self._running = running
        self._started = started
        self._is_noted = is_noted
        self._seconds: dict[str, float] = {}
        self._done: dict[str, ScanMetrics] = {}
        self._frame: datafusion.DataFrame | None = None

    def run(self, parameters: Mapping[str, Any] | None, room: int, read_again: Callable[[], pa.Table]) -> Result:
        """The result. If it has more than `room` bytes, its rest is read later."""
        queries, plan, running = self._queries, self._plan, self._running
        stream: BatchStream | None = None
        tables: dict[str, datafusion.Table] = {}
        self._lap("plan")
        running.check()
        if (selected := self._selected()) is not None:
            return selected
        with ExitStack() as resources:
            context = resources.enter_context(queries.context_of(plan, running.limits, tables))
            if plan.known is not None:
                self._read(tables, context)
                return self._merge(plan.known, context, tables, room)
            frame = self._kept_frame(context)
            if frame is None:
                self._read(tables, context)
            views = plan.views if frame is None else []
            with queries.planner.tables(context, views, tables), self._causes():
                self._frame = frame = self._planned(context, parameters) if frame is None else frame
                if plan.fits(room):
                    batches = frame.collect()
                else:
                    stream = resources.enter_context(contextlib.closing(BatchStream(frame, running, room)))
                    batches = stream.first()
            first = self._conformed(batches)
            if stream is None or stream.has_ended:
                running.limits.check_rows(first.num_rows)
                self._finish()
                return Result(first, self._report, self._bytes)
            resources.enter_context(keep_held())
            resources.enter_context(self._engine.kept(running))
            rows = RowStream(first, self._more(stream), self._finish, read_again, running, resources.pop_all())
            return Result(rows, self._report, self._bytes)

    def _selected(self) -> Result | None:
        """The result without DataFusion: of rows that are all read by page, under a condition that Arrow evaluates."""
        plan, running = self._plan, self._running
        if plan.selection is None or plan.unscanned or any(scan.scanned for scan in plan.scans.values()):
            return None
        ((name, scan),) = plan.scans.items()
        read = self._pages(scan)
        self._lap("read")
        rows = scan.snapshot.table.schema.empty_table() if read.rows is None else read.rows
        mask = matching_exactly(rows, plan.selection.predicate)
        if mask is None:
            self._plan = replace(plan, reads={name: read})
            return None
        found = rows if mask.all() else rows.filter(pa.array(mask))
        found = pa.Table.from_arrays([found.column(column) for column in plan.selection.columns], plan.schema.names)
        self._done[name] = replace(read.metrics, matched=found.num_rows)
        running.limits.check_rows(found.num_rows)
        self._finish()
        return Result(_conformed(found.to_batches(), plan.schema), self._report, self._bytes)

    def _kept_frame(self, context: datafusion.SessionContext) -> datafusion.DataFrame | None:
        """The frame of an earlier run over the same files, which are checked as they are before any scan."""
        frame = self._plan.frames.frame(context) if self._plan.frames is not None else None
        if frame is None:
            return None
        for scan in (*self._plan.scans.values(), *self._plan.unscanned):
            check_before(scan)
        self._done = dict.fromkeys(self._plan.scans, ScanMetrics())
        self._lap("read")
        self._running.check()
        return frame

    def _planned(
        self, context: datafusion.SessionContext, parameters: Mapping[str, Any] | None
    ) -> datafusion.DataFrame:
        """The frame of the SQL over the tables. It is kept if they are, and if no directory is listed."""
        plan = self._plan
        frame = self._queries.planner.frame(context, plan.query, parameters)
        frame = sort_correctly(context, frame, over_union=plan.outer_constants)
        if plan.frames is not None and not any(done.listed for done in self._done.values()):
            plan.frames.keep(context, frame)
        return frame

    def _merge(
        self, known: KnownPart, context: datafusion.SessionContext, tables: dict[str, datafusion.Table], room: int
    ) -> Result:
        """The result of a query of an aggregate, from what is known and what is left to read."""
        read: list[pa.RecordBatch] = []
        with self._queries.planner.tables(context, [], tables):
            if any(scan.access.kept() for scan in self._plan.scans.values()):
                with self._causes():
                    self._frame = frame = read_part(context, known.aggregate)
                    if self._plan.fits(room):
                        read = _as_batches(frame.collect())
                    else:
                        with contextlib.closing(BatchStream(frame, self._running, NO_END)) as stream:
                            read = _as_batches(stream.first())
            try:
                found = self._conformed(above(context, known, merged(known, read)))
            except Exception as error:
                raise CannotMerge from error
        self._running.limits.check_rows(found.num_rows)
        self._finish()
        return Result(found, self._report, self._bytes)

    def _read(self, tables: dict[str, datafusion.Table], context: datafusion.SessionContext) -> None:
        """Add the tables, with the rows that are read by page."""
        for scan in (*self._plan.scans.values(), *self._plan.unscanned):
            name = scan.snapshot.table.name
            read = self._read_table(scan, context)
            tables[name] = read.table
            if name in self._plan.scans:
                self._done[name] = read.metrics
        self._lap("read")
        self._running.check()

    def _read_table(self, scan: ScanPlan, context: datafusion.SessionContext) -> _TableRead:
        barrier = scan.snapshot.table.name in self._plan.misled or not self._plan.options.own_filters
        if not scan.access.kept() and not barrier:
            return _TableRead(self._plan.states[scan.snapshot.table.name].empty, ScanMetrics())
        pages = self._pages(scan)
        if self._plan.selection is not None and self._plan.options.late:
            scan = replace(scan, views=False)
        found = as_frame(scan, pages.rows, self._queries.natives, context, barrier)
        return _TableRead(datafusion.Table(found.frame), replace(pages.metrics, listed=found.listed))

    def _pages(self, scan: ScanPlan) -> PageRead:
        """The rows that are read by page."""
        engine, running = self._engine, self._running
        known = self._plan.reads.get(scan.snapshot.table.name)
        pages = known or read_pages(scan, engine.cards, engine.caches, running.check)
        running.limits.check_memory(0 if pages.rows is None else pages.rows.nbytes)
        return pages

    def _more(self, stream: BatchStream) -> Iterator[pa.RecordBatch]:
        """The batches after the first ones."""
        while True:
            try:
                with self._queries.clear_error(self._plan.query), self._causes():
                    found = stream.next()
            except CannotSkip:
                self._queries.unskippable |= self._plan.scans.keys()
                raise
            if found is None:
                return
            yield from self._conformed([found]).to_batches()

    def _finish(self) -> None:
        """After the last row was read."""
        plan = self._plan
        for name, scan in plan.scans.items():
            self._queries.check_files(scan, self._done[name])
        self._lap("run")
        undecided = [scan.undecided for scan in plan.scans.values() if scan.undecided is not None]
        if len(undecided) == 1:
            self._engine.accesses.note(undecided[0].key, undecided[0].by_pages, sum(self._seconds.values()))
        if self._is_noted:
            scanning = sum(bool(scan.scanned) for scan in plan.scans.values())
            counted = self._counted if scanning == 1 else None
            seconds = sum(self._seconds.values()) / max(1, len(plan.scans))
            for name, scan in plan.scans.items():
                self._engine.history.note(scan, self._matched(name, scan), seconds, counted)

    def _matched(self, name: str, scan: ScanPlan) -> ScanMetrics:
        """What the scan of a table read, with the rows that matched: pages of a range also hold others, which went to
        DataFusion too. Of a join it is not known which table's."""
        done = self._done[name]
        if done.matched < COUNTED_ROWS or not scan.access.inexact or len(self._plan.scans) > 1 or self._frame is None:
            return done
        return replace(done, matched=self._counted()["paged_rows"])

    def _conformed(self, batches: list[Any]) -> pa.Table:
        """The rows with the types of the plan. What may be NULL is as in the plan too, whatever files have."""
        found, schema = _as_batches(batches), self._plan.schema
        if any(scan.filled for scan in self._plan.scans.values()):
            found = [_as_nullable(batch, schema) for batch in found]
        return _conformed(found, schema)

    def _lap(self, step: str) -> None:
        """Note the time of a step, from the end of the step before."""
        self._seconds[step] = time.perf_counter() - self._started - sum(self._seconds.values())

    def _report(self) -> Report:
        return Report(self._reports, lambda: maps(self._engine, self._plan), executed=True, seconds=self._seconds)

    def _bytes(self) -> ReadBytes:
        paged = sum(stats.bytes_read for metrics in self._done.values() for stats in metrics.reads)
        scanned = self._counted()["bytes"] if any(scan.scanned for scan in self._plan.scans.values()) else 0
        return ReadBytes(paged + scanned, sum(self._plan.states[name].bytes for name in self._plan.scans))

    def _reports(self) -> list[TableReport]:
        counted = self._counted() if sum(bool(scan.scanned) for scan in self._plan.scans.values()) == 1 else None
        return reports(self._engine, self._plan, self._done, counted)

    def _counted(self) -> dict[str, int]:
        """What DataFusion read. It counts per scan operator, not per table: with one scanned table, of that table."""
        assert self._frame is not None
        return metrics(self._frame.execution_plan())

    @contextmanager
    def _causes(self) -> Iterator[None]:
        """If DataFusion fails in this block, raise the cause."""
        limits = self._running.limits
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit, NeedlepointError):
            raise
        except BaseException as error:  # DataFusion panics, which is no Exception, if an object shrinks during a read
            if limits.memory and "Resources exhausted" in str(error):
                raise limits.out_of_memory() from error
            raise_cause(error, self._plan.scans.values())


def reports(
    engine: Engine, plan: QueryPlan, done: Mapping[str, ScanMetrics], counted: dict[str, int] | None = None
) -> list[TableReport]:
    """What each table's scan read, or would read."""
    return [
        table_report(scan, done.get(name), engine.cards, counted if scan.scanned else None)
        for name, scan in plan.scans.items()
    ]


def maps(engine: Engine, plan: QueryPlan) -> list[TableMap]:
    """The files of each table, and what is read of them."""
    return [table_map(scan, engine.cards) for scan in plan.scans.values()]


def _as_batches(batches: list[Any]) -> list[pa.RecordBatch]:
    return [batch if isinstance(batch, pa.RecordBatch) else batch.to_pyarrow() for batch in batches]


def _as_nullable(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    fields = [field.with_type(column.type) for field, column in zip(schema, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def _conformed(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The same types for page reads and native scans."""
    if not batches:
        return schema.empty_table()
    table = pa.Table.from_batches(batches).rename_columns(schema.names)
    return table if table.schema.types == schema.types else table.cast(schema)
