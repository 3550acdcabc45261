"""Keys: values as bytes of fixed width, whose order is the value's order as far as it goes.

    integers, dates, times, bool   8 bytes, offset binary
    decimals                       8 bytes, the unscaled value, clamped to 64 bits
    floats                         8 bytes, the IEEE order; -0.0 as 0.0; every NaN as the greatest
    strings, binaries, uuids       16 bytes, the first 8 bytes and a 64-bit hash of the whole

Two values may share a key (clamped decimals, a hash collision). That costs reading a row too many: a query evaluates
its predicate again on what it reads. NULLs have no key. `tests/golden/keys.json` pins the bytes.

>>> encode(pa.array([-1, 0, 1])).tolist()[1]
[128, 0, 0, 0, 0, 0, 0, 0]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.errors import NotIndexable
from needlepoint.indexes.hashing import hash_values, leading_bytes
from needlepoint.stores import Entries, Locations

Keys = npt.NDArray[np.uint8]
"""Shape (values, key bytes)."""

SIGN = np.uint64(1 << 63)
_INT64 = pa.int64()


def key_bytes(type: pa.DataType, column: str = "", table: str = "") -> int:
    """Width of the keys of a type; NotIndexable for types without one."""
    if is_bytes(type):
        return 16
    if (
        pa.types.is_integer(type)
        or pa.types.is_boolean(type)
        or (pa.types.is_temporal(type) and not pa.types.is_interval(type))
        or pa.types.is_floating(type)
        or pa.types.is_decimal(type)
    ):
        return 8
    raise NotIndexable(
        f"column '{column}' of table '{table}' is {type}, which a key index cannot hold.",
        hint="Key indexes take numbers, strings, binaries, dates, times, timestamps, decimals, uuids and bools.",
    )


def is_bytes(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type)
        or pa.types.is_large_string(type)
        or pa.types.is_binary(type)
        or pa.types.is_large_binary(type)
        or pa.types.is_fixed_size_binary(type)
    )


def encode(values: pa.Array) -> Keys:
    """Keys of an array without NULLs."""
    type = values.type
    if type == _INT64:  # the commonest by far
        return big_endian(values.to_numpy().view(np.uint64) ^ SIGN)
    if is_bytes(type):
        blobs = values.cast(pa.large_binary())
        return _join(leading_bytes(blobs), hash_values(blobs))
    if pa.types.is_floating(type):
        return big_endian(_float_order(values.cast(pa.float64()).to_numpy(zero_copy_only=False)))
    if pa.types.is_decimal(type):
        return big_endian(_clamped_decimals(values).view(np.uint64) ^ SIGN)
    if pa.types.is_unsigned_integer(type):
        return big_endian(values.cast(pa.uint64()).to_numpy())
    return big_endian(_as_integers(values).view(np.uint64) ^ SIGN)


def _as_integers(values: pa.Array) -> npt.NDArray[np.int64]:
    type = values.type
    if pa.types.is_boolean(type):
        values = values.cast(pa.int8())
    elif pa.types.is_temporal(type):
        values = values.view(pa.int32() if type.bit_width == 32 else pa.int64())
    numbers: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy()
    return numbers


def _float_order(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    # Adding zero makes -0.0 into 0.0; of a signalling NaN numpy would warn.
    with np.errstate(invalid="ignore"):
        bits = (numbers + 0.0).view(np.uint64)
    ordered = np.where(bits & SIGN, ~bits, bits | SIGN)
    return np.where(np.isnan(numbers), np.uint64(2**64 - 1), ordered)


def _clamped_decimals(values: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_decimal256(values.type):
        words = _words(values, 4)
        low, high = words[:, 0], words[:, 3]
        fits = (words[:, 1:] == (low >> 63)[:, None]).all(axis=1)
    else:
        words = _words(pc.cast(values, pa.decimal128(values.type.precision, values.type.scale)), 2)
        low, high = words[:, 0], words[:, 1]
        fits = high == low >> 63
    limits = np.where(high < 0, np.int64(-(2**63)), np.int64(2**63 - 1))
    return np.where(fits, low, limits)


def _words(values: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """The little-endian 64-bit words of each decimal."""
    data = np.frombuffer(values.buffers()[1], np.int64)
    return data.reshape(-1, count)[values.offset : values.offset + len(values)]


def big_endian(numbers: npt.NDArray[Any]) -> Keys:
    return numbers.astype(">u8").view(np.uint8).reshape(-1, 8)


def _join(leading: npt.NDArray[np.uint64], hashes: npt.NDArray[np.uint64]) -> Keys:
    both = np.empty((len(leading), 2), ">u8")
    both[:, 0], both[:, 1] = leading, hashes
    return both.view(np.uint8).reshape(-1, 16)


def locate(file_id: int, rows: npt.NDArray[np.integer[Any]]) -> Locations:
    """The locations of rows of a file: its id in the upper 32 bits, the row's number in the lower.

    >>> {file: rows.tolist() for file, rows in rows_by_file(locate(7, np.array([3, 5]))).items()}
    {7: [3, 5]}
    """
    return (np.uint64(file_id) << np.uint64(32)) | rows.astype(np.uint64)


def files_of(entries: Entries) -> npt.NDArray[np.int64]:
    """The ids of the files of entries, `key ‖ location`.

    >>> files_of(np.array([[0] * 8 + [0, 0, 0, 7, 0, 0, 0, 3]], np.uint8)).tolist()
    [7]
    """
    return np.ascontiguousarray(entries[:, -8:-4]).view(">u4").ravel().astype(np.int64)


def split_locations(locations: Locations) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The ids of the files, and the numbers of the rows."""
    return (locations >> np.uint64(32)).astype(np.int64), (locations & np.uint64(0xFFFFFFFF)).astype(np.int64)


def rows_by_file(locations: Locations) -> dict[int, npt.NDArray[np.int64]]:
    """Locations are ascending, so the rows of a file are consecutive."""
    owners, rows = split_locations(locations)
    if len(owners) == 0 or owners[0] == owners[-1]:
        return {int(owners[0]): rows} if len(owners) else {}
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    return dict(zip(owners[starts].tolist(), np.split(rows, starts[1:]), strict=True))
