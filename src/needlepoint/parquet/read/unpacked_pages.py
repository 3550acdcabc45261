"""Many pages of zstd, unpacked in one call.

pyarrow makes a context of zstd for every page: 7 µs on a virtual machine, more than unpacking a page of 250 rows takes.
But frames of zstd that follow one another are unpacked together, and a frame can hold bytes as they are. So the small
file that pyarrow decodes (assembly.py) is written as frames, and they are unpacked at once:

    PAR1 | header' | page | header' | page | …  | FileMetaData  length  PAR1
    raw    raw       zstd   raw       zstd        raw

A header' is that of the page, with the size after unpacking in place of the size before. numpy reads the headers of
many pages at once, and Python those of few.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from needlepoint.parquet.format import codecs
from needlepoint.parquet.format.page_headers import DATA_PAGE
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.read.assembly import MAGIC, Frame, end_of_file

# Fewer pages are faster when pyarrow unpacks them.
FEWEST_PAGES = 4
# numpy takes 0.2 ms for any number of headers, and Python 3 µs for each.
FEWEST_BY_NUMPY = 64
# RFC 8878, 3.1.1: how a frame begins. The raw one has a window of 128 KiB, one block, and no checksum.
_FRAME, _RAW_FRAME = bytes.fromhex("28b52ffd"), bytes.fromhex("28b52ffd0038")
_RAW_HEADER = len(_RAW_FRAME) + 3  # with that of the block
_LAST_BLOCK, _LARGEST_BLOCK = 1, 1 << 17
# Thrift's compact protocol: the next field is a 32-bit number; a struct follows field 3 as field 5, or field 4.
_NEXT_I32, _FIFTH_AFTER_3RD, _FIFTH_AFTER_4TH = 0x15, 0x2C, 0x1C
_DATA_PAGE = bytes((_NEXT_I32, DATA_PAGE << 1, _NEXT_I32))
# The bytes of a header that are looked at, and how many fields and numbers: type, two sizes, a checksum, a struct.
_WINDOW, _TOKENS = 24, 9

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


def unpacked_file(
    frame: Frame, head: bytes, num_values: int, data: Bytes, start: Int64Array, size: Int64Array
) -> bytes | None:
    """The assembled file of one column: its data pages are in `data`, at `start` and of these sizes. `head` is that of
    a chunk without compression, which claims `num_values`.

    None if the headers are not those of data pages of version 1; ValueError if the pages cannot be unpacked.
    """
    frames = (_few_frames if len(size) < FEWEST_BY_NUMPY else _many_frames)(data, start, size)
    if frames is None:
        return None
    end = end_of_file(frame, head, num_values, frames.unpacked)
    total = len(MAGIC) + frames.unpacked + len(end)
    if total > codecs.LARGEST_PAGE or max(frames.longest_header, len(end)) > _LARGEST_BLOCK:
        return None
    pieces = (_raw_frame(len(MAGIC)), MAGIC, *frames.pieces, _raw_frame(len(end)), end)
    return codecs.decompress(codecs.ZSTD, b"".join(pieces), total)


class _Frames(NamedTuple):
    """The frames of pages in pieces, with their size after unpacking."""

    pieces: list[bytes | memoryview]
    unpacked: int
    longest_header: int


def _few_frames(data: Bytes, start: Int64Array, size: Int64Array) -> _Frames | None:
    """None if a header is not that of a data page of version 1."""
    view, pieces = data.data, list[bytes | memoryview]()
    unpacked = longest = 0
    for begin, length in zip(start.tolist(), size.tolist(), strict=True):
        header = bytes(view[begin : begin + min(length, _WINDOW)])
        if not header.startswith(_DATA_PAGE):
            return None
        try:
            unpacked_size, new_end = _number_at(header, len(_DATA_PAGE))
            packed_size, old_end = _number_at(header, new_end + 1)
            next_field, number_end = header[old_end], old_end
            if next_field == _NEXT_I32:  # a checksum, which may be negative
                while header[number_end := number_end + 1] >= 0x80:
                    pass
                number_end += 1
                is_known = header[number_end] == _FIFTH_AFTER_4TH
            else:
                is_known = next_field == _FIFTH_AFTER_3RD
        except (IndexError, ValueError):
            return None
        body = length - packed_size
        is_known = is_known and header[new_end] == _NEXT_I32 and packed_size > len(_FRAME) and body > number_end
        if not is_known or view[begin + body : begin + body + len(_FRAME)] != _FRAME:
            return None
        beginning = header[: new_end + 1] + header[len(_DATA_PAGE) : new_end]
        header_size = len(beginning) + body - old_end
        pieces += (_raw_frame(header_size), beginning, view[begin + old_end : begin + length])
        unpacked += header_size + unpacked_size
        longest = max(longest, header_size)
    return _Frames(pieces, unpacked, longest)


def _number_at(header: bytes, at: int) -> tuple[int, int]:
    """A number of thrift, and where it ends. ValueError if it is negative or has more than 32 bits, IndexError if it is
    not whole."""
    found = shift = 0
    while True:
        byte = header[at]
        found |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            break
        shift += 7
    if found & 1 or shift > 28:
        raise ValueError(f"{found} is no size")
    return found >> 1, at


def _many_frames(data: Bytes, start: Int64Array, size: Int64Array) -> _Frames | None:
    """The same, by numpy."""
    pages = _find_pages(data, start, size)
    if pages is None:
        return None
    header_size = pages.header_size()
    pieces, view = list[bytes | memoryview](), data.data
    rests = zip(pages.old_end.tolist(), pages.end.tolist(), strict=True)
    for beginning, (first, last) in zip(_beginnings(data, pages, header_size), rests, strict=True):
        pieces += (beginning, view[first:last])
    return _Frames(pieces, int(header_size.sum() + pages.unpacked_size.sum()), int(header_size.max()))


def _beginnings(data: Bytes, pages: _Pages, header_size: Int64Array) -> list[memoryview]:
    """What precedes the rest of each header and the packed body, which follow one another in the file: the beginning of
    the raw frame, and of the header with the other size. They are lines of an array, each cut at its end:

        28b52ffd0038 | header_size << 3 | 1 | 15 00 15 | a01f
    """
    before, number = pages.old_size - pages.start, pages.new_end - pages.new_size
    at = np.arange(int((before + number).max()))
    source = np.where(at < before[:, None], pages.start[:, None], (pages.new_size - before)[:, None]) + at
    lines = np.empty((len(source), _RAW_HEADER + len(at)), np.uint8)
    lines[:, : len(_RAW_FRAME)] = np.frombuffer(_RAW_FRAME, np.uint8)
    block = (header_size << 3 | _LAST_BLOCK).astype("<u4").view(np.uint8).reshape(-1, 4)
    lines[:, len(_RAW_FRAME) : _RAW_HEADER] = block[:, :3]
    lines[:, _RAW_HEADER:] = data[np.minimum(source, len(data) - 1)]
    view = lines.reshape(-1).data
    first = np.arange(0, len(view), lines.shape[1])
    last = first + _RAW_HEADER + before + number
    return [view[start:end] for start, end in zip(first.tolist(), last.tolist(), strict=True)]


@lru_cache(maxsize=256)
def _raw_frame(size: int) -> bytes:
    """What precedes so many bytes in a frame that holds them as they are."""
    return _RAW_FRAME + (size << 3 | _LAST_BLOCK).to_bytes(3, "little")


class _Pages(NamedTuple):
    """Where the parts of pages are, a number for each page: of its header, the size after unpacking, and before; the
    packed body; its end."""

    start: Int64Array
    new_size: Int64Array
    new_end: Int64Array
    old_size: Int64Array
    old_end: Int64Array
    body: Int64Array
    end: Int64Array
    unpacked_size: Int64Array

    def header_size(self) -> Int64Array:
        """Of the header with the other size."""
        found: Int64Array = self.old_size - self.start + self.new_end - self.new_size + self.body - self.old_end
        return found


def _find_pages(data: Bytes, start: Int64Array, size: Int64Array) -> _Pages | None:
    """The parts of these pages; None if a header is not that of a data page of version 1.

    In `15 00 15 a01f 15 be10 1c`, every field and every number ends with a byte below 0x80. So the two sizes are the
    fourth and the sixth of them in any header.
    """
    end = start + size
    window = data[np.minimum(start[:, None] + np.arange(_WINDOW), len(data) - 1)]
    is_last = window < 0x80
    counts = is_last.sum(axis=1)
    if int(counts.min()) < _TOKENS:
        return None
    last = np.nonzero(is_last)[1][(counts.cumsum() - counts)[:, None] + np.arange(_TOKENS)]
    token = window[np.arange(len(size))[:, None], last]
    without_checksum = token[:, 6] == _FIFTH_AFTER_3RD
    with_checksum = (token[:, 6] == _NEXT_I32) & (token[:, 8] == _FIFTH_AFTER_4TH)
    known = (token[:, [0, 2, 4]] == _NEXT_I32).all(axis=1) & (token[:, 1] == DATA_PAGE << 1) & (last[:, 1] == 1)
    unpacked_size, packed_size = (_number(window, last[:, at - 1] + 1, last[:, at]) for at in (3, 5))
    body = end - packed_size
    new_size, new_end, old_size, old_end = (start + last[:, at] + 1 for at in (2, 3, 4, 5))
    known &= (without_checksum | with_checksum) & (packed_size > len(_FRAME)) & (body > old_end)
    if not known.all() or (data[body[:, None] + np.arange(len(_FRAME))] != np.frombuffer(_FRAME, np.uint8)).any():
        return None
    return _Pages(start, new_size, new_end, old_size, old_end, body, end, unpacked_size)


def _number(window: Bytes, first: Int64Array, last: Int64Array) -> Int64Array:
    """The number in the bytes `first` to `last` of each line; 0 if it is negative or has more than 32 bits."""
    lines, found = np.arange(len(window)), np.zeros(len(window), np.int64)
    lengths = last - first
    for byte in range(min(5, int(lengths.max()) + 1)):
        part = window[lines, np.minimum(first + byte, last)].astype(np.int64) & 0x7F
        found |= np.where(byte <= lengths, part << 7 * byte, 0)
    return np.where((found & 1 == 0) & (lengths < 5), found >> 1, 0)
