"""The pages of a column chunk one after the other, as far as their headers can be read."""

from __future__ import annotations

from dataclasses import dataclass

from needlepoint.objects import OpenObject
from needlepoint.parquet.format.footer import ColumnChunk
from needlepoint.parquet.format.page_headers import DATA_PAGE, DATA_PAGE_V2, PageHeader, parse_header
from needlepoint.parquet.format.thrift import ThriftError

DATA_PAGES = (DATA_PAGE, DATA_PAGE_V2)
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
        header = _header(file, position, chunk.end)
        if header is None:
            break
        end = position + header.size + header.compressed_size
        rows = header.num_values if header.kind == DATA_PAGE and not nested else header.num_rows
        pages.append(Page(header.kind, position, end, header.num_values, rows, header.encoding))
        position = end
    return pages


def _header(file: OpenObject, position: int, chunk_end: int) -> PageHeader | None:
    for window in _WINDOWS:
        try:
            header = parse_header(file.read(position, min(window, chunk_end - position)))
        except ThriftError:
            continue
        return header if position + header.size + header.compressed_size <= chunk_end else None
    return None
