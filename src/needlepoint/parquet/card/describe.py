"""Describe a file: read its footer and page indexes in a few requests, and make a card and bounds of pages.

Chunks without a page index are described from their page headers; those whose headers do not say count as one page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from needlepoint.errors import NotParquet
from needlepoint.objects import Identity, OpenObject, open_object
from needlepoint.parquet.card import card
from needlepoint.parquet.card.card import ABSENT, ChunkTable, Field, FileCard, PageTable
from needlepoint.parquet.format import page_headers, validation
from needlepoint.parquet.format.footer import (
    ColumnChunk,
    FileMetadata,
    Leaf,
    Statistics,
    forgets_dictionary_header,
    leaves,
    max_levels,
    read_footer,
    top_level,
)
from needlepoint.parquet.format.page_index import (
    ColumnIndex,
    Int64Array,
    OffsetIndex,
    agrees,
    decode_column_index,
    decode_offset_index,
    is_plausible,
)
from needlepoint.parquet.format.thrift import ThriftError
from needlepoint.parquet.read import assembly
from needlepoint.parquet.write.embedded import EmbeddedIndexes, embedded, fingerprint

# Bounds longer than this (a document in a text column) are not worth keeping.
LONGEST_BOUND = 4096
# parquet.thrift, ColumnOrder { 1: TypeDefinedOrder {} }, and Type
TYPE_ORDER = b"\x1c\x00\x00"
FLOAT, DOUBLE = 4, 5
_HINT = "The file is truncated or corrupt; write it again."
_DICTIONARY_HEADER = 100  # bytes at most; as in parquet-cpp


@dataclass(frozen=True, slots=True)
class FileDescription:
    """A card; the bounds of the pages of each chunk, None where the file has none; the indexes embedded in the file; a
    fingerprint of its data; and its sample (see `OpenObject`)."""

    card: FileCard
    page_bounds: tuple[ColumnIndex | None, ...]
    embedded: EmbeddedIndexes
    fingerprint: str
    sample: str = ""


def build_card(path: str, identity: Identity | None = None) -> FileCard:
    """The card of the file at `path`; NotParquet when it is no Parquet file, FileChanged when it changes meanwhile.

    For an object an `identity` that is known spares a request, and another version of it is FileChanged.
    """
    return describe(path, identity).card


def describe(path: str, identity: Identity | None = None, *, opened: OpenObject | None = None) -> FileDescription:
    """All there is to know of the file at `path`, or of one that is `opened`, without decoding values; errors as of
    `build_card`."""
    with opened or open_object(path, identity) as file:
        metadata = read_footer(file)
        columns = leaves(metadata.schema)
        chunks = [group.columns[leaf] for leaf in range(len(columns)) for group in metadata.row_groups]
        validation.check(file, metadata)
        ends = _ends(file, metadata, chunks)
        indexes = _offset_indexes(file, metadata, chunks)
        bounds = _column_indexes(file, chunks, indexes)
        _walk_headers(file, metadata, chunks, ends, indexes, bounds)
        _forget_bounds_of_unknown_order(metadata, chunks, bounds)
        _forget_bounds_that_contradict(metadata, columns, chunks, indexes, bounds)
        sample = file.sample()
        file.check_unchanged(file.identity)
        found = _card(file, metadata, columns, chunks, ends, indexes)
        return FileDescription(found, tuple(bounds), embedded(file, metadata), fingerprint(metadata), sample)


def _ends(file: OpenObject, metadata: FileMetadata, chunks: list[ColumnChunk]) -> list[int]:
    """Where the chunks end, or a little after."""
    slack = _DICTIONARY_HEADER if forgets_dictionary_header(metadata.created_by or b"") else 0
    return [min(chunk.end + slack, file.size) for chunk in chunks]


def _offset_indexes(file: OpenObject, metadata: FileMetadata, chunks: list[ColumnChunk]) -> list[OffsetIndex | None]:
    """The offset index of each chunk; None where there is none, or it cannot be trusted."""
    found: list[OffsetIndex | None] = [None] * len(chunks)
    places = [(chunk.offset_index_offset, chunk.offset_index_length) for chunk in chunks]
    for number, data in _read_places(file, places):
        chunk = chunks[number]
        rows = metadata.row_groups[number % len(metadata.row_groups)].num_rows
        try:
            index = decode_offset_index(data)
        except ThriftError:
            continue
        if is_plausible(index, num_rows=rows, start=chunk.start, end=chunk.end):
            found[number] = index
    return found


def _column_indexes(
    file: OpenObject, chunks: list[ColumnChunk], indexes: list[OffsetIndex | None]
) -> list[ColumnIndex | None]:
    found: list[ColumnIndex | None] = [None] * len(chunks)
    places = [(chunk.column_index_offset, chunk.column_index_length) for chunk in chunks]
    for number, data in _read_places(file, places):
        pages = indexes[number]
        try:
            index = decode_column_index(data)
        except ThriftError:
            continue
        if pages is not None and len(index.null_pages) == len(pages.offset):
            found[number] = index
    return found


def _walk_headers(
    file: OpenObject,
    metadata: FileMetadata,
    chunks: list[ColumnChunk],
    ends: list[int],
    indexes: list[OffsetIndex | None],
    bounds: list[ColumnIndex | None],
) -> None:
    """Fill in the pages, and their bounds, of chunks that have no offset index."""
    groups = metadata.row_groups
    lacking = [
        number for number, index in enumerate(indexes) if index is None and groups[number % len(groups)].num_rows
    ]
    if not lacking:
        return
    levels = [repetition for repetition, _ in max_levels(metadata.schema)]
    walked = page_headers.walk(
        file,
        [
            page_headers.Chunk(
                start=chunks[number].start,
                end=ends[number],
                num_values=chunks[number].num_values,
                num_rows=groups[number % len(groups)].num_rows,
                codec=chunks[number].codec,
                max_repetition=levels[number // len(groups)],
            )
            for number in lacking
        ],
    )
    for number, found in zip(lacking, walked, strict=True):
        if found is not None:
            indexes[number], bounds[number] = found.pages, found.bounds


def _forget_bounds_of_unknown_order(
    metadata: FileMetadata, chunks: list[ColumnChunk], bounds: list[ColumnIndex | None]
) -> None:
    """Bounds mean something in the order the writer sorted by. A footer that names none means the type's own, as does
    TYPE_ORDER; of floats the newer total order differs only in where NaN and the zeros stand, and is understood too."""
    orders, groups = metadata.column_orders, len(metadata.row_groups)
    for number, chunk in enumerate(chunks):
        order = orders[number // groups] if number // groups < len(orders) else TYPE_ORDER
        if order[:1] == TYPE_ORDER[:1] or chunk.physical_type in (FLOAT, DOUBLE):
            continue
        nulls = None if chunk.statistics is None else chunk.statistics.null_count
        chunks[number] = replace(chunk, statistics=Statistics(null_count=nulls))
        bounds[number] = None


def _forget_bounds_that_contradict(
    metadata: FileMetadata,
    columns: tuple[Leaf, ...],
    chunks: list[ColumnChunk],
    indexes: list[OffsetIndex | None],
    bounds: list[ColumnIndex | None],
) -> None:
    groups = metadata.row_groups
    for number, (pages, index) in enumerate(zip(indexes, bounds, strict=True)):
        if pages is None or index is None or columns[number // len(groups)].nested:
            continue
        rows = np.diff(pages.first_row_index, append=groups[number % len(groups)].num_rows)
        nulls = _null_count(chunks[number])
        if not agrees(index, rows, None if nulls == ABSENT else nulls):
            bounds[number] = None


def _read_places(file: OpenObject, places: list[tuple[int | None, int | None]]) -> Iterator[tuple[int, bytes]]:
    """The bytes at each place inside the file, with its number."""
    wanted: list[int] = []
    ranges: list[tuple[int, int]] = []
    for number, (offset, length) in enumerate(places):
        if offset is not None and length is not None and 0 < offset <= file.size - length and length > 0:
            wanted.append(number)
            ranges.append((offset, length))
    if wanted:
        yield from zip(wanted, file.read_ranges(ranges), strict=True)


def _card(
    file: OpenObject,
    metadata: FileMetadata,
    columns: tuple[Leaf, ...],
    chunks: list[ColumnChunk],
    ends: list[int],
    indexes: list[OffsetIndex | None],
) -> FileCard:
    fields = _fields(metadata, columns)
    group_rows = np.array([group.num_rows for group in metadata.row_groups], dtype=np.int64)
    row_group_rows = np.concatenate((np.zeros(1, np.int64), np.cumsum(group_rows)))
    page_starts, pages, dictionary_sizes = _pages(chunks, ends, indexes, row_group_rows)
    table, bounds = _chunk_table(chunks, dictionary_sizes)
    return FileCard(
        identity=file.identity,
        num_rows=metadata.num_rows,
        version=metadata.version,
        created_by=metadata.created_by,
        arrow_schema=_arrow_schema(file.path, metadata, fields),
        key_value=metadata.key_value,
        fields=fields,
        leaves=columns,
        row_group_rows=row_group_rows,
        chunks=table,
        page_starts=page_starts,
        pages=pages,
        bounds=bounds,
    )


def _fields(metadata: FileMetadata, columns: tuple[Leaf, ...]) -> tuple[Field, ...]:
    fields = []
    leaf = 0
    for number, (start, end) in enumerate(top_level(metadata.schema)):
        first = leaf
        while leaf < len(columns) and columns[leaf].field == number:
            leaf += 1
        elements = metadata.schema[start:end]
        raw = b"".join(element.raw for element in elements)
        fields.append(Field(elements[0].name, raw, len(elements), first, leaf))
    return tuple(fields)


def _arrow_schema(path: str, metadata: FileMetadata, fields: tuple[Field, ...]) -> pa.Schema:
    frame = assembly.make_frame(
        metadata.version,
        [field.raw for field in fields],
        sum(field.elements for field in fields),
        metadata.key_value,
        metadata.created_by,
    )
    try:
        schema = assembly.arrow_schema(frame)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise NotParquet(path, f"pyarrow cannot read the schema: {error}", hint=_HINT) from error
    if len(schema) != len(fields):
        raise NotParquet(path, "pyarrow reads another schema than the footer has", hint=_HINT)
    return schema


def _pages(
    chunks: list[ColumnChunk], ends: list[int], indexes: list[OffsetIndex | None], row_group_rows: Int64Array
) -> tuple[Int64Array, PageTable, Int64Array]:
    """First page of each chunk, all pages, and the size of each chunk's dictionary page.

    A chunk of which no pages are known counts as one page: all of its data pages, read together.
    """
    groups = len(row_group_rows) - 1
    counts = np.zeros(len(chunks) + 1, dtype=np.int64)
    dictionary_sizes = np.zeros(len(chunks), dtype=np.int64)
    offsets: list[Int64Array] = []
    sizes: list[Int64Array] = []
    rows: list[Int64Array] = []
    for number, (chunk, index) in enumerate(zip(chunks, indexes, strict=True)):
        first_row, next_row = row_group_rows[number % groups : number % groups + 2]
        if first_row == next_row:
            continue
        if index is None:
            data = np.array([chunk.data_page_offset])
            offsets.append(data)
            sizes.append(np.maximum(ends[number] - data, 0))
            rows.append(np.array([first_row]))
        else:
            offsets.append(index.offset)
            sizes.append(index.compressed_page_size)
            rows.append(index.first_row_index + first_row)
        counts[number + 1] = len(offsets[-1])
        # What precedes the first data page is the dictionary page, whether the footer mentions it or not.
        dictionary_sizes[number] = offsets[-1][0] - chunk.start
    return np.cumsum(counts), PageTable(_joined(offsets), _joined(sizes), _joined(rows)), dictionary_sizes


def _joined(arrays: list[Int64Array]) -> Int64Array:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _chunk_table(chunks: list[ColumnChunk], dictionary_sizes: Int64Array) -> tuple[ChunkTable, bytes]:
    bounds = [_bounds(chunk.statistics or Statistics()) for chunk in chunks]

    def numbers(values: list[int]) -> Int64Array:
        return np.array(values, dtype=np.int64)

    table = ChunkTable(
        codec=numbers([chunk.codec for chunk in chunks]),
        encodings=numbers([sum(1 << encoding for encoding in {*chunk.encodings}) for chunk in chunks]),
        start=numbers([chunk.start for chunk in chunks]),
        size=numbers([chunk.total_compressed_size for chunk in chunks]),
        num_values=numbers([chunk.num_values for chunk in chunks]),
        dictionary_size=dictionary_sizes,
        null_count=numbers([_null_count(chunk) for chunk in chunks]),
        column_index_offset=numbers([_or_absent(chunk.column_index_offset) for chunk in chunks]),
        column_index_length=numbers([_or_absent(chunk.column_index_length) for chunk in chunks]),
        bloom_filter_offset=numbers([_or_absent(chunk.bloom_filter_offset) for chunk in chunks]),
        bloom_filter_length=numbers([_or_absent(chunk.bloom_filter_length) for chunk in chunks]),
        bounds_flags=numbers([flags for flags, _, _ in bounds]),
        min_length=numbers([len(low) for _, low, _ in bounds]),
        max_length=numbers([len(high) for _, _, high in bounds]),
    )
    return table, b"".join(low + high for _, low, high in bounds)


def _or_absent(value: int | None) -> int:
    return ABSENT if value is None else value


def _null_count(chunk: ColumnChunk) -> int:
    count = None if chunk.statistics is None else chunk.statistics.null_count
    return ABSENT if count is None or not 0 <= count <= chunk.num_values else count


def _bounds(statistics: Statistics) -> tuple[int, bytes, bytes]:
    """Flags, minimum and maximum of a chunk. The deprecated fields count only where the others are absent."""
    low, high = statistics.min_value, statistics.max_value
    flags = 0
    if low is None and high is None:
        low, high = statistics.legacy_min, statistics.legacy_max
        flags = 0 if low is None and high is None else card.LEGACY
    else:
        if statistics.is_min_exact is not None:
            flags |= card.MIN_EXACT if statistics.is_min_exact else card.MIN_INEXACT
        if statistics.is_max_exact is not None:
            flags |= card.MAX_EXACT if statistics.is_max_exact else card.MAX_INEXACT
    if low is None or len(low) > LONGEST_BOUND:
        low = b""
    else:
        flags |= card.HAS_MIN
    if high is None or len(high) > LONGEST_BOUND:
        high = b""
    else:
        flags |= card.HAS_MAX
    return flags, low, high
