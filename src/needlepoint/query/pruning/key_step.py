"""The key step: an index names the rows themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.access import AccessPlan, RowsByFile, each_once
from needlepoint.errors import NeedlepointError
from needlepoint.indexes import keeps_entries
from needlepoint.indexes.key import key_bytes, keys_of, range_of, split_locations
from needlepoint.objects import is_url
from needlepoint.predicate import Compare, Condition, In, IsNull, Ordinal, Predicate, StartsWith, fold, leaves
from needlepoint.printable import count
from needlepoint.query.pruning.context import PruningContext
from needlepoint.query.pruning.result import StepResult
from needlepoint.query.report.explain import IndexUse
from needlepoint.query.scan.cost_model import Estimate
from needlepoint.query.scan.costs import ZSTD, shared
from needlepoint.query.scan.scan_plan import FEW_VALUES
from needlepoint.stores import Locations
from needlepoint.tables import Index

# Asking the index for the keys takes little beside a scan: this part of it.
LITTLE = 0.05
# A range with this many times more estimated rows than the limit is not started.
MANY_TIMES = 10
# With fewer expected rows than this, a range is read without an estimate; and what an entry of it takes of a lookup.
MANY_ROWS, ENTRY_OF_RANGE = 1000, 0.3


def by_key(access: AccessPlan, context: PruningContext) -> StepResult:
    """The key index names the rows; files that it does not cover stay as they are."""
    search = _KeySearch(context)
    found = search.find(context.predicate)
    uses = search.uses()
    if found is None:
        return StepResult(access, uses)
    files, numbers = split_locations(found.locations)
    positions = context.state.positions_of(files)
    known = positions >= 0  # the others are replaced or removed files
    positions, numbers = positions[known], numbers[known]
    beyond = np.flatnonzero(numbers >= context.state.row_limits[positions])
    if len(beyond):
        file = context.snapshot.files[positions[beyond[0]]]
        why = f"it names row {numbers[beyond[0]]} of {file.path}, which has {file.rows}"
        return StepResult(access, tuple(_disbelieved(use, why) for use in uses))
    return StepResult(access.only(found.covered, RowsByFile.at(positions, numbers)), uses)


def _disbelieved(use: IndexUse, why: str) -> IndexUse:
    return replace(use, used=False, why=f"ignored: {why}") if use.used else use


@dataclass(frozen=True, slots=True)
class _Range:
    """Comparisons of one column under one AND. Both ends are inclusive: an extra row does no harm."""

    column: str
    low: Ordinal | None
    high: Ordinal | None

    def narrowed(self, end: Compare) -> _Range:
        value: Any = end.value
        if end.operator in (">", ">="):
            return self if self.low is not None and self.low > value else replace(self, low=value)
        return self if self.high is not None and self.high < value else replace(self, high=value)


_Lookup = Compare | In | StartsWith | _Range


@dataclass(frozen=True, slots=True)
class _KeyRows:
    """Rows that can match, ascending, in the covered files; nothing is known of the others."""

    locations: Locations
    covered: npt.NDArray[np.bool_]


class _KeySearch:
    def __init__(self, context: PruningContext) -> None:
        self._context = context
        self._indexes = {i.column: i for i in context.indexes_to_ask if keeps_entries(i.kind)}
        self._asked: set[str] = set()
        self._uses: list[IndexUse] = []

    def find(self, predicate: Predicate) -> _KeyRows | None:
        """Rows outside of which the predicate is not TRUE; None if the indexes cannot decide."""
        return fold(
            predicate,
            lambda conditions: map(self._find, _merged_ranges(conditions)),
            all_of=self._both,
            any_of=self._either,
            nothing=lambda: _KeyRows(np.empty(0, np.uint64), np.ones(len(self._context.snapshot.files), np.bool_)),
        )

    def _find(self, condition: Condition | _Range) -> _KeyRows | None:
        if isinstance(condition, IsNull):
            return self._without_null(condition.column)
        if not isinstance(condition, Compare | In | StartsWith | _Range):
            return None
        index = self._indexes.get(condition.column)
        return None if index is None else self._ask(index, condition)

    def _without_null(self, column: str) -> _KeyRows | None:
        """Files without NULL have no such row: so `id > 3 OR id IS NULL` can be answered for them."""
        zone = self._context.state.zones([column]).columns.get(column)
        return None if zone is None else _KeyRows(np.empty(0, np.uint64), zone.no_null)

    def _both(self, found: Sequence[_KeyRows]) -> _KeyRows:
        result, *others = sorted(found, key=lambda each: (np.count_nonzero(~each.covered), len(each.locations)))
        for other in others:
            # If the two cover different files, either alone is still correct.
            if np.array_equal(result.covered, other.covered):
                both = np.intersect1d(result.locations, other.locations, assume_unique=True)
                result = _KeyRows(both, result.covered)
        return result

    def _either(self, found: Sequence[_KeyRows]) -> _KeyRows:
        covered = np.logical_and.reduce([each.covered for each in found])
        return _KeyRows(each_once(np.concatenate([each.locations for each in found])), covered)

    def _ask(self, index: Index, leaf: _Lookup) -> _KeyRows | None:
        type = self._context.snapshot.table.schema.field(index.column).type
        self._asked.add(index.name)
        if index.column in self._context.snapshot.refined:
            self._report(index, False, f"files not synced yet have {index.column} in a finer unit: sync rebuilds it")
            return None
        covered = self._context.state.covered(index)
        if not covered.any():
            self._report(index, False, "no file is indexed yet: sync builds it")
            return None
        try:
            locations = self._locations(index, leaf, type)
        except NeedlepointError as error:
            self._report(index, False, f"cannot be read, so it is passed over: {error}")
            return None
        if locations is None:
            return None
        missing = int(np.count_nonzero(~covered))
        note = f"{count(len(locations), 'row')} for {_describe(leaf)}"
        if missing:
            note += f"; {count(missing, 'file')} not indexed yet {'is' if missing == 1 else 'are'} scanned"
        self._report(index, True, note)
        return _KeyRows(each_once(locations), covered)

    def _locations(self, index: Index, leaf: _Lookup, type: pa.DataType) -> Locations | None:
        store, limit = self._context.stores(index), self._context.range_limit
        match leaf:
            case Compare(_, "=", value):
                found = store.find(_key_list([value], type), limit)
            case In(_, values):
                if len(values) > FEW_VALUES and self._scan_is_faster(len(values)):
                    self._report(index, False, f"{len(values):,} values: a scan is faster")
                    return None
                found = store.find(_key_list(values, type), max(limit, 4 * len(values)))
            case _:
                expected = self._expected_rows(leaf)
                if expected > MANY_TIMES * limit:
                    self._report(
                        index, False, f"{_describe(leaf)} matches far more than {limit} rows: a scan is faster"
                    )
                    return None
                if expected > MANY_ROWS and self._scan_is_faster(round(expected), is_range=True):
                    self._report(index, False, f"{_describe(leaf)} matches many rows: a scan is faster")
                    return None
                ranges = _key_ranges(leaf, type)
                if ranges is None:
                    self._report(index, False, f"{_describe(leaf)} is not a lookup or a range")
                    return None
                parts = [store.find_range(low, high, limit) for low, high in ranges]
                whole = [part for part in parts if part is not None]
                empty = [np.empty(0, np.uint64)]
                found = np.concatenate(whole or empty) if len(whole) == len(parts) else None
        if found is None:
            self._report(index, False, f"{_describe(leaf)} matches more than {limit} rows: a scan is faster")
        return found

    def _scan_is_faster(self, values: int, is_range: bool = False) -> bool:
        """Whether a lookup of this many values, with one page of each column for each, takes longer than a scan. Those
        of a range are next to each other in the index."""
        if self._context.always:
            return False
        context, snapshot = self._context, self._context.snapshot
        columns, all_columns = len(context.columns), max(1, len(snapshot.table.data_columns))
        pages = max(1, sum(file.pages or 1 for file in snapshot.files))
        size = sum(file.identity.size for file in snapshot.files)
        touched = min(values * columns, pages * columns // all_columns)
        bytes_touched = size * touched // pages
        costs, files = context.costs, min(values, len(snapshot.files))
        decoded = int(context.state.file_rows.sum()) * all_columns * touched // pages
        codec, texts, joint = self._file_like_others()
        read = Estimate(touched, touched, bytes_touched, decoded, decoded * texts, codec, joint)
        asking = values * costs.key * (ENTRY_OF_RANGE if is_range else 1)
        by_index = asking + costs.in_parallel(read.seconds(costs) + files * read.file_seconds(costs), touched)
        # A scan reads one column whole, and of the others only the pages with matching rows.
        rows, others = int(context.state.file_rows.sum()), (columns - 1) / columns
        scanned = Estimate(
            pages / all_columns + touched * others,
            0,
            size / all_columns + bytes_touched * others,
            rows + decoded * others,
            decoded * texts * others,
            codec,
        )
        groups = sum(file.row_groups or 1 for file in snapshot.files)
        listed, scans = 0 if is_range else values, len(snapshot.files)
        of_files = (scans - 1) * costs.scan_file + scans * listed * costs.scan_list
        by_scan = costs.scan + listed * costs.scan_value + shared(scanned.scan_seconds(costs) + of_files, groups)
        # If the index takes little, the rows that it names decide.
        return asking > LITTLE * by_scan and by_index > by_scan

    def _file_like_others(self) -> tuple[int, float, bool]:
        """The codec of a file, which part of the columns are texts, and whether it is read together with others."""
        context = self._context
        cached = next((each for file in context.snapshot.files if (each := context.cards.cached(file))), None)
        if cached is None:
            return ZSTD, 0.5, False
        size = cached.sizes(tuple(sorted(name for name in context.columns if cached.card.has(name))))
        is_joint = not (size.dictionaries or is_url(context.snapshot.table.location))
        return size.codec, size.texts / max(1, size.leaves), is_joint

    def _expected_rows(self, leaf: _Lookup) -> float:
        """How many rows a range matches, by the bounds of files: the values of a file are assumed to be evenly
        distributed between its bounds. 0 if that is not known."""
        context = self._context
        zone = context.state.zones([leaf.column]).columns.get(leaf.column)
        if not isinstance(leaf, _Range | Compare) or zone is None or zone.low.dtype == object:
            return 0.0
        low, high = (leaf.low, leaf.high) if isinstance(leaf, _Range) else _ends(leaf)
        lows, highs = zone.low.astype(np.float64), zone.high.astype(np.float64)
        first = lows if low is None or isinstance(low, bytes) else np.maximum(lows, float(low))
        last = highs if high is None or isinstance(high, bytes) else np.minimum(highs, float(high))
        with np.errstate(invalid="ignore", over="ignore"):  # infinite bounds give no estimate
            share = np.nan_to_num(np.clip((last - first) / np.maximum(highs - lows, 1), 0, 1) * zone.known)
        return float((share * context.state.file_rows).sum())

    def _report(self, index: Index, used: bool, why: str) -> None:
        self._uses.append(IndexUse(index.name, index.kind, index.shown_columns, used, why))

    def uses(self) -> tuple[IndexUse, ...]:
        """How each key index was used, or why not."""
        asked = {leaf.column for leaf in leaves(self._context.predicate)}
        for column, index in self._indexes.items():
            if index.name not in self._asked:
                why = "inside an OR with something not indexed, or a NOT" if column in asked else "not in the predicate"
                self._report(index, False, f"column {column} is {why}")
        return tuple(self._uses)


def _merged_ranges(conditions: Sequence[Condition]) -> Sequence[Condition | _Range]:
    """`id >= 3 AND id <= 9` is one range of the index, not two half-open ones."""
    if len(conditions) == 1:
        return conditions
    merged: list[Condition | _Range] = []
    ranges: dict[str, _Range] = {}
    for each in conditions:
        if isinstance(each, Compare) and each.operator in (">", ">=", "<", "<="):
            known = ranges.get(each.column, _Range(each.column, None, None))
            ranges[each.column] = known.narrowed(each)
        else:
            merged.append(each)
    return [*merged, *ranges.values()]


def _key_list(values: Sequence[Ordinal], type: pa.DataType) -> list[bytes]:
    width = key_bytes(type)
    keys: list[bytes] = sorted(set(np.ascontiguousarray(keys_of(values, type)).view(f"V{width}").ravel().tolist()))
    return keys


def _key_ranges(leaf: _Lookup, type: pa.DataType) -> list[tuple[bytes, bytes]] | None:
    match leaf:
        case StartsWith(_, prefix):
            low, high = prefix[:8].ljust(8, b"\x00"), prefix[:8].ljust(8, b"\xff")
            return [(low + b"\x00" * 8, high + b"\xff" * 8)]
        case _Range(_, lowest, highest):
            return range_of(lowest, highest, type)
        case Compare(_, ">" | ">=", value):
            return range_of(value, None, type)
        case Compare(_, "<" | "<=", value):
            return range_of(None, value, type)
    return None


def _ends(leaf: Compare) -> tuple[Ordinal | None, Ordinal | None]:
    return (leaf.value, None) if leaf.operator in (">", ">=") else (None, leaf.value)


def _describe(leaf: _Lookup) -> str:
    match leaf:
        case In(column, values):
            return f"{column} IN ({count(len(values), 'value')})"
        case Compare(column, operator, _):
            return f"{column} {operator} …"
        case StartsWith(column, _):
            return f"{column} LIKE '…%'"
        case _Range(column, _, _):
            return f"a range of {column}"
