"""Dictionaries decoded once: a lookup then reads the index of its row and takes that one entry.

pyarrow decodes the dictionary page with every read, which for 1 MiB costs ten times the rest of a lookup. The page is
decoded by letting pyarrow read a column of all its entries, one after the other:

    dictionary page as in the file | a page of the indices 0, 1, 2 … n - 1
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from needlepoint.parquet.format import codecs
from needlepoint.parquet.format.page_headers import (
    DATA_PAGE,
    DATA_PAGE_V2,
    DICTIONARY_PAGE,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    parse_header,
    skim_header,
)
from needlepoint.parquet.format.thrift import Writer, varint
from needlepoint.parquet.read.arrow_reader import open_reader
from needlepoint.parquet.read.assembly import AssembledChunk, Frame, assemble
from needlepoint.parquet.read.dictionary_indices import read_indices

# Compressed bytes of a dictionary page. Looking up one row takes 0.1 ms whatever the dictionary; pyarrow decodes the
# whole page of the row, 0.3 ms with a dictionary of 1 KiB, and 2 ms with one of 1 MiB.
SMALLEST_KEPT = 1024
# Rows of a file for which values are looked up one by one, and bytes of dictionary for which one more is: a lookup
# takes about as long as pyarrow takes for 8 KiB of dictionary.
FEW_ROWS = 4
BYTES_WORTH_A_ROW = 8192


def is_worth_keeping(dictionary_size: int, num_rows: int) -> bool:
    """Whether to look up so many rows in a decoded dictionary whose page has that size, or let pyarrow decode all.

    Up to 8 rows with 32 KiB, up to 132 with 1 MiB:

    >>> is_worth_keeping(32 * 1024, 8), is_worth_keeping(32 * 1024, 9), is_worth_keeping(1024 * 1024, 132)
    (True, False, True)
    """
    return dictionary_size >= SMALLEST_KEPT and num_rows <= FEW_ROWS + dictionary_size // BYTES_WORTH_A_ROW


def is_keepable(kind: pa.DataType) -> bool:
    """Whether entries of a decoded dictionary are the values of the column as pyarrow reads it.

    Not so for dictionary types (the indices count), extensions and views (not everything works on them).
    """
    types = pa.types
    return (
        types.is_integer(kind)
        or kind in (pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
        or types.is_temporal(kind)
        or types.is_decimal(kind)
        or types.is_fixed_size_binary(kind)
    )


def decode_dictionary(frame: Frame, head: bytes, page: bytes, optional: bool) -> pa.Array:
    """All entries of a dictionary page, as values of the column whose file frame and chunk head these are."""
    header = parse_header(page)
    count = header.num_values
    # An entry takes at least a byte: a wrong number is caught before memory is allocated for it.
    if header.kind != DICTIONARY_PAGE or not count <= header.uncompressed_size <= codecs.LARGEST_PAGE:
        raise ValueError("not a dictionary page")
    chunk = AssembledChunk(head, count, page, [_counting_page(count, optional)])
    column = open_reader(pa.BufferReader(assemble(frame, [(count, [chunk])]))).read_column(0)
    if len(column) != count:
        raise ValueError(f"{len(column)} entries of a dictionary of {count}")
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


@lru_cache(maxsize=8)
def _counting_page(count: int, optional: bool) -> bytes:
    """A data page of the indices 0 to `count` - 1. Version 2, because that may be uncompressed in any chunk."""
    levels = varint(count << 1) + b"\1" if optional else b""
    # One bit-packed run of 32 bits a value: that is, numbers.
    groups = -(-count // 8)
    data = b"\x20" + varint(groups << 1 | 1) + np.arange(groups * 8, dtype="<u4").tobytes()
    writer = Writer()
    writer.integer32(1, DATA_PAGE_V2)
    writer.integer32(2, len(levels) + len(data))
    writer.integer32(3, len(levels) + len(data))
    writer.begin(8)
    numbers = (count, 0, count, RLE_DICTIONARY, len(levels), 0)
    for field, number in enumerate(numbers, 1):
        writer.integer32(field, number)
    writer.boolean(7, False)
    writer.end()
    return writer.finish() + levels + data


class DictionaryLookup(NamedTuple):
    """The wanted rows of a chunk, in order: arrays that were looked up, and positions in the pages that are left.

    Of a chunk with a page of indices (rows 0 to 99) and a plain one (rows 100 to 199), the wanted rows 7 and 120 are
    `pieces = [array of one value, [20]]` and `pages = [the plain page]`.
    """

    pieces: list[pa.Array | list[int]]
    pages: list[bytes]
    num_values: int  # in `pages`


def look_up(
    blocks: Sequence[bytes],
    num_rows: int,
    codec: int,
    optional: bool,
    positions: Sequence[int],
    dictionary: Callable[[], pa.Array],
) -> DictionaryLookup:
    """Look up what is dictionary-encoded; `dictionary` gives the decoded one, and is asked only if needed.

    `positions` ascend and count from the beginning of the first block; pages without any of them are left out.
    ValueError when the pages do not hold `num_rows` rows in all, or are not such pages.
    """
    pieces: list[pa.Array | list[int]] = []
    pages: list[bytes] = []
    entries: pa.Array | None = None
    left = row = done = 0
    for block in blocks:
        cursor = 0
        while cursor < len(block):
            header = skim_header(block, cursor)
            start, end = cursor + header.size, cursor + header.size + header.compressed_size
            if header.kind in (DATA_PAGE, DATA_PAGE_V2):
                last = bisect_left(positions, row + header.num_values, done)
                inside = [position - row for position in positions[done:last]]
                if inside and header.encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY):
                    indices = read_indices(block[start:end], header, codec, optional, inside)
                    entries = dictionary() if entries is None else entries
                    pieces.append(_take_entries(entries, indices))
                elif inside:
                    pieces.append([left + position for position in inside])
                    pages.append(block[cursor:end])
                    left += header.num_values
                row, done = row + header.num_values, last
            cursor = end
    if row != num_rows or done < len(positions):
        raise ValueError(f"pages of {row} rows where {num_rows} were expected")
    return DictionaryLookup(pieces, pages, left)


def _take_entries(entries: pa.Array, indices: list[int | None]) -> pa.Array:
    if len(indices) > 1:
        return entries.take(pa.array(indices, pa.int64()))
    # One row, at a third of the cost of `take`.
    (index,) = indices
    if index is None:
        return pa.nulls(1, entries.type)
    if index >= len(entries):
        raise ValueError(f"entry {index} of a dictionary of {len(entries)}")
    return pa.concat_arrays([entries.slice(index, 1)])
