"""The anatomy of a Parquet file: its parts, where they are, and what slows lookups down.

    inspect(path)               the file: its columns, its layout, what could be better
    inspect_pages(path, column) one column: its pages

Nothing is decoded: footer, page indexes and, where there are none, page headers are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from needlepoint.errors import FileChanged, FileError, UnknownName
from needlepoint.objects import OpenObject, open_object
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.card.describe import FileDescription, describe
from needlepoint.parquet.format.footer import ColumnChunk, FileMetadata, Leaf, read_footer
from needlepoint.parquet.inspect import layout
from needlepoint.parquet.inspect.advice import LayoutAdvice, advise
from needlepoint.parquet.inspect.display import CODECS, ENCODINGS, TYPES, Readable, bound, leaf_types, name_of, names_of
from needlepoint.parquet.inspect.layout import EmbeddedIndex, Segment
from needlepoint.parquet.inspect.page_walk import DATA_PAGES, Page, pages_of_chunk

# Headers read to find the pages of chunks without an offset index; beyond it their sizes stay unknown.
MOST_HEADERS = 5000
_DICTIONARY_ENCODINGS = (2, 8)  # parquet.thrift, PLAIN_DICTIONARY and RLE_DICTIONARY


@dataclass(frozen=True, slots=True)
class PageSizes:
    """The data pages of a column; bytes with headers, compressed. Rows are unknown in some nested columns."""

    count: int
    median_bytes: int
    max_bytes: int
    median_rows: int | None
    max_rows: int | None


@dataclass(frozen=True, slots=True)
class ColumnAnatomy:
    """A column of primitive values, over all row groups. Counts say how many chunks have something."""

    name: str
    type: str
    physical_type: str
    nested: bool
    codecs: tuple[str, ...]
    encodings: tuple[str, ...]
    chunks: int
    values: int
    nulls: int | None
    compressed: int
    uncompressed: int
    share: float  # of the bytes of the file
    dictionary_bytes: int
    dictionary_chunks: int
    plain_after_dictionary: int  # chunks that began with a dictionary and gave it up
    pages: PageSizes | None  # None: not known
    statistics: int
    page_index: int
    bloom_filters: int


@dataclass(frozen=True, slots=True)
class RowGroupAnatomy:
    rows: int
    compressed: int
    uncompressed: int


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Anatomy:
    """All of it. `segments` cover the file after its magic; `wasted` are bytes that belong to no known part."""

    path: str
    size: int
    created_by: str | None
    version: int
    rows: int
    row_groups: tuple[RowGroupAnatomy, ...]
    columns: tuple[ColumnAnatomy, ...]
    key_values: tuple[KeyValue, ...]
    indexes: tuple[EmbeddedIndex, ...]
    segments: tuple[Segment, ...]
    wasted: int
    advice: tuple[LayoutAdvice, ...]

    def bytes_by_kind(self) -> dict[str, int]:
        """The bytes of each kind of segment there is."""
        kinds = (*layout.KINDS, *layout.WASTE)
        sizes = {kind: sum(each.size for each in self.segments if each.kind == kind) for kind in kinds}
        return {kind: size for kind, size in sizes.items() if size}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `json` takes them."""
        return {**dataclasses.asdict(self), "bytes_by_kind": self.bytes_by_kind()}

    def _repr_html_(self) -> str:
        from needlepoint.parquet.inspect.html import anatomy_html

        return anatomy_html(self)


@dataclass(frozen=True, slots=True)
class PageAnatomy:
    """One page. None is what neither its header nor the page index says; `first_row` counts from the file's first."""

    row_group: int
    kind: str  # "data" or "dictionary"
    offset: int
    bytes: int
    first_row: int | None
    rows: int | None
    values: int
    encoding: str
    min: Readable | None
    max: Readable | None
    nulls: int | None


