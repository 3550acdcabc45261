"""Writes ascending entries as the blocks of a part, and its fences behind them; a megabyte at a time."""

from __future__ import annotations

import numpy as np

from needlepoint.stores.base import Entries
from needlepoint.stores.keys import blocks
from needlepoint.stores.keys.space import BlockSpace, Part, new_part

_AT_ONCE = 1 << 20  # bytes of blocks
_GROUP = blocks.ENTRIES * 64


class PartWriter:
    """Nothing of it is visible before it is published."""

    def __init__(self, space: BlockSpace) -> None:
        self._space = space
        self._id = 0
        self._rest: list[Entries] = []
        self._held = 0
        self._fences: list[Entries] = []
        self._waiting: list[tuple[int, bytes]] = []
        self._waiting_bytes = self._bytes = self._blocks = self._entries = 0

    def add(self, entries: Entries) -> None:
        """Entries greater than all before."""
        self._rest.append(entries)
        self._held += len(entries)
        if self._held >= _GROUP:
            whole = np.concatenate(self._rest)
            full = len(whole) // blocks.ENTRIES * blocks.ENTRIES
            self._write(whole[:full])
            self._rest, self._held = [whole[full:]], len(whole) - full

    def close(self) -> Part | None:
        """The part, with all its blocks in the server; None if there are no entries."""
        if self._held:
            self._write(np.concatenate(self._rest))
        if not self._entries:
            return None
        fences = blocks.encode(np.concatenate(self._fences), self._id, -1, -1)
        for number, block in enumerate(fences):
            self._put(-1 - number, block)
        self._flush()
        return Part(self._id, self._blocks, len(fences), self._entries, self._bytes)

    def _write(self, entries: Entries) -> None:
        if not self._id:
            self._id = new_part()
            self._space.stage(self._id)
        self._fences.append(entries[:: blocks.ENTRIES].copy())
        for block in blocks.encode(entries, self._id, self._blocks):
            self._put(self._blocks, block)
            self._blocks += 1
        self._entries += len(entries)

    def _put(self, number: int, block: bytes) -> None:
        self._waiting.append((number, block))
        self._waiting_bytes += len(block)
        self._bytes += len(block)
        if self._waiting_bytes >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            numbers, data = zip(*self._waiting, strict=True)
            self._space.put(self._id, numbers, data)
            self._waiting, self._waiting_bytes = [], 0
