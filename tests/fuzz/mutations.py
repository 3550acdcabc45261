"""Damaged and malicious Parquet files.

A mutation is a function of the bytes and a random generator. It returns the new bytes, a short description, and whether
what the file states about its values (statistics, page bounds, bloom filters) may now be untrue: a reader that relies
on it then cannot answer correctly.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.thrift_places import BINARY, LIST, Place, binary, encoded, exchanged, integer, places

from needlepoint.parquet.format.footer import ColumnChunk, FileMetadata, parse_footer
from needlepoint.parquet.format.page_headers import parse_header
from needlepoint.parquet.format.thrift import ThriftError

LARGE = (2**15, 2**20, 2**31 - 1, 2**31, 2**32, 2**37, 2**38, 2**40, 2**62, 2**63 - 1)
NUMBERS = (*LARGE, 0, 1, -1, 2, 3, 7, 64, 100, 255, -(2**31), -(2**63), 4)

# parquet.thrift: offsets in ColumnChunk (2, 4, 6) and ColumnMetaData (9 to 11, 14)
_OFFSETS = ((2,), (4,), (6,), (3, 9), (3, 10), (3, 11), (3, 14))


@dataclass(frozen=True)
class Mutated:
    data: bytes
    what: str
    untrue: bool = False


def _footer(data: bytes) -> tuple[int, bytes]:
    size = int.from_bytes(data[-8:-4], "little")
    return len(data) - 8 - size, data[-8 - size : -8]


def with_footer(body: bytes, footer: bytes) -> bytes:
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _number(chance: random.Random, now: int) -> int:
    return chance.choice((*NUMBERS, now + 1, now - 1, now * 2, now // 2, -now, now ^ (1 << chance.randrange(40)),
                          chance.getrandbits(chance.randrange(1, 64))))  # fmt: skip


def _is_statement(path: tuple[int, ...]) -> bool:
    """Whether a value of the footer belongs to statistics, bloom filters, column indexes or a sort order."""
    return path[:1] == (7,) or (path[:1] == (4,) and path[4:6] in ((3, 12), (3, 14), (3, 15))) or (
        path[:1] == (4,) and len(path) == 5 and path[4] in (6, 7)
    ) or (path[:1] == (4,) and path[2:3] == (4,))  # fmt: skip


def _other_value(data: bytes, place: Place, chance: random.Random) -> tuple[bytes, str]:
    if place.kind == BINARY:
        _, value = data[place.start], data[place.start : place.end]
        size = len(value)
        content = value[1:] if size < 129 else value[2:]
        way = chance.randrange(5)
        if way == 0:
            return binary(content, chance.choice(LARGE)), "a binary of another length"
        if way == 1 or not content:
            return binary(b""), "an empty binary"
        if way == 2:
            return binary(chance.randbytes(len(content))), "random bytes"
        if way == 3:
            return binary(content * chance.randrange(2, 50)), "a longer binary"
        at = chance.randrange(len(content))
        return binary(content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]), "another byte"
    if place.kind == LIST:
        kind = data[place.start] & 15
        size = chance.choice((0, 1, 2, 14, 200, 2**20, 2**31, 2**40))
        head = bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + _unsigned(size)
        return head, f"a list of {size}"
    if place.end - place.start == 1 and place.kind == 3:
        return bytes([chance.randrange(256)]), "another byte"
    number = _number(chance, integer(data, place))
    return encoded(number), str(number)


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def footer_values(data: bytes, chance: random.Random) -> Mutated:
    """Replace one value of the footer, sometimes two."""
    at, footer = _footer(data)
    found, _ = places(footer)
    chosen = chance.sample(found, 2 if chance.random() < 0.2 else 1)
    values = {place: _other_value(footer, place, chance) for place in chosen}
    what = ", ".join(f"footer {'.'.join(map(str, place.path))}: {told}" for place, (_, told) in values.items())
    changed = exchanged(footer, {place: value for place, (value, _) in values.items()})
    untrue = any(_is_statement(place.path) for place in chosen)
    return Mutated(with_footer(data[:at], changed), what, untrue or statements_differ(footer, changed))


def footer_counts(data: bytes, chance: random.Random) -> Mutated:
    """Counts of rows and values that agree with each other, but not with the data."""
    at, footer = _footer(data)
    found, _ = places(footer)
    group, factor = 0, chance.choice((2, 3, 1000, 2**20, 2**31, 2**38))
    values = {}
    for place in found:
        rows = place.path == (4, group, 3) or (place.path[:2] == (4, group) and place.path[4:] == (3, 5))
        if rows or place.path == (3,):
            values[place] = encoded(integer(footer, place) * factor)
    return Mutated(with_footer(data[:at], exchanged(footer, values)), f"all counts of row group {group} times {factor}")


def footer_bytes(data: bytes, chance: random.Random) -> Mutated:
    at, footer = _footer(data)
    changed, what = _damaged(footer, chance)
    return Mutated(with_footer(data[:at], changed), f"footer: {what}", statements_differ(footer, changed))


def tail(data: bytes, chance: random.Random) -> Mutated:
    """Change the end of the file, with the length of the footer."""
    way = chance.randrange(3)
    if way == 0:
        end = chance.randrange(len(data))
        return Mutated(data[:end], f"cut at {end}")
    if way == 1:
        length = chance.choice((0, 1, 2**31 - 1, 2**32 - 1, len(data), len(data) - 12, chance.randrange(len(data))))
        return Mutated(data[:-8] + length.to_bytes(4, "little") + data[-4:], f"a footer of {length}", True)
    return Mutated(data[:-4] + chance.choice((b"PARE", b"PAR2", b"\0\0\0\0")), "another end")


def _damaged(data: bytes, chance: random.Random) -> tuple[bytes, str]:
    at = chance.randrange(len(data))
    way = chance.randrange(6)
    if way <= 2:
        changed = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        return changed, f"a bit of byte {at}"
    size = chance.randrange(1, 9)
    if way == 3:
        return data[:at] + chance.randbytes(size) + data[at + size :], f"{size} random bytes at {at}"
    if way == 4:
        return data[:at] + data[at + size :], f"{size} bytes less at {at}"
    return data[:at] + chance.randbytes(size) + data[at:], f"{size} bytes more at {at}"


def statements_differ(before: bytes, after: bytes) -> bool:
    """Whether two footers state different things about values; an unreadable footer states nothing."""
    try:
        return _statements(parse_footer(before)) != _statements(parse_footer(after))
    except ThriftError:
        return False


def _statements(footer: FileMetadata) -> object:
    def of(chunk: ColumnChunk) -> object:
        places = (chunk.column_index_offset, chunk.column_index_length, chunk.bloom_filter_offset)
        return chunk.statistics, places, chunk.bloom_filter_length, chunk.offset_index_offset

    return [[of(chunk) for chunk in group.columns] for group in footer.row_groups], footer.column_orders, footer.schema


def _chunks(data: bytes) -> list[ColumnChunk]:
    _, footer = _footer(data)
    return [chunk for group in parse_footer(footer).row_groups for chunk in group.columns]


def _headers(data: bytes, chunk: ColumnChunk) -> list[int]:
    """Positions of the page headers of a chunk."""
    found, at = [], chunk.start
    while at < chunk.end:
        header = parse_header(data, at)
        found.append(at)
        at += header.size + header.compressed_size
    return found


def page_headers(data: bytes, chance: random.Random) -> Mutated:
    """Replace one value of a page header. If the header gets longer, everything after it moves."""
    chunk = chance.choice(_chunks(data))
    at = chance.choice(_headers(data, chunk))
    found, _ = places(data, at)
    place = chance.choice(found)
    value, told = _other_value(data, place, chance)
    body, footer = _moved(data, place.end, len(value) - (place.end - place.start), chunk.start)
    changed = body[: place.start] + value + body[place.end :]
    what = f"header of a page at {at} of {'.'.join(chunk.path)}, {'.'.join(map(str, place.path))}: {told}"
    return Mutated(with_footer(changed, footer), what, True)


def _moved(data: bytes, behind: int, by: int, start: int) -> tuple[bytes, bytes]:
    """Body and footer after `by` bytes are inserted before `behind`, in the chunk that begins at `start`."""
    at, footer = _footer(data)
    found, _ = places(footer)
    starts = {}
    values = {}
    for place in found:
        if place.path[:1] != (4,) or place.kind in (BINARY, LIST):
            continue
        number = integer(footer, place)
        if place.path[4:] in _OFFSETS or place.path[2:] in ((5,),):
            if number >= behind:
                values[place] = encoded(number + by)
            if place.path[4:] in ((3, 9), (3, 11)):
                starts[place.path[:4]] = min(starts.get(place.path[:4], number), number)
    for place in found:
        if place.path[4:] == (3, 7) and starts.get(place.path[:4]) == start:
            values[place] = encoded(integer(footer, place) + by)
    return data[:at], exchanged(footer, values)


def page_bytes(data: bytes, chance: random.Random) -> Mutated:
    """Change the content of a page: levels, values, or compressed bytes. DataFusion never ends on some wrong levels of
    lists and maps (docs/reliability.md), so their pages are left alone."""
    chunk = chance.choice([chunk for chunk in _chunks(data) if len(chunk.path) == 1])
    at = chance.choice(_headers(data, chunk))
    header = parse_header(data, at)
    start, end = at + header.size, at + header.size + header.compressed_size
    if start == end:
        return page_headers(data, chance)
    # Levels, and the sizes of what follows, come first.
    end = min(end, start + 16) if chance.random() < 0.5 else end
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 4))):
        changed[chance.randrange(start, end)] = chance.choice((0, 255, 128, 127, chance.randrange(256)))
    return Mutated(bytes(changed), f"bytes of a page at {at} of {'.'.join(chunk.path)}", True)


def index_bytes(data: bytes, chance: random.Random) -> Mutated:
    """Change an offset index, a column index or a bloom filter."""
    spots = []
    for chunk in _chunks(data):
        for offset, length in (
            (chunk.offset_index_offset, chunk.offset_index_length),
            (chunk.column_index_offset, chunk.column_index_length),
            (chunk.bloom_filter_offset, chunk.bloom_filter_length),
        ):
            if offset and length:
                spots.append((offset, length, offset != chunk.offset_index_offset))
    if not spots:
        return footer_values(data, chance)
    offset, length, untrue = chance.choice(spots)
    index = data[offset : offset + length]
    changed = bytearray(data)
    if chance.random() < 0.6:
        found, _ = places(index)
        fitting = [place for place in found if place.kind not in (BINARY, LIST)]
        place = chance.choice(fitting or found)
        size = place.end - place.start
        # The length stays the same, so that nothing moves: a varint may have redundant bytes.
        number = chance.getrandbits(7 * size)
        value = bytes([number >> 7 * byte & 127 | (128 if byte < size - 1 else 0) for byte in range(size)])
        changed[offset + place.start : offset + place.end] = value
    else:
        changed[chance.randrange(offset, offset + length)] = chance.randrange(256)
    return Mutated(bytes(changed), f"index of the format at {offset}", untrue)


def anything(data: bytes, chance: random.Random) -> Mutated:
    changed, what = _damaged(data, chance)
    return Mutated(changed, f"file: {what}", True)


Mutation = Callable[[bytes, random.Random], Mutated]
MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (footer_values, 40),
    (footer_counts, 4),
    (footer_bytes, 16),
    (tail, 3),
    (page_headers, 16),
    (page_bytes, 14),
    (index_bytes, 12),
    (anything, 4),
)


def mutated(data: bytes, chance: random.Random) -> Mutated:
    ways, weights = zip(*MUTATIONS, strict=True)
    return chance.choices(ways, weights)[0](data, chance)
