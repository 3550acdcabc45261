"""Several files become others, in tasks that can be pickled and run anywhere the files can be reached.

    merge     several files become one: in their order, or sorted in memory
    split     each of the files that become several sorted ones is cut into pieces, one for each range of keys
    gather    the pieces of one range, sorted in memory, become a file

Pieces are Arrow files beside the new files: rows keep exactly their types. A task that runs twice, even at the same
time, leaves pieces and files that are not used.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from needlepoint.maintenance.ordering import LAYOUT, RowOrder, ranks, sampled
from needlepoint.maintenance.swap import Finisher
from needlepoint.objects import Identity, identify
from needlepoint.parquet.write import (
    ROW_GROUP_ROWS,
    Form,
    Pages,
    common_keys,
    form_of,
    opened,
    read_unchanged,
    taken,
    write_rows,
)

# Memory for rows of files that are not sorted.
BYTES_AT_ONCE = 256 << 20
BATCH_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class MergeTask:
    """`target` is where the new file goes, without the end of its name: each attempt writes one of its own. `keys` are
    footer keys of it, besides those that all sources have. `pieces` replace the rows of the sources where these were
    split."""

    sources: tuple[SourceFile, ...]
    target: str
    pages: Pages
    order: RowOrder | None = None
    keys: tuple[tuple[bytes, bytes], ...] = ()
    pieces: tuple[str, ...] | None = None
    finisher: Finisher | None = None


@dataclass(frozen=True, slots=True)
class MergeResult:
    path: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class SampleTask:
    """A sample of at most so many rows of a file."""

    source: SourceFile
    columns: tuple[str, ...]
    most: int


@dataclass(frozen=True, slots=True)
class SplitTask:
    """One source of a group, and the keys at which the ranges begin."""

    source: SourceFile
    order: RowOrder
    cuts: pa.Table
    directory: str


@dataclass(frozen=True, slots=True)
class RangePiece:
    part: int
    path: str
    rows: int


def merge(task: MergeTask) -> MergeResult:
    forms = [form_of(source.path, source.identity) for source in task.sources]
    form = forms[0]
    keys = {key: value for key, value in common_keys(forms).items() if key != LAYOUT} | dict(task.keys)
    path = f"{task.target}-{uuid.uuid4().hex}.parquet"
    rows = write_rows(path, form, keys, task.pages, _tables(task, form))
    size = task.finisher(path) if task.finisher is not None and rows else identify(path).size
    return MergeResult(path, rows, size)


def _tables(task: MergeTask, form: Form) -> Iterator[pa.Table]:
    if task.order is None:
        yield from _in_portions(task.sources)
        return
    if task.pieces is None:
        parts = [read_unchanged(source.path, source.identity) for source in task.sources]
    else:
        parts = [_read_piece(path, form.schema) for path in task.pieces]
    table = _together(parts)
    order = task.order.rows(table)
    for start in range(0, len(order), ROW_GROUP_ROWS):
        yield taken(table, order[start : start + ROW_GROUP_ROWS])


def _in_portions(sources: Iterable[SourceFile]) -> Iterator[pa.Table]:
    """All rows in their order, in tables of the size of row groups."""
    held: list[pa.Table] = []
    for source in sources:
        with opened(source.path, source.identity) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                held.append(pa.Table.from_batches([batch]).replace_schema_metadata(None))
                rows, size = sum(each.num_rows for each in held), sum(each.nbytes for each in held[-1:])
                if rows >= ROW_GROUP_ROWS or size * len(held) >= BYTES_AT_ONCE:
                    yield _together(held)
                    held = []
    if held:
        yield _together(held)


def _together(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries()


def sample(task: SampleTask) -> pa.Table:
    """Some rows of a file, with the columns to sort by."""
    return sampled(read_unchanged(task.source.path, task.source.identity, task.columns), task.most)


def split(task: SplitTask) -> list[RangePiece]:
    writers: dict[int, tuple[RangePiece, pa.ipc.RecordBatchStreamWriter]] = {}
    Path(task.directory).mkdir(parents=True, exist_ok=True)
    try:
        for table in _in_portions([task.source]):
            parts = ranks(task.order.keys(table), task.cuts)
            order = np.argsort(parts, kind="stable")
            found, starts = np.unique(parts[order], return_index=True)
            for part, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
                if part not in writers:
                    path = f"{task.directory}/{part}-{uuid.uuid4().hex}.arrow"
                    options = pa.ipc.IpcWriteOptions(compression="zstd")
                    writers[part] = (RangePiece(part, path, 0), pa.ipc.new_stream(path, table.schema, options=options))
                piece, writer = writers[part]
                writer.write_table(taken(table, rows))
                writers[part] = (RangePiece(part, piece.path, piece.rows + len(rows)), writer)
    finally:
        for _, writer in writers.values():
            writer.close()
    return [piece for piece, _ in writers.values()]


def _read_piece(path: str, schema: pa.Schema) -> pa.Table:
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all().cast(schema)
