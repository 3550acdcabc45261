"""Find entries in leaf files: which pages can have them, all of these decoded at once, and binary searches in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from needlepoint.objects import concurrently
from needlepoint.stores.base import Locations
from needlepoint.stores.leaf_files.directory import COLUMNS, Numbers
from needlepoint.stores.leaf_files.keys import Columns, Keys, different, merged
from needlepoint.stores.leaf_files.leaf_reader import LeafReader
from needlepoint.stores.leaf_files.page_memory import KeptPages
from needlepoint.stores.leaf_files.pages import PagesOfColumns, decode


class LeafPortion(NamedTuple):
    """Pages of a leaf, ascending, and the ranges `low` to `high` of keys, both inclusive, to look for in them."""

    reader: LeafReader
    pages: Numbers
    low: Keys
    high: Keys


def find_keys(readers: Sequence[LeafReader], keys: Keys, limit: int) -> Locations | None:
    """The locations of these keys, which ascend; None if there are more than `limit`."""
    portions: list[LeafPortion] = []
    for reader in readers:
        first, end = np.searchsorted(keys, reader.first, side="left"), np.searchsorted(keys, reader.last, side="right")
        wanted = keys[first[0] : end[0]]
        wanted = wanted[reader.directory.admits(wanted)]
        if not _add_portion(portions, reader, wanted, wanted, limit):
            return None
    return _locations(portions, limit)


def find_between(readers: Sequence[LeafReader], low: Keys, high: Keys, limit: int) -> Locations | None:
    """The locations of all keys from `low` to `high`, each an array of one; None if there are more than `limit`."""
    portions: list[LeafPortion] = []
    for reader in readers:
        if not _add_portion(portions, reader, low, high, limit):
            return None
    return _locations(portions, limit)


def first_entries(readers: Sequence[LeafReader], width: int, count: int, last: bool) -> Columns:
    """The first or the last `count` entries, ascending."""
    parts: list[Columns] = []
    for reader in readers:
        directory = reader.directory
        needed = -(-count // directory.page_rows) + 1
        start, stop = (max(0, directory.pages - needed), directory.pages) if last else (0, min(needed, directory.pages))
        pages = np.arange(start, stop)
        found = decode(reader.read(pages), int(directory.rows(pages).sum()), width)
        parts.append(Columns(found.keys[-count:], found.locations[-count:]) if last else _head(found, count))
    together = merged(parts)
    return Columns(together.keys[-count:], together.locations[-count:]) if last else _head(together, count)


def _head(columns: Columns, count: int) -> Columns:
    return Columns(columns.keys[:count], columns.locations[:count])


def _add_portion(portions: list[LeafPortion], reader: LeafReader, low: Keys, high: Keys, limit: int) -> bool:
    """Add the pages that can have entries of these ranges. False if the directory shows more entries than `limit`: the
    entries of one leaf are all different."""
    directory = reader.directory
    start, end = directory.spans(low, high)
    inside = end > start
    if not inside.all():
        low, high, start, end = low[inside], high[inside], start[inside], end[inside]
    if not len(low):
        return True
    # All pages of a range but the last are full, and have nothing else, except the first if it begins before `low`.
    full = np.maximum(end - start - 1 - (directory.first_keys[start] < low), 0)
    if int(full.sum()) * directory.page_rows > limit:
        return False
    portions.append(LeafPortion(reader, _expanded(start, end), low, high))
    return True


def _expanded(start: Numbers, end: Numbers) -> Numbers:
    """All numbers of ascending ranges, each once.

    >>> _expanded(np.array([1, 3, 3, 9]), np.array([2, 6, 6, 11])).tolist()
    [1, 3, 4, 5, 9, 10]
    """
    lengths = end - start
    if (lengths == 1).all():
        return different(start)
    before = np.cumsum(lengths) - lengths
    numbers: Numbers = np.repeat(start - before, lengths) + np.arange(int(lengths.sum()))
    return np.unique(numbers)


def _locations(portions: list[LeafPortion], limit: int) -> Locations | None:
    found: list[Columns] = []
    for portion, (keys, locations) in zip(portions, _entries(portions), strict=True):
        start = np.searchsorted(keys, portion.low, side="left")
        lengths = np.searchsorted(keys, portion.high, side="right") - start
        total = int(lengths.sum())
        if total > limit:
            return None
        before = np.cumsum(lengths) - lengths
        places = np.repeat(start - before, lengths) + np.arange(total)
        found.append(Columns(keys[places], locations[places]))
    if not found:
        return np.empty(0, np.uint64)
    # An entry that was ingested twice is one; a location under two keys is two entries.
    locations = merged(found).locations
    return None if len(locations) > limit else locations


def _entries(portions: list[LeafPortion]) -> list[Columns]:
    """The entries of the pages of each portion: from memory, and what is not there read and decoded together."""
    kept = [portion.reader.kept(portion.pages) for portion in portions]
    missing = [
        portion if known is None else portion._replace(pages=portion.pages[~known.found])
        for portion, known in zip(portions, kept, strict=True)
    ]
    read = _decoded([portion for portion in missing if len(portion.pages)])
    entries: list[Columns] = []
    for portion, rest, known in zip(portions, missing, kept, strict=True):
        new = next(read) if len(rest.pages) else None
        if new is not None:
            rest.reader.keep(rest.pages, new)
        entries.append(_joined(portion, known, new))
    return entries


def _decoded(portions: list[LeafPortion]) -> Iterator[Columns]:
    if not portions:
        return
    read = concurrently(_pages, portions) if _wait(portions) else [_pages(portion) for portion in portions]
    rows = [int(portion.reader.directory.rows(portion.pages).sum()) for portion in portions]
    together = (
        read[0] if len(read) == 1 else [[*chain(*(pages[column] for pages in read))] for column in range(COLUMNS)]
    )
    decoded = decode(together, sum(rows), portions[0].reader.directory.width)
    position = 0
    for count in rows:
        yield Columns(decoded.keys[position : position + count], decoded.locations[position : position + count])
        position += count


def _joined(portion: LeafPortion, known: KeptPages | None, new: Columns | None) -> Columns:
    """The entries of all pages of a portion, in order: those that are known, and the new ones between them."""
    if known is None:
        assert new is not None
        return new
    directory = portion.reader.directory
    count = int(directory.rows(portion.pages).sum())
    if new is None:
        # Only the last page of a leaf has fewer rows than others, and it is the last one here.
        return Columns(known.keys.ravel()[:count], known.locations.ravel()[:count])
    room = (len(portion.pages), directory.page_rows)
    keys, locations = np.empty(room, known.keys.dtype), np.empty(room, np.uint64)
    keys[known.found], locations[known.found] = known.keys, known.locations
    places = np.flatnonzero(np.repeat(~known.found, directory.page_rows))[: len(new.keys)]
    keys.reshape(-1)[places], locations.reshape(-1)[places] = new.keys, new.locations
    return Columns(keys.ravel()[:count], locations.ravel()[:count])


def _wait(portions: list[LeafPortion]) -> bool:
    """Whether reading them is waiting for an object store."""
    return len(portions) > 1 and portions[0].reader.is_remote


def _pages(portion: LeafPortion) -> PagesOfColumns:
    return portion.reader.read(portion.pages)
