"""Read single rows: fetch the pages that hold them, assemble a small file, let pyarrow decode it."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from needlepoint.errors import NotParquet
from needlepoint.objects import (
    LOCAL_GAP,
    REMOTE_GAP,
    OpenObject,
    coalesce,
    concurrently,
    is_url,
    open_object,
)
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.format import codecs, int96
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.read.arrow_reader import ParquetReader, open_reader
from needlepoint.parquet.read.assembly import AssembledChunk, Frame, Piece, assemble, count_values
from needlepoint.parquet.read.caches import Caches, FileCache
from needlepoint.parquet.read.dictionaries import is_worth_keeping, look_up
from needlepoint.parquet.read.joint_pages import JointPages, read_jointly
from needlepoint.parquet.read.page_plan import (
    CachedCard,
    ChunkPlan,
    ColumnsPlan,
    FieldPlan,
    FilePlan,
    LeafPlan,
    PageSelection,
)
from needlepoint.parquet.read.row_group_reader import read_whole
from needlepoint.parquet.read.take_rows import take
from needlepoint.parquet.read.unpacked_pages import FEWEST_PAGES, Bytes, unpacked_file
from needlepoint.parquet.read.utf8 import NotText, check_texts, not_text

_HINT = "The file is corrupt, or its page index is; write it again."


@dataclass(frozen=True, slots=True)
class ReadStats:
    """What a read cost."""

    bytes_read: int
    requests: int
    pages: int
    row_groups: int
    cached_bytes: int = 0  # that were not read, because a cache had them
    reasons: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)  # why whole row groups were read

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        return self.bytes_read, self.requests, self.pages, self.row_groups, self.cached_bytes


NOTHING_READ = ReadStats(0, 0, 0, 0)

# Pages of files with so many wanted rows go into one assembled file, if these pages have so many rows or packed bytes;
# and of so many files.
ROWS_AT_ONCE, DECODED_AT_ONCE, BYTES_AT_ONCE, FILES_AT_ONCE = 256, 1 << 17, 8 << 20, 64

BATCHES_ON_THE_WAY = 8  # fetched and not yet taken from

# Handing a column to a thread takes as long as decoding a few pages, or this many bytes.
PAGES_FOR_A_THREAD, BYTES_FOR_A_THREAD = 16, 64 << 10

FEWEST_JOINED = 4  # rows: fewer are read faster file by file

Read = tuple[pa.Table, ReadStats]


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of one file, by numbers that count from 0, ascend and do not repeat; `cached` describes the file.
    `held` opens a version that stays readable when the path is replaced."""

    path: str
    cached: CachedCard
    rows: Int64Array
    held: Callable[[], OpenObject] | None = None

    def open(self) -> OpenObject:
        return open_object(self.path, self.cached.card.identity) if self.held is None else self.held()

    @contextmanager
    def reading(self) -> Iterator[OpenObject]:
        """FileChanged unless the file is that of the card until the end."""
        identity = self.cached.card.identity
        with self.open() as opened:
            if opened.identity != identity:
                opened.check_unchanged(identity)
            yield opened
            opened.check_unchanged(identity)


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


Column = Callable[[], pa.ChunkedArray]
"""A field that is being decoded, and is there when called for."""


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
            decode = functools.partial(_read_joint, field, read.buffer, pages)
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
                decode = _decode_apart if any(part.apart for part in parts) else _decode
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
    if caches is None or caches.local_pages or is_url(wanted[0].path):
        return []
    if sum(len(each.rows) for each in wanted) < FEWEST_JOINED:
        return []
    files = [each.cached.plan(columns).fields for each in wanted]
    codecs_of = {name: {fields[name].codec for fields in files} for name in files[0]}
    return [name for name, found in codecs_of.items() if len(found) == 1 and None not in found]


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
        except (pa.ArrowException, OSError, _Mismatch) as error:
            raise NotParquet(wanted.path, f"pages cannot be decoded: {cause}", hint=_HINT) from error
        file.check_unchanged(identity)
        reason = f"because pages of {wanted.path} cannot be decoded: {cause}"
        return table, ReadStats(file.bytes_requested, file.requests, 0, row_groups, reasons=(reason,))


class _FetchedPages(NamedTuple):
    """What was read of one file."""

    parts: list[_FilePart]
    stats: ReadStats


def _fetch(wanted: FileRows, columns: tuple[str, ...], caches: Caches | None) -> _FetchedPages:
    identity = wanted.cached.card.identity
    cache = None if caches is None else FileCache(caches, wanted.path, identity, len(wanted.rows))
    request = _Request(cache)
    parts = [request.add(file, wanted.rows) for file in wanted.cached.plan(columns).files]
    with wanted.reading() as file:
        found, cached = (file.read_ranges(request.ranges), 0) if cache is None else cache.read(file, request.ranges)
    request.blocks += found
    stats = ReadStats(file.bytes_requested, file.requests, request.pages, request.row_groups, cached)
    return _FetchedPages(parts, stats)


