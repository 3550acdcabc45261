"""The access plan of one table, executed: page reads and native scans, joined into one DataFusion table."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import datafusion
import numpy as np
import pyarrow as pa

from needlepoint.access import AccessPlan, Rows
from needlepoint.errors import FileChanged
from needlepoint.objects import Identity, identify_all, is_url
from needlepoint.parquet.card import FileCard
from needlepoint.parquet.pages import ReadStats, Wanted, foresee_rows, read_files
from needlepoint.query.cards import Cards
from needlepoint.query.native import NativeScans
from needlepoint.query.statements import quoted
from needlepoint.tables import partitions
from needlepoint.tables.definitions import File
from needlepoint.tables.listing import list_files
from needlepoint.tables.snapshots import Snapshot

# A page of its own costs several times its part of a whole column; an estimate, see benchmarks/README.md.
PAGE_SHARE_WORTH_A_SCAN = 0.2
# Above this many partitions one native listing of the directory is planned faster than an arm for each.
MOST_ARMS = 16
FILES_WORTH_THREADS = 17  # more than one group of them
# A listing tells of 1,000 objects in a tenth of a second, one request after the other; a question for a single object
# takes a third of that, with 32 on their way at once. From this share of a table on, listing it is quicker.
SHARE_WORTH_A_LISTING = 0.1
FILES_WORTH_A_LISTING = 32


@dataclass(slots=True)
class Reading:
    """What is to be read of one table, and afterwards what was."""

    snapshot: Snapshot
    columns: frozenset[str]
    plan: AccessPlan
    opaque: frozenset[str] = frozenset()
    stats: list[ReadStats] = field(default_factory=list)
    scanned: list[File] = field(default_factory=list)
    paged: list[File] = field(default_factory=list)
    listed: bool = False
    may_list: bool = True

    @property
    def remote(self) -> bool:
        return is_url(self.snapshot.table.location)

    def path(self, file: File) -> str:
        return f"{self.snapshot.table.location}/{file.path}"


def settle(reading: Reading, cards: Cards) -> None:
    """The cost gate: page reads where few pages are wanted, the native scan where many are or no card is there."""
    columns, files = _stored_columns(reading), reading.snapshot.files
    dear = []
    for position, rows in reading.plan.rows.items():
        card = cards.get(files[position])
        if card is None or not _worth_page_reads(card, columns, rows):
            dear.append(position)
    reading.plan = reading.plan.scanning(dear) if dear else reading.plan
    reading.scanned = [files[position] for position in reading.plan.scanned()]
    reading.paged = [files[position] for position in reading.plan.rows]


def _stored_columns(reading: Reading) -> list[str]:
    """The wanted columns that are in the files and not in their paths, in the table's order."""
    table = reading.snapshot.table
    return [name for name in table.data_columns if name in reading.columns]


def _worth_page_reads(card: FileCard, columns: Sequence[str], rows: Rows) -> bool:
    count = rows.count
    if count == 1:
        return True
    present = [name for name in columns if name in card.arrow_schema.names]
    if not present:
        return True
    numbers = rows.numbers()
    total = wanted = 0
    for name in present:
        first_rows = card.pages.first_row[card.leaf_pages(card.find(name).first_leaf)]
        total += len(first_rows)
        touched = np.searchsorted(first_rows, numbers, "right")
        wanted += int(np.count_nonzero(np.diff(touched))) + 1
    return wanted <= max(len(present), total * PAGE_SHARE_WORTH_A_SCAN)


def read_pages(reading: Reading, cards: Cards) -> pa.Table | None:
    """The rows that are read page by page, with all columns of the table; None when there are none."""
    work: dict[tuple[str, ...], list[tuple[File, Wanted]]] = {}
    columns, files = _stored_columns(reading), reading.snapshot.files
    for position, rows in sorted(reading.plan.rows.items()):
        file = files[position]
        card = cards.get(file)
        if card is None:
            raise FileChanged(reading.path(file), "lost its card")
        present = tuple(name for name in columns if name in card.arrow_schema.names)
        work.setdefault(present, []).append((file, Wanted(reading.path(file), card, rows.numbers())))
    tables = []
    for present, wanted in work.items():
        do_all = map if len(wanted) < FILES_WORTH_THREADS else _threads().map
        try:
            parts = read_files([each for _, each in wanted], present, do_all)
        except FileNotFoundError as error:
            raise FileChanged(str(error.filename), "is gone") from None
        for numbers, found, stats in parts:
            reading.stats.append(stats)
            tables.append(_completed(reading, [wanted[number] for number in numbers], found))
    return pa.concat_tables(tables) if tables else None


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Shared by all queries; decoding runs outside Python's lock."""
    return ThreadPoolExecutor(2 * (os.cpu_count() or 1), thread_name_prefix="needlepoint-read")


