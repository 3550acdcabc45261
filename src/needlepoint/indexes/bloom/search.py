"""An open bloom index: filters say which row groups can hold the values that conditions name."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from needlepoint.access import Rows
from needlepoint.indexes.base import Answer, Condition
from needlepoint.indexes.bloom.build import hash_stored
from needlepoint.indexes.bloom.payload import UNKNOWN, BloomPayload
from needlepoint.indexes.hashing import Words, hash_together
from needlepoint.indexes.values import Family, ascending_once
from needlepoint.parquet.format import Int64Array, Matrix, block_numbers, contains
from needlepoint.predicate import Compare, In, Ordinal

# Combinations of values of several columns that are probed; with more, each column is probed alone.
MOST_COMBINATIONS = 4096
# Pairs of a filter and a hash that are probed together.
_PAIRS_AT_ONCE = 1 << 18


class BloomIndex(BloomPayload):
    __slots__ = ()

    @property
    def memory(self) -> int:
        return int(self.words.nbytes + self.counts.nbytes + self.firsts.nbytes)

    def find(self, conditions: Sequence[Condition], seconds: float) -> Answer:
        asked = self._asked(conditions)
        if not asked:
            return Answer(None)
        groups = np.ones(len(self.edges) - 1, np.bool_)
        for column, hashes in asked.items():
            groups &= self._holding(column, hashes)
        together = [asked[column] for column in range(len(self.columns)) if column in asked]
        complete = len(together) == len(self.columns) > 1 and math.prod(map(len, together)) <= MOST_COMBINATIONS
        if complete and groups.any():
            combinations = [values.ravel() for values in np.meshgrid(*together)]
            groups &= self._holding(len(self.columns), hash_together(combinations))
        why = f"filters leave {int(groups.sum()):,} of {len(groups):,} row groups"
        return Answer(None if len(groups) and groups.all() else Rows.where(self.edges, groups), why)

    def _asked(self, conditions: Sequence[Condition]) -> dict[int, Words]:
        """By the number of a column the hashes of the values it can have, where conditions name some."""
        asked: dict[int, Words] = {}
        for condition in conditions:
            values: Sequence[Ordinal]
            match condition:
                case Compare(column, "=", value):
                    values = (value,)
                case In(column, values):
                    pass
                case _:
                    continue
            if column not in self.columns:
                continue
            number = self.columns.index(column)
            hashes = _hash_literals(self.families[number], tuple(values))
            if hashes is not None:
                asked[number] = np.intersect1d(asked[number], hashes) if number in asked else hashes
        return asked

    def _holding(self, line: int, hashes: Words) -> npt.NDArray[np.bool_]:
        """The row groups that can hold any of the hashes, by the filters of a line."""
        counts, firsts = self.counts[line], self.firsts[line]
        if len(self.edges) > 2:
            hashes = hashes[self._probe(counts[:1], firsts[:1], hashes)[0]]
            counts, firsts = counts[1:], firsts[1:]
        step = max(1, _PAIRS_AT_ONCE // max(1, len(hashes)))
        parts = [slice(first, first + step) for first in range(0, len(counts), step)]
        found = [self._probe(counts[part], firsts[part], hashes).any(axis=1) for part in parts]
        return np.concatenate([np.zeros(0, np.bool_), *found])

    def _probe(self, counts: Int64Array, firsts: Int64Array, hashes: Words) -> Matrix:
        """For each filter and hash: may it be there? A filter without blocks is of nothing."""
        answers: Matrix = np.repeat((counts == UNKNOWN)[:, None], len(hashes), axis=1)
        some = np.flatnonzero(counts > 0)
        numbers = block_numbers(hashes, counts[some].astype(np.uint64)) + firsts[some][:, None]
        answers[some] = contains(self.words[numbers], hashes)
        return answers


# A query asks many files the same.
@functools.lru_cache(maxsize=64)
def _hash_literals(family: Family, values: tuple[Ordinal, ...]) -> Words | None:
    """The hashes of those that a column can hold; None when one of them cannot be compared."""
    literals = family.literals(values)
    return None if literals is None else ascending_once(hash_stored(family.array(literals)))
