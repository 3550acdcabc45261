"""The footer of a Parquet file, as frozen values.

    PAR1  column chunks …  page indexes …  FileMetaData  length (4 bytes, little-endian)  PAR1

Field numbers are those of parquet.thrift
(https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from needlepoint.errors import NotParquet, Unfinished
from needlepoint.objects import OpenObject
from needlepoint.parquet.format import thrift
from needlepoint.parquet.format.thrift import Struct, ThriftError

# One request of this size holds the whole footer of most files, and often their page indexes.
TAIL = 64 * 1024
# Values of a footer take many times its bytes in memory; the largest that writers make have tens of megabytes.
LARGEST_FOOTER = 512 * 1024 * 1024
MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
_CORRUPT_HINT = "The file is truncated or corrupt; write it again."
_UNFINISHED_HINT = "Its writer has not finished, or died; write it again."
_ENCRYPTED_HINT = "Encrypted files are not supported; write the table without encryption."

OPTIONAL, REPEATED = 1, 2  # parquet.thrift, FieldRepetitionType


@dataclass(frozen=True, slots=True)
class SchemaElement:
    """One node of the schema tree, depth first. `raw` is its Thrift struct."""

    name: str
    physical_type: int | None
    type_length: int | None
    repetition: int | None
    num_children: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Statistics:
    """Bounds of a column chunk. `legacy_*` are the deprecated fields 1 and 2, whose order is signed bytes."""

    min_value: bytes | None = None
    max_value: bytes | None = None
    null_count: int | None = None
    is_min_exact: bool | None = None
    is_max_exact: bool | None = None
    legacy_min: bytes | None = None
    legacy_max: bytes | None = None


@dataclass(frozen=True, slots=True)
class PageEncodingStats:
    """So many pages of a chunk have this type and encoding."""

    page_type: int
    encoding: int
    count: int


@dataclass(frozen=True, slots=True)
class SizeStatistics:
    """The lengths of the histograms of levels, and whether the bytes of values are counted."""

    counts_bytes: bool
    repetition_levels: int
    definition_levels: int


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of one row group."""

    path: tuple[str, ...]
    physical_type: int
    codec: int
    encodings: tuple[int, ...]
    num_values: int
    total_uncompressed_size: int
    total_compressed_size: int
    data_page_offset: int
    dictionary_page_offset: int | None
    statistics: Statistics | None
    offset_index_offset: int | None
    offset_index_length: int | None
    column_index_offset: int | None
    column_index_length: int | None
    bloom_filter_offset: int | None
    bloom_filter_length: int | None
    file_path: str | None
    encoding_stats: tuple[PageEncodingStats, ...] = ()
    size_statistics: SizeStatistics | None = None

    @property
    def start(self) -> int:
        """Where the chunk begins: at its dictionary page if it has one, else at its first data page.

        Some writers give a dictionary page offset of 0, or one after the data, for "none".
        """
        dictionary = self.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < self.data_page_offset:
            return dictionary
        return self.data_page_offset

    @property
    def end(self) -> int:
        return self.start + self.total_compressed_size


@dataclass(frozen=True, slots=True)
class RowGroup:
    num_rows: int
    total_byte_size: int
    columns: tuple[ColumnChunk, ...]


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """The footer. `schema_bytes` is the Thrift list of the schema; `raw` the whole footer."""

    version: int
    schema: tuple[SchemaElement, ...]
    schema_bytes: bytes
    num_rows: int
    row_groups: tuple[RowGroup, ...]
    key_value: tuple[tuple[bytes, bytes | None], ...]
    created_by: bytes | None
    column_orders: tuple[bytes, ...]
    raw: bytes


@dataclass(frozen=True, slots=True)
class Leaf:
    """One column of primitive values: where it hangs in the schema and what its chunks hold."""

    path: tuple[str, ...]
    field: int  # of the top-level fields, the one it belongs to
    physical_type: int
    nested: bool  # inside a group, or repeated: values are not rows


def read_footer(file: OpenObject) -> FileMetadata:
    """The footer of an open file; NotParquet when it cannot be read."""
    raw = _footer_bytes(file)
    try:
        return parse_footer(raw)
    except EncryptedError as error:
        raise NotParquet(file.path, "the file is encrypted", hint=_ENCRYPTED_HINT) from error
    except ThriftError as error:
        raise NotParquet(file.path, f"the footer cannot be read: {error}", hint=_CORRUPT_HINT) from error


