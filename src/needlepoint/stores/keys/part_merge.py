"""Reads several parts as one: in order, each entry once, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from needlepoint.stores.base import Entries
from needlepoint.stores.keys import blocks
from needlepoint.stores.keys.space import Part

FAN_IN = 4
"""So many parts of similar size become one: an entry is written again for each time that the index grows fourfold."""
_SMALLEST = 1 << 14  # entries; smaller parts count as of the same size
_BLOCKS_AT_ONCE = 64  # of each part

ReadBlocks = Callable[[int, Sequence[int]], list[Entries]]


def parts_to_merge(parts: Sequence[Part]) -> list[Part]:
    """Parts of one size class, and all smaller ones, when there are enough of that class; none otherwise.

    >>> sizes = lambda *counts: [Part(n, 1, 1, count, 1) for n, count in enumerate(counts)]
    >>> [part.entries for part in parts_to_merge(sizes(900_000, 100, 200, 300, 400))]
    [100, 200, 300, 400]
    >>> parts_to_merge(sizes(900_000, 100, 200, 300))
    []
    """
    classes: dict[int, list[Part]] = {}
    for part in parts:
        size = max(part.entries, _SMALLEST) // _SMALLEST
        classes.setdefault((size.bit_length() - 1) // 2, []).append(part)
    for each in sorted(classes, reverse=True):
        if len(classes[each]) >= FAN_IN:
            return [part for size, some in classes.items() if size <= each for part in some]
    return []


@dataclass(slots=True)
class _Source:
    """A part while it is read: the numbers of blocks that are left, and the entries that are here, ascending."""

    part: int
    left: range
    held: Entries


class PartMerge:
    def __init__(self, read: ReadBlocks, parts: Sequence[Part], width: int, at_once: int = _BLOCKS_AT_ONCE) -> None:
        self._read = read
        self._parts = parts
        self._width = width
        self._at_once = at_once

    def portions(self, *, last: bool = False, start: Mapping[int, int] | None = None) -> Iterator[Entries]:
        """All entries, ascending, or with `last` descending. `start` names blocks to begin with, by part."""
        nothing = np.empty((0, self._width), np.uint8)
        numbers = {part.id: range((start or {}).get(part.id, 0), part.blocks) for part in self._parts}
        sources = [_Source(id, each[::-1] if last else each, nothing) for id, each in numbers.items()]
        while True:
            for source in sources:
                if not len(source.held) and source.left:
                    some, source.left = source.left[: self._at_once], source.left[self._at_once :]
                    source.held = np.concatenate(self._read(source.part, sorted(some)))
            sources = [source for source in sources if len(source.held)]
            if not sources:
                return
            yield self._from_end(sources) if last else self._from_start(sources)

    def _from_start(self, sources: Sequence[_Source]) -> Entries:
        """The entries behind which none is missing that is less."""
        ends = [source.held[-1].tobytes() for source in sources if source.left]
        taken = []
        for source in sources:
            known = blocks.comparable(source.held)
            count = int(np.searchsorted(known, np.bytes_(min(ends)), "right")) if ends else len(known)
            taken.append(source.held[:count])
            source.held = source.held[count:]
        return blocks.merged([each for each in taken if len(each)], self._width)

    def _from_end(self, sources: Sequence[_Source]) -> Entries:
        starts = [source.held[0].tobytes() for source in sources if source.left]
        taken = []
        for source in sources:
            known = blocks.comparable(source.held)
            count = int(np.searchsorted(known, np.bytes_(max(starts)))) if starts else 0
            taken.append(source.held[count:])
            source.held = source.held[:count]
        return blocks.merged([each for each in taken if len(each)], self._width)[::-1]
