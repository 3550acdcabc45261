"""The cost model: page reads, row-group reads or the native scan, whichever is fastest.

    pages       open the file, fetch the pages that hold the rows, decode them here
    row groups  the same for all pages of the affected row groups: more bytes, fewer requests
    scan        DataFusion opens the file and reads what its own pruning leaves

Estimates use the card only: numbers of pages, bytes, requests and values, and the codec. They are multiplied by the
costs of the machine (costs.py). What all three have in common, such as the rows of the result, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from needlepoint.access import Rows
from needlepoint.parquet import CachedCard
from needlepoint.parquet.format import Int64Array
from needlepoint.predicate import Leaf, Like, TextMatch
from needlepoint.query.scan.costs import ENTRY_BYTES, Costs


@dataclass(frozen=True, slots=True)
class Estimate:
    """The work of reading some rows of some columns of a file. `texts` are those of the `values` that have no fixed
    size; entries of dictionaries count as values. `codec` is Parquet's number."""

    pages: float
    requests: float
    bytes: float
    values: float
    texts: float = 0.0
    codec: int = 0

    def seconds(self, costs: Costs) -> float:
        """By page."""
        decoding = self.pages * costs.page_of(self.codec) + self.values * costs.value + self.texts * costs.text
        return costs.file + self.requests * costs.request + decoding + self.bytes * costs.byte_of(self.codec)

    def scan_seconds(self, costs: Costs) -> float:
        """By DataFusion."""
        decoding = self.pages * costs.scan_page + self.values * costs.scan_cell + self.texts * costs.scan_text
        return costs.scan_file + decoding + self.bytes * costs.scan_byte_of(self.codec)

    def with_other(self, other: Estimate) -> Estimate:
        """Both, of other columns of the same file."""
        return Estimate(
            self.pages + other.pages,
            self.requests + other.requests,
            self.bytes + other.bytes,
            self.values + other.values,
            self.texts + other.texts,
            self.codec or other.codec,
        )


_NOTHING = Estimate(0, 0, 0, 0)


def by_pages(cached: CachedCard, columns: Sequence[str], rows: Rows) -> Estimate:
    """The estimate for row ranges anywhere in the file. It assumes pages of equal size, so it takes only a few sums."""
    size = cached.sizes(tuple(columns))
    if not size.pages:
        return _NOTHING
    ranges, share = len(rows.starts), rows.count / max(1, cached.card.num_rows)
    per_column = size.pages / size.leaves
    # Each range starts inside a page and covers its share of the others; no page is read twice.
    begun = per_column * -math.expm1(-ranges / per_column)
    pages = min(size.pages, size.leaves * (begun + share * per_column))
    chunks = min(size.chunks, size.leaves * ranges)
    read, opened = pages / size.pages, chunks / size.chunks
    requests = min(pages, size.leaves * ranges) + (chunks if size.dictionaries else 0)
    return Estimate(
        pages,
        requests,
        size.bytes * read + size.dictionaries * opened,
        cached.card.num_rows * size.leaves * read + size.dictionaries * opened / ENTRY_BYTES,
        cached.card.num_rows * size.texts * read + size.text_dictionaries * opened / ENTRY_BYTES,
        size.codec,
    )


def whole(cached: CachedCard, columns: Sequence[str], share: float = 1.0, more_values: float = 0.0) -> Estimate:
    """The estimate for whole row groups: all of them, or this share, and so many values more."""
    size = cached.sizes(tuple(columns))
    return Estimate(
        size.pages * share,
        size.chunks * share,
        (size.bytes + size.dictionaries) * share,
        (cached.card.num_rows * size.leaves + size.dictionaries / ENTRY_BYTES) * share + more_values,
        (cached.card.num_rows * size.texts + size.text_dictionaries / ENTRY_BYTES) * share,
        size.codec,
    )


def overlaps(first_row: Int64Array, rows: Rows) -> Int64Array:
    """How many row ranges overlap each page, or row group, given the first row of each.

    >>> overlaps(np.array([0, 100, 200, 300]), Rows(np.array([120, 150]), np.array([130, 305]))).tolist()
    [0, 2, 1, 1]
    """
    firsts = np.searchsorted(first_row, rows.starts, side="right") - 1
    lasts = np.searchsorted(first_row, rows.stops - 1, side="right")
    count = len(first_row) + 1
    return np.cumsum(np.bincount(firsts, minlength=count) - np.bincount(lasts, minlength=count))[:-1]


def row_groups_of(cached: CachedCard, rows: Rows) -> Int64Array:
    """The numbers of the row groups that hold any of `rows`, of which there are some."""
    starts = cached.card.row_group_rows[:-1]
    return np.flatnonzero(overlaps(starts, rows)) if len(starts) != 1 else np.zeros(1, np.int64)


def by_row_groups(cached: CachedCard, columns: Sequence[str], rows: Rows) -> tuple[Rows, Estimate]:
    """The rows of all row groups that hold any of `rows`, and the work of reading them: values beyond those rows count
    twice, since the predicate is evaluated on them."""
    card, groups = cached.card, row_groups_of(cached, rows)
    widened = Rows.joined(card.row_group_rows[groups], card.row_group_rows[groups + 1])
    also = (widened.count - rows.count) * cached.sizes(tuple(columns)).leaves
    return widened, whole(cached, columns, len(groups) / max(1, card.num_row_groups), also)


@dataclass(frozen=True, slots=True)
class NativeFilter:
    """How DataFusion filters: whether it leaves out pages by their bounds, by which columns, and with how many values
    in the longest IN: it plans each value, and makes a set of them for every file. `late`: it decodes the other columns
    only where rows pass (filter_choice.py). `row_seconds`: what evaluating the conditions on a row takes beyond
    decoding."""

    pushdown: bool
    filtered: frozenset[str]
    values: int = 0
    late: bool = True
    row_seconds: float = 0.0


def row_seconds(conditions: Iterable[Leaf], costs: Costs) -> float:
    """The time of evaluating conditions on a row. Comparisons take next to nothing."""
    seconds = 0.0
    for leaf in conditions:
        if isinstance(leaf, Like):
            seconds += costs.like
        elif isinstance(leaf, TextMatch):
            seconds += costs.match
    return seconds


def scan_seconds(
    cached: CachedCard, columns: Sequence[str], rows: Rows, bounded: Rows | None, native: NativeFilter, costs: Costs
) -> float:
    """The time of a native scan of the file for these rows. Rows left by bounds (`bounded`) it finds by the same
    bounds, if the file has a page index. Of these, or of all, it reads the columns that it filters by."""
    filtered = [name for name in columns if name in native.filtered]
    rest = [name for name in columns if name not in native.filtered]
    if not native.pushdown or not all(_has_page_index(cached, name) for name in filtered):
        bounded = None
    first = whole(cached, filtered) if bounded is None else by_pages(cached, filtered, bounded)
    passed = rows if native.pushdown and native.late else bounded
    second = whole(cached, rest) if passed is None else by_pages(cached, rest, passed)
    evaluated = cached.card.num_rows if bounded is None else bounded.count
    conditions = evaluated * native.row_seconds + native.values * costs.scan_list
    return first.with_other(second).scan_seconds(costs) + conditions


def _has_page_index(cached: CachedCard, column: str) -> bool:
    return cached.sizes((column,)).indexed