def foresee_rows(cached: CachedCard, columns: Sequence[str], rows: Int64Array) -> ReadStats:
    """What `read_rows` will cost."""
    if not len(rows) or not columns:
        return NOTHING_READ
    request = _Request(None)
    for file in cached.plan(tuple(columns)).files:
        request.add(file, rows)
    blocks = coalesce(request.ranges, REMOTE_GAP if cached.card.identity.etag else LOCAL_GAP)
    wanted = sum(block.end - block.start for block in blocks)
    return ReadStats(wanted, len(blocks), request.pages, request.row_groups)


class DictionaryRead(NamedTuple):
    """The bytes of a read of few rows that looks values up in kept dictionaries: of data pages of which only some
    values are decoded, of other pages, and of dictionary pages that are not kept yet."""

    skimmed: float
    decoded: float
    cold: int


def foresee_dictionaries(
    path: str, cached: CachedCard, columns: Sequence[str], num_rows: int, row_groups: Sequence[int], caches: Caches
) -> DictionaryRead:
    """What reading so many rows of these row groups will take. It assumes pages of equal size."""
    skimmed, decoded, cold = 0.0, 0.0, 0
    identity, kept = cached.card.identity, caches.dictionaries
    for leaf in (leaf for file in cached.plan(tuple(columns)).files for field in file.fields for leaf in field.leaves):
        touched = leaf.mean_size * min(num_rows, len(leaf.size))
        chunks = [leaf.chunk(row_group) for row_group in row_groups]
        sizes = [chunk.dictionary[1] if chunk.dictionary else 0 for chunk in chunks]
        if all(chunk.keepable and is_worth_keeping(size, num_rows) for chunk, size in zip(chunks, sizes, strict=True)):
            skimmed += touched
            cold += sum(
                size
                for row_group, size in zip(row_groups, sizes, strict=True)
                if (path, identity, leaf.leaf, row_group) not in kept
            )
        else:
            decoded += touched + sum(sizes)
    return DictionaryRead(skimmed, decoded, cold)


class _ChunkPart(NamedTuple):
    """A chunk to assemble: which of the fetched ranges are its dictionary page and its pages.

    `apart`: its values are looked up in the decoded dictionary, which is `entries` if it was kept.
    """

    leaf: LeafPlan
    plan: ChunkPlan
    row_group: int
    num_rows: int
    dictionary: int | None
    first_range: int
    last_range: int
    sizes: Int64Array  # of the pages
    nested: bool
    apart: bool
    entries: pa.Array | None


class _FilePart(NamedTuple):
    """A file to assemble: for each field the chunks of its leaves, by row group, and the place of the rows."""

    plan: FilePlan
    chunks: list[list[list[_ChunkPart]]]
    selections: list[PageSelection]
    blocks: list[bytes]  # of all parts of the request; filled when they are fetched
    cache: FileCache | None
    apart: bool


class _Request:
    """Collects the byte ranges of all files to assemble, so that they are fetched at once."""

    def __init__(self, cache: FileCache | None) -> None:
        self.cache = cache
        self.ranges: list[tuple[int, int]] = []
        self.blocks: list[bytes] = []
        self.pages = 0
        self.row_groups = 0

    def add(self, plan: FilePlan, rows: Int64Array) -> _FilePart:
        chosen: dict[int, tuple[PageSelection, list[tuple[int, list[int], int]]]] = {}
        selections: list[PageSelection] = []
        chunks: list[list[list[_ChunkPart]]] = []
        apart = False
        for field in plan.fields:
            shared = id(field.first_row)  # by fields whose pages begin at the same rows
            if shared not in chosen:
                selection = field.select(rows)
                chosen[shared] = selection, selection.by_row_group()
            selection, row_groups = chosen[shared]
            selections.append(selection)
            of_field: list[list[_ChunkPart]] = []
            for row_group, stretches, num_rows in row_groups:
                of_row_group: list[_ChunkPart] = []
                for leaf in field.leaves:
                    chunk = self._chunk(leaf, row_group, stretches, num_rows, field.nested)
                    of_row_group.append(chunk)
                    apart = apart or chunk.apart
                of_field.append(of_row_group)
            chunks.append(of_field)
            self.row_groups = max(self.row_groups, len(of_field))
        return _FilePart(plan, chunks, selections, self.blocks, self.cache, apart)

    def _chunk(self, leaf: LeafPlan, row_group: int, stretches: list[int], num_rows: int, nested: bool) -> _ChunkPart:
        ranges = self.ranges
        plan = leaf.chunk(row_group)
        dictionary = entries = None
        apart = False
        if plan.dictionary is not None:
            if self.cache is not None and plan.keepable and is_worth_keeping(plan.dictionary[1], self.cache.num_rows):
                apart, entries = True, self.cache.entries(leaf, row_group)
            if entries is None:
                dictionary = len(ranges)
                ranges.append(plan.dictionary)
        first = len(ranges)
        runs, sizes = leaf.runs(stretches)
        ranges += runs
        self.pages += len(sizes)
        return _ChunkPart(
            leaf, plan, row_group, num_rows, dictionary, first, len(ranges), sizes, nested, apart, entries
        )


