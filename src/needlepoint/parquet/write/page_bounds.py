"""The column index of a chunk, computed from its values.

parquet.thrift, ColumnOrder and ColumnIndex, say how values compare and what may be written:

    integers, dates, times, timestamps, decimals in INT32 and INT64   signed, or unsigned where the type is
    floats       without NaN; a minimum of zero is -0.0, a maximum of zero +0.0
    decimals of fixed length                                          signed, big-endian
    strings, binaries, uuids                                          as unsigned bytes
    INT96, intervals, decimals of variable length, types of later versions   no bounds

A chunk that has a NaN gets no column index at all, as in parquet-mr: by the format bounds leave NaN out, and readers
for whom NaN is greater than every number would skip pages that hold it.
"""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.parquet.format import thrift
from needlepoint.parquet.format.footer import SchemaElement
from needlepoint.parquet.format.page_index import ColumnIndex, Int64Array

# Longer bounds of strings and binaries are cut, as every writer does.
LONGEST = 64

# parquet.thrift, Type
BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
_UNSIGNED = range(11, 15)  # ConvertedType, UINT_8 to UINT_64
_DECIMAL, _INTERVAL = 5, 21
_TEXTS = (0, 4, 19)  # UTF8, ENUM, JSON
# LogicalType, by the field of the union
_TEXT_TYPES, _DECIMAL_TYPE, _INTEGER_TYPE, _FLOAT16_TYPE = (1, 4, 12), 5, 10, 15
_NEWEST_KNOWN = 15  # VARIANT, GEOMETRY and what follows has no order that is known here

# ColumnIndex.boundary_order
UNORDERED, ASCENDING, DESCENDING = range(3)

Bound = tuple[Any, bytes]
"""How a bound compares, and how it is written."""


class SortOrder(enum.Enum):
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    HALF = "half"
    BYTES = "bytes"
    TEXT = "text"
    DECIMAL = "decimal"


def order_of(element: SchemaElement) -> SortOrder | None:
    """How the values of a column compare; None where that is undefined or not known."""
    fields = thrift.parse(element.raw)
    converted = fields.optional_integer32(6)
    logical = fields.optional_struct(10)
    member = 0
    if logical is not None:
        found, _ = thrift.spans(element.raw, logical.start)
        member = found[0].field if found else 0
    if member > _NEWEST_KNOWN or converted == _INTERVAL or (converted is not None and converted > _INTERVAL):
        return None
    match element.physical_type:
        case int(physical) if physical in (INT32, INT64):
            integer = logical.optional_struct(_INTEGER_TYPE) if logical is not None else None
            unsigned = integer is not None and integer.optional_boolean(2) is False
            return SortOrder.UNSIGNED if unsigned or converted in _UNSIGNED else SortOrder.SIGNED
        case int(physical) if physical in (FLOAT, DOUBLE):
            return SortOrder.FLOAT
        case int(physical) if physical == BOOLEAN:
            return SortOrder.SIGNED
        case int(physical) if physical in (BYTE_ARRAY, FIXED):
            if member == _FLOAT16_TYPE:
                return SortOrder.HALF if element.type_length == 2 else None
            if member == _DECIMAL_TYPE or converted == _DECIMAL:
                return SortOrder.DECIMAL if physical == FIXED else None
            text = physical == BYTE_ARRAY and (member in _TEXT_TYPES or converted in _TEXTS)
            return SortOrder.TEXT if text else SortOrder.BYTES
    return None