def inspect(path: str) -> Anatomy:
    """The anatomy of the file at `path`; NotParquet when it is no Parquet file."""
    with _opened(path) as (file, metadata, described):
        columns = _columns(file, metadata, described)
        indexes = layout.embedded_indexes(file, metadata)
        chunks = described.card.chunks
        dictionaries = zip(chunks.start.tolist(), chunks.dictionary_size.tolist(), strict=True)
        segments = layout.segments(file, metadata, dictionaries, indexes)
        anatomy = Anatomy(
            path=path,
            size=file.size,
            created_by=None if metadata.created_by is None else metadata.created_by.decode(errors="replace"),
            version=metadata.version,
            rows=metadata.num_rows,
            row_groups=tuple(
                RowGroupAnatomy(
                    group.num_rows,
                    sum(chunk.total_compressed_size for chunk in group.columns),
                    sum(chunk.total_uncompressed_size for chunk in group.columns),
                )
                for group in metadata.row_groups
            ),
            columns=tuple(columns),
            key_values=tuple(
                KeyValue(key.decode(errors="replace"), len(value or b"")) for key, value in metadata.key_value
            ),
            indexes=indexes,
            segments=segments,
            wasted=sum(each.size for each in segments if each.kind in layout.WASTE),
            advice=(),
        )
    return dataclasses.replace(anatomy, advice=advise(anatomy))


def inspect_pages(path: str, column: str) -> tuple[PageAnatomy, ...]:
    """The pages of one column in the order of the file; UnknownName when there is no such column.

    A column in a struct, list or map is named by its path, `point.x`, or by its field if that has no other column.
    """
    with _opened(path) as (file, metadata, described):
        leaf = _find(described.card.leaves, column)
        type = _types(described)[leaf] or pa.binary()
        return tuple(
            page
            for number in range(len(metadata.row_groups))
            for page in _page_anatomies(file, metadata, described, leaf, number, type)
        )


@contextmanager
def _opened(path: str) -> Iterator[tuple[OpenObject, FileMetadata, FileDescription]]:
    """The open file, its footer and its description, all of one version of it."""
    try:
        with open_object(path) as file:
            metadata, described = read_footer(file), describe(path, file.identity)
            if described.card.identity != file.identity:
                raise FileChanged(path, "the file changed while it was inspected", hint="Try again.")
            yield file, metadata, described
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(path, reason, hint="Name one Parquet file.") from error


def _columns(file: OpenObject, metadata: FileMetadata, described: FileDescription) -> Iterator[ColumnAnatomy]:
    types = _types(described)
    pages = _PageSizeReader(file, metadata, described)
    for number, (leaf, type) in enumerate(zip(described.card.leaves, types, strict=True)):
        chunks = [group.columns[number] for group in metadata.row_groups]
        yield _column(leaf, type, chunks, _dictionary_sizes(described, number), pages.sizes(number), file.size)


def _column(
    leaf: Leaf,
    type: pa.DataType | None,
    chunks: Sequence[ColumnChunk],
    dictionaries: Sequence[int],
    pages: PageSizes | None,
    file_size: int,
) -> ColumnAnatomy:
    physical_type = name_of(TYPES, leaf.physical_type)
    compressed = sum(chunk.total_compressed_size for chunk in chunks)
    null_counts = [None if chunk.statistics is None else chunk.statistics.null_count for chunk in chunks]
    known_nulls = [count for count in null_counts if count is not None]
    return ColumnAnatomy(
        name=".".join(leaf.path),
        type=str(type or physical_type),
        physical_type=physical_type,
        nested=leaf.nested,
        codecs=names_of(CODECS, (chunk.codec for chunk in chunks)),
        encodings=names_of(ENCODINGS, (encoding for chunk in chunks for encoding in _data_encodings(chunk))),
        chunks=len(chunks),
        values=sum(chunk.num_values for chunk in chunks),
        nulls=sum(known_nulls) if len(known_nulls) == len(null_counts) else None,
        compressed=compressed,
        uncompressed=sum(chunk.total_uncompressed_size for chunk in chunks),
        share=compressed / file_size,
        dictionary_bytes=sum(dictionaries),
        dictionary_chunks=sum(size > 0 for size in dictionaries),
        plain_after_dictionary=sum(_gave_up(chunk) for chunk in chunks),
        pages=pages,
        statistics=sum(_has_bounds(chunk) for chunk in chunks),
        page_index=sum(chunk.offset_index_offset is not None for chunk in chunks),
        bloom_filters=sum(chunk.bloom_filter_offset is not None for chunk in chunks),
    )