_RowGroup = tuple[int, list[AssembledChunk]]
"""A row group to assemble: its number of rows, and its chunks."""


class _Mismatch(ValueError):
    """The pages decode, but not to what the card says."""


def _read_joint(field: FieldPlan, data: Bytes, pages: JointPages) -> pa.ChunkedArray:
    """Pages of zstd are unpacked together if that is possible."""
    (leaf,) = field.leaves
    frame, _ = leaf.alone()
    chunk, rows = leaf.chunk(0), pages.num_rows
    file = None
    if chunk.codec == codecs.ZSTD and len(pages.size) >= FEWEST_PAGES and codecs.is_known(codecs.ZSTD):
        # One row more than there is, as in `_open`.
        file = unpacked_file(frame, leaf.head(0, codecs.UNCOMPRESSED), rows + 1, data, pages.start, pages.size)
    if file is None:
        view, ends = data.data, (pages.start + pages.size).tolist()
        blocks: list[Piece] = [view[start:end] for start, end in zip(pages.start.tolist(), ends, strict=True)]
        reader = _open(frame, [(rows, [AssembledChunk(chunk.head, rows, None, blocks)])])
    else:
        reader = open_reader(pa.BufferReader(file), int96_unit=int96.UNIT)
    return take(_read_column(reader, 0, field.name, rows), pages.positions)


def _decode(parts: Sequence[_FilePart], executor: Executor | None) -> dict[str, Column]:
    """Assemble the pages of all parts into one file and take the wanted rows of each of its fields."""
    plan = parts[0].plan
    assembled = [_assembled_field(parts, number) for number in range(len(plan.fields))]
    reader = _open(plan.frame, _side_by_side(assembled))
    fields: dict[str, Column] = {}
    for number, field in enumerate(plan.fields):
        read = functools.partial(_read_rows, reader, number, field.name, parts)
        fields[field.name] = read if executor is None else executor.submit(read).result
    return fields


def _assembled_field(parts: Sequence[_FilePart], number: int) -> list[_RowGroup]:
    """The chunks of a field of all parts. Pages of the same codec that need no dictionary are in one chunk, whichever
    row group or file they are from: pyarrow reads a chunk of a thousand pages faster than a thousand chunks."""
    found: list[_RowGroup] = []
    before: list[int] | None = None  # the codecs of the last row group, if others can be added to it
    for part in parts:
        for chunks in part.chunks[number]:
            assembled: list[AssembledChunk] = []
            alike: list[int] | None = []
            for chunk in chunks:
                assembled.append(_assembled(chunk, part.blocks))
                alike = None if alike is None or chunk.dictionary is not None else [*alike, chunk.plan.codec]
            rows = chunks[0].num_rows
            if alike is not None and alike == before:
                rows_before, joined = found[-1]
                found[-1] = rows_before + rows, [*map(AssembledChunk.followed_by, joined, assembled)]
            else:
                found.append((rows, assembled))
            before = alike
    return found


def _side_by_side(fields: Sequence[list[_RowGroup]]) -> list[_RowGroup]:
    """Row groups with the chunks of all fields. A field with fewer chunks has some without pages and rows."""
    if len(fields) == 1:
        return fields[0]
    groups: list[_RowGroup] = []
    for number in range(max(map(len, fields))):
        most, chunks = 0, list[AssembledChunk]()
        for row_groups in fields:
            rows, own = row_groups[number] if number < len(row_groups) else _nothing(row_groups[0])
            most = max(most, rows)
            chunks += own
        groups.append((most, chunks))
    return groups


def _nothing(like: _RowGroup) -> _RowGroup:
    return 0, [AssembledChunk(chunk.head, 0, None, []) for chunk in like[1]]


