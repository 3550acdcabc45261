"""The postings of a tantivy segment as arrays: which rows have a word, and how often each has it.

Tantivy's own interface makes a Python object of each hit, a quarter of a microsecond, and does not tell how often a
word occurs in a text. So these two files of a segment are read here, in version 7 of tantivy's format; of any other
version nothing is read, and a score comes from the texts.

    file       body; JSON with `version.index_format_version`; u32 length of the JSON; u32 1337
    body       the parts of the fields; footer: vint number of fields, for each a vint distance to the start of its
               part, u32 field, vint 0; u32 length of the footer
    .term      of a field: an automaton of the words; term infos; u64 size of these; u32 1; u32 1
    term infos u64 size of the heads, u64 number of words; a head for each 256 words; bits of the other 255
    .idx       of a field: u64 number of words; the postings of each word
    postings   from 128 rows on: vint size of the skip data, and of each block of 128 rows what `_SKIP` says; then the
               blocks: gaps between rows, less one, and frequencies, less one, both in packed bits. Then the last rows,
               fewer than 128: their gaps and their frequencies as vints

Numbers are little-endian. A vint has seven bits in a byte, the lowest first; the highest bit marks its last byte.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.access import RowNumbers
from needlepoint.stores import IndexDamaged

FORMAT = 7
_END = struct.Struct("<II")
_MAGIC = 1337
BLOCK = 128
_WORDS_OF_HEAD = 256
# Offset of the bits; rows, start and size of postings, start and size of positions of the first word; widths of rows,
# of postings and of positions.
_HEAD = struct.Struct("<QIQIQIBBB")
_SKIP = np.dtype([("last", "<u4"), ("row_bits", "u1"), ("bits", "u1"), ("sum", "<u4"), ("unused", "u1", 2)])
_LESS_ONE = 0x40  # in `row_bits`: gaps are stored less one

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


class OtherFormat(Exception):
    """Another version of tantivy wrote the segment."""


class SegmentPostings:
    """The postings of the first field of a segment, of its two files. Words are numbered in byte order."""

    def __init__(self, terms: bytes | pa.Buffer, postings: bytes | pa.Buffer, rows: int) -> None:
        self._rows = rows
        self.words, self._heads, self._bits = 0, b"", np.zeros(0, np.uint8)
        try:
            words, data = np.frombuffer(terms, np.uint8), np.frombuffer(postings, np.uint8)
            infos, place = _term_infos(words, _first_field(words)), _first_field(data)
            if infos is not None and place is not None:
                heads, self.words = (int(value) for value in infos[:16].view("<u8"))
                self._heads, self._bits = infos[16 : 16 + heads].tobytes(), infos[16 + heads :]
                self._start = place.start + 8
                self._data = data[self._start : place.stop]
        except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
            raise IndexDamaged(f"the postings of a text index are damaged: {error}.") from error

    def of(self, word: int) -> tuple[RowNumbers, Numbers]:
        """The rows with a word, ascending, and how often each has it."""
        try:
            rows, start, stop = self._info(word)
            found, times = _decoded(self._data[start:stop], rows)
        except (ValueError, IndexError, struct.error) as error:
            raise IndexDamaged(f"the postings of a text index are damaged: {error}.") from error
        ascending = bool((found[1:] > found[:-1]).all())
        if not len(found) or not ascending or found[0] < 0 or found[-1] >= self._rows or times.min() < 1:
            raise IndexDamaged("the postings of a text index are damaged.")
        return found, times

    def long_lists(self) -> Iterator[tuple[int, int]]:
        """Where in the file the postings of each word with blocks start, and how many blocks it has."""
        try:
            for first in range(0, self.words, _WORDS_OF_HEAD):
                for word in (first + np.flatnonzero(self._counts(first) >= BLOCK)).tolist():
                    rows, start, _ = self._info(word)
                    yield self._start + start, rows // BLOCK
        except (ValueError, IndexError, struct.error) as error:
            raise IndexDamaged(f"the postings of a text index are damaged: {error}.") from error

    def _counts(self, first: int) -> Numbers:
        """In how many rows the words of a head occur; of the first only, if the others are in less than a block."""
        at, rows, *_, row_bits, start_bits, position_bits = _HEAD.unpack_from(
            self._heads, first // _WORDS_OF_HEAD * _HEAD.size
        )
        others = min(_WORDS_OF_HEAD, self.words - first) - 1
        if not others or 1 << row_bits <= BLOCK:
            return np.array([rows])
        bits = start_bits + position_bits + np.arange(others) * (start_bits + position_bits + row_bits)
        # Behind the end there is nothing that counts.
        places = np.minimum((at + bits // 8)[:, None] + np.arange(8), len(self._bits) - 1)
        numbers = self._bits[places].view("<u8")[:, 0] >> (bits % 8).astype(np.uint64)
        return np.append(rows, (numbers & np.uint64((1 << row_bits) - 1)).astype(np.int64))

    def _info(self, word: int) -> tuple[int, int, int]:
        """In how many rows a word occurs, and where its postings are."""
        if not 0 <= word < self.words:
            raise IndexError("there is no such word")
        head, place = divmod(word, _WORDS_OF_HEAD)
        at, rows, start, size, _, _, row_bits, start_bits, position_bits = _HEAD.unpack_from(
            self._heads, head * _HEAD.size
        )
        if place == 0:
            return rows, start, start + size
        width = start_bits + position_bits + row_bits
        first = (place - 1) * width
        return (
            self._number(at, first + start_bits + position_bits, row_bits),
            start + self._number(at, first, start_bits),
            start + self._number(at, first + width, start_bits),  # where the next word starts
        )

    def _number(self, at: int, bit: int, width: int) -> int:
        start = at + bit // 8
        return int.from_bytes(self._bits[start : start + 8].tobytes(), "little") >> bit % 8 & (1 << width) - 1


def _first_field(data: Bytes) -> slice | None:
    """Where in a file the first field is; None if no row has a word in that field."""
    length, magic = _END.unpack(data[-_END.size :].tobytes())
    end = len(data) - _END.size - length
    if magic != _MAGIC or end < 4:
        raise ValueError("it has no footer")
    if json.loads(data[end : -_END.size].tobytes())["version"]["index_format_version"] != FORMAT:
        raise OtherFormat
    (length,) = struct.unpack("<I", data[end - 4 : end].tobytes())
    footer = data[end - 4 - length : end - 4].tolist()
    fields, at = vint(footer, 0)
    starts, numbers, start = list[int](), list[int](), 0
    for _ in range(fields):
        distance, at = vint(footer, at)
        start += distance
        starts.append(start)
        numbers.append(int.from_bytes(footer[at : at + 4], "little"))
        _, at = vint(footer, at + 4)
    starts.append(end - 4 - length)
    place = numbers.index(0) if 0 in numbers else None
    return None if place is None else slice(starts[place], starts[place + 1])


def vint(data: list[int], at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte & 128:
            return value, at


def _term_infos(data: Bytes, field: slice | None) -> Bytes | None:
    if field is None:
        return None
    terms = data[field]
    size, version, kind = struct.unpack("<QII", terms[-16:].tobytes())
    if (version, kind) != (1, 1):
        raise OtherFormat
    return terms[-16 - size : -16]


def _decoded(data: Bytes, count: int) -> tuple[RowNumbers, Numbers]:
    blocks, rest = divmod(count, BLOCK)
    rows, times = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if blocks:
        size, at = vint(data[:10].tolist(), 0)
        skips = data[at : at + size].view(_SKIP)
        if len(skips) != blocks or not (skips["row_bits"] & _LESS_ONE).all():
            raise ValueError("it has another number of blocks")
        row_bits, bits = (skips["row_bits"] & 31).astype(np.int64), skips["bits"].astype(np.int64)
        if bits.max() > 32:
            raise ValueError("a number has too many bits")
        edges = np.concatenate(([0], np.cumsum(16 * (row_bits + bits)))) + at + size
        rows = np.cumsum(unpacked_blocks(data, edges[:-1], row_bits) + 1) - 1
        frequencies = unpacked_blocks(data, edges[:-1] + 16 * row_bits, bits) + 1
        times = frequencies.ravel()
        if (rows[BLOCK - 1 :: BLOCK] != skips["last"]).any() or (frequencies.sum(axis=1) != skips["sum"]).any():
            raise ValueError("its blocks differ from what it says of them")
        data = data[edges[-1] :]
    if not rest:
        return rows, times
    numbers = _vints(data)
    if len(numbers) != 2 * rest:
        raise ValueError("it has another number of rows")
    last = int(rows[-1]) if blocks else 0
    return (
        np.concatenate((rows, last + np.cumsum(numbers[:rest]))),
        np.concatenate((times, numbers[rest:])),
    )


def unpacked_blocks(data: Bytes, starts: Numbers, widths: Numbers) -> Numbers:
    """The 128 numbers of each block. They are dealt to four lanes of 32, whose words alternate."""
    found = np.zeros((len(starts), BLOCK), np.int64)
    for width in np.unique(widths[widths > 0]).tolist():
        blocks = np.flatnonzero(widths == width)
        packed = data[starts[blocks][:, None] + np.arange(16 * width)].view("<u4")
        words = np.ascontiguousarray(packed.reshape(len(blocks), width, 4).transpose(1, 0, 2)).astype(np.uint64)
        lanes = np.empty((32, len(blocks), 4), np.uint64)
        for number in range(32):
            word, bit = divmod(number * width, 32)
            lanes[number] = words[word] >> np.uint64(bit)
            if bit + width > 32:
                lanes[number] |= words[word + 1] << np.uint64(32 - bit)
        lanes &= np.uint64((1 << width) - 1)
        found[blocks] = lanes.transpose(1, 0, 2).reshape(len(blocks), BLOCK)
    return found


def _vints(data: Bytes) -> Numbers:
    ends = np.flatnonzero(data & 128)
    if not len(ends) or ends[-1] != len(data) - 1:
        raise ValueError("a number does not end")
    starts = np.concatenate(([0], ends[:-1] + 1))
    shifts = 7 * (np.arange(len(data)) - np.repeat(starts, ends - starts + 1))
    if shifts.max() > 28:
        raise ValueError("a number is too long")
    return np.add.reduceat((data & 127).astype(np.int64) << shifts, starts)
