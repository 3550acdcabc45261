"""Blocks of a part: up to 128 ascending entries in about 6 to 15 bytes each, with a checksum.

    byte 0             number of entries - 1
    ⌈width / 8⌉ bytes  which bytes of an entry differ inside the block: the highest bit is the first byte
    equal bytes        once
    other bytes        of one entry after the other
    4 bytes            XXH32 of all of this, little-endian, with a seed of the block's part and number

Neighbours have the first bytes of their keys, and mostly those of their locations, in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    return decode_all({(part, number): block}, width)[part, number]


def decode_all(found: Mapping[tuple[int, int], bytes], width: int) -> dict[tuple[int, int], Entries]:
    """The entries of blocks, by part and number; ValueError when one is not what was encoded. Blocks that differ in the
    same bytes are decoded together: a lookup of many keys has a thousand of them."""
    start = 1 + -(-width // 8)
    alike: dict[bytes, list[tuple[int, int]]] = {}
    for (part, number), block in found.items():
        body, checksum = block[:-_CHECKSUM], block[-_CHECKSUM:]
        if not body or xxhash.xxh32_intdigest(body, _seed(part, number)).to_bytes(_CHECKSUM, "little") != checksum:
            raise ValueError("checksum")
        alike.setdefault(block[:start], []).append((part, number))
    decoded: dict[tuple[int, int], Entries] = {}
    for head, places in alike.items():
        data = b"".join([found[place][start:-_CHECKSUM] for place in places])
        count, varies = head[0] + 1, np.unpackbits(np.frombuffer(head, np.uint8)[1:], count=width).view(bool)
        equal = width - int(varies.sum())
        if len(data) != len(places) * (equal + count * (width - equal)):
            raise ValueError("length")
        rows = np.frombuffer(data, np.uint8).reshape(len(places), -1)
        entries = np.empty((len(places), count, width), np.uint8)
        entries[:, :, ~varies] = rows[:, None, :equal]
        entries[:, :, varies] = rows[:, equal:].reshape(len(places), count, width - equal)
        decoded.update(zip(places, entries, strict=True))
    return decoded


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
