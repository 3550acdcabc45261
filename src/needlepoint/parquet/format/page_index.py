"""The page index: the locations of the pages of a column chunk, and their bounds (parquet-format, PageIndex.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from needlepoint.parquet.format import thrift
from needlepoint.parquet.format.thrift import ThriftError

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OffsetIndex:
    """The data pages of one column chunk. Sizes include the page header; rows count from the row group."""

    offset: Int64Array
    compressed_page_size: Int64Array
    first_row_index: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class ColumnIndex:
    """Bounds per page. Those of an all-null page mean nothing; `null_counts` may be absent."""

    null_pages: npt.NDArray[np.bool_]
    min_values: tuple[bytes, ...]
    max_values: tuple[bytes, ...]
    boundary_order: int  # 0 unordered, 1 ascending, 2 descending
    null_counts: Int64Array | None


def decode_offset_index(data: bytes) -> OffsetIndex:
    """OffsetIndex { 1: list<PageLocation { 1: offset, 2: compressed_page_size, 3: first_row_index }> }"""
    regular = _regular_locations(data)
    if regular is not None:
        return regular
    locations = thrift.parse(data).structs(1)
    table = np.array(
        [(page.integer64(1), page.integer32(2), page.integer64(3)) for page in locations], dtype=np.int64
    ).reshape(-1, 3)
    return OffsetIndex(*(np.ascontiguousarray(table[:, column]) for column in range(3)))


# Many pages: PageLocation as all writers encode it. i64, i32 and i64 with their headers and the stop, each
# byte below 0x80: seven varints, of which four are known.
_LOCATION = ((0, 1 << 4 | thrift.I64), (2, 1 << 4 | thrift.I32), (4, 1 << 4 | thrift.I64), (6, 0))
_MANY = 16


def _regular_locations(data: bytes) -> OffsetIndex | None:
    """The index, when it has many pages and they are encoded as usual; else None, and the slow way decides.

    A location at offset 300, of 5 bytes, from row 0: 16 d804 15 0a 16 00 00.
    """
    if len(data) < 3 or data[0] != 1 << 4 | thrift.LIST or data[1] != 0xF0 | thrift.STRUCT:
        return None
    sizes, ends = thrift.varints(data, 2, 1)
    count, position = int(sizes[0]), int(ends[0]) + 1
    # Seven bytes a location at least: a wrong count is caught before memory is allocated for it.
    if not _MANY <= count <= (len(data) - position) // 7:
        return None
    try:
        numbers, ends = thrift.varints(data, position, 7 * count)
    except ThriftError:
        return None
    table = numbers.reshape(count, 7)
    lengths = np.diff(ends, prepend=position - 1).reshape(count, 7)
    for column, byte in _LOCATION:
        if not ((table[:, column] == byte) & (lengths[:, column] == 1)).all():
            return None
    thrift.parse(data, int(ends[-1]) + 1, field=1)
    return OffsetIndex(*(thrift.signed(np.ascontiguousarray(table[:, column])) for column in (1, 3, 5)))


def decode_column_index(data: bytes) -> ColumnIndex:
    """ColumnIndex { 1: null_pages, 2: min_values, 3: max_values, 4: boundary_order, 5: null_counts }"""
    fields = thrift.parse(data)
    null_pages = np.array(fields.booleans(1), dtype=np.bool_)
    null_counts = np.array(fields.integers(5), dtype=np.int64) if 5 in fields else None
    index = ColumnIndex(
        null_pages, tuple(fields.binaries(2)), tuple(fields.binaries(3)), fields.integer32(4), null_counts
    )
    sizes = {len(null_pages), len(index.min_values), len(index.max_values)}
    if len(sizes) != 1 or (null_counts is not None and len(null_counts) not in sizes):
        raise ThriftError("the lists of a column index differ in length")
    return index


def encode_offset_index(index: OffsetIndex) -> bytes:
    """What `decode_offset_index` reads."""
    locations = []
    for offset, size, row in zip(
        index.offset.tolist(), index.compressed_page_size.tolist(), index.first_row_index.tolist(), strict=True
    ):
        location = thrift.Writer()
        location.integer64(1, offset)
        location.integer32(2, size)
        location.integer64(3, row)
        locations.append(location.finish())
    writer = thrift.Writer()
    writer.structs(1, locations)
    return writer.finish()


def encode_column_index(index: ColumnIndex) -> bytes:
    """What `decode_column_index` reads."""
    writer = thrift.Writer()
    # In a list a boolean is a byte: 1 true, 2 false.
    writer.elements(1, thrift.TRUE, [b"\1" if null else b"\2" for null in index.null_pages.tolist()])
    writer.binaries(2, list(index.min_values))
    writer.binaries(3, list(index.max_values))
    writer.integer32(4, index.boundary_order)
    if index.null_counts is not None:
        writer.integers(5, index.null_counts.tolist(), thrift.I64)
    return writer.finish()


def agrees(index: ColumnIndex, page_rows: Int64Array, null_count: int | None) -> bool:
    """Whether the NULLs of a flat column's pages fit their rows, and those that the chunk's statistics count, if any.

    Some writers mark a page without statistics as a page of NULLs, with -1 for their number. An index that contradicts
    itself or the chunk is not used: slower, and right.

    >>> index = ColumnIndex(np.array([False, True]), (b"a", b""), (b"z", b""), 0, np.array([3, 10]))
    >>> [agrees(index, np.array([10, 10]), nulls) for nulls in (13, None, 0)]
    [True, True, False]
    >>> agrees(ColumnIndex(np.array([True]), (b"",), (b"",), 0, np.array([-1])), np.array([10]), None)
    False
    """
    counts = index.null_counts
    if counts is None:
        of_null_pages = int(page_rows[index.null_pages].sum())
        return of_null_pages == 0 or (null_count is not None and of_null_pages <= null_count)
    if (counts > page_rows).any() or ((counts == page_rows) != index.null_pages).any():
        return False
    return null_count is None or bool((counts < 0).any()) or int(counts.sum()) == null_count


def is_plausible(index: OffsetIndex, *, num_rows: int, start: int, end: int) -> bool:
    """Whether the index can be the one of a chunk with these rows at these bytes `[start, end)`.

    An index that is not is ignored, and the chunk read whole: slower, and right.
    """
    offset, size, first_row = index.offset, index.compressed_page_size, index.first_row_index
    if len(offset) == 0 or first_row[0] != 0 or first_row[-1] >= num_rows:
        return False
    if len(offset) == 1:  # as in most chunks, of which a file may have 100,000
        place, length = offset.item(), size.item()
        return start <= place < end and 0 < length <= end - place
    if offset.min() < start or offset.max() >= end or size.min() <= 0 or size.max() > end - start:
        return False
    ends = offset + size
    # Ascending and disjoint, and rows in every page.
    return bool(ends[-1] <= end and np.all(ends[:-1] <= offset[1:]) and np.all(first_row[1:] > first_row[:-1]))
