"""Single values out of a dictionary-encoded page: which entry of the dictionary each wanted row has.

    version 1, compressed as a whole:   | length (4)  definition levels | bit width (1)  indices |
    version 2:                          | definition levels | bit width (1)  indices, compressed |

Definition levels are there in nullable columns only, one a row: 1 is a value, 0 is null. Nulls have no index. Both
are runs as in `levels.py`; the runs before the wanted row are passed over, not decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

from needlepoint.parquet.format import codecs
from needlepoint.parquet.format.levels import LevelsError, read_header
from needlepoint.parquet.format.page_headers import DATA_PAGE_V2, RLE, PageHeader


def read_indices(
    body: bytes, header: PageHeader, codec: int, optional: bool, positions: Sequence[int]
) -> list[int | None]:
    """The index of each of the rows at ascending `positions` of a flat column's page, None for a null.

    LevelsError, or another ValueError, when the bytes are not such a page.
    """
    if header.kind == DATA_PAGE_V2:
        start = header.repetition_length + header.definition_length
        levels, data = body[header.repetition_length : start], body[start:]
        compressed, size = header.is_compressed, header.uncompressed_size - start
    else:
        levels, data, compressed, size = b"", body, True, header.uncompressed_size
    if compressed and data:
        data = codecs.decompress(codec, data, size)
    if not optional:
        return [*pick(data, positions)]
    if header.kind != DATA_PAGE_V2:
        if header.definition_encoding != RLE:
            raise LevelsError("levels of an encoding not used since 2014")
        length = int.from_bytes(data[:4], "little")
        levels, data = data[4 : 4 + length], data[4 + length :]
    places = ranks(levels, positions)
    picked = iter(pick(data, [place for place in places if place is not None]))
    return [None if place is None else next(picked) for place in places]


def ranks(levels: bytes, positions: Sequence[int]) -> list[int | None]:
    """How many values precede the one of each row; None for a null.

    Levels 1 1 0 1: row 3 has the third value, after two others; row 2 has none.

    >>> ranks(bytes([1 << 1 | 1, 0b1011]), [0, 2, 3])
    [0, None, 2]
    """
    found: list[int | None] = []
    waiting = iter(positions)
    wanted = next(waiting, None)
    cursor = first = values = 0  # the run's place, its first row, the values before it
    while wanted is not None:
        # Most headers are one byte, and a page has hundreds.
        header, cursor = (
            (levels[cursor], cursor + 1)
            if cursor < len(levels) and levels[cursor] < 0x80
            else read_header(levels, cursor)
        )
        if header & 1:
            size = header >> 1
            last = first + 8 * size
            # A group's bits beyond the page's rows are ignored: those rows do not exist.
            bits = int.from_bytes(levels[cursor : cursor + size], "little")
            count = bits.bit_count()
        else:
            size = 1
            last = first + (header >> 1)
            present = levels[cursor : cursor + 1] == b"\1"
            count = last - first if present else 0
        cursor += size
        if cursor > len(levels):
            raise LevelsError("the levels end inside a run")
        while wanted is not None and wanted < last:
            place = wanted - first
            if header & 1:
                found.append(values + (bits & ((1 << place) - 1)).bit_count() if bits >> place & 1 else None)
            else:
                found.append(values + place if present else None)
            wanted = next(waiting, None)
        first = last
        values += count
    return found


def pick(data: bytes, positions: Sequence[int]) -> list[int]:
    """The indices at ascending positions of a run-length stream that begins with its bit width.

    >>> pick(bytes([3, 5 << 1, 6, 1 << 1 | 1, 0b10_001_000, 0b1_100_011_0, 0]), [0, 4, 6, 8])
    [6, 6, 1, 3]
    """
    found: list[int] = []
    waiting = iter(positions)
    wanted = next(waiting, None)
    if wanted is None:
        return found
    if not data or data[0] > 32:
        raise LevelsError("no bit width")
    width = data[0]
    mask = (1 << width) - 1
    cursor, first = 1, 0  # the run's place, its first value
    while wanted is not None:
        header, cursor = (
            (data[cursor], cursor + 1) if cursor < len(data) and data[cursor] < 0x80 else read_header(data, cursor)
        )
        packed = header & 1
        size = (header >> 1) * width if packed else (width + 7) >> 3
        last = first + ((header >> 1) * 8 if packed else header >> 1)
        if cursor + size > len(data):
            raise LevelsError("the indices end inside a run")
        while wanted is not None and wanted < last:
            bit = (wanted - first) * width if packed else 0
            piece = data[cursor + (bit >> 3) : cursor + ((bit + width + 7) >> 3)]
            found.append(int.from_bytes(piece, "little") >> (bit & 7) & mask)
            wanted = next(waiting, None)
        cursor += size
        first = last
    return found
