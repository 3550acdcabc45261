"""Counts and extremes from indexes of values: distinct indexes of single files, and key indexes of a table.

A distinct index has how many rows have each value, so it answers for conditions and groups of its column. A key index
has an entry for each row that is not NULL: the entries of a range are its rows, if keys are the values themselves, as
those of integers, dates and timestamps are. Entries of files that are gone do not count. A store with runs that the
registry does not know decides nothing: it may have entries of other files with the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.access import Rows, each_once
from needlepoint.errors import NeedlepointError
from needlepoint.indexes import keeps_entries
from needlepoint.indexes.distinct import DistinctIndex
from needlepoint.indexes.key import files_of, range_of, values_of
from needlepoint.predicate import And, Between, Constant, Ordinal, Predicate, conjuncts
from needlepoint.printable import count
from needlepoint.query.aggregates.facts import FileFacts, Mask, Values, all_columns, part_names
from needlepoint.query.aggregates.ordinals import array_of, from_integers, intervals
from needlepoint.query.report.explain import IndexUse
from needlepoint.query.sql.table_aggregate import Function
from needlepoint.stores import Locations
from needlepoint.tables import Index

Positions = npt.NDArray[np.int64]
Found = tuple[IndexUse, Positions, pa.Table]
# How many entries at an end of a key index are looked at: some may be of files that are gone.
_ENTRIES_AT_AN_END = 256
# The lowest bytes of a location, which hold the number of the row.
_ROW_BITS, _ROW_NUMBER = np.uint64(32), np.uint64(0xFFFFFFFF)
# Entries of all files that are looked at to decide the pages of one; reading the pages takes as long as more.
MOST_IN_PAGES = 4_000


# Distinct indexes


def by_distinct(facts: FileFacts, positions: Positions) -> Iterator[Found]:
    """For each distinct index, the files that it decides, and their groups."""
    for index in facts.state.snapshot.indexes:
        if index.kind != "distinct":
            continue
        decided: list[int] = []
        grouped: list[pa.Table] = []
        found: list[_OfFile] = []
        for at in positions.tolist():
            parts = facts.undecided(at)
            chosen = _chosen(facts, index, at, parts) if _suits(facts, index.column, at, parts) else None
            if chosen is None:
                continue
            decided.append(at)
            if index.column in facts.aggregate.keys:
                grouped.append(_by_value(facts, index.column, at, *chosen))
            else:
                found.append(_of_file(facts, index.column, *chosen))
        if decided:
            why = f"counted {count(len(decided), 'file')}"
            use = IndexUse(index.name, index.kind, index.shown_columns, True, why)
            files = np.array(decided, np.int64)
            yield use, files, pa.concat_tables(grouped) if grouped else _in_one_group(facts, files, found)
            positions = np.setdiff1d(positions, decided)


def _suits(facts: FileFacts, column: str, at: int, parts: list[Predicate]) -> bool:
    """Whether the only column of which more than bounds must be known is this one."""
    if not facts.registered[at] or any(all_columns(part) != [column] for part in parts):
        return False
    if any(key != column and not facts.same(key)[at] for key in facts.aggregate.keys):
        return False
    return all(each.column == column or bool(facts.of_any_rows(each)[at]) for each in facts.aggregate.functions)


def _chosen(
    facts: FileFacts, index: Index, at: int, parts: list[Predicate]
) -> tuple[DistinctIndex, npt.NDArray[np.int64]] | None:
    """The index of a file, and how many rows that count have each of its values. Without counts, each value has one."""
    opened = _opened(facts, index, at)
    if opened is None or int(opened.edges[-1]) != int(facts.rows[at]):
        return None
    counted = any(function.name == "count" for function in facts.aggregate.functions)
    chosen = opened.exactly(And(tuple(parts)) if parts else Constant(True))
    if chosen is None or opened.family.form in ("float", "wide") or (counted and opened.row_counts is None):
        return None
    there = opened.starts[1:] > opened.starts[:-1]
    rows = there.astype(np.int64) if opened.row_counts is None else opened.row_counts
    return opened, np.where(chosen, rows, 0)


_OfFile = tuple[int, dict[Function, Ordinal | None]]
"""How many rows of a file count, and what functions of the index's column are."""


def _of_file(facts: FileFacts, column: str, opened: DistinctIndex, rows: npt.NDArray[np.int64]) -> _OfFile:
    known: dict[Function, Ordinal | None] = {}
    for function in facts.aggregate.functions:
        if function.column == column:
            known[function] = int(rows[:-1].sum()) if function.name == "count" else _extreme(opened, rows, function)
    return int(rows.sum()), known


def _in_one_group(facts: FileFacts, positions: Positions, found: list[_OfFile]) -> pa.Table:
    known = {}
    for function in found[0][1]:
        values = np.empty(len(found), object)
        values[:] = [results[function] for _, results in found]
        known[function] = Values(values, np.array([value is None for value in values], np.bool_))
    return facts.groups(positions, np.array([rows for rows, _ in found], np.int64), known)


