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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

RowNumbers = npt.NDArray[np.int64]


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
            rows = np.unique(rows)
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

SKIPPED, SCANNED, SOME_ROWS = 0, 1, 2  # the states of files in an access plan


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """One selection for each file of a snapshot, in the snapshot's order: states in an array, and `rows` by place for
    the files of which only some are read. Tables have many files and lookups few rows.

    The rows of files in `inexact` come from bounds, and most of them may not match; others come from an index."""

    states: npt.NDArray[np.int8]
    rows: Mapping[int, Rows]
    inexact: frozenset[int] = frozenset()

    @classmethod
    def scan_all(cls, files: int) -> AccessPlan:
        return cls(np.full(files, SCANNED, np.int8), {})

    def selection(self, position: int) -> Selection:
        if position in self.rows:
            return self.rows[position]
        return Access.SCAN if self.states[position] == SCANNED else Access.SKIP

    def without(self, files: npt.NDArray[np.bool_]) -> AccessPlan:
        """Nothing of these files."""
        states = np.where(files, np.int8(SKIPPED), self.states)
        left = {at: rows for at, rows in self.rows.items() if not files[at]}
        return AccessPlan(states, left, self.inexact.intersection(left))

    def only(self, files: npt.NDArray[np.bool_], rows: Mapping[int, Rows]) -> AccessPlan:
        """Of these files only these rows; of the others what was read before."""
        plan = self.without(files)
        states, found = plan.states, dict(plan.rows)
        for position, wanted in rows.items():
            before = self.selection(position)
            if not files[position] or before is Access.SKIP:
                continue
            both = wanted if before is Access.SCAN else before & wanted
            if both.count:
                states[position], found[position] = SOME_ROWS, both
        return AccessPlan(states, found, plan.inexact)

    def narrowed(self, rows: Mapping[int, Rows]) -> AccessPlan:
        """Of the files named only these rows, where bounds say so: a reader looks at them again before it reads more.

        Files that are not named stay as they are.
        """
        if not rows:
            return self
        states, found, inexact = self.states.copy(), dict(self.rows), set(self.inexact)
        for position, wanted in rows.items():
            before = self.selection(position)
            both = wanted if before is Access.SCAN else before & wanted if isinstance(before, Rows) else None
            if both is None or not both.count:
                states[position] = SKIPPED
                found.pop(position, None)
                inexact.discard(position)
            else:
                states[position], found[position] = SOME_ROWS, both
                inexact.add(position)
        return AccessPlan(states, found, frozenset(inexact))

    def also(self, rows: Mapping[int, Rows]) -> AccessPlan:
        """These rows of files of which nothing else is read; bounds say that they may match."""
        if not rows:
            return self
        states = self.states.copy()
        states[list(rows)] = SOME_ROWS
        return AccessPlan(states, {**self.rows, **rows}, self.inexact | rows.keys())

    def widened(self, rows: Mapping[int, Rows]) -> AccessPlan:
        """These rows, more than before, of files of which only some are read."""
        return AccessPlan(self.states, {**self.rows, **rows}, self.inexact | rows.keys()) if rows else self

    def narrowable(self) -> list[int]:
        """Positions of the files of which all is read, or what bounds let through: those that can be narrowed more."""
        positions: list[int] = np.flatnonzero(self.states == SCANNED).tolist()
        return sorted([*positions, *self.inexact]) if self.inexact else positions

    def count(self, file_rows: RowNumbers) -> int:
        """How many rows are read, given how many each file has."""
        return int(file_rows[self.states == SCANNED].sum()) + sum(rows.count for rows in self.rows.values())

    def scanning(self, positions: Iterable[int]) -> AccessPlan:
        """These files whole, where something of them is read at all."""
        states, rows = self.states.copy(), dict(self.rows)
        for position in positions:
            if rows.pop(position, None) is not None:
                states[position] = SCANNED
        return AccessPlan(states, rows, self.inexact.intersection(rows))

    def by_rows(self, file_rows: RowNumbers) -> AccessPlan:
        """All rows of files that would be scanned, given how many each has.

        >>> plan = AccessPlan.scan_all(2).without(np.array([True, False])).by_rows(np.array([5, 7]))
        >>> plan.scanned(), {at: str(rows) for at, rows in plan.rows.items()}
        ([], {1: '0-7'})
        """
        whole = {at: Rows(np.array([0]), file_rows[at : at + 1]) for at in self.scanned() if file_rows[at]}
        states = np.where(self.states == SCANNED, np.int8(SKIPPED), self.states)
        states[list(whole)] = SOME_ROWS
        return AccessPlan(states, {**self.rows, **whole}, self.inexact)

    def kept(self) -> int:
        """How many files something is read of."""
        return int(np.count_nonzero(self.states))

    def scanned(self) -> list[int]:
        """Positions of the files that are read whole."""
        positions: list[int] = np.flatnonzero(self.states == SCANNED).tolist()
        return positions