def _footer_bytes(file: OpenObject) -> bytes:
    size = file.size
    if size < 12:
        raise Unfinished(file.path, f"{size} bytes are too few for a Parquet file", hint=_UNFINISHED_HINT)
    tail = file.read(max(0, size - TAIL), min(size, TAIL))
    magic = tail[-4:]
    if magic == ENCRYPTED_MAGIC:
        raise NotParquet(file.path, "the footer is encrypted", hint=_ENCRYPTED_HINT)
    if magic != MAGIC:
        if file.read(0, 4) in (MAGIC, ENCRYPTED_MAGIC):
            raise Unfinished(
                file.path, "the file is truncated: it begins as Parquet and has no footer", hint=_UNFINISHED_HINT
            )
        raise NotParquet(file.path, "not a Parquet file", hint="A Parquet file begins and ends with PAR1.")
    length = int.from_bytes(tail[-8:-4], "little")
    if length == 0 or length > min(size - 12, LARGEST_FOOTER):
        raise NotParquet(file.path, f"the footer claims {length} bytes of a file of {size}", hint=_CORRUPT_HINT)
    if length + 8 <= len(tail):
        return tail[-8 - length : -8]
    missing = length + 8 - len(tail)
    return file.read(size - 8 - length, missing) + tail[:-8]


class EncryptedError(ThriftError):
    """The footer is readable, the columns are not."""


def parse_footer(raw: bytes) -> FileMetadata:
    """FileMetaData from its bytes; ThriftError when they are not one."""
    fields = thrift.parse(raw)
    if 8 in fields:  # FileMetaData.encryption_algorithm
        raise EncryptedError("columns are encrypted")
    elements = fields.structs(2)
    if not elements:
        raise ThriftError("no schema")
    schema = tuple(_schema_element(raw, element) for element in elements)
    # The elements follow each other: their bytes are one slice.
    body = raw[elements[0].start : elements[-1].end]
    row_groups = tuple(_row_group(group) for group in fields.structs(4))
    metadata = FileMetadata(
        version=fields.integer32(1),
        schema=schema,
        schema_bytes=thrift.list_header(thrift.STRUCT, len(schema)) + body,
        num_rows=sum(group.num_rows for group in row_groups),
        row_groups=row_groups,
        key_value=tuple((pair.binary(1), pair.optional_binary(2)) for pair in fields.structs(5)),
        created_by=fields.optional_binary(6),
        column_orders=tuple(raw[order.start : order.end] for order in fields.structs(7)),
        raw=raw,
    )
    # An early parquet-rs left it at 0. pyarrow goes by the row groups and finds the rows, arrow-rs finds none.
    if fields.integer64(3) != metadata.num_rows:
        raise ThriftError(f"it counts {fields.integer64(3)} rows, and its row groups have {metadata.num_rows}")
    _check(metadata)
    return metadata


def _schema_element(raw: bytes, fields: Struct) -> SchemaElement:
    return SchemaElement(
        physical_type=fields.optional_integer32(1),
        type_length=fields.optional_integer32(2),
        repetition=fields.optional_integer32(3),
        name=fields.text(4),
        num_children=fields.optional_integer32(5) or 0,
        raw=raw[fields.start : fields.end],
    )


def _row_group(fields: Struct) -> RowGroup:
    columns = tuple(_column_chunk(column) for column in fields.structs(1))
    return RowGroup(num_rows=fields.integer64(3), total_byte_size=fields.integer64(2), columns=columns)


def _column_chunk(fields: Struct) -> ColumnChunk:
    if 8 in fields or 9 in fields:  # ColumnChunk.crypto_metadata, encrypted_column_metadata
        raise EncryptedError("a column is encrypted")
    inner = fields.struct(3)
    statistics, sizes = inner.optional_struct(12), inner.optional_struct(16)
    return ColumnChunk(
        path=tuple(inner.texts(3)),
        physical_type=inner.integer32(1),
        codec=inner.integer32(4),
        encodings=tuple(inner.integers(2)),
        num_values=inner.integer64(5),
        total_uncompressed_size=inner.integer64(6),
        total_compressed_size=inner.integer64(7),
        data_page_offset=inner.integer64(9),
        dictionary_page_offset=inner.optional_integer64(11),
        statistics=None if statistics is None else _statistics(statistics),
        offset_index_offset=fields.optional_integer64(4),
        offset_index_length=fields.optional_integer32(5),
        column_index_offset=fields.optional_integer64(6),
        column_index_length=fields.optional_integer32(7),
        bloom_filter_offset=inner.optional_integer64(14),
        bloom_filter_length=inner.optional_integer32(15),
        file_path=fields.optional_text(1),
        encoding_stats=tuple(
            PageEncodingStats(each.integer32(1), each.integer32(2), each.integer32(3)) for each in inner.structs(13)
        ),
        size_statistics=None if sizes is None else _size_statistics(sizes),
    )


def _size_statistics(fields: Struct) -> SizeStatistics:
    # SizeStatistics { 1: unencoded_byte_array_data_bytes, 2: and 3: histograms of repetition and definition levels }
    counts = fields.optional_integer64(1) is not None
    return SizeStatistics(counts, len(fields.integers(2)), len(fields.integers(3)))


