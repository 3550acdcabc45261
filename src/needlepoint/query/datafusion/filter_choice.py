"""When DataFusion filters rows: while it reads a file, or after that.

While it reads, it decodes the columns of the filter first, and of the others only the rows that pass. That is faster if
few rows pass or they are neighbours, and slower if they are many or scattered: up to 1.7 times either way, on TPC-H. No
estimate tells the two apart well, since filters that joins make while they run count too. So a query of the same text,
values aside, tries both, and then keeps the faster:

>>> choice = FilterChoice()
>>> for seconds in (0.9, 0.3, 0.5):  # the first run is often slower, because caches are empty
...     late = choice.choose("SELECT …", first=False)
...     choice.note("SELECT …", late, seconds)
>>> choice.choose("SELECT …", first=False)
True
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from needlepoint.predicate import Between, Compare, IsNotNull, leaves
from needlepoint.query.scan.scan_plan import ScanPlan

# Queries that take less are not worth a second try.
WORTH_SECONDS = 0.02
MOST_SHAPES = 1000


@dataclass(slots=True)
class _Tried:
    """How often a query ran, and the least seconds with either choice."""

    first: bool
    runs: int = 0
    best: dict[bool, float] = field(default_factory=dict)

    def next(self) -> bool:
        if self.best and min(self.best.values()) < WORTH_SECONDS:
            return self.first
        for late in (self.first, not self.first):
            if late not in self.best:
                return late
        return self.first if self.runs < 3 else self.best[True] <= self.best[False]


class FilterChoice:
    """The choices of one lake in this process, by the hash of a query. Less than `worth_bytes` are read too quickly to
    matter."""

    def __init__(self, worth_bytes: int = 1 << 20) -> None:
        self.worth_bytes = worth_bytes
        self._tried: dict[int, _Tried] = {}
        self._lock = threading.Lock()

    def is_worth(self, scans: Iterable[ScanPlan]) -> bool:
        return sum(file.identity.size for scan in scans for file in scan.scanned) > self.worth_bytes

    def choose(self, shape: str, first: bool) -> bool:
        """Whether to filter while reading; `first` is the choice for a query that did not run yet."""
        with self._lock:
            tried = self._tried.get(hash(shape))
            return first if tried is None else tried.next()

    def note(self, shape: str, late: bool, seconds: float) -> None:
        with self._lock:
            tried = self._tried.pop(hash(shape), None) or _Tried(late)
            tried.best[late] = min(seconds, tried.best.get(late, seconds))
            tried.runs += 1
            while len(self._tried) >= MOST_SHAPES:
                self._tried.pop(next(iter(self._tried)))
            self._tried[hash(shape)] = tried


def first_choice(scans: Iterable[ScanPlan], joins: bool) -> bool:
    """Ranges usually let many rows pass, and so do the filters that joins make; other conditions few."""
    if joins:
        return False
    conditions = [leaf for scan in scans for leaf in leaves(scan.predicate)]
    return not conditions or not all(
        isinstance(leaf, Between | IsNotNull) or (isinstance(leaf, Compare) and leaf.operator not in ("=", "<>"))
        for leaf in conditions
    )
