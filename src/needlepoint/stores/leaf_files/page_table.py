"""Decoded pages as lines of a table, and binary searches in many of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from needlepoint.stores.base import Locations
from needlepoint.stores.leaf_files.directory import Numbers
from needlepoint.stores.leaf_files.keys import Columns, Keys

FEW = 6  # searches that are faster one by one


class DecodedPages(NamedTuple):
    """A page a line. What is behind the entries of a page that is not full means nothing."""

    keys: Keys
    locations: Locations


class Searches(NamedTuple):
    """In each of these lines of a table, which has so many entries, the keys from `low` to `high`, both inclusive."""

    lines: Numbers
    rows: Numbers
    low: Keys
    high: Keys


def to_table(entries: Columns, rows: Numbers, width: int) -> DecodedPages:
    """Pages that follow each other, with so many rows each, as lines of `width` entries.

    >>> columns = Columns(np.arange(5), np.arange(5, dtype=np.uint64))
    >>> to_table(columns, np.array([2, 1, 2]), 2).keys[[0, 2]].tolist()
    [[0, 1], [3, 4]]
    """
    short = (rows != width).nonzero()[0].tolist()
    return DecodedPages(_to_lines(entries.keys, rows, width, short), _to_lines(entries.locations, rows, width, short))


def _to_lines(values: Keys, rows: Numbers, width: int, short: Sequence[int]) -> Keys:
    if not short:
        return values.reshape(len(rows), width)
    lines = np.zeros((len(rows), width), values.dtype)
    position, line = 0, 0
    for number in (*short, len(rows)):
        behind = position + (number - line) * width
        lines[line:number] = values[position:behind].reshape(number - line, width)
        if number < len(rows):
            count = int(rows[number])
            lines[number, :count] = values[behind : behind + count]
            behind += count
        position, line = behind, number + 1
    return lines


def search(table: DecodedPages, wanted: Searches) -> tuple[Columns, Numbers]:
    """All entries that the searches find, one search after the other, and how many each finds."""
    start, end = _bounds(table.keys, wanted)
    lengths = end - start
    total = int(lengths.sum())
    if len(lengths) == 1:
        line = slice(int(start[0]), int(end[0]))
        found = Columns(table.keys[wanted.lines[0], line].copy(), table.locations[wanted.lines[0], line].copy())
        return found, lengths
    lines = np.repeat(wanted.lines, lengths)
    places = np.repeat(start - (np.cumsum(lengths) - lengths), lengths) + np.arange(total)
    return Columns(table.keys[lines, places], table.locations[lines, places]), lengths


def _bounds(keys: Keys, wanted: Searches) -> tuple[Numbers, Numbers]:
    """Where each search begins to find something in its line, and where it ends."""
    lines, rows, low, high = wanted
    if len(lines) <= FEW:
        found = [
            (
                np.searchsorted(keys[line, :count], first, side="left"),
                np.searchsorted(keys[line, :count], last, "right"),
            )
            for line, count, first, last in zip(lines.tolist(), rows.tolist(), low, high, strict=True)
        ]
        return np.array([first for first, _ in found], np.int64), np.array([last for _, last in found], np.int64)
    start = _bisect(keys, lines, rows, low, "left")
    if low is not high:
        return start, _bisect(keys, lines, rows, high, "right")
    # A key that is looked for is mostly there once, or not at all.
    end = start + _has(keys, lines, rows, low, start)
    more = np.flatnonzero(_has(keys, lines, rows, low, end) & (end > start))
    if len(more):
        end[more] = _bisect(keys, lines[more], rows[more], low[more], "right")
    return start, end


def _has(keys: Keys, lines: Numbers, rows: Numbers, wanted: Keys, places: Numbers) -> npt.NDArray[np.bool_]:
    """Whether the key is at this place of the line."""
    found: npt.NDArray[np.bool_] = keys[lines, np.minimum(places, keys.shape[1] - 1)] == wanted
    return found & (places < rows)


def _bisect(keys: Keys, lines: Numbers, rows: Numbers, wanted: Keys, side: Literal["left", "right"]) -> Numbers:
    """As `searchsorted`, of one key in each line."""
    compare = np.less if side == "left" else np.less_equal
    first, last = np.zeros(len(lines), np.int64), rows.astype(np.int64)
    most = keys.shape[1] - 1
    for _ in range(int(rows.max()).bit_length()):
        middle = (first + last) >> 1
        smaller = compare(keys[lines, np.minimum(middle, most)], wanted) & (first < last)
        first, last = np.where(smaller, middle + 1, first), np.where(smaller, last, middle)
    return first
