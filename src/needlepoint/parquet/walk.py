"""The pages of a column chunk by their headers, one after the other.

PageHeader { 1: type, 2: uncompressed_page_size, 3: compressed_page_size, 5: data_page_header,
             7: dictionary_page_header, 8: data_page_header_v2 }
"""

from __future__ import annotations

from dataclasses import dataclass

from needlepoint.objects import OpenObject
from needlepoint.parquet import thrift
from needlepoint.parquet.footer import ColumnChunk
from needlepoint.parquet.thrift import Struct, ThriftError

DATA_PAGES = (0, 3)  # parquet.thrift, PageType: DATA_PAGE and DATA_PAGE_V2
# A header takes 20 to 50 bytes, unless it has long bounds in it.
_WINDOWS = (256, 64 * 1024)


@dataclass(frozen=True, slots=True)
class Page:
    """A page with its header at `[offset, end)`. `rows` are unknown in nested columns with pages of version 1."""

    type: int
    offset: int
    end: int
    values: int
    rows: int | None
    encoding: int

    @property
    def size(self) -> int:
        return self.end - self.offset


def pages_of_chunk(file: OpenObject, chunk: ColumnChunk, *, nested: bool, limit: int = 1 << 30) -> list[Page]:
    """Its pages, up to so many; fewer where a header cannot be read."""
    pages: list[Page] = []
    position = chunk.start
    while position < chunk.end and len(pages) < limit:
        page = _page(file, position, chunk.end, nested)
        if page is None:
            break
        pages.append(page)
        position = page.end
    return pages


def _page(file: OpenObject, position: int, chunk_end: int, nested: bool) -> Page | None:
    for window in _WINDOWS:
        try:
            header = thrift.parse(file.read(position, min(window, chunk_end - position)))
            return _decoded(header, position, chunk_end, nested)
        except ThriftError:
            continue
    return None


def _decoded(header: Struct, position: int, chunk_end: int, nested: bool) -> Page:
    size = header.integer(3)
    end = position + header.end + size
    if size < 0 or end > chunk_end:
        raise ThriftError("a page that does not lie in its chunk")
    version_1, dictionary, version_2 = (header.optional_struct(field) for field in (5, 7, 8))
    if version_2 is not None:
        return Page(header.integer(1), position, end, version_2.integer(1), version_2.integer(3), version_2.integer(4))
    either = version_1 or dictionary
    if either is None:
        return Page(header.integer(1), position, end, 0, None, -1)
    values = either.integer(1)
    rows = None if nested or version_1 is None else values
    return Page(header.integer(1), position, end, values, rows, either.integer(2))
