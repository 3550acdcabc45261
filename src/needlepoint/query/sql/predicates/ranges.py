"""Ranges of values, and from which ranges functions map into them.

`id * 2 + 1 = 11` is TRUE where `id * 2` is 10, so where `id` is 5; and, because integers of 64 bits wrap around, where
it is 5 - 2^63. Each function here takes ranges of results and returns ranges that hold every argument with such a
result. They may be too wide, never too narrow: the query evaluates its condition again.

Values are ordinals (see predicate.py): integers, but for floats.

>>> added([Range(11, 11)], 1, pa.int64())
[Range(low=10, high=10)]
>>> times([Range(10, 10)], 2, pa.int64())
[Range(low=-9223372036854775803, high=-9223372036854775803), Range(low=5, high=5)]
>>> times([Range(10, 20)], 2, pa.int64(), extent=pa.int32())
[Range(low=5, high=10)]
"""

from __future__ import annotations

import contextlib
import datetime
import math
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import pyarrow as pa

from needlepoint.predicate import Ordinal
from needlepoint.tables import PER_SECOND

DAY = 86_400
# A product of integers may wrap around this many times before its ranges are given up.
_MOST_WRAPS = 16
_SHORTEST_MONTH, _LONGEST_MONTH = 28, 31
_LONGEST = {
    "microsecond": 1, "millisecond": 1, "second": 1, "minute": 60, "hour": 3_600, "day": DAY, "week": 7 * DAY,
    "month": 31 * DAY, "quarter": 92 * DAY, "year": 366 * DAY,
}  # fmt: skip

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


class Range(NamedTuple):
    """From low to high, both included; None has no end on that side."""

    low: Ordinal | None
    high: Ordinal | None


Ranges = list[Range]
Step = Callable[[Ranges], Ranges | None]


