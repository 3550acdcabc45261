"""Small tables first: a join with few keys reads only the rows of the other table that have them.

    SELECT … FROM wanted JOIN product ON wanted.id = product.product_id

A table of which few rows are left is read before the others are planned. The values of its key are then a condition on
the other table, as if the query said `product_id IN (…)`: indexes and bounds rule out rows by it. A table that is
narrowed so may be small enough to narrow the next one. DataFusion still joins all of them, so a condition that leaves
too many rows does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.predicate import And, Compare, Constant, In, Or, Ordinal, Predicate, conjuncts
from needlepoint.printable import count
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.scan.late_materialization import matching
from needlepoint.query.scan.page_reader import PageRead
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.sql.join_edges import JoinEdge

# A small table has at most this many rows left, in this many files: reading them takes a few milliseconds.
MOST_ROWS, MOST_FILES, MOST_BYTES = 20_000, 8, 8 << 20
# Where a query's memory is limited, a small table has at most this part of it in bytes, which become more when decoded.
SHARE_OF_MEMORY = 100
MOST_KEYS = 10_000
# Bounds of files rule some out if they cover less than this part of all values on average.
NARROW = 0.5


@dataclass(frozen=True, slots=True)
class SemiJoins:
    """The scans after narrowing, and the rows of the tables that were read for it."""

    scans: dict[str, ScanPlan]
    reads: dict[str, PageRead]


Replan = Callable[[str, Predicate], ScanPlan]
Read = Callable[[ScanPlan], PageRead]


def narrow(
    edges: Sequence[JoinEdge],
    scans: Mapping[str, ScanPlan],
    states: Mapping[str, TableState],
    replan: Replan,
    read: Read,
    times_larger: int,
    memory: int = 0,
) -> SemiJoins:
    """Narrow tables by the keys of smaller ones. `replan` plans the scan of a table with one more condition. The query
    may take so much `memory`, 0 without a limit."""
    most_bytes = min(MOST_BYTES, memory // SHARE_OF_MEMORY) if memory else MOST_BYTES
    narrowing = _Narrowing(dict(scans), states, replan, read, times_larger, most_bytes)
    waiting = [edge for edge in edges if edge.table in scans and _may_narrow(states[edge.table], edge.column)]
    while usable := [edge for edge in waiting if narrowing.is_usable(edge)]:
        edge = min(usable, key=lambda each: narrowing.rows(each.by_table))
        waiting.remove(edge)
        narrowing.narrow(edge)
    return SemiJoins(narrowing.scans, narrowing.reads)


@dataclass(slots=True)
class _Narrowing:
    """The tables so far: their scans, the rows of those that were read, and the conditions on others."""

    scans: dict[str, ScanPlan]
    states: Mapping[str, TableState]
    replan: Replan
    read: Read
    times_larger: int
    most_bytes: int
    reads: dict[str, PageRead] = field(default_factory=dict)
    conditions: dict[str, Predicate] = field(default_factory=dict)

    def rows(self, table: str) -> int:
        return self.scans[table].access.count(self.states[table].file_rows)

    def is_usable(self, edge: JoinEdge) -> bool:
        """Whether the keys can be read quickly, and the other table is much larger and not read yet. Files that changed
        have other rows than the snapshot says."""
        small = self.scans.get(edge.by_table)
        if small is None or small.held or edge.table == edge.by_table or edge.table in self.reads:
            return False
        rows = self.rows(edge.by_table)
        if rows > MOST_ROWS or self.rows(edge.table) < self.times_larger * rows:
            return False
        files = small.snapshot.files
        kept = np.flatnonzero(small.access.states).tolist()
        if len(kept) > MOST_FILES or not all(files[at].has_card and files[at].rows is not None for at in kept):
            return False
        counts = {at: selected.count for at, selected in small.access.rows.items()}
        return self.most_bytes >= sum(
            files[at].identity.size * counts.get(at, files[at].rows or 0) // max(1, files[at].rows or 0) for at in kept
        )

    def narrow(self, edge: JoinEdge) -> None:
        keys = _keys(self._rows_of(edge.by_table), edge.by_column, self.scans[edge.by_table].predicate)
        if len(keys) > MOST_KEYS:
            return
        condition = self._condition(edge, keys)
        if condition is None:
            return
        if edge.table in self.conditions:
            condition = And((self.conditions[edge.table], condition))
        before, rows_before = self.scans[edge.table], self.rows(edge.table)
        narrowed = self.replan(edge.table, condition)
        if narrowed.access.count(self.states[edge.table].file_rows) < rows_before:
            note = _note(edge, len(keys))
            self.scans[edge.table] = replace(narrowed, narrowed_by=(*before.narrowed_by, note))
            self.conditions[edge.table] = condition
        elif narrowed.undecided is not None:  # all rows are scanned, to know how long that takes
            self.scans[edge.table] = replace(before, undecided=narrowed.undecided)

    def _condition(self, edge: JoinEdge, keys: tuple[Ordinal, ...]) -> Predicate | None:
        """What the keys require of the other table; None if the extreme of the keys may not be that of the query."""
        if not keys:
            return Constant(False)
        if edge.extreme:
            scan = self.scans[edge.by_table]
            if scan.narrowed_by or not _is_exact(scan.predicate, self.states[edge.by_table]):
                return None
            keys = (min(keys) if edge.extreme == "min" else max(keys),)
        if edge.offset:
            keys = tuple(_wrapped(int(key) + edge.offset) for key in keys)
        return Compare(edge.column, edge.operator, keys[0]) if edge.extreme else In(edge.column, keys)

    def _rows_of(self, table: str) -> pa.Table | None:
        """The rows of a small table, which is read once."""
        if table not in self.reads:
            scan = self.scans[table]
            scan = scan.with_access(scan.access.by_rows(self.states[table].file_rows))
            self.reads[table], self.scans[table] = self.read(scan), scan
        return self.reads[table].rows


def _note(edge: JoinEdge, keys: int) -> str:
    by = f"{edge.by_table}.{edge.by_column}" + (f" {edge.offset:+}" if edge.offset else "")
    if edge.extreme:
        return f"{edge.column} {edge.operator} the {edge.extreme} of {by}"
    return f"{edge.column} is one of {count(keys, 'value')} of {by}"


def _wrapped(value: int) -> int:
    """As integers of 64 bits wrap around."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _is_exact(predicate: Predicate, state: TableState) -> bool:
    """Whether `matching` finds the rows of a predicate, not more: with comparisons of integers only. A scan that has no
    conditions needs all rows, whatever other scans of the table need."""
    if isinstance(predicate, Or):
        return any(part == And(()) for part in predicate.children)
    return all(
        isinstance(part, Compare)
        and pa.types.is_int64(state.types[part.column])
        and isinstance(part.value, int)
        and -(1 << 63) <= part.value < 1 << 63
        for part in conjuncts(predicate)
    )


def _may_narrow(state: TableState, column: str) -> bool:
    """Whether an index or the bounds of files can rule out rows by this column."""
    if column in state.snapshot.table.partitions or any(index.column == column for index in state.snapshot.indexes):
        return True
    zone = state.zones([column]).columns.get(column)
    if zone is None or not zone.known.all() or len(zone.known) < 2 or not np.issubdtype(zone.low.dtype, np.integer):
        return False
    lows, highs = zone.low.astype(np.float64), zone.high.astype(np.float64)
    whole = float(highs.max() - lows.min())
    return whole > 0 and float((highs - lows).mean()) < NARROW * whole


def _keys(rows: pa.Table | None, column: str, predicate: Predicate) -> tuple[Ordinal, ...]:
    """The values of the rows that can match."""
    if rows is None:
        return ()
    values = rows.column(column).filter(pa.array(matching(rows, predicate)))
    found = pc.unique(values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)).drop_null()
    if pa.types.is_string(found.type):
        found = found.cast(pa.binary())
    elif pa.types.is_date32(found.type):
        found = found.cast(pa.int32())
    return tuple(found.to_pylist())