def _statistics(fields: Struct) -> Statistics:
    return Statistics(
        legacy_max=fields.optional_binary(1),
        legacy_min=fields.optional_binary(2),
        null_count=fields.optional_integer64(3),
        max_value=fields.optional_binary(5),
        min_value=fields.optional_binary(6),
        is_max_exact=fields.optional_boolean(7),
        is_min_exact=fields.optional_boolean(8),
    )


def _check(metadata: FileMetadata) -> None:
    """What the rest relies on; a footer that breaks it was not written by a writer."""
    columns = leaves(metadata.schema)
    for group in metadata.row_groups:
        if group.num_rows < 0:
            raise ThriftError("a row group of less than no rows")
        if len(group.columns) != len(columns):
            raise ThriftError(f"a row group of {len(group.columns)} columns in a file of {len(columns)}")
        for chunk, leaf in zip(group.columns, columns, strict=True):
            # Chunks are the schema's columns by position; their path_in_schema is there to be read by people.
            if chunk.physical_type != leaf.physical_type:
                raise ThriftError(f"column {'.'.join(leaf.path)} does not fit the schema")
            if chunk.encodings and not 0 <= min(chunk.encodings) <= max(chunk.encodings) < 32:
                raise ThriftError(f"column {'.'.join(leaf.path)} has unknown encodings")
            # A value per row at least: null and empty lists have one too.
            if chunk.num_values < group.num_rows or (not leaf.nested and chunk.num_values != group.num_rows):
                raise ThriftError(f"column {'.'.join(leaf.path)} does not have a value for each row")


def top_level(schema: tuple[SchemaElement, ...]) -> list[tuple[int, int]]:
    """For each top-level field the half-open range of its elements.

    A schema of `id` and `point { x y }` has the elements root, id, point, x, y: ranges (1, 2) and (2, 5).
    """
    ranges = []
    position = 1
    for _ in range(schema[0].num_children):
        end = _end_of(schema, position)
        ranges.append((position, end))
        position = end
    if position != len(schema):
        raise ThriftError("the schema is not a tree")
    return ranges


def _end_of(schema: tuple[SchemaElement, ...], position: int) -> int:
    # Depth first: the subtree is over when no children are owed any more.
    owed = 1
    while owed:
        if position >= len(schema):
            raise ThriftError("the schema is not a tree")
        children = schema[position].num_children
        if children < 0:
            raise ThriftError("a schema element with less than no children")
        owed += children - 1
        position += 1
    return position


def leaves(schema: tuple[SchemaElement, ...]) -> tuple[Leaf, ...]:
    """The columns of primitive values in the order of the column chunks."""
    if schema[0].num_children > len(schema):
        raise ThriftError("the schema is not a tree")
    found: list[Leaf] = []
    for field, (start, end) in enumerate(top_level(schema)):
        nested = end - start > 1 or schema[start].repetition == REPEATED
        names: list[str] = []
        owed: list[int] = []
        for element in schema[start:end]:
            while owed and owed[-1] == 0:
                owed.pop()
                names.pop()
            if owed:
                owed[-1] -= 1
            if element.num_children:
                names.append(element.name)
                owed.append(element.num_children)
            elif element.physical_type is not None:
                found.append(Leaf((*names, element.name), field, element.physical_type, nested))
    return tuple(found)


def max_levels(schema: Sequence[SchemaElement]) -> tuple[tuple[int, int], ...]:
    """The highest repetition and definition level of each leaf column.

    A repetition level of 0: every row has one value. In a list of numbers it is 1, in a list of lists 2.
    """
    found: list[tuple[int, int]] = []
    above: list[tuple[int, int, int]] = [(schema[0].num_children, 0, 0)]  # children still to come, and their levels
    for element in schema[1:]:
        while len(above) > 1 and above[-1][0] == 0:
            above.pop()
        children, repetition, definition = above[-1]
        above[-1] = children - 1, repetition, definition
        repetition += element.repetition == REPEATED
        definition += element.repetition in (OPTIONAL, REPEATED)
        if element.num_children:
            above.append((element.num_children, repetition, definition))
        elif element.physical_type is not None:
            found.append((repetition, definition))
    return tuple(found)


def forgets_dictionary_header(created_by: bytes) -> bool:
    """Whether the writer left the dictionary page's header out of the size of a chunk (PARQUET-816).

    >>> forgets_dictionary_header(b"parquet-mr version 1.2.8"), forgets_dictionary_header(b"parquet-mr")
    (True, True)
    >>> forgets_dictionary_header(b"parquet-mr version 1.13.1 (build db4183109d)")
    False
    """
    found = re.match(rb"parquet-mr(?: version (\d+)\.(\d+)\.(\d+))?", created_by)
    return found is not None and tuple(int(part or 0) for part in found.groups()) < (1, 2, 9)
