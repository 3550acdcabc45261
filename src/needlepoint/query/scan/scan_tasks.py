"""A read that is planned here and done elsewhere, in parts.

    plan      the condition, against a table without files; steps narrow, as for SQL
    cut       files that take about as long as others together become a part
    read      each part in a process of its own, without registry, stores and indexes: few rows by page, other files by
              native scan, and the condition again over all of it

A part says all that its reader needs: files with their identities, rows and cards, partition values, the condition as
SQL. DataFusion evaluates it there too, as another engine's dialect of SQL would give other answers.
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
from needlepoint.access import AccessPlan
from needlepoint.errors import FileChanged, SqlError, UsageError
from needlepoint.query.cache.card_cache import SentCards
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion import footers, session
from needlepoint.query.datafusion.errors import CannotSkip, EngineFault, clear_error, look_into
from needlepoint.query.datafusion.native_scan import NativeScans
from needlepoint.query.datafusion.planner import LogicalQuery
from needlepoint.query.datafusion.session import SessionOptions
from needlepoint.query.datafusion.session_options import Attempt, session_options
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
from needlepoint.query.sql.plan_facts import parts_of
from needlepoint.query.sql.statements import quoted
from needlepoint.tables.model import File, Table

# Beginning a task costs 35 ms or more; scanning so much takes a few times as long.
BYTES_IN_A_PART = 32 << 20
# Of more, who scanned them would list the whole table to see whether they changed.
FILES_IN_A_PART = FILES_WORTH_A_LISTING

# Of the query that `conditional` makes, above the condition itself.
LINES_ABOVE = 1

# A comment that does not end reaches to the end, as it does in SQL: to look for its end once is enough.
_TEXTS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_SUBQUERY = re.compile(r"\(\s*(?:select|with|values|table)\b", re.IGNORECASE)
# As DataFusion names them.
_CLOCKS, _FUNCTION = {"now", "current_date", "current_time"}, "ScalarFunction"


@dataclass(frozen=True, slots=True)
class Part:
    """Some files of a table, and the condition. Can be pickled."""

    scan: ScanPlan
    cards: dict[str, bytes]
    query: str
    schema: pa.Schema
    options: SessionOptions

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that match, with the plan's schema. FileChanged when a file is not the one that was
        planned for; rows that came before that do not count."""
        scan, table = self.scan, self.scan.snapshot.table
        try:
            with clear_error(self.query, lambda: [table.name]):
                if not scan.remote:  # there the check costs requests, and the one after the scan tells all the same
                    check_present(scan)
                check_sound(scan)
                pages = read_pages(scan, SentCards(self.cards)).rows
                if pages is not None and pages.num_rows:
                    yield from self._matching(functools.partial(page_arm, scan, pages))
                for files in arms(scan):
                    yield from self._matching(functools.partial(native_arm, scan, files, _natives()))
                check_present(scan)
        except FileChanged as error:
            raise FileChanged(
                error.path,
                "changed or went away after this read was planned",
                hint="Read the table again: what was planned holds for the files as they were then.",
            ) from error

    def _matching(self, made: Callable[[datafusion.SessionContext], datafusion.DataFrame]) -> Iterator[pa.RecordBatch]:
        """The rows of a frame that match. A context has one thread here, which reads one file after the other: run
        again without pushdown, for files that cannot be read with it, the rows come in the same order."""
        seen = 0
        try:
            for batch in self._run(made, self.options):
                seen += batch.num_rows
                yield batch
            return
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # DataFusion's panics are no Exceptions
            try:
                look_into(error, [self.scan])
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
        """Once more; a file that cannot be read now is damaged."""
        try:
            yield from self._run(made, options)
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            try:
                look_into(error, [self.scan])
            except CannotSkip as failure:
                raise unreadable(failure, failure.scans) from error

    def _run(
        self, made: Callable[[datafusion.SessionContext], datafusion.DataFrame], options: SessionOptions
    ) -> Iterator[pa.RecordBatch]:
        if footers.are_stale([self.scan]):
            options = replace(options, footers=False, statistics=False)
        context = _context(options)
        with session.tables({self.scan.snapshot.table.name: datafusion.Table(made(context))}):
            frame = nesting.frame(context, self.query)
        for batch in frame.execute_stream():
            found = batch.to_pyarrow()
            if found.num_rows:
                yield _conformed(found, self.schema)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same types and nullability whichever way the rows came."""
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@functools.cache
def _context(options: SessionOptions) -> datafusion.SessionContext:
    """Other parts have the other cores."""
    return session.make_context(options, threads=1)


@functools.cache
def _natives() -> NativeScans:
    return NativeScans()


forks.reset(_context.cache_clear)
forks.reset(_natives.cache_clear)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What is to be read of a table, in parts that can be read anywhere.

    `rows` are those of `paged` files that are looked at. `paths`, relative to the table's location, are all its files;
    `listable` says that who lists the location finds them and no others.
    """

    table: Table
    schema: pa.Schema
    query: str
    parts: tuple[Part, ...]
    paths: tuple[str, ...]
    paged: int
    scanned: int
    rows: int
    listable: bool

    @property
    def few(self) -> bool:
        """Whether reading it takes less time than handing it to others."""
        return not self.scanned and self.rows <= FEW_ROWS

    def __str__(self) -> str:
        return (
            f"{self.table.name}: {self.paged} files by page ({self.rows:,} rows), {self.scanned} by native scan, "
            f"of {len(self.paths)}; in {len(self.parts)} parts"
        )


