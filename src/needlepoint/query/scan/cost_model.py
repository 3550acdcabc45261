"""The cost model: page reads, row-group reads or the native scan, whichever is fastest.

    pages       open the file, fetch the pages that hold the rows, decode them here
    row groups  the same for all pages of the affected row groups: more bytes, fewer requests
    scan        DataFusion opens the file and reads what its own pruning leaves

Estimates use the card only: numbers of pages, bytes, requests and values, and the codec. They are multiplied by the
costs of the machine (costs.py). What all three have in common, such as the rows of the result, is left out. Numbers are
arrays over files, since a lookup may touch a thousand of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from needlepoint.access import Rows
from needlepoint.parquet import CachedCard
from needlepoint.parquet.format import Int64Array
from needlepoint.predicate import Leaf, Like, TextMatch
from needlepoint.query.scan.costs import ENTRY_BYTES, Costs

Numbers = Any
"""A number, or an array of one for each file."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The work of reading some rows of some columns of a file, or of several. `texts` are those of the `values` that
    have no fixed size; entries of dictionaries count as values. `codec` is Parquet's number. Files that are `joint` are
    read together."""

    pages: Numbers
    requests: Numbers
    bytes: Numbers
    values: Numbers
    texts: Numbers = 0.0
    codec: Numbers = 0
    joint: Numbers = False

    def seconds(self, costs: Costs) -> Numbers:
        """By page."""
        page, byte = _by_codec(costs.page_of, self.codec), _by_codec(costs.byte_of, self.codec)
        if np.any(self.joint):
            page = np.where(self.joint, _by_codec(costs.joint_page_of, self.codec), page)
        decoding = self.pages * page + self.values * costs.value + self.texts * costs.text
        return self.file_seconds(costs) + self.requests * costs.request + decoding + self.bytes * byte

    def file_seconds(self, costs: Costs) -> Numbers:
        """What reading a file takes before its pages."""
        return np.where(self.joint, costs.joint_file, costs.file) if np.any(self.joint) else costs.file

    def scan_seconds(self, costs: Costs) -> Numbers:
        """By DataFusion."""
        decoding = self.pages * costs.scan_page + self.values * costs.scan_cell + self.texts * costs.scan_text
        return costs.scan_file + decoding + self.bytes * _by_codec(costs.scan_byte_of, self.codec)

    def with_other(self, other: Estimate) -> Estimate:
        """Both, of other columns of the same files."""
        return Estimate(
            self.pages + other.pages,
            self.requests + other.requests,
            self.bytes + other.bytes,
            self.values + other.values,
            self.texts + other.texts,
            np.where(self.codec == 0, other.codec, self.codec),
            np.logical_and(self.joint, other.joint),
        )

    def where(self, chosen: Mask, other: Estimate) -> Estimate:
        """This one for the chosen files, and the other for the rest."""
        if chosen.all():
            return self
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return Estimate(*(np.where(chosen, own, others) for own, others in pairs))


def _by_codec(cost: Callable[[int], float], codec: Numbers) -> Numbers:
    """What something costs for each codec."""
    if not isinstance(codec, np.ndarray):
        return cost(codec)
    kinds = set(codec.tolist())
    if len(kinds) == 1:
        return cost(kinds.pop())
    return np.select([codec == kind for kind in kinds], [cost(kind) for kind in kinds])


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Several files: the number of their rows, and sums over those of some columns that each has (ColumnSizes)."""

    num_rows: Numbers
    columns: Numbers
    leaves: Numbers
    chunks: Numbers
    pages: Numbers
    bytes: Numbers
    dictionaries: Numbers
    texts: Numbers
    text_dictionaries: Numbers
    codec: Int64Array = field(kw_only=True)
    indexed: Mask = field(kw_only=True)

    @classmethod
    def of(cls, files: Sequence[CachedCard], columns: Sequence[str]) -> FileSizes:
        asked = tuple(columns)
        lines = np.array([each.numbers(asked) for each in files], np.int64).reshape(-1, len(fields(cls)))
        *sums, codec, indexed = lines.T
        return cls(*np.array(sums, np.float64), codec=codec, indexed=indexed > 0)

    def by_pages(self, rows: Numbers, ranges: Numbers, jointly: bool = False) -> Estimate:
        """The estimate for so many rows in so many ranges anywhere in each file. It assumes pages of equal size, so it
        takes only a few sums. Where the files are read `jointly`, those are whose columns have one leaf and no
        dictionary."""
        leaves = np.maximum(self.leaves, 1)
        per_column = np.maximum(self.pages, 1) / leaves
        # Each range starts inside a page and covers its share of the others; no page is read twice.
        begun = per_column * -np.expm1(-ranges / per_column)
        share = rows / np.maximum(self.num_rows, 1)
        pages = np.minimum(self.pages, self.leaves * (begun + share * per_column))
        chunks = np.minimum(self.chunks, self.leaves * ranges)
        read = pages / np.maximum(self.pages, 1)
        opened = chunks / np.maximum(self.chunks, 1) * self.dictionaries
        opened_texts = chunks / np.maximum(self.chunks, 1) * self.text_dictionaries
        return Estimate(
            pages,
            np.minimum(pages, self.leaves * ranges) + np.where(self.dictionaries > 0, chunks, 0),
            self.bytes * read + opened,
            self.num_rows * self.leaves * read + opened / ENTRY_BYTES,
            self.num_rows * self.texts * read + opened_texts / ENTRY_BYTES,
            self.codec,
            (self.dictionaries == 0) & (self.leaves == self.columns) if jointly else False,
        )

    def whole(self, share: Numbers = 1.0, more_values: Numbers = 0.0) -> Estimate:
        """The estimate for whole row groups: all of them, or this share, and so many values more."""
        return Estimate(
            self.pages * share,
            self.chunks * share,
            (self.bytes + self.dictionaries) * share,
            (self.num_rows * self.leaves + self.dictionaries / ENTRY_BYTES) * share + more_values,
            (self.num_rows * self.texts + self.text_dictionaries / ENTRY_BYTES) * share,
            self.codec,
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
    files: Sequence[CachedCard],
    columns: Sequence[str],
    rows: tuple[Numbers, Numbers],
    bounded: tuple[Mask, Numbers, Numbers],
    native: NativeFilter,
    costs: Costs,
) -> Numbers:
    """The time of a native scan of each file for so many rows in so many ranges. Rows left by bounds (`bounded`: in
    which files, rows and ranges) it finds by the same bounds, if the file has a page index. Of these, or of all, it
    reads the columns that it filters by."""
    filtered = FileSizes.of(files, [name for name in columns if name in native.filtered])
    rest = FileSizes.of(files, [name for name in columns if name not in native.filtered])
    of_bounds = bounded[1:]
    has_bounds = bounded[0] & filtered.indexed & native.pushdown
    first = filtered.by_pages(*of_bounds).where(has_bounds, filtered.whole())
    if native.pushdown and native.late:
        second = rest.by_pages(*rows)
    else:
        second = rest.by_pages(*of_bounds).where(has_bounds, rest.whole())
    evaluated: Numbers = np.where(has_bounds, of_bounds[0], filtered.num_rows)
    conditions = evaluated * native.row_seconds + native.values * costs.scan_list
    return first.with_other(second).scan_seconds(costs) + conditions
