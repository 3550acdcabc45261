"""The history of queries: shapes of predicates, how often they ran, and what they read. `advise` uses it.

It keeps shapes (`query_shapes.py`) and sums, never a value. A query adds to a dictionary in memory, which takes
microseconds. The sums are written to `history.db` at the end of a query after ten seconds, when the lake is closed, and
when the process exits. A process that is killed before loses them. Nothing here can make a query fail.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TypeVar

from needlepoint.advisor import query_shapes
from needlepoint.advisor.query_shapes import Shape
from needlepoint.errors import NeedlepointError, StoreError
from needlepoint.parquet import ReadStats
from needlepoint.predicate import Predicate
from needlepoint.query import PointLookup, PruningResult, ScanMetrics, ScanPlan
from needlepoint.stores import Database, is_damaged
from needlepoint.tables import Index, Snapshot

FORMAT = 1
FLUSH_SECONDS = 10.0
DAYS = 30
MOST_SHAPES = 1000
# What a scan read is asked of DataFusion, which takes a fraction of a millisecond; for so many of a shape, each time.
COUNTED_SCANS = 4

Result = TypeVar("Result")

_DAY = 24 * 3600
_log = logging.getLogger("needlepoint")

_STATEMENTS = """
CREATE TABLE asked (
    day INTEGER NOT NULL, table_id INTEGER NOT NULL, shape TEXT NOT NULL, columns TEXT NOT NULL,
    times INTEGER NOT NULL, seconds REAL NOT NULL, bytes INTEGER NOT NULL, matched INTEGER NOT NULL,
    files INTEGER NOT NULL, pages INTEGER NOT NULL, compared INTEGER NOT NULL, scans INTEGER NOT NULL,
    PRIMARY KEY (day, table_id, shape, columns)) WITHOUT ROWID;
CREATE TABLE used (
    day INTEGER NOT NULL, table_id INTEGER NOT NULL, index_name TEXT NOT NULL, times INTEGER NOT NULL,
    PRIMARY KEY (day, table_id, index_name)) WITHOUT ROWID
