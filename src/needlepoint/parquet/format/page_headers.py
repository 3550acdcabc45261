"""The pages of a chunk that has no offset index, found by hopping from page header to page header.

    | header | dictionary … | header | values … | header | values … |
      read                    read              read

A few bytes are read at each header, more when pages are small and many headers are close together. All chunks of
a file hop at the same time, so that a round of hops is one call. What a header says is not trusted: the walk ends,
reads a few times the chunk at most, and what does not add up to the chunk's rows is no index at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from needlepoint.objects import OpenObject
from needlepoint.parquet.format import codecs, levels, thrift
from needlepoint.parquet.format.page_index import ColumnIndex, OffsetIndex, is_plausible
from needlepoint.parquet.format.thrift import ThriftError, Truncated

# parquet.thrift, PageType and Encoding
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 2, 3, 8

WINDOW = 1024  # the bytes of one hop: a header with bounds takes 50 to 100
SMALL_CHUNK = 8 * 1024  # read whole
SMALL_PAGE = 16 * 1024  # pages up to this on average are read together, headers and all
LARGEST_WINDOW = 1024 * 1024
LONGEST_HEADER = 16 * 1024 * 1024  # as in parquet-cpp
LARGEST_LOOKED_INTO = 256 * 1024 * 1024  # bytes of a chunk of whose pages levels are decompressed
MOST_HEADERS = 1_000_000  # of a chunk
ROUND_BYTES = 16 * 1024 * 1024  # in memory at once
BUDGET = 3  # times the size of the file, for all its chunks


class PageHeader(NamedTuple):
    """What precedes a page. `num_rows`, the lengths and `is_compressed` are given by data pages of version 2 only."""

    kind: int
    size: int  # of the header itself
    uncompressed_size: int
    compressed_size: int
    num_values: int = 0
    encoding: int = 0
    repetition_encoding: int = RLE
    repetition_length: int = 0
    num_rows: int | None = None
    null_count: int | None = None
    min_value: bytes | None = None
    max_value: bytes | None = None
    definition_encoding: int = RLE
    definition_length: int = 0
    is_compressed: bool = True


def parse_header(data: bytes, position: int = 0) -> PageHeader:
    """The header at `position`; Truncated when the bytes end inside it, ThriftError when they are not a header.

    PageHeader { 1: type, 2: uncompressed_page_size, 3: compressed_page_size, 5: data_page_header,
    7: dictionary_page_header, 8: data_page_header_v2 }
    """
    fields = thrift.parse(data, position)
    kind = fields.integer32(1)
    sizes = (kind, fields.end - position, fields.integer32(2), fields.integer32(3))
    if min(sizes) < 0:
        raise ThriftError("a page of less than no bytes")
    if kind == DATA_PAGE:
        # DataPageHeader { 1: num_values, 2: encoding, 3: definition and 4: repetition_level_encoding, 5: statistics }
        inner = fields.struct(5)
        bounds = _bounds(inner.optional_struct(5))
        numbers = inner.integer32(1), inner.integer32(2), inner.integer32(4)
        found = PageHeader(*sizes, *numbers, 0, None, *bounds, definition_encoding=inner.integer32(3))
    elif kind == DATA_PAGE_V2:
        # DataPageHeaderV2 { 1: num_values, 2: num_nulls, 3: num_rows, 4: encoding, 5: length of the definition and
        # 6: of the repetition levels, 7: is_compressed, 8: statistics }
        inner = fields.struct(8)
        nulls, low, high = _bounds(inner.optional_struct(8))
        counted = inner.optional_integer32(2)
        nulls = counted if nulls in (None, counted) else None  # counted twice, and not alike: not known
        definition, repetition, rows = inner.integer32(5), inner.integer32(6), inner.integer32(3)
        if min(definition, repetition, rows) < 0 or definition + repetition > sizes[3]:
            raise ThriftError("levels longer than their page")
        numbers = inner.integer32(1), inner.integer32(4), RLE
        found = PageHeader(
            *sizes, *numbers, repetition, rows, nulls, low, high,
            definition_length=definition, is_compressed=inner.optional_boolean(7) is not False,
        )  # fmt: skip
    elif kind == DICTIONARY_PAGE:
        # DictionaryPageHeader { 1: num_values, 2: encoding }
        inner = fields.struct(7)
        found = PageHeader(*sizes, inner.integer32(1), inner.integer32(2))
    else:
        found = PageHeader(*sizes)
    if found.num_values < 0:
        raise ThriftError("a page of less than no values")
    return found


_NEXT_I32, _TRUE, _FALSE, _STATISTICS, _STOP = 0x15, 0x11, 0x12, 0x1C, 0
# Headers of the fields 5 (data_page_header) and 8 (data_page_header_v2), after field 3, or 4 if there is a checksum.
_DATA_PAGES = {(3, 0x2C): DATA_PAGE, (4, 0x1C): DATA_PAGE, (3, 0x5C): DATA_PAGE_V2, (4, 0x4C): DATA_PAGE_V2}
_NUMBERS = {DATA_PAGE: 4, DATA_PAGE_V2: 6}  # that each of them begins with


def skim_header(data: bytes, position: int = 0) -> PageHeader:
    """As `parse_header`, without the bounds: in one function, since a lookup reads a header for every column."""
    start, numbers, outer, inner = position, list[int](), 0, None
    compressed: bool | None = None
    try:
        while True:
            byte = data[position]
            position += 1
            if byte == _NEXT_I32:
                number = data[position]
                position += 1
                if number >= 0x80:
                    number, shift = number & 0x7F, 7
                    while (byte := data[position]) >= 0x80 and shift < 28:
                        number |= (byte & 0x7F) << shift
                        position, shift = position + 1, shift + 7
                    number |= byte << shift
                    position += 1
                numbers.append((number >> 1) ^ -(number & 1))
            elif inner is None:
                outer, inner = len(numbers), _DATA_PAGES.get((len(numbers), byte))
                if inner is None:
                    break
            elif byte in (_TRUE, _FALSE) and inner == DATA_PAGE_V2 and len(numbers) == outer + 6 and compressed is None:
                compressed = byte == _TRUE
            elif byte == _STATISTICS and inner is not None and len(numbers) == outer + _NUMBERS[inner]:
                position = _skip_statistics(data, position)
            elif byte == _STOP and data[position] == _STOP:
                kind, uncompressed_size, compressed_size = numbers[:3]
                size, found = position + 1 - start, numbers[outer:]
                if kind != inner or len(found) != _NUMBERS[inner] or min(numbers[1:]) < 0:
                    break
                if inner == DATA_PAGE:
                    return PageHeader(
                        kind, size, uncompressed_size, compressed_size, found[0], found[1], found[3],
                        definition_encoding=found[2],
                    )  # fmt: skip
                if found[4] + found[5] > compressed_size:
                    break
                return PageHeader(
                    kind, size, uncompressed_size, compressed_size, found[0], found[3], RLE, found[5], found[2],
                    found[1], definition_length=found[4], is_compressed=compressed is not False,
                )  # fmt: skip
            else:
                break
    except IndexError:
        pass
    return parse_header(data, start)  # one of another kind, or none at all


def _skip_statistics(data: bytes, position: int) -> int:
    """The place after a struct of bounds, counts and flags; IndexError if it is none. Longer bounds than 127 bytes
    are left to `parse_header`.

    Statistics { 1: max, 2: min, 3: null_count, 4: distinct_count, 5: max_value, 6: min_value, 7 and 8: flags }
    """
    while (byte := data[position]) != _STOP:
        kind = byte & 0x0F if byte >> 4 else _STOP  # else the number of the field follows
        position += 1
        if kind == thrift.BINARY and data[position] < 0x80:
            position += 1 + data[position]
        elif kind == thrift.I64:
            while data[position] >= 0x80:
                position += 1
            position += 1
        elif kind not in (thrift.TRUE, thrift.FALSE):
            raise IndexError
    return position + 1


def _bounds(statistics: thrift.Struct | None) -> tuple[int | None, bytes | None, bytes | None]:
    # Statistics { 3: null_count, 5: max_value, 6: min_value }; the order of 1 and 2 is undefined.
    if statistics is None:
        return None, None, None
    return statistics.optional_integer64(3), statistics.optional_binary(6), statistics.optional_binary(5)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk to walk: its bytes `[start, end)`, and what its headers must add up to."""

    start: int
    end: int
    num_values: int
    num_rows: int
    codec: int
    max_repetition: int


