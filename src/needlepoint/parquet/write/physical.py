"""Columns of a file as they are stored: numbers and bytes, without what the schema makes of them.

pyarrow decodes; but it makes timestamps, decimals and dictionaries of what it reads, in units of its own. Bounds and
bloom filters are of the stored values. So it is shown the file with a footer in which flat columns have no logical
type.
"""

from __future__ import annotations

import pyarrow as pa

from needlepoint.objects import Cursor, OpenObject
from needlepoint.parquet.format import footer_edit, thrift
from needlepoint.parquet.format.footer import FileMetadata, leaves, top_level
from needlepoint.parquet.format.thrift import LIST, STRUCT
from needlepoint.parquet.read.arrow_reader import open_reader

# parquet.thrift, SchemaElement { 6: converted_type, 7: scale, 8: precision, 10: logicalType }
_PLAIN = dict.fromkeys((6, 7, 8, 10))
# parquet.thrift, FileMetaData { 2: schema, 5: key_value_metadata }
_SCHEMA, _KEY_VALUES = 2, 5


class PhysicalColumns:
    """The flat columns of an open file, to be read one chunk at a time."""

    def __init__(self, file: OpenObject, metadata: FileMetadata) -> None:
        columns = leaves(metadata.schema)
        flat = {leaf.field for leaf in columns if not leaf.nested}
        first = [start for start, _ in top_level(metadata.schema)]
        view = _PhysicalView(file, metadata, {first[field] for field in flat})
        self._metadata = metadata
        self._reader = open_reader(pa.PythonFile(Cursor(view), mode="r"), extensions=False)

    def read(self, group: int, leaf: int) -> pa.ChunkedArray:
        """The values of a chunk, a row each: bool, int32, int64, float, double, binary or fixed_size_binary.

        An error of pyarrow's, an ArrowException or OSError, when they cannot be decoded.
        """
        table = self._reader.read_row_groups([group], column_indices=[leaf], use_threads=False)
        if table.num_rows != self._metadata.row_groups[group].num_rows or table.num_columns != 1:
            raise pa.ArrowInvalid(f"{table.num_rows} rows in row group {group}, the footer has another number")
        return table.column(0)


class _PhysicalView:
    """The file with another footer. Only what `Cursor` asks for."""

    def __init__(self, file: OpenObject, metadata: FileMetadata, flat: set[int]) -> None:
        raw = metadata.raw
        elements = [
            thrift.rewrite(raw, element.start, _PLAIN) if number in flat else raw[element.start : element.end]
            for number, element in enumerate(thrift.parse(raw).structs(_SCHEMA))
        ]
        schema = thrift.list_header(STRUCT, len(elements)) + b"".join(elements)
        self._file = file
        self._end = file.size - 8 - len(raw)
        self._tail = footer_edit.tail(thrift.rewrite(raw, 0, {_SCHEMA: (LIST, schema), _KEY_VALUES: None}))

    @property
    def size(self) -> int:
        return self._end + len(self._tail)

    def read(self, offset: int, length: int) -> bytes:
        inside = max(0, min(length, self._end - offset))
        data = self._file.read(offset, inside) if inside else b""
        start = max(0, offset - self._end)
        return data + self._tail[start : start + length - inside] if inside < length else data