def extent_of(type: pa.DataType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = type.bit_width
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(type) else (0, (1 << bits) - 1)


def clipped(ranges: Iterable[Range], extent: tuple[int, int]) -> Ranges:
    """The parts of the ranges inside of an extent."""
    found = [
        Range(max(_whole(low, extent[0]), extent[0]), min(_whole(high, extent[1]), extent[1])) for low, high in ranges
    ]
    return _filled(found)


def _whole(value: Ordinal | None, without: int) -> int:
    return without if value is None or isinstance(value, bytes) else int(value)


# Integers, which wrap around


def added(ranges: Ranges, number: int, type: pa.DataType) -> Ranges:
    """From where `x + number` gets into the ranges."""
    return _wrapped([(low - number, high - number) for low, high in _ends(ranges, type)], type)


def subtracted_from(ranges: Ranges, number: int, type: pa.DataType) -> Ranges:
    """From where `number - x` gets into the ranges."""
    return _wrapped([(number - high, number - low) for low, high in _ends(ranges, type)], type)


def _ends(ranges: Ranges, type: pa.DataType) -> list[tuple[int, int]]:
    lowest, highest = extent_of(type)
    return [(_whole(low, lowest), _whole(high, highest)) for low, high in ranges]


def _wrapped(ends: Iterable[tuple[int, int]], type: pa.DataType) -> Ranges:
    extent, turn = extent_of(type), 1 << type.bit_width
    return [
        each for low, high in ends for by in (-turn, 0, turn) for each in clipped([Range(low + by, high + by)], extent)
    ]


def times(ranges: Ranges, factor: int, type: pa.DataType, extent: pa.DataType | None = None) -> Ranges | None:
    """From where `x * factor` gets into the ranges, for x of a type that may be smaller."""
    lowest, highest = extent_of(extent or type)
    turn, found = 1 << type.bit_width, Ranges()
    least, most = sorted((lowest * factor, highest * factor))
    for low, high in _ends(ranges, type):
        first, last = -((high - least) // turn), (most - low) // turn
        if factor == 0 or last - first > _MOST_WRAPS:
            return None
        for wraps in range(first, last + 1):
            ends = sorted((Fraction(low + wraps * turn, factor), Fraction(high + wraps * turn, factor)))
            found += clipped([Range(math.ceil(ends[0]), math.floor(ends[1]))], (lowest, highest))
    return found


def divided(ranges: Ranges, divisor: int, type: pa.DataType) -> Ranges | None:
    """From where `x / divisor`, which is cut to an integer, gets into the ranges."""
    if divisor == 0:
        return None
    rest = abs(divisor) - 1
    pairs = [sorted((low * divisor, high * divisor)) for low, high in _ends(ranges, type)]
    return clipped([Range(low - rest, high + rest) for low, high in pairs], extent_of(type))


# Real numbers, which are rounded


def rounded(ranges: Ranges) -> list[tuple[Fraction | None, Fraction | None]]:
    """The real numbers that may be rounded to floats of the ranges: up to the next float on either side."""
    found: list[tuple[Fraction | None, Fraction | None]] = []
    for low, high in ranges:
        below = None if low is None or isinstance(low, bytes) else math.nextafter(low, -math.inf)
        above = None if high is None or isinstance(high, bytes) else math.nextafter(high, math.inf)
        found.append((_finite(below), _finite(above)))
    return found


def _finite(value: float | None) -> Fraction | None:
    return None if value is None or not math.isfinite(value) else Fraction(value)


def linear(ranges: Ranges, factor: Fraction, summand: Fraction) -> Ranges:
    """From where the float `x * factor + summand`, one of which does nothing, gets into the ranges."""
    found = Ranges()
    for low, high in rounded(ranges):
        ends = [None if end is None else (end - summand) / factor for end in (low, high)]
        first, last = ends if factor > 0 else reversed(ends)
        found.append(Range(_float(first, -math.inf), _float(last, math.inf)))
    return found


def _float(value: Fraction | None, direction: float) -> float | None:
    """The float next to a number, in this direction."""
    if value is None:
        return None
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    return math.nextafter(nearest, direction)


def exact(ranges: Ranges, factor: Fraction, summand: Fraction = Fraction(0), slack: int = 0) -> Ranges:
    """From where `x * factor + summand` of integers gets to at most `slack` from the ranges."""
    found = Ranges()
    for low, high in ranges:
        ends = [
            None if end is None or isinstance(end, bytes) else (Fraction(end) + by - summand) / factor
            for end, by in ((low, -slack), (high, slack))
        ]
        first, last = ends if factor > 0 else reversed(ends)
        found.append(Range(None if first is None else math.ceil(first), None if last is None else math.floor(last)))
    return _filled(found)


def _filled(ranges: Ranges) -> Ranges:
    """Without those that end before they begin."""
    return [Range(low, high) for low, high in ranges if low is None or high is None or low <= high]  # type: ignore[operator]


# Casts


def cast(ranges: Ranges, type: pa.DataType, target: pa.DataType) -> Ranges | None:
    """From where a cast gets into the ranges; None for a cast that may not keep the order."""
    types = pa.types
    if types.is_timestamp(type) or types.is_date32(type):
        return _cast_time(ranges, type, target)
    if types.is_integer(type) and types.is_integer(target):
        return clipped(ranges, extent_of(type))
    if (types.is_integer(type) or types.is_boolean(type) or types.is_decimal(type)) and types.is_float64(target):
        return _to_double(ranges, Fraction(10) ** type.scale if types.is_decimal(type) else Fraction(1))
    if types.is_boolean(type) and types.is_integer(target):
        return clipped(ranges, (0, 1))
    if types.is_integer(type) and types.is_decimal(target) and target.scale >= 0:
        return exact(ranges, Fraction(10**target.scale))
    if types.is_decimal(type) and types.is_decimal(target):
        more = target.scale - type.scale
        return exact(ranges, Fraction(10) ** more, slack=0 if more >= 0 else 1)
    if types.is_decimal(type) and types.is_integer(target):
        return exact(ranges, Fraction(1, 10) ** type.scale, slack=1)
    if types.is_floating(type) and types.is_float64(target):
        return ranges
    if types.is_float64(type) and types.is_integer(target):
        return [Range(None if low is None else low - 1.0, None if high is None else high + 1.0)  # type: ignore[operator]
                for low, high in ranges]  # fmt: skip
    return None


def _to_double(ranges: Ranges, denominator: Fraction) -> Ranges:
    """A decimal is converted in several steps, each of which may round."""
    found = Ranges()
    for low, high in rounded(ranges):
        ends = (None if low is None else low * denominator, None if high is None else high * denominator)
        slack = [Fraction(0) if end is None or denominator == 1 else abs(end) / (1 << 50) for end in ends]
        found.append(
            Range(
                None if ends[0] is None else math.ceil(ends[0] - slack[0]),
                None if ends[1] is None else math.floor(ends[1] + slack[1]),
            )
        )
    return _filled(found)


def _cast_time(ranges: Ranges, type: pa.DataType, target: pa.DataType) -> Ranges | None:
    if pa.types.is_timestamp(type) and pa.types.is_date32(target):
        return _to_date(ranges, type)
    if not pa.types.is_timestamp(target):
        return None
    day = DAY * PER_SECOND[target.unit]
    if pa.types.is_date32(type):
        return exact(ranges, Fraction(day), slack=day if target.tz else 0)
    if (type.tz is None) != (target.tz is None):
        slack = day  # a zone is at most a day away
    else:
        slack = 0 if PER_SECOND[target.unit] >= PER_SECOND[type.unit] else 1
    return exact(ranges, Fraction(PER_SECOND[target.unit], PER_SECOND[type.unit]), slack=slack)


def _to_date(ranges: Ranges, type: pa.DataType) -> Ranges:
    day = DAY * PER_SECOND[type.unit]
    # A date in another zone begins up to a day earlier or later.
    slack = day if type.tz not in (None, "UTC") else 0
    found = Ranges()
    for low, high in ranges:
        first = None if low is None else _whole(low, 0)
        # Days before 1970 may be rounded up.
        start = None if first is None else (first if first > 0 else first - 1) * day - slack
        found.append(Range(start, None if high is None else (_whole(high, 0) + 1) * day - 1 + slack))
    return found


# Times


def moved(ranges: Ranges, interval: Interval, type: pa.DataType) -> Ranges:
    """From where a date or timestamp `x + interval` gets into the ranges. Months have 28 to 31 days, days of a zone 23
    to 25 hours, and results are cut to the unit of the type."""
    months = sorted((interval.months * _SHORTEST_MONTH, interval.months * _LONGEST_MONTH))
    zoned = pa.types.is_timestamp(type) and type.tz is not None and (interval.months or interval.days)
    least, most = (
        Fraction(interval.nanoseconds, 10**9) + DAY * (interval.days + days + by)
        for days, by in zip(months, (-1, 1) if zoned else (0, 0), strict=True)
    )
    unit = Fraction(1, DAY) if pa.types.is_date32(type) else Fraction(PER_SECOND[type.unit])
    # The cut moves a result by less than one unit.
    first, last = math.floor(least * unit), math.ceil(most * unit)
    return [
        Range(
            None if low is None else _whole(low, 0) - last - (last != most * unit),
            None if high is None else _whole(high, 0) - first + (first != least * unit),
        )
        for low, high in ranges
    ]


class Interval(NamedTuple):
    months: int
    days: int
    nanoseconds: int

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, -self.nanoseconds)


def truncated(ranges: Ranges, unit: str, type: pa.DataType) -> Ranges | None:
    """From where `date_trunc(unit, x)` gets into the ranges."""
    if unit.lower() not in _LONGEST or not pa.types.is_timestamp(type):
        return None
    # Zones move clocks forward and back.
    slack = DAY * PER_SECOND[type.unit] if type.tz is not None else 0
    span = _LONGEST[unit.lower()] * PER_SECOND[type.unit] + slack
    return [
        Range(None if low is None else _whole(low, 0) - slack, None if high is None else _whole(high, 0) + span - 1)
        for low, high in ranges
    ]


def year(ranges: Ranges, type: pa.DataType) -> Ranges | None:
    """From where `date_part('year', x)` gets into the ranges.

    >>> year([Range(1970, 1971)], pa.date32())
    [Range(low=0, high=729)]
    """
    if pa.types.is_date32(type):
        unit, slack = 1, 0
    elif pa.types.is_timestamp(type):
        unit = DAY * PER_SECOND[type.unit]
        slack = unit if type.tz not in (None, "UTC") else 0
    else:
        return None
    return [
        Range(
            None if low is None else _new_year(math.ceil(low)) * unit - slack,  # type: ignore[arg-type]
            None if high is None else _new_year(math.floor(high) + 1) * unit - 1 + slack,  # type: ignore[arg-type]
        )
        for low, high in ranges
    ]


def epoch(ranges: Ranges, type: pa.DataType) -> Ranges | None:
    """From where `date_part('epoch', x)`, in seconds, gets into the ranges."""
    if not (pa.types.is_date32(type) or pa.types.is_timestamp(type)):
        return None
    units = Fraction(1, DAY) if pa.types.is_date32(type) else Fraction(PER_SECOND[type.unit])
    found = Ranges()
    for low, high in rounded(ranges):
        # It is computed in several steps, each of which may round.
        slack = [None if end is None else abs(end) / (1 << 40) + 1 for end in (low, high)]
        first = None if low is None or slack[0] is None else math.floor((low - slack[0]) * units)
        last = None if high is None or slack[1] is None else math.ceil((high + slack[1]) * units)
        found.append(Range(first, last))
    return found


def of_texts(values: Sequence[bytes], type: pa.DataType) -> Ranges | None:
    """From where a cast to text gives one of the values.

    >>> of_texts([b"2024-02-29"], pa.date32()), of_texts([b"5", b"05"], pa.int64())
    ([Range(low=19782, high=19782)], [Range(low=5, high=5)])
    """
    found: set[int] = set()
    for text in (value.decode() for value in values):
        if pa.types.is_integer(type) and _INTEGER.fullmatch(text):
            found.add(int(text))
        elif pa.types.is_date32(type) and _DATE.fullmatch(text):
            with contextlib.suppress(ValueError):
                found.add((datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days)
    points = [Range(each, each) for each in sorted(found)]
    if pa.types.is_integer(type):
        return clipped(points, extent_of(type))
    return points if pa.types.is_date32(type) and all(map(_DATE.fullmatch, map(bytes.decode, values))) else None


def _new_year(year: int) -> int:
    """The first day of a year of the Gregorian calendar, counted from 1970-01-01; also before Christ."""
    before = year - 1
    return 365 * (year - 1970) + (before // 4 - before // 100 + before // 400) - 477
