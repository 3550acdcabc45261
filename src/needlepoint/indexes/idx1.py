"""The list of distinct values that DataFusion's example `parquet_embedded_index.rs` puts into a Parquet file.

    IDX1  length (8 bytes, little-endian)  values, UTF-8, a newline between two

    footer: distinct_index_offset -> where it begins, in decimal

>>> to_idx1(["", "foo", "bar"])
b'IDX1\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\nbar\\nfoo'
>>> from_idx1(_)
['', 'bar', 'foo']

What such a list leaves open, and how it is read here so that no row is missed:

- A value with a newline looks like several. Texts with newlines are never said to be missing.
- Which column it is of. `DistinctKind.adopt` takes a list only after comparing it with the column.
- Nothing and the empty string alone look the same: it is read as the empty string.

DataFusion reads lines: it loses an empty string at the end, and carriage returns before a newline. So the empty
string is written first, and values that end in a carriage return are refused as those with newlines are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from needlepoint.access import Rows
from needlepoint.errors import NotIndexable
from needlepoint.indexes.base import Answer, Condition
from needlepoint.indexes.payload import damaged
from needlepoint.objects import OpenObject
from needlepoint.parquet.footer import FileMetadata
from needlepoint.predicate import Compare, In, Not, StartsWith
from needlepoint.stores.base import IndexDamaged

MAGIC = b"IDX1"
FOOTER_KEY = b"distinct_index_offset"
_LENGTH = struct.Struct("<Q")
_PREFIX = len(MAGIC) + _LENGTH.size
_PARQUET_TAIL = 8  # length of the footer and PAR1


def to_idx1(values: Iterable[str], column: str = "") -> bytes:
    """NotIndexable for values that it cannot hold."""
    ordered = sorted(values)
    for value in ordered:
        if "\n" in value or value.endswith("\r"):
            raise NotIndexable(
                f"{f'column {column!r} holds ' if column else ''}{value[:40]!r}: a list for DataFusion has a value in "
                "each line, so none may have a newline or end in a carriage return.",
                hint="Leave compat away.",
            )
    # A line of its own for the empty string, even when it is alone.
    data = "\n".join(ordered).encode() if ordered != [""] else b"\n"
    return MAGIC + _LENGTH.pack(len(data)) + data


def from_idx1(data: bytes) -> list[str]:
    """The lines, values if none of them has a newline; IndexDamaged when the bytes are something else."""
    lines, rest = split(data)
    if rest:
        raise damaged("distinct", f"{len(rest)} bytes after the values")
    return lines


def split(data: bytes) -> tuple[list[str], bytes]:
    """The lines of the list at the beginning of the bytes, and what follows it."""
    if data[:4] != MAGIC or len(data) < _PREFIX:
        raise damaged("distinct", f"it begins with {data[:4]!r}")
    (length,) = _LENGTH.unpack_from(data, len(MAGIC))
    if length > len(data) - _PREFIX:
        raise damaged("distinct", f"{length} bytes of values announced in {len(data)}")
    try:
        text = data[_PREFIX : _PREFIX + length].decode()
    except UnicodeDecodeError as error:
        raise damaged("distinct", "its values are no UTF-8") from error
    return text.split("\n"), data[_PREFIX + length :]


def read_idx1(file: OpenObject, metadata: FileMetadata) -> bytes | None:
    """The list in a file as its bytes, to be adopted; None when there is none, or none that can be read.

    A file that was copied with its footer's keys can have an offset to nowhere: what lies there is only believed where
    no column chunk and no index of Parquet's own does, and where it begins and ends as a list does.
    """
    offsets = [value for key, value in metadata.key_value if key == FOOTER_KEY]
    if len(offsets) != 1 or offsets[0] is None or not offsets[0].isdigit() or len(offsets[0]) > 19:
        return None
    offset, end = int(offsets[0]), file.size - len(metadata.raw) - _PARQUET_TAIL
    if offset < len(MAGIC) or offset + _PREFIX > end:
        return None
    prefix = file.read(offset, _PREFIX)
    (length,) = _LENGTH.unpack_from(prefix, len(MAGIC))
    stop = offset + _PREFIX + length
    if prefix[:4] != MAGIC or stop > end or _occupied(metadata, offset, stop):
        return None
    block = file.read(offset, _PREFIX + length)
    try:
        split(block)
    except IndexDamaged:
        return None
    return block


def _occupied(metadata: FileMetadata, start: int, stop: int) -> bool:
    """Whether the footer says that some of these bytes are something else."""
    places = []
    for group in metadata.row_groups:
        for chunk in group.columns:
            if chunk.file_path is None:
                places += [
                    (chunk.start, chunk.total_compressed_size),
                    (chunk.offset_index_offset, chunk.offset_index_length),
                    (chunk.column_index_offset, chunk.column_index_length),
                    (chunk.bloom_filter_offset, chunk.bloom_filter_length or 1),
                ]
    return any(first is not None and first < stop and start < first + (size or 0) for first, size in places)


@dataclass(frozen=True, slots=True, eq=False)
class ListedValues:
    """A list without pages: a file has a value, or it does not. `only` is its value, if it has one line."""

    values: frozenset[bytes]
    only: bytes | None

    @classmethod
    def of(cls, lines: Sequence[str]) -> ListedValues:
        return cls(frozenset(line.encode() for line in lines), lines[0].encode() if len(lines) == 1 else None)

    @property
    def memory(self) -> int:
        return sum(map(len, self.values)) + 100 * len(self.values)

    def find(self, conditions: Sequence[Condition], seconds: float) -> Answer:
        if any(self._never(condition) for condition in conditions):
            none = np.zeros(0, np.int64)
            return Answer(Rows(none, none), f"none of {len(self.values):,} values")
        return Answer(None)

    def _never(self, condition: Condition) -> bool:
        match condition:
            case Compare(_, "=", bytes(value)):
                return not self._may_hold(value)
            case In(_, values):
                return not any(not isinstance(value, bytes) or self._may_hold(value) for value in values)
            case Compare(_, "<>", value) | Not(Compare(_, "=", value)):
                return self.only is not None and self.only == value  # a value with newlines has several lines
            case StartsWith(_, prefix):
                return b"\n" not in prefix and not any(value.startswith(prefix) for value in self.values)
        return False

    def _may_hold(self, value: bytes) -> bool:
        return b"\n" in value or value in self.values
