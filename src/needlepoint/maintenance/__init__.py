"""Replace files of a table by others: compaction and deletion, without Spark.

swap        the one way to replace files: stage, publish in one batch, index
compact     small or badly ordered files become fewer and better ones
choose      which files are rewritten, and into how many
merge       several files become others, in tasks
ordering    the order of rows: by columns or along a Z-order curve
tasks       how tasks run: here, or by a runner that the caller gives
delete      rows, files, partitions and expired rows
retrofit    page indexes and bloom filters, added to files in their places
maintained  the methods of a lake for all this
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.on_demand import on_demand

if TYPE_CHECKING:
    from needlepoint.maintenance.choose import CompactionPlan
    from needlepoint.maintenance.compact import Compaction, compaction_spec, plan_compaction
    from needlepoint.maintenance.delete import Deletion
    from needlepoint.maintenance.maintained import MaintainedTables
    from needlepoint.maintenance.swap import Finisher, MaintenanceContext
    from needlepoint.maintenance.tasks import attempt, run_here

__all__ = [
    "Compaction",
    "CompactionPlan",
    "Deletion",
    "Finisher",
    "MaintainedTables",
    "MaintenanceContext",
    "attempt",
    "compaction_spec",
    "plan_compaction",
    "run_here",
]

__getattr__ = on_demand(
    __name__,
    {
        "choose": "CompactionPlan",
        "compact": "Compaction compaction_spec plan_compaction",
        "delete": "Deletion",
        "maintained": "MaintainedTables",
        "swap": "Finisher MaintenanceContext",
        "tasks": "attempt run_here",
    },
)
