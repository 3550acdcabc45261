"""The file card: all that is needed to read any page of a file without touching its footer again.

The numbers of all chunks and pages of a file are a few arrays, not objects: a file of 100 columns and 100 row
groups has 10,000 chunks. Chunks are ordered by leaf column, then by row group; pages as their chunks are.

    leaf 0: row group 0 | row group 1 | …   leaf 1: row group 0 | row group 1 | …
            pages 0 1 2 | pages 3 4         pages 5 6 …
    page_starts = [0, 3, 5, …]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from needlepoint.objects import Identity
from needlepoint.parquet.card import array_container
from needlepoint.parquet.card.array_container import CardCorrupt
from needlepoint.parquet.format.footer import Leaf, Statistics
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.format.validation import BYTE_ARRAY
from needlepoint.parquet.read import assembly

ARROW_SCHEMA = b"ARROW:schema"  # the footer key under which Arrow's writers keep the Arrow schema
ABSENT = -1  # an offset, length or count the file does not give

# Bits of ChunkTable.bounds_flags
HAS_MIN, HAS_MAX, LEGACY, MIN_EXACT, MIN_INEXACT, MAX_EXACT, MAX_INEXACT = (1 << bit for bit in range(7))


@dataclass(frozen=True, slots=True)
class Field:
    """A top-level field: its schema elements as the file has them, its leaf columns `[first, last)`."""

    name: str
    raw: bytes
    elements: int
    first_leaf: int
    last_leaf: int


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTable:
    """One number per column chunk in each array."""

    codec: Int64Array
    encodings: Int64Array  # bit n is set when encoding n is used
    start: Int64Array
    size: Int64Array
    num_values: Int64Array
    dictionary_size: Int64Array  # the dictionary page is at `start`; 0 is none
    null_count: Int64Array
    column_index_offset: Int64Array
    column_index_length: Int64Array
    bloom_filter_offset: Int64Array
    bloom_filter_length: Int64Array
    bounds_flags: Int64Array
    min_length: Int64Array
    max_length: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class PageTable:
    """One number per data page in each array; `first_row` counts from the beginning of the file."""

    offset: Int64Array
    size: Int64Array
    first_row: Int64Array


@dataclass(frozen=True, slots=True)
class ColumnSizes:
    """Sums over some columns of a file; `bytes` counts data pages, `dictionaries` dictionary pages. `texts` are the
    leaves whose values have no fixed size, and `text_dictionaries` the bytes of their dictionary pages. `indexed`: the
    file has a page index for all of them. `codec` is that of the first."""

    leaves: int
    chunks: int
    pages: int
    bytes: int
    dictionaries: int
    texts: int
    text_dictionaries: int
    indexed: bool = field(kw_only=True)
    codec: int = field(kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class FileCard:
    """All that is needed to read any page of one version of a file. Built by `build_card`."""

    identity: Identity
    num_rows: int
    version: int
    created_by: bytes | None
    arrow_schema: pa.Schema
    key_value: tuple[tuple[bytes, bytes | None], ...]  # as in the footer
    fields: tuple[Field, ...]
    leaves: tuple[Leaf, ...]
    row_group_rows: Int64Array  # first row of each row group, then the number of rows
    chunks: ChunkTable
    page_starts: Int64Array  # first page of each chunk, then the number of pages
    pages: PageTable
    bounds: bytes  # minimum and maximum of each chunk, one after the other
    _numbers: dict[str, int] = field(default_factory=dict, repr=False, init=False)  # of fields, by name

    def __post_init__(self) -> None:
        # Backwards, so that the first of several names stays.
        last = len(self.fields) - 1
        self._numbers.update((each.name, last - number) for number, each in enumerate(reversed(self.fields)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileCard) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    @property
    def num_row_groups(self) -> int:
        return len(self.row_group_rows) - 1

    def number_of(self, name: str) -> int:
        """Which of the top-level fields has that name, the first when several have; KeyError when none has."""
        return self._numbers[name]

    def has(self, name: str) -> bool:
        """Whether there is a top-level field of that name."""
        return name in self._numbers

    def find(self, name: str) -> Field:
        """The top-level field of that name, the first when several have it; KeyError when the file has none."""
        return self.fields[self.number_of(name)]

    def chunk_index(self, leaf: int, row_group: int) -> int:
        return leaf * self.num_row_groups + row_group

    def leaf_pages(self, leaf: int) -> slice:
        """The pages of a leaf column, all row groups."""
        groups = self.num_row_groups
        return slice(int(self.page_starts[leaf * groups]), int(self.page_starts[(leaf + 1) * groups]))

    def sizes(self, columns: Sequence[str]) -> ColumnSizes:
        """The sizes of these columns in the whole file; KeyError when it lacks one."""
        groups, totals, indexed, codec = self.num_row_groups, [0] * 7, True, 0
        for name in columns:
            found = self.find(name)
            for leaf in range(found.first_leaf, found.last_leaf):
                chunks, pages = slice(leaf * groups, (leaf + 1) * groups), self.leaf_pages(leaf)
                dictionaries = int(self.chunks.dictionary_size[chunks].sum())
                text = self.leaves[leaf].physical_type == BYTE_ARRAY
                numbers = (1, groups, pages.stop - pages.start, int(self.pages.size[pages].sum()), dictionaries,
                           int(text), dictionaries if text else 0)  # fmt: skip
                codec = codec if totals[0] or not groups else int(self.chunks.codec[chunks.start])
                totals = [total + number for total, number in zip(totals, numbers, strict=True)]
                indexed &= bool((self.chunks.column_index_offset[chunks] != ABSENT).all())
        return ColumnSizes(*totals, indexed=indexed, codec=codec)

    def largest_page(self) -> int:
        """The rows of the page with the most of them; 0 without pages."""
        starts, counts = self.page_starts[:-1], np.diff(self.page_starts)
        ends = np.append(self.pages.first_row[1:], 0)
        # The last page of a chunk ends with its row group.
        ends[(starts + counts - 1)[counts > 0]] = np.tile(self.row_group_rows[1:], len(self.leaves))[counts > 0]
        return int((ends - self.pages.first_row).max(initial=0))

    def statistics(self, leaf: int, row_group: int) -> Statistics:
        """The bounds of a chunk as the footer gave them."""
        chunks = self.chunks
        index = self.chunk_index(leaf, row_group)
        start = int(chunks.min_length[:index].sum() + chunks.max_length[:index].sum())
        middle = start + int(chunks.min_length[index])
        end = middle + int(chunks.max_length[index])
        flags = int(chunks.bounds_flags[index])
        low = self.bounds[start:middle] if flags & HAS_MIN else None
        high = self.bounds[middle:end] if flags & HAS_MAX else None
        nulls = int(chunks.null_count[index])
        null_count = None if nulls == ABSENT else nulls
        if flags & LEGACY:
            return Statistics(null_count=null_count, legacy_min=low, legacy_max=high)
        return Statistics(
            min_value=low,
            max_value=high,
            null_count=null_count,
            is_min_exact=True if flags & MIN_EXACT else False if flags & MIN_INEXACT else None,
            is_max_exact=True if flags & MAX_EXACT else False if flags & MAX_INEXACT else None,
        )

    def to_bytes(self) -> bytes:
        header = {
            "size": self.identity.size,
            "mtime_ns": self.identity.mtime_ns,
            "etag": self.identity.etag,
            "num_rows": self.num_rows,
            "version": self.version,
            "has_creator": self.created_by is not None,
            "has_value": [value is not None for _, value in self.key_value],
            "fields": [(each.name, each.elements, each.first_leaf, each.last_leaf) for each in self.fields],
            "leaves": [(each.path, each.field, each.physical_type, each.nested) for each in self.leaves],
        }
        # Pages mostly follow one another, and have equally many rows: differences compress to little.
        ends = self.pages.offset + self.pages.size
        gaps = self.pages.offset - np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(ends)]
        arrays = [self.row_group_rows, self.page_starts, gaps, self.pages.size,
                  np.diff(self.pages.first_row, prepend=0)]  # fmt: skip
        arrays += [getattr(self.chunks, name) for name in _CHUNK_ARRAYS]
        blobs = [self.created_by or b"", self.bounds, *(each.raw for each in self.fields)]
        blobs += [part or b"" for pair in self.key_value for part in pair]
        return array_container.pack(header, arrays, blobs)

    @classmethod
    def from_bytes(cls, data: bytes) -> FileCard:
        """The card that `to_bytes` wrote; CardCorrupt (a ValueError) when the bytes are not one."""
        header, arrays, blobs = array_container.unpack(data)
        try:
            card = _from_parts(header, arrays, blobs)
            _check(card)
            return card
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, OSError,
                pa.ArrowException) as error:  # fmt: skip
            raise CardCorrupt(f"the card cannot be read: {error}") from error


def _check(card: FileCard) -> None:
    """Check that all places are inside the file and all counts agree; ValueError if not. Then no read by this card is
    larger than the file."""
    groups, pages, starts, rows = card.num_row_groups, card.pages, card.page_starts, card.row_group_rows
    chunks, size = len(card.leaves) * groups, card.identity.size
    sizes = {len(getattr(card.chunks, name)) for name in _CHUNK_ARRAYS}
    if groups < 0 or sizes != {chunks} or len(starts) != chunks + 1 or starts[0] != 0 or starts[-1] != len(pages.size):
        raise ValueError("the numbers of chunks and pages do not agree")
    if rows[0] != 0 or rows[-1] != card.num_rows or (np.diff(rows) < 0).any() or (np.diff(starts) < 0).any():
        raise ValueError("the numbers of rows or pages do not agree")
    places = ((card.chunks.start, card.chunks.size), (card.chunks.start, card.chunks.dictionary_size),
              (pages.offset, pages.size))  # fmt: skip
    for offset, length in places:
        if len(offset) and (min(offset.min(), length.min()) < 0 or max(offset.max(), length.max()) > size):
            raise ValueError("a page is outside the file")
    if len(pages.first_row) and not 0 <= pages.first_row.min() <= pages.first_row.max() < card.num_rows:
        raise ValueError("a page has rows outside the file")
    if card.chunks.codec.min(initial=0) < 0 or card.chunks.encodings.min(initial=0) < 0:
        raise ValueError("a codec or an encoding does not exist")
    if [each.name for each in card.fields] != card.arrow_schema.names:
        raise ValueError("the names of columns differ from the schema")
    leaf = 0
    for number, each in enumerate(card.fields):
        own = card.leaves[leaf : each.last_leaf]
        if each.first_leaf != leaf or each.last_leaf < leaf or any(found.field != number for found in own):
            raise ValueError(f"column {each.name} has wrong leaves")
        if not all(type(found.physical_type) is int and type(found.nested) is bool for found in own):
            raise ValueError(f"column {each.name} has no type")
        leaf = each.last_leaf
    if leaf != len(card.leaves):
        raise ValueError("some leaves belong to no column")


_CHUNK_ARRAYS = tuple(ChunkTable.__dataclass_fields__)


def _from_parts(header: dict[str, Any], arrays: list[Int64Array], blobs: list[bytes]) -> FileCard:
    rows, page_starts, gaps, sizes, row_counts, *chunk_arrays = arrays
    creator, bounds, *others = blobs
    created_by = creator if header["has_creator"] else None
    names = header["fields"]
    raw, texts = others[: len(names)], others[len(names) :]
    key_value = tuple(
        (key, value if present else None)
        for key, value, present in zip(texts[::2], texts[1::2], header["has_value"], strict=True)
    )
    elements = sum(count for _, count, _, _ in names)
    frame = assembly.make_frame(header["version"], raw, elements, key_value, created_by)
    # offset[i] is the sum of all gaps up to i and of all sizes before i.
    pages = PageTable(np.cumsum(gaps) + np.cumsum(sizes) - sizes, sizes, np.cumsum(row_counts))
    return FileCard(
        identity=Identity(header["size"], header["mtime_ns"], header["etag"]),
        num_rows=header["num_rows"],
        version=header["version"],
        created_by=created_by,
        arrow_schema=assembly.arrow_schema(frame),
        key_value=key_value,
        fields=tuple(
            Field(name, each, elements, first, last)
            for (name, elements, first, last), each in zip(names, raw, strict=True)
        ),
        leaves=tuple(
            Leaf(tuple(path), field, physical_type, nested) for path, field, physical_type, nested in header["leaves"]
        ),
        row_group_rows=rows,
        chunks=ChunkTable(*chunk_arrays),
        page_starts=page_starts,
        pages=pages,
        bounds=bounds,
    )
