"""Point lookups: rows by key, for `table.get` and for SQL.

    SELECT columns FROM table WHERE column = value          or IN (values), literals or parameters
    table.get(column=value)

All of them become a `PointLookup`. If a key index covers all files, it names the rows, and their pages are read. Else
the pruning steps run as for any query; if no file is left to scan, the rows are read the same way. Anything else goes
to DataFusion as SQL.

>>> types = {"id": pa.int64(), "title": pa.string()}
>>> found = recognise("SELECT title FROM product WHERE id = 5").lookup(types, None)
>>> found.table, found.columns, found.request.predicate
('product', ('title',), Compare(column='id', operator='=', value=5))
>>> recognise("SELECT upper(title) FROM product WHERE id = 5") is None
True
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from needlepoint.access import each_once
from needlepoint.errors import FileChanged, NeedlepointError, UsageError
from needlepoint.indexes.key import encode, rows_by_file
from needlepoint.objects import is_url
from needlepoint.parquet import Caches, FileRows, ReadStats, read_files, reads_jointly
from needlepoint.predicate import And, Compare, In, Leaf, Ordinal, Predicate, leaves
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.report.explain import Report
from needlepoint.query.result import ReadBytes, Result
from needlepoint.query.scan.cost_model import FileSizes
from needlepoint.query.scan.costs import shared
from needlepoint.query.scan.held_files import is_holding
from needlepoint.query.scan.page_reader import complete_rows, matching_rows, read_pages
from needlepoint.query.scan.scan_plan import FEW_FILES, FEW_ROWS, FEW_VALUES, ScanMetrics, ScanPlan
from needlepoint.query.sql.request import Request, Types
from needlepoint.query.sql.tokens import words
from needlepoint.stores import Locations
from needlepoint.tables import ordinal

if TYPE_CHECKING:
    from needlepoint.query.engine import Engine

_NUMBER, _TEXT, _PARAMETER = r"[0-9]{1,18}", r"'[^'\\]*'", r"\$[a-zA-Z_]\w*"
_LISTS = "|".join(rf"{each}(?:\s*,\s*{each})*" for each in (_NUMBER, _TEXT, _PARAMETER))
_VALUES = rf"(?:=\s*({_NUMBER}|{_TEXT}|{_PARAMETER})|\bIN\s*\(\s*({_LISTS})\s*\))"
# Only one part can match a run of spaces: two in a row would backtrack over all their lengths.
_LOOKUP = re.compile(
    rf"\s*SELECT\s+(\*|\w+(?:\s*,\s*\w+)*)\s+FROM\s+(\w+)\s+WHERE\s+(\w+)\s*{_VALUES}\s*(?:;\s*)?",
    re.IGNORECASE | re.ASCII,
)
_ONE = re.compile(rf"{_NUMBER}|{_TEXT}|{_PARAMETER}")

# Words that are no column or no table somewhere in a query of this form, even if one has such a name.
_KEYWORDS = words(
    "all analyze cluster current_date current_time current_timestamp distinct distribute end except exclude exists "
    "explain false fetch from group having intersect interval into lateral limit minus not null offset order returning "
    "select sort struct table top trim true union unnest values view where with"
)


@dataclass(frozen=True)
class PointLookup:
    """The rows whose columns each have one of these values; returns `columns`, in that order."""

    table: str
    columns: tuple[str, ...]
    values: Mapping[str, pa.Array]

    @cached_property
    def request(self) -> Request:
        """The request for the pruning steps. UsageError for a type without equality."""
        found = [_one_of(column, array) for column, array in self.values.items()]
        predicate = found[0] if len(found) == 1 else And(tuple(found))
        return Request(frozenset([*self.columns, *self.values]), predicate)

    @property
    def has_keywords(self) -> bool:
        """Whether one of its names can have another meaning in SQL: 1 is a number, even beside such a column."""
        names = (self.table, *self.columns, *self.values)
        return not _KEYWORDS.isdisjoint(names) or any(name[0].isdigit() for name in names)

    def agrees(self, request: Request | None, schema: pa.Schema) -> bool:
        """Whether a request and a schema, which DataFusion derived from the same query, are the same."""
        if request is None or request.columns != self.request.columns or schema.names != [*self.columns]:
            return False
        found = [*leaves(request.predicate)]
        return len(found) == 1 and _equalities(found[0]) == _equalities(next(leaves(self.request.predicate)))


def _one_of(column: str, array: pa.Array) -> Predicate:
    values = array.to_pylist() if pa.types.is_integer(array.type) else [ordinal(scalar) for scalar in array]
    if None in values:
        raise UsageError(f"column '{column}' is {array.type}, which has no equality.")
    known = tuple(value for value in values if value is not None)
    return Compare(column, "=", known[0]) if len(known) == 1 else In(column, known)


def _equalities(leaf: Leaf) -> tuple[str, frozenset[Ordinal]] | None:
    match leaf:
        case Compare(column, "=", value):
            return column, frozenset([value])
        case In(column, values):
            return column, frozenset(values)
    return None


@dataclass(frozen=True, slots=True)
class LookupForm:
    """A query that looks like a point lookup; `selected` and `listed` are parts of its text."""

    table: str
    selected: str
    column: str
    listed: str

    def lookup(self, types: Types, parameters: Mapping[str, pa.Scalar] | None) -> PointLookup | None:
        """The lookup in a table with columns of these types; None if it is not a point lookup."""
        type = types.get(self.column)
        columns = tuple(types) if self.selected == "*" else tuple(map(str.strip, self.selected.split(",")))
        if type is None or not types.keys() >= set(columns) or len(set(columns)) < len(columns):
            return None
        values = self._values(type, parameters)
        return None if values is None else PointLookup(self.table, columns, {self.column: values})

    def _values(self, type: pa.DataType, parameters: Mapping[str, pa.Scalar] | None) -> pa.Array | None:
        """The values in the column's type; None if a value has another type, or the type cannot hold it."""
        first, found = self.listed[0], list[Any]()
        if first == "$":
            fits = pa.types.is_integer if pa.types.is_integer(type) else pa.types.is_string
            for name in self.listed.split(","):
                scalar = (parameters or {}).get(name.strip()[1:])
                if scalar is None or not scalar.is_valid or not fits(scalar.type):
                    return None
                found.append(scalar.as_py())
        elif first == "'":
            found = [text[1:-1] for text in _ONE.findall(self.listed)]
        else:
            found = list(map(int, self.listed.split(",")))
        if not (pa.types.is_string(type) if isinstance(found[0], str) else pa.types.is_integer(type)):
            return None
        try:
            return pa.array(dict.fromkeys(found), type)
        except (pa.ArrowException, OverflowError):
            return None


