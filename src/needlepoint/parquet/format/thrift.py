"""Thrift's compact protocol, as far as Parquet uses it: a reader and a writer.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

The reader knows no schema. It returns a `Struct`, whose getters check the types, and which remembers where
its bytes were, so that a struct can be copied into another file without being understood. Input is hostile:
whatever the bytes are, the reader ends, uses memory in proportion to them, and raises `ThriftError` at most.

>>> writer = Writer()
>>> writer.integer32(1, 7)
>>> writer.binary(4, b"name")
>>> found = parse(writer.finish())
>>> found.integer32(1), found.binary(4), found.optional_integer32(2)
(7, b'name', None)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

# Compact protocol, field types. Booleans carry their value in the type.
TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12
UUID: Final = 13
_INTEGERS: Final = (I64, I32, I16)
_NAMES: Final = {
    TRUE: "a boolean", BYTE: "an integer of 8 bits", I16: "an integer of 16 bits", I32: "an integer of 32 bits",
    I64: "an integer of 64 bits", DOUBLE: "a double", BINARY: "a binary", LIST: "a list", SET: "a set", MAP: "a map",
    STRUCT: "a struct", UUID: "a UUID",
}  # fmt: skip

# Parquet's metadata nests 8 deep; what nests deeper is not Parquet.
MAX_DEPTH: Final = 32

# Lists of this many numbers or binaries are decoded by numpy; for shorter ones a loop is faster.
_MANY: Final = 48


class ThriftError(ValueError):
    """The bytes are not what the compact protocol, or the asker, allows."""


class Truncated(ThriftError):
    """The bytes end before the struct does: with more of them it might be one."""


class Struct:
    """The fields of one Thrift struct, and where it was in what was parsed: `[start, end)`.

    As generated readers do, a getter passes over a field of another type: early writers used ids that were given to
    other fields later. An integer of another width is refused: pyarrow passes over it and DataFusion takes it, so
    they would read two different files.
    """

    __slots__ = ("_fields", "end", "start")

    def __init__(self, fields: dict[int, Any], start: int, end: int) -> None:
        self._fields = fields  # by id and type: `id << 4 | type`
        self.start = start
        self.end = end

    def __contains__(self, field: int) -> bool:
        return self._found(field) is not None

    def _found(self, field: int) -> int | None:
        """The type of the field, None without one."""
        return next((key & 0x0F for key in self._fields if key >> 4 == field), None)

    def _required(self, field: int, kind: int) -> Any:
        value = self._fields.get(field << 4 | kind)
        return self._refuse(field, kind) if value is None else value

    def _refuse(self, field: int, kind: int) -> NoReturn:
        found = self._found(field)
        if found is None:
            raise ThriftError(f"required field {field} is missing")
        raise ThriftError(f"field {field} is {_NAMES[found]}, not {_NAMES[kind]}")

    def integer32(self, field: int) -> int:
        # Without a call: a footer of 10,000 columns has 100,000 numbers.
        value: int | None = self._fields.get(field << 4 | I32)
        return self._refuse(field, I32) if value is None else value

    def integer64(self, field: int) -> int:
        value: int | None = self._fields.get(field << 4 | I64)
        return self._refuse(field, I64) if value is None else value

    def optional_integer32(self, field: int) -> int | None:
        return self._optional_integer(field, I32)

    def optional_integer64(self, field: int) -> int | None:
        return self._optional_integer(field, I64)

    def _optional_integer(self, field: int, kind: int) -> int | None:
        found = self._fields
        value: int | None = found.get(field << 4 | kind)
        if value is None:
            for width in _INTEGERS:
                if field << 4 | width in found:
                    self._refuse(field, kind)
        return value

    def optional_boolean(self, field: int) -> bool | None:
        value: bool | None = self._fields.get(field << 4 | TRUE)
        return value

    def optional_double(self, field: int) -> float | None:
        value: float | None = self._fields.get(field << 4 | DOUBLE)
        return value

    def binary(self, field: int) -> bytes:
        value: bytes = self._required(field, BINARY)
        return value

    def optional_binary(self, field: int) -> bytes | None:
        value: bytes | None = self._fields.get(field << 4 | BINARY)
        return value

    def text(self, field: int) -> str:
        return _text(self.binary(field))

    def optional_text(self, field: int) -> str | None:
        value = self.optional_binary(field)
        return None if value is None else _text(value)

    def struct(self, field: int) -> Struct:
        value: Struct = self._required(field, STRUCT)
        return value

    def optional_struct(self, field: int) -> Struct | None:
        value: Struct | None = self._fields.get(field << 4 | STRUCT)
        return value

    def _list_of(self, field: int, kind: type) -> list[Any]:
        values: list[Any] | None = self._fields.get(field << 4 | LIST)
        if values is None:
            return self._refuse(field, LIST) if field in self else []
        # One value is the commonest list, and a set dearer than a loop.
        for found in map(type, values) if len(values) < 4 else set(map(type, values)):
            if found is not kind:
                raise ThriftError(f"field {field} lists {found.__name__}, not {kind.__name__}")
        return values

    def structs(self, field: int) -> list[Struct]:
        """The list in the field; an absent list is empty."""
        return self._list_of(field, Struct)

    def integers(self, field: int) -> list[int]:
        return self._list_of(field, int)

    def booleans(self, field: int) -> list[bool]:
        return self._list_of(field, bool)

    def binaries(self, field: int) -> list[bytes]:
        return self._list_of(field, bytes)

    def texts(self, field: int) -> list[str]:
        return [_text(value) for value in self._list_of(field, bytes)]


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ThriftError(f"not UTF-8: {value[:40]!r}") from error


def parse(data: bytes, position: int = 0, field: int = 0) -> Struct:
    """The struct that starts at `position`; what follows it is not looked at.

    With `field`, what is left of a struct whose fields up to that id were before `position`.
    """
    try:
        return _read_struct(data, position, 0, field)
    except (IndexError, struct.error) as error:
        raise Truncated("the bytes end inside a value") from error


class Span(NamedTuple):
    """The position of a field of a struct: its header at `[start, value)`, its value at `[value, end)`."""

    field: int
    kind: int
    start: int
    value: int
    end: int


def spans(data: bytes, position: int = 0) -> tuple[list[Span], int]:
    """The spans of the fields of the struct at `position`, in order, and the end of the struct."""
    found: list[Span] = []
    field = 0
    try:
        while data[position]:
            start = position
            kind = data[position] & 0x0F
            position += 1
            if data[start] >> 4:
                field += data[start] >> 4
            else:
                number, position = _read_varint(data, position)
                field = (number >> 1) ^ -(number & 1)
            value = position
            if kind not in (TRUE, FALSE):
                _, position = _read_value(data, position, kind, 0)
            found.append(Span(field, kind, start, value, position))
    except (IndexError, struct.error) as error:
        raise Truncated("the bytes end inside a value") from error
    return found, position + 1


def rewrite(data: bytes, position: int, fields: Mapping[int, tuple[int, bytes] | None]) -> bytes:
    """The struct at `position` with these fields, each of a kind and an encoded value, or without those that are None.

    All other bytes stay as they are, but for the header of a field that follows on another one than before, since
    headers count from the field before them.

    >>> writer = Writer()
    >>> writer.integer32(1, 7)
    >>> writer.binary(4, b"name")
    >>> changed = rewrite(writer.finish(), 0, {2: (BINARY, b"\\x01x"), 4: None})
    >>> parse(changed).binary(2), 4 in parse(changed)
    (b'x', False)
    """
    writer = Writer()
    left = {field: value for field, value in fields.items() if value is not None}
    before = 0  # the field before, in the bytes as they are
    found, _ = spans(data, position)
    for span in found:
        for field in sorted(left):
            if field < span.field:
                writer.raw(field, *left.pop(field))
        if span.field not in fields:
            writer.copied(span, before, data)
        elif span.field in left:
            writer.raw(span.field, *left.pop(span.field))
        before = span.field
    for field in sorted(left):
        writer.raw(field, *left[field])
    return writer.finish()


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    if byte < 0x80:
        return byte, position
    result = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ThriftError("a number of more than 64 bits")
    if result >> 64:
        raise ThriftError("a number of more than 64 bits")
    return result, position


def _read_struct(data: bytes, start: int, depth: int, field: int = 0) -> Struct:
    if depth > MAX_DEPTH:
        raise ThriftError(f"structs nested deeper than {MAX_DEPTH}")
    fields: dict[int, Any] = {}
    position = start
    while True:
        header = data[position]
        position += 1
        if header == 0:
            return Struct(fields, start, position)
        kind = header & 0x0F
        if header >> 4:
            field += header >> 4
        else:
            number, position = _read_varint(data, position)
            field = (number >> 1) ^ -(number & 1)
        # The kinds in the order Parquet's metadata uses them; the most frequent ones without a call.
        if kind in _INTEGERS:
            number = data[position]
            if number < 0x80:
                position += 1
            else:
                number, position = _read_varint(data, position)
            fields[field << 4 | kind] = (number >> 1) ^ -(number & 1)
        elif kind == TRUE:
            fields[field << 4 | TRUE] = True
        elif kind == FALSE:
            fields[field << 4 | TRUE] = False
        else:
            fields[field << 4 | kind], position = _read_value(data, position, kind, depth)


def _read_value(data: bytes, position: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind == BINARY:
        size, position = _read_varint(data, position)
        end = position + size
        if end > len(data):
            raise Truncated(f"a binary of {size} bytes where {len(data) - position} are left")
        return data[position:end], end
    if kind == STRUCT:
        value = _read_struct(data, position, depth + 1)
        return value, value.end
    if kind in (LIST, SET):
        return _read_list(data, position, depth + 1)
    if kind in _INTEGERS:
        number, position = _read_varint(data, position)
        return (number >> 1) ^ -(number & 1), position
    if kind == DOUBLE:
        return struct.unpack_from("<d", data, position)[0], position + 8
    if kind in (TRUE, FALSE):
        # In a collection a boolean takes a byte: 1 true; false is 2 by the specification, 0 by some writers.
        return data[position] == 1, position + 1
    if kind == BYTE:
        return struct.unpack_from("<b", data, position)[0], position + 1
    if kind == MAP:
        return _skip_map(data, position, depth + 1)
    if kind == UUID:
        if position + 16 > len(data):
            raise Truncated("the bytes end inside a UUID")
        return data[position : position + 16], position + 16
    raise ThriftError(f"unknown type {kind}")


def _read_list(data: bytes, position: int, depth: int) -> tuple[list[Any], int]:
    if depth > MAX_DEPTH:
        raise ThriftError(f"lists nested deeper than {MAX_DEPTH}")
    header = data[position]
    position += 1
    kind = header & 0x0F
    size = header >> 4
    if size == 15:
        size, position = _read_varint(data, position)
    # Every element takes a byte at least, so a wrong size is caught before memory is allocated for it.
    if size > len(data) - position:
        raise Truncated(f"a list of {size} elements where {len(data) - position} bytes are left")
    if kind in _INTEGERS:
        return _read_integers(data, position, size)
    if kind == BINARY:
        return _read_binaries(data, position, size)
    if kind in (TRUE, FALSE):
        return [byte == 1 for byte in data[position : position + size]], position + size
    values: list[Any] = []
    for _ in range(size):
        value, position = _read_value(data, position, kind, depth)
        values.append(value)
    return values, position


def _read_integers(data: bytes, position: int, size: int) -> tuple[list[Any], int]:
    if size >= _MANY:
        numbers, ends = varints(data, position, size)
        return signed(numbers).tolist(), int(ends[-1]) + 1
    values = []
    for _ in range(size):
        number = data[position]
        if number < 0x80:
            position += 1
        else:
            number, position = _read_varint(data, position)
        values.append((number >> 1) ^ -(number & 1))
    return values, position


def _read_binaries(data: bytes, position: int, size: int) -> tuple[list[Any], int]:
    if size >= _MANY:
        width = data[position]
        end = position + size * (width + 1)
        # Values of one width, as those of most types are, are at a fixed stride, each after its length.
        if width < 0x80 and end <= len(data) and data[position : end : width + 1].count(width) == size:
            return [value for (value,) in struct.iter_unpack(f"x{width}s", data[position:end])], end
    values = []
    limit = len(data)
    for _ in range(size):
        length = data[position]
        if length < 0x80:
            position += 1
        else:
            length, position = _read_varint(data, position)
        end = position + length
        if end > limit:
            raise Truncated(f"a binary of {length} bytes where {limit - position} are left")
        values.append(data[position:end])
        position = end
    return values, position


def varints(data: bytes, position: int, count: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """That many unsigned numbers one after the other, and the place of the last byte of each.

    >>> numbers, ends = varints(bytes.fromhex("07ac0200"), 0, 3)
    >>> numbers.tolist(), ends.tolist()
    ([7, 300, 0], [0, 2, 3])
    """
    # A number takes 10 bytes at most; the last one is the one without the high bit.
    window = np.frombuffer(data, dtype=np.uint8, offset=position, count=min(10 * count, len(data) - position))
    ends = np.flatnonzero(window < 0x80)[:count]
    if len(ends) < count:
        if len(window) == 10 * count:
            raise ThriftError("a number of more than 64 bits")
        raise Truncated("the bytes end inside a value")
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > 10 or (longest == 10 and window[ends[lengths == 10]].max() > 1):
        raise ThriftError("a number of more than 64 bits")
    numbers = (window[starts] & 0x7F).astype(np.uint64)
    for byte in range(1, longest):
        longer = np.flatnonzero(lengths > byte)
        numbers[longer] |= (window[starts[longer] + byte] & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
    return numbers, ends + position


def signed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Undoes zigzag: 0, 1, 2, 3 … are 0, -1, 1, -2 …"""
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)


