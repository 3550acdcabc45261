"""The bloom index: filters of our own, for columns whose files have none, and over several columns together.

    filter    file   group 0   group 1          split blocks of 32 bytes, as in Parquet (parquet/format/bloom_filter.py)
    a         ▒▒▒▒   ▒▒        ▒▒               each as large as its distinct values ask for
    b         ▒▒     ▒▒        ▒
    a and b   ▒▒▒▒   ▒▒        ▒▒               of rows: a = 1 and b = 2 in two different rows is not there

It answers `=` and IN. Hashes are those of ordinals, so it makes no difference how wide a file stores a number. NULLs
are not in the filters, and neither is NaN, of which nothing is said.

Stored (payload.py) are the rows of each row group and the blocks of each filter, column by column: for the file if it
has several row groups, then for each of them. -1 stands for a filter that there was no memory to build: maybe.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.access import Rows
from needlepoint.errors import NotIndexable, UsageError
from needlepoint.indexes.base import Answer, Built, Condition, FileIndex, Options, Source, Stored
from needlepoint.indexes.hashing import Words, hash_integers, hash_together, hash_values
from needlepoint.indexes.payload import damaged, pack, unpack
from needlepoint.indexes.values import Family, ascending_once, is_nan, require_family, stored_values
from needlepoint.parquet.format.bloom_filter import BLOCK, Matrix, block_numbers, contains, filled
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.predicate import Compare, In, Ordinal

NAME = "bloom"
VERSION = 1
WRONG_ANSWERS = 0.01
# Combinations of values of several columns that are asked for; of more each column is asked alone.
MOST_COMBINATIONS = 4096
_MOST_COLUMNS = 16
_MOST_BLOCKS = (128 << 20) // BLOCK
_UNKNOWN = -1
# Pairs of a filter and a hash that are worked on together.
_PAIRS_AT_ONCE = 1 << 18
# A hash is held as collected, as sorted and joined at the same time.
_BYTES_OF_A_HASH = 24


class BloomKind:
    """Options: `fpp`, how many of the values that are not there may seem to be; 0.01 is one in a hundred."""

    name = NAME
    version = VERSION

    def check(self, table: str, fields: Sequence[pa.Field], options: Options) -> None:
        if not 1 <= len(fields) <= _MOST_COLUMNS:
            raise UsageError(f"a bloom index has 1 to {_MOST_COLUMNS} columns, not {len(fields)}.")
        for column in fields:
            require_family(self.name, table, column)
        _wrong_answers(options)

    def build(self, source: Source) -> Built:
        names = [column.name for column in source.fields]
        families = [require_family(self.name, "", column) for column in source.fields]
        builder = _Builder(source.row_group_rows, len(names), _wrong_answers(source.options), source.memory)
        for batch in source.batches():
            builder.add([_hashed_column(batch.column(name)) for name in names])
        counts, words = builder.finish()
        header = {"columns": names, "families": [family.to_dict() for family in families]}
        payload = pack(NAME, VERSION, header, [np.diff(source.row_group_rows), counts], [words.tobytes()])
        return Built(payload, builder.entries)

    def open(self, stored: Stored, fields: Sequence[pa.Field], options: Options) -> FileIndex:
        return BloomIndex.from_bytes(stored.read(), [column.name for column in fields])


def _wrong_answers(options: Options) -> float:
    for name in options:
        if name != "fpp":
            raise UsageError(f"a bloom index has no option '{name}'.", hint="It has: fpp.")
    fpp = options.get("fpp", WRONG_ANSWERS)
    if not isinstance(fpp, (int, float)) or isinstance(fpp, bool) or not 1e-6 <= fpp <= 0.5:
        raise UsageError(f"fpp={fpp!r} is no share from 0.000001 to 0.5.")
    return float(fpp)


def blocks_for(values: int, wrong: float) -> int:
    """How many blocks make about so many wrong answers with so many values.

    >>> blocks_for(1_000_000, 0.01) * BLOCK, blocks_for(1, 0.01), blocks_for(0, 0.01)
    (1316160, 1, 0)
    """
    return min(math.ceil(values / _values_in_a_block(wrong)), _MOST_BLOCKS)


@functools.cache
def _values_in_a_block(wrong: float) -> float:
    """The mean that makes about so many wrong answers.

    Each value sets a bit in each of eight words of 32. Blocks do not get equally many values, but by Poisson's law:
    the fuller ones make more of the wrong answers than the emptier ones spare.
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


