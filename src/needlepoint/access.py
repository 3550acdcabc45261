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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RowNumbers = npt.NDArray[np.int64]


class Access(enum.Enum):
    """A file of which nothing, or everything, is read."""

    SKIP = "skip"
    SCAN = "scan"


@dataclass(frozen=True, slots=True)
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
        rows = np.unique(rows)
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1
        starts = rows[np.concatenate(([0], breaks))]
        stops = rows[np.concatenate((breaks - 1, [len(rows) - 1]))] + 1
        return cls(starts, stops)

    @property
    def count(self) -> int:
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
        return Rows.of(np.intersect1d(self.numbers(), other.numbers(), assume_unique=True))

    def __or__(self, other: Rows) -> Rows:
        return Rows.of(np.concatenate((self.numbers(), other.numbers())))

    def __str__(self) -> str:
        shown = [f"{a}-{b}" for a, b in zip(self.starts[:8].tolist(), self.stops[:8].tolist(), strict=True)]
        return ", ".join(shown) + (", …" if len(self.starts) > 8 else "")


Selection = Access | Rows


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """One selection for each file of a snapshot, in the snapshot's order."""

    selections: tuple[Selection, ...]

    @classmethod
    def scan_all(cls, files: int) -> AccessPlan:
        return cls((Access.SCAN,) * files)

    def narrow(self, selections: Sequence[Selection]) -> AccessPlan:
        """What both this plan and the given selections let through."""
        return AccessPlan(tuple(_both(a, b) for a, b in zip(self.selections, selections, strict=True)))

    def kept(self) -> list[int]:
        """Positions of the files of which something is read."""
        return [i for i, selection in enumerate(self.selections) if selection is not Access.SKIP]


def _both(left: Selection, right: Selection) -> Selection:
    if left is Access.SKIP or right is Access.SKIP:
        return Access.SKIP
    if left is Access.SCAN:
        both = right
    elif right is Access.SCAN:
        both = left
    else:
        both = left & right
    return Access.SKIP if isinstance(both, Rows) and both.count == 0 else both
