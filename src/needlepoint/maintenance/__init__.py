"""Replace files of a table by others: compaction and deletion, without Spark.

swap      the one way to replace files: stage, publish in one batch, index
compact   small or badly ordered files become fewer and better ones
choose    which files are rewritten, and into how many
merge     several files become others, in tasks
ordering  the order of rows: by columns or along a Z-order curve
tasks     how tasks run: here, or by a runner that the caller gives
delete    rows, files, partitions and expired rows
retrofit  page indexes and bloom filters, added to files in their places
"""

from needlepoint.maintenance.choose import TARGET, CompactionPlan
from needlepoint.maintenance.compact import Compaction, compact, compaction_spec, plan_compaction
from needlepoint.maintenance.delete import Deletion, delete, delete_files, drop_partition, expire
from needlepoint.maintenance.retrofit import retrofit_table
from needlepoint.maintenance.swap import SWAP_BYTES, Finisher, MaintenanceContext
from needlepoint.maintenance.tasks import TaskRunner, attempt, run_here

__all__ = [
    "SWAP_BYTES",
    "TARGET",
    "Compaction",
    "CompactionPlan",
    "Deletion",
    "Finisher",
    "MaintenanceContext",
    "TaskRunner",
    "attempt",
    "compact",
    "compaction_spec",
    "delete",
    "delete_files",
    "drop_partition",
    "expire",
    "plan_compaction",
    "retrofit_table",
    "run_here",
]
