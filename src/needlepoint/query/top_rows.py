"""ORDER BY a column with LIMIT, from the end of a key index, or by the bounds of files.

    SELECT … FROM product ORDER BY score DESC LIMIT 10

The last 10 entries of the index on score begin with some value, say 977. If the query, over rows with `score >= 977`
only, has a result of 10 rows, these are the first 10 of all rows: every other row comes after them. So this condition
is added to what runs; pages and files that are read have other rows too. Where conditions leave fewer, the query runs
again with more rows of the index, and in the end over all. Without an index, the bounds of files give such a value:
files that have 10 rows, all of them at least that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from needlepoint.errors import NeedlepointError
from needlepoint.indexes.key import files_of, values_of
from needlepoint.predicate import Between, Compare, In, IsNotNull, Predicate, StartsWith, conjuncts
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.sql.top_rows import TopRows
from needlepoint.stores import KeyStore
from needlepoint.tables import Index

# Of a smaller table, all rows are read at once.
LEAST_ROWS = 10_000
# How many times the wanted rows are read first where there are conditions, and then, if these leave too few.
ATTEMPTS = (4, 64)
MOST_ENTRIES = 20_000
MOST_WANTED = 1_000
_EXCLUDES_NULL = Compare | In | Between | StartsWith | IsNotNull


def thresholds(
    top: TopRows,
    state: TableState,
    predicate: Predicate,
    store: Callable[[Index], KeyStore],
    least_rows: int = LEAST_ROWS,
) -> Iterator[Compare]:
    """Conditions that the first rows may meet, the strictest first."""
    rows = int(state.file_rows.sum())
    if (
        top.wanted > MOST_WANTED
        or rows < least_rows
        or (top.nulls_first and not _excludes_null(top.column, state, predicate))
    ):
        return
    index = state.key_indexes.get(top.column)
    for times in ATTEMPTS if top.filtered else (1,):
        wanted = top.wanted * times
        if wanted > min(MOST_ENTRIES, rows // 2):
            return
        end = _by_bounds(top, state, wanted) if index is None else _by_index(top, state, store, index, wanted)
        if end is None:
            return
        yield Compare(top.column, ">=" if top.descending else "<=", end)


def is_worth_more(rows: int, full: int) -> bool:
    """Whether the next attempt probably has a full result, after one with so many rows."""
    return rows * ATTEMPTS[1] > 2 * full * ATTEMPTS[0]


def _excludes_null(column: str, state: TableState, predicate: Predicate) -> bool:
    """Whether a row with NULL in the column cannot be in the result."""
    zone = state.zones([column]).columns.get(column)
    return (zone is not None and bool(zone.no_null.all())) or any(
        isinstance(each, _EXCLUDES_NULL) and each.column == column for each in conjuncts(predicate)
    )


def _by_index(
    top: TopRows, state: TableState, store: Callable[[Index], KeyStore], index: Index, wanted: int
) -> int | None:
    """The value of the last of `wanted` entries from the end. Entries of files that are gone do not count."""
    type = state.types[top.column]
    try:
        entries = store(index).ends(wanted + wanted // 2 + 16, last=top.descending)
    except NeedlepointError:
        return None  # the pruning steps report the problem
    there = entries[np.isin(files_of(entries), list(state.positions))]
    values = values_of(there[wanted - 1 : wanted, :-8], type)
    return values[0] if values else None


def _by_bounds(top: TopRows, state: TableState, wanted: int) -> int | None:
    """A value that all values of some files reach, which have `wanted` rows together."""
    zone = state.zones([top.column]).columns.get(top.column)
    if zone is None or not zone.known.all() or not np.issubdtype(zone.low.dtype, np.integer):
        return None
    ends = zone.low if top.descending else zone.high
    order = np.argsort(ends, kind="stable")[:: -1 if top.descending else 1]
    enough = int(np.searchsorted(np.cumsum(state.file_rows[order]), wanted))
    return int(ends[order[enough]]) if enough < len(order) else None
