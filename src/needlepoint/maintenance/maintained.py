"""The methods of a lake that replace files of its tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from needlepoint.maintenance.choose import TARGET
from needlepoint.maintenance.swap import SWAP_BYTES, MaintenanceContext
from needlepoint.maintenance.tasks import TaskRunner, run_here

if TYPE_CHECKING:
    from needlepoint.maintenance.compact import Compaction
    from needlepoint.maintenance.delete import Deletion
    from needlepoint.parquet.write import RetrofitReport


class MaintainedTables(ABC):
    """What a lake inherits."""

    @abstractmethod
    def _maintenance(self) -> MaintenanceContext:
        """The parts of the lake."""

    def compact(
        self,
        table: str,
        *,
        sort_by: Sequence[str] = (),
        zorder: Sequence[str] = (),
        target_size: int = TARGET,
        page_rows: int | None = None,
        partition: Mapping[str, object] | None = None,
        keep: float = 0.0,
        index: bool = True,
        swap_bytes: int = SWAP_BYTES,
        runner: TaskRunner = run_here,
    ) -> Compaction:
        """Rewrite files of a table into fewer and better ones; docs/layout.md says which, and what readers see.

        Without an order these are small files, and with `page_rows` also files with larger pages; with `sort_by` or
        `zorder` all files of a partition that are not in this order yet. `partition` limits it to some partitions, as
        `{"year": 2024}`. Old files are deleted `keep` seconds after their swap. With `index` the new files are indexed
        at once, otherwise by the indexer that follows the queue. One swap replaces files of at most `swap_bytes`. The
        work is done in this process, one file after the other; `needlepoint.spark.compact` gives a `runner` that does
        it in tasks of Spark.
        """
        from needlepoint.maintenance.compact import compact, compaction_spec

        spec = compaction_spec(
            sort_by=sort_by, zorder=zorder, target_size=target_size, page_rows=page_rows, partition=partition
        )
        return compact(self._maintenance(), table, spec, keep=keep, index=index, swap_bytes=swap_bytes, runner=runner)

    def delete(self, table: str, where: str, *, dry_run: bool = False) -> Deletion:
        """Delete the rows for which a condition is true, as `lake.sql` understands it after WHERE; rows for which it is
        NULL stay. With `dry_run` nothing is deleted, and the result says what would be."""
        from needlepoint.maintenance.delete import delete

        return delete(self._maintenance(), table, where, dry_run=dry_run)

    def delete_files(self, table: str, paths: Sequence[str], *, dry_run: bool = False) -> Deletion:
        """Delete whole files of a table, by their paths."""
        from needlepoint.maintenance.delete import delete_files

        return delete_files(self._maintenance(), table, paths, dry_run=dry_run)

    def drop_partition(
        self, table: str, partition: Mapping[str, Any] | None = None, /, *, dry_run: bool = False, **named: Any
    ) -> Deletion:
        """Delete all files of a partition, or of all partitions with these values: `drop_partition("t", year=2023)`."""
        from needlepoint.maintenance.delete import drop_partition

        return drop_partition(self._maintenance(), table, {**(partition or {}), **named}, dry_run=dry_run)

    def expire(self, table: str, column: str, before: Any, *, dry_run: bool = False) -> Deletion:
        """Delete the rows whose column is less than a value: for a partition column whole files, without reading
        them."""
        from needlepoint.maintenance.delete import expire

        return expire(self._maintenance(), table, column, before, dry_run=dry_run)

    def retrofit(self, table: str, *, page_index: bool = True, bloom: Sequence[str] = ()) -> list[RetrofitReport]:
        """Add Parquet's own page indexes, and bloom filters of some columns, to the files of a table that lack them,
        and sync it. A file that lacks one of the columns gets no filter of it."""
        from needlepoint.maintenance.retrofit import retrofit_table

        context = self._maintenance()
        context.writer.refuse_foreign(table, "Its own tools can write them: see docs/tables-of-others.md.")
        return retrofit_table(context, table, page_index, bloom)
