"""When DataFusion filters rows: while it reads a file, or after that.

While it reads, it decodes the columns of the filter first, and of the others only the rows that pass. That is faster if
few rows pass or they are neighbours, and slower if they are many or scattered: up to 1.7 times either way, on TPC-H. No
estimate tells the two apart well, since filters that joins make while they run count too. So a query of the same text,
values aside, tries both, and then keeps the faster (timed_choice.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from needlepoint.predicate import Between, Compare, IsNotNull, leaves
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.timed_choice import TimedChoice

# Queries that take less are not worth a second try.
WORTH_SECONDS = 0.004


class FilterChoice(TimedChoice):
    """Whether to filter while reading, by the text of a query. Less than `worth_bytes` are read too quickly to
    matter."""

    def __init__(self, worth_bytes: int = 1 << 20) -> None:
        super().__init__(WORTH_SECONDS)
        self.worth_bytes = worth_bytes

    def is_worth(self, scans: Iterable[ScanPlan]) -> bool:
        return sum(file.identity.size for scan in scans for file in scan.scanned) > self.worth_bytes


def first_choice(scans: Iterable[ScanPlan], joins: bool) -> bool:
    """Ranges usually let many rows pass, and so do the filters that joins make; other conditions few."""
    if joins:
        return False
    conditions = [leaf for scan in scans for leaf in leaves(scan.predicate)]
    return not conditions or not all(
        isinstance(leaf, Between | IsNotNull) or (isinstance(leaf, Compare) and leaf.operator not in ("=", "<>"))
        for leaf in conditions
    )
