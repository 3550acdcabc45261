"""Repetition levels: where records begin in a page of a nested column.

Levels are stored in a hybrid of two kinds of runs (parquet-format, Encodings.md, "RLE"):

    header: varint   low bit 0: the value in the next byte(s), header >> 1 times
                     low bit 1: (header >> 1) groups of 8 values, bit-packed, lowest bits first

A record begins at each level 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class LevelsError(ValueError):
    """The bytes are not as many levels as announced."""


def bit_width(max_level: int) -> int:
    return max_level.bit_length()


def count_records(data: bytes, max_level: int, count: int) -> tuple[int, bool]:
    """How many of the `count` levels are 0, and whether the first one is.

    Four levels 0 as a run, then the group 1 0 1 0 1 1 1 1 of one bit each, of which the first three count:

    >>> count_records(bytes([4 << 1, 0, 1 << 1 | 1, 0b11110101]), 1, 7)
    (5, True)
    """
    width = bit_width(max_level)
    value_bytes = (width + 7) // 8
    position = done = records = 0
    begins = False
    while done < count:
        header, position = read_header(data, position)
        if header & 1:
            size = (header >> 1) * width
            values = min((header >> 1) * 8, count - done)
            zeros = _packed_zeros(data[position : position + size], width, values)
            first, found = bool(zeros[0]), int(np.count_nonzero(zeros))
        else:
            size = value_bytes
            values = min(header >> 1, count - done)
            # `any` of no bytes would take a missing value for 0.
            if position + size > len(data):
                raise LevelsError("the levels end inside a run")
            first = not any(data[position : position + size])
            found = values if first else 0
        if values == 0:
            raise LevelsError("a run of no levels")
        begins = begins or (done == 0 and first)
        position += size
        done += values
        records += found
    return records, begins


def has_levels(data: bytes, max_level: int, count: int) -> bool:
    """Whether the bytes are `count` levels at least.

    >>> has_levels(bytes([4 << 1, 0, 1 << 1 | 1, 0b11110101]), 1, 12), has_levels(bytes([4 << 1, 0]), 1, 5)
    (True, False)
    """
    width = bit_width(max_level)
    position, left = 0, count
    while left > 0:
        try:
            header, position = read_header(data, position)
        except LevelsError:
            return False
        values = (header >> 1) * 8 if header & 1 else header >> 1
        # Of the last group some writers write only what is needed.
        needed = (min(values, left) * width + 7) // 8 if header & 1 else (width + 7) // 8
        if position + needed > len(data):
            return False
        position += needed
        left -= values
    return True


def begins_record(data: bytes, max_level: int) -> bool:
    """Whether the first level is 0. Looks at the first run only, and of that at the first value."""
    width = bit_width(max_level)
    header, position = read_header(data, 0)
    if header >> 1 == 0 or position + (width + 7) // 8 > len(data):
        raise LevelsError("the levels end inside a run")
    first = int.from_bytes(data[position : position + (width + 7) // 8], "little")
    return (first & ((1 << width) - 1)) == 0


def _packed_zeros(data: bytes, width: int, values: int) -> npt.NDArray[np.bool_]:
    needed = (values * width + 7) // 8
    if values == 0 or len(data) < needed:
        raise LevelsError("the levels end inside a run")
    bits = np.unpackbits(np.frombuffer(data, np.uint8, count=needed), count=values * width, bitorder="little")
    zeros: npt.NDArray[np.bool_] = bits.reshape(values, width).max(axis=1) == 0
    return zeros


def read_header(data: bytes, position: int) -> tuple[int, int]:
    """The header of the run at `position`, and where the run's bytes begin."""
    header = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        header |= (byte & 0x7F) << shift
        if byte < 0x80:
            return header, position
        shift += 7
        if shift > 28:  # a run header is a 32-bit number
            break
    raise LevelsError("the levels end inside a run")
