"""Whether a file can be given to other readers.

A footer and the headers of pages say how many values there are and how large things get. Readers of other libraries
believe that: one changed number makes them ask for hundreds of gigabytes, which ends the process, or fail in a way that
cannot be caught. So our own reader looks first, once for each version of a file:

    numbers     none negative, places inside the file, codecs and types that exist
    counts      as many values as rows; far more than the bytes of a chunk let expect only if its page headers agree
    histograms  one number for each level; pyarrow ends the process otherwise
    first pages of each chunk the dictionary and the first data page, whose headers say how much a reader prepares for
    levels      of lists and maps: as many values in the pages as in the chunk, and as many repetition levels as values,
                where they can be read without unpacking. DataFusion never ends when it skips rows of a page that claims
                more values than it has levels.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Sequence

from needlepoint.errors import NotParquet
from needlepoint.objects import Identity, OpenObject, identify, is_url, open_object
from needlepoint.parquet.format import levels, page_headers
from needlepoint.parquet.format.codecs import ANY_GROWTH, MOST_GROWTH, UNCOMPRESSED
from needlepoint.parquet.format.footer import ColumnChunk, FileMetadata, SchemaElement, max_levels, read_footer
from needlepoint.parquet.format.page_headers import DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE, RLE, PageHeader
from needlepoint.parquet.format.thrift import ThriftError

# parquet.thrift, Type, CompressionCodec, Encoding, ConvertedType and FieldRepetitionType: the highest that is known.
_LAST_TYPE, _LAST_CODEC, _LAST_REPETITION = 7, 7, 2
BYTE_ARRAY, FIXED_LENGTH = 6, 7
# Values that a chunk may claim whatever its size, and so many more for each byte. A run of equal values takes a few
# bytes however long it is: beyond this the headers of the pages, which are then few, are counted.
ANY_CHUNK_VALUES, VALUES_IN_A_BYTE = 1 << 20, 512
MOST_PAGE_VALUES = 1 << 27  # of a page that claims more than its bytes let expect
# Bytes of one value of fixed length: readers make room for a batch of thousands.
LONGEST_VALUE = 1 << 20
ANY_CHUNK_GROWTH = 4 * ANY_GROWTH  # bytes that a chunk may become however small it is
LEVELS = 100  # of a schema; deeper ones exhaust the stack of readers that call themselves
_DICTIONARY_HEADER = 100  # bytes that old writers left out of the size of a chunk (PARQUET-816)
_HEADER = 512  # bytes that hold the header of most pages
_WINDOW = 1 << 16  # bytes that hold the longest header, and many short ones
_HINT = "The file is corrupt, or was made to do harm; write it again, or remove it."
MOST_REMEMBERED = 200_000


def check(file: OpenObject, metadata: FileMetadata) -> None:
    """NotParquet, with the column, for a file whose numbers cannot be true."""
    _check_schema(file, metadata.schema)
    total, most_levels = 0, max_levels(metadata.schema)
    for group in metadata.row_groups:
        total += group.num_rows
        for chunk, most in zip(group.columns, most_levels, strict=True):
            _check_chunk(file, chunk)
            _check_histograms(file, chunk, *most)
    if total > 1 << 48:
        raise _wrong(file, f"it claims {total:,} rows")
    filled = [group for group in metadata.row_groups if group.num_rows]
    remote = is_url(file.path)  # there each chunk would be another request
    if not remote:
        _check_first_pages(file, [chunk for group in filled for chunk in group.columns])
    for group in filled:
        for chunk, (repetition, _) in zip(group.columns, most_levels, strict=True):
            if _is_doubtful(chunk.num_values, chunk.total_compressed_size) or (repetition and not remote):
                _check_pages(file, chunk, repetition)


def _wrong(file: OpenObject, problem: str) -> NotParquet:
    return NotParquet(file.path, problem, hint=_HINT)


def _check_schema(file: OpenObject, schema: Sequence[SchemaElement]) -> None:
    owed: list[int] = []
    for element in schema:
        while owed and owed[-1] == 0:
            owed.pop()
        if owed:
            owed[-1] -= 1
        if element.num_children:
            owed.append(element.num_children)
        if len(owed) > LEVELS:
            raise _wrong(file, f"its schema has more than {LEVELS} levels")
        kind, length = element.physical_type, element.type_length
        if element.num_children == 0 and kind is not None and not 0 <= kind <= _LAST_TYPE:
            raise _wrong(file, f"column {element.name} is of a type {kind} that does not exist")
        if element.repetition is not None and not 0 <= element.repetition <= _LAST_REPETITION:
            raise _wrong(file, f"column {element.name} is repeated in a way {element.repetition} that does not exist")
        if kind == FIXED_LENGTH and not 0 <= (length or 0) <= LONGEST_VALUE:
            raise _wrong(file, f"values of column {element.name} would have {length} bytes each")


def _check_chunk(file: OpenObject, chunk: ColumnChunk) -> None:
    name = ".".join(chunk.path)
    if chunk.file_path:
        raise NotParquet(
            file.path, f"column {name} is in another file, {chunk.file_path}",
            hint="Name the data files themselves, not a summary of them.",
        )  # fmt: skip
    # Others begin at the dictionary page wherever it is said to be.
    starts = (chunk.start, chunk.data_page_offset, chunk.dictionary_page_offset or 0)
    size = chunk.total_compressed_size
    if min(starts) < 0 or size < 0 or chunk.end > file.size or max(starts) > file.size:
        raise _wrong(file, f"column {name} is outside the file")
    if chunk.num_values and chunk.data_page_offset >= chunk.end + _DICTIONARY_HEADER:
        raise _wrong(file, f"the pages of column {name} are behind its end")
    if chunk.dictionary_page_offset and chunk.dictionary_page_offset + size > file.size:
        raise _wrong(file, f"the dictionary of column {name} is outside the file")
    indexes = (
        (chunk.offset_index_offset, chunk.offset_index_length),
        (chunk.column_index_offset, chunk.column_index_length),
        (chunk.bloom_filter_offset, chunk.bloom_filter_length),
    )
    for offset, length in indexes:
        # Others read from the first index to the last at once, and allocate memory for everything between.
        if offset is not None and (min(offset, length or 0) < 0 or offset + (length or 0) > file.size):
            raise _wrong(file, f"an index of column {name} is outside the file")
    if not 0 <= chunk.codec <= _LAST_CODEC:
        raise _wrong(file, f"column {name} is compressed with a codec {chunk.codec} that does not exist")
    if chunk.total_uncompressed_size < 0 or _grows_too_much(chunk.total_uncompressed_size, size):
        raise _wrong(file, f"{size:,} bytes of column {name} would become {chunk.total_uncompressed_size:,}")


def _check_histograms(file: OpenObject, chunk: ColumnChunk, repetition: int, definition: int) -> None:
    sizes = chunk.size_statistics
    if sizes is None:
        return
    if sizes.repetition_levels not in (0, repetition + 1) or sizes.definition_levels not in (0, definition + 1):
        raise _wrong(file, f"column {'.'.join(chunk.path)} has a histogram of other levels than its own")
    if sizes.counts_bytes and chunk.physical_type != BYTE_ARRAY:
        raise _wrong(file, f"column {'.'.join(chunk.path)} counts bytes of values that all have the same size")


def _grows_too_much(size: int, compressed: int) -> bool:
    return size > ANY_CHUNK_GROWTH + MOST_GROWTH * compressed


def _is_doubtful(values: int, size: int) -> bool:
    return values > ANY_CHUNK_VALUES + VALUES_IN_A_BYTE * size


def _check_first_pages(file: OpenObject, chunks: Sequence[ColumnChunk]) -> None:
    """The dictionary and the first data page of each chunk."""
    places = [(chunk, chunk.start) for chunk in chunks if chunk.total_compressed_size]
    while places:
        found = file.read_ranges([(at, min(_HEADER, file.size - at)) for _, at in places])
        following: list[tuple[ColumnChunk, int]] = []
        for (chunk, at), data in zip(places, found, strict=True):
            header = _header(file, chunk, at, data)
            if header is not None and header.kind == DICTIONARY_PAGE and at == chunk.start:
                after = at + header.size + header.compressed_size
                if after < min(chunk.end, file.size):
                    following.append((chunk, after))
        places = following


def _header(file: OpenObject, chunk: ColumnChunk, at: int, data: bytes) -> PageHeader | None:
    """The header of a page; None for one that other readers may understand."""
    name = ".".join(chunk.path)
    try:
        header = page_headers.parse_header(data)
    except ThriftError:
        return None  # it has long bounds, or an unknown form: its reader reports errors
    if at + header.size + header.compressed_size > file.size:
        raise _wrong(file, f"a page of column {name} claims {header.compressed_size:,} bytes")
    if _grows_too_much(header.uncompressed_size, header.compressed_size):
        problem = f"{header.compressed_size:,} bytes would become {header.uncompressed_size:,}"
        raise _wrong(file, f"a page of column {name} cannot be true: {problem}")
    if header.kind == DICTIONARY_PAGE and header.num_values > 8 * header.uncompressed_size:
        # A value takes a bit at least.
        raise _wrong(file, f"the dictionary of column {name} claims {header.num_values:,} values")
    return header


def check_pages(file: OpenObject, row_groups: Sequence[int], leaves: Sequence[int]) -> None:
    """NotParquet if pages of these columns do not have the values that the footer says: readers would shift rows."""
    metadata = read_footer(file)
    repetitions = [repetition for repetition, _ in max_levels(metadata.schema)]
    for number in row_groups:
        for leaf in leaves:
            _check_pages(file, metadata.row_groups[number].columns[leaf], repetitions[leaf])


def _check_pages(file: OpenObject, chunk: ColumnChunk, repetition: int) -> None:
    """All pages of a chunk: of one that is small beside what it claims, so they are few, of a nested one, or of one
    that cannot be decoded by page."""
    name = ".".join(chunk.path)
    at, values, window = chunk.start, 0, _Window(file)
    while at < chunk.end and values < chunk.num_values:
        header = _header(file, chunk, at, window.read(at, 8 * _HEADER))
        header = header or _header(file, chunk, at, window.read(at, _WINDOW))
        if header is None and _is_doubtful(chunk.num_values, chunk.total_compressed_size):
            break
        if header is None:
            return
        if header.kind in (DATA_PAGE, DATA_PAGE_V2):
            if header.num_values > MOST_PAGE_VALUES and _is_doubtful(header.num_values, header.compressed_size):
                raise _wrong(file, f"a page of column {name} claims {header.num_values:,} values")
            values += header.num_values
            if repetition and not _has_levels(window, at + header.size, header, chunk.codec, repetition):
                raise _wrong(file, f"a page of column {name} claims {header.num_values:,} values and has fewer levels")
        at += header.size + header.compressed_size
    if values != chunk.num_values:
        raise _wrong(file, f"column {name} claims {chunk.num_values:,} values, its pages have {values:,}")


def _has_levels(window: _Window, at: int, header: PageHeader, codec: int, repetition: int) -> bool:
    """Whether the page, whose body begins at `at`, has a repetition level for each value; True if that is not known."""
    if header.kind == DATA_PAGE_V2:
        size = header.repetition_length
    elif codec == UNCOMPRESSED and header.repetition_encoding == RLE:
        size = int.from_bytes(window.read(at, 4), "little")
        at += 4
    else:
        return True
    return levels.has_levels(window.read(at, min(size, header.compressed_size)), repetition, header.num_values)


class _Window:
    """Reads small pieces of a file one after the other, many by one request."""

    def __init__(self, file: OpenObject) -> None:
        self._file, self._start, self._data = file, 0, b""

    def read(self, at: int, size: int) -> bytes:
        """The bytes at `at`, fewer at the end of the file."""
        size = min(size, self._file.size - at)
        if not self._start <= at <= at + size <= self._start + len(self._data):
            self._start, self._data = at, self._file.read(at, min(max(size, _WINDOW), self._file.size - at))
        return self._data[at - self._start : at - self._start + size]


class _Verdicts:
    """Results of checks by path and identity: the error, or None for a sound file."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, Identity], NotParquet | None] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, key: tuple[str, Identity]) -> bool:
        return key in self._found

    def raise_if_bad(self, key: tuple[str, Identity]) -> None:
        error = self._found.get(key)
        if error is not None:
            raise copy.copy(error)  # raising the same object again would keep every traceback

    def put(self, key: tuple[str, Identity], error: NotParquet | None) -> None:
        with self._lock:
            self._found[key] = error
            while len(self._found) > MOST_REMEMBERED:
                self._found.popitem(last=False)


_verdicts = _Verdicts()


def ensure_sound(path: str, identity: Identity | None = None) -> None:
    """NotParquet for a file that must not be given to other readers. A version of a file is looked at once in a
    process: with an `identity` that is known nothing is read the second time. FileNotFoundError when it is gone."""
    # Objects are read on condition of their ETag; a local file may be another one by now.
    if identity is not None and (path, identity) in _verdicts and (is_url(path) or identify(path) == identity):
        _verdicts.raise_if_bad((path, identity))
        return
    with open_object(path, identity) as file:
        key = (path, file.identity)
        if key not in _verdicts:
            error = None
            try:
                check(file, read_footer(file))
            except NotParquet as found:
                error = found
            file.check_unchanged(key[1])
            _verdicts.put(key, error)
        _verdicts.raise_if_bad(key)
