"""Entries as columns: keys that numpy, Arrow and Parquet order as bytes order them, and locations.

entry            key bytes ‖ location, big-endian          (stores/base.py)
8 bytes of key   int64: the bytes as a number, minus 2^63; for an integer column, the integers themselves
other widths     bytes of fixed length
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.stores.base import Entries, Locations

Keys = npt.NDArray[Any]
"""int64, or byte strings of one length. Numpy pads byte strings with zeros: of one length, they compare as bytes."""

_SIGN = np.uint64(1 << 63)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class Columns(NamedTuple):
    """Entries in ascending order."""

    keys: Keys
    locations: Locations


def to_keys(keys: Sequence[bytes], width: int) -> Keys:
    return ordered(np.frombuffer(b"".join(keys), np.uint8).reshape(-1, width))


def to_columns(entries: Entries, width: int) -> Columns:
    locations = np.ascontiguousarray(entries[:, width:]).view(">u8").ravel().astype(np.uint64)
    return Columns(ordered(np.ascontiguousarray(entries[:, :width])), locations)


def ordered(table: npt.NDArray[np.uint8]) -> Keys:
    """The keys with these bytes, a line each."""
    width = table.shape[1]
    if width != 8:
        return table.view(f"S{width}").ravel()
    return (table.view(">u8").ravel().astype(np.uint64) ^ _SIGN).view(np.int64)


def to_entries(columns: Columns, width: int) -> Entries:
    entries = np.empty((len(columns.keys), width + 8), np.uint8)
    entries[:, :width] = key_table(columns.keys, width)
    entries[:, width:] = columns.locations.astype(">u8").view(np.uint8).reshape(-1, 8)
    return entries


def key_table(keys: Keys, width: int) -> npt.NDArray[np.uint8]:
    """The bytes of each key."""
    plain = (keys.view(np.uint64) ^ _SIGN).astype(">u8") if width == 8 else keys
    return plain.view(np.uint8).reshape(-1, width)


def different(keys: Keys) -> Keys:
    """Ascending keys, each once. Faster than `np.unique`, which hashes or sorts them first, and imports `numpy.ma`."""
    if len(keys) < 2:
        return keys
    found: Keys = keys[np.append(True, keys[1:] != keys[:-1])]
    return found


def is_ascending(columns: Columns) -> bool:
    """Whether each entry is greater than the one before."""
    keys, locations = columns
    same = keys[1:] == keys[:-1]
    return bool(np.all((keys[1:] > keys[:-1]) | (same & (locations[1:] > locations[:-1]))))


def joined(parts: Sequence[Columns]) -> Columns:
    """The entries of one part after the other."""
    if len(parts) == 1:
        return parts[0]
    return Columns(np.concatenate([part.keys for part in parts]), np.concatenate([part.locations for part in parts]))


def merged(parts: Sequence[Columns]) -> Columns:
    """Ascending entries of ascending parts; an entry of several parts once."""
    return parts[0] if len(parts) == 1 else in_order(joined(parts))


def in_order(columns: Columns) -> Columns:
    """Ascending entries, each once."""
    keys, locations = columns
    order = np.argsort(keys, kind="stable")  # merges what is sorted in parts
    keys, locations = keys[order], locations[order]
    same = keys[1:] == keys[:-1]
    if same.any():
        if (same & (locations[1:] < locations[:-1])).any():
            order = np.lexsort((locations, keys))
            keys, locations = keys[order], locations[order]
            same = keys[1:] == keys[:-1]
        kept = np.append(True, ~(same & (locations[1:] == locations[:-1])))
        keys, locations = keys[kept], locations[kept]
    return Columns(keys, locations)


def with_ordered_locations(columns: Columns) -> Columns:
    """Ascending entries, each once, of which only the keys ascend.

    >>> with_ordered_locations(Columns(np.array([1, 2, 2, 2, 3]), np.array([9, 8, 7, 8, 1], np.uint64)))
    Columns(keys=array([1, 2, 2, 3]), locations=array([9, 7, 8, 1], dtype=uint64))
    """
    keys, locations = columns
    same = keys[1:] == keys[:-1]
    if not (same & (locations[1:] <= locations[:-1])).any():
        return columns
    shared = np.flatnonzero(np.append(same, False) | np.append(False, same))
    owners = np.cumsum(np.append(True, ~same))[shared]
    locations = locations.copy()
    locations[shared] = locations[shared][np.lexsort((locations[shared], owners))]
    kept = np.append(True, ~(same & (locations[1:] == locations[:-1])))
    return Columns(keys[kept], locations[kept])


def hashes(keys: Keys, width: int) -> npt.NDArray[np.uint64]:
    """64 well mixed bits of each key, for filters: the finalizer of splitmix64 over its words of 8 bytes, big-endian,
    the last one padded with zeros."""
    table = np.zeros((len(keys), -(-width // 8) * 8), np.uint8)
    table[:, :width] = key_table(keys, width)
    words = table.view(">u8").astype(np.uint64)
    state = np.full(len(keys), 0x9E3779B97F4A7C15, np.uint64)
    for column in range(words.shape[1]):
        state ^= words[:, column]
        state = (state ^ (state >> np.uint64(30))) * _MIX[0]
        state = (state ^ (state >> np.uint64(27))) * _MIX[1]
        state ^= state >> np.uint64(31)
    return state


def dtype(width: int) -> str:
    return "<i8" if width == 8 else f"S{width}"


def arrow_type(width: int) -> pa.DataType:
    return pa.int64() if width == 8 else pa.binary(width)


def to_arrow(columns: Columns, schema: pa.Schema, width: int) -> pa.Table:
    keys, locations = columns
    count = len(keys)
    if width == 8:
        array = pa.array(keys)
    else:
        array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, pa.py_buffer(keys.tobytes())])
    halves = locations.view(np.uint32).reshape(-1, 2)  # little-endian: row, then file
    files, rows = np.ascontiguousarray(halves[:, 1]), np.ascontiguousarray(halves[:, 0])
    return pa.table([array, pa.array(files), pa.array(rows)], schema=schema)


def from_arrow(array: pa.Array, type: str) -> npt.NDArray[Any]:
    """The values of a decoded column without NULLs. `to_numpy` would import pandas, if it is installed: 0.2 s of the
    first lookup."""
    kind = np.dtype(type)
    start = array.offset * kind.itemsize
    return np.frombuffer(array.buffers()[1], np.uint8, len(array) * kind.itemsize, start).view(kind)
