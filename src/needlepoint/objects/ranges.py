"""Merge many ranges into few requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

# Two wanted ranges with a gap up to this are read as one: a read of a file costs more than 4 KiB of bytes.
LOCAL_GAP = 4096
# A request to an object store takes 10 to 50 ms and costs money, whatever its size. 1 MiB arrives in that time, but
# the requests of one read run concurrently, so only a part of that is worth reading for nothing.
REMOTE_GAP = 128 << 10
# One connection to an object store carries 50 to 100 MB/s: more bytes than this come faster over several.
PART = 8 << 20


class Block(NamedTuple):
    """Bytes `start` to `end` of a file, and the numbers of the ranges inside."""

    start: int
    end: int
    members: list[int]


def coalesce(ranges: Sequence[tuple[int, int]], gap: int) -> list[Block]:
    """Blocks that hold all `(offset, length)`; ranges with no more than `gap` bytes between them share one.

    >>> coalesce([(100, 50), (0, 20), (1000, 10), (130, 40)], gap=80)
    [Block(start=0, end=170, members=[1, 0, 3]), Block(start=1000, end=1010, members=[2])]
    """
    blocks: list[Block] = []
    members: list[int] = []
    start = end = 0
    for number in sorted(range(len(ranges)), key=ranges.__getitem__):
        offset, length = ranges[number]
        if members and offset <= end + gap:
            members.append(number)
            end = max(end, offset + length)
            continue
        if members:
            blocks.append(Block(start, end, members))
        start, end, members = offset, offset + length, [number]
    if members:
        blocks.append(Block(start, end, members))
    return blocks


def split(start: int, end: int, part: int = PART) -> list[tuple[int, int]]:
    """The bytes `start` to `end` in equal parts of at most `part`.

    >>> split(100, 350, part=100)
    [(100, 184), (184, 268), (268, 350)]
    >>> split(7, 7)
    []
    """
    size = end - start
    if size <= part:
        return [(start, end)] if size else []
    step = -(-size // -(-size // part))
    return [(first, min(first + step, end)) for first in range(start, end, step)]


def cut(ranges: Sequence[tuple[int, int]], blocks: Sequence[Block], read: Callable[[Block], bytes]) -> list[bytes]:
    """The bytes of each range, taken from its block, which is read once."""
    results = [b""] * len(ranges)
    for block in blocks:
        data = read(block)
        if len(block.members) == 1:
            results[block.members[0]] = data
            continue
        for number in block.members:
            offset, length = ranges[number]
            results[number] = data[offset - block.start : offset - block.start + length]
    return results
