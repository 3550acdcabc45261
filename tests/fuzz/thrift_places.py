"""Positions of the values in a Thrift struct (compact protocol), so that a test can replace one of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from needlepoint.parquet.format.thrift import varint, zigzag

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS = (I16, I32, I64)


class Place(NamedTuple):
    """A value at `[start, end)`; the path consists of field ids and element numbers. For a list, the range covers its
    header; for a binary, its length and its bytes."""

    path: tuple[int, ...]
    kind: int
    start: int
    end: int


def places(data: bytes, start: int = 0) -> tuple[list[Place], int]:
    """All values of the struct that begins at `start`, and the end of the struct."""
    found: list[Place] = []
    return found, _struct(data, start, (), found)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def _struct(data: bytes, at: int, path: tuple[int, ...], found: list[Place]) -> int:
    field = 0
    while data[at]:
        header = data[at]
        at += 1
        kind = header & 15
        if header >> 4:
            field += header >> 4
        else:
            number, at = _varint(data, at)
            field = number >> 1
        if kind not in (TRUE, FALSE):
            at = _value(data, at, kind, (*path, field), found)
    return at + 1


def _value(data: bytes, at: int, kind: int, path: tuple[int, ...], found: list[Place]) -> int:
    start = at
    if kind == STRUCT:
        return _struct(data, at, path, found)
    if kind in _INTEGERS:
        _, at = _varint(data, at)
    elif kind == BINARY:
        size, at = _varint(data, at)
        at += size
    elif kind in (LIST, SET):
        size, element = data[at] >> 4, data[at] & 15
        at += 1
        if size == 15:
            size, at = _varint(data, at)
        found.append(Place(path, LIST, start, at))
        for number in range(size):
            at = _value(data, at, element, (*path, number), found)
        return at
    elif kind == DOUBLE:
        at += 8
    else:
        at += 1  # a boolean of a list, or a byte
    found.append(Place(path, kind, start, at))
    return at


def integer(data: bytes, place: Place) -> int:
    number, _ = _varint(data, place.start)
    return (number >> 1) ^ -(number & 1)


def exchanged(data: bytes, values: Mapping[Place, bytes]) -> bytes:
    """The data with the bytes at these places replaced."""
    for place in sorted(values, key=lambda place: -place.start):
        data = data[: place.start] + values[place] + data[place.end :]
    return data


def encoded(number: int) -> bytes:
    """A signed number, truncated to 64 bits."""
    return zigzag(struct.unpack("<q", struct.pack("<Q", number & (2**64 - 1)))[0])


def binary(value: bytes, claimed: int | None = None) -> bytes:
    return varint(len(value) if claimed is None else claimed) + value


def integers(found: list[Place]) -> Iterator[Place]:
    return (place for place in found if place.kind in _INTEGERS)
