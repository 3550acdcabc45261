"""How a card is stored: a JSON header, integer arrays and byte strings in one checked, compressed blob.

    NPFC  version (1)  crc32 of the rest (4)  length of the payload (8)  payload, zstd
    payload: length of the header (4)  header, JSON  arrays, one after the other  byte strings, likewise

Numbers are little-endian. Each array is stored in the narrowest integer type that holds its values.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from needlepoint.parquet.format.page_index import Int64Array

MAGIC = b"NPFC"
VERSION = 1
_PREFIX = struct.Struct("<4sBIQ")
_LENGTH = struct.Struct("<I")
_WIDTHS = ("<i1", "<i2", "<i4", "<i8")
# Level 1 of zstd: half the size of the numbers at the speed of the disk.
_CODEC_LEVEL = 1
# What a card may grow to when it is decompressed; zstd makes 32 KB of a byte where all are equal.
_ANY_SIZE, _MOST_GROWTH = 64 << 20, 1 << 10
_UNREADABLE = (
    struct.error, ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, MemoryError, RecursionError,
)  # fmt: skip


class CardCorrupt(ValueError):
    """The bytes are not a card of this version. Build the card again from the file."""


def pack(header: Mapping[str, Any], arrays: Sequence[Int64Array], blobs: Sequence[bytes]) -> bytes:
    narrow = [_narrow(array) for array in arrays]
    layout = {
        **header,
        "arrays": [(array.dtype.str, array.size) for array in narrow],
        "blobs": [len(blob) for blob in blobs],
    }
    text = json.dumps(layout, separators=(",", ":")).encode()
    payload = b"".join((_LENGTH.pack(len(text)), text, *(array.tobytes() for array in narrow), *blobs))
    body: bytes = pa.Codec("zstd", compression_level=_CODEC_LEVEL).compress(payload, asbytes=True)
    return _PREFIX.pack(MAGIC, VERSION, zlib.crc32(body), len(payload)) + body


def unpacked_size(data: bytes) -> int:
    """Of what `pack` made, without the prefix."""
    size: int = _PREFIX.unpack_from(data)[3]
    return size


def _most(packed: int) -> int:
    """The most that so many bytes may become when decompressed: equal numbers and repeated names compress well."""
    return _ANY_SIZE + _MOST_GROWTH * packed


def unpack(data: bytes, most: int | None = None) -> tuple[dict[str, Any], list[Int64Array], list[bytes]]:
    """What `pack` was given; CardCorrupt for other bytes, and for those that decompressed would be more than `most`."""
    if len(data) < _PREFIX.size:
        raise CardCorrupt(f"a card of {len(data)} bytes")
    magic, version, checksum, size = _PREFIX.unpack_from(data)
    body = data[_PREFIX.size :]
    if magic != MAGIC or version != VERSION:
        raise CardCorrupt(f"not a card of version {VERSION}: {data[:5]!r}")
    if zlib.crc32(body) != checksum:
        raise CardCorrupt("the checksum of the card does not match")
    if size > (_most(len(body)) if most is None else most):
        raise CardCorrupt(f"{len(data)} bytes that would become {size}")
    try:
        payload: bytes = pa.Codec("zstd").decompress(body, decompressed_size=size, asbytes=True)
        (length,) = _LENGTH.unpack_from(payload)
        header = json.loads(payload[4 : 4 + length])
        return _sections(header, payload, 4 + length)
    except _UNREADABLE as error:
        raise CardCorrupt(f"the card cannot be read: {error}") from error


def _sections(
    header: dict[str, Any], payload: bytes, position: int
) -> tuple[dict[str, Any], list[Int64Array], list[bytes]]:
    arrays = []
    for kind, size in header.pop("arrays"):
        if kind not in ("|i1", *_WIDTHS):
            raise CardCorrupt(f"an array of {kind}")
        array = np.frombuffer(payload, dtype=kind, count=size, offset=position)
        position += array.nbytes
        arrays.append(array.astype(np.int64))
    blobs = []
    for size in header.pop("blobs"):
        blobs.append(payload[position : position + size])
        position += size
    if position != len(payload):
        raise CardCorrupt(f"{len(payload)} bytes where {position} were announced")
    return header, arrays, blobs


def _narrow(array: Int64Array) -> np.ndarray[Any, np.dtype[np.signedinteger[Any]]]:
    if array.size == 0:
        return array.astype("<i1")
    low, high = int(array.min()), int(array.max())
    for width in _WIDTHS:
        limits = np.iinfo(width)
        if limits.min <= low and high <= limits.max:
            return array.astype(width)
    return array
