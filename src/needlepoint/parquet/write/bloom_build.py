"""A split-block bloom filter of a chunk's values, as BloomFilter.md has it; `bloom_filter` asks what this builds."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.parquet.format import thrift
from needlepoint.parquet.format.bloom_filter import BLOCK, Hashes, filled, hash_values

# One in a hundred values that are not there is taken to be; the default of most writers.
FALSE_POSITIVES = 0.01
# As in parquet-cpp, which also wants a power of two.
LARGEST = 128 << 20
# Values of which Python makes objects at once
_AT_ONCE = 1 << 16

# The constants of XXH64
_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)


def build_filter(values: pa.ChunkedArray) -> bytes:
    """Header and bitset of a filter with the distinct values of a column, as they are stored; NULLs are left out."""
    hashes = hash_array(pc.unique(values).drop_null())
    blocks = filled(hashes, filter_bytes(len(hashes)) // BLOCK)
    return _header(blocks.nbytes) + blocks.astype("<u4").tobytes()


def _header(size: int) -> bytes:
    # BloomFilterHeader { 1: numBytes, 2: algorithm, 3: hash, 4: compression }; of each union member 1, an empty struct
    writer = thrift.Writer()
    writer.integer32(1, size)
    for union in (2, 3, 4):
        writer.begin(union)
        writer.begin(1)
        writer.end()
        writer.end()
    return writer.finish()


def filter_bytes(distinct: int) -> int:
    """The size of a filter for so many values (BloomFilter.md, "sizing an SBBF").

    >>> filter_bytes(0), filter_bytes(1000), filter_bytes(1_000_000)
    (32, 2048, 2097152)
    """
    bits = -8 * distinct / math.log(1 - FALSE_POSITIVES ** (1 / 8))
    size = BLOCK
    while size < min(bits / 8, LARGEST):
        size *= 2
    return size


def hash_array(values: pa.Array) -> Hashes:
    """XXH64 of each value as it is stored.

    >>> stored = pa.array([7, -1], pa.int64())
    >>> (hash_array(stored) == hash_values(value.to_bytes(8, "little", signed=True) for value in (7, -1))).all()
    np.True_
    """
    if pa.types.is_floating(values.type):
        values = _with_twins(values)
    if pa.types.is_primitive(values.type):
        bits = values.to_numpy(zero_copy_only=False)
        width = bits.dtype.itemsize
        words = bits.view(f"u{width}").astype(np.uint64)
        return _hash_eight(words) if width == 8 else _hash_four(words)
    parts = [hash_values(values.slice(start, _AT_ONCE).to_pylist()) for start in range(0, len(values), _AT_ONCE)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _with_twins(values: pa.Array) -> pa.Array:
    """Both zeros where there is one, and the usual NaN where there is any: equal, and of other bits."""
    numbers = values.to_numpy(zero_copy_only=False)
    twins: list[float] = []
    if (numbers == 0).any():
        twins += (0.0, -0.0)
    if np.isnan(numbers).any():
        twins += (math.nan, -math.nan)
    return pa.array(np.concatenate((numbers, np.array(twins, numbers.dtype))))


def _turn(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _hash_eight(words: Hashes) -> Hashes:
    """XXH64 of values of eight bytes, without a round of 32 bytes: what its specification does with the rest."""
    found = _P5 + np.uint64(8) ^ _turn(words * _P2, 31) * _P1
    return _mixed(_turn(found, 27) * _P1 + _P4)


def _hash_four(words: Hashes) -> Hashes:
    found = _P5 + np.uint64(4) ^ words * _P1
    return _mixed(_turn(found, 23) * _P2 + _P3)


def _mixed(words: npt.NDArray[np.uint64]) -> Hashes:
    words = (words ^ (words >> np.uint64(33))) * _P2
    words = (words ^ (words >> np.uint64(29))) * _P3
    return words ^ (words >> np.uint64(32))
