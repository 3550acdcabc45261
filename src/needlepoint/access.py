"""The access plan: what is read of each file. Pure data; steps narrow it, the reader executes it.

    file 0   SKIP                 nothing of it can match
    file 1   SCAN                 all rows, by DataFusion's native scan
    file 2   ROWS 100-103, 350    only these, page by page

All intervals are half-open, `start <= row < stop`, here and everywhere else.

>>> few = Rows.of([3, 4, 5, 9])
>>> str(few), few.count
('3-6, 9-10', 4)
>>> str(few & Rows.of([4, 5, 7])), str(few | Rows.of([6]))
('4-6', '3-7, 9-10')
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

RowNumbers = npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.integer[Any])


def each_once(numbers: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Ascending. Sorts them: `np.unique` hashes, which takes 4 times as long for a thousand, and 20 for a million.

    >>> each_once(np.array([7, 3, 7])).tolist()
    [3, 7]
    """
    if len(numbers) < 2:
        return numbers
    ascending = np.sort(numbers)
    return ascending[np.concatenate(([True], ascending[1:] != ascending[:-1]))]


class Access(enum.Enum):
    """A file of which nothing, or everything, is read."""

    SKIP = "skip"
    SCAN = "scan"


@dataclass(frozen=True)
class Rows:
    """Rows of one file as ascending, disjoint, half-open ranges."""

    starts: RowNumbers
    stops: RowNumbers

    @classmethod
    def of(cls, numbers: Iterable[int] | RowNumbers) -> Rows:
        """From row numbers in any order; neighbours join into one range."""
        rows = np.asarray(numbers, dtype=np.int64)
        if len(rows) <= 1:
            return cls(rows, rows + 1)
        if not (rows[1:] > rows[:-1]).all():
            rows = each_once(rows)
        apart = rows[1:] - rows[:-1] != 1
        if apart.all():
            return cls(rows, rows + 1)
        breaks = np.flatnonzero(apart) + 1
        starts = rows[np.concatenate(([0], breaks))]
        stops = rows[np.concatenate((breaks - 1, [len(rows) - 1]))] + 1
        return cls(starts, stops)

    @classmethod
    def joined(cls, starts: RowNumbers, stops: RowNumbers) -> Rows:
        """From ascending, disjoint ranges; those that touch join into one, and empty ones are left out."""
        filled = stops > starts
        if not filled.all():
            starts, stops = starts[filled], stops[filled]
        if len(starts) <= 1:
            return cls(starts, stops)
        apart = np.flatnonzero(starts[1:] != stops[:-1])
        return cls(starts[np.concatenate(([0], apart + 1))], stops[np.append(apart, len(stops) - 1)])

    @classmethod
    def where(cls, edges: RowNumbers, keep: npt.NDArray[np.bool_]) -> Rows:
        """The ranges between neighbouring edges that are to be kept.

        >>> str(Rows.where(np.array([0, 10, 20, 30]), np.array([True, False, True])))
        '0-10, 20-30'
        """
        return cls.joined(edges[:-1][keep], edges[1:][keep])

    @cached_property
    def count(self) -> int:
        if len(self.starts) == 1:
            return int(self.stops[0] - self.starts[0])
        return int((self.stops - self.starts).sum())

    def numbers(self) -> RowNumbers:
        """Each row number, ascending."""
        lengths = self.stops - self.starts
        if len(lengths) == 0 or int(lengths.max()) == 1:
            return self.starts
        before = np.repeat(self.starts - np.cumsum(lengths) + lengths, lengths)
        numbers: RowNumbers = before + np.arange(len(before))
        return numbers

    def __and__(self, other: Rows) -> Rows:
        return _covered(self, other, times=2)

    def __or__(self, other: Rows) -> Rows:
        return _covered(self, other, times=1)

    def split(self, ends: RowNumbers) -> list[Rows]:
        """Split rows of several files with consecutive numbers by file; `ends` are the cumulated numbers of rows.

        >>> [str(part) for part in Rows.of([3, 4, 5, 9]).split(np.array([5, 6, 10]))]
        ['3-5', '0-1', '3-4']
        """
        firsts = np.concatenate(([0], ends[:-1]))
        whole = _covered(self, Rows(firsts, ends), times=2, joined=False)
        owners = np.searchsorted(ends, whole.starts, side="right")
        bounds = np.searchsorted(owners, np.arange(len(ends) + 1))
        return [
            Rows(whole.starts[first:last] - base, whole.stops[first:last] - base)
            for base, first, last in zip(firsts.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]

    def __str__(self) -> str:
        shown = [f"{a}-{b}" for a, b in zip(self.starts[:8].tolist(), self.stops[:8].tolist(), strict=True)]
        return ", ".join(shown) + (", …" if len(self.starts) > 8 else "")


def _covered(left: Rows, right: Rows, times: int, joined: bool = True) -> Rows:
    """The rows that are in `times` of the two. With `joined`, ranges that touch become one."""
    points = np.concatenate((left.starts, right.starts, left.stops, right.stops))
    if len(points) == 0:
        return left
    steps = np.ones(len(points), np.int64)
    steps[len(left.starts) + len(right.starts) :] = -1
    places, which = np.unique(points, return_inverse=True)
    depth = np.cumsum(np.bincount(which, weights=steps).astype(np.int64))
    inside = depth >= times
    if joined:
        edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
        return Rows(places[edges[::2]], places[edges[1::2]])
    here = np.flatnonzero(inside)
    return Rows(places[here], places[here + 1])


Selection = Access | Rows

# A place is a row of a table as one number: the position of its file, and in the lower bits the number of the row.
ROW_BITS = 40
_ROW = (1 << ROW_BITS) - 1


class RowsByFile(Mapping[int, Rows]):
    """Rows of several files, by the position of the file. `places` has them all, so that numpy handles the rows of a
    thousand files at once.

    >>> found = RowsByFile.of({2: Rows.of([3, 4]), 0: Rows.of([7])})
    >>> {at: str(rows) for at, rows in found.items()}, found.counts.tolist(), found.count
    ({0: '7-8', 2: '3-5'}, [1, 2], 3)
    """

    def __init__(self, places: Rows) -> None:
        self.places = places

    @classmethod
    def of(cls, rows: Mapping[int, Rows]) -> RowsByFile:
        """From the rows of each file; files without any are left out."""
        if isinstance(rows, RowsByFile):
            return rows
        parts = [(at << ROW_BITS, rows[at]) for at in sorted(rows) if rows[at].count]
        return cls._joined([Rows(each.starts + base, each.stops + base) for base, each in parts])

    @classmethod
    def at(cls, positions: RowNumbers, numbers: RowNumbers) -> RowsByFile:
        """From the position of the file and the number of each row, in any order."""
        return cls(Rows.of((positions << ROW_BITS) + numbers))

    @classmethod
    def through(cls, rows: Rows, positions: RowNumbers, ends: RowNumbers) -> RowsByFile:
        """From rows of the files at these ascending positions with consecutive numbers; `ends` are the cumulated
        numbers of rows.

        >>> found = RowsByFile.through(Rows.of([3, 4, 5, 9]), np.array([0, 2, 7]), np.array([5, 6, 10]))
        >>> {at: str(rows) for at, rows in found.items()}
        {0: '3-5', 2: '0-1', 7: '3-4'}
        """
        firsts = np.concatenate(([0], ends[:-1]))
        whole = _covered(rows, Rows(firsts, ends), times=2, joined=False)
        owners = np.searchsorted(ends, whole.starts, side="right")
        base = (positions[owners] << ROW_BITS) - firsts[owners]
        return cls(Rows(whole.starts + base, whole.stops + base))

    @classmethod
    def _joined(cls, parts: Sequence[Rows]) -> RowsByFile:
        """Rows of files that follow one another."""
        if len(parts) == 1:
            return cls(parts[0])
        nothing = np.empty(0, np.int64)
        starts = np.concatenate([nothing, *(each.starts for each in parts)])
        return cls(Rows(starts, np.concatenate([nothing, *(each.stops for each in parts)])))

    @classmethod
    def united(cls, parts: Sequence[RowsByFile]) -> RowsByFile:
        """Rows of different files."""
        filled = [each for each in parts if len(each.places.starts)] or [*parts[:1]]
        if len(filled) == 1:
            return filled[0]
        joined = cls._joined([each.places for each in filled]).places
        order = np.argsort(joined.starts, kind="stable")
        return cls(Rows(joined.starts[order], joined.stops[order]))

    @cached_property
    def _firsts(self) -> RowNumbers:
        """Where the ranges of each file begin, and the number of ranges."""
        owners = self.places.starts >> ROW_BITS
        begins = np.flatnonzero(owners[1:] != owners[:-1]) + 1
        return np.concatenate(([0], begins, [len(owners)])) if len(owners) else np.zeros(1, np.int64)

    @cached_property
    def positions(self) -> RowNumbers:
        """Of the files, ascending."""
        return self.places.starts[self._firsts[:-1]] >> ROW_BITS

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {position: number for number, position in enumerate(self.positions.tolist())}

    @cached_property
    def counts(self) -> RowNumbers:
        """How many rows of each file."""
        lengths = self.places.stops - self.places.starts
        return np.add.reduceat(lengths, self._firsts[:-1]) if len(lengths) else lengths

    @cached_property
    def ranges(self) -> RowNumbers:
        """How many ranges of rows of each file."""
        return np.diff(self._firsts)

    @property
    def count(self) -> int:
        return self.places.count

    def numbers(self) -> list[RowNumbers]:
        """The numbers of the rows of each file, ascending."""
        found = self.places.numbers() & _ROW
        ends = [0, *np.cumsum(self.counts).tolist()]
        return [found[first:end] for first, end in pairwise(ends)]

    def only(self, chosen: npt.NDArray[np.bool_]) -> RowsByFile:
        """Those of the chosen of these files."""
        if chosen.all():
            return self
        kept = np.repeat(chosen, self.ranges)
        return RowsByFile(Rows(self.places.starts[kept], self.places.stops[kept]))

    def __getitem__(self, position: int) -> Rows:
        number = self._numbers[position]
        first, last = self._firsts[number], self._firsts[number + 1]
        base = position << ROW_BITS
        return Rows(self.places.starts[first:last] - base, self.places.stops[first:last] - base)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._firsts) - 1

    def __contains__(self, position: object) -> bool:
        return position in self._numbers


