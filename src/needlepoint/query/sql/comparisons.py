"""Queries that differ only in the values they compare columns with.

    SELECT title, upc FROM product WHERE ts >= TIMESTAMP '2024-01-31 12:00:00' AND ts < TIMESTAMP '2024-02-01 00:00:00'

DataFusion plans the first query of such a form. If it finds in it the columns and values that are read out of the text
here, the plan holds for all others, with their values: planning them takes no DataFusion.

>>> types = {"id": pa.int64(), "title": pa.string()}
>>> form = recognise("SELECT title FROM t WHERE id BETWEEN 5 AND 9 AND title < 'b'")
>>> form.predicate(types)
And(children=(Compare(column='id', operator='>=', value=5), Compare(column='id', operator='<=', value=9), \
Compare(column='title', operator='<', value=b'b')))
>>> form.shape
'SELECT title FROM t WHERE id >= number AND id <= number AND title < text'
>>> recognise("SELECT title FROM t WHERE id < 5 OR id > 9") is None
True
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from needlepoint.predicate import And, Compare, Ordinal, Predicate

_VALUE = r"-?[0-9]{1,18}|(?:TIMESTAMP\s*)?'[^'\\]*'"
_CONDITION = rf"\w+\s*(?:(?:>=|<=|<>|<|>|=)\s*(?:{_VALUE})|\bBETWEEN\s+(?:{_VALUE})\s+AND\s+(?:{_VALUE}))"
_FORM = re.compile(
    rf"\s*SELECT\s+(\*|\w+(?:\s*,\s*\w+)*)\s+FROM\s+(\w+)\s+WHERE\s+({_CONDITION}(?:\s+AND\s+{_CONDITION}){{0,7}})\s*"
    rf"(?:;\s*)?",
    re.IGNORECASE | re.ASCII,
)
_PARTS = re.compile(
    rf"(\w+)\s*(?:(>=|<=|<>|<|>|=)\s*({_VALUE})|\bBETWEEN\s+({_VALUE})\s+AND\s+({_VALUE}))", re.IGNORECASE | re.ASCII
)
_TIMESTAMP = re.compile(
    r"TIMESTAMP\s*'(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?'", re.IGNORECASE | re.ASCII
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
# DataFusion counts the nanoseconds of a literal in 64 bits.
_YEARS = range(1700, 2200)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The parts of such a query: columns, operators and values as they are written. SQL folds names to lower case."""

    table: str
    selected: str
    conditions: tuple[tuple[str, str, str], ...]

    @property
    def shape(self) -> str:
        """The query without its values. What may be written in two ways is one shape only if it means the same."""
        conditions = " AND ".join(f"{column} {operator} {_kind(value)}" for column, operator, value in self.conditions)
        return f"SELECT {self.selected} FROM {self.table} WHERE {conditions}"

    def predicate(self, types: Mapping[str, pa.DataType]) -> Predicate | None:
        """The conditions on columns of these types; None if a value is of another type, or the type cannot hold it."""
        found: list[Compare] = []
        for column, operator, value in self.conditions:
            ordinal = _ordinal(value, types[column]) if column in types else None
            if ordinal is None:
                return None
            found.append(Compare(column, operator, ordinal))
        return And(tuple(found))


def recognise(query: str) -> Comparisons | None:
    """The parts of a query that is of this kind, as far as its text tells."""
    found = _FORM.fullmatch(query)
    if found is None:
        return None
    conditions: list[tuple[str, str, str]] = []
    for column, operator, value, low, high in _PARTS.findall(found[3]):
        if operator:
            conditions.append((column.lower(), operator, value))
        else:
            conditions += [(column.lower(), ">=", low), (column.lower(), "<=", high)]
    selected = ", ".join(name.strip().lower() for name in found[1].split(","))
    return Comparisons(found[2].lower(), selected, tuple(conditions))


def _kind(value: str) -> str:
    if value[0] in "-0123456789":
        return "number"
    if value[0] == "'":
        return "text"
    found = _TIMESTAMP.fullmatch(value)
    return "timestamp" if found is None or found[4] is None else "instant"


def _ordinal(value: str, type: pa.DataType) -> Ordinal | None:
    kind = _kind(value)
    if kind == "number":
        return _integer(int(value), type) if pa.types.is_integer(type) else None
    if kind == "text":
        return value[1:-1].encode() if pa.types.is_string(type) else None
    return _instant(value, type) if pa.types.is_timestamp(type) else None


def _integer(value: int, type: pa.DataType) -> int | None:
    bits = type.bit_width - pa.types.is_signed_integer(type)
    low = -(1 << bits) if pa.types.is_signed_integer(type) else 0
    return value if low <= value < 1 << bits else None


def _instant(value: str, type: pa.DataType) -> int | None:
    """The number of units since 1970, if it is a whole one. Zones other than UTC move clocks: they are left out."""
    found = _TIMESTAMP.fullmatch(value)
    if found is None or type.tz not in (None, "UTC", "+00:00") or (found[4] and type.tz is None):
        return None
    day, time, fraction, zone = found.groups(default="")
    try:
        moment = datetime.datetime.fromisoformat(
            f"{day}T{time}{fraction.ljust(7, '0') if fraction else ''}{zone or 'Z'}"
        )
    except ValueError:
        return None
    if moment.year not in _YEARS:
        return None
    number, rest = divmod((moment - _EPOCH) // _MICROSECOND * _PER_SECOND[type.unit], 10**6)
    return None if rest else number