@dataclass(frozen=True, slots=True)
class ChunkPages:
    """What the headers said: the pages, and their bounds when every header has some.

    `joined` when a page of these is several pages of the file.
    """

    pages: OffsetIndex
    bounds: ColumnIndex | None
    joined: bool = False


def walk(file: OpenObject, chunks: Sequence[Chunk]) -> list[ChunkPages | None]:
    """The pages of each chunk; None for a chunk whose headers do not say; it must be read whole.

    Rows 0 to 249 of a list column in pages of 1,000 values each: a record that goes on into the next page joins the
    two, so that pages beginning at rows 0, 99 (inside row 99) and 180 become pages beginning at rows 0 and 180.
    """
    walks = [_Walk(chunk) for chunk in chunks]
    budget = BUDGET * file.size
    active = [each for each in walks if each.wanted]
    while active and budget > 0:
        for batch in _batches(active):
            ranges = [(each.position, each.wanted) for each in batch]
            budget -= sum(length for _, length in ranges)
            for each, data in zip(batch, file.read_ranges(ranges), strict=True):
                each.feed(data)
        active = [each for each in active if each.wanted]
    return [each.result() for each in walks]


def _batches(walks: list[_Walk]) -> Iterator[list[_Walk]]:
    batch: list[_Walk] = []
    total = 0
    for each in walks:
        if batch and total + each.wanted > ROUND_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(each)
        total += each.wanted
    yield batch


