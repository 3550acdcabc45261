"""A footer with other key/values, or with other places of its indexes. All else stays as it is, byte for byte.

Fields that a later version of Parquet may have are kept with the rest: nothing is decoded that is not edited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from needlepoint.parquet.format import thrift
from needlepoint.parquet.format.footer import MAGIC
from needlepoint.parquet.format.thrift import I32, I64, LIST, STRUCT, ThriftError

# parquet.thrift, FileMetaData, RowGroup and ColumnChunk
_ROW_GROUPS, _KEY_VALUES, _COLUMNS, _META_DATA = 4, 5, 1, 3


@dataclass(frozen=True, slots=True)
class Places:
    """The locations of the indexes of one column chunk, each `(offset, length)`; None keeps what the footer says."""

    offset_index: tuple[int, int] | None = None
    column_index: tuple[int, int] | None = None
    bloom_filter: tuple[int, int] | None = None


def with_key(raw: bytes, key: bytes, value: bytes | None) -> bytes:
    """The footer with the key having that value, once; without it for None."""
    listed = thrift.parse(raw).structs(_KEY_VALUES)
    pairs = [raw[pair.start : pair.end] for pair in listed if pair.optional_binary(1) != key]
    if value is not None:
        writer = thrift.Writer()
        writer.binary(1, key)
        writer.binary(2, value)
        pairs.append(writer.finish())
    elif len(pairs) == len(listed):
        return raw
    return _edited(raw, {_KEY_VALUES: _list(pairs) if pairs else None})


def with_places(raw: bytes, places: Mapping[tuple[int, int], Places]) -> bytes:
    """The footer with the indexes of some chunks, by row group and leaf column, at these places."""
    groups = []
    for number, group in enumerate(thrift.parse(raw).structs(_ROW_GROUPS)):
        chunks = group.structs(_COLUMNS)
        if not any((number, leaf) in places for leaf in range(len(chunks))):
            groups.append(raw[group.start : group.end])
            continue
        edited = [
            _chunk(raw, chunk, places[number, leaf]) if (number, leaf) in places else raw[chunk.start : chunk.end]
            for leaf, chunk in enumerate(chunks)
        ]
        groups.append(thrift.rewrite(raw, group.start, {_COLUMNS: _list(edited)}))
    return _edited(raw, {_ROW_GROUPS: _list(groups)})


def _chunk(raw: bytes, chunk: thrift.Struct, places: Places) -> bytes:
    # ColumnChunk { 3: meta_data, 4: offset_index_offset, 5: offset_index_length, 6: column_index_offset,
    # 7: column_index_length }; ColumnMetaData { 14: bloom_filter_offset, 15: bloom_filter_length }
    fields: dict[int, tuple[int, bytes] | None] = {}
    if places.offset_index is not None:
        fields |= _place(4, places.offset_index)
    if places.column_index is not None:
        fields |= _place(6, places.column_index)
    if places.bloom_filter is not None:
        meta_data = thrift.rewrite(raw, chunk.struct(_META_DATA).start, _place(14, places.bloom_filter))
        fields[_META_DATA] = STRUCT, meta_data
    return thrift.rewrite(raw, chunk.start, fields)


def _place(field: int, place: tuple[int, int]) -> dict[int, tuple[int, bytes] | None]:
    offset, length = place
    return {field: (I64, thrift.zigzag(offset)), field + 1: (I32, thrift.zigzag(length))}


def _list(structs: Sequence[bytes]) -> tuple[int, bytes]:
    return LIST, thrift.list_header(STRUCT, len(structs)) + b"".join(structs)


def _edited(raw: bytes, fields: Mapping[int, tuple[int, bytes] | None]) -> bytes:
    _, end = thrift.spans(raw)
    return thrift.rewrite(raw, 0, fields) + raw[end:]


def tail(raw: bytes) -> bytes:
    """What a file ends with: the footer, its length and the magic."""
    if len(raw) >= 1 << 31:
        raise ThriftError(f"a footer of {len(raw)} bytes")
    return raw + len(raw).to_bytes(4, "little") + MAGIC
