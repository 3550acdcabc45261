"""Decoded pages of leaf files, kept in memory up to a number of bytes, for all stores of a process together.

One table of bytes has a line, a slot, for each page: its locations, then its keys. A leaf knows the slots of its pages,
so a thousand pages are found, copied and kept by a few calls of numpy. When the table is full, a hand goes around it
and takes the slots that were not used since it came by last.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from needlepoint import forks
from needlepoint.stores.base import Locations
from needlepoint.stores.leaf_files.directory import LeafDirectory, Numbers
from needlepoint.stores.leaf_files.keys import Columns, Keys, dtype

SLOT = 8192  # bytes: 512 entries of 16 bytes. Pages of keys that need more are not kept
_NONE = -1


class LeafSlots:
    """Where the pages of one leaf are kept. It belongs to a reader of the leaf, and its slots are free after it."""

    __slots__ = ("__weakref__", "number", "slots")
    _numbers = itertools.count()

    def __init__(self, pages: int) -> None:
        self.number = next(self._numbers)
        self.slots: npt.NDArray[np.int32] = np.full(pages, _NONE, np.int32)


class KeptPages(NamedTuple):
    """Which of the pages that were asked for are kept, and the entries of these, a line each."""

    found: npt.NDArray[np.bool_]
    keys: Keys
    locations: Locations


class PageMemory:
    """`limit` is in bytes; memory is taken when it is first needed. Any number of threads may use it."""

    def __init__(self, limit: int) -> None:
        self.count = limit // SLOT
        self._lock = threading.Lock()
        self._table: npt.NDArray[np.uint8] = np.empty((self.count, SLOT), np.uint8)  # the system gives it when written
        self._leaf = np.full(self.count, _NONE, np.int64)
        self._page = np.zeros(self.count, np.int64)
        self._used = np.zeros(self.count, np.bool_)
        self._leaves: weakref.WeakValueDictionary[int, LeafSlots] = weakref.WeakValueDictionary()
        self._hand = 0

    def slots(self, directory: LeafDirectory) -> LeafSlots | None:
        """For the pages of a leaf that was opened; None if they are too large to be kept."""
        if directory.page_rows * (directory.width + 8) > SLOT or not self.count:
            return None
        made = LeafSlots(directory.pages)
        with self._lock:
            self._leaves[made.number] = made
        return made

    def find(self, leaf: LeafSlots, directory: LeafDirectory, pages: Numbers) -> KeptPages | None:
        """None if none of the pages is kept."""
        with self._lock:
            slots = leaf.slots[pages]
            found = slots >= 0
            if not found.any():
                return None
            slots = slots[found]
            self._used[slots] = True
            locations, keys = self._views(directory)
            return KeptPages(found, keys[slots], locations[slots])

    def keep(self, leaf: LeafSlots, directory: LeafDirectory, pages: Numbers, columns: Columns) -> None:
        """Keep the entries of these pages, which ascend. Of more than half of the memory, the first ones."""
        rows = directory.page_rows
        pages = pages[: max(1, self.count // 2)]
        full = min(len(pages), len(columns.keys) // rows)
        with self._lock:
            slots = self._freed(len(pages))
            places, keys = self._views(directory)
            keys[slots[:full]] = columns.keys[: full * rows].reshape(full, rows)
            places[slots[:full]] = columns.locations[: full * rows].reshape(full, rows)
            if full < len(pages):  # the last page of the leaf
                rest = len(columns.keys) - full * rows
                keys[slots[full], :rest] = columns.keys[full * rows :]
                places[slots[full], :rest] = columns.locations[full * rows :]
            # Another thread may have kept one of them meanwhile: its slot belongs to the page no more.
            before = leaf.slots[pages]
            self._leaf[before[before >= 0]] = _NONE
            leaf.slots[pages] = slots
            self._leaf[slots], self._page[slots], self._used[slots] = leaf.number, pages, False

    def _views(self, directory: LeafDirectory) -> tuple[Locations, Keys]:
        """The table as locations and as keys of such a leaf, a line per slot."""
        split, end = directory.page_rows * 8, directory.page_rows * (8 + directory.width)
        return self._table[:, :split].view(np.uint64), self._table[:, split:end].view(dtype(directory.width))

    def _freed(self, count: int) -> Numbers:
        """So many slots, at most half of all, that belong to no page."""
        taken: list[Numbers] = []
        missing = count
        while missing:
            near = np.arange(self._hand, min(self._hand + 2 * missing, self.count))
            free = near[~self._used[near]][:missing]
            passed = near if len(free) < missing else near[: int(free[-1]) - self._hand + 1]
            self._used[passed] = False
            self._hand = int(passed[-1]) + 1 if int(passed[-1]) + 1 < self.count else 0
            self._used[free] = True  # the hand may come around before all are there
            taken.append(free)
            missing -= len(free)
        slots = np.concatenate(taken)
        self._forget(slots)
        return slots

    def _forget(self, slots: Numbers) -> None:
        """Tell the leaves that these slots are theirs no more."""
        owners = self._leaf[slots]
        for number in np.unique(owners).tolist():
            if number != _NONE and (leaf := self._leaves.get(number)) is not None:
                leaf.slots[self._page[slots[owners == number]]] = _NONE


@functools.cache
def page_memory(limit: int) -> PageMemory:
    """Stores with the same limit share the memory."""
    return PageMemory(limit)


forks.reset(page_memory.cache_clear)
