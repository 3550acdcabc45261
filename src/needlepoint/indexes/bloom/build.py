"""Columns become filters, of row groups and of the file."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.errors import NotIndexable
from needlepoint.indexes.bloom.payload import MOST_BLOCKS, UNKNOWN
from needlepoint.indexes.hashing import Words, hash_integers, hash_together, hash_values
from needlepoint.indexes.values import ascending_once, is_nan, stored_values
from needlepoint.parquet.format import BLOCK, Int64Array, filled

# A hash is held as collected, as sorted and joined at the same time.
_BYTES_OF_A_HASH = 24


def blocks_for(values: int, wrong: float) -> int:
    """How many blocks give about this share of false positives with so many values.

    >>> blocks_for(1_000_000, 0.01) * BLOCK, blocks_for(1, 0.01), blocks_for(0, 0.01)
    (1316160, 1, 0)
    """
    return min(math.ceil(values / _values_in_a_block(wrong)), MOST_BLOCKS)


@functools.cache
def _values_in_a_block(wrong: float) -> float:
    """The mean that gives about this share of false positives.

    Each value sets a bit in each of eight words of 32 bits. The number of values in a block has a Poisson distribution:
    fuller blocks add more false positives than emptier blocks save.
    """
    counts = np.arange(1, 400)
    all_set = (1 - (31 / 32) ** counts) ** 8
    log_factorials = np.cumsum(np.log(counts))
    low, high = 1e-3, 200.0
    for _ in range(40):
        mean = (low + high) / 2
        share = np.exp(counts * math.log(mean) - mean - log_factorials)
        low, high = (low, mean) if float((share * all_set).sum()) > wrong else (mean, high)
    return low


def hash_column(column: pa.Array) -> tuple[Words, npt.NDArray[np.bool_]]:
    """A hash of each row, and which rows have a value that can be searched."""
    values = stored_values(column)
    there: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False) & ~is_nan(values)
    return hash_stored(values.fill_null(b"" if pa.types.is_large_binary(values.type) else 0)), there


def hash_stored(values: pa.Array) -> Words:
    """Hashes of stored values without NULLs."""
    if pa.types.is_large_binary(values.type):
        return hash_values(values)
    return hash_integers(values.to_numpy().view(np.int64))


@dataclass(slots=True)
class FilterBuilder:
    """Collects the hashes of a row group, each once, then makes its filters. It also keeps the hashes of the file,
    while there is memory."""

    edges: Int64Array
    columns: int
    wrong: float
    memory: int
    entries: int = 0
    rows: int = 0
    group: int = 0
    held: list[list[Words] | None] = field(init=False)
    whole: list[list[Words] | None] = field(init=False)
    filters: list[list[npt.NDArray[np.uint32] | None]] = field(init=False)

    def __post_init__(self) -> None:
        self.held = [[] for _ in range(self.sets)]
        self.whole = [[] if len(self.edges) > 2 else None for _ in range(self.sets)]
        self.filters = [[] for _ in range(self.sets)]
        self._end_groups()

    @property
    def sets(self) -> int:
        """The columns one by one, then all together."""
        return self.columns + (self.columns > 1)

    def add(self, columns: Sequence[tuple[Words, npt.NDArray[np.bool_]]]) -> None:
        """The next rows, of one row group or of several."""
        sets = list(columns)
        if self.columns > 1:
            sets.append(
                (hash_together([hashes for hashes, _ in columns]), np.logical_and.reduce([t for _, t in columns]))
            )
        count, done = len(sets[0][0]), 0
        while done < count and self.group < len(self.edges) - 1:
            until = min(count, done + int(self.edges[self.group + 1]) - self.rows)
            for which, (hashes, there) in enumerate(sets):
                self._hold(which, ascending_once(hashes[done:until][there[done:until]]))
            self.rows += until - done
            done = until
            self._end_groups()
        self.rows += count - done

    def _hold(self, which: int, hashes: Words) -> None:
        held = self.held[which]
        if held is None:
            return
        held.append(hashes)
        if self._too_much():
            self.held[which] = held = [_once(held)]
            if self._too_much():
                self.whole[which] = None
                self.held[which] = None if self._too_much() else held

    def _too_much(self) -> bool:
        held = sum(sum(map(len, each or ())) for each in (*self.held, *self.whole))
        return held * _BYTES_OF_A_HASH > self.memory

    def _end_groups(self) -> None:
        """Filters of the row groups that are complete."""
        while self.group < len(self.edges) - 1 and self.rows == int(self.edges[self.group + 1]):
            for which, held in enumerate(self.held):
                hashes = None if held is None else _once(held)
                self.filters[which].append(None if hashes is None else self._filter(hashes))
                self.entries += 0 if hashes is None else len(hashes)
                self.held[which] = []
                whole = self.whole[which]
                self.whole[which] = None if whole is None or hashes is None else [*whole, hashes]
            self.group += 1

    def _filter(self, hashes: Words) -> npt.NDArray[np.uint32]:
        return filled(hashes, blocks_for(len(hashes), self.wrong))

    def finish(self) -> tuple[Int64Array, npt.NDArray[np.uint32]]:
        """The blocks of each filter, and the words of all."""
        if self.rows != int(self.edges[-1]):
            raise NotIndexable(f"{self.rows:,} rows were read of a file with {int(self.edges[-1]):,}.")
        found: list[npt.NDArray[np.uint32] | None] = []
        for which in range(self.sets):
            if len(self.edges) > 2:
                whole, self.whole[which] = self.whole[which], None
                found.append(None if whole is None else self._filter(_once(whole)))
            found += self.filters[which]
        counts = np.array([UNKNOWN if words is None else len(words) for words in found], np.int64)
        words = [np.zeros((0, BLOCK // 4), np.uint32), *(words for words in found if words is not None)]
        return counts, np.concatenate(words).astype("<u4")


def _once(hashes: list[Words]) -> Words:
    return ascending_once(np.concatenate([np.zeros(0, np.uint64), *hashes]))
