"""Ranked searches: the rows with the highest scores, without DataFusion.

    SELECT columns, score(column, 'words') AS name FROM table ORDER BY score(column, 'words') DESC LIMIT 10

or ORDER BY the name. Other columns may follow, for rows with the same score. The words may be a parameter, and WHERE
text_match(column, 'words') may be the only condition, without phrases and excluded words. Text indexes of all files
name the rows and their scores (ranked_rows.py), and the pages of these rows are read. If other columns follow, these
are read first, of all rows that have the last score. Anything else goes to DataFusion as SQL.

>>> types = {"id": pa.int64(), "title": pa.string()}
>>> form = recognise("SELECT id, score(title, 'dairy cow') AS s FROM product ORDER BY s DESC LIMIT 10")
>>> found = form.search(types, None)
>>> found.table, found.columns, found.names, found.column, found.query, found.limit
('product', ('id', None), ('id', 's'), 'title', 'dairy cow', 10)
>>> form = recognise("SELECT id FROM product ORDER BY score(title, 'cow') DESC, title, id DESC LIMIT 10")
>>> [(key.column, key.descending, key.nulls_first) for key in form.search(types, None).then]
[('title', False, False), ('id', True, True)]
>>> recognise("SELECT id FROM product WHERE id > 5 ORDER BY score(title, 'cow') DESC LIMIT 10") is None
True
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.access import RowNumbers
from needlepoint.errors import NeedlepointError
from needlepoint.indexes.text import parse, terms
from needlepoint.objects import is_url
from needlepoint.parquet import FileRows, ReadStats
from needlepoint.predicate import Constant, Predicate, TextMatch, conjuncts
from needlepoint.query import ranked_rows
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion.planner import LogicalQuery
from needlepoint.query.datafusion.scoring import statistics_of
from needlepoint.query.point_lookup import read_rows
from needlepoint.query.report.explain import Report
from needlepoint.query.report.table_report import table_map, table_report
from needlepoint.query.result import ReadBytes, Result
from needlepoint.query.scan.held_files import is_holding
from needlepoint.query.scan.scan_plan import ScanMetrics, ScanPlan
from needlepoint.query.sql.request import Request, Types
from needlepoint.query.sql.top_rows import RankedRows, SortKey
from needlepoint.query.top_rows import MOST_ENTRIES, Attempts

if TYPE_CHECKING:
    from needlepoint.query.sql_queries import SqlQueries

MOST_ROWS = 100
_ALL = Constant(True)

_CALL = r"\s*\(\s*(?:\w+)\s*,\s*(?:'[^'\\]*'|\$[a-zA-Z_]\w*)\s*\)"
_SCORE = rf"score{_CALL}"
_ITEM = rf"(?:\*|{_SCORE}\s+AS\s+\w+|\w+)"
_KEY = r"[a-z_]\w*(?:\s+(?:ASC|DESC))?(?:\s+NULLS\s+(?:FIRST|LAST))?"
_SEARCH = re.compile(
    rf"\s*SELECT\s+({_ITEM}(?:\s*,\s*{_ITEM})*)\s+FROM\s+(\w+)\s+(?:WHERE\s+(text_match{_CALL})\s+)?"
    rf"ORDER\s+BY\s+({_SCORE}|\w+)\s+DESC((?:\s*,\s*{_KEY})*)"
    r"\s+LIMIT\s+([1-9][0-9]{0,3})\s*(?:;\s*)?",
    re.IGNORECASE | re.ASCII,
)
_ITEMS = re.compile(rf"({_SCORE})\s+AS\s+(\w+)|\*|\w+", re.IGNORECASE | re.ASCII)
_KEYS = re.compile(r",\s*([a-z_]\w*)(?:\s+(ASC|DESC))?(?:\s+NULLS\s+(FIRST|LAST))?", re.IGNORECASE | re.ASCII)
_ARGUMENTS = re.compile(r"\w+\s*\(\s*(\w+)\s*,\s*(?:'([^'\\]*)'|\$(\w+))\s*\)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class RankedSearch:
    """The `limit` rows with the highest scores, of those that `match` a text query, if there is one, `then` ordered by
    columns. `columns` has None for the score itself; `names` are the result's."""

    table: str
    columns: tuple[str | None, ...]
    names: tuple[str, ...]
    column: str
    query: str
    limit: int
    match: str | None = None
    then: tuple[SortKey, ...] = ()

    @property
    def shape(self) -> tuple[str, ...]:
        kind = "ranked" if self.match is None else "matched"
        then = [f"{key.column} {key.descending} {key.nulls_first}" for key in self.then]
        return kind, *(name or "" for name in self.columns), "", *self.names, "", self.column, *then

    @property
    def read_columns(self) -> frozenset[str]:
        """What is read of the rows."""
        return frozenset([*(name for name in self.columns if name is not None), *(key.column for key in self.then)])

    @property
    def top(self) -> RankedRows:
        filtered = self.match is not None
        return RankedRows(self.table, self.column, self.query, self.limit, self.limit, filtered, self.then)

    @property
    def predicate(self) -> Predicate:
        return _ALL if self.match is None else TextMatch(self.column, self.match)

    def schema(self, types: Types) -> pa.Schema:
        """Of the result."""
        of = [pa.float64() if column is None else types[column] for column in self.columns]
        return pa.schema(list(zip(self.names, of, strict=True)))

    def agrees(self, logical: LogicalQuery, types: Types) -> bool:
        """Whether DataFusion derived the same from the query."""
        request = logical.requests.get(self.table)
        return (
            request is not None
            and request.columns == self.read_columns | {self.column}
            and [*conjuncts(request.predicate)] in ([[self.predicate]] if self.match is not None else [[], [_ALL]])
            and logical.top == self.top
            and logical.schema.equals(self.schema(types))
        )


