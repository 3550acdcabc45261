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

from collections.abc import Iterable
from dataclasses import dataclass, field

from needlepoint.predicate import Between, Compare, IsNotNull, leaves
from needlepoint.query.scan.scan_plan import ScanPlan

# Queries that take less are not worth a second try.
WORTH_SECONDS = 0.02
# Less is read too quickly to matter.
WORTH_BYTES = 1 << 20
MOST_SHAPES = 1000


@dataclass(slots=True)
class _Tried:
    """How often a query ran, and the least seconds with either choice."""

    first: bool
    runs: int = 0
    best: dict[bool, float] = field(default_factory=dict)


class FilterChoice:
    """The choices of one lake in this process. Threads may lose each other's notes, which does no harm."""

    def __init__(self) -> None:
        self._tried: dict[str, _Tried] = {}

    def choose(self, shape: str, first: bool) -> bool:
        """Whether to filter while reading; `first` is the choice for a query that did not run yet."""
        tried = self._tried.get(shape)
        if tried is None or min(tried.best.values()) < WORTH_SECONDS:
            return first if tried is None else tried.first
        if tried.runs < 3:
            return tried.first if tried.runs == 2 else not tried.first
        return tried.best[True] <= tried.best[False]

    def note(self, shape: str, late: bool, seconds: float) -> None:
        tried = self._tried.get(shape)
        if tried is None:
            if len(self._tried) >= MOST_SHAPES:
                self._tried.pop(next(iter(self._tried)))
            tried = self._tried[shape] = _Tried(late)
        tried.best[late] = min(seconds, tried.best.get(late, seconds))
        tried.runs += 1


def is_worth_a_choice(scans: Iterable[ScanPlan]) -> bool:
    return sum(file.identity.size for scan in scans for file in scan.scanned) > WORTH_BYTES


def first_choice(scans: Iterable[ScanPlan], joins: bool) -> bool:
    """Ranges usually let many rows pass, and so do the filters that joins make; other conditions few."""
    if joins:
        return False
    conditions = [leaf for scan in scans for leaf in leaves(scan.predicate)]
    return not conditions or not all(
        isinstance(leaf, Between | IsNotNull) or (isinstance(leaf, Compare) and leaf.operator not in ("=", "<>"))
        for leaf in conditions
    )
