"""What comparisons of a part of a time require of its column: the month, the hour.

Each may be TRUE for more rows than the comparison.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from needlepoint import time_parts
from needlepoint.predicate import And, Compare, Constant, Or, Ordinal, Predicate, TimePart, Unknown, conjuncts
from needlepoint.query.sql.predicates.ranges import DAY
from needlepoint.tables import PER_SECOND

_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "IN": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
_OF_DAYS = {"month", "day", "dow"}


def of_part(column: str, type: pa.DataType, part: str, operator: str, values: Sequence[Ordinal]) -> Predicate:
    """`date_part(part, column)` compared with a value, or with several by "IN".

    >>> of_part("d", pa.date32(), "quarter", "=", [1]).children[0]
    TimePart(column='d', part='month', values=(1, 2, 3), day=1, slack=0)
    """
    part = part.lower()
    months = part == "quarter"
    cycle, least = (4, 1) if months else time_parts.PARTS.get(part, (0, 0))
    if pa.types.is_date32(type):
        day, slack = 1, 0
    elif pa.types.is_timestamp(type):
        day, slack = DAY * PER_SECOND[type.unit], int(type.tz not in (None, "UTC"))
    else:
        return Unknown()
    if not cycle or ((day == 1 or slack) and not (months or part in _OF_DAYS)):
        return Unknown()
    holds = _HOLDS[operator]
    found = [each for each in range(least, least + cycle) if any(holds(each, value) for value in values)]
    if months:
        part, found = "month", [3 * quarter - 2 + at for quarter in found for at in range(3)]
    return And((TimePart(column, part, tuple(found), day, slack) if found else Constant(False), Unknown()))


def with_months(predicate: Predicate) -> Predicate:
    """Where an AND bounds a column on both sides, and its month, add the months between the bounds as ranges: key
    indexes find these."""
    match predicate:
        case Or(children):
            return Or(tuple(map(with_months, children)))
        case And(children):
            parts = list(conjuncts(predicate))
            months = [each for each in parts if isinstance(each, TimePart) and each.part == "month"]
            added = [found for each in months if (found := _months(each, parts)) is not None]
            return And((*map(with_months, children), *added))
    return predicate


def _months(month: TimePart, parts: Sequence[Predicate]) -> Predicate | None:
    ends = [each for each in parts if isinstance(each, Compare) and each.column == month.column]
    lows = [each.value for each in ends if each.operator in (">", ">=") and isinstance(each.value, int)]
    highs = [each.value for each in ends if each.operator in ("<", "<=") and isinstance(each.value, int)]
    if not lows or not highs:
        return None
    spans = time_parts.spans_of_months(month.values, max(lows), min(highs), month.day, month.slack)
    found = [
        And((Compare(month.column, ">=", start), Compare(month.column, "<=", stop), Unknown())) for start, stop in spans
    ]
    return None if not found else found[0] if len(found) == 1 else Or(tuple(found))
