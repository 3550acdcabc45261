"""Which pages hold the wanted rows: the part of a lookup that reads nothing.

A field of one leaf column is read page by page. In a field of several (a struct, a map) the pages of the
leaves end at different rows, and pyarrow needs all leaves of a field with the same rows: there the unit is a
*stretch*, from one row where pages of all leaves begin to the next: a whole chunk at worst.

    leaf x: pages begin at rows 0, 100, 200, 300
    leaf y: pages begin at rows 0, 150,      300     ->  stretches begin at rows 0 and 300
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from needlepoint.parquet.card.card import ARROW_SCHEMA, ColumnSizes, Field, FileCard
from needlepoint.parquet.format import codecs, thrift
from needlepoint.parquet.format.footer import OPTIONAL, Leaf, forgets_dictionary_header
from needlepoint.parquet.format.int96 import FIXED_LENGTH, INT96, as_binary
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.read import assembly
from needlepoint.parquet.read.assembly import Frame
from needlepoint.parquet.read.dictionaries import is_keepable
from needlepoint.parquet.read.filter_reader import KnownFilters
from needlepoint.parquet.read.utf8 import holds_text

# Sets of columns whose plans and sizes a card in a cache keeps.
_MOST_PLANS = 32


class ChunkPlan(NamedTuple):
    """One column of one row group: the encoded beginning of its metadata, its codec, and offset and size of its
    dictionary page. `keepable`: the decoded dictionary can be kept, and values looked up in it."""

    head: bytes
    codec: int
    dictionary: tuple[int, int] | None
    keepable: bool


@dataclass(slots=True)
class LeafPlan:
    """The pages of a leaf column, and for each stretch its pages `[first_page[s], first_page[s + 1])`."""

    card: FileCard
    leaf: int
    offset: Int64Array
    size: Int64Array
    first_page: Int64Array | None  # None: a stretch is a page
    keepable: bool  # whether its decoded dictionaries can be kept and values looked up in them
    mean_size: float
    chunks: dict[int, ChunkPlan] = field(default_factory=dict)
    _alone: tuple[Frame, bool] | None = None

    def chunk(self, row_group: int) -> ChunkPlan:
        """What is the same for all rows of the chunk."""
        found = self.chunks.get(row_group)
        if found is None:
            chunks = self.card.chunks
            index = self.card.chunk_index(self.leaf, row_group)
            codec, size = int(chunks.codec[index]), int(chunks.dictionary_size[index])
            found = self.chunks[row_group] = ChunkPlan(
                self.head(row_group, codec),
                codec,
                (int(chunks.start[index]), size) if size else None,
                self.keepable and codecs.is_known(codec),
            )
        return found

    def head(self, row_group: int, codec: int) -> bytes:
        """The encoded beginning of the metadata of a chunk, as if it had this codec."""
        leaf, index = self.card.leaves[self.leaf], self.card.chunk_index(self.leaf, row_group)
        mask = int(self.card.chunks.encodings[index])
        physical = FIXED_LENGTH if is_int96(leaf) else leaf.physical_type
        encodings = [encoding for encoding in range(mask.bit_length()) if mask >> encoding & 1]
        return assembly.chunk_head(physical, encodings, leaf.path, codec)

    def alone(self) -> tuple[Frame, bool]:
        """For a flat column: the frame of a file of nothing else, and whether it is nullable."""
        if self._alone is None:
            field = self.card.fields[self.card.leaves[self.leaf].field]
            # SchemaElement { 3: repetition_type }
            optional = thrift.parse(field.raw).optional_integer32(3) == OPTIONAL
            self._alone = _frame(self.card, [field]), optional
        return self._alone

    def runs(self, stretches: list[int]) -> tuple[list[tuple[int, int]], Int64Array]:
        """The pages of these stretches as `(offset, size)`, adjacent ones joined, and the sizes of single pages."""
        if self.first_page is None and len(stretches) == 1:
            only = stretches[0]
            return [(int(self.offset[only]), int(self.size[only]))], self.size[only : only + 1]
        pages = np.array(stretches)
        if self.first_page is not None:
            starts, ends = self.first_page[pages], self.first_page[pages + 1]
            counts = ends - starts
            pages = np.repeat(ends - np.cumsum(counts), counts) + np.arange(int(counts.sum()))
        runs: list[tuple[int, int]] = []
        end = -1
        sizes = self.size[pages]
        for offset, size in zip(self.offset[pages].tolist(), sizes.tolist(), strict=True):
            if offset == end:
                runs[-1] = (runs[-1][0], runs[-1][1] + size)
            else:
                runs.append((offset, size))
            end = offset + size
        return runs, sizes


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """A top-level field: its stretches with first row, number of rows and row group, and its leaves. `codec` is that of
    all pages of a flat field without dictionaries, else None."""

    name: str
    nested: bool
    first_row: Int64Array
    row_count: Int64Array
    row_group: Int64Array
    leaves: tuple[LeafPlan, ...]
    codec: int | None

    def select(self, rows: Int64Array) -> PageSelection:
        """The stretches that hold `rows`, and where in their concatenation each row is.

        Stretches of 100 rows, wanted rows 120, 130 and 305: stretches 1 and 3, positions 20, 30 and 105.
        """
        stretch = np.searchsorted(self.first_row, rows, side="right") - 1
        if len(rows) == 1:
            only = int(stretch[0])
            count = int(self.row_count[only])
            return PageSelection([only], rows - self.first_row[only], [int(self.row_group[only])], [count])
        begins = np.empty(len(rows), np.bool_)
        begins[0] = True
        np.not_equal(stretch[1:], stretch[:-1], out=begins[1:])
        chosen = stretch[begins]
        counts = self.row_count[chosen]
        # How far the rows of a stretch move when the stretches not chosen are left out.
        shift = counts.cumsum() - counts - self.first_row[chosen]
        positions = rows + shift[begins.cumsum() - 1]
        return PageSelection(chosen.tolist(), positions, self.row_group[chosen].tolist(), counts.tolist())


class PageSelection(NamedTuple):
    """Stretches with their row groups and row counts, and the positions of the wanted rows in them."""

    stretches: list[int]
    positions: Int64Array
    row_groups: list[int]
    row_counts: list[int]

    def by_row_group(self) -> list[tuple[int, list[int], int]]:
        """Row group, its stretches, and their number of rows."""
        if len(self.stretches) == 1:
            return [(self.row_groups[0], self.stretches, self.row_counts[0])]
        result: list[tuple[int, list[int], int]] = []
        start = 0
        for end in range(1, len(self.stretches) + 1):
            if end == len(self.stretches) or self.row_groups[end] != self.row_groups[start]:
                rows = sum(self.row_counts[start:end])
                result.append((self.row_groups[start], self.stretches[start:end], rows))
                start = end
        return result


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Fields that are assembled into one file."""

    frame: Frame
    fields: tuple[FieldPlan, ...]


