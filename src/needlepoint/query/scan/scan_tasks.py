"""Splits a read into tasks that run in other processes.

    plan      the condition, against a table without files; pruning as for SQL
    split     files of similar total cost become a task
    read      each task in its own process, without registry, stores and indexes: few rows by page, other files by
              native scan, and the condition again over all rows

A task contains all that its reader needs: files with their identities, rows and cards, partition values, and the
condition as SQL. DataFusion evaluates the condition there too, since the SQL dialect of another engine may differ.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa

from needlepoint import forks
from needlepoint.errors import FileChanged, SqlError, UsageError
from needlepoint.printable import count
from needlepoint.query.attempt import Attempt, CannotSkip, EngineFault
from needlepoint.query.cache.card_cache import SerializedCards
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion import footers, session
from needlepoint.query.datafusion.errors import clear_error, raise_cause
from needlepoint.query.datafusion.native_scan import NativeScans
from needlepoint.query.datafusion.planner import LogicalQuery
from needlepoint.query.datafusion.session import SessionOptions
from needlepoint.query.datafusion.session_options import session_options
from needlepoint.query.datafusion.unreadable import unreadable
from needlepoint.query.engine import Engine
from needlepoint.query.scan.page_reader import read_pages
from needlepoint.query.scan.scan_plan import FEW_ROWS, ScanPlan
from needlepoint.query.scan.table_provider import (
    FILES_WORTH_A_LISTING,
    arms,
    check_present,
    check_sound,
    native_arm,
    page_arm,
)
from needlepoint.query.sql import nesting
from needlepoint.query.sql.plan_nodes import parts_of
from needlepoint.query.sql.statements import quoted
from needlepoint.stores import PackDamaged
from needlepoint.tables import File, Table

# Starting a task costs 35 ms or more; scanning this much takes a few times as long.
BYTES_IN_A_PART = 32 << 20
# With more files, the check for changes after the scan would list the whole table.
FILES_IN_A_PART = FILES_WORTH_A_LISTING

# Lines of the query made by `with_condition` above the condition itself.
LINES_ABOVE = 1

# An unterminated comment extends to the end, as in SQL.
_TEXTS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_SUBQUERY = re.compile(r"\(\s*(?:select|with|values|table)\b", re.IGNORECASE)
# DataFusion's names of them.
_CLOCKS, _FUNCTION = {"now", "current_date", "current_time"}, "ScalarFunction"


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Some files of a table, and the condition. Can be pickled."""

    scan: ScanPlan
    cards: dict[str, bytes]
    query: str
    schema: pa.Schema
    options: SessionOptions

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that match, with the plan's schema. FileChanged if a file is not the planned version; then discard
        the rows returned before."""
        scan, table = self.scan, self.scan.snapshot.table
        try:
            with clear_error(self.query, lambda: [table.name]):
                if not scan.remote:  # for objects this costs requests, and the check after the scan is enough
                    check_present(scan)
                check_sound(scan)
                pages = read_pages(scan, SerializedCards(self.cards)).rows
                if pages is not None and pages.num_rows:
                    yield from self._matching(functools.partial(page_arm, scan, pages))
                for files in arms(scan):
                    yield from self._matching(functools.partial(native_arm, scan, files, _natives()))
                check_present(scan)
        except FileChanged as error:
            raise FileChanged(
                error.path,
                "changed or was removed after this read was planned",
                hint="Read the table again.",
            ) from error

    def _matching(self, made: Callable[[datafusion.SessionContext], datafusion.DataFrame]) -> Iterator[pa.RecordBatch]:
        """The rows of a frame that match. The context has one thread, which reads one file after the other. So a retry
        without pushdown, for files that cannot be read with it, returns the rows in the same order."""
        seen = 0
        try:
            for batch in self._run(made, self.options):
                seen += batch.num_rows
                yield batch
            return
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a DataFusion panic is not an Exception
            try:
                raise_cause(error, [self.scan])
            except (CannotSkip, EngineFault):
                plain = replace(self.options, statistics=False, pushdown=False)
        for batch in self._plainly(made, plain):
            known = min(seen, batch.num_rows)
            seen -= known
            if batch.num_rows > known:
                yield batch.slice(known)

    def _plainly(
        self, made: Callable[[datafusion.SessionContext], datafusion.DataFrame], options: SessionOptions
    ) -> Iterator[pa.RecordBatch]:
        """Retry without pushdown; a file that fails again is damaged."""
        try:
            yield from self._run(made, options)
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            try:
                raise_cause(error, [self.scan])
            except CannotSkip as failure:
                raise unreadable(failure, failure.scans) from error

    def _run(
        self, made: Callable[[datafusion.SessionContext], datafusion.DataFrame], options: SessionOptions
    ) -> Iterator[pa.RecordBatch]:
        if options.footers:
            use = footers.record([self.scan])
            options = replace(options, generation=use.generation)
            if use.stale:
                options = replace(options, footers=False, statistics=False, generation=0)
        context = _contexts(options)
        with session.tables({self.scan.snapshot.table.name: datafusion.Table(made(context))}):
            frame = nesting.frame(context, self.query)
        for batch in frame.execute_stream():
            found = batch.to_pyarrow()
            if found.num_rows:
                yield _conformed(found, self.schema)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same types and nullability for page reads and native scans."""
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# One thread each: other tasks use the other cores.
_contexts = session.Contexts(functools.partial(session.make_context, threads=1))