class _Implausible(ValueError):
    """The headers are not those of the chunk, or cannot be understood."""


class _Walk:
    """One chunk on its way: it wants `wanted` bytes at `position`, where a header begins; 0 when it is done."""

    __slots__ = (
        "_bounds", "_chunk", "_failed", "_first_rows", "_headers", "_joined", "_offsets", "_rows", "_rows_before",
        "_sizes", "_values", "_window", "position", "wanted",
    )  # fmt: skip

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._first_rows: list[int] = []
        # Number of values, of nulls, minimum and maximum of each page; None once a page lacks bounds.
        self._bounds: list[tuple[int, int | None, bytes | None, bytes | None]] | None = []
        self._rows = self._values = self._headers = 0
        self._failed = self._joined = False
        self.position = chunk.start
        size = chunk.end - chunk.start
        self._window = size if size <= SMALL_CHUNK else WINDOW
        self.wanted = self._window

    def feed(self, data: bytes) -> None:
        """Go as far as the bytes reach, which begin at `position`."""
        base = self.position
        needed = 0
        try:
            while not needed and self._values < self._chunk.num_values and self.position - base < len(data):
                needed = self._pass_page(data, self.position - base)
            self._ask(needed, base + len(data))
        except (_Implausible, ThriftError, levels.LevelsError, ValueError):
            self._failed = True
            self.wanted = 0

    def _ask(self, needed: int, reached: int) -> None:
        """What is read next: the bytes a page needs, else the next window."""
        left = self._chunk.end - self.position
        if self._values >= self._chunk.num_values or left <= 0:
            self.wanted = 0
            return
        if needed and reached >= self._chunk.end:
            raise _Implausible("a page goes on after the chunk")
        small = self.position - self._chunk.start <= self._headers * SMALL_PAGE
        self._window = min(4 * self._window, LARGEST_WINDOW) if small else WINDOW
        self.wanted = min(max(needed, self._window), left)

    def _pass_page(self, data: bytes, cursor: int) -> int:
        """Pass the page whose header is at `cursor`; or the number of bytes from there that are needed first."""
        present = len(data) - cursor
        try:
            header = parse_header(data, cursor)
        except Truncated:
            if present >= LONGEST_HEADER:
                raise
            return max(4 * present, WINDOW)
        end = self.position + header.size + header.compressed_size
        if end > self._chunk.end:
            raise _Implausible("a page goes on after the chunk")
        if header.kind in (DATA_PAGE, DATA_PAGE_V2):
            needed = header.size + self._body_needed(header)
            if needed > present:
                return needed
            self._add(header, data[cursor + header.size : cursor + needed], end)
        elif header.kind == DICTIONARY_PAGE and self._offsets:
            raise _Implausible("a dictionary after the values")
        self.position = end
        self._headers += 1
        if self._headers > MOST_HEADERS:
            raise _Implausible("more pages than a chunk has")
        return 0

    def _body_needed(self, header: PageHeader) -> int:
        """The bytes after the header that say where records begin."""
        if self._chunk.max_repetition == 0:
            return 0
        if header.kind == DATA_PAGE_V2:
            return min(header.repetition_length, 8)  # uncompressed; the first run has the first level
        # BIT_PACKED levels are of before 2014, and not worth a decoder.
        if header.repetition_encoding != RLE or not codecs.is_known(self._chunk.codec):
            raise _Implausible("levels that are not understood here")
        if max(header.compressed_size, header.uncompressed_size) > codecs.LARGEST_PAGE:
            raise _Implausible("a page too large to be looked at")
        if self._chunk.end - self._chunk.start > LARGEST_LOOKED_INTO:
            raise _Implausible("a chunk too large to be looked at")
        return header.compressed_size

    def _add(self, header: PageHeader, body: bytes, end: int) -> None:
        rows, begins = self._records(header, body)
        if not self._offsets and not begins:
            raise _Implausible("the chunk begins inside a record")
        # A record that goes on from the page before, and pages without rows, belong to their neighbours.
        if self._offsets and (not begins or rows == 0 or self._first_rows[-1] == self._rows):
            self._sizes[-1] = end - self._offsets[-1]
            self._bounds = None
            self._joined = True
        else:
            self._offsets.append(self.position)
            self._sizes.append(end - self.position)
            self._first_rows.append(self._rows)
            if self._bounds is not None:
                self._keep_bounds(header)
        self._rows += rows
        self._values += header.num_values

    def _records(self, header: PageHeader, body: bytes) -> tuple[int, bool]:
        """The records that begin in the page, and whether it begins with one."""
        highest = self._chunk.max_repetition
        if highest == 0:
            if header.num_rows not in (None, header.num_values):
                raise _Implausible("a value for each row, and not as many")
            return header.num_values, True
        if header.num_values == 0:
            return 0, True
        if header.num_rows is not None:
            return header.num_rows, levels.begins_record(body, highest)
        page = codecs.decompress(self._chunk.codec, body, header.uncompressed_size)
        # A page of version 1 begins with the length of the repetition levels (4 bytes), and the levels.
        length = int.from_bytes(page[:4], "little")
        return levels.count_records(page[4 : 4 + length], highest, header.num_values)

    def _keep_bounds(self, header: PageHeader) -> None:
        lacking = header.min_value is None or header.max_value is None
        if self._bounds is None or (lacking and header.null_count != header.num_values):
            self._bounds = None
        else:
            self._bounds.append((header.num_values, header.null_count, header.min_value, header.max_value))

    def result(self) -> ChunkPages | None:
        chunk = self._chunk
        if self._failed or self.wanted or self._rows != chunk.num_rows:
            return None
        arrays = (np.array(values, dtype=np.int64) for values in (self._offsets, self._sizes, self._first_rows))
        pages = OffsetIndex(*arrays)
        if not is_plausible(pages, num_rows=chunk.num_rows, start=chunk.start, end=chunk.end):
            return None
        return ChunkPages(pages, self._column_index(), self._joined)

    def _column_index(self) -> ColumnIndex | None:
        if self._bounds is None:
            return None
        nulls = [count for _, count, _, _ in self._bounds if count is not None]
        return ColumnIndex(
            null_pages=np.array([count == values for values, count, _, _ in self._bounds], dtype=np.bool_),
            # Of a page of nulls the bounds mean nothing, here as in a column index of the file.
            min_values=tuple(low or b"" for _, _, low, _ in self._bounds),
            max_values=tuple(high or b"" for _, _, _, high in self._bounds),
            boundary_order=0,  # unordered: they were not compared
            null_counts=np.array(nulls, dtype=np.int64) if len(nulls) == len(self._bounds) else None,
        )