def column_index(values: pa.ChunkedArray, order: SortOrder, first_rows: Int64Array) -> ColumnIndex | None:
    """The column index of a chunk with these values, whose pages begin at these rows; None where there can be none.

    >>> values = pa.chunked_array([pa.array([3, None, 1, None, None, 9])])
    >>> index = column_index(values, SortOrder.SIGNED, np.array([0, 3, 5]))
    >>> index.null_pages.tolist(), index.null_counts.tolist()
    ([False, True, False], [1, 2, 0])
    >>> [int.from_bytes(low, "little") for low in index.min_values], index.boundary_order == ASCENDING
    ([1, 0, 9], True)
    """
    valid = values.is_valid().combine_chunks().to_numpy(zero_copy_only=False).astype(np.bool_)
    rows = np.diff(first_rows, append=len(values))
    null_counts = rows - np.add.reduceat(valid.astype(np.int64), first_rows)
    null_pages = null_counts == rows
    bounds = _BOUNDS[order](values, valid, first_rows, null_pages)
    if bounds is None:
        return None
    lows, highs = ([each if not null else None for each, null in zip(side, null_pages, strict=True)] for side in bounds)
    return ColumnIndex(
        null_pages=null_pages,
        min_values=tuple(b"" if low is None else low[1] for low in lows),
        max_values=tuple(b"" if high is None else high[1] for high in highs),
        boundary_order=_boundary_order(lows, highs),
        null_counts=null_counts,
    )


def _boundary_order(lows: Sequence[Bound | None], highs: Sequence[Bound | None]) -> int:
    pairs = [(low[0], high[0]) for low, high in zip(lows, highs, strict=True) if low is not None and high is not None]
    steps = list(itertools.pairwise(pairs))
    if pairs and all(before[0] <= after[0] and before[1] <= after[1] for before, after in steps):
        return ASCENDING
    if pairs and all(before[0] >= after[0] and before[1] >= after[1] for before, after in steps):
        return DESCENDING
    return UNORDERED


Sides = tuple[list[Bound], list[Bound]] | None
_Numbers = npt.NDArray[Any]


def _reduced(numbers: _Numbers, valid: npt.NDArray[np.bool_], first_rows: Int64Array) -> tuple[_Numbers, _Numbers]:
    """Least and greatest of each page; NULLs are passed over as the greatest and the least number there is."""
    if numbers.dtype.kind == "f":
        least, greatest = -np.inf, np.inf
    else:
        least, greatest = np.iinfo(numbers.dtype).min, np.iinfo(numbers.dtype).max
    low = np.minimum.reduceat(np.where(valid, numbers, numbers.dtype.type(greatest)), first_rows)
    high = np.maximum.reduceat(np.where(valid, numbers, numbers.dtype.type(least)), first_rows)
    return low, high


def _numbers(values: pa.ChunkedArray) -> _Numbers:
    """The numbers as stored, whatever stands in the place of NULLs."""
    array = values.combine_chunks()
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    elif pa.types.is_fixed_size_binary(array.type):
        # Half floats: two bytes each
        return np.frombuffer(array.buffers()[1], np.dtype("<f2"))[array.offset : array.offset + len(array)]
    filled: _Numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    return filled


def _integer_bounds(unsigned: bool) -> Callable[..., Sides]:
    def bounds(values: pa.ChunkedArray, valid: Any, first_rows: Int64Array, null_pages: Any) -> Sides:
        numbers = _numbers(values)
        if unsigned:
            numbers = numbers.view(f"u{numbers.dtype.itemsize}")
        low, high = _reduced(numbers, valid, first_rows)
        return _pairs(low), _pairs(high)

    return bounds


def _cut(numbers: _Numbers) -> list[bytes]:
    """Each number as it is stored: PLAIN, little-endian."""
    width = numbers.dtype.itemsize
    data = numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()
    return [value for (value,) in struct.iter_unpack(f"{width}s", data)]


def _float_bounds(values: pa.ChunkedArray, valid: Any, first_rows: Int64Array, null_pages: Any) -> Sides:
    numbers = _numbers(values)
    if np.isnan(numbers[valid]).any():
        return None
    low, high = _reduced(numbers, valid, first_rows)
    # parquet.thrift, ColumnOrder: a reader must not have to know which zero it was.
    low[low == 0] = -0.0
    high[high == 0] = 0.0
    return _pairs(low), _pairs(high)


def _pairs(numbers: _Numbers) -> list[Bound]:
    return [*zip(numbers.tolist(), _cut(numbers), strict=True)]