def _completed(reading: Reading, wanted: Sequence[tuple[File, Wanted]], found: pa.Table) -> pa.Table:
    """What was read of files, as rows of the table: types as declared, partition values added, NULLs for the rest."""
    schema, snapshot = reading.snapshot.table.schema, reading.snapshot
    counts = [len(each.rows) for _, each in wanted]
    arrays = []
    for column in schema:
        if column.name in snapshot.table.partitions:
            values = [snapshot.partition_values(file)[column.name] for file, _ in wanted]
            chunks = [pa.repeat(value, count) for value, count in zip(values, counts, strict=True)]
            arrays.append(pa.chunked_array(chunks, column.type))
        elif column.name in found.column_names:
            arrays.append(_as_type(found.column(column.name), column.type))
        else:
            arrays.append(pa.chunked_array([pa.nulls(sum(counts), column.type)]))
    return pa.Table.from_arrays(arrays, schema=schema).combine_chunks()


def _as_type(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    if values.type.equals(type):
        return values
    if isinstance(values.type, pa.BaseExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    return values.cast(type)


def as_frame(
    reading: Reading, pages: pa.Table | None, natives: NativeScans, context: datafusion.SessionContext
) -> datafusion.DataFrame:
    """One DataFrame with the table's schema that holds what the plan lets through."""
    arms = list(_native_arms(reading, natives, context))
    if pages is not None or not arms:
        table = pages if pages is not None else reading.snapshot.table.schema.empty_table()
        batches = table.to_batches() or [empty_batch(table.schema)]
        arms.append(context.read_batches(batches))
    frame = arms[0]
    for arm in arms[1:]:
        frame = frame.union(arm)
    return frame


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema)


def _native_arms(
    reading: Reading, natives: NativeScans, context: datafusion.SessionContext
) -> Iterator[datafusion.DataFrame]:
    """Files with the same values of the partition columns that the query uses share an arm."""
    if not reading.scanned:
        return
    table = reading.snapshot.table
    data = pa.schema([table.schema.field(name) for name in table.data_columns])
    if not reading.remote:  # there the check costs requests, and the one after the scan tells all the same
        check_present(reading)
    used = [name for name in table.partitions if name in reading.columns]
    if not table.partitions:
        frame = natives.scan(context, data, [reading.path(file) for file in reading.scanned])
        yield _selected(reading, frame, {}) if reading.opaque else frame
        return
    groups = _grouped(reading.scanned, used)
    whole = len(reading.scanned) == len(reading.snapshot.files)
    if len(groups) > MOST_ARMS and whole and reading.snapshot.listable and reading.may_list:
        reading.listed = True
        columns = [(name, table.schema.field(name).type) for name in table.partitions]
        frame = natives.scan(context, data, [f"{table.location}/"], columns)
        yield _selected(reading, frame, {}) if reading.opaque else frame
        return
    for files in groups.values():
        fixed = reading.snapshot.partition_values(files[0])
        values = {name: fixed[name] if name in used else None for name in table.partitions}
        frame = natives.scan(context, data, [reading.path(file) for file in files])
        yield _selected(reading, frame, values)


def _grouped(files: Sequence[File], used: Sequence[str]) -> dict[tuple[str | None, ...], list[File]]:
    groups: dict[tuple[str | None, ...], list[File]] = {}
    for file in files:
        raw = dict(partitions.parse(file.path)) if used else {}
        groups.setdefault(tuple(raw.get(name) for name in used), []).append(file)
    return groups


def _selected(
    reading: Reading, frame: datafusion.DataFrame, fixed: Mapping[str, pa.Scalar | None]
) -> datafusion.DataFrame:
    """The table's columns in order. `opaque` float columns are hidden from DataFusion's pruning (see engine.py)."""
    expressions = []
    for column in reading.snapshot.table.schema:
        name = quoted(column.name)
        if column.name in fixed:
            value = fixed[column.name]
            literal = datafusion.lit(None) if value is None or not value.is_valid else datafusion.lit(value)
            expression = literal.cast(column.type)
        elif column.name in reading.opaque:
            expression = datafusion.functions.nanvl(datafusion.col(name), datafusion.col(name))
        else:
            expression = datafusion.col(name)
        expressions.append(expression.alias(column.name))
    return frame.select(*expressions)


def check_present(reading: Reading) -> None:
    """DataFusion passes over a missing file of a list in silence: called before a scan and after it."""
    for file, now in zip(reading.scanned, _identities(reading), strict=True):
        if now != file.identity:
            raise FileChanged(reading.path(file), "changed or went away")


def _identities(reading: Reading) -> Sequence[Identity | None]:
    """Of the files that are scanned, as they are now."""
    wanted, known = len(reading.scanned), len(reading.snapshot.files)
    if reading.remote and wanted > max(FILES_WORTH_A_LISTING, known * SHARE_WORTH_A_LISTING):
        listed = list_files(reading.snapshot.table.location).files
        return [listed.get(file.path) for file in reading.scanned]
    return identify_all([reading.path(file) for file in reading.scanned])


def rows_read(reading: Reading) -> int:
    return sum(rows.count for rows in reading.plan.rows.values())


def foreseen(reading: Reading, cards: Cards) -> list[ReadStats]:
    """What the page reads will cost, without doing them."""
    columns = _stored_columns(reading)
    found = []
    for position, rows in reading.plan.rows.items():
        card = cards.get(reading.snapshot.files[position])
        if card is not None:
            present = [name for name in columns if name in card.arrow_schema.names]
            found.append(foresee_rows(card, present, rows.numbers()))
    return found