@dataclass(frozen=True, slots=True)
class SearchForm:
    """A query that looks like a ranked search; `selected`, `key` and `then` are parts of its text."""

    table: str
    selected: str
    condition: str | None
    key: str
    then: str
    limit: int

    def search(self, types: Types, parameters: Mapping[str, pa.Scalar] | None) -> RankedSearch | None:
        """The search in a table with columns of these types; None if it is none."""
        columns, names, calls = list[str | None](), list[str](), dict[str, str]()
        for item in _ITEMS.finditer(self.selected):
            if item[1] is not None:
                columns.append(None)
                names.append(item[2].lower())
                calls[item[2].lower()] = item[1]
                continue
            found = list(types) if item[0] == "*" else [item[0].lower()]
            columns += found
            names += found
        by_name = calls.get(self.key.lower())
        scored = {_arguments(call, parameters) for call in {*calls.values(), by_name or self.key}}
        known = {name for name in columns if name is not None} <= types.keys()
        if len(scored) != 1 or not known or len(set(names)) < len(names) or not types.keys().isdisjoint(calls):
            return None
        (only,) = scored
        match = None if self.condition is None else _arguments(self.condition, parameters)
        if self.condition is not None and (match is None or only is None or match[0] != only[0]):
            return None
        if only is None or not pa.types.is_string(types.get(only[0], pa.null())):
            return None
        then = tuple(_sort_key(*each.groups()) for each in _KEYS.finditer(self.then))
        if not all(_is_sorted_alike(types.get(key.column, pa.null())) for key in then):
            return None
        matched = None if match is None else match[1]
        return RankedSearch(self.table, tuple(columns), tuple(names), *only, self.limit, matched, then)


def _sort_key(column: str, direction: str | None, nulls: str | None) -> SortKey:
    """A part of ORDER BY; in SQL, NULL is above all values unless it is said where it is."""
    descending = (direction or "").upper() == "DESC"
    return SortKey(column.lower(), descending, descending if nulls is None else nulls.upper() == "FIRST")