def recognise(query: str) -> LookupForm | None:
    """The point lookup that a query looks like. SQL folds names to lower case."""
    found = _LOOKUP.fullmatch(query)
    if found is None:
        return None
    return LookupForm(found[2].lower(), found[1].lower(), found[3].lower(), found[4] or found[5])


def _bytes(state: TableState, reads: Sequence[ReadStats]) -> ReadBytes:
    return ReadBytes(sum(stats.bytes_read for stats in reads), state.bytes)


def _report(scan: Callable[[], ScanPlan], metrics: ScanMetrics, engine: Engine, seconds: dict[str, float]) -> Report:
    from needlepoint.query.report.table_report import table_map, table_report

    cards = engine.cards
    return Report(
        lambda: [table_report(scan(), metrics, cards)],
        lambda: [table_map(scan(), cards)],
        executed=True,
        seconds=seconds,
    )


class PointLookups:
    """Runs point lookups with the caches of an engine."""

    def __init__(self, engine: Engine, access: str, range_limit: int) -> None:
        self._engine = engine
        self._by_key = access != "scan"
        self._range_limit = range_limit

    def at_once(self, lookup: PointLookup, state: TableState) -> Result | None:
        """The rows, if a key index names them and they are in local files: within a millisecond or two. Else None."""
        if not self._by_key or is_url(state.snapshot.table.location):
            return None
        try:
            return self._found_by_key(lookup, state, time.perf_counter(), FEW_FILES)
        except FileChanged:
            return None

    def run(
        self, lookup: PointLookup, state: TableState, use_indexes: bool | str = True, pushdown: bool = True
    ) -> Result | ScanPlan:
        """The rows; or a scan plan, if a file must be scanned."""
        started = time.perf_counter()
        if use_indexes is True and self._by_key and (found := self._found_by_key(lookup, state, started)) is not None:
            return found
        scan = self._engine.scan_planner.plan(state, lookup.request, use_indexes, pushdown, is_lookup=True)
        if scan.scanned:
            return scan
        planned = time.perf_counter()
        read = read_pages(scan, self._engine.cards, self._engine.caches)
        rows = scan.snapshot.table.schema.empty_table() if read.rows is None else read.rows
        rows = matching_rows(rows, lookup.values).select(lookup.columns)
        finished = time.perf_counter()
        metrics = replace(read.metrics, matched=rows.num_rows)
        if scan.undecided is not None:
            self._engine.accesses.note(scan.undecided.key, scan.undecided.by_pages, finished - started)
        if use_indexes is True:
            self._engine.history.note(scan, metrics, finished - started)
        seconds = {"plan": planned - started, "read": finished - planned}

        def report() -> Report:
            return _report(lambda: scan, metrics, self._engine, seconds)

        return Result(rows, report, lambda: _bytes(state, metrics.reads))

    def _found_by_key(
        self, lookup: PointLookup, state: TableState, started: float, most_files: int = FEW_VALUES
    ) -> Result | None:
        """The rows that a key index names; None if the index is not enough, or if a scan may be faster."""
        (column, values), *others = lookup.values.items()
        index = state.key_indexes.get(column)
        if others or index is None or not 0 < len(values) <= FEW_VALUES or is_holding():
            return None
        engine, snapshot = self._engine, state.snapshot
        try:
            keys = encode(values)
            listed = sorted(keys.view(f"V{keys.shape[1]}").ravel().tolist())
            locations = engine.key_store(index, snapshot).find(listed, self._range_limit)
        except NeedlepointError:
            return None  # the pruning steps report the problem
        if locations is None or len(locations) > FEW_ROWS:
            return None
        wanted = self._wanted(state, locations, most_files)
        if wanted is None:
            return None
        positions, files = wanted
        names = [name for name in snapshot.table.schema.names if name in lookup.columns or name == column]
        if len(files) > FEW_FILES and not self._is_faster(files, names, snapshot.table.location):
            return None
        planned = time.perf_counter()
        found = read_rows(state, positions, files, names, engine.caches)
        if found is None:
            return None
        rows, reads, _ = found
        rows = matching_rows(rows, lookup.values).select(lookup.columns)
        finished = time.perf_counter()
        matched = rows.num_rows
        engine.history.note_lookup(snapshot, index, lookup, reads, matched, len(files), finished - started)

        def report() -> Report:
            seconds = {"plan": planned - started, "read": finished - planned}
            metrics = ScanMetrics(reads, matched=matched)

            def scan() -> ScanPlan:
                return engine.scan_planner.plan(state, lookup.request, is_lookup=True, access="pages")

            return _report(scan, metrics, engine, seconds)

        return Result(rows, report, lambda: _bytes(state, reads))

    def _wanted(
        self, state: TableState, locations: Locations, most_files: int
    ) -> tuple[list[int], list[FileRows]] | None:
        """The positions of files, and the rows of each; None if a file cannot be read by page, or if the index is
        wrong."""
        snapshot = state.snapshot
        files, location = snapshot.files, snapshot.table.location
        positions: list[int] = []
        wanted: list[FileRows] = []
        for file_id, numbers in rows_by_file(each_once(locations)).items():
            position = state.positions.get(file_id)
            if position is None:
                continue  # a replaced or removed file
            file = files[position]
            cached = self._engine.cards.cached(file)
            if cached is None or numbers[-1] >= cached.card.num_rows or len(wanted) == most_files:
                return None
            positions.append(position)
            wanted.append(FileRows(f"{location}/{file.path}", cached, numbers))
        return positions, wanted

    def _is_faster(self, wanted: Sequence[FileRows], names: Sequence[str], location: str) -> bool:
        """Whether reading pages takes less time than starting a scan of the files, however little that reads."""
        costs = self._engine.costs.of(location)
        rows = np.array([len(each.rows) for each in wanted])
        pages = FileSizes.of([each.cached for each in wanted], names).by_pages(
            rows, rows, reads_jointly(int(rows.sum()), self._engine.caches)
        )
        scan = costs.plan + costs.scan + shared(len(wanted) * costs.scan_file, len(wanted))
        return bool(pages.seconds(costs).sum() <= scan)


def read_rows(
    state: TableState, positions: Sequence[int], wanted: Sequence[FileRows], names: list[str], caches: Caches
) -> tuple[pa.Table, tuple[ReadStats, ...], list[int]] | None:
    """The rows with these columns of the table, what was read, and the order of the files; None if a file lacks a
    column."""
    snapshot = state.snapshot
    stored = [name for name in names if name not in snapshot.table.partitions]
    try:
        parts = read_files(wanted, stored, None, caches)
    except KeyError:
        return None
    except FileNotFoundError as error:
        raise FileChanged(str(error.filename), "is gone") from None
    tables, order = [], []
    for numbers, found, _ in parts:
        counts = [(snapshot.files[positions[number]], len(wanted[number].rows)) for number in numbers]
        tables.append(complete_rows(snapshot, counts, found, names))
        order += numbers
    if not tables:
        return pa.schema([snapshot.table.schema.field(name) for name in names]).empty_table(), (), []
    rows = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    return rows, tuple(stats for _, _, stats in parts), order
