"""Times with more digits than a column holds: `ms = TIMESTAMP '2024-01-01 00:00:00.0005'`.

DataFusion 55 compares times of two units in the coarser one and cuts the other off, so that this is TRUE for .000. A
cast to the finer unit keeps all digits, inside a function that DataFusion does not look through:

>>> types = {"ms": [pa.timestamp("ms")], "us": [pa.timestamp("us")]}
>>> print(with_finer_times("SELECT ms FROM t WHERE ms < us", types))
SELECT ms FROM t WHERE nullif(arrow_cast(ms, 'Timestamp(Microsecond, None)'), NULL) < us

In a cast to a number, which counts the units of the column, it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from needlepoint.query.sql.rewriting.lossy_casts import ROUNDING, casts_to
from needlepoint.query.sql.rewriting.operands import Operands

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_UNITS = {3: "Millisecond", 6: "Microsecond", 9: "Nanosecond"}
_FRACTION = re.compile(r":\d\d\.(\d+)")
_NUMBERS = re.compile(rf"{ROUNDING}|DOUBLE|FLOAT\d*|REAL")
_CONDITIONS = {"WHERE", "ON", "HAVING", "QUALIFY"}

Times = Mapping[str, Sequence[pa.TimestampType]]
"""The types of columns that are times in every table that has a column of this name."""


def with_finer_times(query: str, times: Times, digits_given: int = 0) -> str:
    """The query with the columns of conditions in the finest unit that they are compared in. `digits_given` are those
    of parameters."""
    digits = max([digits_given, *(len(each.rstrip("0")) for each in _FRACTION.findall(query))])
    found = {_DIGITS[type.unit] for types in times.values() for type in types}
    if not found or (digits <= min(found) == max(found)):
        return query
    sql = Operands(query)
    others = {sql.name(place) for place in range(len(sql.words)) if sql.word(place - 1) == "AS" and sql.is_name(place)}
    known = {name: types for name, types in times.items() if name not in others}
    return sql.wrapped(
        (first, stop, "nullif(arrow_cast(", f", '{_type(finest, types[0])}'), NULL)")
        for first, stop, types in _columns(sql, known)
        if (finest := max(digits, _beside(sql, first, stop, known), *(_DIGITS[each.unit] for each in types)))
        > min(_DIGITS[each.unit] for each in types)
    )


def _columns(sql: Operands, times: Times) -> Iterator[tuple[int, int, Sequence[pa.TimestampType]]]:
    """The mentions of columns in conditions, with their qualifiers: the first token of each, and the one after it."""
    counted = {place for first, stop in casts_to(_NUMBERS, sql) for place in range(first, stop)}
    for place, clause in enumerate(sql.clauses()):
        types = times.get(sql.name(place)) if clause in _CONDITIONS and sql.is_name(place) else None
        if types is not None and place not in counted and sql.word(place + 1) not in (".", "("):
            first = place
            while sql.word(first - 1) == "." and first > 1:
                first -= 2
            yield first, place + 1, types


def _beside(sql: Operands, first: int, stop: int, times: Times) -> int:
    """The most digits that the column has which this one is compared with."""
    before = [first - size - 1 for size in (1, 2) if sql.operator(first - size) == size]
    after = [_column_after(sql, stop + size) for size in (sql.operator(stop),) if size]
    names = [sql.name(place) for place in (*before, *after) if 0 <= place < len(sql.words) and sql.is_name(place)]
    return max((_DIGITS[each.unit] for name in names for each in times.get(name, ())), default=0)


def _column_after(sql: Operands, place: int) -> int:
    """The name itself, after its qualifiers."""
    while sql.word(place + 1) == ".":
        place += 2
    return place


def _type(digits: int, type: pa.TimestampType) -> str:
    unit = next(unit for most, unit in _UNITS.items() if most >= min(digits, 9))
    zone = "None" if type.tz is None else f'Some("{type.tz}")'
    return f"Timestamp({unit}, {zone})"


def is_finer(type: pa.DataType | None, other: pa.DataType | None) -> bool:
    """Whether both are times, and a value of the one may have more digits than the other holds."""
    return (
        isinstance(type, pa.TimestampType)
        and isinstance(other, pa.TimestampType)
        and _DIGITS[type.unit] > _DIGITS[other.unit]
    )


def digits_of(value: Any) -> int:
    """The digits of a second that a parameter has."""
    if not isinstance(value, pa.Scalar) or not pa.types.is_timestamp(value.type) or not value.is_valid:
        return 0
    number, digits = value.value, _DIGITS[value.type.unit]
    while digits and number % 10 == 0:
        number, digits = number // 10, digits - 1
    return digits
