"""The parts of a Parquet file by offset, and the bytes that nothing refers to.

    PAR1 | dictionary | data … | column index | offset index | bloom filter | embedded index | footer
                     └ a gap: bytes that belong to no known part

Gaps are padding (zeros), footers that a later one replaced, copies of a column's metadata (Polars writes one after
each column chunk), or unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from needlepoint.objects import OpenObject
from needlepoint.parquet.format import thrift
from needlepoint.parquet.format.bloom_filter import filter_sizes
from needlepoint.parquet.format.footer import MAGIC, ColumnChunk, FileMetadata
from needlepoint.parquet.format.thrift import ThriftError
from needlepoint.parquet.write import value_list
from needlepoint.parquet.write.embedded import EmbeddedEntry, embedded, is_intact

KINDS = ("dictionary", "data", "column index", "offset index", "bloom filter", "embedded index", "footer")
WASTE = ("padding", "dead footer", "metadata copy", "unknown")

# Of so many gaps, the largest, the bytes are looked at; of each so many.
_GAPS_LOOKED_AT, _BYTES_LOOKED_AT = 1000, 1 << 16


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes `[start, end)` of one kind; neighbours of the same kind are one segment."""

    kind: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class EmbeddedIndex:
    """An index inside the file, as listed in its footer; None is what that does not say.

    `problem` says why the index is of no use, None that it describes the file and is what was embedded; of a foreign
    one that is not known.
    """

    kind: str
    columns: tuple[str, ...] = ()
    offset: int | None = None
    length: int | None = None
    size: int | None = None
    codec: str | None = None
    version: int | None = None
    problem: str | None = None


def embedded_indexes(file: OpenObject, metadata: FileMetadata) -> tuple[EmbeddedIndex, ...]:
    """Those that describe the file, those that do not, and a list of values that another writer left."""
    listed = embedded(file, metadata)
    found = [_checked(file, entry) for entry in listed.entries]
    found += [EmbeddedIndex(what, problem=why) for what, why in listed.ignored]
    # Ours stands inside of one of them.
    offset = value_list.list_offset(metadata)
    ours = any(offset is not None and entry.offset < offset < entry.offset + entry.length for entry in listed.entries)
    if not ours and value_list.FOOTER_KEY in dict(metadata.key_value):
        found.append(_value_list(file, metadata))
    return tuple(found)


def _checked(file: OpenObject, entry: EmbeddedEntry) -> EmbeddedIndex:
    problem = None if is_intact(file, entry) else "does not match its checksum"
    return EmbeddedIndex(
        entry.kind, entry.columns, entry.offset, entry.length, entry.size, entry.codec, entry.version, problem
    )


def _value_list(file: OpenObject, metadata: FileMetadata) -> EmbeddedIndex:
    offset, block = value_list.list_offset(metadata), value_list.read_list(file, metadata)
    if block is None:
        return EmbeddedIndex("distinct", offset=offset, problem="is not there")
    return EmbeddedIndex("distinct", offset=offset, length=len(block))


def segments(
    file: OpenObject, metadata: FileMetadata, dictionaries: Iterable[tuple[int, int]], parts: Iterable[EmbeddedIndex]
) -> tuple[Segment, ...]:
    """All of the file after its magic, in segments. `dictionaries` are `(offset, size)`."""
    chunks = [chunk for group in metadata.row_groups for chunk in group.columns]
    known = [Segment("dictionary", offset, offset + size) for offset, size in dictionaries if size]
    known += [_data(chunk) for chunk in chunks]
    for chunk in chunks:
        known += _index("column index", chunk.column_index_offset, chunk.column_index_length)
        known += _index("offset index", chunk.offset_index_offset, chunk.offset_index_length)
    known += [Segment("bloom filter", offset, offset + size) for offset, size in filter_sizes(file, chunks).items()]
    for part in parts:
        if part.problem is None:
            known += _index("embedded index", part.offset, part.length)
    known.append(Segment("footer", file.size - 8 - len(metadata.raw), file.size))
    return _joined(_with_gaps(file, known))


def _data(chunk: ColumnChunk) -> Segment:
    # A chunk without rows has a dictionary and no data page, whose offset is then 0.
    start = chunk.start or chunk.dictionary_page_offset or 0
    return Segment("data", start, start + chunk.total_compressed_size)


def _index(kind: str, offset: int | None, length: int | None) -> list[Segment]:
    return (
        []
        if offset is None or length is None or offset <= 0 or length <= 0
        else [Segment(kind, offset, offset + length)]
    )


def _with_gaps(file: OpenObject, known: list[Segment]) -> Iterator[Segment]:
    """The known segments in order, cut where they overlap (a dictionary is inside its chunk), with what is between."""
    position = len(MAGIC)
    pieces: list[Segment] = []
    gaps: list[Segment] = []
    for segment in sorted(known, key=lambda each: (each.start, each.end)):
        start, end = max(position, segment.start), min(segment.end, file.size)
        if start >= end:
            continue
        if start > position:
            gaps.append(Segment("unknown", position, start))
        pieces.append(Segment(segment.kind, start, end))
        position = end
    largest = set(sorted(gaps, key=lambda gap: -gap.size)[:_GAPS_LOOKED_AT])
    for gap in gaps:
        pieces += _looked_at(file, gap) if gap in largest else [gap]
    yield from sorted(pieces, key=lambda each: each.start)


def _looked_at(file: OpenObject, gap: Segment) -> list[Segment]:
    """What a gap holds: replaced footers are at its end, one after the other."""
    found: list[Segment] = []
    end = gap.end
    while end - gap.start >= 12:
        tail = file.read(end - 8, 8)
        start = end - 8 - int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or start < gap.start:
            break
        found.append(Segment("dead footer", start, end))
        end = start
    if end > gap.start:
        sample = file.read(gap.start, min(end - gap.start, _BYTES_LOOKED_AT))
        found.append(Segment(_kind_of(sample), gap.start, end))
    return found


def _kind_of(sample: bytes) -> str:
    if not any(sample):
        return "padding"
    try:
        fields = thrift.parse(sample)
        # ColumnMetaData { 1: type, 3: path_in_schema, 7: total_compressed_size, … } and nothing after it
        copied = fields.end == len(sample) and bool(fields.texts(3)) and fields.integer64(7) >= 0
    except ThriftError:
        copied = False
    return "metadata copy" if copied else "unknown"


def _joined(pieces: Iterable[Segment]) -> tuple[Segment, ...]:
    joined: list[Segment] = []
    for piece in pieces:
        if joined and joined[-1].kind == piece.kind and joined[-1].end == piece.start:
            joined[-1] = Segment(piece.kind, joined[-1].start, piece.end)
        else:
            joined.append(piece)
    return tuple(joined)