def plan_read(engine: Engine, name: str, where: str | None = None, columns: Sequence[str] | None = None) -> ReadPlan:
    """Plan `SELECT columns FROM name WHERE where`; `where` is a condition of the table's own columns."""
    # Who reads a part has no use for what is open here.
    return engine.with_replan(lambda _: _plan_once(engine, name, where, columns), holding=False)


def _plan_once(engine: Engine, name: str, where: str | None, columns: Sequence[str] | None) -> ReadPlan:
    state = engine.state(name)
    snapshot = state.snapshot
    chosen = ", ".join(map(quoted, _columns(snapshot.table, columns)))
    query = conditional(f"SELECT {chosen} FROM {quoted(name)}", where)
    logical = plan_condition(engine, state, query, where)
    parts: list[Part] = []
    paged = scanned = rows = 0
    if (request := logical.requests.get(name)) is not None:
        request = request.hiding((), state.zeros(logical.zeros))
        scan = engine.plan_scan(state, request, pushdown=not request.nested)
        options = session_options([scan], attempt=Attempt.WHOLE if request.nested else Attempt.FIRST)
        for positions in _cut(scan):
            own = _of_files(scan, positions)
            cards = {file.path: _stored_card(state, file) for file in own.paged}
            parts.append(Part(own, cards, logical.query, logical.schema, options))
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


def conditional(query: str, where: str | None) -> str:
    """The query with a condition, which need not be one: see `plan_condition`."""
    if where is None:
        return query
    _check_text(where)
    return f"{query} WHERE (\n{where}\n)"  # on lines of its own: it may end with a comment


def plan_condition(engine: Engine, state: TableState, query: str, where: str | None) -> LogicalQuery:
    """What a query with nothing but this condition asks of a table. SqlError when it is more than that."""
    name = state.snapshot.table.name
    with clear_error(query if where is None else where, lambda: [name], above=0 if where is None else LINES_ABOVE):
        logical = engine.plan_sql(query, state)
    _check_plan(logical, where)
    return logical


def _columns(table: Table, columns: Sequence[str] | None) -> Sequence[str]:
    if columns is None:
        return list(table.schema.names)
    if isinstance(columns, str) or not columns:
        raise UsageError(f"columns are {columns!r}.", hint="Give a list with at least one name.")
    for column in columns:
        table.field(column)
        if list(columns).count(column) > 1:
            raise UsageError(f"column '{column}' is asked for twice.", hint="Name each column once.")
    return columns


def _check_text(where: str) -> None:
    if not where.strip():
        raise SqlError("the condition is empty.", hint="Name a condition; TRUE holds for all rows.")
    plain = _TEXTS.sub("''", where)
    depth = 0
    for letter in re.sub(r"[^()]", "", plain):
        depth += 1 if letter == "(" else -1
        if depth < 0:
            break
    if depth:
        raise SqlError(f"the parentheses of '{where}' do not match.", hint="Give one condition, whole.")
    if _SUBQUERY.search(plain):
        raise SqlError("the condition has a subquery.", hint="Name the values themselves, as in id IN (1, 2).")


def _check_plan(logical: LogicalQuery, where: str | None) -> None:
    """It must be what a reader of single files can answer: a row comes in, that row or nothing goes out, whenever it
    is asked."""
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
        raise SqlError(f"'{where}' is more than a condition.", hint="Give what stands between WHERE and GROUP BY.")
    if logical.scores:
        raise SqlError("score compares with all texts, a condition sees one row.", hint="Ask for it with lake.sql.")
    if clocks := sorted(called(logical) & _CLOCKS):
        # Each task would look at its own clock, and the plan was made by another.
        raise SqlError(f"{clocks[0]}() is another time at every look.", hint="Write the time as a literal.")


def called(logical: LogicalQuery) -> set[str]:
    """The functions that the condition of a query calls, as it was written."""
    return {part.rex_call_operator() for part in _condition_parts(logical) if part.variant_name() == _FUNCTION}


def _condition_parts(logical: LogicalQuery) -> Iterator[Any]:
    for below in logical.written.inputs():
        node = below.to_variant()
        if type(node).__name__ == "Filter":
            yield from parts_of(node.predicate())


def _is_subquery(part: Any) -> bool:
    return part.variant_name() in ("ScalarSubquery", "InSubquery", "Exists", "SetComparison")


def _cut(scan: ScanPlan) -> Iterator[list[int]]:
    """Positions of files that are read together. Files that share partition values stay neighbours."""
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
    """The part of a plan that concerns the files at these positions."""
    snapshot, plan = scan.snapshot, scan.access
    files = tuple(
        replace(file, identity=file.identity.elsewhere()) for file in (snapshot.files[at] for at in positions)
    )
    numbers = {position: number for number, position in enumerate(positions)}
    own = AccessPlan(
        plan.states[np.array(positions)],
        {numbers[position]: rows for position, rows in plan.rows.items() if position in numbers},
        frozenset(numbers[position] for position in plan.inexact if position in numbers),
    )
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


def _stored_card(state: TableState, file: File) -> bytes:
    stored = None if file.id is None else state.registry.files.card(file.id)
    if stored is None:
        raise FileChanged(file.path, "lost its card")
    return stored