def _extreme(opened: DistinctIndex, rows: npt.NDArray[np.int64], function: Function) -> Ordinal | None:
    """The least or greatest value that has rows."""
    places = np.flatnonzero(rows[:-2])
    found: Ordinal | None = None
    if len(places):
        found = opened.values[int(places[0 if function.name == "min" else -1])].as_py()
    return found


def _by_value(facts: FileFacts, column: str, at: int, opened: DistinctIndex, rows: npt.NDArray[np.int64]) -> pa.Table:
    """The groups of a file by the column of the index; so many rows have each of its values."""
    places = np.flatnonzero(rows[:-2])
    with_null = bool(rows[-1])
    type = facts.state.types[column]
    stored = opened.values.take(pa.array(places))
    values = stored.cast(type) if opened.family.is_binary else from_integers(stored, type)
    counts = rows[places]
    if with_null:
        values = pa.concat_arrays([values, pa.nulls(1, type)])
        counts = np.append(counts, rows[-1])
    same = np.full(len(counts), at)
    arrays = [
        values if key == column else _repeated(facts.value(key).at(same), facts.state.types[key])
        for key in facts.aggregate.keys
    ]
    for function in facts.aggregate.functions:
        if function.column != column:
            of_any = facts.results(function, same, counts)
            type = pa.int64() if function.name == "count" else facts.state.types[function.column or ""]
            arrays.append(_repeated(of_any, type))
        elif function.name == "count":
            arrays.append(pa.array(np.append(counts[:-1], 0) if with_null else counts, pa.int64()))
        else:
            arrays.append(values)
    return pa.Table.from_arrays(arrays, names=part_names(facts.aggregate))


def _repeated(values: Values, type: pa.DataType) -> pa.Array:
    return array_of(values.ordinals, values.nulls, type)


def _opened(facts: FileFacts, index: Index, at: int) -> DistinctIndex | None:
    state = facts.state
    file = state.snapshot.files[at]
    place = state.places(index).get(file.id or 0) if index.id in file.indexed else None
    if place is None:
        return None
    try:
        opened = facts.sources.file_indexes.get(state.snapshot.table, state.types, index, file, place)
    except (NeedlepointError, OSError):
        return None  # the query reads the file
    return opened if isinstance(opened, DistinctIndex) else None


# Key indexes


def _has_exact_keys(type: pa.DataType) -> bool:
    """Whether keys of this type are the values: not those of texts, which are hashed, nor of floats and decimals."""
    return bool(pa.types.is_integer(type) or pa.types.is_date32(type) or pa.types.is_timestamp(type))


def _key_index(facts: FileFacts, column: str | None) -> Index | None:
    """A key index of a column whose keys are its values."""
    for index in facts.state.snapshot.indexes:
        if (
            keeps_entries(index.kind)
            and index.columns == (column,)
            and _has_exact_keys(facts.state.types[index.column])
        ):
            return index
    return None


Extremes = Mapping[Function, tuple[int, Mask]]


def extremes(facts: FileFacts) -> Extremes:
    """The least and greatest values of columns in all rows of the files that a key index covers, and those files. Only
    for a query of all rows: other files may have a value that is less, or greater, still."""
    found = {}
    if not facts.aggregate.keys and facts.aggregate.predicate == Constant(True):
        for function in facts.aggregate.functions:
            index = _key_index(facts, function.column) if function.name != "count" else None
            value = None if index is None else _end(facts, index, last=function.name == "max")
            if index is not None and value is not None:
                found[function] = value, facts.state.covered(index)
    return found


def _end(facts: FileFacts, index: Index, last: bool) -> int | None:
    try:
        store = facts.sources.stores(index)
        if store.has_other_runs():
            return None
        entries = store.ends(_ENTRIES_AT_AN_END, last=last)
    except NeedlepointError:
        return None
    present = np.isin(files_of(entries), _covered_ids(facts, index))
    values = values_of(entries[present][:1, :-8], facts.state.types[index.column])
    return int(values[0]) if values else None


def _covered_ids(facts: FileFacts, index: Index) -> list[int]:
    files = facts.state.snapshot.files
    return [files[at].id or 0 for at in np.flatnonzero(facts.state.covered(index)).tolist()]


def uses_of_extremes(extremes: Extremes, facts: FileFacts) -> list[IndexUse]:
    indexes = {index.name: index for function in extremes if (index := _key_index(facts, function.column)) is not None}
    why = "its ends have the least and greatest values"
    return [IndexUse(each.name, each.kind, each.shown_columns, True, why) for each in indexes.values()]


