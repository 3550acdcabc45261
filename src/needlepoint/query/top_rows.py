"""ORDER BY a column with LIMIT, from the end of a key index, or by the bounds of files and pages.

    SELECT … FROM product ORDER BY score DESC LIMIT 10

The last 10 entries of the index on score begin with some value, say 977. If the query, over rows with `score >= 977`
only, has a result of 10 rows, these are the first 10 of all rows: every other row comes after them. So this condition
is added to what runs; pages and files that are read have other rows too. Where conditions leave fewer, the query runs
again with more rows of the index, and in the end over all. Without an index, bounds give such a value: those of pages
that have 10 rows, all of them at least that.

So a value need not be exact, and files that the index does not cover may have better rows: they are read too. Keys of
texts have the first 8 bytes, and the condition is for all texts that begin so. Where NULL comes first, rows with NULL
are read as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.errors import NeedlepointError
from needlepoint.indexes import ZoneMap, keeps_entries
from needlepoint.indexes.key import files_of, first_bytes_of, values_of
from needlepoint.predicate import Between, Compare, In, IsNotNull, IsNull, Or, Ordinal, Predicate, StartsWith, conjuncts
from needlepoint.query.cache.card_cache import CardCache
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.sql.top_rows import RankedRows, TopRows
from needlepoint.stores import KeyStore
from needlepoint.tables import Index

# Where there are conditions: how many times the wanted rows are read first and at most, how often, and how many times
# the rows that are needed if as many pass as in the attempt before.
FIRST_TIMES, MOST_TIMES, MOST_ATTEMPTS, MARGIN = 4, 64, 3, 2
MOST_ENTRIES = 20_000
MOST_WANTED = 1_000
# Files whose pages are compared, and how many pages of them.
MOST_FILES, MOST_PAGES = 8, 50_000
_EXCLUDES_NULL = Compare | In | Between | StartsWith | IsNotNull
_LAST_LETTER, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class TopSource:
    """A table of which the first rows are wanted, and where their values are found."""

    state: TableState
    predicate: Predicate
    cards: CardCache
    store: Callable[[Index], KeyStore]


@dataclass(slots=True)
class Attempts:
    """How many rows to try with, the first in the order, until as many as `wanted` pass the other conditions. The
    result then has `full` rows: those after OFFSET. `passed` is how many of the last attempt did; 0, if that is not
    known, ends the attempts.

    >>> attempts = Attempts(wanted=10, full=10, filtered=True)
    >>> for rows in attempts:
    ...     print(rows, attempts.is_enough(rows // 20))
    40 False
    400 True
    """

    wanted: int
    full: int
    filtered: bool
    passed: int = 0

    @classmethod
    def of(cls, top: TopRows | RankedRows) -> Attempts:
        return cls(top.wanted, top.rows, top.filtered)

    def __iter__(self) -> Iterator[int]:
        rows = self.wanted * (FIRST_TIMES if self.filtered else 1)
        for _ in range(MOST_ATTEMPTS):
            yield rows
            if not self.filtered or not 0 < self.passed < self.wanted:
                return
            rows = math.ceil(MARGIN * self.wanted * rows / self.passed)
            if rows > MOST_TIMES * self.wanted:
                return

    def is_enough(self, rows: int) -> bool:
        """Whether a result of so many rows, that of the last attempt, is the whole."""
        self.passed = rows + self.wanted - self.full if rows else 0
        return rows >= self.full


def thresholds(top: TopRows, source: TopSource, attempts: Attempts, least_rows: int) -> Iterator[Predicate]:
    """Conditions that the first rows may meet, the strictest first."""
    state, rows = source.state, int(source.state.file_rows.sum())
    if top.wanted > MOST_WANTED or rows < least_rows:
        return
    may_be_null = top.nulls_first and not _excludes_null(top.column, state, source.predicate)
    index = _index_of(top.column, state)
    for wanted in attempts:
        if wanted > min(MOST_ENTRIES, rows // 2):
            return
        end = None if index is None else _by_index(top, source, index, wanted)
        end = end or _by_bounds(top, source, wanted)
        if end is None:
            return
        yield Or((end, IsNull(top.column))) if may_be_null else end


def described(condition: Predicate) -> str:
    """
    >>> described(Or((Compare("score", ">=", 977), IsNull("score"))))
    'score >= … or NULL'
    """
    match condition:
        case Compare(column, operator, _):
            return f"{column} {operator} …"
        case Or((Compare() as end, IsNull())):
            return f"{described(end)} or NULL"
    raise ValueError(condition)


def _excludes_null(column: str, state: TableState, predicate: Predicate) -> bool:
    """Whether a row with NULL in the column cannot be in the result."""
    zone = state.zones([column]).columns.get(column)
    return (zone is not None and bool(zone.no_null.all())) or any(
        isinstance(each, _EXCLUDES_NULL) and each.column == column for each in conjuncts(predicate)
    )


def _index_of(column: str, state: TableState) -> Index | None:
    """A key index on the column, if it covers half of the files."""
    if column in state.snapshot.refined:
        return None
    indexes = (index for index in state.snapshot.indexes if keeps_entries(index.kind) and index.column == column)
    return next((index for index in indexes if 2 * np.count_nonzero(state.covered(index)) > len(state.file_rows)), None)


def _by_index(top: TopRows, source: TopSource, index: Index, wanted: int) -> Compare | None:
    """The value of the last of `wanted` entries from the end. Entries of files that are gone do not count."""
    type = source.state.types[top.column]
    try:
        entries = source.store(index).ends(wanted + wanted // 2 + 16, last=top.descending)
    except NeedlepointError:
        return None  # the pruning steps report the problem
    there = entries[np.isin(files_of(entries), list(source.state.positions))]
    keys = there[wanted - 1 : wanted, :-8]
    if not len(keys):
        return None
    if (values := values_of(keys, type)) is not None:
        return _end(top, values[0], type)
    return _end(top, first_bytes_of(keys[0]), type, is_prefix=True) if _is_text(type) else None


def _by_bounds(top: TopRows, source: TopSource, wanted: int) -> Compare | None:
    """A value that all values of some files or pages reach, which have `wanted` rows together."""
    state, type = source.state, source.state.types[top.column]
    zone = state.zones([top.column]).columns.get(top.column)
    if zone is None or not zone.known.any():
        return None
    known = np.flatnonzero(zone.known)
    better = max if top.descending else min
    ends = [_enough((zone.low if top.descending else zone.high)[known], state.file_rows[known], top, wanted)]
    first = _ordered((zone.high if top.descending else zone.low)[known], top)[:MOST_FILES]
    files = [state.snapshot.files[at] for at in known[first]]
    if top.column not in state.snapshot.table.partitions and sum(file.pages or 0 for file in files) <= MOST_PAGES:
        maps = [each for each in source.cards.zone_maps(files, top.column, type) if each is not None]
        ends.append(_enough(*_pages(maps, top), top, wanted))
    found = [end for end in ends if end is not None]
    return _end(top, better(found), type) if found else None


def _pages(maps: Sequence[ZoneMap], top: TopRows) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The bounds of pages whose bounds are known, and their rows."""
    ends = [(each.pages.low if top.descending else each.pages.high)[each.pages.known] for each in maps]
    rows = [np.diff(each.page_rows)[each.pages.known] for each in maps]
    return np.concatenate(ends or [np.empty(0, object)]), np.concatenate(rows or [np.empty(0, np.int64)])


def _enough(ends: npt.NDArray[Any], rows: npt.NDArray[np.int64], top: TopRows, wanted: int) -> Ordinal | None:
    """The end of the set of rows with which the sets before have `wanted` rows."""
    order = _ordered(ends, top)
    enough = int(np.searchsorted(np.cumsum(rows[order]), wanted))
    if enough >= len(order):
        return None
    end: Ordinal = ends[order[enough]]
    return end.item() if isinstance(end, np.generic) else end


def _ordered(ends: npt.NDArray[Any], top: TopRows) -> npt.NDArray[np.int64]:
    return np.argsort(ends, kind="stable")[:: -1 if top.descending else 1]


def _end(top: TopRows, value: Ordinal, type: pa.DataType, is_prefix: bool = False) -> Compare | None:
    """The condition that all rows up to this value meet, in the order of DataFusion. None where it has none."""
    operator = ">=" if top.descending else "<="
    if _is_text(type) and isinstance(value, bytes):
        return _text_end(top, value, type, is_prefix)
    if pa.types.is_float32(type) or pa.types.is_float64(type):
        if math.isnan(value := float(value)):
            return Compare(top.column, ">=", math.inf) if top.descending else None  # NaN is above all numbers
        # DataFusion sorts -0.0 before 0.0, and does not always compare them so.
        return Compare(top.column, operator, math.copysign(0.0, -1 if top.descending else 1) if value == 0 else value)
    plain = pa.types.is_integer(type) or pa.types.is_temporal(type) or pa.types.is_decimal128(type)
    return Compare(top.column, operator, value) if plain and isinstance(value, int) else None


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_binary(type))


def _text_end(top: TopRows, value: bytes, type: pa.DataType, is_prefix: bool) -> Compare | None:
    """Texts up to this one, or up to those that begin with it. A text that is cut inside a letter, as bounds and
    prefixes may be, loses it."""
    whole = _whole_letters(value) if pa.types.is_string(type) else value
    if top.descending:
        return Compare(top.column, ">=", whole) if whole else None
    if whole == value and not is_prefix:
        return Compare(top.column, "<=", value)
    after = _after(whole.decode()) if pa.types.is_string(type) else _after_bytes(whole)
    return None if after is None else Compare(top.column, "<", after)


def _whole_letters(value: bytes) -> bytes:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return value[: error.start]
    return value


def _after(prefix: str) -> bytes | None:
    """The least text after all that begin with this one.

    >>> _after("ab"), _after("a" + chr(0x10FFFF)), _after(chr(0xD7FF)) == chr(0xE000).encode(), _after("")
    (b'ac', b'b', True, None)
    """
    kept = prefix.rstrip(chr(_LAST_LETTER))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return (kept[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)).encode()


def _after_bytes(prefix: bytes) -> bytes | None:
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
