"""Merge leaf files: when a level has too many that overlap, they become one sorted run of a level above.

The level of a run is the order of magnitude of its entries, so each entry is written again once for each factor of
`FAN_OUT` by which the store grows. Memory does not depend on the store: a merge reads some row groups of each leaf at a
time, and writes leaves of at most `LEAF_ENTRIES`. merge_tasks.py divides it into tasks of that size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from needlepoint.stores.base import Locations
from needlepoint.stores.leaf_files.key_form import KeyCut, KeyForm, Used, no_bytes, to_alphabets, used_bytes
from needlepoint.stores.leaf_files.keys import Columns, Keys, in_order, joined, merged
from needlepoint.stores.leaf_files.leaf_reader import LeafReader
from needlepoint.stores.leaf_files.leaf_writer import MOST_FILTERED, LeafWriter
from needlepoint.stores.leaf_files.manifest import LeafFile

FAN_OUT = 8
SMALLEST_LEVEL = 1 << 12  # entries
# Leaves that do not overlap cost a lookup nothing, but each small one is an object and has a directory to fetch.
MOST_SMALL = 64
# 120 MB with a directory of 0.8 MB, which is what a node that knows nothing fetches first.
LEAF_ENTRIES = 1 << 24
GROUPS_AT_ONCE = 16

Limit = tuple[Any, int]
"""An entry: its key, an int or bytes, and its location."""


def level_of(entries: int) -> int:
    """The level of a run with so many entries.

    >>> [level_of(entries) for entries in (0, 32_767, 32_768, 10**6, 10**9)]
    [0, 0, 1, 2, 5]
    """
    level, most = 0, SMALLEST_LEVEL * FAN_OUT
    while entries >= most:
        level, most = level + 1, most * FAN_OUT
    return level


def due(leaves: Iterable[LeafFile]) -> list[LeafFile]:
    """The leaves of the lowest level that has too many; none if no level has. They are of several groups, and become
    one, so merging comes to an end."""
    by_level = sorted(leaves, key=lambda leaf: leaf.level)
    for _, of_level in groupby(by_level, key=lambda leaf: leaf.level):
        found = list(of_level)
        small = {leaf.group for leaf in found if leaf.entries <= MOST_FILTERED}
        if depth(found) >= FAN_OUT or len(small) >= MOST_SMALL:
            return found
    return []


def depth(leaves: Iterable[LeafFile]) -> int:
    """How many groups there are, at most, for one key."""
    ranges: dict[str, tuple[bytes, bytes]] = {}
    for leaf in leaves:
        first, last = ranges.get(leaf.group, (leaf.first, leaf.last))
        ranges[leaf.group] = min(first, leaf.first), max(last, leaf.last)
    ends = [(first, 0) for first, _ in ranges.values()] + [(last, 1) for _, last in ranges.values()]
    steps = [-1 if is_last else 1 for _, is_last in sorted(ends)]
    return int(np.cumsum(steps).max()) if steps else 0


@dataclass(slots=True)
class LeafStream:
    """What is left of one leaf, in ascending order, with keys that are cut: entries that were read, and pages behind
    them. Only entries `low <= key < high`, each bound an array of one or None.

    Keys that become equal by the cut may be in two pages that are not read together, and their locations in any order:
    the last key that was read is `open` until one behind it is read."""

    reader: LeafReader
    cut: KeyCut
    low: Keys | None = None
    high: Keys | None = None
    held: Columns | None = None
    open: Columns | None = None
    first_keys: Keys = field(init=False)
    next_page: int = field(init=False)
    stop: int = field(init=False)

    def __post_init__(self) -> None:
        self.first_keys = self.reader.first_keys(self.cut)
        self.next_page, self.stop = 0, len(self.first_keys)
        if self.low is not None:
            self.next_page = max(0, int(np.searchsorted(self.first_keys, self.low, side="left")[0]) - 1)
        if self.high is not None:
            self.stop = int(np.searchsorted(self.first_keys, self.high, side="left")[0])

    @property
    def has_more(self) -> bool:
        return self.next_page < self.stop

    def next_key(self) -> Any:
        return _plain(self.first_keys, self.next_page) if self.open is None else _plain(self.open.keys, 0)

    def load(self) -> None:
        directory = self.reader.directory
        pages = np.arange(self.next_page, min(self.stop, self.next_page + GROUPS_AT_ONCE * directory.group_pages))
        self.next_page = int(pages[-1]) + 1
        found = self.reader.entries(pages, self.cut, keep=False)
        if self.reader.form.cut != self.cut:
            found = self._closed(found)
        self.held = self._inside(found)

    def _closed(self, found: Columns) -> Columns:
        """What was open and what was read, but for what is open now."""
        keys, locations = found if self.open is None else in_order(joined([self.open, found]))
        count = int(np.searchsorted(keys, keys[-1:], side="left")[0]) if self.has_more else len(keys)
        self.open = Columns(keys[count:], locations[count:]) if count < len(keys) else None
        return Columns(keys[:count], locations[:count])

    def _inside(self, columns: Columns) -> Columns | None:
        keys, locations = columns
        start = 0 if self.low is None else int(np.searchsorted(keys, self.low, side="left")[0])
        end = len(keys) if self.high is None else int(np.searchsorted(keys, self.high, side="left")[0])
        return Columns(keys[start:end], locations[start:end]) if start < end else None

    def last(self) -> Limit:
        """The greatest entry that was read."""
        assert self.held is not None
        return _plain(self.held.keys, -1), int(self.held.locations[-1])

    def take(self, limit: Limit | None) -> Columns | None:
        """The entries that were read, up to `limit`, which are then no longer held."""
        if self.held is None:
            return None
        keys, locations = self.held
        count = len(keys) if limit is None else _count_until(keys, locations, limit)
        self.held = Columns(keys[count:], locations[count:]) if count < len(keys) else None
        return Columns(keys[:count], locations[:count]) if count else None


def merged_entries(
    readers: Sequence[LeafReader], cut: KeyCut, low: Keys | None = None, high: Keys | None = None
) -> Iterator[Columns]:
    """All entries `low <= key < high` of these leaves in ascending order, each once, some at a time, with keys that are
    cut. None of the leaves has less of its keys."""
    streams = [LeafStream(reader, cut, low, high) for reader in readers]
    while True:
        streams = [stream for stream in streams if stream.held is not None or stream.has_more]
        if not streams:
            return
        limit = _loaded(streams)
        parts = [part for stream in streams if (part := stream.take(limit)) is not None]
        if parts:
            yield merged(parts)


def _loaded(streams: list[LeafStream]) -> Limit | None:
    """Read until everything up to a limit is held, and return that; None if all there is is held."""
    while True:
        behind = [stream.last() for stream in streams if stream.held is not None and stream.has_more]
        limit = min(behind, default=None)
        waiting = [stream for stream in streams if stream.held is None and stream.has_more]
        if not waiting:
            return limit
        first = min(waiting, key=LeafStream.next_key)
        if limit is not None and limit[0] < first.next_key():
            return limit
        first.load()


def _count_until(keys: Keys, locations: Locations, limit: Limit) -> int:
    key = np.array([limit[0]], keys.dtype)
    low, high = (int(np.searchsorted(keys, key, side=side)[0]) for side in ("left", "right"))
    same = locations[low:high]
    return low + int(np.searchsorted(same, np.uint64(limit[1]), side="right"))


def _plain(keys: Keys, position: int) -> Any:
    """A key as a Python value. Numpy drops zeros at the end of bytes, which does not change their order."""
    return keys[position].item()


def write_merged(
    parts: Iterable[Columns], form: KeyForm, bits: int, merged_names: Sequence[str], next_path: Callable[[], Path]
) -> Iterator[tuple[Path, LeafFile]]:
    """Write entries into leaves of at most LEAF_ENTRIES; each is returned when it is complete. Their level is that of
    one leaf: the caller knows how many there are."""
    writer: LeafWriter | None = None
    try:
        for part in parts:
            left = part
            while len(left.keys):
                if writer is None:
                    writer = LeafWriter(next_path(), form, bits, merged=merged_names)
                    room = LEAF_ENTRIES
                taken, left = _split(left, room)
                writer.append(taken)
                room -= len(taken.keys)
                if not room:
                    yield writer.path, writer.finish()
                    writer = None
        if writer is not None:
            yield writer.path, writer.finish()
            writer = None
    finally:
        if writer is not None:
            writer.abandon()


def merged_form(
    readers: Sequence[LeafReader], cut: KeyCut, low: Keys | None = None, high: Keys | None = None
) -> KeyForm:
    """That of a leaf into which these entries are merged. Leaves from before keys were numbers are read for it."""
    used = [no_bytes()]
    for reader in readers:
        alphabets = reader.form.alphabets
        if alphabets is None and reader.form.cut == cut:  # too many bytes occur
            return KeyForm(cut)
        used += _used_in(LeafStream(reader, cut, low, high)) if alphabets is None else [alphabets.used]
    return KeyForm(cut, to_alphabets(np.logical_or.reduce(used), cut))


def _used_in(stream: LeafStream) -> Iterator[Used]:
    while stream.has_more:
        stream.load()
        if stream.held is not None:
            yield used_bytes(stream.held.keys, stream.cut.width)


def _split(columns: Columns, count: int) -> tuple[Columns, Columns]:
    keys, locations = columns
    return Columns(keys[:count], locations[:count]), Columns(keys[count:], locations[count:])
