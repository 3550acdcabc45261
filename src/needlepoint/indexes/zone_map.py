"""Zone maps: the least and greatest value and the NULLs of a column, in the row groups and pages of a file.

They come from the statistics of the column chunks and from the column index. Only what the format defines safely is
used: the deprecated min and max only where their signed order is the type's, not INT96, not half floats, no bounds
whose low is above their high. What is missing is not known, which every reader takes as "maybe".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.parquet import FileCard, FileDescription, array_container
from needlepoint.parquet.format import ColumnIndex, Int64Array, Statistics
from needlepoint.predicate import Bounds, Ordinal, Zone, after
from needlepoint.tables import plain

# parquet.thrift, Type
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY, _FIXED = 0, 1, 2, 4, 5, 6, 7

LONGEST_BOUND = 64

Raw = bytes | None
"""A bound as the file has it."""


@dataclass(frozen=True, slots=True, eq=False)
class ZoneMap:
    """The bounds of one column of one file, in the file's unit. `group_rows` and `page_rows` are first rows, then the
    number of rows."""

    group_rows: Int64Array
    groups: Zone
    page_rows: Int64Array
    pages: Zone

    def file_bounds(self) -> Bounds:
        """The bounds of the whole file: known where those of each row group are that holds any values."""
        groups, rows = self.groups, int(self.group_rows[-1])
        nan = bool(groups.nan.any())
        if groups.all_null.all():
            return Bounds(None, None, rows, rows, nan)
        # Exactly how many NULLs there are makes no difference, only whether there are any, and nothing else.
        nulls = 0 if groups.no_null.all() else None
        if not (groups.known | groups.all_null).all():
            return Bounds(None, None, nulls, rows, nan)
        return Bounds(_plain(groups.low[groups.known].min()), _plain(groups.high[groups.known].max()), nulls, rows, nan)

    def scaled(self, factor: int) -> ZoneMap:
        """The same bounds in a unit so many times finer."""
        if factor == 1:
            return self
        return replace(self, groups=_scaled(self.groups, factor), pages=_scaled(self.pages, factor))

    def to_bytes(self) -> bytes:
        kind, arrays, blobs = _stored([self.groups, self.pages])
        header = {"kind": kind, "ordered": [_order(self.groups), _order(self.pages)]}
        flags = [_flags(zone) for zone in (self.groups, self.pages)]
        return array_container.pack(header, [self.group_rows, self.page_rows, *flags, *arrays], blobs)

    @classmethod
    def from_bytes(cls, data: bytes) -> ZoneMap:
        """What `to_bytes` wrote; CardCorrupt (a ValueError) when the bytes are something else."""
        header, arrays, blobs = array_container.unpack(data)
        try:
            return cls._restored(header, arrays, blobs)
        except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
            raise array_container.CardCorrupt(f"the zone map cannot be read: {error}") from error

    @classmethod
    def _restored(cls, header: dict[str, Any], arrays: list[Int64Array], blobs: list[bytes]) -> ZoneMap:
        group_rows, page_rows, group_flags, page_flags, *bounds = arrays
        low, high = _restored(header["kind"], bounds, blobs)
        split, count = len(group_flags), len(group_flags) + len(page_flags)
        if {len(low), len(high)} != {count} or len(group_rows) != split + 1 or len(page_rows) != len(page_flags) + 1:
            raise ValueError("groups or pages are not as many as they should be")
        if (np.diff(group_rows) < 0).any() or (np.diff(page_rows) < 0).any() or group_rows[-1] != page_rows[-1]:
            raise ValueError("rows are counted wrongly")
        ordered = header["ordered"]
        groups = _zone_of(low[:split], high[:split], group_flags, ordered[0])
        pages = _zone_of(low[split:], high[split:], page_flags, ordered[1])
        if pages.all_null.any():
            # Earlier versions took pages without statistics for pages of NULLs. If the row group has no statistics
            # either, do not trust that.
            described = (groups.known | groups.all_null)[np.searchsorted(group_rows, page_rows[:-1], side="right") - 1]
            pages = replace(pages, all_null=pages.all_null & described)
        return cls(group_rows, groups, page_rows, pages)


def zone_maps(description: FileDescription) -> dict[str, ZoneMap]:
    """The zone maps of the flat top-level columns that have statistics."""
    card = description.card
    found = {}
    for field in card.fields:
        if field.last_leaf != field.first_leaf + 1 or card.leaves[field.first_leaf].nested:
            continue
        leaf = field.first_leaf
        decoder = _Decoder(plain(card.arrow_schema.field(field.name).type), card.leaves[leaf].physical_type)
        groups = _group_zone(card, leaf, decoder)
        page_rows = np.append(card.pages.first_row[card.leaf_pages(leaf)], card.num_rows)
        pages = _page_zone(description, leaf, page_rows, decoder)
        if any(zone.known.any() or zone.all_null.any() or zone.no_null.any() for zone in (groups, pages)):
            found[field.name] = ZoneMap(card.row_group_rows, groups, page_rows, pages)
    return found


def _group_zone(card: FileCard, leaf: int, decoder: _Decoder) -> Zone:
    statistics = [card.statistics(leaf, group) for group in range(card.num_row_groups)]
    nulls = np.array([-1 if each.null_count is None else each.null_count for each in statistics], np.int64)
    rows = np.diff(card.row_group_rows)
    lows = [decoder.low_of(each) for each in statistics]
    highs = [decoder.high_of(each) for each in statistics]
    all_null = nulls >= rows
    for group in np.flatnonzero(all_null & (rows > 0)):
        if lows[group] is not None or highs[group] is not None:
            # Only NULLs, and bounds: a contradiction, so trust neither.
            lows[group] = highs[group] = None
            all_null[group] = False
    return decoder.zone(lows, highs, all_null=all_null, no_null=nulls == 0)


def _page_zone(description: FileDescription, leaf: int, page_rows: Int64Array, decoder: _Decoder) -> Zone:
    card = description.card
    lows: list[Raw] = []
    highs: list[Raw] = []
    all_null, no_null = (np.zeros(len(page_rows) - 1, np.bool_) for _ in range(2))
    for group in range(card.num_row_groups):
        chunk = card.chunk_index(leaf, group)
        count = int(card.page_starts[chunk + 1] - card.page_starts[chunk])
        index = description.page_bounds[chunk]
        here = slice(len(lows), len(lows) + count)
        if index is None:
            lows += [None] * count
            highs += [None] * count
            continue
        lows += _unless_null(index.min_values, index)
        highs += _unless_empty(_unless_null(index.max_values, index), card.statistics(leaf, group))
        all_null[here] = index.null_pages
        if index.null_counts is not None:
            no_null[here] = (index.null_counts == 0) & ~index.null_pages
    return decoder.zone(lows, highs, all_null=all_null, no_null=no_null)


def _unless_null(values: Sequence[bytes], index: ColumnIndex) -> list[Raw]:
    return [None if null else value for value, null in zip(values, index.null_pages.tolist(), strict=True)]


def _unless_empty(highs: Sequence[Raw], chunk: Statistics) -> list[Raw]:
    """Only empty strings have the upper bound "". If the chunk has none, an empty bound means an unknown bound."""
    return [None if high == b"" and chunk.min_value != b"" else high for high in highs]


class _Decoder:
    """From the bytes of bounds to ordinals, many at once."""

    def __init__(self, type: pa.DataType, physical: int) -> None:
        self._type = type
        self._physical = physical
        self._numbers = _number_format(type, physical)
        self._nan = bool(pa.types.is_floating(type))

    def low_of(self, statistics: Statistics) -> Raw:
        legacy = self._signed and statistics.min_value is None and statistics.max_value is None
        return statistics.legacy_min if legacy else statistics.min_value

    def high_of(self, statistics: Statistics) -> Raw:
        legacy = self._signed and statistics.min_value is None and statistics.max_value is None
        return statistics.legacy_max if legacy else statistics.max_value

    @property
    def _signed(self) -> bool:
        """Whether the order of the deprecated bounds, signed numbers, is the order of the type."""
        return self._numbers is not None and self._numbers[1] != "u"

    def zone(
        self,
        lows: Sequence[Raw],
        highs: Sequence[Raw],
        *,
        all_null: npt.NDArray[np.bool_],
        no_null: npt.NDArray[np.bool_],
    ) -> Zone:
        low, low_known = self._ordinals(lows, up=False)
        high, high_known = self._ordinals(highs, up=True)
        nan = np.full(len(low), self._nan)
        known = low_known & high_known & ~all_null
        if not known.any():
            nothing = Zone.unknown(len(low))
            return Zone(nothing.low, nothing.high, nothing.known, all_null, no_null, nan)
        if low.dtype != high.dtype:  # some beyond 64 bits
            low, high = low.astype(object), high.astype(object)
        low, high = _filled(low, known), _filled(high, known)
        sane = low <= high
        if not sane.all():
            # Some old writers produce this for unsigned or empty chunks: trust none of it.
            return Zone(low, low, np.zeros(len(low), np.bool_), all_null, no_null, nan)
        ordered = bool((low[1:] >= low[:-1]).all() and (high[1:] >= high[:-1]).all())
        descending = not ordered and bool((low[1:] <= low[:-1]).all() and (high[1:] <= high[:-1]).all())
        return Zone(low, high, known, all_null, no_null, nan, ordered, descending)

    def _ordinals(self, values: Sequence[Raw], *, up: bool) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        if self._numbers is not None:
            return _numbers_of(values, np.dtype(self._numbers))
        one = self._one_decimal if pa.types.is_decimal(self._type) else self._one_binary
        found = [None if value is None else one(value, up) for value in values]
        known = np.array([value is not None for value in found], np.bool_)
        filler = next((value for value in found if value is not None), 0)
        complete = [filler if value is None else value for value in found]
        if all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in complete):
            return np.array(complete, np.int64), known
        array = np.empty(len(complete), object)
        array[:] = complete
        return array, known

    def _one_decimal(self, value: bytes, up: bool) -> Ordinal | None:
        return int.from_bytes(value, "big", signed=True) if self._physical in (_BYTE_ARRAY, _FIXED) and value else None

    def _one_binary(self, value: bytes, up: bool) -> Ordinal | None:
        text = pa.types.is_string(self._type) or pa.types.is_binary(self._type)
        if (self._physical == _BYTE_ARRAY and text) or (
            self._physical == _FIXED and pa.types.is_fixed_size_binary(self._type)
        ):
            return _shorten(value, up=up)
        return None


def _number_format(type: pa.DataType, physical: int) -> str | None:
    """How numpy reads a bound of this type; None where a bound is no plain number.

    date64 is stored in days but reads as milliseconds, so it is not among them.
    """
    if physical == _FLOAT and pa.types.is_floating(type):
        return "<f4"
    if physical == _DOUBLE and pa.types.is_floating(type):
        return "<f8"
    if physical == _BOOLEAN and pa.types.is_boolean(type):
        return "|i1"
    whole = (pa.types.is_integer, pa.types.is_date32, pa.types.is_time, pa.types.is_timestamp, pa.types.is_duration,
             pa.types.is_decimal)  # fmt: skip
    if physical not in (_INT32, _INT64) or not any(is_one(type) for is_one in whole):
        return None
    sign = "u" if pa.types.is_unsigned_integer(type) else "i"
    return f"<{sign}{4 if physical == _INT32 else 8}"


def _numbers_of(values: Sequence[Raw], kind: np.dtype[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    width = kind.itemsize
    known = np.array([value is not None and len(value) == width for value in values], np.bool_)
    zero = bytes(width)
    joined = b"".join(value if value is not None and len(value) == width else zero for value in values)
    numbers = np.frombuffer(joined, kind)
    if kind.kind == "f":
        known &= ~np.isnan(numbers)
        return np.where(known, numbers, 0).astype(np.float64), known
    if kind == np.dtype("<u8") and len(numbers) and int(numbers.max()) >= 1 << 63:
        return numbers.astype(object), known
    return numbers.astype(np.int64), known


def _filled(values: npt.NDArray[Any], known: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """What is not known takes the value before it, or the first that is known: an order is kept."""
    if known.all():
        return values
    places = np.where(known, np.arange(len(values)), -1)
    return values[np.where((filled := np.maximum.accumulate(places)) < 0, np.argmax(known), filled)]


def _shorten(value: bytes, *, up: bool) -> bytes | None:
    """A long value's beginning bounds it from below, and the next greater beginning from above.

    >>> _shorten(b"b" * 100, up=True) == b"b" * 63 + b"c"
    True
    """
    if len(value) <= LONGEST_BOUND:
        return value
    prefix = value[:LONGEST_BOUND]
    if not up:
        return prefix
    return after(prefix)


def _scaled(zone: Zone, factor: int) -> Zone:
    low, high, most = zone.low, zone.high, (2**63 - 1) // factor
    if len(low) and (low.min() < -most or high.max() > most):
        low, high = low.astype(object), high.astype(object)
    return replace(zone, low=low * factor, high=high * factor)


def _plain(value: Any) -> Ordinal:
    """Python's own number for numpy's."""
    ordinal: Ordinal = value.item() if isinstance(value, np.generic) else value
    return ordinal


# How a zone map is stored: integers as they are, floats as their bits, binaries as lengths and bytes, integers beyond
# 64 bits as decimal text.

_KNOWN, _ALL_NULL, _NO_NULL, _NAN = 1, 2, 4, 8


def _flags(zone: Zone) -> Int64Array:
    flags: Int64Array = zone.known * _KNOWN + zone.all_null * _ALL_NULL + zone.no_null * _NO_NULL + zone.nan * _NAN
    return flags


def _order(zone: Zone) -> int:
    return 1 if zone.ordered else -1 if zone.descending else 0


def _zone_of(low: npt.NDArray[Any], high: npt.NDArray[Any], flags: Int64Array, order: int) -> Zone:
    return Zone(
        low,
        high,
        (flags & _KNOWN) > 0,
        (flags & _ALL_NULL) > 0,
        (flags & _NO_NULL) > 0,
        (flags & _NAN) > 0,
        ordered=order == 1,
        descending=order == -1,
    )


def _stored(zones: Sequence[Zone]) -> tuple[str, list[Int64Array], list[bytes]]:
    both = Zone.joined(zones)
    if both.low.dtype == np.int64:
        return "integer", [both.low, both.high - both.low], []
    if both.low.dtype == np.float64:
        return "float", [both.low.view(np.int64), both.high.view(np.int64)], []
    values = [*both.low.tolist(), *both.high.tolist()]
    if isinstance(values[0], bytes):
        return "binary", [np.array([len(value) for value in values], np.int64)], [b"".join(values)]
    return "big", [], [" ".join(map(str, values)).encode()]


def _restored(
    kind: str, arrays: Sequence[Int64Array], blobs: Sequence[bytes]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if kind == "integer":
        return arrays[0], arrays[0] + arrays[1]
    if kind == "float":
        return arrays[0].view(np.float64), arrays[1].view(np.float64)
    values: list[Any]
    if kind == "binary":
        ends = np.cumsum(arrays[0]).tolist()
        values = [blobs[0][start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    elif kind == "big":
        values = [int(text) for text in blobs[0].split()]
    else:
        raise array_container.CardCorrupt(f"a zone map of {kind}")
    array = np.empty(len(values), object)
    array[:] = values
    return array[: len(values) // 2], array[len(values) // 2 :]