"""


@dataclass(slots=True)
class QueryTotals:
    """Of all queries of one shape. `matched` rows were handed on to SQL; `compared` values were asked for; `scans` are
    queries with a native scan."""

    times: int = 0
    seconds: float = 0.0
    bytes: int = 0
    matched: int = 0
    files: int = 0
    pages: int = 0
    compared: int = 0
    scans: int = 0

    def add(self, seconds: float, reads: Sequence[ReadStats], matched: int, files: int, compared: int) -> None:
        """One query more, which read so many files and compared so many values."""
        self.times += 1
        self.seconds += seconds
        self.matched += matched
        self.files += files
        self.compared += compared
        for stats in reads:
            self.bytes += stats.bytes_read
            self.pages += stats.pages


@dataclass(slots=True)
class _ShapeTotals:
    sums: QueryTotals
    counted: int = 0
    counted_bytes: int = 0
    counted_rows: int = 0

    def scaled(self) -> QueryTotals:
        """With what all scans read, going by those that were counted."""
        if self.counted:
            self.sums.bytes += self.counted_bytes * self.sums.scans // self.counted
            self.sums.matched += self.counted_rows * self.sums.scans // self.counted
        return self.sums


@dataclass(frozen=True, slots=True)
class ShapeStatistics:
    """One shape of query to one table, for some columns; the sums are of all times it was asked."""

    shape: Shape
    columns: tuple[str, ...]
    sums: QueryTotals

    @property
    def times(self) -> int:
        return self.sums.times


@dataclass(frozen=True, slots=True)
class IndexUsage:
    """How often an index was used, since the day (of 1970) on which a query first could."""

    index: str
    times: int
    since: int


_Key = tuple[int, Shape, frozenset[str]]


_histories: weakref.WeakSet[History] = weakref.WeakSet()


class History:
    def __init__(self, store: Path, on: bool = True, *, read_only: bool = False) -> None:
        self._path = store / "history.db"
        self._on = on
        self._read_only = read_only
        self._database: Database | None = None
        self._lock = threading.Lock()
        self._asked: dict[_Key, _ShapeTotals] = {}
        self._used: dict[tuple[int, str], int] = {}
        self._flushed = time.monotonic()
        self._rows = 0
        self._tidied = False
        self._has_warned = False
        self._process = os.getpid()
        _histories.add(self)

    def note(
        self,
        scan: ScanPlan,
        done: ScanMetrics,
        seconds: float,
        scanned: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        """Add one scan of a finished query. `scanned` returns what a native scan read."""
        if self._on:
            with self._errors_logged():
                self._add(scan, done, seconds, scanned)

    def note_lookup(
        self,
        snapshot: Snapshot,
        index: Index,
        lookup: PointLookup,
        reads: Sequence[ReadStats],
        matched: int,
        files: int,
        seconds: float,
    ) -> None:
        """A key index named the rows of a point lookup."""
        if not self._on:
            return
        ((column, values),) = lookup.values.items()
        shape = ("eq" if len(values) == 1 else "in", column)
        with self._errors_logged(), self._lock:
            sums = self._counts((snapshot.table.id, shape, frozenset((*lookup.columns, column)))).sums
            sums.add(seconds, reads, matched, files, len(values))
            for each in snapshot.indexes:
                self._count_use(snapshot.table.id, each.name, each is index)

    def note_search(
        self,
        snapshot: Snapshot,
        column: str,
        predicate: Predicate,
        columns: frozenset[str],
        reads: Sequence[ReadStats],
        matched: int,
        files: int,
        seconds: float,
    ) -> None:
        """Text indexes named the rows of a ranked search."""
        if not self._on:
            return
        shape, compared = query_shapes.shape_of(predicate), query_shapes.values_in(predicate)
        with self._errors_logged(), self._lock:
            sums = self._counts((snapshot.table.id, shape, columns | {column})).sums
            sums.add(seconds, reads, matched, files, compared)
            for each in snapshot.indexes:
                self._count_use(snapshot.table.id, each.name, each.kind == "text" and each.column == column)

    @contextmanager
    def _errors_logged(self) -> Iterator[None]:
        """Log errors, so that no query fails by its history. Then flush counts that have waited long enough."""
        try:
            yield
            if time.monotonic() - self._flushed > FLUSH_SECONDS or len(self._asked) > MOST_SHAPES:
                self.flush()
        except Exception as error:
            self._warn_once(error)

    def _counts(self, key: _Key) -> _ShapeTotals:
        found = self._asked.get(key)
        if found is None:
            found = self._asked[key] = _ShapeTotals(QueryTotals())
        return found

    def _count_use(self, table: int, index: str, used: bool) -> None:
        self._used[table, index] = self._used.get((table, index), 0) + used

    def _add(
        self,
        scan: ScanPlan,
        done: ScanMetrics,
        seconds: float,
        scanned: Callable[[], Mapping[str, int]] | None,
    ) -> None:
        table, predicate = scan.snapshot.table, scan.predicate
        pruning = scan.pruning or PruningResult(scan.access)
        with self._lock:
            tally = self._counts((table.id, query_shapes.shape_of(predicate), scan.columns))
            sums = tally.sums
            files = len(scan.paged) + len(scan.scanned)
            sums.add(seconds, done.reads, done.matched, files, query_shapes.values_in(predicate))
            for stats in pruning.reads:
                sums.bytes += stats.bytes_read
                sums.pages += stats.pages
            for use in pruning.indexes:
                self._count_use(table.id, use.index, use.used)
            if not scan.scanned:
                return
            sums.scans += 1
            if scanned is None:  # several tables were scanned: by the share of the columns
                share = len(scan.stored_columns()) / max(1, len(table.data_columns))
                found = {"bytes": int(share * sum(file.identity.size for file in scan.scanned)), "rows": 0}
            elif tally.counted < COUNTED_SCANS:
                found = dict(scanned())
            else:
                return
            tally.counted += 1
            tally.counted_bytes += found["bytes"]
            tally.counted_rows += found["rows"]

    def flush(self) -> None:
        """Add the sums in memory to the database; if that fails, they are lost."""
        with self._lock:
            asked, self._asked = self._asked, {}
            used, self._used = self._used, {}
            self._flushed = time.monotonic()
        if not asked:
            return
        day = int(time.time()) // _DAY
        try:
            self._write(day, asked, used)
        except NeedlepointError as error:
            self._warn_once(error)

    def _write(self, day: int, asked: Mapping[_Key, _ShapeTotals], used: Mapping[tuple[int, str], int]) -> None:
        rows = [
            (day, table, query_shapes.written(shape), json.dumps(sorted(columns)), *astuple(tally.scaled()))
            for (table, shape, columns), tally in asked.items()
        ]
        self._with_recovery(lambda database: self._write_rows(database, day, rows, used))

    def _write_rows(
        self,
        database: Database,
        day: int,
        rows: Sequence[tuple[object, ...]],
        used: Mapping[tuple[int, str], int],
    ) -> None:
        with database.write() as connection:
            added = ", ".join(f"{each.name} = {each.name} + excluded.{each.name}" for each in fields(QueryTotals))
            marks = ", ".join("?" * (4 + len(fields(QueryTotals))))
            connection.executemany(f"INSERT INTO asked VALUES ({marks}) ON CONFLICT DO UPDATE SET {added}", rows)
            connection.executemany(
                "INSERT INTO used VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET times = times + excluded.times",
                [(day, table, index, times) for (table, index), times in used.items()],
            )
            self._rows += len(rows)
            if not self._tidied or self._rows > MOST_SHAPES:
                self._tidied, self._rows = True, 0
                for what in ("asked", "used"):
                    connection.execute(f"DELETE FROM {what} WHERE day <= ?", (day - DAYS,))
                for (table,) in connection.execute("SELECT DISTINCT table_id FROM asked").fetchall():
                    # The shapes that are asked most stay.
                    connection.execute(
                        """DELETE FROM asked WHERE table_id = ?1 AND (shape, columns) NOT IN (
                               SELECT shape, columns FROM asked WHERE table_id = ?1
                               GROUP BY shape, columns ORDER BY sum(times) DESC LIMIT ?2)""",
                        (table, MOST_SHAPES),
                    )

    def _open(self) -> Database:
        if self._database is None:
            self._database = Database(self._path, _STATEMENTS, FORMAT, durable=False, read_only=self._read_only)
        return self._database

    def _with_recovery(self, work: Callable[[Database], Result]) -> Result:
        """Run `work` on the database. A damaged one is removed and created again: it may be lost."""
        try:
            return work(self._open())
        except StoreError as error:
            if not is_damaged(error):
                raise
            if self._read_only:
                _log.warning("the history of queries is damaged: %s", error)
                raise
            _log.warning("the history of queries is damaged and starts again, empty: %s", error)
            if self._database is not None:
                self._database.close()
                self._database = None
            for path in (self._path, *(self._path.with_name(f"{self._path.name}-{end}") for end in ("wal", "shm"))):
                path.unlink(missing_ok=True)
            return work(self._open())

    def _warn_once(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("the history of queries is not kept: %s", error)

    def shapes(self, table_id: int) -> list[ShapeStatistics]:
        """The query shapes of a table, of all processes, the most frequent first."""
        sums = ", ".join(f"sum({each.name})" for each in fields(QueryTotals))
        query = f"""SELECT shape, columns, {sums} FROM asked WHERE table_id = ?
                    GROUP BY shape, columns ORDER BY sum(times) DESC"""
        asked = []
        for shape, columns, *numbers in self._read(query, table_id):
            with contextlib.suppress(
                ValueError, TypeError, KeyError, IndexError
            ):  # changed bytes, or a later version's
                asked.append(
                    ShapeStatistics(query_shapes.read(shape), tuple(json.loads(columns)), QueryTotals(*numbers))
                )
        return asked

    def index_usage(self, table_id: int) -> list[IndexUsage]:
        query = "SELECT index_name, sum(times), min(day) FROM used WHERE table_id = ? GROUP BY index_name"
        return [IndexUsage(name, times, since) for name, times, since in self._read(query, table_id)]

    def since(self, table_id: int) -> int | None:
        """The first day of the history."""
        found = self._read("SELECT min(day) FROM asked WHERE table_id = ?", table_id)
        return found[0][0] if found else None

    def _read(self, query: str, table_id: int) -> list[tuple]:  # type: ignore[type-arg]
        self.flush()
        if self._database is None and not self._path.exists():
            return []
        return self._with_recovery(lambda database: database.read(query, table_id))

    def close(self) -> None:
        _histories.discard(self)
        self.flush()
        if self._database is not None:
            self._database.close()
            self._database = None


@atexit.register
def _flush_all() -> None:
    """A forked child leaves the counts to its parent. The lake may be deleted by now."""
    for history in list(_histories):
        if history._process == os.getpid() and history._path.parent.exists():
            history.flush()


def today() -> int:
    """The day, counted from 1970, as the history counts."""
    return int(time.time()) // _DAY
