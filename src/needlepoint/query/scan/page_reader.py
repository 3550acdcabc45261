"""Reads rows by page.

For rows that an index named, all columns are read at once. For rows that only bounds let through, the columns of the
predicate are read first, and then only the pages of the rows that match.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from needlepoint import forks
from needlepoint.errors import FileChanged
from needlepoint.objects import as_source
from needlepoint.parquet import (
    PAGES_FOR_A_THREAD,
    CachedCard,
    Caches,
    FileRows,
    ReadStats,
    check_file_texts,
    describe,
    foresee_rows,
    holds_text,
    read_files,
    reads_jointly,
)
from needlepoint.parquet.format import int96
from needlepoint.query.cache.card_cache import CardSource
from needlepoint.query.scan.cost_model import FileSizes
from needlepoint.query.scan.costs import THREADS
from needlepoint.query.scan.scan_plan import HeldVersion, ScanMetrics, ScanPlan
from needlepoint.tables import File, Snapshot, too_far, unit_of

# If bounds leave a smaller part of a file than this, rows that follow one another probably all match, but for a
# page at the end.
CLUSTERED_SHARE = 0.3

_PLAIN = {pa.Int64Array, pa.Int32Array, pa.StringArray, pa.LargeStringArray}
_Work = list[tuple[File, FileRows]]
Counts = Sequence[tuple[File, int]]
"""Files, and how many rows of each."""


@dataclass(frozen=True, slots=True)
class PageRead:
    """The rows read by page, with all columns of the table; None if there are none."""

    rows: pa.Table | None
    metrics: ScanMetrics


def read_pages(
    scan: ScanPlan, cards: CardSource, caches: Caches | None = None, check: Callable[[], None] = lambda: None
) -> PageRead:
    """`check` is called now and then, and raises an error to stop."""
    work: dict[tuple[tuple[str, ...], tuple[str, ...]], _Work] = {}
    rows, columns, held = scan.access.rows, tuple(scan.stored_columns()), scan.held
    files = [scan.snapshot.files[position] for position in rows.positions.tolist()]
    found = [cards.cached(file) or _described(held.get(file.path)) for file in files]
    described = [cached for cached in found if cached is not None]
    if len(described) < len(files):
        raise FileChanged(scan.path(files[found.index(None)]), "lost its card")
    jointly = not scan.remote and reads_jointly(rows.count, caches)
    firsts = _read_first(scan, described, columns, jointly)
    for file, cached, first, numbers in zip(files, described, firsts, rows.numbers(), strict=True):
        version = held.get(file.path) if held else None
        wanted = FileRows(scan.path(file), cached, numbers, None if version is None else version.open)
        work.setdefault((first, cached.present(columns)), []).append((file, wanted))
    tables: list[pa.Table] = []
    reader = _TableReader(scan, caches, check)
    try:
        for (first, present), wanted_of in work.items():
            tables += reader.sifted(first, present, wanted_of) if first else reader.all(present, wanted_of)
    except FileNotFoundError as error:
        raise FileChanged(str(error.filename), "is gone") from None
    read = pa.concat_tables(tables) if tables else None
    matched = 0 if read is None else read.num_rows
    return PageRead(read, ScanMetrics(tuple(reader.reads), reader.files_sifted, matched))


def _read_first(
    scan: ScanPlan, cards: Sequence[CachedCard], columns: tuple[str, ...], jointly: bool
) -> list[tuple[str, ...]]:
    """For each file of which some rows are read, the columns that are read first to rule rows out; none where that
    takes longer."""
    nothing: tuple[str, ...] = ()
    types = {field.name: field.type for field in scan.snapshot.table.schema}
    from needlepoint.query.scan.late_materialization import sifting_columns

    decisive = sifting_columns(scan.predicate, types) if scan.access.inexact else frozenset()
    if not decisive:
        return [nothing] * len(cards)
    rows, costs = scan.access.rows, scan.costs
    rest = FileSizes.of(cards, [name for name in columns if name not in decisive])
    every = rest.by_pages(rows.counts, rows.ranges, jointly)
    avoided = every.pages - rest.columns
    few = rows.counts < CLUSTERED_SHARE * rest.num_rows
    avoided = np.where(few, np.minimum(avoided, rest.columns * rows.ranges), avoided)
    of_file = every.file_seconds(costs)
    saved = avoided / np.maximum(1, every.pages) * (every.seconds(costs) - of_file)
    # Late materialization reads the file twice.
    is_worth = (rest.columns == 0) | (saved >= of_file + costs.request)
    is_worth &= np.isin(rows.positions, list(scan.access.inexact))
    first = tuple(name for name in columns if name in decisive)
    return [each.present(first) if worth else nothing for each, worth in zip(cards, is_worth.tolist(), strict=True)]


def _described(held: HeldVersion | None) -> CachedCard | None:
    """The card of a held version: the registry only has the newest."""
    if held is None:
        return None
    opened = held.open()
    return CachedCard(describe(opened.path, opened=opened).card)


def matching_rows(rows: pa.Table, values: Mapping[str, pa.Array]) -> pa.Table:
    """The rows whose columns each have one of these values; not for floats. An index may return too many rows."""
    mask = None
    for column, array in values.items():
        present = rows.column(column)
        if len(array) == rows.num_rows == 1 and type(array) in _PLAIN and present.type == array.type:  # without kernels
            if not array[0].is_valid or not present[0].equals(array[0]):
                return rows.slice(0, 0)
            continue
        one = pc.equal(present, array[0]) if len(array) == 1 else pc.is_in(present, array)
        mask = one if mask is None else pc.and_kleene(mask, one)
    return rows if mask is None else rows.filter(mask)


class _TableReader:
    """Reads pages, and counts: `reads`, and `files_sifted` whose predicate columns were read first."""

    def __init__(self, scan: ScanPlan, caches: Caches | None, check: Callable[[], None]) -> None:
        self._scan = scan
        self._check = check
        self._caches = caches
        self.reads: list[ReadStats] = []
        self.files_sifted = 0

    def all(self, columns: tuple[str, ...], work: _Work) -> list[pa.Table]:
        """These columns of the wanted rows of all files, in the table's types."""
        return [
            complete_rows(self._scan.snapshot, _counts(work, numbers), found, used=self._scan.columns)
            for numbers, found in self._parts(columns, work)
        ]

    def sifted(self, first: tuple[str, ...], columns: tuple[str, ...], work: _Work) -> list[pa.Table]:
        """The columns of the predicate first; then the others, of the rows that can match."""
        self.files_sifted += len(work)
        seen: list[pa.Table] = []
        left: _Work = []
        for numbers, found in self._parts(first, work):
            # Files can differ in the width of a type.
            typed = _typed(self._scan.snapshot, _counts(work, numbers), found)
            from needlepoint.query.scan.late_materialization import matching

            mask = matching(typed, self._scan.predicate)
            ends = np.cumsum([len(work[number][1].rows) for number in numbers])
            for number, end in zip(numbers, ends.tolist(), strict=True):
                file, wanted = work[number]
                start = end - len(wanted.rows)
                matched = mask[start:end]
                if matched.any():
                    seen.append(typed.slice(start, end - start).filter(pa.array(matched)))
                    left.append((file, replace(wanted, rows=wanted.rows[matched])))
        rest = tuple(name for name in columns if name not in first)
        tables = []
        for numbers, found in self._parts(rest, left):
            decided = pa.concat_tables([seen[number] for number in numbers])
            both = {name: (decided if name in first else found).column(name) for name in columns}
            counts = _counts(left, numbers)
            tables.append(complete_rows(self._scan.snapshot, counts, pa.table(both), used=self._scan.columns))
        return tables

    def _parts(self, columns: tuple[str, ...], work: _Work) -> list[tuple[list[int], pa.Table]]:
        few = sum(len(wanted.rows) for _, wanted in work) * len(columns) < PAGES_FOR_A_THREAD
        threads = None if few or THREADS == 1 else _threads()
        parts = []
        for numbers, found, stats in read_files(
            [wanted for _, wanted in work], columns, threads, self._caches, self._check
        ):
            self.reads.append(stats)
            parts.append((numbers, found))
        return parts


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Shared by all queries; decoding releases the GIL."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="needlepoint-read")


