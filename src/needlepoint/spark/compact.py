"""Compaction: small or badly laid out files become fewer and better ones, while queries go on.

    choose    files by size, pages or order, partition by partition
    rewrite   Spark tasks read a group of files with pyarrow and write its new files into staging: types stay exact
    swap      one batch adds the new files and takes out the old ones; a query sees these or those
    index     what the new files lack, here and now

A swap is of limited size, so that a compaction that is killed loses little: what was swapped stays, and the next one
finds the rest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from needlepoint.errors import FileChanged, StoreError, TableChanged, UsageError
from needlepoint.maintenance.choose import TARGET, Choice, Group, Wish, layout_mark, swaps
from needlepoint.maintenance.merge import Merge, Merged, Piece, Sample, Source, Split, merge, sample, split
from needlepoint.maintenance.ordering import SAMPLE_ROWS, Order, boundaries, cuts_of
from needlepoint.objects import remove_directory
from needlepoint.parquet.write.rewrite import Pages
from needlepoint.spark.failures import translated
from needlepoint.spark.stage import KIB, Layout
from needlepoint.spark.tasks import spread
from needlepoint.tables.staged_file import StagedFile

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from needlepoint.lake import Lake
    from needlepoint.tables.model import File, Table

SWAP_BYTES = 4 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class Compaction:
    """What was done: `files` became `new_files`, in so many swaps. `left` are files that stay as they are though they
    should not, with the reason."""

    files: int = 0
    new_files: int = 0
    rows: int = 0
    bytes: int = 0
    new_bytes: int = 0
    swaps: int = 0
    left: tuple[tuple[str, str], ...] = ()


def wish(
    *,
    sort_by: Sequence[str] = (),
    zorder: Sequence[str] = (),
    target_size: int = TARGET,
    page_rows: int | None = None,
    partition: Mapping[str, object] | None = None,
) -> Wish:
    if sort_by and zorder:
        raise UsageError("sort_by and zorder are two orders.", hint="Give one of them.")
    columns = tuple(sort_by or zorder)
    if len(set(columns)) != len(columns):
        raise UsageError(f"rows are to be ordered by {', '.join(columns)}.", hint="Name each column once.")
    order = Order(columns, zorder=bool(zorder)) if columns else None
    return Wish(target_size, order, page_rows, tuple((name, str(value)) for name, value in (partition or {}).items()))


def compact(
    spark: SparkSession | None,
    lake: Lake,
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
) -> Compaction:
    """Rewrite files of a table into fewer and better ones; docs/layout.md says which, and what readers see meanwhile.

    Without a session the work is done here, one file after the other, which for small tables is quicker than starting
    Spark. Old files are deleted `keep` seconds after their swap. With `index` the new files are indexed at once,
    otherwise by whoever follows the queue.
    """
    wanted = wish(sort_by=sort_by, zorder=zorder, target_size=target_size, page_rows=page_rows, partition=partition)
    choice = lake.choose_files(table, wanted)
    done = Compaction(left=choice.left)
    every = list(swaps(choice.groups, swap_bytes))
    lake.progress("compacting", 0, _count(choice))
    for groups in every:
        done = _swap(spark, lake, table, groups, wanted, keep, index, done)
        lake.progress("compacting", done.files + len(done.left) - len(choice.left), _count(choice))
    if every and index:
        lake.sweep_entries(table, worth=0.5)
    return done


def _count(choice: Choice) -> int:
    return sum(len(group.files) for group in choice.groups)


def _swap(
    spark: SparkSession | None,
    lake: Lake,
    table: str,
    groups: Sequence[Group],
    wanted: Wish,
    keep: float,
    index: bool,
    done: Compaction,
) -> Compaction:
    staging = lake.staging(table)
    try:
        staged, removed, left = _Rewrite(spark, lake, table, wanted, staging).run(groups)
        if sum(file.rows for file in staged) != sum(file.rows or 0 for file in removed):
            raise StoreError(f"{table}: new files do not have the rows of the old ones.", hint="Nothing was changed.")
        lake.publish(table, staged, staging, removed=removed, keep=keep)
    except TableChanged as error:
        left = [(file.path, error.message) for group in groups for file in group.files]
        return dataclasses.replace(done, left=(*done.left, *left))
    finally:
        if not lake.is_counted_on(table, staging):
            remove_directory(str(staging))
    if index:
        lake.index_files(table)
    return Compaction(
        done.files + len(removed),
        done.new_files + len(staged),
        done.rows + sum(file.rows for file in staged),
        done.bytes + sum(file.identity.size for file in removed),
        done.new_bytes + sum(file.size for file in staged),
        done.swaps + 1,
        (*done.left, *left),
    )


class _Rewrite:
    """One swap's files, from old to new."""

    def __init__(self, spark: SparkSession | None, lake: Lake, table: str, wanted: Wish, staging: Path) -> None:
        self._spark = spark
        self._table: Table = lake.registry.tables.get(table)
        self._wanted = wanted
        self._staging = staging
        self._finisher = lake.finisher(table)
        layout = Layout()
        looked_up = [each for each in lake.registry.indexes.of(self._table) if each.kind in ("key", "text")]
        # As for files that are written first: see write.py.
        off = tuple(dict.fromkeys(each.column for each in looked_up))
        self._pages = Pages(wanted.page_rows or layout.page_rows, 64 * KIB, layout.compression, off)
        self._mark = (layout_mark(wanted.order),) if wanted.order is not None else ()

    def run(self, groups: Sequence[Group]) -> tuple[list[StagedFile], list[File], list[tuple[str, str]]]:
        """The new files, the old ones that they replace, and what stays for now, with the reason."""
        try:
            tasks, left = self._tasks(groups)
            made = spread(self._spark, merge, [task for _, task in tasks])
        except Exception as failure:
            raise translated(failure, f"compacting {self._table.name}") from failure
        failed = {number: each for (number, _), each in zip(tasks, made, strict=True) if isinstance(each, FileChanged)}
        failed |= left
        staged = [
            StagedFile(each.path, groups[number].directory, each.size, each.rows, own=True)
            for (number, _), each in zip(tasks, made, strict=True)
            if isinstance(each, Merged) and number not in failed and each.rows
        ]
        removed = [file for number, group in enumerate(groups) if number not in failed for file in group.files]
        told = [(file.path, error.message) for number, error in failed.items() for file in groups[number].files]
        return staged, removed, told

    def _tasks(self, groups: Sequence[Group]) -> tuple[list[tuple[int, Merge]], dict[int, FileChanged]]:
        """What is to be merged, by the number of its group."""
        order = self._wanted.order
        sources = [tuple(self._source(file) for file in group.files) for group in groups]
        several = [number for number, group in enumerate(groups) if order is not None and group.outputs > 1]
        tasks = [
            (number, self._merge(number, 0, sources[number], order, group.directory))
            for number, group in enumerate(groups)
            if number not in several
        ]
        if order is None or not several:
            return tasks, {}
        splits, left = self._splits(groups, sources, several, order)
        found = spread(self._spark, split, [task for _, task in splits])
        pieces: dict[tuple[int, int], list[Piece]] = {}
        for (number, _), made in zip(splits, found, strict=True):
            if isinstance(made, FileChanged):
                left[number] = made
            else:
                for piece in made:
                    pieces.setdefault((number, piece.part), []).append(piece)
        orders = {number: task.order for number, task in splits}
        for (number, part), some in sorted(pieces.items()):
            if number not in left:
                task = self._merge(number, part, sources[number], orders[number], groups[number].directory)
                tasks.append((number, dataclasses.replace(task, pieces=tuple(piece.path for piece in some))))
        return tasks, left

    def _splits(
        self, groups: Sequence[Group], sources: Sequence[tuple[Source, ...]], several: Sequence[int], order: Order
    ) -> tuple[list[tuple[int, Split]], dict[int, FileChanged]]:
        """How the rows of groups that become several files are cut by ranges of their keys. A task that is run again
        leaves pieces that nobody lists."""
        samples = [
            (number, Sample(source, order.columns, _sample_rows(source, groups[number])))
            for number in several
            for source in sources[number]
        ]
        found = spread(self._spark, sample, [task for _, task in samples])
        left = {number: made for (number, _), made in zip(samples, found, strict=True) if isinstance(made, FileChanged)}
        tasks: list[tuple[int, Split]] = []
        for number in (each for each in several if each not in left):
            rows = [
                made
                for (of, _), made in zip(samples, found, strict=True)
                if of == number and isinstance(made, pa.Table)
            ]
            columns = pa.concat_tables(rows)
            own = order
            if order.zorder:
                own = dataclasses.replace(order, cuts=cuts_of(Order(order.columns).keys(columns)))
            keys = own.keys(columns)
            cuts = boundaries(keys, groups[number].outputs) if keys.num_rows else keys
            directory = f"{self._staging}/_pieces/{number}"
            tasks += [(number, Split(source, own, cuts, directory)) for source in sources[number]]
        return tasks, left

    def _merge(self, group: int, part: int, sources: tuple[Source, ...], order: Order | None, directory: str) -> Merge:
        # The directory says the partition, as in the table.
        target = "/".join(filter(None, (str(self._staging), directory, f"{group:05d}-{part:05d}")))
        return Merge(sources, target, self._pages, order, self._mark, finisher=self._finisher)

    def _source(self, file: File) -> Source:
        return Source(f"{self._table.location}/{file.path}", file.identity.elsewhere())


def _sample_rows(source: Source, group: Group) -> int:
    """Of a larger file more."""
    return max(100, SAMPLE_ROWS * source.identity.size // max(group.bytes, 1))