def _skip_map(data: bytes, position: int, depth: int) -> tuple[None, int]:
    # parquet.thrift has no map; one may come from a later version and must not stop the reader.
    if depth > MAX_DEPTH:
        raise ThriftError(f"maps nested deeper than {MAX_DEPTH}")
    size, position = _read_varint(data, position)
    if size == 0:
        return None, position
    kinds = data[position]
    position += 1
    if size > len(data) - position:
        raise Truncated(f"a map of {size} entries where {len(data) - position} bytes are left")
    for _ in range(size):
        _, position = _read_value(data, position, kinds >> 4, depth)
        _, position = _read_value(data, position, kinds & 0x0F, depth)
    return None, position


def varint(number: int) -> bytes:
    """An unsigned number, seven bits a byte, low bits first.

    >>> varint(300).hex()
    'ac02'
    """
    if number < 0x80:
        return bytes((number,))
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def zigzag(number: int) -> bytes:
    """A signed 64-bit number: 0, -1, 1, -2 … become 0, 1, 2, 3 …, then a varint."""
    value = (number << 1) ^ (number >> 63)
    parts = b""
    while value >= 0x80:
        parts += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return parts + bytes((value,))


def list_header(kind: int, size: int) -> bytes:
    """The bytes before the elements of a list."""
    return bytes((size << 4 | kind,)) if size < 15 else bytes((0xF0 | kind,)) + varint(size)