forks.reset(_threads.cache_clear)


def _counts(work: _Work, numbers: Sequence[int]) -> Counts:
    return [(work[number][0], len(work[number][1].rows)) for number in numbers]


def _typed(snapshot: Snapshot, wanted: Counts, found: pa.Table) -> pa.Table:
    schema = snapshot.table.schema
    return pa.table(
        {name: _as_declared(snapshot, wanted, found.column(name), schema.field(name)) for name in found.column_names}
    )


def complete_rows(
    snapshot: Snapshot,
    wanted: Counts,
    found: pa.Table,
    names: Sequence[str] | None = None,
    used: Collection[str] | None = None,
) -> pa.Table:
    """Rows read from files as rows of the table, with all its columns or with these: declared types, partition values
    added, NULL for missing columns, and for partition columns that are not among those `used`."""
    schema = snapshot.table.schema
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names], schema.metadata)
    arrays = []
    for column in schema:
        if column.name in snapshot.table.partitions and (used is None or column.name in used):
            counts = [count for _, count in wanted]
            values = [snapshot.partition_values(file)[column.name] for file, _ in wanted]
            chunks = [pa.repeat(value, count) for value, count in zip(values, counts, strict=True)]
            arrays.append(pa.chunked_array(chunks, column.type))
        elif column.name in found.column_names:
            values = found.column(column.name)
            same = values.type == column.type
            arrays.append(values if same else _as_declared(snapshot, wanted, values, column))
        else:
            arrays.append(pa.chunked_array([pa.nulls(sum(count for _, count in wanted), column.type)]))
    table = pa.Table.from_arrays(arrays, schema=schema)
    return table.combine_chunks() if any(array.num_chunks != 1 for array in arrays) else table