def _types(described: FileDescription) -> list[pa.DataType | None]:
    """The Arrow type of each leaf column; None where Arrow has another tree than Parquet."""
    card = described.card
    found: list[pa.DataType | None] = []
    for number, field in enumerate(card.fields):
        types = leaf_types(card.arrow_schema.field(number).type)
        count = field.last_leaf - field.first_leaf
        found += types if len(types) == count else [None] * count
    return found


def _dictionary_sizes(described: FileDescription, leaf: int) -> list[int]:
    groups = described.card.num_row_groups
    sizes: list[int] = described.card.chunks.dictionary_size[leaf * groups : (leaf + 1) * groups].tolist()
    return sizes


def _data_encodings(chunk: ColumnChunk) -> list[int]:
    """Those of data pages; `encodings` counts dictionary pages and the levels of nested values in."""
    stats = [each.encoding for each in chunk.encoding_stats if each.page_type in DATA_PAGES and each.count]
    return stats or list(chunk.encodings)


def _gave_up(chunk: ColumnChunk) -> bool:
    encodings = {each.encoding for each in chunk.encoding_stats if each.page_type in DATA_PAGES and each.count}
    dictionary = encodings & {*_DICTIONARY_ENCODINGS}
    return bool(dictionary and encodings - dictionary)


def _has_bounds(chunk: ColumnChunk) -> bool:
    """Bounds, or nothing but NULLs, which have none."""
    found = chunk.statistics
    return found is not None and (found.min_value is not None or found.null_count == chunk.num_values)


def _card_pages(card: FileCard, leaf: int, group: int) -> slice:
    index = card.chunk_index(leaf, group)
    return slice(int(card.page_starts[index]), int(card.page_starts[index + 1]))


def _is_indexed(card: FileCard, chunk: ColumnChunk, leaf: int, group: int) -> bool:
    """Whether the pages of the card are those of the file: without an index to be trusted they count as one."""
    pages = _card_pages(card, leaf, group)
    counted = sum(each.count for each in chunk.encoding_stats if each.page_type in DATA_PAGES)
    return chunk.offset_index_offset is not None and (pages.stop - pages.start > 1 or counted <= 1)


class _PageSizeReader:
    """Pages by offset index, or by their headers as long as not too many are to be read."""

    def __init__(self, file: OpenObject, metadata: FileMetadata, described: FileDescription) -> None:
        self._file, self._metadata, self._described = file, metadata, described
        self._headers_left = MOST_HEADERS

    def sizes(self, leaf: int) -> PageSizes | None:
        sizes: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        rows: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        rows_known = True
        for number, group in enumerate(self._metadata.row_groups):
            chunk = group.columns[leaf]
            if not group.num_rows:
                continue
            if _is_indexed(self._described.card, chunk, leaf, number):
                card = self._described.card
                pages = _card_pages(card, leaf, number)
                sizes.append(card.pages.size[pages])
                rows.append(np.diff(card.pages.first_row[pages], append=card.row_group_rows[number + 1]))
                continue
            found = self._by_headers(leaf, chunk)
            if found is None:
                return None
            sizes.append(np.array([page.size for page in found], np.int64))
            rows_known &= all(page.rows is not None for page in found)
            rows.append(np.array([page.rows or 0 for page in found], np.int64))
        if not sum(map(len, sizes)):
            return None
        all_sizes, all_rows = np.concatenate(sizes), np.concatenate(rows)
        row_figures = (int(np.median(all_rows)), int(all_rows.max())) if rows_known else (None, None)
        return PageSizes(len(all_sizes), int(np.median(all_sizes)), int(all_sizes.max()), *row_figures)

    def _by_headers(self, leaf: int, chunk: ColumnChunk) -> list[Page] | None:
        if self._headers_left <= 0:
            return None
        nested = self._described.card.leaves[leaf].nested
        pages = pages_of_chunk(self._file, chunk, nested=nested, limit=self._headers_left)
        self._headers_left -= len(pages)
        complete = bool(pages) and pages[-1].end == chunk.end
        return [page for page in pages if page.type in DATA_PAGES] if complete else None