@functools.cache
def _natives() -> NativeScans:
    return NativeScans()


forks.reset(_contexts.clear)
forks.reset(_natives.cache_clear)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A read of a table, split into tasks that can run anywhere.

    rows       number of rows to read from `paged` files
    paths      all files of the table, relative to its location
    listable   whether a listing of the location finds these files and no others
    """

    table: Table
    schema: pa.Schema
    query: str
    parts: tuple[ScanTask, ...]
    paths: tuple[str, ...]
    paged: int
    scanned: int
    rows: int
    listable: bool

    @property
    def few(self) -> bool:
        """Whether reading it here is faster than distributing it."""
        return not self.scanned and self.rows <= FEW_ROWS

    def __str__(self) -> str:
        return (
            f"{self.table.name}: {count(self.paged, 'file')} by page ({count(self.rows, 'row')}), "
            f"{self.scanned} by native scan, of {len(self.paths)}; in {count(len(self.parts), 'part')}"
        )


def plan_read(engine: Engine, name: str, where: str | None = None, columns: Sequence[str] | None = None) -> ReadPlan:
    """Plan `SELECT columns FROM name WHERE where`; `where` is a condition of the table's own columns."""
    # The reader of a task cannot use files that are open here.
    return engine.with_replan(lambda _: _plan_once(engine, name, where, columns), holding=False)


def _plan_once(engine: Engine, name: str, where: str | None, columns: Sequence[str] | None) -> ReadPlan:
    state = engine.state(name)
    snapshot = state.snapshot
    chosen = ", ".join(map(quoted, _columns(snapshot.table, columns)))
    query = with_condition(f"SELECT {chosen} FROM {quoted(name)}", where)
    logical = plan_condition(engine, state, query, where)
    parts: list[ScanTask] = []
    paged = scanned = rows = 0
    if (request := logical.requests.get(name)) is not None:
        request = request.hiding((), state.zeros(logical.zeros))
        scan = engine.scan_planner.plan(state, request, pushdown=not request.nested)
        options = session_options([scan], attempt=Attempt.WHOLE if request.nested else Attempt.FIRST)
        for positions in _cut(scan):
            own = _of_files(scan, positions)
            cards = {file.path: _stored_card(engine, state, file) for file in own.paged}
            parts.append(ScanTask(own, cards, logical.query, logical.schema, options))
        paged, scanned = len(scan.paged), len(scan.scanned)
        rows = sum(each.count for each in scan.access.rows.values())
    paths = tuple(file.path for file in snapshot.files)
    return ReadPlan(
        snapshot.table,
        logical.schema,
        logical.query,
        tuple(parts),
        paths,
        paged,
        scanned,
        rows,
        snapshot.listable,
    )


def with_condition(query: str, where: str | None) -> str:
    """The query with a condition that is not checked yet: see `plan_condition`."""
    if where is None:
        return query
    _check_text(where)
    return f"{query} WHERE (\n{where}\n)"  # on its own lines: it may end with a comment


def plan_condition(engine: Engine, state: TableState, query: str, where: str | None) -> LogicalQuery:
    """The logical plan of a query with only this condition. SqlError if it is more than a condition."""
    name = state.snapshot.table.name
    with clear_error(query if where is None else where, lambda: [name], above=0 if where is None else LINES_ABOVE):
        logical = engine.queries.plan_sql(query, state)
    _check_plan(logical, where)
    return logical


