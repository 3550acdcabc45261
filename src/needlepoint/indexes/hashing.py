"""A 64-bit hash of every value of a binary array, vectorised: each round takes eight bytes of each value.

The hash is part of the store's format: its values are pinned by golden tests and never change. Only the first 256
bytes, the last 8 and the length are hashed, which bounds the rounds. Values that agree in all of them share a hash,
which costs reading a row too many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HASHED_BYTES = 256

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

Words = npt.NDArray[np.uint64]


def hash_values(values: pa.LargeBinaryArray) -> Words:
    starts, lengths, data = _parts(values)
    hashes: Words = _mix(lengths.astype(np.uint64) * _MULTIPLIER)
    active = np.arange(len(lengths))
    for offset in range(0, HASHED_BYTES, 8):
        active = active[lengths[active] > offset]
        if len(active) == 0:
            break
        words = _word(data, starts[active] + offset, lengths[active] - offset)
        hashes[active] = _mix((hashes[active] ^ words) * _MULTIPLIER)
    long = np.flatnonzero(lengths > HASHED_BYTES)
    if len(long):
        tails = _word(data, starts[long] + lengths[long] - 8, np.full(len(long), 8))
        hashes[long] = _mix((hashes[long] ^ tails) * _MULTIPLIER)
    return hashes


def hash_integers(numbers: npt.NDArray[np.int64]) -> Words:
    return _mix(numbers.view(np.uint64) * _MULTIPLIER + _MULTIPLIER)


def hash_together(hashes: Sequence[Words]) -> Words:
    """One hash for the values of several columns, in this order."""
    found = hashes[0]
    for more in hashes[1:]:
        found = _mix((found * _MULTIPLIER) ^ more)
    return found


def leading_bytes(values: pa.LargeBinaryArray) -> Words:
    """The first 8 bytes of each value as a number that orders as the bytes do; short values end in zeros."""
    starts, lengths, data = _parts(values)
    return _word(data, starts, lengths).byteswap()


def _parts(
    values: pa.LargeBinaryArray,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, np.uint8)  # eight spare bytes: every word can be read whole
    if data_buffer is not None:
        data[:-8] = np.frombuffer(data_buffer, np.uint8)[first:last]
    return offsets[:-1] - first, np.diff(offsets), data


def _word(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> Words:
    """Little-endian words at any byte, without the bytes beyond the value's end."""
    windows: Words = np.ndarray((len(data) - 7,), np.dtype("<u8"), buffer=data, strides=(1,))
    unused = (8 - np.clip(left, 0, 8)).astype(np.uint64) * np.uint64(8)
    # A shift by 64 is undefined, so empty values are masked separately.
    masks: Words = np.where(left <= 0, np.uint64(0), np.uint64(2**64 - 1) >> np.minimum(unused, np.uint64(63)))
    words: Words = windows[at] & masks
    return words


def _mix(words: Words) -> Words:
    """The finalizer of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))
