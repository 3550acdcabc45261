"""Reading single rows: fetch the pages that hold them, assemble a small file, let pyarrow decode it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow._parquet import ParquetReader

from needlepoint.errors import NotParquet
from needlepoint.objects import LocalFile
from needlepoint.parquet.assembly import AssembledChunk, Frame, assemble, count_values
from needlepoint.parquet.card import FileCard
from needlepoint.parquet.page_index import Int64Array
from needlepoint.parquet.plan import Choice, ColumnsPlan, FilePlan, LeafPlan, prepare
from needlepoint.parquet.take import take
from needlepoint.parquet.thrift import ThriftError
from needlepoint.parquet.whole import read_whole

_HINT = "The file is corrupt, or its page index is; write it again."


@dataclass(frozen=True, slots=True)
class ReadStats:
    """What a read cost."""

    bytes_read: int
    requests: int
    pages: int
    row_groups: int

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.bytes_read, self.requests, self.pages, self.row_groups


NOTHING_READ = ReadStats(0, 0, 0, 0)

# Pages of so many files go into one assembled file.
FILES_AT_ONCE = 16

Read = tuple[pa.Table, ReadStats]
DoAll = Callable[[Callable[[list[int]], Read], list[list[int]]], Iterable[Read]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows of one file, by numbers that count from 0, ascend and do not repeat; `card` describes the file."""

    path: str
    card: FileCard
    rows: Int64Array


def read_rows(path: str, card: FileCard, columns: Sequence[str], rows: Int64Array) -> tuple[pa.Table, ReadStats]:
    """The wanted rows of one file: the result of `pq.read_table(path, columns=columns).take(rows)`.

    KeyError when the file has no such column, FileChanged when the file is not the card's any more, NotParquet when
    its pages cannot be decoded.
    """
    ((_, table, stats),) = read_files([Wanted(path, card, rows)], columns)
    return table, stats


def read_files(
    wanted: Sequence[Wanted], columns: Sequence[str], do_all: DoAll = map
) -> list[tuple[list[int], pa.Table, ReadStats]]:
    """The wanted rows of many files. Pages of files with the same schema are decoded in one go.

    Returns tables, each with the numbers of the files whose rows it holds, one file after the other. `do_all` maps a
    function over such groups of files as `map` does, perhaps in threads: decoding runs outside Python's lock.
    """
    groups: dict[tuple[Frame, ...], list[int]] = {}
    for number, each in enumerate(wanted):
        plan = prepare(each.card, tuple(columns))
        _check_rows(each.card, each.rows)
        groups.setdefault(tuple(file.frame for file in plan.files), []).append(number)
    batches = [
        numbers[start : start + FILES_AT_ONCE]
        for numbers in groups.values()
        for start in range(0, len(numbers), FILES_AT_ONCE)
    ]
    tables = do_all(lambda batch: _read_alike([wanted[number] for number in batch], tuple(columns)), batches)
    return [(batch, table, stats) for batch, (table, stats) in zip(batches, tables, strict=True)]


def _read_alike(wanted: Sequence[Wanted], columns: tuple[str, ...]) -> tuple[pa.Table, ReadStats]:
    plan = prepare(wanted[0].card, columns)
    if not columns or not any(len(each.rows) for each in wanted):
        return plan.schema.empty_table(), NOTHING_READ
    fetched = [_fetch(each, columns) for each in wanted if len(each.rows)]
    stats = _total([each.stats for each in fetched])
    arrays: dict[str, pa.ChunkedArray] = {}
    try:
        for number in range(len(plan.files)):
            _decode([(each.parts[number], each.blocks) for each in fetched], arrays)
        return _table(plan, columns, arrays), stats
    except (pa.ArrowException, OSError, ThriftError, _Mismatch) as error:
        if len(wanted) == 1:
            table, more = _read_whole(wanted[0], columns, plan, error)
            return table, _total([stats, more])
    # One by one: only the file that cannot be decoded is then read whole.
    parts = [_read_alike([each], columns) for each in wanted]
    return pa.concat_tables([table for table, _ in parts]), _total([stats, *(more for _, more in parts)])


def _total(stats: Sequence[ReadStats]) -> ReadStats:
    if len(stats) == 1:
        return stats[0]
    return ReadStats(*map(sum, zip(*(each.counts for each in stats), strict=True)))


def _read_whole(wanted: Wanted, columns: tuple[str, ...], plan: ColumnsPlan, cause: Exception) -> Read:
    """Pages by themselves were not understood: let pyarrow read the file as it is, at the price of whole row groups.

    NotParquet, with the first reason, when it cannot either.
    """
    with LocalFile(wanted.path) as file:
        file.check_unchanged(wanted.card.identity)
        try:
            arrays, row_groups = read_whole(file, wanted.card, columns, wanted.rows)
            table = _table(plan, columns, arrays)
        except (pa.ArrowException, OSError, _Mismatch) as error:
            raise NotParquet(wanted.path, f"pages cannot be decoded: {cause}", hint=_HINT) from error
        file.check_unchanged(wanted.card.identity)
        return table, ReadStats(file.bytes_requested, file.requests, 0, row_groups)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """The bytes of one file, and which of them are what."""

    parts: list[_FilePart]
    blocks: list[bytes]
    stats: ReadStats


def _fetch(wanted: Wanted, columns: tuple[str, ...]) -> _Fetched:
    request = _Request()
    parts = [request.add(file, wanted.rows) for file in prepare(wanted.card, columns).files]
    with LocalFile(wanted.path) as file:
        file.check_unchanged(wanted.card.identity)
        blocks = file.read_ranges(request.ranges)
        file.check_unchanged(wanted.card.identity)
    return _Fetched(parts, blocks, ReadStats(file.bytes_requested, file.requests, request.pages, request.row_groups))


