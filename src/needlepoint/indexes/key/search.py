"""What a predicate asks of a key index: single keys, and ranges of keys.

>>> keys_of([-1, 0, 1], pa.int64()).tolist()[1]
[128, 0, 0, 0, 0, 0, 0, 0]
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from needlepoint.indexes.key.encoding import SIGN, Keys, big_endian, encode, is_bytes, key_bytes
from needlepoint.predicate import Ordinal

_NAN_KEY = b"\xff" * 8


def keys_of(values: Sequence[Ordinal], type: pa.DataType) -> Keys:
    """Keys of the ordinals a predicate compares a column of this type with."""
    if is_bytes(type):
        return encode(pa.array(values, pa.binary()))
    if pa.types.is_floating(type):
        return encode(pa.array(values, pa.float64()))
    if pa.types.is_unsigned_integer(type):
        return big_endian(np.array([min(max(int(value), 0), 2**64 - 1) for value in values], np.uint64))
    if all(each.__class__ is int for each in values):  # `type` is the column's
        with contextlib.suppress(OverflowError):
            return big_endian(np.array(values, np.int64).view(np.uint64) ^ SIGN)
    clamped = [min(max(int(value), -(2**63)), 2**63 - 1) for value in values]
    return big_endian(np.array(clamped, np.int64).view(np.uint64) ^ SIGN)


def values_of(keys: Keys, type: pa.DataType) -> Sequence[int | float] | None:
    """The ordinals of keys, lowest or highest ones included; None for types whose keys do not tell. Every NaN has the
    same key, and so have decimals beyond 64 bits.

    >>> values_of(keys_of([-1, 0, 1], pa.int64()), pa.int64())
    [-1, 0, 1]
    >>> values_of(keys_of([-0.5, 0.0, 2.5, math.inf, math.nan], pa.float64()), pa.float64())
    [-0.5, 0.0, 2.5, inf, nan]
    """
    if is_bytes(type):
        return None
    numbers = np.ascontiguousarray(keys).view(">u8").ravel().astype(np.uint64)
    if pa.types.is_unsigned_integer(type):
        return list(map(int, numbers.tolist()))
    if pa.types.is_floating(type):
        return list(map(float, np.where(numbers & SIGN, numbers ^ SIGN, ~numbers).view(np.float64).tolist()))
    if pa.types.is_integer(type) or pa.types.is_temporal(type) or pa.types.is_decimal(type):
        return list(map(int, (numbers ^ SIGN).view(np.int64).tolist()))
    return None


def first_bytes_of(key: Keys) -> bytes:
    """The beginning of the text or binary of a key, 8 bytes at most.

    >>> first_bytes_of(keys_of([b"abc"], pa.string())[0]), first_bytes_of(keys_of([b"0123456789"], pa.string())[0])
    (b'abc', b'01234567')
    """
    return key[:8].tobytes().rstrip(b"\x00")


def range_of(low: Ordinal | None, high: Ordinal | None, type: pa.DataType) -> list[tuple[bytes, bytes]]:
    """Key ranges, both ends included, that hold every value from low to high (strings: by their first 8 bytes).

    NaN is outside every order the engines agree on, so a range of floats always takes the NaNs along. DataFusion
    orders -NaN below all numbers, while every NaN has the greatest key: a range from -NaN begins with the first key.

    >>> range_of(-math.nan, 5.0, pa.float64()) == range_of(None, 5.0, pa.float64())
    True
    """
    width = key_bytes(type)
    lower = b"\x00" * width if low is None or _is_negative_nan(low) else _end(low, type, b"\x00")
    upper = b"\xff" * width if high is None else _end(high, type, b"\xff")
    ranges = [(lower, upper)] if lower <= upper else []
    if pa.types.is_floating(type) and upper < _NAN_KEY:
        ranges.append((_NAN_KEY, _NAN_KEY))
    return ranges


def _is_negative_nan(value: Ordinal) -> bool:
    return isinstance(value, float) and math.isnan(value) and math.copysign(1, value) < 0


def _end(value: Ordinal, type: pa.DataType, fill: bytes) -> bytes:
    if isinstance(value, bytes):
        return value[:8].ljust(8, b"\x00") + fill * 8
    return bytes(keys_of([value], type)[0])