def by_key(facts: FileFacts, positions: Positions) -> Found | None:
    """The files that the entries of a key index decide, and their groups."""
    predicate = facts.aggregate.predicate
    columns = sorted(
        {column for at in positions.tolist() for part in facts.undecided(at) for column in all_columns(part)}
    )
    for column in columns:
        index = _key_index(facts, column)
        if index is None:
            continue
        parts = [part for part in conjuncts(predicate) if all_columns(part) == [column]]
        ranges = intervals(And(tuple(parts)))
        known = facts.registered & facts.state.covered(index) & facts.grouped
        for function in facts.aggregate.functions:
            # NULLs have no entries, so each entry is a value of this column.
            known &= (function == Function("count", column)) | facts.of_any_rows(function)
        decided = [
            at
            for at in positions[known[positions]].tolist()
            if all(all_columns(part) == [column] for part in facts.undecided(at))
        ]
        if ranges is None or not decided or _estimate(facts, column, ranges) > facts.sources.range_limit:
            continue
        matched = _entries(facts, index, ranges)
        if matched is None:
            continue
        chosen = np.array(decided, np.int64)
        if (matched[chosen] > facts.rows[chosen]).any():
            continue  # entries that are not of these files
        why = f"counted {count(int(matched[chosen].sum()), 'entry')} of {count(len(chosen), 'file')}"
        use = IndexUse(index.name, index.kind, index.shown_columns, True, why)
        both = {Function("count", column): Values(matched[chosen], np.zeros(len(chosen), np.bool_))}
        return use, chosen, facts.groups(chosen, matched[chosen], both)
    return None


def _entries(facts: FileFacts, index: Index, ranges: list[tuple[int, int]]) -> npt.NDArray[np.int64] | None:
    """How many entries in these ranges each file has; None if there are too many."""
    found = _locations(facts, index, ranges, facts.sources.range_limit)
    if found is None:
        return None
    counts = np.zeros(len(facts.rows), np.int64)
    ids, numbers = np.unique(found >> _ROW_BITS, return_counts=True)
    for id, number in zip(ids.tolist(), numbers.tolist(), strict=True):
        position = facts.state.positions.get(int(id))
        if position is not None:  # else a replaced or removed file
            counts[position] = number
    return counts


def _locations(facts: FileFacts, index: Index, ranges: list[tuple[int, int]], limit: int) -> Locations | None:
    """The locations of the entries in ranges that are apart, each once; None if there are too many, if the index cannot
    be read, or if it may have others."""
    type = facts.state.types[index.column]
    parts: list[Locations] = [np.empty(0, np.uint64)]
    try:
        store = facts.sources.stores(index)
        if store.has_other_runs():
            return None
        for low, high in _within(ranges, type):
            for first, last in range_of(low, high, type):
                found = store.find_range(first, last, limit)
                if found is None:
                    return None
                limit -= len(found)
                parts.append(found)
    except NeedlepointError:
        return None
    return each_once(np.concatenate(parts))


def of_pages(facts: FileFacts, position: int, unread: Rows, hull: tuple[int, int]) -> tuple[Index, int] | None:
    """How many of these rows of a file count, by the entries of a key index. All their values are in the range
    `hull`, which is narrower than what the query asks for."""
    parts = facts.undecided(position)
    (column,) = {column for part in parts for column in all_columns(part)}
    index = _key_index(facts, column)
    ranges = intervals(And((*parts, Between(column, *hull))))
    if index is None or ranges is None or not facts.state.covered(index)[position]:
        return None
    found = _locations(facts, index, ranges, MOST_IN_PAGES)
    if found is None:
        return None
    file = facts.state.snapshot.files[position].id
    rows = (found[found >> _ROW_BITS == np.uint64(file or 0)] & _ROW_NUMBER).astype(np.int64)
    inside = np.searchsorted(unread.starts, rows, "right") > np.searchsorted(unread.stops, rows, "right")
    return index, int(np.count_nonzero(inside))


def _within(ranges: list[tuple[int, int]], type: pa.DataType) -> Iterator[tuple[int, int]]:
    """The ranges of integers that the type has: keys have no others, and searching would take the nearest."""
    least, greatest = (0, 2**64 - 1) if pa.types.is_unsigned_integer(type) else (-(2**63), 2**63 - 1)
    for low, high in ranges:
        if low <= greatest and high >= least:
            yield max(low, least), min(high, greatest)


def _estimate(facts: FileFacts, column: str, ranges: list[tuple[int, int]]) -> float:
    """About how many rows have a value in these ranges, if the values of a file are evenly spread between its bounds.
    Half of it: an estimate too high costs the index."""
    zone = facts.zone(column)
    if zone.low.dtype == object:
        return 0.0
    lows, highs = zone.low.astype(np.float64), zone.high.astype(np.float64)
    share = np.zeros(len(lows))
    for low, high in ranges:
        inside = np.minimum(highs, float(high)) - np.maximum(lows, float(low))
        share += np.clip((inside + 1) / (highs - lows + 1), 0, 1)
    return float((share * facts.rows * zone.known).sum()) / 2