_NO_ROWS = RowsByFile(Rows(np.empty(0, np.int64), np.empty(0, np.int64)))

SKIPPED, SCANNED, SOME_ROWS = 0, 1, 2  # the states of files in an access plan


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """One selection for each file of a snapshot, in the snapshot's order: states in an array, and `rows` of the files
    of which only some are read. Tables have many files and lookups few rows.

    The rows of files in `inexact` come from bounds, and most of them may not match; others come from an index."""

    states: npt.NDArray[np.int8]
    rows: RowsByFile
    inexact: frozenset[int] = frozenset()

    @classmethod
    def scan_all(cls, files: int) -> AccessPlan:
        return cls(np.full(files, SCANNED, np.int8), _NO_ROWS)

    def selection(self, position: int) -> Selection:
        if position in self.rows:
            return self.rows[position]
        return Access.SCAN if self.states[position] == SCANNED else Access.SKIP

    def without(self, files: npt.NDArray[np.bool_]) -> AccessPlan:
        """Nothing of these files."""
        if not files.any():
            return self
        states = np.where(files, np.int8(SKIPPED), self.states)
        left = self.rows.only(~files[self.rows.positions])
        return AccessPlan(states, left, self.inexact.intersection(left))

    def only(self, files: npt.NDArray[np.bool_], rows: Mapping[int, Rows]) -> AccessPlan:
        """Of these files only these rows; of the others what was read before."""
        plan, wanted = self.without(files), RowsByFile.of(rows)
        before = np.where(files, self.states, np.int8(SKIPPED))[wanted.positions]
        parts = [plan.rows, wanted.only(before == SCANNED)]
        if (before == SOME_ROWS).any():
            parts.append(RowsByFile(self.rows.only(files[self.rows.positions]).places & wanted.places))
        found = RowsByFile.united(parts)
        states = plan.states.copy()
        states[found.positions] = SOME_ROWS
        return AccessPlan(states, found, plan.inexact)

    def narrowed(self, rows: Mapping[int, Rows], at: npt.NDArray[np.int64] | None = None) -> AccessPlan:
        """Of the files named only these rows, where bounds say so: a reader looks at them again before it reads more.
        `at` are the positions of these files, some of which may have no rows here: nothing is read of them.

        Files that are not named stay as they are.
        """
        if at is None:
            at = np.fromiter(rows, np.int64, len(rows))
        if not len(at):
            return self
        files = np.zeros(len(self.states), np.bool_)
        files[at] = True
        plan = self.only(files, rows)
        inexact = plan.inexact.union(at[plan.states[at] == SOME_ROWS].tolist())
        return AccessPlan(plan.states, plan.rows, inexact)

    def also(self, rows: Mapping[int, Rows]) -> AccessPlan:
        """These rows of files of which nothing else is read; bounds say that they may match."""
        if not rows:
            return self
        more = RowsByFile.of(rows)
        states = self.states.copy()
        states[more.positions] = SOME_ROWS
        return AccessPlan(states, RowsByFile.united([self.rows, more]), self.inexact.union(more))

    def widened(self, rows: Mapping[int, Rows]) -> AccessPlan:
        """These rows, more than before, of files of which only some are read."""
        if not rows:
            return self
        more = RowsByFile.of(rows)
        others = self.rows.only(~np.isin(self.rows.positions, more.positions))
        return AccessPlan(self.states, RowsByFile.united([others, more]), self.inexact.union(more))

    def narrowable(self) -> list[int]:
        """Positions of the files of which all is read, or what bounds let through: those that can be narrowed more."""
        positions: list[int] = np.flatnonzero(self.states == SCANNED).tolist()
        return sorted([*positions, *self.inexact]) if self.inexact else positions

    def count(self, file_rows: RowNumbers) -> int:
        """How many rows are read, given how many each file has."""
        return int(file_rows[self.states == SCANNED].sum()) + self.rows.count

    def scanning(self, positions: Iterable[int]) -> AccessPlan:
        """These files whole, where something of them is read at all."""
        whole = np.isin(self.rows.positions, list(positions))
        states, left = self.states.copy(), self.rows.only(~whole)
        states[self.rows.positions[whole]] = SCANNED
        return AccessPlan(states, left, self.inexact.intersection(left))

    def by_rows(self, file_rows: RowNumbers) -> AccessPlan:
        """All rows of files that would be scanned, given how many each has.

        >>> plan = AccessPlan.scan_all(2).without(np.array([True, False])).by_rows(np.array([5, 7]))
        >>> plan.scanned(), {at: str(rows) for at, rows in plan.rows.items()}
        ([], {1: '0-7'})
        """
        whole = np.flatnonzero((self.states == SCANNED) & (file_rows > 0))
        places = Rows(whole << ROW_BITS, (whole << ROW_BITS) + file_rows[whole])
        states = np.where(self.states == SCANNED, np.int8(SKIPPED), self.states)
        states[whole] = SOME_ROWS
        return AccessPlan(states, RowsByFile.united([self.rows, RowsByFile(places)]), self.inexact)

    def of_files(self, positions: RowNumbers) -> AccessPlan:
        """The plan for the files at these positions, in this order."""
        numbers = {position: number for number, position in enumerate(positions.tolist())}
        rows = {numbers[position]: rows for position, rows in self.rows.items() if position in numbers}
        inexact = frozenset(numbers[position] for position in self.inexact if position in numbers)
        return AccessPlan(self.states[positions], RowsByFile.of(rows), inexact)

    def kept(self) -> int:
        """How many files something is read of."""
        return int(np.count_nonzero(self.states))

    def scanned(self) -> list[int]:
        """Positions of the files that are read whole."""
        positions: list[int] = np.flatnonzero(self.states == SCANNED).tolist()
        return positions
