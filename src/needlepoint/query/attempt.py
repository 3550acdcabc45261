"""The ways in which a query is tried, and the failures after which it is tried in the next one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from needlepoint.errors import NeedlepointError, SqlError
from needlepoint.query.scan.scan_plan import ScanPlan


class Attempt(Enum):
    """How a query runs: with all optimizations; without skipping rows, which some files do not support; with as few
    optimizer rules as possible, after an internal failure; or with conditions that tell DataFusion nothing, after
    another one."""

    FIRST = "first"
    WHOLE = "whole"
    PLAIN = "plain"
    OPAQUE = "opaque"

    @property
    def follows_failure(self) -> bool:
        return self in (Attempt.PLAIN, Attempt.OPAQUE)


class CannotSkip(NeedlepointError):
    """DataFusion's reader cannot skip rows in some encodings (DELTA_BINARY_PACKED as DuckDB writes it), but it can
    read them whole: the query is retried without filter pushdown. A file that fails again is damaged."""

    def __init__(self, text: str, scans: Sequence[ScanPlan] = ()) -> None:
        self.scans = scans
        super().__init__(text)


class EngineFault(SqlError):
    """DataFusion failed internally on a query that may be valid. The query is retried with fewer optimizations before
    a user sees this."""
