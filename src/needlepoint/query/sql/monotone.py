"""Functions that keep the order of a column, and the ranges of the column that their predicates imply.

`date_trunc('month', t) = '2024-02-01'` can only be TRUE between 2024-02-01 and 31 days later. For every such function f
there is an interval that holds each x with f(x) = v. If f(x) > v, x is not below the interval; if f(x) < v, x is not
above it. The interval may be too wide, never too narrow: the query evaluates the predicate again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from needlepoint.predicate import And, Compare, Or, Ordinal, Predicate, Unknown
from needlepoint.tables import PER_SECOND

_DAY = 86_400
_LONGEST = {
    "microsecond": 1, "millisecond": 1, "second": 1, "minute": 60, "hour": 3_600, "day": _DAY, "week": 7 * _DAY,
    "month": 31 * _DAY, "quarter": 92 * _DAY, "year": 366 * _DAY,
}  # fmt: skip
# Integers up to here are exact in a double; beyond, neighbours up to this distance share one.
_EXACT, _ROUNDED = 1 << 53, 1 << 11
_MOST_VALUES = 20

Interval = Callable[[int | float], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Preimage:
    """The interval of a column's ordinals that a function maps to each of its values."""

    column: str
    interval: Interval

    def compare(self, operator: str, value: Ordinal) -> Predicate:
        """What `f(column) operator value` implies for the column.

        >>> days = Preimage("t", timestamp_to_date(pa.timestamp("s")))
        >>> days.compare("=", 1).children[:2]
        (Compare(column='t', operator='>=', value=86400), Compare(column='t', operator='<=', value=172800))
        """
        if isinstance(value, bytes) or not math.isfinite(value):
            return Unknown()
        low, high = self.interval(value)
        match operator:
            case "=":
                return And((Compare(self.column, ">=", low), Compare(self.column, "<=", high), Unknown()))
            case ">" | ">=":
                return And((Compare(self.column, ">=", low), Unknown()))
            case "<" | "<=":
                return And((Compare(self.column, "<=", high), Unknown()))
        return Unknown()

    def one_of(self, values: tuple[Ordinal, ...]) -> Predicate:
        if len(values) > _MOST_VALUES:
            return And((self.compare(">=", values[0]), self.compare("<=", values[-1])))
        return Or(tuple(self.compare("=", value) for value in values))


def of_cast(column: pa.DataType, target: pa.DataType) -> Interval | None:
    """The interval of a cast; None if the cast may not keep the order."""
    if pa.types.is_timestamp(column) and pa.types.is_date32(target):
        return timestamp_to_date(column)
    if pa.types.is_date32(column) and pa.types.is_timestamp(target):
        return _times(_DAY * PER_SECOND[target.unit], slack=1 if target.tz else 0)
    if pa.types.is_timestamp(column) and pa.types.is_timestamp(target) and (column.tz is None) == (target.tz is None):
        more, less = PER_SECOND[target.unit], PER_SECOND[column.unit]
        return _times(more // less) if more >= less else _divided(less // more)
    if pa.types.is_integer(column) and pa.types.is_float64(target):
        return _to_double
    return None


def timestamp_to_date(column: pa.DataType) -> Interval:
    day = _DAY * PER_SECOND[column.unit]
    # A date in another zone begins up to a day earlier or later.
    slack = day if column.tz not in (None, "UTC") else 0

    def interval(value: int | float) -> tuple[int, int]:
        date = int(value)
        # Days before 1970 may be rounded up.
        return (date if date > 0 else date - 1) * day - slack, (date + 1) * day + slack

    return interval


def of_truncation(unit: str, column: pa.DataType) -> Interval | None:
    """The interval of `date_trunc(unit, column)`."""
    if unit.lower() not in _LONGEST or not pa.types.is_timestamp(column):
        return None
    # Zones move clocks forward and back.
    seconds = _LONGEST[unit.lower()] + (_DAY if column.tz is not None else 0)
    span, slack = seconds * PER_SECOND[column.unit], _DAY * PER_SECOND[column.unit] if column.tz is not None else 0
    return lambda value: (int(value) - slack, int(value) + span)


def _times(factor: int, slack: int = 0) -> Interval:
    return lambda value: (math.floor(int(value) / factor) - 1 - slack, math.ceil(int(value) / factor) + 1 + slack)


def _divided(divisor: int) -> Interval:
    return lambda value: ((int(value) - 1) * divisor, (int(value) + 1) * divisor)


def _to_double(value: int | float) -> tuple[int, int]:
    slack = 0 if abs(value) < _EXACT else _ROUNDED
    return math.floor(value) - slack, math.ceil(value) + slack
