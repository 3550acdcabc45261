"""Blocks of a part: up to 128 ascending entries in about 7 to 12 bytes each, with a checksum.

    byte 0             number of entries - 1
    ⌈width / 8⌉ bytes  which bytes of an entry differ inside the block: the highest bit is the first byte
    equal bytes        once
    other bytes        of one entry after the other
    4 bytes            XXH32 of all of this, little-endian, with a seed of the block's part and number

Neighbours have the first bytes of their keys, and mostly those of their locations, in common.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import xxhash

from needlepoint.stores.base import Entries

ENTRIES = 128
_CHECKSUM = 4


def encode(entries: Entries, part: int, first: int, step: int = 1) -> list[bytes]:
    """Blocks of ascending entries; they get the numbers `first`, `first + step` …

    >>> entries = np.array([[0, 0, 1, 7], [0, 0, 2, 7]], np.uint8)
    >>> [block] = encode(entries, part=5, first=0)
    >>> block[:-4], decode(block, 4, part=5, number=0).tolist() == entries.tolist()
    (b'\\x01 \\x00\\x00\\x07\\x01\\x02', True)
    """
    return [
        _encode(entries[start : start + ENTRIES], part, first + number * step)
        for number, start in enumerate(range(0, len(entries), ENTRIES))
    ]


def _encode(entries: Entries, part: int, number: int) -> bytes:
    varies = (entries != entries[0]).any(axis=0)
    body = b"".join(
        (
            bytes((len(entries) - 1,)),
            np.packbits(varies).tobytes(),
            entries[0, ~varies].tobytes(),
            entries[:, varies].tobytes(),
        )
    )
    return body + xxhash.xxh32_intdigest(body, _seed(part, number)).to_bytes(_CHECKSUM, "little")


def decode(block: bytes, width: int, part: int, number: int) -> Entries:
    """The entries of a block; ValueError when it is not what was encoded."""
    body, checksum = block[:-_CHECKSUM], block[-_CHECKSUM:]
    if not body or xxhash.xxh32_intdigest(body, _seed(part, number)).to_bytes(_CHECKSUM, "little") != checksum:
        raise ValueError("checksum")
    count, start = body[0] + 1, 1 + -(-width // 8)
    data = np.frombuffer(body, np.uint8)
    varies = np.unpackbits(data[1:start], count=width).view(bool)
    equal = width - int(varies.sum())
    if len(body) != start + equal + count * (width - equal):
        raise ValueError("length")
    entries = np.empty((count, width), np.uint8)
    entries[:, ~varies] = data[start : start + equal]
    entries[:, varies] = data[start + equal :].reshape(count, width - equal)
    return entries


def _seed(part: int, number: int) -> int:
    return (part ^ (number * 0x9E3779B1)) & 0xFFFFFFFF


def comparable(entries: Entries) -> npt.NDArray[np.bytes_]:
    """The entries as numpy compares and sorts them: by their bytes, all of the same length."""
    return np.ascontiguousarray(entries).view(f"S{entries.shape[1]}").ravel()


def as_entries(sorted_: npt.NDArray[np.bytes_], width: int) -> Entries:
    return np.ascontiguousarray(sorted_).view(np.uint8).reshape(-1, width)


def merged(pieces: list[Entries], width: int) -> Entries:
    """Entries of several pieces, each ascending, in order and once."""
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return np.empty((0, width), np.uint8)
    return as_entries(np.unique(comparable(np.concatenate(pieces))), width)


def portions(entries: Entries, count: int) -> Iterator[Entries]:
    """As many at a time."""
    for start in range(0, len(entries), count):
        yield entries[start : start + count]
