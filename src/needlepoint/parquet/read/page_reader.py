"""Read single rows: fetch the pages that hold them, assemble a small file, let pyarrow decode it."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from needlepoint.errors import NotParquet
from needlepoint.objects import concurrently, is_url, open_object
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.format import int96
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.read.assembly import Frame
from needlepoint.parquet.read.caches import Caches, FileCache
from needlepoint.parquet.read.joint_pages import read_jointly
from needlepoint.parquet.read.page_decoder import Column, Mismatch, decode, decode_joint
from needlepoint.parquet.read.page_plan import CachedCard, ColumnsPlan
from needlepoint.parquet.read.page_request import FilePart, PageRequest
from needlepoint.parquet.read.row_group_reader import read_whole
from needlepoint.parquet.read.utf8 import NotText, check_texts, not_text
from needlepoint.parquet.read.wanted_rows import NOTHING_READ, FileRows, ReadStats

_HINT = "The file is corrupt, or its page index is; write it again."


# Pages of files with so many wanted rows go into one assembled file, if these pages have so many rows or packed bytes;
# and of so many files.
ROWS_AT_ONCE, DECODED_AT_ONCE, BYTES_AT_ONCE, FILES_AT_ONCE = 256, 1 << 17, 8 << 20, 64

BATCHES_ON_THE_WAY = 8  # fetched and not yet taken from

# Handing a column to a thread takes as long as decoding a few pages, or this many bytes.
PAGES_FOR_A_THREAD, BYTES_FOR_A_THREAD = 16, 64 << 10

FEWEST_JOINED = 4  # rows: fewer are read faster file by file

Read = tuple[pa.Table, ReadStats]


def read_rows(
    path: str, card: FileCard, columns: Sequence[str], rows: Int64Array, caches: Caches | None = None
) -> tuple[pa.Table, ReadStats]:
    """The wanted rows of one file: the result of `pq.read_table(path, columns=columns).take(rows)`.

    KeyError when the file has no such column, FileChanged when the file is not the card's any more, NotParquet when
    its pages cannot be decoded.
    """
    ((_, table, stats),) = read_files([FileRows(path, CachedCard(card), rows)], columns, None, caches)
    return table, stats


def read_files(
    wanted: Sequence[FileRows],
    columns: Sequence[str],
    executor: Executor | None = None,
    caches: Caches | None = None,
    check: Callable[[], None] = lambda: None,
) -> list[tuple[list[int], pa.Table, ReadStats]]:
    """The wanted rows of many files. Pages of files with the same schema are decoded in one go.

    Returns tables, each with the numbers of the files whose rows it holds, one file after the other. An `executor` of
    threads decodes, which needs no Python, while the next files are fetched. What is in `caches` is not read again,
    and what is read is put into them. `check` is called before every few files, and raises an error to stop.
    """
    if not wanted:
        return []
    columns = tuple(columns)
    ranges = _count_ranges(wanted)
    if len(wanted) == 1:
        return [([0], *_PendingRead.of(wanted, columns, executor, caches).finish())]
    groups: dict[tuple[Frame, ...], list[int]] = {}
    for number, each in enumerate(wanted):
        groups.setdefault(tuple(file.frame for file in each.cached.plan(columns).files), []).append(number)
    batches = [batch for numbers in groups.values() for batch in _batches(wanted, columns, numbers, ranges)]
    pending: deque[_PendingRead] = deque()
    reads: list[Read] = []
    for batch in batches:
        check()
        pending.append(_PendingRead.of([wanted[number] for number in batch], columns, executor, caches))
        if len(pending) >= BATCHES_ON_THE_WAY:
            reads.append(pending.popleft().finish())
    reads += [each.finish() for each in pending]
    return [(batch, table, stats) for batch, (table, stats) in zip(batches, reads, strict=True)]


def _count_ranges(wanted: Sequence[FileRows]) -> Int64Array:
    """How many ranges of rows are wanted of each file. IndexError for rows that a file does not have, ValueError if
    they do not ascend."""
    counts = np.array([len(each.rows) for each in wanted])
    rows = wanted[0].rows if len(wanted) == 1 else np.concatenate([each.rows for each in wanted])
    if not len(rows):
        return counts
    filled = counts > 0
    ends = counts.cumsum()
    firsts = (ends - counts)[filled]
    lasts = ends[filled] - 1
    num_rows = np.array([each.cached.card.num_rows for each in wanted])[filled]
    beyond = (rows[firsts] < 0) | (rows[lasts] >= num_rows)
    if beyond.any():
        at = int(beyond.argmax())
        raise IndexError(f"rows {rows[firsts[at]]} to {rows[lasts[at]]} of a file of {num_rows[at]}")
    steps = np.empty(len(rows), np.int64)
    np.subtract(rows[1:], rows[:-1], out=steps[1:])
    steps[firsts] = 2  # a range begins
    if (steps < 1).any():
        raise ValueError("row numbers must ascend and not repeat")
    ranges = np.zeros(len(wanted), np.int64)
    ranges[filled] = np.add.reduceat((steps > 1).astype(np.int64), firsts)
    return ranges


def _batches(
    wanted: Sequence[FileRows], columns: tuple[str, ...], numbers: Sequence[int], ranges: Int64Array
) -> list[list[int]]:
    """The numbers of files in order, as many in each batch as are assembled into one file."""
    batches: list[list[int]] = [[]]
    rows, decoded, size = 0, 0.0, 0.0
    few = sum(len(wanted[number].rows) for number in numbers) < ROWS_AT_ONCE
    shares = (
        [0.0] * len(numbers) if few else _shares_of_pages([wanted[each] for each in numbers], columns, ranges[numbers])
    )
    for number, share in zip(numbers, shares, strict=True):
        enough = rows >= ROWS_AT_ONCE and (decoded >= DECODED_AT_ONCE or size >= BYTES_AT_ONCE)
        if enough or len(batches[-1]) == FILES_AT_ONCE:
            batches.append([])
            rows, decoded, size = 0, 0.0, 0.0
        batches[-1].append(number)
        each = wanted[number]
        rows += len(each.rows)
        decoded += each.cached.card.num_rows * share
        size += each.cached.sizes(columns).bytes * share
    return batches


def _shares_of_pages(wanted: Sequence[FileRows], columns: tuple[str, ...], ranges: Int64Array) -> list[float]:
    """About which part of the pages of each file has the wanted rows, if all have the same number of rows: rows 0 to
    259 and row 600 of 1,000 are in 3 of 4 pages."""
    plans = [each.cached.plan(columns).files for each in wanted]
    pages = np.array([len(files[0].fields[0].first_row) if files else 0 for files in plans])
    rows = np.array([(len(each.rows), each.cached.card.num_rows) for each in wanted])
    shares = np.minimum(1.0, ranges / np.maximum(1, pages) + rows[:, 0] / np.maximum(1, rows[:, 1]))
    found: list[float] = np.where((ranges == 0) | (pages == 0), 0.0, shares).tolist()
    return found


@dataclass(slots=True)
class _PendingRead:
    """Files whose pages were fetched and are being decoded. `plan` is that of the first of them, and `failed` is what
    went wrong until now."""

    wanted: Sequence[FileRows]
    columns: tuple[str, ...]
    plan: ColumnsPlan
    caches: Caches | None
    stats: ReadStats
    fields: dict[str, Column]
    failed: Exception | None = None

    @classmethod
    def of(
        cls, wanted: Sequence[FileRows], columns: tuple[str, ...], executor: Executor | None, caches: Caches | None
    ) -> _PendingRead:
        plan = wanted[0].cached.plan(columns)
        with_rows = [each for each in wanted if len(each.rows)]
        if not columns or not with_rows:
            return cls(wanted, columns, plan, caches, NOTHING_READ, {})
        pending = cls(wanted, columns, plan, caches, NOTHING_READ, {})
        joined = _joined(with_rows, columns, caches)
        if joined:
            pending._join(joined, with_rows, executor)
        rest = columns if not joined else tuple(name for name in columns if name not in joined)
        if rest:
            pending._assemble(rest, with_rows, executor)
        return pending

    def _join(self, names: Sequence[str], wanted: Sequence[FileRows], executor: Executor | None) -> None:
        """Columns whose pages are read and decoded as those of one file."""
        files = [each.cached.plan(self.columns).fields for each in wanted]
        plans = [[fields[name] for fields in files] for name in names]
        row_counts = [each.cached.card.num_rows for each in wanted]
        rows = [each.rows for each in wanted]
        read = read_jointly(plans, rows, row_counts, [each.reading for each in wanted])
        stats = ReadStats(read.bytes_read, read.requests, read.pages, read.row_groups)
        self.stats, executor = stats, _worth_threads(stats, executor)
        for (field, *_), pages in zip(plans, read.fields, strict=True):
            decode = functools.partial(decode_joint, field, read.buffer, pages)
            self.fields[field.name] = decode if executor is None else executor.submit(decode).result

    def _assemble(self, columns: tuple[str, ...], wanted: Sequence[FileRows], executor: Executor | None) -> None:
        """Columns whose pages are put together file by file."""
        if len(wanted) > 1 and is_url(wanted[0].path):
            fetched = concurrently(lambda each: _fetch(each, columns, self.caches), wanted)
        else:
            fetched = [_fetch(each, columns, self.caches) for each in wanted]
        stats = _total([each.stats for each in fetched])
        self.stats, executor = _both(self.stats, stats), _worth_threads(stats, executor)
        try:
            for number in range(len(wanted[0].cached.plan(columns).files)):
                parts = [each.parts[number] for each in fetched]
                self.fields.update(decode(parts, executor))
        except (pa.ArrowException, OSError, ValueError) as error:
            self.failed = error

    def finish(self) -> Read:
        plan = self.plan
        if self.stats is NOTHING_READ:
            return pa.Table.from_batches([], plan.schema), NOTHING_READ
        failed = self.failed
        if failed is None:
            try:
                return _table(plan, self.columns, {name: column() for name, column in self.fields.items()}), self.stats
            except (pa.ArrowException, OSError, ValueError) as error:
                failed = error
        if len(self.wanted) == 1 and self.caches is None:
            table, more = _read_whole(self.wanted[0], self.columns, plan, failed)
            return table, _total([self.stats, more])
        # One by one, and every value by pyarrow: only the file that cannot be decoded is then read whole.
        reads = [_PendingRead.of([each], self.columns, None, None).finish() for each in self.wanted]
        return pa.concat_tables([table for table, _ in reads]), _total([self.stats, *(more for _, more in reads)])


def _joined(wanted: Sequence[FileRows], columns: tuple[str, ...], caches: Caches | None) -> list[str]:
    """The columns whose pages in these files are read as those of one file: flat, with one codec and no dictionaries.
    Not of objects, whose pages are kept, and not without caches: such a read is a repeated one, file by file."""
    if is_url(wanted[0].path) or not reads_jointly(sum(len(each.rows) for each in wanted), caches):
        return []
    files = [each.cached.plan(columns).fields for each in wanted]
    codecs_of = {name: {fields[name].codec for fields in files} for name in files[0]}
    return [name for name, found in codecs_of.items() if len(found) == 1 and None not in found]


def reads_jointly(rows: int, caches: Caches | None) -> bool:
    """Whether so many rows of local files are read together, where their columns allow it."""
    return caches is not None and not caches.local_pages and rows >= FEWEST_JOINED


def _both(one: ReadStats, other: ReadStats) -> ReadStats:
    """What was read of the same row groups."""
    if one is NOTHING_READ:
        return other
    return replace(_total([one, other]), row_groups=max(one.row_groups, other.row_groups))


def _worth_threads(stats: ReadStats, executor: Executor | None) -> Executor | None:
    few = stats.pages < PAGES_FOR_A_THREAD and stats.bytes_read + stats.cached_bytes < BYTES_FOR_A_THREAD
    return None if few else executor


def _total(stats: Sequence[ReadStats]) -> ReadStats:
    if len(stats) == 1:
        return stats[0]
    reasons = tuple(reason for each in stats for reason in each.reasons)
    return replace(ReadStats(*map(sum, zip(*(each.counts for each in stats), strict=True))), reasons=reasons)


def _read_whole(wanted: FileRows, columns: tuple[str, ...], plan: ColumnsPlan, cause: Exception) -> Read:
    """Pages by themselves were not understood: let pyarrow read the file as it is, at the price of whole row groups.

    NotParquet, with the first reason, when it cannot either.
    """
    identity = wanted.cached.card.identity
    with open_object(wanted.path) if wanted.held is None else wanted.held() as file:
        file.check_unchanged(identity)
        try:
            arrays, row_groups = read_whole(file, wanted.cached.card, columns, wanted.rows)
            table = _table(plan, columns, arrays)
        except NotText as error:
            raise not_text(wanted.path, error) from None
        except (pa.ArrowException, OSError, Mismatch) as error:
            raise NotParquet(wanted.path, f"pages cannot be decoded: {cause}", hint=_HINT) from error
        file.check_unchanged(identity)
        reason = f"because pages of {wanted.path} cannot be decoded: {cause}"
        return table, ReadStats(file.bytes_requested, file.requests, 0, row_groups, reasons=(reason,))


class _FetchedPages(NamedTuple):
    """What was read of one file."""

    parts: list[FilePart]
    stats: ReadStats


def _fetch(wanted: FileRows, columns: tuple[str, ...], caches: Caches | None) -> _FetchedPages:
    identity = wanted.cached.card.identity
    cache = None if caches is None else FileCache(caches, wanted.path, identity, len(wanted.rows))
    request = PageRequest(cache)
    parts = [request.add(file, wanted.rows) for file in wanted.cached.plan(columns).files]
    with wanted.reading() as file:
        found, cached = (file.read_ranges(request.ranges), 0) if cache is None else cache.read(file, request.ranges)
    request.blocks += found
    stats = ReadStats(file.bytes_requested, file.requests, request.pages, request.row_groups, cached)
    return _FetchedPages(parts, stats)


def _table(plan: ColumnsPlan, columns: Sequence[str], arrays: dict[str, pa.ChunkedArray]) -> pa.Table:
    wanted = [arrays[name] for name in columns]
    for number in plan.int96:
        if pa.types.is_fixed_size_binary(wanted[number].type):
            wanted[number] = int96.decoded(wanted[number], plan.schema.types[number])
    for name, expected, column in zip(columns, plan.schema.types, wanted, strict=True):
        if column.type != expected:
            raise Mismatch(f"column {name} was read as {column.type}, not {expected}")
    for number in plan.texts:
        check_texts(columns[number], wanted[number])
    return pa.Table.from_arrays(wanted, schema=plan.schema)
