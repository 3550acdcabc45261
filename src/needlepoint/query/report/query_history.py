"""The interface by which the engine reports each query. The advisor implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from needlepoint.parquet import ReadStats
from needlepoint.predicate import Predicate
from needlepoint.query.point_lookup import PointLookup
from needlepoint.query.scan.scan_plan import ScanMetrics, ScanPlan
from needlepoint.tables import Index, Snapshot


class QueryHistory(Protocol):
    def note(
        self,
        scan: ScanPlan,
        done: ScanMetrics,
        seconds: float,
        scanned: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        """Add one scan of a query. `scanned` returns what a native scan read."""

    def note_lookup(
        self,
        snapshot: Snapshot,
        index: Index,
        lookup: PointLookup,
        reads: Sequence[ReadStats],
        matched: int,
        files: int,
        seconds: float,
    ) -> None:
        """Add one point lookup, whose rows a key index named."""

    def note_search(
        self,
        snapshot: Snapshot,
        column: str,
        predicate: Predicate,
        columns: frozenset[str],
        reads: Sequence[ReadStats],
        matched: int,
        files: int,
        seconds: float,
    ) -> None:
        """Add one ranked search of a column, whose rows text indexes named; `columns` were read of them."""
