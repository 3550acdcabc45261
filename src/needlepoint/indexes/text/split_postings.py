"""The postings of a segment in parts that zstd packs better than the file of tantivy.

Tantivy packs each 128 gaps between rows into as many bits as the largest of them needs. zstd encodes bytes, and most
bytes of such bits are equally frequent. So a payload has each gap as a byte, of which small ones are frequent; when it
is unpacked, the file is made again, byte for byte. postings.py describes the file.

    rest    the file without the blocks of 128 rows, and without what it says of them
    runs    for each word that has blocks: u32 bytes of `rest` before its blocks, since the last ones; u32 blocks
    skips   what the file says of the blocks without their last rows: all first bytes, all second bytes …
    gaps    the lowest byte of each gap; then the second of those in blocks with more than 8 bits; the third …
    times   how often rows have the words: bits, as in the file

The parts must agree with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from needlepoint.indexes.text.postings import BLOCK, OtherFormat, SegmentPostings, unpacked_blocks, vint
from needlepoint.stores import IndexDamaged

AT_ONCE = 4096  # blocks
_LAST = 4  # bytes of the last row of a block
# With frequencies, and without them: the widths of gaps; of frequencies, and six bytes more.
_SKIPS = (8, 1)
_WIDTH = 31
_PLANES = 4

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SplitPostings:
    """`joined` makes the file again, of which `split` made these."""

    rest: bytes
    runs: bytes
    skips: bytes
    gaps: bytes
    times: bytes


def split(terms: bytes, postings: bytes) -> SplitPostings | None:
    """The parts of a file; None if it has no blocks, or if another version of tantivy wrote it."""
    try:
        runs = [*SegmentPostings(terms, postings, 0).long_lists()]
        parts = _split(np.frombuffer(postings, np.uint8), runs) if runs else None
        return parts if parts is not None and joined(parts, 2 * len(postings)) == postings else None
    except (OtherFormat, IndexDamaged, ValueError, IndexError):
        return None


def _split(data: Bytes, runs: list[tuple[int, int]]) -> SplitPostings:
    rest, skips, starts, before, end = list[Bytes](), list[Bytes](), list[Numbers](), list[int](), 0
    for start, blocks in runs:
        size, length = vint(data[start : start + 10].tolist(), 0)
        told = data[start + length : start + length + size].reshape(blocks, -1)[:, _LAST:]
        edges = start + length + size + np.concatenate(([0], np.cumsum(_sizes(*_widths(told.T)))))
        skips.append(told)
        starts.append(edges[:-1])
        rest.append(data[end:start])
        before.append(start - end)
        end = int(edges[-1])
    every, places = np.concatenate(skips).T, np.concatenate(starts)
    row_bits, bits = _widths(every)
    planes, times = [list[bytes]() for _ in range(_PLANES)], list[bytes]()
    for at in range(0, len(places), AT_ONCE):
        some = slice(at, at + AT_ONCE)
        numbers = unpacked_blocks(data, places[some], row_bits[some].astype(np.int64))
        for number, plane in enumerate(planes):
            plane.append((numbers[row_bits[some] > 8 * number] >> 8 * number).astype(np.uint8).tobytes())
        lengths = _sizes(bits[some])
        first = places[some] + _sizes(row_bits[some]) - (np.cumsum(lengths) - lengths)
        times.append(data[np.repeat(first, lengths) + np.arange(lengths.sum())].tobytes())
    return SplitPostings(
        b"".join(each.tobytes() for each in [*rest, data[end:]]),
        np.array([before, [blocks for _, blocks in runs]], "<u4").tobytes(),
        every.tobytes(),
        b"".join(each for plane in planes for each in plane),
        b"".join(times),
    )


def _widths(skips: Bytes) -> tuple[Bytes, Bytes]:
    """Of the gaps and the frequencies of blocks."""
    if len(skips) not in _SKIPS:
        raise ValueError("its blocks have another form")
    row_bits = skips[0] & _WIDTH
    return row_bits, skips[1] if len(skips) > 1 else np.zeros_like(row_bits)


def _sizes(*widths: Bytes) -> Numbers:
    """How many bytes blocks have in the file."""
    found: Numbers = 16 * np.add.reduce([each.astype(np.int64) for each in widths])
    return found


def joined(parts: SplitPostings, most: int) -> bytes:
    """The file; ValueError if the parts do not agree, or if it has more than so many bytes. Nothing is allocated before
    that is known, and little besides the file."""
    before, blocks = np.frombuffer(parts.runs, "<u4").reshape(2, -1).astype(np.int64)
    rest, total = np.frombuffer(parts.rest, np.uint8), int(blocks.sum())
    if not total or not blocks.all() or len(parts.skips) % total or before.sum() > len(rest):
        raise ValueError("its runs do not agree with its blocks")
    made = _Blocks(np.frombuffer(parts.skips, np.uint8).reshape(-1, total), blocks)
    if len(rest) + made.size > most:
        raise ValueError(f"its postings would have {len(rest) + made.size:,} bytes")
    made.fill(np.frombuffer(parts.gaps, np.uint8), np.frombuffer(parts.times, np.uint8))
    out, end, start, block = np.empty(len(rest) + made.size, np.uint8), 0, 0, 0
    for at in range(0, len(blocks), AT_ONCE):
        some = slice(at, at + AT_ONCE)
        runs = (each[some].tolist() for each in (before, blocks, made.edges[:-1], made.edges[1:]))
        for ahead, count, first, last in zip(*runs, strict=True):
            told = made.skips[block : block + count].reshape(-1)
            head = np.frombuffer(_as_vint(len(told)), np.uint8)
            for piece in (rest[start : start + ahead], head, told, made.data[first:last]):
                out[end : end + len(piece)] = piece
                end += len(piece)
            start, block = start + ahead, block + count
    out[end:] = rest[start:]
    return out.tobytes()


class _Blocks:
    """The blocks as the file has them: what is said of each, and their bits, one after the other. Those of a run are
    between two `edges`."""

    def __init__(self, told: Bytes, runs: Numbers) -> None:
        self._told, self._runs = told, runs
        self._row_bits, self._bits = _widths(told)
        self._of_gaps = [BLOCK * int(np.count_nonzero(self._row_bits > 8 * number)) for number in range(_PLANES)]
        self._of_times = 16 * int(self._bits.sum(dtype=np.int64))
        self._of_data = 16 * int(self._row_bits.sum(dtype=np.int64)) + self._of_times
        record = _LAST + len(told)
        heads = len(runs) + sum(int(np.count_nonzero(record * runs >= 1 << 7 * digits)) for digits in range(1, 9))
        self.size = self._of_data + record * told.shape[1] + heads

    def fill(self, gaps: Bytes, times: Bytes) -> None:
        if len(gaps) != sum(self._of_gaps) or len(times) != self._of_times or self._bits.max() > 32:
            raise ValueError("its gaps or frequencies do not agree with its blocks")
        total = len(self._row_bits)
        self.data: Bytes = np.empty(self._of_data, np.uint8)
        self.skips: Bytes = np.empty((total, _LAST + len(self._told)), np.uint8)
        self.skips[:, _LAST:] = self._told.T
        planes = [each.reshape(-1, BLOCK) for each in np.split(gaps, np.cumsum(self._of_gaps)[:-1])]
        firsts = np.cumsum(self._runs) - self._runs
        edges, rows = np.zeros(len(firsts) + 1, np.int64), np.zeros(len(firsts), np.int64)
        data, last, seen, frequencies = 0, 0, [0] * _PLANES, 0
        for at in range(0, total, AT_ONCE):
            some = slice(at, at + AT_ONCE)
            row_bits, bits = self._row_bits[some], self._bits[some]
            ends = data + np.cumsum(_sizes(row_bits, bits))
            starts = np.concatenate(([data], ends[:-1]))
            distances = self._fill_gaps(planes, seen, row_bits, starts)
            frequencies = self._fill_times(times, frequencies, bits, starts + _sizes(row_bits))
            # Rows are counted from the first block of a run.
            inner = slice(*np.searchsorted(firsts, (at, at + len(ends))).tolist())
            lasts = last + np.cumsum(distances)
            edges[:-1][inner] = starts[firsts[inner] - at]
            rows[inner] = (lasts - distances)[firsts[inner] - at]
            owners = np.searchsorted(firsts, np.arange(at, at + len(ends)), "right") - 1
            self.skips[some, :_LAST] = (lasts - rows[owners] - 1).astype("<u4")[:, None].view(np.uint8)
            data, last = int(ends[-1]), int(lasts[-1])
        edges[-1] = data
        self.edges: Numbers = edges

    def _fill_gaps(self, planes: list[Bytes], seen: list[int], row_bits: Bytes, starts: Numbers) -> Numbers:
        """Returns how many rows each block goes ahead; `seen` counts the blocks of each plane."""
        distances = np.empty(len(row_bits), np.int64)
        places = [seen[number] - 1 + np.cumsum(row_bits > 8 * number) for number in range(_PLANES)]
        for width in np.unique(row_bits).tolist():
            blocks = np.flatnonzero(row_bits == width)
            numbers = np.zeros((len(blocks), BLOCK), np.uint32)
            for number in range((width + 7) // 8):
                numbers |= planes[number][places[number][blocks]].astype(np.uint32) << np.uint32(8 * number)
            if (numbers >> np.uint32(width)).any():
                raise ValueError("a gap has too many bits")
            distances[blocks] = numbers.sum(axis=1, dtype=np.int64) + BLOCK
            if width:
                self.data[starts[blocks][:, None] + np.arange(16 * width)] = _packed(numbers, width)
        seen[:] = [int(each[-1]) + 1 for each in places]
        return distances

    def _fill_times(self, times: Bytes, at: int, bits: Bytes, starts: Numbers) -> int:
        """Returns where the next frequencies are."""
        lengths = _sizes(bits)
        ends = np.cumsum(lengths)
        inner = np.arange(ends[-1])
        self.data[np.repeat(starts - ends + lengths, lengths) + inner] = times[at : at + len(inner)]
        return at + len(inner)


def _packed(numbers: npt.NDArray[np.uint32], width: int) -> Bytes:
    """The bits of blocks; `unpacked_blocks` is the inverse."""
    lanes = np.ascontiguousarray(numbers.reshape(-1, 32, 4).transpose(1, 0, 2))
    words = np.zeros((width, len(numbers), 4), "<u4")
    for number in range(32):
        word, bit = divmod(number * width, 32)
        words[word] |= lanes[number] << np.uint32(bit)
        if bit + width > 32:
            words[word + 1] |= lanes[number] >> np.uint32(32 - bit)
    return np.ascontiguousarray(words.transpose(1, 0, 2)).view(np.uint8).reshape(len(numbers), 16 * width)


def _as_vint(number: int) -> bytes:
    """
    >>> _as_vint(300).hex()
    '2c82'
    """
    out = bytearray()
    while number >= 128:
        out.append(number & 127)
        number >>= 7
    return bytes([*out, number | 128])
