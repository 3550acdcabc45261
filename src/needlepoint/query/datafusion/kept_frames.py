"""What DataFusion made of a query's SQL and its tables, for queries that run again over the same files.

It is the plan before optimization: DataFusion optimizes it for each run, as it plans the reads. Each run has a frame of
its own, since a frame remembers what its last run read.
"""

from __future__ import annotations

import datafusion

# One that filters while it reads, and one that filters after that; others have footers of another generation.
MOST_CONTEXTS = 2


class KeptFrames:
    """The plans of one query, by the context that they were made in."""

    def __init__(self) -> None:
        self._plans: dict[datafusion.SessionContext, datafusion.LogicalPlan] = {}

    def frame(self, context: datafusion.SessionContext) -> datafusion.DataFrame | None:
        """A frame for another run in this context."""
        plan = self._plans.get(context)
        return None if plan is None else context.create_dataframe_from_logical_plan(plan)

    def keep(self, context: datafusion.SessionContext, frame: datafusion.DataFrame) -> None:
        others = self._plans if len(self._plans) < MOST_CONTEXTS else {}
        self._plans = {**others, context: frame.logical_plan()}
