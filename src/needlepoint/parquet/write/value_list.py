"""The list of distinct values that DataFusion's example `parquet_embedded_index.rs` puts into a Parquet file.

    IDX1  length (8 bytes, little-endian)  values, UTF-8, a newline between two

    footer: distinct_index_offset -> where it begins, in decimal

>>> encode_values(["", "foo", "bar"])
b'IDX1\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\nbar\\nfoo'
>>> decode_values(_ + b"what follows")
(['', 'bar', 'foo'], b'what follows')

The list does not say which column it is of, a value with a newline looks like several, and nothing looks like the empty
string. So a list of another writer is shown but not used; our own precedes an index that has more.

DataFusion reads lines: it loses an empty string at the end, and carriage returns before a newline. So the empty string
is written first, and values that end in a carriage return are refused as those with newlines are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from needlepoint.objects import OpenObject
from needlepoint.parquet.format.bloom_filter import filter_sizes
from needlepoint.parquet.format.footer import FileMetadata

MAGIC = b"IDX1"
FOOTER_KEY = b"distinct_index_offset"
_LENGTH = struct.Struct("<Q")
PREFIX = len(MAGIC) + _LENGTH.size
_PARQUET_TAIL = 8  # length of the footer and PAR1


def encode_values(values: Iterable[str]) -> bytes:
    """ValueError for a value that a list cannot hold; it is the error's argument."""
    ordered = sorted(values)
    for value in ordered:
        if "\n" in value or value.endswith("\r"):
            raise ValueError(value)
    # A line of its own for the empty string, even when it is alone.
    data = "\n".join(ordered).encode() if ordered != [""] else b"\n"
    return MAGIC + _LENGTH.pack(len(data)) + data


def decode_values(data: bytes) -> tuple[list[str], bytes]:
    """The lines of the list at the beginning of the bytes, and what follows it; ValueError when there is none."""
    if data[:4] != MAGIC or len(data) < PREFIX:
        raise ValueError(f"no list of values: {data[:4]!r}")
    (length,) = _LENGTH.unpack_from(data, len(MAGIC))
    if length > len(data) - PREFIX:
        raise ValueError(f"a list of {length} bytes in {len(data)}")
    return data[PREFIX : PREFIX + length].decode().split("\n"), data[PREFIX + length :]


def list_offset(metadata: FileMetadata) -> int | None:
    """Where the footer says that a list begins."""
    found = next((value for key, value in metadata.key_value if key == FOOTER_KEY), None)
    return int(found) if found is not None and found.isdigit() and len(found) < 19 else None


def read_list(file: OpenObject, metadata: FileMetadata) -> bytes | None:
    """The list in a file as its bytes; None when there is none that can be read.

    Tools copy footer keys into new files, where the offset is wrong. So a list must begin and end as one, before the
    footer, in bytes that the format does not use.
    """
    offset, end = list_offset(metadata), file.size - len(metadata.raw) - _PARQUET_TAIL
    if offset is None or offset < len(MAGIC) or offset + PREFIX > end:
        return None
    prefix = file.read(offset, PREFIX)
    (length,) = _LENGTH.unpack_from(prefix, len(MAGIC))
    stop = offset + PREFIX + length
    if prefix[:4] != MAGIC or stop > end or _is_occupied(file, metadata, offset, stop):
        return None
    block = file.read(offset, PREFIX + length)
    try:
        decode_values(block)
    except ValueError:
        return None
    return block


def _is_occupied(file: OpenObject, metadata: FileMetadata, start: int, stop: int) -> bool:
    """Whether the footer uses some of these bytes for something else."""
    chunks = [chunk for group in metadata.row_groups for chunk in group.columns if chunk.file_path is None]
    places = [(chunk.start, chunk.end) for chunk in chunks]
    for chunk in chunks:
        for offset, length in (
            (chunk.offset_index_offset, chunk.offset_index_length),
            (chunk.column_index_offset, chunk.column_index_length),
        ):
            places.append((offset or 0, (offset or 0) + (length or 0)))
    places += [(offset, offset + (size or 1)) for offset, size in filter_sizes(file, chunks).items()]
    return any(first < stop and start < last for first, last in places)