class Writer:
    """Writes one struct, field after field by ascending id; `finish` ends it and returns its bytes."""

    __slots__ = ("_bytes", "_last", "_outer")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._last = 0
        self._outer: list[int] = []

    def _header(self, field: int, kind: int) -> None:
        delta = field - self._last
        if 0 < delta < 16:
            self._bytes.append(delta << 4 | kind)
        else:
            self._bytes.append(kind)
            self._bytes += zigzag(field)
        self._last = field

    def boolean(self, field: int, value: bool) -> None:
        self._header(field, TRUE if value else FALSE)

    def integer32(self, field: int, value: int) -> None:
        self._header(field, I32)
        self._bytes += zigzag(value)

    def integer64(self, field: int, value: int) -> None:
        self._header(field, I64)
        self._bytes += zigzag(value)

    def double(self, field: int, value: float) -> None:
        self._header(field, DOUBLE)
        self._bytes += struct.pack("<d", value)

    def binary(self, field: int, value: bytes) -> None:
        self._header(field, BINARY)
        self._bytes += varint(len(value))
        self._bytes += value

    def integers(self, field: int, values: list[int], kind: int = I32) -> None:
        self.elements(field, kind, [zigzag(value) for value in values])

    def binaries(self, field: int, values: list[bytes]) -> None:
        self.elements(field, BINARY, [varint(len(value)) + value for value in values])

    def structs(self, field: int, values: list[bytes]) -> None:
        """A list of structs that are encoded already, each with its end."""
        self.elements(field, STRUCT, values)

    def elements(self, field: int, kind: int, values: list[bytes]) -> None:
        """A list of values of one kind that are encoded already."""
        self._header(field, LIST)
        self._bytes += list_header(kind, len(values))
        for value in values:
            self._bytes += value

    def raw(self, field: int, kind: int, value: bytes) -> None:
        """A field whose value is encoded already."""
        self._header(field, kind)
        self._bytes += value

    def copied(self, span: Span, before: int, data: bytes) -> None:
        """A field as it is in `data`, where it follows on the field `before`."""
        if before == self._last:
            self._bytes += data[span.start : span.end]
            self._last = span.field
        else:
            self.raw(span.field, span.kind, data[span.value : span.end])

    def begin(self, field: int) -> None:
        """Begin a struct in the field."""
        self._header(field, STRUCT)
        self._outer.append(self._last)
        self._last = 0

    def end(self) -> None:
        self._bytes.append(0)
        self._last = self._outer.pop()

    def unfinished(self) -> bytes:
        """The bytes so far, without the end of the struct: fields with higher ids can follow."""
        return bytes(self._bytes)

    def finish(self) -> bytes:
        return bytes(self._bytes) + b"\0"