def _least_and_greatest(values: pa.ChunkedArray, first_rows: Int64Array) -> tuple[list[bytes], list[bytes]]:
    """Of each page by unsigned bytes; b"" for a page of NULLs."""
    pages = np.repeat(np.arange(len(first_rows)), np.diff(first_rows, append=len(values)))
    table = pa.table({"page": pages, "value": values})
    # One thread keeps the groups in the order they are met.
    found = table.group_by("page", use_threads=False).aggregate([("value", "min"), ("value", "max")])
    lows, highs = ([value or b"" for value in found.column(name).to_pylist()] for name in ("value_min", "value_max"))
    return lows, highs


def _binary_bounds(text: bool) -> Callable[..., Sides]:
    def bounds(values: pa.ChunkedArray, valid: Any, first_rows: Int64Array, null_pages: Any) -> Sides:
        fixed = pa.types.is_fixed_size_binary(values.type)
        lows, highs = _least_and_greatest(values.cast(pa.large_binary()), first_rows)
        if not fixed:
            lows, highs = [shortened(low, text=text) for low in lows], [raised(high, text=text) for high in highs]
        return [(low, low) for low in lows], [(high, high) for high in highs]

    return bounds


def _decimal_bounds(values: pa.ChunkedArray, valid: Any, first_rows: Int64Array, null_pages: Any) -> Sides:
    """Big-endian numbers in two's complement compare as bytes once their sign bits are turned."""
    array = values.combine_chunks()
    width = array.type.byte_width
    start = array.offset * width
    data = np.frombuffer(array.buffers()[1], np.uint8)[start : start + len(array) * width].reshape(-1, width).copy()
    data[:, 0] ^= 0x80
    turned = pa.FixedSizeBinaryArray.from_buffers(array.type, len(array), [None, pa.py_buffer(data)])
    masked = pc.if_else(pa.array(valid), turned, pa.scalar(None, array.type))
    lows, highs = _least_and_greatest(pa.chunked_array([masked]).cast(pa.large_binary()), first_rows)
    low, high = ([(each, _turned(each)) for each in side] for side in (lows, highs))
    return low, high


def _turned(value: bytes) -> bytes:
    return bytes((value[0] ^ 0x80,)) + value[1:] if value else value


_BOUNDS: dict[SortOrder, Callable[..., Sides]] = {
    SortOrder.SIGNED: _integer_bounds(unsigned=False),
    SortOrder.UNSIGNED: _integer_bounds(unsigned=True),
    SortOrder.FLOAT: _float_bounds,
    SortOrder.HALF: _float_bounds,
    SortOrder.BYTES: _binary_bounds(text=False),
    SortOrder.TEXT: _binary_bounds(text=True),
    SortOrder.DECIMAL: _decimal_bounds,
}


def shortened(value: bytes, *, text: bool) -> bytes:
    """A short value that is not above this one; of a text, a text.

    >>> shortened(b"x" * 100, text=True) == b"x" * 64, shortened(b"x" * 63 + "é".encode(), text=True) == b"x" * 63
    (True, True)
    """
    if len(value) <= LONGEST:
        return value
    cut = value[:LONGEST]
    return cut.decode(errors="ignore").encode() if text and _is_text(value) else cut


def raised(value: bytes, *, text: bool) -> bytes:
    """A short value that is not below this one: its beginning with the last letter or byte that can grow one greater.

    >>> raised(b"x" * 100, text=True) == b"x" * 63 + b"y", raised(b"\\xff" * 100, text=False) == b"\\xff" * 100
    (True, True)
    """
    if len(value) <= LONGEST:
        return value
    if text and _is_text(value):
        letters = value[:LONGEST].decode(errors="ignore")
        for end in range(len(letters), 0, -1):
            following = ord(letters[end - 1]) + 1
            following = 0xE000 if following == 0xD800 else following  # surrogates are no letters
            if following <= 0x10FFFF:
                return (letters[: end - 1] + chr(following)).encode()
        return value
    for end in range(LONGEST, 0, -1):
        if value[end - 1] < 0xFF:
            return value[: end - 1] + bytes((value[end - 1] + 1,))
    return value


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