@dataclass(frozen=True, slots=True)
class ColumnsPlan:
    """How to read a set of columns of a file, whatever the rows."""

    files: tuple[FilePlan, ...]
    fields: Mapping[str, FieldPlan]
    schema: pa.Schema
    texts: tuple[int, ...]  # the places of columns that hold strings
    int96: tuple[int, ...]  # and of those that are read as bytes


class CachedCard:
    """A card with what reads derive from it. A cache of cards owns it, so that both are evicted together.

    `filters` are the places of bloom filters, as far as reads found them. `declined`: few rows of the file were wanted,
    and it was scanned because its dictionaries were not decoded yet.
    """

    __slots__ = ("_numbers", "_plans", "_sizes", "card", "declined", "filters")

    def __init__(self, card: FileCard) -> None:
        self.card = card
        self.filters: KnownFilters = {}
        self.declined = False
        self._plans: dict[tuple[str, ...], ColumnsPlan] = {}
        self._sizes: dict[tuple[str, ...], ColumnSizes] = {}
        self._numbers: dict[tuple[str, ...], tuple[int, ...]] = {}

    def plan(self, columns: tuple[str, ...]) -> ColumnsPlan:
        """How to read these top-level columns. KeyError when the file lacks one."""
        found = self._plans.get(columns)
        if found is None:
            found = _plan_columns(self.card, columns)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[columns] = found
        return found

    def sizes(self, columns: tuple[str, ...]) -> ColumnSizes:
        """The sizes of these columns in the whole file."""
        found = self._sizes.get(columns)
        if found is None:
            found = self.card.sizes(columns)
            if len(self._sizes) >= _MOST_PLANS:
                self._sizes.clear()
            self._sizes[columns] = found
        return found

    def present(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Those of these columns that the file has."""
        return tuple(name for name in columns if self.card.has(name))

    def numbers(self, columns: tuple[str, ...]) -> tuple[int, ...]:
        """The number of rows, how many of these columns the file has, and their sizes: one line of `FileSizes`."""
        found = self._numbers.get(columns)
        if found is None:
            present = self.present(columns)
            size = self.sizes(present)
            sums = (size.leaves, size.chunks, size.pages, size.bytes, size.dictionaries, size.texts)
            found = (self.card.num_rows, len(present), *sums, size.text_dictionaries, size.codec, int(size.indexed))
            if len(self._numbers) >= _MOST_PLANS:
                self._numbers.clear()
            self._numbers[columns] = found
        return found


def _plan_columns(card: FileCard, columns: tuple[str, ...]) -> ColumnsPlan:
    """The plan for these top-level columns. KeyError when the file lacks one."""
    fields = [card.find(name) for name in dict.fromkeys(columns)]
    plans = _sharing_rows([_plan_field(card, each) for each in fields])
    # Flat columns share one file. A nested field has a file of its own, because pyarrow takes the number of
    # records of field i from the column chunk i, which is another column when a field has several.
    flat = [number for number, plan in enumerate(plans) if not plan.nested]
    groups = ([flat] if flat else []) + [[number] for number, plan in enumerate(plans) if plan.nested]
    files = tuple(
        FilePlan(_frame(card, [fields[number] for number in group]), tuple(plans[number] for number in group))
        for group in groups
    )
    schema = pa.schema([card.arrow_schema.field(card.number_of(name)) for name in columns])
    schema = schema.with_metadata(card.arrow_schema.metadata)
    texts = tuple(number for number, type in enumerate(schema.types) if holds_text(type))
    stamps = tuple(number for number, name in enumerate(columns) if is_int96(card.leaves[card.find(name).first_leaf]))
    return ColumnsPlan(files, {plan.name: plan for plan in plans}, schema, texts, stamps)


def _common_codec(card: FileCard, leaf: int) -> int | None:
    first = card.chunk_index(leaf, 0)
    chunks = slice(first, first + card.num_row_groups)
    codec = card.chunks.codec[chunks]
    alike = len(codec) and (codec == codec[0]).all() and not card.chunks.dictionary_size[chunks].any()
    return int(codec[0]) if alike else None


def is_int96(leaf: Leaf) -> bool:
    """Flat ones, which are read as bytes. pyarrow reads the others."""
    return leaf.physical_type == INT96 and not leaf.nested


def _plan_field(card: FileCard, each: Field) -> FieldPlan:
    slices = [card.leaf_pages(leaf) for leaf in range(each.first_leaf, each.last_leaf)]
    rows = [card.pages.first_row[pages] for pages in slices]
    first_row = reduce(lambda left, right: np.intersect1d(left, right, assume_unique=True), rows)
    nested = card.leaves[each.first_leaf].nested
    keepable = not nested and is_keepable(card.arrow_schema.field(card.leaves[each.first_leaf].field).type)
    leaves = tuple(
        LeafPlan(
            card,
            leaf,
            card.pages.offset[pages],
            card.pages.size[pages],
            # Beyond the last stretch: beyond the last page.
            None if len(slices) == 1 else np.append(np.searchsorted(leaf_rows, first_row), len(leaf_rows)),
            keepable,
            float(card.pages.size[pages].mean()) if len(leaf_rows) else 0.0,
        )
        for leaf, pages, leaf_rows in zip(range(each.first_leaf, each.last_leaf), slices, rows, strict=True)
    )
    return FieldPlan(
        name=each.name,
        nested=nested,
        first_row=first_row,
        row_count=np.diff(first_row, append=card.num_rows),
        row_group=np.searchsorted(card.row_group_rows, first_row, side="right") - 1,
        leaves=leaves,
        codec=None if nested else _common_codec(card, each.first_leaf),
    )


def _sharing_rows(plans: list[FieldPlan]) -> list[FieldPlan]:
    """Fields whose stretches begin at the same rows share the array of them: what is chosen in one is in all."""
    shared: list[FieldPlan] = []
    for plan in plans:
        same = next((each for each in shared if np.array_equal(each.first_row, plan.first_row)), plan)
        shared.append(replace(plan, first_row=same.first_row))
    return shared


def _frame(card: FileCard, fields: list[Field]) -> Frame:
    origin = _arrow_origin(card, fields)
    return assembly.make_frame(
        card.version,
        [as_binary(each.raw) if is_int96(card.leaves[each.first_leaf]) else each.raw for each in fields],
        sum(each.elements for each in fields),
        [] if origin is None else [(ARROW_SCHEMA, origin)],
        # pyarrow reads beyond the chunks of such writers.
        None if forgets_dictionary_header(card.created_by or b"") else card.created_by,
    )


def _arrow_origin(card: FileCard, fields: list[Field]) -> bytes | None:
    """The file's own Arrow schema, cut down to these fields: it has types that Parquet lacks."""
    own = dict(card.key_value).get(ARROW_SCHEMA)
    if own is None:
        return None
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(own)))
    except (binascii.Error, pa.ArrowException, OSError):
        return own
    numbers = [card.number_of(each.name) for each in fields]
    chosen = [schema.field(number) for number in numbers if number < len(schema)]
    return base64.b64encode(pa.schema(chosen).serialize().to_pybytes())