def _is_sorted_alike(type: pa.DataType) -> bool:
    """Whether pyarrow orders values as DataFusion does: floats have two zeros, and NaN."""
    kinds = pa.types
    return bool(kinds.is_integer(type) or kinds.is_date(type) or kinds.is_timestamp(type) or kinds.is_string(type))


def _arguments(call: str, parameters: Mapping[str, pa.Scalar] | None) -> tuple[str, str] | None:
    found = _ARGUMENTS.fullmatch(call)
    if found is None:
        return None
    if found[3] is None:
        return found[1].lower(), found[2]
    given = (parameters or {}).get(found[3])
    if given is None or not given.is_valid or not pa.types.is_string(given.type):
        return None
    return found[1].lower(), given.as_py()


@functools.lru_cache(maxsize=256)
def recognise(query: str) -> SearchForm | None:
    """The ranked search that a query looks like. SQL folds names to lower case."""
    found = _SEARCH.fullmatch(query)
    if found is None or int(found[6]) > MOST_ROWS:
        return None
    return SearchForm(found[2].lower(), found[1], found[3], found[4], found[5], int(found[6]))


class RankedSearches:
    """Runs ranked searches with the caches of an engine."""

    def __init__(self, queries: SqlQueries, access: str) -> None:
        self._queries = queries
        self._engine = queries.engine
        self._by_index = access != "scan"

    def run(self, search: RankedSearch, state: TableState) -> Result | None:
        """The rows; None if text indexes do not cover all files, or a file cannot be read by page."""
        started = time.perf_counter()
        if not self._by_index or is_holding() or is_url(state.snapshot.table.location):
            return None
        best = self._best(search, state)
        if best is None:
            return None
        planned = time.perf_counter()
        found = self._ranked(search, state, *best)
        if found is None:
            return None
        stored, scores, reads, files = found
        arrays = [pa.array(scores) if name is None else stored.column(name) for name in search.columns]
        answer = pa.Table.from_arrays(arrays, names=list(search.names))
        metrics = ScanMetrics(reads, matched=len(answer))
        finished = time.perf_counter()
        self._engine.history.note_search(
            state.snapshot, search.column, search.predicate, search.read_columns, reads, len(answer), files,
            finished - started,
        )  # fmt: skip

        def report() -> Report:
            scan, cards = self._scan(search, state), self._engine.cards
            seconds = {"plan": planned - started, "read": finished - planned}
            tables, maps = (lambda: [table_report(scan, metrics, cards)]), (lambda: [table_map(scan, cards)])
            return Report(tables, maps, executed=True, seconds=seconds)

        def read() -> ReadBytes:
            return ReadBytes(sum(stats.bytes_read for stats in reads), state.bytes)

        return Result(answer, report, read)

    def _best(self, search: RankedSearch, state: TableState) -> tuple[RowNumbers, ranked_rows.Floats] | None:
        """The best rows and their scores."""
        wanted = terms(parse(search.query))
        ranked = ranked_rows.ranked_terms(state, search.column, wanted, self._queries) if wanted else None
        if ranked is None or not ranked.covered.all():
            return None
        matching = None
        if search.match is not None:
            query = parse(search.match)
            asked = ranked_rows.ranked_terms(state, search.column, terms(query), self._queries)
            matching = None if asked is None or not asked.covered.all() else asked.matching(query)
            if matching is None:
                return None
        statistics = statistics_of(state, search.column, wanted, self._queries)
        best = ranked.best(statistics, search.limit, bool(search.then), matching)
        if (matching is not None or search.then) and len(best.rows) < search.limit:
            return None  # rows with a score of 0 may match, or are next in the order of other columns
        if len(best.rows) > MOST_ENTRIES:
            return None
        total = int(state.first_rows[-1])
        missing = min(search.limit, total) - len(best.rows)
        if missing <= 0:
            return best.rows, best.scores
        others = np.setdiff1d(np.arange(min(2 * search.limit, total)), best.rows)[:missing]
        return np.concatenate((best.rows, others)), np.concatenate((best.scores, np.zeros(len(others))))

    def _ranked(
        self, search: RankedSearch, state: TableState, rows: RowNumbers, scores: ranked_rows.Floats
    ) -> tuple[pa.Table, ranked_rows.Floats, tuple[ReadStats, ...], int] | None:
        """The first of these rows in their order, their scores, and what was read of how many files."""
        done: tuple[ReadStats, ...] = ()
        to_read = [search.read_columns or frozenset([search.column])]
        if len(rows) > search.limit:  # of many rows with the last score, what orders them is read first
            to_read.insert(0, frozenset(key.column for key in search.then))
        for columns in to_read:
            found = self._read(state, rows, columns)
            if found is None:
                return None
            stored, numbers, reads, files = found
            order = np.argsort(rows, kind="stable")
            scores = scores[order][np.searchsorted(rows[order], numbers)]
            ranks = _ranks(search.then, stored, scores, numbers)[: search.limit]
            rows, scores, done = numbers[ranks], scores[ranks], done + reads
        return stored.take(pa.array(ranks)), scores, done, files

    def _read(
        self, state: TableState, rows: RowNumbers, columns: Set[str]
    ) -> tuple[pa.Table, RowNumbers, tuple[ReadStats, ...], int] | None:
        """Columns of these rows, the numbers of the rows in the same order, and what was read of how many files."""
        files, location, firsts = state.snapshot.files, state.snapshot.table.location, state.first_rows
        rows = np.sort(rows)
        owners = np.searchsorted(firsts, rows, "right") - 1
        ends = [*(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(rows)]
        positions, wanted = owners[[0, *ends[:-1]]].tolist(), list[FileRows]()
        for position, start, end in zip(positions, [0, *ends[:-1]], ends, strict=True):
            cached = self._engine.cards.cached(files[position])
            if cached is None:
                return None
            wanted.append(FileRows(f"{location}/{files[position].path}", cached, rows[start:end] - firsts[position]))
        names = [name for name in state.snapshot.table.schema.names if name in columns]
        try:
            found = read_rows(state, positions, wanted, names, self._engine.caches)
        except NeedlepointError:
            return None  # planned again, it is read as it is now
        if found is None:
            return None
        read, reads, order = found
        numbers = np.concatenate([wanted[at].rows + firsts[positions[at]] for at in order])
        return read, numbers, reads, len(positions)

    def _scan(self, search: RankedSearch, state: TableState) -> ScanPlan:
        """The plan that the report shows."""
        request = Request(search.read_columns | {search.column}, search.predicate)
        scan = self._engine.scan_planner.plan(state, request)
        for narrowed in ranked_rows.scans(search.top, scan, state, self._queries, Attempts.of(search.top), 0):
            return self._engine.scan_planner.with_access(narrowed, narrowed.predicate, access="pages")
        return scan


def _ranks(then: Sequence[SortKey], rows: pa.Table, scores: ranked_rows.Floats, numbers: RowNumbers) -> RowNumbers:
    """The places of rows in their order: by score, by other columns, by number."""
    if not then:
        return np.lexsort((numbers, -scores))
    columns: list[tuple[pa.Array, bool]] = [(pa.array(scores), True)]
    for key in then:
        column = rows.column(key.column)
        columns += [(pc.is_null(column).cast(pa.int8()), key.nulls_first), (column, key.descending)]
    columns.append((pa.array(numbers), False))
    names = [str(number) for number in range(len(columns))]
    orders = ["descending" if descending else "ascending" for _, descending in columns]
    table = pa.table([column for column, _ in columns], names=names)
    places: RowNumbers = pc.sort_indices(table, sort_keys=list(zip(names, orders, strict=True))).to_numpy()
    return places
