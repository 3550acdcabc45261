"""Small Parquet files made in memory out of pages of a larger one, for pyarrow to decode.

The pages are copied as they are; only a footer is written around them:

    PAR1  | dictionary page  data pages | …one chunk per column and row group…  | FileMetaData  length  PAR1

What does not depend on the rows (schema, key-values, the types of a column) is encoded once, in a `Frame` and
in the chunk heads; a lookup adds numbers only.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.parquet.format import int96, thrift
from needlepoint.parquet.format.thrift import I64, LIST, STRUCT, Struct, Writer, zigzag

MAGIC = b"PAR1"


def _header(delta: int, kind: int) -> bytes:
    # Compact protocol: a field whose id is `delta` more than the one before.
    return bytes((delta << 4 | kind,))


_NEXT_I64 = _header(1, I64)
_SECOND_NEXT_I64 = _header(2, I64)
_NEXT_LIST = _header(1, LIST)
# ColumnChunk { 2: file_offset = 0, 3: meta_data { … } }
_CHUNK_HEAD = _header(2, I64) + zigzag(0) + _header(1, STRUCT)
_STOP = b"\0"


@dataclass(frozen=True, slots=True)
class Frame:
    """FileMetaData without its rows: `head` is version and schema, `tail` key-values and creator."""

    head: bytes
    tail: bytes


Piece = bytes | memoryview


class AssembledChunk(NamedTuple):
    """One column of one row group: what precedes the numbers in its metadata, its bytes and their count."""

    head: bytes
    num_values: int
    dictionary: bytes | None
    pages: list[Piece]

    def followed_by(self, other: AssembledChunk) -> AssembledChunk:
        """The pages of both; this one is not used any more."""
        self.pages.extend(other.pages)
        return AssembledChunk(self.head, self.num_values + other.num_values, self.dictionary, self.pages)


def make_frame(
    version: int,
    fields: Sequence[bytes],
    elements: int,
    key_value: Sequence[tuple[bytes, bytes | None]],
    created_by: bytes | None,
) -> Frame:
    """The frame of a file with these top-level fields, which are `elements` schema elements in all."""
    root = Writer()
    root.binary(4, b"schema")
    root.integer32(5, len(fields))
    head = Writer()
    head.integer32(1, version)
    schema = thrift.list_header(STRUCT, elements + 1) + root.finish() + b"".join(fields)
    head.raw(2, LIST, schema)
    return Frame(head.unfinished(), _tail(key_value, created_by))


@functools.lru_cache(maxsize=256)  # the files of a table mostly have one
def arrow_schema(frame: Frame) -> pa.Schema:
    """The schema as pyarrow reads it, from a file of that frame and no rows.

    Arrow's own serialisation would not do: it renames the parts of a map.
    """
    with pq.ParquetFile(pa.BufferReader(assemble(frame, [])), coerce_int96_timestamp_unit=int96.UNIT) as empty:
        return empty.schema_arrow


def _tail(key_value: Sequence[tuple[bytes, bytes | None]], created_by: bytes | None) -> bytes:
    # Fields 5 and 6 of FileMetaData, after field 4: the header of the first counts from there.
    tail = Writer()
    tail.structs(4, [])
    skip = len(tail.unfinished())
    if key_value:
        tail.structs(5, [_pair(key, value) for key, value in key_value])
    if created_by is not None:
        tail.binary(6, created_by)
    return tail.finish()[skip:]


def _pair(key: bytes, value: bytes | None) -> bytes:
    pair = Writer()
    pair.binary(1, key)
    if value is not None:
        pair.binary(2, value)
    return pair.finish()


def chunk_head(physical_type: int, encodings: Sequence[int], path: Sequence[str], codec: int) -> bytes:
    """A ColumnChunk up to field 4 of its metadata."""
    head = Writer()
    head.integer32(1, physical_type)
    head.integers(2, list(encodings))
    head.binaries(3, [name.encode() for name in path])
    head.integer32(4, codec)
    return _CHUNK_HEAD + head.unfinished()


def assemble(frame: Frame, row_groups: Sequence[tuple[int, Sequence[AssembledChunk]]], *, missing: int = 0) -> bytes:
    """The file with these row groups, each as its number of rows and its chunks.

    Chunks of one row group may hold different numbers of rows: each is read on its own. Each claims so many more values
    than it has as are `missing`.
    """
    parts: list[Piece] = [MAGIC]
    position = 4
    groups: list[bytes] = []
    total_rows = 0
    for num_rows, chunks in row_groups:
        start = position
        encoded: list[bytes] = []
        for chunk in chunks:
            data = position
            if chunk.dictionary is not None:
                parts.append(chunk.dictionary)
                data += len(chunk.dictionary)
            parts.extend(chunk.pages)
            end = data + sum(map(len, chunk.pages))
            encoded.append(_encode_chunk(chunk.head, chunk.num_values + missing, position, data, end))
            position = end
        groups.append(_encode_row_group(num_rows + missing, encoded, position - start))
        total_rows += num_rows + missing
    parts.append(_encode_end(frame, total_rows, groups))
    return b"".join(parts)


def end_of_file(frame: Frame, head: bytes, num_values: int, size: int) -> bytes:
    """What follows the pages of a file with one chunk, which has so many values, a row each, and so many bytes."""
    start = len(MAGIC)
    chunk = _encode_chunk(head, num_values, start, start, start + size)
    return _encode_end(frame, num_values, [_encode_row_group(num_values, [chunk], size)])


def _encode_end(frame: Frame, num_rows: int, row_groups: Sequence[bytes]) -> bytes:
    # FileMetaData { 1: version, 2: schema, 3: num_rows, 4: row_groups, 5: key_value_metadata, 6: created_by }
    footer = b"".join(
        (frame.head, _NEXT_I64, zigzag(num_rows), _NEXT_LIST, thrift.list_header(STRUCT, len(row_groups)),
         *row_groups, frame.tail)
    )  # fmt: skip
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def _encode_row_group(num_rows: int, chunks: Sequence[bytes], size: int) -> bytes:
    # RowGroup { 1: columns, 2: total_byte_size, 3: num_rows }
    columns = (_NEXT_LIST, thrift.list_header(STRUCT, len(chunks)), *chunks)
    return b"".join((*columns, _NEXT_I64, zigzag(size), _NEXT_I64, zigzag(num_rows), _STOP))


def _encode_chunk(head: bytes, num_values: int, start: int, data: int, end: int) -> bytes:
    size = zigzag(end - start)
    # ColumnMetaData, fields 5 num_values, 6 and 7 sizes, 9 data_page_offset, 11 dictionary_page_offset
    numbers = [head, _NEXT_I64, zigzag(num_values), _NEXT_I64, size, _NEXT_I64, size]
    numbers += (_SECOND_NEXT_I64, zigzag(data))
    if data > start:
        numbers += (_SECOND_NEXT_I64, zigzag(start))
    numbers += (_STOP, _STOP)
    return b"".join(numbers)


def count_values(pages: bytes) -> int:
    """The values in a run of whole pages, from their headers. In nested columns values are not rows.

    PageHeader { 1: type, 3: compressed_page_size, 5: data_page_header, 8: data_page_header_v2 }, and field 1
    of both data page headers is num_values.
    """
    total = 0
    position = 0
    while position < len(pages):
        header = thrift.parse(pages, position)
        data: Struct | None = header.optional_struct(5) or header.optional_struct(8)
        if data is not None:
            total += data.integer32(1)
        size = header.integer32(3)
        if size < 0:
            raise thrift.ThriftError("a page of less than no bytes")
        position = header.end + size
    return total