def _columns(table: Table, columns: Sequence[str] | None) -> Sequence[str]:
    if columns is None:
        return list(table.schema.names)
    if isinstance(columns, str) or not columns:
        raise UsageError(f"columns are {columns!r}.", hint="Pass a list with at least one name.")
    for column in columns:
        table.field(column)
        if list(columns).count(column) > 1:
            raise UsageError(f"column '{column}' is named twice.", hint="Name each column once.")
    return columns


def _check_text(where: str) -> None:
    if not where.strip():
        raise SqlError("the condition is empty.", hint="Write a condition; TRUE selects all rows.")
    plain = _TEXTS.sub("''", where)
    depth = 0
    for letter in re.sub(r"[^()]", "", plain):
        depth += 1 if letter == "(" else -1
        if depth < 0:
            break
    if depth:
        raise SqlError(f"the parentheses of '{where}' do not match.", hint="Write one complete condition.")
    if _SUBQUERY.search(plain):
        raise SqlError("the condition has a subquery.", hint="Write the values, as in id IN (1, 2).")


def _check_plan(logical: LogicalQuery, where: str | None) -> None:
    """A reader of single files must be able to evaluate it: it filters rows one by one, with the same result at any
    time."""
    shape = []
    plan = logical.written
    while True:
        shape.append(type(plan.to_variant()).__name__)
        below = plan.inputs()
        if len(below) != 1:
            break
        plan = below[0]
    wanted = ["Projection", "TableScan"] if where is None else ["Projection", "Filter", "TableScan"]
    if shape != wanted or any(map(_is_subquery, _condition_parts(logical))):
        raise SqlError(f"'{where}' is more than a condition.", hint="Write only what follows WHERE.")
    if logical.scores:
        raise SqlError("a condition cannot use score, which needs all texts of the table.", hint="Use lake.sql.")
    if clocks := sorted(called_functions(logical) & _CLOCKS):
        # Each task would read its own clock, later than the plan did.
        raise SqlError(f"{clocks[0]}() returns another time on each call.", hint="Write the time as a literal.")


def called_functions(logical: LogicalQuery) -> set[str]:
    """The functions that the condition of a query calls, before optimization."""
    return {part.rex_call_operator() for part in _condition_parts(logical) if part.variant_name() == _FUNCTION}


def _condition_parts(logical: LogicalQuery) -> Iterator[Any]:
    for below in logical.written.inputs():
        node = below.to_variant()
        if type(node).__name__ == "Filter":
            yield from parts_of(node.predicate())


def _is_subquery(part: Any) -> bool:
    return part.variant_name() in ("ScalarSubquery", "InSubquery", "Exists", "SetComparison")


def _cut(scan: ScanPlan) -> Iterator[list[int]]:
    """Groups of files, as positions, that are read together. Files with the same partition values stay neighbours."""
    part: list[int] = []
    size = 0
    wanted = [*scan.access.scanned(), *scan.access.rows]
    files = scan.snapshot.files
    partition = scan.snapshot.partition
    for position in sorted(wanted, key=lambda position: (partition(files[position]), files[position].path)):
        paged = position in scan.access.rows
        weight = BYTES_IN_A_PART // FILES_IN_A_PART if paged else files[position].identity.size
        if part and (size + weight > BYTES_IN_A_PART or len(part) == FILES_IN_A_PART):
            yield part
            part, size = [], 0
        part.append(position)
        size += weight
    if part:
        yield part


def _of_files(scan: ScanPlan, positions: Sequence[int]) -> ScanPlan:
    """The part of a plan for the files at these positions."""
    snapshot, plan = scan.snapshot, scan.access
    files = tuple(
        replace(file, identity=file.identity.elsewhere()) for file in (snapshot.files[at] for at in positions)
    )
    own = plan.of_files(np.array(positions))
    own_partitions = {snapshot.partition(file) for file in files}
    seen = replace(
        snapshot,
        files=files,
        indexes=(),
        partitions={name: values for name, values in snapshot.partitions.items() if name in own_partitions},
        groups={file.path: snapshot.groups[file.path] for file in files} if snapshot.groups else {},
        listable=False,
    )
    return replace(scan, snapshot=seen, pruning=None).with_access(own)


def _stored_card(engine: Engine, state: TableState, file: File) -> bytes:
    try:
        stored = None if file.id is None else state.registry.cards.read(file.id)
    except PackDamaged:
        held = engine.cards.get(file)  # read before its pack was damaged
        stored = None if held is None else held.to_bytes()
    if stored is None:
        raise FileChanged(file.path, "lost its card")
    return stored
