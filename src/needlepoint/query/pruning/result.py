"""The output of pruning."""

from __future__ import annotations

from dataclasses import dataclass

from needlepoint.access import AccessPlan
from needlepoint.parquet import ReadStats
from needlepoint.query.report.explain import IndexUse, StepReport


@dataclass(frozen=True, slots=True)
class StepResult:
    """The access plan after a step, the indexes that it considered, and what it read from files."""

    access: AccessPlan
    indexes: tuple[IndexUse, ...] = ()
    reads: tuple[ReadStats, ...] = ()


@dataclass(frozen=True, slots=True)
class PruningResult:
    """The access plan after all steps, what each step ruled out, the indexes considered, what the steps read, and the
    access plan after each step."""

    access: AccessPlan
    steps: tuple[StepReport, ...] = ()
    indexes: tuple[IndexUse, ...] = ()
    reads: tuple[ReadStats, ...] = ()
    accesses: tuple[AccessPlan, ...] = ()
