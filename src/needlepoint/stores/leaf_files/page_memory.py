"""Decoded pages of leaf files, kept in memory up to a number of bytes, for all stores of a process together.

One table of bytes has a line, a slot, for each page: its locations, then its keys. A leaf knows the slots of its pages,
so a thousand pages are found, searched and kept by a few calls of numpy. When the table is full, a hand goes around it
and takes the slots that were not used since it came by last.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from needlepoint import forks
from needlepoint.stores.leaf_files.directory import LeafDirectory, Numbers
from needlepoint.stores.leaf_files.keys import different, dtype
from needlepoint.stores.leaf_files.page_table import DecodedPages

SLOT = 8192  # bytes: 512 entries with keys of 8 bytes. Pages that need more are not kept
NOWHERE = -1


class LeafSlots:
    """Where the pages of one leaf are kept. It belongs to a reader of the leaf, and its slots are free after it."""

    __slots__ = ("__weakref__", "number", "slots")
    _numbers = itertools.count()

    def __init__(self, pages: int) -> None:
        self.number = next(self._numbers)
        self.slots: npt.NDArray[np.int32] = np.full(pages, NOWHERE, np.int32)


class PageMemory:
    """`limit` is in bytes; memory is taken when it is first needed. Any number of threads may use it."""

    def __init__(self, limit: int) -> None:
        self._count = limit // SLOT
        self._lock = threading.Lock()
        self._bytes: npt.NDArray[np.uint8] = np.empty((self._count, SLOT), np.uint8)  # the system gives what is written
        self._leaf = np.full(self._count, NOWHERE, np.int64)
        self._page = np.zeros(self._count, np.int64)
        self._used = np.zeros(self._count, np.bool_)
        self._leaves: weakref.WeakValueDictionary[int, LeafSlots] = weakref.WeakValueDictionary()
        self._hand = 0

    def slots(self, directory: LeafDirectory) -> LeafSlots:
        """For the pages of a leaf that was opened."""
        made = LeafSlots(directory.pages)
        with self._lock:
            self._leaves[made.number] = made
        return made

    @contextmanager
    def kept(
        self, leaves: Sequence[LeafSlots], pages: Sequence[Numbers], layout: LeafDirectory
    ) -> Iterator[tuple[DecodedPages, Numbers]]:
        """What is kept of pages with this layout, and the line of each page of each leaf, or NOWHERE. It stays as it is
        until the block is left."""
        with self._lock:
            lines = np.concatenate([leaf.slots[numbers] for leaf, numbers in zip(leaves, pages, strict=True)])
            self._used[lines[lines >= 0]] = True
            yield self._table(layout), lines.astype(np.int64)

    def keep(
        self, leaves: Sequence[LeafSlots], pages: Sequence[Numbers], layout: LeafDirectory, table: DecodedPages
    ) -> None:
        """Keep the lines of a table, which are these pages of each leaf. Of a table that is more than half of the
        memory, nothing."""
        if layout.page_rows * (layout.width + 8) > SLOT or len(table.keys) > self._count // 2:
            return
        with self._lock:
            slots = self._freed(len(table.keys))
            kept = self._table(layout)
            kept.keys[slots], kept.locations[slots] = table
            position = 0
            for leaf, numbers in zip(leaves, pages, strict=True):
                own = slots[position : position + len(numbers)]
                # Another thread may have kept a page meanwhile: its slot there is then free.
                before = leaf.slots[numbers]
                self._leaf[before[before >= 0]] = NOWHERE
                leaf.slots[numbers] = own
                self._leaf[own], self._page[own] = leaf.number, numbers
                position += len(numbers)
            self._used[slots] = False

    def _table(self, layout: LeafDirectory) -> DecodedPages:
        """All slots, as pages of this layout."""
        split, end = layout.page_rows * 8, layout.page_rows * (8 + layout.width)
        if end > SLOT:  # nothing is kept of them
            return DecodedPages(np.empty((0, 1), dtype(layout.width)), np.empty((0, 1), np.uint64))
        return DecodedPages(self._bytes[:, split:end].view(dtype(layout.width)), self._bytes[:, :split].view(np.uint64))

    def _freed(self, count: int) -> Numbers:
        """So many slots, at most half of all, that belong to no page."""
        taken: list[Numbers] = []
        missing = count
        while missing:
            near = np.arange(self._hand, min(self._hand + 2 * missing, self._count))
            free = near[~self._used[near]][:missing]
            passed = near if len(free) < missing else near[: int(free[-1]) - self._hand + 1]
            self._used[passed] = False
            self._hand = int(passed[-1]) + 1 if int(passed[-1]) + 1 < self._count else 0
            self._used[free] = True  # the hand may come around before all are there
            taken.append(free)
            missing -= len(free)
        slots = np.concatenate(taken)
        self._forget(slots)
        return slots

    def _forget(self, slots: Numbers) -> None:
        """Tell the leaves that these slots are theirs no more."""
        owners = self._leaf[slots]
        for number in different(np.sort(owners)).tolist():
            if (leaf := self._leaves.get(number)) is not None:
                leaf.slots[self._page[slots[owners == number]]] = NOWHERE


_memories: dict[int, PageMemory] = {}
_lock = threading.Lock()


def page_memory(limit: int) -> PageMemory:
    """Stores with the same limit share the memory: the slots of their leaves mean nothing in another."""
    with _lock:
        if limit not in _memories:
            _memories[limit] = PageMemory(limit)
        return _memories[limit]


def _begin_again() -> None:
    """In a child, where another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _memories.clear()


forks.reset(_begin_again)
