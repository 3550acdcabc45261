"""Plans of queries that run again over the same files.

What a query reads depends on its text, parameters and views, and on the snapshots of its tables. Unless the next run
might read the files in another way, the plan is kept as long as the snapshots are the newest. It is kept for two
seconds only where there are indexes, of which one may not have answered, and where pages were weighed against a scan.
The files are compared with their snapshot before and after each run, as without a kept plan.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from needlepoint.parquet import ByteCache
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.datafusion.kept_frames import KeptFrames
from needlepoint.query.datafusion.plan_cache import LIMIT_BYTES, plan_bytes
from needlepoint.query.execution import QueryPlan
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.sql.plan_facts import PlanFacts

# Of a file in a list that DataFusion has, once for each context.
FILE_BYTES = 1000
LONGEST_KEPT = 2.0
"""Seconds for which a plan is kept that may be another one later: an index that could not be read may be back."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan, the facts that decide its options, and until when it is kept."""

    plan: QueryPlan
    facts: PlanFacts
    until: float


class KeptPlans:
    """The plans of one lake in this process, by what they depend on besides the snapshots (plan_cache.py)."""

    def __init__(self) -> None:
        self._kept: ByteCache[KeptPlan] = ByteCache(LIMIT_BYTES)

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, states: Mapping[str, TableState]) -> KeptPlan | None:
        """The plan for these states of its tables."""
        found = self._kept.get((frozenset(states), key))
        if found is None or any(found.plan.states[name] is not state for name, state in states.items()):
            return None
        return found if time.monotonic() < found.until else None

    def keep(self, key: Hashable, plan: QueryPlan, facts: PlanFacts) -> QueryPlan:
        """The plan as it is kept, with room for frames; as it is, if it cannot be kept."""
        scans = (*plan.scans.values(), *plan.unscanned)
        if plan.reads or plan.scores or plan.lists_tables or plan.known or not all(map(_is_settled, scans)):
            return plan
        if not any(scan.paged for scan in scans):  # rows are read for each run
            plan = replace(plan, frames=KeptFrames())
        size = plan_bytes(plan.query, plan.views) + sum(map(_bytes, scans))
        has_index = any(state.snapshot.indexes for state in plan.states.values())
        may_change = has_index or any(scan.paged or scan.overruled for scan in scans)
        until = time.monotonic() + (LONGEST_KEPT if may_change else float("inf"))
        self._kept.put((frozenset(plan.states), key), KeptPlan(plan, facts, until), size)
        return plan

    def forget(self, table: str) -> None:
        """Drop the plans of a table that has changed: they refer to what is known of its old files."""
        self._kept.discard(lambda key: table in key[0])


def _is_settled(scan: ScanPlan) -> bool:
    """Whether the next run would read each file in the same way, and can."""
    is_chosen = scan.undecided is None or scan.undecided.is_settled
    return is_chosen and not (scan.postponed or scan.held or scan.remote)


def _bytes(scan: ScanPlan) -> int:
    """Of the files, and of the rows that each step left."""
    plans = [scan.access] if scan.pruning is None else [scan.access, *scan.pruning.accesses]
    return FILE_BYTES * len(scan.scanned) + sum(each.rows.places.starts.nbytes * 2 for each in plans)
