"""A small table that says how often, at most, two words follow each other.

It shows which phrases do not occur, and about how many rows the others have, before any posting is read.

>>> pairs = PairCounter()
>>> _ = pairs.add(pa.array(["dairy cow", "dairy cow", "cow dairy cow"]))
>>> table = PairTable(pairs.packed())
>>> table.at_most("dairy", "cow"), table.at_most("cow", "dairy"), table.at_most("cow", "cow")
(3, 1, 0)

Words are hashed by their length and their first and last eight bytes, pairs into 2^20 buckets, which are folded as long
as few are used. A byte b is 0 where no pair fell; elsewhere at most 2^((b - 1) / 4) did. Where most are used the
table would say little, so it is left out.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BUCKETS = 1 << 20
MOST_USED = BUCKETS // 2
_FEWEST = 1 << 10
_FIRST = np.uint64(0x9E3779B97F4A7C15)
_LAST = np.uint64(0xC2B2AE3D27D4EB4F)
_LENGTH = np.uint64(0x165667B19E3779F9)
_NEXT = np.uint64(0xBF58476D1CE4E5B9)

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


class PairCounter:
    """Counts pairs and words, of all texts and of each, and finds texts with a word longer than `longest`."""

    def __init__(self) -> None:
        self.words = 0
        self.lengths: list[npt.NDArray[np.uint32]] = []
        self._counts = np.zeros(BUCKETS, np.int64)
        self._full = False

    def add(self, texts: pa.Array, longest: int = 1 << 62) -> Places:
        """Count texts whose words are separated by spaces (`words.lettered`). Returns which have too long a word."""
        texts = texts.cast(pa.large_string())
        _, offsets, content = texts.buffers()
        edges = np.frombuffer(offsets, np.int64, len(texts) + 1, texts.offset * 8)
        if content is None or len(texts) == 0 or edges[0] == edges[-1]:
            self.lengths.append(np.zeros(len(texts), np.uint32))
            return np.zeros(0, np.int64)
        data = np.frombuffer(content, np.uint8)[edges[0] : edges[-1]]
        edges = edges - edges[0]
        starts, ends = _bounds(data, edges)
        self.words += len(starts)
        before = np.searchsorted(starts, edges)
        self.lengths.append(np.diff(before).astype(np.uint32))
        if len(starts) > 1 and not self._full:
            # The word before the first of each text has no next one.
            firsts = before[:-1]
            followed = np.ones(len(starts), np.bool_)
            followed[firsts[firsts > 0] - 1] = False
            pairs = _pairs(_hashes(data, starts, ends))[followed[:-1]]
            self._counts += np.bincount(pairs, minlength=BUCKETS)
            self._full = bool(np.count_nonzero(self._counts) > MOST_USED)
        long = starts[ends - starts > longest]
        return np.unique(np.searchsorted(edges, long, "right") - 1) if len(long) else long

    def packed(self) -> bytes:
        counts = self._counts
        if self._full:
            return b""
        while len(counts) > _FEWEST and np.count_nonzero(counts) <= len(counts) // 16:
            counts = counts.reshape(2, -1).sum(axis=0)
        powers = np.ceil(4 * np.log2(np.maximum(counts, 1))).astype(np.uint8) + 1
        return np.where(counts, powers, 0).astype(np.uint8).tobytes()


class PairTable:
    """What `PairCounter.packed` gave."""

    def __init__(self, packed: bytes | npt.NDArray[np.uint8]) -> None:
        self._powers = np.frombuffer(packed, np.uint8) if isinstance(packed, bytes) else packed
        size = len(self._powers)
        if size and (size & (size - 1) or size > BUCKETS):
            raise ValueError("the size of the table of pairs is not a power of two")

    def __len__(self) -> int:
        return len(self._powers)

    def at_most(self, left: str, right: str) -> int | None:
        """How often, at most, the right word directly follows the left one in all texts; None: not known."""
        if len(self._powers) == 0:
            return None
        power = int(self._powers[_bucket(left, right) & (len(self._powers) - 1)])
        return round(2 ** ((power - 1) / 4)) if power else 0


@functools.lru_cache(maxsize=1024)
def _bucket(left: str, right: str) -> int:
    data = np.frombuffer(f"{left} {right}".encode(), np.uint8)
    middle = len(left.encode())
    return int(_pairs(_hashes(data, np.array([0, middle + 1]), np.array([middle, len(data)])))[0])


def _bounds(data: Bytes, edges: Places) -> tuple[Places, Places]:
    """Where words start and end, in bytes; there is nothing between one text and the next."""
    letters = np.zeros(len(data) + 1, np.bool_)  # one more, so that a word can end with the data
    np.not_equal(data, ord(" "), out=letters[:-1])
    changes = np.empty(len(data) + 1, np.bool_)
    changes[0] = letters[0]
    np.not_equal(letters[1:], letters[:-1], out=changes[1:])
    starts, ends = changes & letters, changes & ~letters
    # Two words meet where a text ends with one and the next begins with one.
    inner = edges[1:-1]
    meet = inner[(inner > 0) & (inner < len(data))]
    meet = meet[letters[meet] & letters[meet - 1]]
    starts[meet] = ends[meet] = True
    return np.flatnonzero(starts), np.flatnonzero(ends)


def _hashes(data: Bytes, starts: Places, ends: Places) -> Hashes:
    padded = np.zeros(len(data) + 8, np.uint8)  # eight spare bytes: every word can be read whole
    padded[:-8] = data
    windows: npt.NDArray[Any] = np.ndarray((len(data) + 1,), np.dtype("<u8"), buffer=padded, strides=(1,))
    lengths = ends - starts
    beyond = (np.uint64(8) * np.maximum(8 - lengths, 0).astype(np.uint64)).astype(np.uint64)
    first = windows[starts] << beyond
    last = np.where(lengths > 8, windows[np.maximum(ends - 8, 0)], np.uint64(0))
    hashes: Hashes = (first * _FIRST) ^ (last * _LAST) ^ (lengths.astype(np.uint64) * _LENGTH)
    return hashes ^ (hashes >> np.uint64(32))


def _pairs(hashes: Hashes) -> Places:
    """The bucket of each word and the next."""
    mixed = (hashes[:-1] * _NEXT + hashes[1:]) * _FIRST
    found: Places = (mixed >> np.uint64(64 - 20)).astype(np.int64)
    return found