def _find(leaves: Sequence[Leaf], column: str) -> int:
    names = [".".join(leaf.path) for leaf in leaves]
    if column in names:
        return names.index(column)
    inside = [number for number, leaf in enumerate(leaves) if leaf.path[0] == column]
    if len(inside) == 1:
        return inside[0]
    known = [names[number] for number in inside] or names
    raise UnknownName("column", column, known)


@dataclass(frozen=True, slots=True)
class _PageIndexEntry:
    """What the page index says of a page."""

    first_row: int
    rows: int
    min: bytes | None = None
    max: bytes | None = None
    nulls: int | None = None


def _indexed(described: FileDescription, leaf: int, group: int) -> dict[int, _PageIndexEntry]:
    """The pages of a chunk in its page index, by offset."""
    card = described.card
    pages = _card_pages(card, leaf, group)
    first_rows = card.pages.first_row[pages]
    row_counts = np.diff(first_rows, append=card.row_group_rows[group + 1])
    places = zip(card.pages.offset[pages].tolist(), first_rows.tolist(), row_counts.tolist(), strict=True)
    found = [(offset, _PageIndexEntry(first, rows)) for offset, first, rows in places]
    bounds = described.page_bounds[card.chunk_index(leaf, group)]
    if bounds is None:
        return dict(found)
    nulls = [None] * len(found) if bounds.null_counts is None else bounds.null_counts.tolist()
    return {
        offset: _PageIndexEntry(page.first_row, page.rows, None if empty else low, None if empty else high, count)
        for (offset, page), empty, low, high, count in zip(
            found, bounds.null_pages.tolist(), bounds.min_values, bounds.max_values, nulls, strict=True
        )
    }


def _page_anatomies(
    file: OpenObject, metadata: FileMetadata, described: FileDescription, leaf: int, group: int, type: pa.DataType
) -> Iterator[PageAnatomy]:
    chunk = metadata.row_groups[group].columns[leaf]
    physical = name_of(TYPES, chunk.physical_type)
    indexed = _indexed(described, leaf, group) if _is_indexed(described.card, chunk, leaf, group) else {}
    row: int | None = int(described.card.row_group_rows[group])
    for page in pages_of_chunk(file, chunk, nested=described.card.leaves[leaf].nested):
        if page.type not in DATA_PAGES:
            yield PageAnatomy(
                group, "dictionary", page.offset, page.size, None, None, page.values,
                name_of(ENCODINGS, page.encoding), None, None, None,
            )  # fmt: skip
            continue
        known = indexed.get(page.offset)
        rows = page.rows if known is None else known.rows
        row = row if known is None else known.first_row
        yield PageAnatomy(
            row_group=group,
            kind="data",
            offset=page.offset,
            bytes=page.size,
            first_row=row,
            rows=rows,
            values=page.values,
            encoding=name_of(ENCODINGS, page.encoding),
            min=bound(known.min, type, physical) if known else None,
            max=bound(known.max, type, physical) if known else None,
            nulls=known.nulls if known else None,
        )
        row = None if row is None or rows is None else row + rows
