"""Pages of leaf files as entries: pyarrow decodes a small Parquet file made of them (parquet/read/assembly)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint import forks
from needlepoint.parquet.format import thrift
from needlepoint.parquet.read import AssembledChunk, Frame, Piece, assemble, chunk_head, make_frame, open_reader
from needlepoint.stores.base import Locations
from needlepoint.stores.leaf_files.directory import COLUMNS
from needlepoint.stores.leaf_files.keys import Columns, dtype, from_arrow

# parquet.thrift, Type and Encoding
_INT32, _INT64, _FIXED_LEN_BYTE_ARRAY = 1, 2, 7
_RLE, _DELTA_BINARY_PACKED, _DELTA_BYTE_ARRAY = 3, 5, 7
_UNCOMPRESSED = 0

WORTH_THREADS = 50_000  # entries: 0.2 ms a column, which pyarrow decodes without the interpreter's lock

Bytes = bytes | memoryview
PagesOfColumns = Sequence[Sequence[Bytes]]
"""The same pages of key, file and row, with their headers."""


class PagesCorrupt(ValueError):
    """Bytes that are no pages of a leaf file."""


def decode(pages: PagesOfColumns, entries: int, width: int) -> Columns:
    """The entries of these pages, which are so many, page by page; PagesCorrupt if they cannot be decoded."""
    frame, heads = _frame(width)
    chunks = [
        AssembledChunk(heads[column], entries, None, cast(list[Piece], pages[column])) for column in range(COLUMNS)
    ]
    try:
        data = pa.py_buffer(assemble(frame, [(entries, chunks)]))
        if entries < WORTH_THREADS:
            reader = open_reader(pa.BufferReader(data))
            keys, files, rows = (_one_array(reader.read_column(column)) for column in range(COLUMNS))
        else:
            halves = [_threads().submit(_column, data, column) for column in (1, 2)]
            keys, (files, rows) = _column(data, 0), (half.result() for half in halves)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise PagesCorrupt(str(error)) from error
    if not len(keys) == len(files) == len(rows) == entries:
        raise PagesCorrupt(f"{len(keys)} entries where {entries} are announced")
    return Columns(from_arrow(keys, dtype(width)), _locations(from_arrow(files, "<u4"), from_arrow(rows, "<u4")))


def _column(data: pa.Buffer, column: int) -> pa.Array:
    return _one_array(open_reader(pa.BufferReader(data)).read_column(column))


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(COLUMNS - 1, thread_name_prefix="needlepoint-leaf")


forks.reset(_threads.cache_clear)


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _locations(files: npt.NDArray[np.uint32], rows: npt.NDArray[np.uint32]) -> Locations:
    found: npt.NDArray[np.uint64] = files.astype(np.uint64)
    found <<= np.uint64(32)
    found |= rows
    return found


@functools.cache
def _frame(width: int) -> tuple[Frame, list[bytes]]:
    """The footer without rows, and what precedes the numbers of each column chunk."""
    key = (_INT64, _DELTA_BINARY_PACKED) if width == 8 else (_FIXED_LEN_BYTE_ARRAY, _DELTA_BYTE_ARRAY)
    number = (_INT32, _DELTA_BINARY_PACKED)
    fields, heads = [], []
    for name, (type, encoding) in zip(("key", "file", "row"), (key, number, number), strict=True):
        # SchemaElement { 1: type, 2: type_length, 3: repetition_type, 4: name }
        element = thrift.Writer()
        element.integer32(1, type)
        if type == _FIXED_LEN_BYTE_ARRAY:
            element.integer32(2, width)
        element.integer32(3, 0)  # required
        element.binary(4, name.encode())
        fields.append(element.finish())
        heads.append(chunk_head(type, [_RLE, encoding], [name], _UNCOMPRESSED))
    return make_frame(2, fields, COLUMNS, [], None), heads