def foresee_rows(card: FileCard, columns: Sequence[str], rows: Int64Array) -> ReadStats:
    """What `read_rows` will cost, but for neighbouring ranges that are fetched in one request."""
    if not len(rows) or not columns:
        return NOTHING_READ
    request = _Request()
    for file in prepare(card, tuple(columns)).files:
        request.add(file, rows)
    wanted = sum(length for _, length in request.ranges)
    return ReadStats(wanted, len(request.ranges), request.pages, request.row_groups)


def _check_rows(card: FileCard, rows: Int64Array) -> None:
    if not len(rows):
        return
    if rows[0] < 0 or rows[-1] >= card.num_rows:
        raise IndexError(f"rows {rows[0]} to {rows[-1]} of a file of {card.num_rows}")
    if len(rows) > 1 and not (rows[1:] > rows[:-1]).all():
        raise ValueError("row numbers must ascend and not repeat")


@dataclass(frozen=True, slots=True)
class _ChunkPart:
    """A chunk to assemble: which of the fetched ranges are its dictionary page and its pages."""

    leaf: LeafPlan
    row_group: int
    num_rows: int
    dictionary: int | None
    first_range: int
    last_range: int
    nested: bool


@dataclass(frozen=True, slots=True)
class _FilePart:
    """A file to assemble: for each row group its chunks, for each field the place of the rows."""

    plan: FilePlan
    row_groups: list[list[_ChunkPart]]
    choices: list[Choice]


class _Request:
    """Collects the byte ranges of all files to assemble, so that they are fetched at once."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.pages = 0
        self.row_groups = 0

    def add(self, plan: FilePlan, rows: Int64Array) -> _FilePart:
        choices = [field.choose(rows) for field in plan.fields]
        groups: dict[int, list[_ChunkPart]] = {}
        for field, choice in zip(plan.fields, choices, strict=True):
            for row_group, stretches, num_rows in choice.by_row_group():
                chunks = groups.setdefault(row_group, [])
                chunks += [self._chunk(leaf, row_group, stretches, num_rows, field.nested) for leaf in field.leaves]
        self.row_groups = len(groups)
        return _FilePart(plan, list(groups.values()), choices)

    def _chunk(self, leaf: LeafPlan, row_group: int, stretches: list[int], num_rows: int, nested: bool) -> _ChunkPart:
        ranges = self.ranges
        place = leaf.dictionary(row_group)
        dictionary = None
        if place is not None:
            dictionary = len(ranges)
            ranges.append(place)
        first = len(ranges)
        runs, pages = leaf.runs(stretches)
        ranges += runs
        self.pages += pages
        return _ChunkPart(leaf, row_group, num_rows, dictionary, first, len(ranges), nested)


class _Mismatch(ValueError):
    """The pages decode, but not to what the card says."""


def _decode(sources: Sequence[tuple[_FilePart, list[bytes]]], arrays: dict[str, pa.ChunkedArray]) -> None:
    """Assemble the pages of all sources into one file and take the wanted rows of each of its fields."""
    row_groups = [
        (max(chunk.num_rows for chunk in chunks), [_assembled(chunk, blocks) for chunk in chunks])
        for part, blocks in sources
        for chunks in part.row_groups
    ]
    plan = sources[0][0].plan
    reader = ParquetReader()
    data = assemble(plan.frame, row_groups)
    reader.open(pa.BufferReader(data), pre_buffer=False, arrow_extensions_enabled=True)
    for number, field in enumerate(plan.fields):
        column = reader.read_column(number)
        choices = [part.choices[number] for part, _ in sources]
        counts = [sum(choice.row_counts) for choice in choices]
        if len(column) != sum(counts):
            raise _Mismatch(f"column {field.name} has {len(column)} rows where {sum(counts)} were expected")
        bases = np.cumsum(counts) - counts
        positions = [choice.positions + base for choice, base in zip(choices, bases, strict=True)]
        arrays[field.name] = take(column, positions[0] if len(positions) == 1 else np.concatenate(positions))


def _assembled(chunk: _ChunkPart, blocks: list[bytes]) -> AssembledChunk:
    pages = blocks[chunk.first_range : chunk.last_range]
    values = sum(map(count_values, pages)) if chunk.nested else chunk.num_rows
    dictionary = None if chunk.dictionary is None else blocks[chunk.dictionary]
    return AssembledChunk(chunk.leaf.head(chunk.row_group), values, dictionary, pages)


def _table(plan: ColumnsPlan, columns: Sequence[str], arrays: dict[str, pa.ChunkedArray]) -> pa.Table:
    wanted = [arrays[name] for name in columns]
    for name, expected, column in zip(columns, plan.schema.types, wanted, strict=True):
        if column.type != expected:
            raise _Mismatch(f"column {name} was read as {column.type}, not {expected}")
    return pa.Table.from_arrays(wanted, schema=plan.schema)


def column_bytes(card: FileCard, columns: Sequence[str]) -> int:
    """The compressed bytes of these columns in the whole file: what a scan of them reads."""
    groups = card.num_row_groups
    total = 0
    for name in dict.fromkeys(columns):
        field = card.find(name)
        total += int(card.chunks.size[field.first_leaf * groups : field.last_leaf * groups].sum())
    return total


def pages_of(card: FileCard, column: str, rows: Int64Array) -> int:
    """The number of pages of the column that `read_rows` would fetch for these rows."""
    if not len(rows):
        return 0
    plan = prepare(card, (column,)).files[0].fields[0]
    stretches = plan.choose(rows).stretches
    return sum(leaf.runs(stretches)[1] for leaf in plan.leaves)
