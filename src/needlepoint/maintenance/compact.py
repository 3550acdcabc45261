"""Compaction: small or badly ordered files become fewer and better ones, while queries go on.

choose    files by size, pages or order, partition by partition
rewrite   tasks read a group of files with pyarrow and write its new files into staging: types stay exact
swap      one batch adds the new files and removes the old ones
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from needlepoint.errors import FileChanged, NeedlepointError, StoreError, TableChanged, UsageError
from needlepoint.maintenance import choose
from needlepoint.maintenance.choose import TARGET, CompactionPlan, CompactionSpec, FileGroup, layout_mark
from needlepoint.maintenance.merge import (
    MergeResult,
    MergeTask,
    RangePiece,
    SampleTask,
    SourceFile,
    SplitTask,
    merge,
    sample,
    split,
)
from needlepoint.maintenance.ordering import SAMPLE_ROWS, RowOrder, boundaries, cuts_of
from needlepoint.maintenance.swap import SWAP_BYTES, MaintenanceContext, Replacement, in_portions, swap
from needlepoint.maintenance.tasks import TaskRunner, run_here
from needlepoint.parquet.write import Pages
from needlepoint.tables import File, Layout, StagedFile, Table, lookup_columns

# Entries of deleted files make up more than this share of a key index when it is worth sweeping after a compaction.
WORTH_A_SWEEP = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Compaction:
    """What was done: `files` became `new_files`, in so many swaps. `left` are files that should have been rewritten and
    were not, with the reason."""

    files: int = 0
    new_files: int = 0
    rows: int = 0
    bytes: int = 0
    new_bytes: int = 0
    swaps: int = 0
    left: tuple[tuple[str, str], ...] = ()

    def with_swap(self, made: Replacement, left: Sequence[tuple[str, str]]) -> Compaction:
        return Compaction(
            self.files + len(made.removed),
            self.new_files + len(made.staged),
            self.rows + sum(file.rows for file in made.staged),
            self.bytes + sum(file.identity.size for file in made.removed),
            self.new_bytes + sum(file.size for file in made.staged),
            self.swaps + 1,
            (*self.left, *left),
        )


def compaction_spec(
    *,
    sort_by: Sequence[str] = (),
    zorder: Sequence[str] = (),
    target_size: int = TARGET,
    page_rows: int | None = None,
    partition: Mapping[str, object] | None = None,
) -> CompactionSpec:
    if sort_by and zorder:
        raise UsageError("sort_by and zorder are two orders.", hint="Give one of them.")
    columns = tuple(sort_by or zorder)
    if len(set(columns)) != len(columns):
        raise UsageError(f"rows are to be ordered by {', '.join(columns)}.", hint="Name each column once.")
    order = RowOrder(columns, zorder=bool(zorder)) if columns else None
    values = tuple((name, str(value)) for name, value in (partition or {}).items())
    return CompactionSpec(target_size, order, page_rows, values)


def plan_compaction(context: MaintenanceContext, table: str, spec: CompactionSpec) -> CompactionPlan:
    """Which files a compaction rewrites. The table is synced first."""
    registry = context.registry
    context.writer.refuse_removing(table)
    choose.check(registry.tables.get(table), spec)
    context.sync(table)
    found = registry.tables.get(table)

    def largest_page(file: File) -> int:
        card = context.engine.cards.get(file)
        return 0 if card is None else card.largest_page()

    files = [file for file in registry.files.of(found) if file.rows is not None]
    return choose.choose(found, files, spec, largest_page)


def compact(
    context: MaintenanceContext,
    table: str,
    spec: CompactionSpec,
    *,
    keep: float = 0.0,
    index: bool = True,
    swap_bytes: int = SWAP_BYTES,
    runner: TaskRunner = run_here,
) -> Compaction:
    """Rewrite files of a table into fewer and better ones. `Lake.compact` explains the options."""
    plan = plan_compaction(context, table, spec)
    done = Compaction(left=plan.left)
    total = sum(len(group.files) for group in plan.groups)
    context.progress("compacting", 0, total)
    for groups in in_portions(plan.groups, lambda group: group.bytes, swap_bytes):
        done = _compact_groups(context, table, groups, spec, keep, index, runner, done)
        context.progress("compacting", done.files + len(done.left) - len(plan.left), total)
    if plan.groups and index:
        context.sweep_entries(table, WORTH_A_SWEEP)
    return done


def _compact_groups(
    context: MaintenanceContext,
    table: str,
    groups: Sequence[FileGroup],
    spec: CompactionSpec,
    keep: float,
    index: bool,
    runner: TaskRunner,
    done: Compaction,
) -> Compaction:
    left: list[tuple[str, str]] = []

    def rewrite(staging: Path) -> Replacement:
        try:
            made, changed = _Rewrite(context, table, spec, staging, runner).run(groups)
        except NeedlepointError:
            raise
        except Exception as failure:
            raise StoreError(f"compacting table '{table}' failed: {failure}.", hint="Nothing was changed.") from failure
        left.extend(changed)
        if sum(file.rows for file in made.staged) != sum(file.rows or 0 for file in made.removed):
            raise StoreError(
                f"the new files of table '{table}' do not have the rows of the old ones.", hint="Nothing was changed."
            )
        return made

    try:
        return done.with_swap(swap(context, table, rewrite, keep=keep, index=index), left)
    except TableChanged as error:
        changed = [(file.path, error.message) for group in groups for file in group.files]
        return dataclasses.replace(done, left=(*done.left, *changed))


class _Rewrite:
    """The files of one swap, from old to new."""

    def __init__(
        self, context: MaintenanceContext, table: str, spec: CompactionSpec, staging: Path, runner: TaskRunner
    ) -> None:
        self._runner = runner
        self._table: Table = context.registry.tables.get(table)
        self._spec = spec
        self._staging = staging
        self._finisher = context.writer.finisher(table)
        layout = Layout()
        looked_up = lookup_columns(context.registry.indexes.of(self._table))
        self._pages = Pages(spec.page_rows or layout.page_rows, layout.page_bytes, layout.compression, looked_up)
        self._mark = (layout_mark(spec.order),) if spec.order is not None else ()

    def run(self, groups: Sequence[FileGroup]) -> tuple[Replacement, list[tuple[str, str]]]:
        """The new files with the old ones that they replace, and the files that stay for now, with the reason."""
        tasks, failed = self._tasks(groups)
        made = self._runner(merge, [task for _, task in tasks])
        changed = {number: each for (number, _), each in zip(tasks, made, strict=True) if isinstance(each, FileChanged)}
        failed = changed | failed
        staged = [
            StagedFile(each.path, groups[number].directory, each.size, each.rows, own=True)
            for (number, _), each in zip(tasks, made, strict=True)
            if isinstance(each, MergeResult) and number not in failed and each.rows
        ]
        removed = [file for number, group in enumerate(groups) if number not in failed for file in group.files]
        left = [(file.path, error.message) for number, error in failed.items() for file in groups[number].files]
        return Replacement(staged, removed), left

    def _tasks(self, groups: Sequence[FileGroup]) -> tuple[list[tuple[int, MergeTask]], dict[int, FileChanged]]:
        """Merges by the number of their group, and groups that changed."""
        order = self._spec.order
        sources = [tuple(self._source(file) for file in group.files) for group in groups]
        several = [number for number, group in enumerate(groups) if order is not None and group.outputs > 1]
        tasks = [
            (number, self._merge(number, 0, sources[number], order, group.directory))
            for number, group in enumerate(groups)
            if number not in several
        ]
        if order is None or not several:
            return tasks, {}
        splits, failed = self._splits(groups, sources, several, order)
        found = self._runner(split, [task for _, task in splits])
        pieces: dict[tuple[int, int], list[RangePiece]] = {}
        for (number, _), made in zip(splits, found, strict=True):
            if isinstance(made, FileChanged):
                failed[number] = made
            else:
                for piece in made:
                    pieces.setdefault((number, piece.part), []).append(piece)
        orders = {number: task.order for number, task in splits}
        for (number, part), some in sorted(pieces.items()):
            if number not in failed:
                task = self._merge(number, part, sources[number], orders[number], groups[number].directory)
                tasks.append((number, dataclasses.replace(task, pieces=tuple(piece.path for piece in some))))
        return tasks, failed

    def _splits(
        self,
        groups: Sequence[FileGroup],
        sources: Sequence[tuple[SourceFile, ...]],
        several: Sequence[int],
        order: RowOrder,
    ) -> tuple[list[tuple[int, SplitTask]], dict[int, FileChanged]]:
        """How to cut the rows of groups that become several files, by ranges of their keys."""
        samples = [
            (number, SampleTask(source, order.columns, _sample_rows(source, groups[number])))
            for number in several
            for source in sources[number]
        ]
        found = self._runner(sample, [task for _, task in samples])
        failed = {
            number: made for (number, _), made in zip(samples, found, strict=True) if isinstance(made, FileChanged)
        }
        tasks: list[tuple[int, SplitTask]] = []
        for number in (each for each in several if each not in failed):
            rows = [
                made
                for (of, _), made in zip(samples, found, strict=True)
                if of == number and isinstance(made, pa.Table)
            ]
            columns = pa.concat_tables(rows)
            own = order
            if order.zorder:
                own = dataclasses.replace(order, cuts=cuts_of(RowOrder(order.columns).keys(columns)))
            keys = own.keys(columns)
            cuts = boundaries(keys, groups[number].outputs) if keys.num_rows else keys
            directory = f"{self._staging}/_pieces/{number}"
            tasks += [(number, SplitTask(source, own, cuts, directory)) for source in sources[number]]
        return tasks, failed

    def _merge(
        self, group: int, part: int, sources: tuple[SourceFile, ...], order: RowOrder | None, directory: str
    ) -> MergeTask:
        # The directory names the partition, as in the table.
        target = "/".join(filter(None, (str(self._staging), directory, f"{group:05d}-{part:05d}")))
        return MergeTask(sources, target, self._pages, order, self._mark, finisher=self._finisher)

    def _source(self, file: File) -> SourceFile:
        return SourceFile(f"{self._table.location}/{file.path}", file.identity.elsewhere())


def _sample_rows(source: SourceFile, group: FileGroup) -> int:
    """More of a larger file."""
    return max(100, SAMPLE_ROWS * source.identity.size // max(group.bytes, 1))
