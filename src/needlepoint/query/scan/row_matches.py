"""The row numbers, by file, for which a condition holds.

Pruning steps select the files and row groups that can have such rows, as for SQL. Then the columns of the condition are
read, and DataFusion evaluates the condition as the user wrote it, so the result is the same as that of `lake.sql`. A
condition on partition columns only is evaluated without opening a file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import datafusion
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from needlepoint.access import Rows
from needlepoint.errors import FileChanged, SqlError
from needlepoint.parquet import check_file_texts
from needlepoint.parquet.format import int96
from needlepoint.parquet.write import opened
from needlepoint.query.datafusion import session
from needlepoint.query.datafusion.errors import clear_error
from needlepoint.query.datafusion.session import SessionOptions
from needlepoint.query.engine import Engine
from needlepoint.query.scan.page_reader import complete_rows
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.scan.scan_tasks import LINES_ABOVE, called_functions, plan_condition, with_condition
from needlepoint.query.sql import nesting
from needlepoint.query.sql.statements import quoted
from needlepoint.tables import File, Table

BATCH_ROWS = 1 << 18

_CHANCES = {"random", "uuid"}

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Row numbers of one file, ascending; None for all rows of the file."""

    file: File
    rows: Numbers | None


def find_matches(engine: Engine, name: str, where: str) -> tuple[Table, Iterator[MatchedRows]]:
    """The rows of a table for which the condition holds, by file. FileChanged if a file changed since it was listed."""
    state = engine.state(name)
    snapshot = state.snapshot
    counted = f"SELECT 1 FROM {quoted(name)}"
    logical = plan_condition(engine, state, with_condition(counted, where), where)
    if chances := sorted(called_functions(logical) & _CHANCES):
        hint = "Write a condition that gives the same rows each time."
        raise SqlError(f"{chances[0]}() returns another value on each call.", hint=hint)
    request = logical.requests.get(name)
    if request is None:  # the condition is never TRUE
        return snapshot.table, iter(())
    scan = engine.scan_planner.plan(state, request)
    row = _free_name(snapshot.table)
    query = f"SELECT {quoted(row)} FROM {quoted(name)}" + logical.query.removeprefix(counted)
    condition = _Condition(name, query, row, state.zeros(logical.zeros))
    if not scan.stored_columns():
        return snapshot.table, _by_partition(scan, condition)
    return snapshot.table, _by_file(scan, condition)


def _free_name(table: Table) -> str:
    name = "row"
    while name in table.schema.names:
        name += "_"
    return name


@dataclass(frozen=True, slots=True)
class _Condition:
    table: str
    query: str
    row: str
    zeros: Mapping[str, float]

    def holding(self, rows: pa.Table) -> Numbers:
        """The row numbers, counted from 0, for which the condition is TRUE."""
        if not rows.num_rows:
            return np.empty(0, np.int64)
        for column in self.zeros.keys() & set(rows.column_names):
            zeros = _with_zeros(rows.column(column), self.zeros[column])
            rows = rows.set_column(rows.column_names.index(column), column, zeros)
        numbered = rows.append_column(self.row, pa.array(np.arange(rows.num_rows)))
        context = _context()
        with clear_error(self.query, lambda: [self.table], above=LINES_ABOVE):
            frame = context.read_batches(numbered.combine_chunks().to_batches())
            with session.tables({self.table: datafusion.Table(frame)}):
                found = nesting.frame(context, self.query).collect()
        numbers = [batch.column(0).to_numpy(zero_copy_only=False) for batch in found]
        return np.sort(np.concatenate([np.empty(0, np.int64), *numbers]))


def _with_zeros(numbers: pa.ChunkedArray, zero: float) -> pa.ChunkedArray:
    """The same numbers, with every zero replaced by this one (see plan_facts.listed_zeros)."""
    return pc.if_else(pc.equal(numbers, 0.0), pa.scalar(zero, numbers.type), numbers)


@functools.cache
def _context() -> datafusion.SessionContext:
    return session.make_context(SessionOptions(statistics=False, pushdown=False), threads=1)


def _positions(scan: ScanPlan) -> list[int]:
    """The files that can have such rows."""
    return sorted([*scan.access.scanned(), *scan.access.rows])


def _by_partition(scan: ScanPlan, condition: _Condition) -> Iterator[MatchedRows]:
    """Files whose rows all have the same partition values."""
    snapshot = scan.snapshot
    files = [snapshot.files[position] for position in _positions(scan)]
    if not files:
        return
    rows = complete_rows(snapshot, [(file, 1) for file in files], _without_columns(len(files)))
    for number in condition.holding(rows).tolist():
        yield MatchedRows(files[number], None)


def _without_columns(rows: int) -> pa.Table:
    return pa.table({"": pa.nulls(rows)}).select([])


def _by_file(scan: ScanPlan, condition: _Condition) -> Iterator[MatchedRows]:
    for position in _positions(scan):
        file = scan.snapshot.files[position]
        found = _of_file(scan, file, scan.access.rows.get(position), condition)
        if found is not None:
            yield found


def _of_file(scan: ScanPlan, file: File, possible: Rows | None, condition: _Condition) -> MatchedRows | None:
    wanted = scan.stored_columns()
    numbers = possible.numbers() if possible is not None else None
    parts: list[Numbers] = []
    first = 0
    with opened(scan.path(file), file.identity, int96.UNIT) as source:
        columns = [name for name in wanted if name in source.schema_arrow.names]
        for group in range(source.metadata.num_row_groups):
            rows = source.metadata.row_group(group).num_rows
            if numbers is None or np.searchsorted(numbers, first) < np.searchsorted(numbers, first + rows):
                start = first
                for table in _tables(source, group, columns, rows):
                    check_file_texts(scan.path(file), table)
                    whole = complete_rows(scan.snapshot, [(file, table.num_rows)], table)
                    parts.append(condition.holding(whole) + start)
                    start += table.num_rows
            first += rows
        total = source.metadata.num_rows
    found = np.concatenate([np.empty(0, np.int64), *parts])
    if not len(found):
        return None
    if file.rows is not None and file.rows != total:
        raise FileChanged(scan.path(file), "has another number of rows than when it was listed")
    return MatchedRows(file, None if len(found) == total else found)


def _tables(source: pq.ParquetFile, group: int, columns: list[str], rows: int) -> Iterator[pa.Table]:
    """The columns of a row group in batches. A file without these columns still has rows."""
    if not columns:
        yield _without_columns(rows)
        return
    for batch in source.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
        # By name: pyarrow also reads `a.b` as the field of a struct.
        yield pa.Table.from_batches([batch.select(columns)])
