"""Rows read page by page.

Rows that an index named are read at once, all their columns. Rows that only bounds let through are looked at first: the
columns of the predicate are read, and of the others no more than the pages of the rows that match.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from needlepoint import forks
from needlepoint.errors import FileChanged
from needlepoint.objects import as_source
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.card.describe import describe
from needlepoint.parquet.format import int96
from needlepoint.parquet.read.caches import Caches
from needlepoint.parquet.read.page_reader import ReadStats, Wanted, foresee_rows, read_files
from needlepoint.parquet.read.utf8 import check_file_texts, holds_text
from needlepoint.query.cache.card_cache import HasCards
from needlepoint.query.scan.cost_model import FILES_IN_A_THREAD, THREADS, by_pages
from needlepoint.query.scan.late_materialization import matching, sifting_columns
from needlepoint.query.scan.scan_plan import Held, Reading
from needlepoint.tables.model import File
from needlepoint.tables.schemas import too_far, unit_of

_Work = list[tuple[File, Wanted]]
Counts = Sequence[tuple[File, int]]
"""Files, and how many rows of each."""


def read_pages(reading: Reading, cards: HasCards, caches: Caches | None = None) -> pa.Table | None:
    """The rows that are read page by page, with all columns of the table; None when there are none."""
    types = {field.name: field.type for field in reading.snapshot.table.schema}
    decisive = sifting_columns(reading.predicate, types) if reading.plan.rough else frozenset()
    work: dict[tuple[tuple[str, ...], tuple[str, ...]], _Work] = {}
    columns, files = reading.stored_columns(), reading.snapshot.files
    for position, rows in sorted(reading.plan.rows.items()):
        file = files[position]
        held = reading.held.get(file.path)
        card = cards.get(file) or _described(held)
        if card is None:
            raise FileChanged(reading.path(file), "lost its card")
        present = tuple(name for name in columns if card.has(name))
        first = tuple(name for name in present if name in decisive) if position in reading.plan.rough else ()
        rest = tuple(name for name in present if name not in first)
        if first and rest:
            every = by_pages(card, rest, rows)
            saved = (every.pages - len(rest)) * (reading.costs.page + reading.costs.byte * every.bytes / every.pages)
            # Looking first is another visit to the file.
            if saved < reading.costs.file + reading.costs.request:
                first = ()
        wanted = Wanted(reading.path(file), card, rows.numbers(), None if held is None else held.open)
        work.setdefault((first, present), []).append((file, wanted))
    tables: list[pa.Table] = []
    try:
        for (first, present), wanted_of in work.items():
            read = _Reader(reading, caches)
            tables += read.sifted(first, present, wanted_of) if first else read.all(present, wanted_of)
    except FileNotFoundError as error:
        raise FileChanged(str(error.filename), "is gone") from None
    return pa.concat_tables(tables) if tables else None


def _described(held: Held | None) -> FileCard | None:
    """The card of a version that is held: the registry has only the newest."""
    if held is None:
        return None
    opened = held.open()
    return describe(opened.path, opened=opened).card


def read_matching(
    reading: Reading, values: Mapping[str, pa.Array], cards: HasCards, caches: Caches | None = None
) -> pa.Table:
    """The rows read page by page whose columns have one of these values each; not for floats.

    Every row is checked again: the index says "these at most".
    """
    found = read_pages(reading, cards, caches)
    if found is None:
        return reading.snapshot.table.schema.empty_table()
    mask = None
    for column, array in values.items():
        present = found.column(column)
        one = pc.equal(present, array[0]) if len(array) == 1 else pc.is_in(present, array)
        mask = one if mask is None else pc.and_kleene(mask, one)
    return found if mask is None else found.filter(mask)


class _Reader:
    def __init__(self, reading: Reading, caches: Caches | None) -> None:
        self._reading = reading
        self._caches = caches

    def all(self, columns: tuple[str, ...], work: _Work) -> list[pa.Table]:
        """The wanted rows of all files, with these columns, as rows of the table."""
        return [
            completed(self._reading, _counts(work, numbers), found) for numbers, found in self._parts(columns, work)
        ]

    def sifted(self, first: tuple[str, ...], columns: tuple[str, ...], work: _Work) -> list[pa.Table]:
        """First the columns that decide; then, of the rows that can match, the others."""
        self._reading.sifted += len(work)
        seen: list[pa.Table] = []
        left: _Work = []
        for numbers, found in self._parts(first, work):
            # Files differ in how wide their types are.
            typed = _typed(self._reading, _counts(work, numbers), found)
            mask = matching(typed, self._reading.predicate)
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
            tables.append(completed(self._reading, _counts(left, numbers), pa.table(both)))
        return tables

    def _parts(self, columns: tuple[str, ...], work: _Work) -> list[tuple[list[int], pa.Table]]:
        threads = None if len(work) <= FILES_IN_A_THREAD else _threads()
        parts = []
        for numbers, found, stats in read_files([wanted for _, wanted in work], columns, threads, self._caches):
            self._reading.stats.append(stats)
            parts.append((numbers, found))
        return parts


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Shared by all queries; decoding runs outside Python's lock."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="needlepoint-read")


forks.reset(_threads.cache_clear)


def _counts(work: _Work, numbers: Sequence[int]) -> Counts:
    return [(work[number][0], len(work[number][1].rows)) for number in numbers]


def _typed(reading: Reading, wanted: Counts, found: pa.Table) -> pa.Table:
    return pa.table({name: _as_declared(reading, wanted, found, name) for name in found.column_names})


def completed(reading: Reading, wanted: Counts, found: pa.Table) -> pa.Table:
    """What was read of files, as rows of the table: types as declared, partition values added, NULLs for the rest."""
    schema, snapshot = reading.snapshot.table.schema, reading.snapshot
    counts = [count for _, count in wanted]
    arrays = []
    for column in schema:
        if column.name in snapshot.table.partitions:
            values = [snapshot.partition_values(file)[column.name] for file, _ in wanted]
            chunks = [pa.repeat(value, count) for value, count in zip(values, counts, strict=True)]
            arrays.append(pa.chunked_array(chunks, column.type))
        elif column.name in found.column_names:
            arrays.append(_as_declared(reading, wanted, found, column.name))
        else:
            arrays.append(pa.chunked_array([pa.nulls(sum(counts), column.type)]))
    return pa.Table.from_arrays(arrays, schema=schema).combine_chunks()


def _as_declared(reading: Reading, wanted: Counts, found: pa.Table, name: str) -> pa.ChunkedArray:
    """A column in the table's type; SchemaConflict names the file with a value that the type has no room for."""
    values, type = found.column(name), reading.snapshot.table.schema.field(name).type
    try:
        return _as_type(values, type)
    except pa.ArrowInvalid:
        start = 0
        for file, count in wanted if unit_of(type) is not None else ():
            _check_room(reading, file, name, values.slice(start, count))
            start += count
        raise


