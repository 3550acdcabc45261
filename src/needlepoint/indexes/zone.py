"""Zone bounds: the least and greatest value and the NULLs of each column, here for a whole file.

They come from the statistics of the column chunks. Only what the format defines safely is used: not the deprecated
min/max fields, not INT96, not half floats. Anything missing in one row group makes the bound of the file unknown.
"""

from __future__ import annotations

import math
import struct

import pyarrow as pa

from needlepoint.parquet.card import FileCard
from needlepoint.predicate import Bounds, Ordinal
from needlepoint.tables.schemas import plain

# parquet.thrift, Type
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY, _FIXED = 0, 1, 2, 4, 5, 6, 7

LONGEST_BOUND = 64


def file_bounds(card: FileCard) -> dict[str, Bounds]:
    """Bounds of the flat top-level columns of a file."""
    found = {}
    for field in card.fields:
        if field.last_leaf != field.first_leaf + 1 or card.leaves[field.first_leaf].nested:
            continue
        type = plain(card.arrow_schema.field(field.name).type)
        found[field.name] = _column_bounds(card, field.first_leaf, type)
    return found


def _column_bounds(card: FileCard, leaf: int, type: pa.DataType) -> Bounds:
    physical = card.leaves[leaf].physical_type
    lows: list[Ordinal | None] = []
    highs: list[Ordinal | None] = []
    nulls: int | None = 0
    for group in range(card.num_row_groups):
        statistics = card.statistics(leaf, group)
        rows = int(card.row_group_rows[group + 1] - card.row_group_rows[group])
        nulls = None if nulls is None or statistics.null_count is None else nulls + statistics.null_count
        if statistics.null_count is not None and statistics.null_count >= rows:
            continue  # nothing but NULLs (or no rows): no bounds are written, and none are needed
        lows.append(_ordinal(statistics.min_value, type, physical))
        highs.append(_ordinal(statistics.max_value, type, physical))
    low = None if None in lows or not lows else min(lows)  # type: ignore[type-var]
    high = None if None in highs or not highs else max(highs)  # type: ignore[type-var]
    if low is not None and high is not None and low > high:  # type: ignore[operator]
        low = high = None  # nonsense, as some old writers produce for unsigned or empty chunks
    return Bounds(_shorten(low, up=False), _shorten(high, up=True), nulls, card.num_rows, pa.types.is_floating(type))


def _shorten(value: Ordinal | None, *, up: bool) -> Ordinal | None:
    """A long value's beginning bounds it from below, and the next greater beginning from above.

    >>> _shorten(b"b" * 100, up=True) == b"b" * 63 + b"c"
    True
    """
    if not isinstance(value, bytes) or len(value) <= LONGEST_BOUND:
        return value
    prefix = value[:LONGEST_BOUND]
    if not up:
        return prefix
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _ordinal(raw: bytes | None, type: pa.DataType, physical: int) -> Ordinal | None:
    """The value behind the bytes of a statistic, None when it is not there or not to be trusted."""
    if raw is None:
        return None
    try:
        return _decode(raw, type, physical)
    except struct.error:
        return None


def _decode(raw: bytes, type: pa.DataType, physical: int) -> Ordinal | None:
    if physical in (_FLOAT, _DOUBLE):
        number = float(struct.unpack("<f" if physical == _FLOAT else "<d", raw)[0])
        return None if math.isnan(number) else number
    if physical in (_INT32, _INT64) and _is_plain_integer(type):
        return int(struct.unpack(_INTEGER_FORMATS[physical, pa.types.is_unsigned_integer(type)], raw)[0])
    if physical == _BOOLEAN:
        return int(struct.unpack("<?", raw)[0])
    if pa.types.is_decimal(type) and physical in (_BYTE_ARRAY, _FIXED):
        return int.from_bytes(raw, "big", signed=True)
    if physical == _BYTE_ARRAY and (pa.types.is_string(type) or pa.types.is_binary(type)):
        return raw
    if physical == _FIXED and pa.types.is_fixed_size_binary(type):
        return raw
    return None


_INTEGER_FORMATS = {(_INT32, False): "<i", (_INT64, False): "<q", (_INT32, True): "<I", (_INT64, True): "<Q"}


def _is_plain_integer(type: pa.DataType) -> bool:
    """Types whose stored integer is the ordinal. date64 is stored in days but reads as milliseconds."""
    return bool(
        pa.types.is_integer(type)
        or pa.types.is_date32(type)
        or pa.types.is_time(type)
        or pa.types.is_timestamp(type)
        or pa.types.is_duration(type)
        or pa.types.is_decimal(type)
    )
