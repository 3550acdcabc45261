"""Replace files of a table by others in one batch: the one way for compaction and deletion.

    make      write the new files into a staging directory
    publish   one batch adds the new files and removes the old ones; a query sees these or those
    index     build what the new files lack

Much work is done in several swaps of limited size: a process that is killed loses one of them, and the next run does
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from needlepoint.objects import remove_directory
from needlepoint.tables import Batch, File, StagedFile

if TYPE_CHECKING:  # Spark's tasks import this module, and need neither DataFusion nor RocksDB
    from needlepoint.indexer import Indexer, Progress
    from needlepoint.query import Engine
    from needlepoint.tables.registry import Registry

SWAP_BYTES = 4 << 30

Item = TypeVar("Item")

Finisher = Callable[[str], int]
"""Embeds indexes into the staged file at a path and returns its size; picklable."""


class SwapWriter(Protocol):
    """The part of lake/batch_writer.py that a swap needs."""

    def staging(self, table: str) -> Path: ...

    def finisher(self, table: str) -> Finisher | None: ...

    def publish(
        self,
        table: str,
        staged: Sequence[StagedFile],
        staging: Path | str,
        *,
        removed: Sequence[File] = (),
        keep: float = 0.0,
    ) -> Batch: ...

    def is_pending(self, table: str, staging: Path | str) -> bool: ...

    def refuse_foreign(self, name: str, hint: str = ...) -> None: ...

    def refuse_removing(self, name: str) -> None: ...

    def index_files(self, table: str) -> None: ...


@dataclass(frozen=True, slots=True)
class MaintenanceContext:
    """What maintenance needs of a lake. `sync` brings one table up to date; `sweep_entries` removes entries of deleted
    files from the key indexes of a table where their share is larger than a number."""

    registry: Registry
    engine: Engine
    indexer: Indexer
    writer: SwapWriter
    sync: Callable[[str], object]
    sweep_entries: Callable[[str, float], int]
    progress: Progress


@dataclass(frozen=True, slots=True)
class Replacement:
    """New files in staging, and the files of the table that they replace."""

    staged: Sequence[StagedFile]
    removed: Sequence[File]


def swap(
    context: MaintenanceContext,
    table: str,
    make: Callable[[Path], Replacement],
    *,
    keep: float = 0.0,
    index: bool = True,
) -> Replacement:
    """Replace files by those that `make` writes into a staging directory. TableChanged when one of the old files is not
    what it was: then nothing changed. The old files are deleted `keep` seconds later."""
    writer = context.writer
    staging = writer.staging(table)
    try:
        made = make(staging)
        writer.publish(table, made.staged, staging, removed=made.removed, keep=keep)
    finally:
        if not writer.is_pending(table, staging):
            remove_directory(str(staging))
    if index:
        writer.index_files(table)
    return made


def in_portions(items: Iterable[Item], size: Callable[[Item], int], most_bytes: int) -> Iterator[list[Item]]:
    """Items of at most so many bytes together, or a single larger one.

    >>> list(in_portions([3, 4, 9, 1, 2], lambda item: item, 7))
    [[3, 4], [9], [1, 2]]
    """
    portion: list[Item] = []
    for item in items:
        if portion and sum(map(size, portion)) + size(item) > most_bytes:
            yield portion
            portion = []
        portion.append(item)
    if portion:
        yield portion
