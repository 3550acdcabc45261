"""The format's own indexes, added to files that were written without them; data pages stay where and as they are.

    PAR1  column chunks  …  | bloom filters | column indexes | offset indexes |  embedded indexes  FileMetaData
                              added                                              moved behind them

All readers that prune by them benefit. The locations of pages come from their headers; bounds and bloom
filters are computed from the values, one column chunk in memory at a time. What is not certain is left out: no
offset index where a page begins inside a record, no column index where the order of a type is not known, where there
are NaNs, or in nested columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from needlepoint import objects
from needlepoint.errors import NotIndexable, NotParquet, UnknownName
from needlepoint.objects import Identity, OpenObject, Piece, open_to_replace
from needlepoint.parquet.format import footer_edit, page_headers
from needlepoint.parquet.format.footer import (
    ColumnChunk,
    FileMetadata,
    Leaf,
    leaves,
    max_levels,
    read_footer,
    top_level,
)
from needlepoint.parquet.format.footer_edit import Places
from needlepoint.parquet.format.page_index import (
    OffsetIndex,
    decode_offset_index,
    encode_column_index,
    encode_offset_index,
    is_plausible,
)
from needlepoint.parquet.format.thrift import ThriftError
from needlepoint.parquet.write import bloom_build
from needlepoint.parquet.write.embed import entries_json, move, peel, with_list
from needlepoint.parquet.write.embedded import INDEXES, embedded
from needlepoint.parquet.write.page_bounds import BOOLEAN, DOUBLE, FLOAT, INT96, SortOrder, column_index, order_of
from needlepoint.parquet.write.physical import PhysicalColumns

# parquet.thrift, ColumnOrder: field 1 is the type's own order
_TYPE_ORDER = b"\x1c"


@dataclass(frozen=True, slots=True)
class RetrofitReport:
    """What was added to a file: numbers of column chunks, and skipped columns with the reason."""

    path: str
    identity: Identity
    offset_indexes: int = 0
    column_indexes: int = 0
    bloom_filters: int = 0
    bytes: int = 0
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.offset_indexes or self.column_indexes or self.bloom_filters)


def retrofit(
    path: str, page_index: bool = True, bloom: Sequence[str] = (), identity: Identity | None = None
) -> RetrofitReport:
    """Add page indexes, and bloom filters of some columns, to the row groups of a file that lack them.

    Done again it adds nothing. UnknownName for a column that is not there, NotIndexable for one that cannot have a
    bloom filter, FileChanged when the file is no longer the one with that `identity`: then nothing happened.
    """
    with open_to_replace(path, identity) as file:
        metadata = read_footer(file)
        work = _Retrofit(file, metadata)
        filtered = [work.filterable(name) for name in bloom]
        if page_index:
            work.find_pages()
        work.index(filtered, page_index=page_index)
        if not work.added:
            return RetrofitReport(path, file.identity, skipped=work.skipped_columns())
        new, size = _rewrite(file, metadata, work.added)
        return RetrofitReport(
            path=path,
            identity=new,
            offset_indexes=sum(each.offset_index is not None for each in work.added.values()),
            column_indexes=sum(each.column_index is not None for each in work.added.values()),
            bloom_filters=sum(each.bloom_filter is not None for each in work.added.values()),
            bytes=size,
            skipped=work.skipped_columns(),
        )


@dataclass(frozen=True, slots=True)
class _ChunkIndexes:
    """The encoded indexes that a chunk gets."""

    bloom_filter: bytes | None = None
    column_index: bytes | None = None
    offset_index: bytes | None = None


def _rewrite(
    file: OpenObject, metadata: FileMetadata, added: dict[tuple[int, int], _ChunkIndexes]
) -> tuple[Identity, int]:
    entries = embedded(file, metadata).entries
    end, movable = peel(file, metadata, entries)
    pieces: list[Piece] = [(0, end)]
    position = end
    places = dict.fromkeys(added, Places())
    # As arrow-rs and parquet-cpp order them
    for kind in ("bloom_filter", "column_index", "offset_index"):
        for chunk, parts in added.items():
            data: bytes | None = getattr(parts, kind)
            if data is not None:
                pieces.append(data)
                places[chunk] = replace(places[chunk], **{kind: (position, len(data))})
                position += len(data)
    moved, _ = move(pieces, position, movable)
    raw = footer_edit.with_places(metadata.raw, places)
    if entries:
        stay = [entry for entry in entries if entry not in movable]
        raw = footer_edit.with_key(raw, INDEXES, entries_json([*stay, *moved]))
        raw = with_list(file, metadata, raw, entries, [*stay, *moved])
    pieces.append(footer_edit.tail(raw))
    return objects.replace(file, pieces), position - end


@dataclass(slots=True)
class _Retrofit:
    """A file being retrofitted: chunks are named by row group and leaf."""

    file: OpenObject
    metadata: FileMetadata
    columns: tuple[Leaf, ...] = ()
    added: dict[tuple[int, int], _ChunkIndexes] = field(default_factory=dict)
    _pages: dict[tuple[int, int], OffsetIndex] = field(default_factory=dict)
    _skipped: dict[tuple[str, str], None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = leaves(self.metadata.schema)

    def skipped_columns(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._skipped)

    def _skip(self, leaf: int, why: str) -> None:
        self._skipped[".".join(self.columns[leaf].path), why] = None

    def _chunks(self) -> Iterator[tuple[tuple[int, int], ColumnChunk]]:
        for number, group in enumerate(self.metadata.row_groups):
            if group.num_rows:
                for leaf, chunk in enumerate(group.columns):
                    yield (number, leaf), chunk

    def filterable(self, name: str) -> int:
        """The leaf of that name, if it can have a bloom filter."""
        names = [".".join(leaf.path) for leaf in self.columns]
        if name not in names:
            raise UnknownName("column", name, names, where=f" in {self.file.path}")
        leaf = names.index(name)
        column = self.columns[leaf]
        if column.nested or column.physical_type in (BOOLEAN, INT96):
            kind = "is nested" if column.nested else "is boolean" if column.physical_type == BOOLEAN else "is INT96"
            raise NotIndexable(
                f"column '{name}' of {self.file.path} {kind}.",
                hint="Bloom filters are for flat columns of numbers, strings, binaries and times.",
            )
        return leaf

    def find_pages(self) -> None:
        """The pages of all chunks: of the offset index where there is one, else by their headers."""
        lacking: list[tuple[tuple[int, int], ColumnChunk]] = []
        for name, chunk in self._chunks():
            if chunk.offset_index_offset is None:
                lacking.append((name, chunk))
            elif chunk.column_index_offset is None:
                known = self._known_pages(name, chunk)
                if known is not None:
                    self._pages[name] = known
        levels = [repetition for repetition, _ in max_levels(self.metadata.schema)]
        walked = page_headers.walk(
            self.file,
            [
                page_headers.Chunk(
                    chunk.start, chunk.end, chunk.num_values, self.metadata.row_groups[group].num_rows, chunk.codec,
                    levels[leaf],
                )
                for (group, leaf), chunk in lacking
            ],
        )  # fmt: skip
        for (name, chunk), found in zip(lacking, walked, strict=True):
            # parquet-mr 1.8 to 1.10, of Spark 2, give the place of the dictionary for that of the data pages. Readers
            # that go by the offset index take what precedes its first page for the dictionary.
            if found is None:
                self._skip(name[1], "its page headers do not say where rows begin")
            elif found.joined:
                self._skip(name[1], "a page begins inside a record, or has no rows")
            elif found.pages.offset[0] != chunk.data_page_offset != chunk.start:
                self._skip(name[1], "its pages are not where the footer says")
            else:
                self._pages[name] = found.pages
                self.added[name] = _ChunkIndexes(offset_index=encode_offset_index(found.pages))

    def _known_pages(self, name: tuple[int, int], chunk: ColumnChunk) -> OffsetIndex | None:
        offset, length = chunk.offset_index_offset or 0, chunk.offset_index_length or 0
        if length <= 0 or not 0 < offset <= self.file.size - length:
            return None
        try:
            found = decode_offset_index(self.file.read(offset, length))
        except ThriftError:
            return None
        rows = self.metadata.row_groups[name[0]].num_rows
        return found if is_plausible(found, num_rows=rows, start=chunk.start, end=chunk.end) else None

    def index(self, filtered: Sequence[int], *, page_index: bool) -> None:
        """Column indexes and bloom filters, from the values of one chunk after the other."""
        reader: PhysicalColumns | None = None
        for name, chunk in self._chunks():
            wants_filter = name[1] in filtered and chunk.bloom_filter_offset is None
            wants_bounds = page_index and self._wants_bounds(name, chunk)
            if not wants_filter and not wants_bounds:
                continue
            if reader is None:
                reader = self._reader()
            try:
                values = reader.read(*name)
            except (pa.ArrowException, OSError) as error:
                self._skip(name[1], f"its values cannot be read: {error}")
                continue
            known = self.added.get(name, _ChunkIndexes())
            if wants_bounds:
                known = replace(known, column_index=self._column_index(name, values))
            if wants_filter:
                known = replace(known, bloom_filter=bloom_build.build_filter(values))
            if known != _ChunkIndexes():
                self.added[name] = known

    def _reader(self) -> PhysicalColumns:
        try:
            return PhysicalColumns(self.file, self.metadata)
        except (pa.ArrowException, OSError) as error:
            raise NotParquet(
                self.file.path, f"pyarrow cannot read it: {error}", hint="Write the file again."
            ) from error

    def _wants_bounds(self, name: tuple[int, int], chunk: ColumnChunk) -> bool:
        if name not in self._pages or chunk.column_index_offset is not None:
            return False
        if self.columns[name[1]].nested:
            self._skip(name[1], "no bounds of pages: nested")
            return False
        if self._order(name[1]) is None:
            self._skip(name[1], "no bounds of pages: the order of its type is not defined")
            return False
        return True

    def _order(self, leaf: int) -> SortOrder | None:
        column, orders = self.columns[leaf], self.metadata.column_orders
        # The other order there is, of floats, differs only in where NaN and the zeros stand, and the bounds fit both.
        if leaf < len(orders) and orders[leaf][:1] != _TYPE_ORDER and column.physical_type not in (FLOAT, DOUBLE):
            return None
        return order_of(self.metadata.schema[top_level(self.metadata.schema)[column.field][0]])

    def _column_index(self, name: tuple[int, int], values: pa.ChunkedArray) -> bytes | None:
        order = self._order(name[1])
        found = None if order is None else column_index(values, order, self._pages[name].first_row_index)
        if found is None:
            self._skip(name[1], "no bounds of pages: it has NaNs")
        return None if found is None else encode_column_index(found)