def _read_rows(reader: ParquetReader, number: int, name: str, parts: Sequence[_FilePart]) -> pa.ChunkedArray:
    """The wanted rows of a field, of parts whose pages follow one another in the assembled file."""
    total, places = 0, list[Int64Array]()
    for part in parts:
        selection = part.selections[number]
        places.append(selection.positions + total if total else selection.positions)
        total += sum(selection.row_counts)
    return take(_read_column(reader, number, name, total), np.concatenate(places) if len(places) > 1 else places[0])


def _open(frame: Frame, row_groups: Sequence[_RowGroup]) -> ParquetReader:
    """Each chunk claims one value more than it should have. Else pyarrow would stop at the right number of values also
    where a page has too many of them, and give each row after that page the value of the row before."""
    return open_reader(pa.BufferReader(assemble(frame, row_groups, missing=1)), int96_unit=int96.UNIT)


def _read_column(reader: ParquetReader, number: int, name: str, count: int) -> pa.ChunkedArray:
    found = reader.read_column(number)
    if len(found) != count:
        raise _Mismatch(f"column {name} has {len(found)} rows where {count} were expected")
    return found


def _decode_apart(parts: Sequence[_FilePart], executor: Executor | None) -> dict[str, Column]:
    """As `_decode`, but values of large dictionaries are looked up, and only the other pages assembled.

    A chunk of which nothing is left to assemble is there with no pages and no rows.
    """
    plan = parts[0].plan
    pieces: list[list[pa.Array | Int64Array]] = [[] for _ in plan.fields]
    counts = [0] * len(plan.fields)  # rows of each field in the assembled file
    assembled: list[list[_RowGroup]] = [[] for _ in plan.fields]
    for part in parts:
        for number, row_groups in enumerate(part.chunks):
            first = 0
            for (chunk,) in row_groups:
                positions = part.selections[number].positions - first
                inside = positions[(positions >= 0) & (positions < chunk.num_rows)]
                first += chunk.num_rows
                found, left = _look_up(chunk, part, inside)
                pieces[number] += [each + counts[number] if isinstance(each, np.ndarray) else each for each in found]
                counts[number] += left.num_values
                assembled[number].append((left.num_values, [left]))
    reader = _open(plan.frame, _side_by_side(assembled)) if any(counts) else None
    fields: dict[str, Column] = {}
    for number, field in enumerate(plan.fields):
        some = reader is not None and counts[number]
        column = _read_column(reader, number, field.name, counts[number]) if some else None
        taken: list[pa.Array] = []
        for piece in pieces[number]:
            if isinstance(piece, np.ndarray):
                taken += take(column, piece).chunks
            else:
                taken.append(piece)
        fields[field.name] = functools.partial(pa.chunked_array, taken)
    return fields


def _look_up(
    chunk: _ChunkPart, part: _FilePart, positions: Int64Array
) -> tuple[list[pa.Array | Int64Array], AssembledChunk]:
    """The wanted rows of a chunk as arrays and as positions in what is left to assemble, and that."""
    if not chunk.apart or part.cache is None:
        return [positions], _assembled(chunk, part.blocks)
    cache, leaf, row_group = part.cache, chunk.leaf, chunk.row_group
    _, optional = leaf.alone()
    plan = chunk.plan

    def entries() -> pa.Array:
        if chunk.entries is not None or chunk.dictionary is None:
            return chunk.entries
        return cache.decode(leaf, row_group, part.blocks[chunk.dictionary])

    blocks = part.blocks[chunk.first_range : chunk.last_range]
    found = look_up(blocks, chunk.num_rows, plan.codec, optional, positions.tolist(), entries)
    pieces = [np.array(each) if isinstance(each, list) else each for each in found.pieces]
    return pieces, AssembledChunk(plan.head, found.num_values, None, [*found.pages])


def _assembled(chunk: _ChunkPart, blocks: list[bytes]) -> AssembledChunk:
    pages = blocks[chunk.first_range : chunk.last_range]
    values = sum(map(count_values, pages)) if chunk.nested else chunk.num_rows
    dictionary = None if chunk.dictionary is None else blocks[chunk.dictionary]
    return AssembledChunk(chunk.plan.head, values, dictionary, [*pages])


def _table(plan: ColumnsPlan, columns: Sequence[str], arrays: dict[str, pa.ChunkedArray]) -> pa.Table:
    wanted = [arrays[name] for name in columns]
    for number in plan.int96:
        if pa.types.is_fixed_size_binary(wanted[number].type):
            wanted[number] = int96.decoded(wanted[number], plan.schema.types[number])
    for name, expected, column in zip(columns, plan.schema.types, wanted, strict=True):
        if column.type != expected:
            raise _Mismatch(f"column {name} was read as {column.type}, not {expected}")
    for number in plan.texts:
        check_texts(columns[number], wanted[number])
    return pa.Table.from_arrays(wanted, schema=plan.schema)