def _check_room(reading: Reading, file: File, name: str, values: pa.ChunkedArray) -> None:
    type = reading.snapshot.table.schema.field(name).type
    try:
        _as_type(values, type)
    except pa.ArrowInvalid:
        raise too_far(reading.path(file), name, type) from None


def check_units(reading: Reading) -> None:
    """SchemaConflict names the file whose values DataFusion could not cast to the table's finer unit, if one is."""
    mixed = reading.columns & reading.snapshot.table.mixed
    for file in reading.scanned if mixed else ():
        with contextlib.suppress(OSError, pa.ArrowException):  # one that cannot be read is not the one
            opened = pq.ParquetFile(
                as_source(reading.path(file), file.identity), coerce_int96_timestamp_unit=int96.UNIT
            )
            present = [name for name in opened.schema_arrow.names if name in mixed]
            for batch in opened.iter_batches(columns=present):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    _check_room(reading, file, name, pa.chunked_array([column]))


def check_scanned_texts(reading: Reading) -> None:
    """NotParquet names the file and the column whose strings DataFusion could not read as UTF-8, if one is."""
    for file in reading.scanned:
        with contextlib.suppress(OSError, pa.ArrowException):  # one that cannot be read is not the one
            opened = pq.ParquetFile(as_source(reading.path(file), file.identity))
            fields = [field for field in opened.schema_arrow if field.name in reading.columns]
            present = [field.name for field in fields if holds_text(field.type)]
            for batch in opened.iter_batches(columns=present) if present else ():
                check_file_texts(reading.path(file), pa.Table.from_batches([batch]))


def _as_type(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    if values.type.equals(type):
        return values
    if isinstance(values.type, pa.BaseExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    return values.cast(type)


def rows_read(reading: Reading) -> int:
    return sum(rows.count for rows in reading.plan.rows.values())


def foreseen(reading: Reading, cards: HasCards) -> list[ReadStats]:
    """What the page reads will cost at most, without doing them."""
    columns = reading.stored_columns()
    found = []
    for position, rows in reading.plan.rows.items():
        card = cards.get(reading.snapshot.files[position])
        if card is not None:
            present = [name for name in columns if card.has(name)]
            found.append(foresee_rows(card, present, rows.numbers()))
    return found