def _hashed_column(column: pa.Array) -> tuple[Words, npt.NDArray[np.bool_]]:
    """A hash of each row, and which rows have a value to be found."""
    values = stored_values(column)
    there: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False) & ~is_nan(values)
    return _hashed(values.fill_null(b"" if pa.types.is_large_binary(values.type) else 0)), there


def _hashed(values: pa.Array) -> Words:
    """Of stored values without NULLs."""
    if pa.types.is_large_binary(values.type):
        return hash_values(values)
    return hash_integers(values.to_numpy().view(np.int64))


# The same question comes for many files.
@functools.lru_cache(maxsize=64)
def _hashed_literals(family: Family, values: tuple[Ordinal, ...]) -> Words | None:
    """The hashes of those that a column can hold; None when one of them cannot be compared."""
    literals = family.literals(values)
    return None if literals is None else ascending_once(_hashed(family.array(literals)))


@dataclass(slots=True)
class _Builder:
    """Collects the hashes of a row group, each once, then makes its filters. Those of the file are kept besides, as
    long as there is memory."""

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
        counts = np.array([_UNKNOWN if words is None else len(words) for words in found], np.int64)
        words = [np.zeros((0, BLOCK // 4), np.uint32), *(words for words in found if words is not None)]
        return counts, np.concatenate(words).astype("<u4")


def _once(hashes: list[Words]) -> Words:
    return ascending_once(np.concatenate([np.zeros(0, np.uint64), *hashes]))


@dataclass(frozen=True, slots=True, eq=False)
class BloomIndex:
    """`counts` are the blocks of each filter, by column (the last line is of all together) and by what it is of: the
    file, if it has several row groups, then each of those. `firsts` tell where they begin in `words`."""

    columns: tuple[str, ...]
    families: tuple[Family, ...]
    edges: Int64Array
    counts: Int64Array
    firsts: Int64Array
    words: npt.NDArray[np.uint32]

    @classmethod
    def from_bytes(cls, data: bytes, columns: Sequence[str]) -> BloomIndex:
        """IndexDamaged when the bytes are something else, or of other columns."""
        header, arrays, blobs = unpack(NAME, VERSION, data)
        try:
            families = tuple(Family.from_dict(each) for each in header["families"])
            if header["columns"] != list(columns) or len(families) != len(columns):
                raise ValueError(f"it is of the columns {header['columns']}")
            sizes, counts = arrays
            (blob,) = blobs
            if (sizes < 0).any() or (counts < _UNKNOWN).any() or (counts > _MOST_BLOCKS).any():
                raise ValueError("a count that is none")
            edges = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
            lines = len(columns) + (len(columns) > 1)
            counts = counts.reshape(lines, len(sizes) + (len(sizes) > 1))
            stored = np.maximum(counts, 0)
            firsts = (np.cumsum(stored) - stored.ravel()).reshape(counts.shape)
            words = np.frombuffer(blob, "<u4").reshape(-1, BLOCK // 4)
            if len(words) != stored.sum():
                raise ValueError(f"{len(words)} blocks where {stored.sum()} were announced")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(NAME, str(error)) from error
        return cls(tuple(columns), families, edges, counts, firsts, words)

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
            hashes = _hashed_literals(self.families[number], tuple(values))
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
        answers: Matrix = np.repeat((counts == _UNKNOWN)[:, None], len(hashes), axis=1)
        some = np.flatnonzero(counts > 0)
        numbers = block_numbers(hashes, counts[some].astype(np.uint64)) + firsts[some][:, None]
        answers[some] = contains(self.words[numbers], hashes)
        return answers