def _as_declared(snapshot: Snapshot, wanted: Counts, values: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    """A column in the table's type; SchemaConflict names the file with a value that the type cannot hold."""
    try:
        return _as_type(values, column.type)
    except pa.ArrowInvalid:
        start = 0
        for file, count in wanted if unit_of(column.type) is not None else ():
            _check_room(snapshot, file, column.name, values.slice(start, count))
            start += count
        raise


def _check_room(snapshot: Snapshot, file: File, name: str, values: pa.ChunkedArray) -> None:
    type = snapshot.table.schema.field(name).type
    try:
        _as_type(values, type)
    except pa.ArrowInvalid:
        raise too_far(f"{snapshot.table.location}/{file.path}", name, type) from None


def check_units(scan: ScanPlan) -> None:
    """Raise SchemaConflict for a file whose values DataFusion cannot cast to the table's finer unit."""
    mixed = scan.columns & scan.snapshot.table.mixed
    for file in scan.scanned if mixed else ():
        with contextlib.suppress(OSError, pa.ArrowException):  # an unreadable file is another error
            opened = pq.ParquetFile(as_source(scan.path(file), file.identity), coerce_int96_timestamp_unit=int96.UNIT)
            present = [name for name in opened.schema_arrow.names if name in mixed]
            for batch in opened.iter_batches(columns=present):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    _check_room(scan.snapshot, file, name, pa.chunked_array([column]))


def check_scanned_texts(scan: ScanPlan) -> None:
    """Raise NotParquet for a file and column whose strings are not UTF-8."""
    for file in scan.scanned:
        with contextlib.suppress(OSError, pa.ArrowException):  # an unreadable file is another error
            opened = pq.ParquetFile(as_source(scan.path(file), file.identity))
            fields = [field for field in opened.schema_arrow if field.name in scan.columns]
            present = [field.name for field in fields if holds_text(field.type)]
            for batch in opened.iter_batches(columns=present) if present else ():
                check_file_texts(scan.path(file), pa.Table.from_batches([batch]))


def _as_type(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    if values.type.equals(type):
        return values
    if isinstance(values.type, pa.BaseExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    return values.cast(type)


def rows_read(scan: ScanPlan) -> int:
    return scan.access.rows.count


def estimate_reads(scan: ScanPlan, cards: CardSource) -> list[ReadStats]:
    """The most that the page reads can cost, without doing them."""
    columns = scan.stored_columns()
    found = []
    for position, rows in scan.access.rows.items():
        cached = cards.cached(scan.snapshot.files[position])
        if cached is not None:
            present = [name for name in columns if cached.card.has(name)]
            found.append(foresee_rows(cached, present, rows.numbers()))
    return found
