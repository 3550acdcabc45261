"""Ordinals (predicate.py) as Arrow arrays, and predicates as intervals of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.predicate import And, Between, Compare, Constant, In, IsNotNull, Or, Ordinal, Predicate

Interval = tuple[int, int]
"""From the first integer to the last, both included."""

# Wider than all integers that a key can have.
LEAST, GREATEST = -(2**64), 2**64


def array_of(values: Sequence[Ordinal] | npt.NDArray[Any], nulls: npt.NDArray[np.bool_], type: pa.DataType) -> pa.Array:
    """Values of a column, NULL where `nulls` says so.

    >>> array_of([3, 0], np.array([False, True]), pa.date32()).to_pylist()
    [datetime.date(1970, 1, 4), None]
    """
    if pa.types.is_string(type) or pa.types.is_binary(type):
        texts = [None if null else value for value, null in zip(values, nulls.tolist(), strict=True)]
        return pa.array(texts, pa.binary()).cast(type)
    if pa.types.is_integer(type):
        numbers = [None if null else int(value) for value, null in zip(values, nulls.tolist(), strict=True)]
        return pa.array(numbers, type)
    stored = np.array([0 if null else int(value) for value, null in zip(values, nulls.tolist(), strict=True)], np.int64)
    return from_integers(pa.array(stored, mask=nulls), type)


def from_integers(stored: pa.Array, type: pa.DataType) -> pa.Array:
    """Integers as the column has them: booleans, dates and times are stored as integers."""
    if pa.types.is_temporal(type):
        return (stored.cast(pa.int32()) if type.bit_width == 32 else stored).view(type)
    return stored.cast(type)


def intervals(predicate: Predicate) -> list[Interval] | None:
    """The integers for which a predicate of one column is TRUE, ascending and apart; None if it is one of NULL or of
    other values.

    >>> intervals(And((Compare("n", ">", 3), Or((Compare("n", "<", 6), In("n", (9, 2)))))))
    [(4, 5), (9, 9)]
    >>> intervals(Compare("n", "<>", 5)) == [(LEAST, 4), (6, GREATEST)]
    True
    """
    match predicate:
        case Constant(value):
            return [(LEAST, GREATEST)] if value else []
        case And(children) | Or(children):
            parts = [intervals(child) for child in children]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            return _all_of(known) if isinstance(predicate, And) else _any_of(known)
        case In(_, values):
            points = [value for value in values if isinstance(value, int)]
            return _any_of([[(point, point)] for point in points]) if len(points) == len(values) else None
        case Between(_, int(low), int(high)):
            return [(low, high)] if low <= high else []
        case IsNotNull():
            return [(LEAST, GREATEST)]
        case Compare(_, operator, int(value)):
            return _compared(operator, value)
    return None


def _compared(operator: str, value: int) -> list[Interval]:
    match operator:
        case "=":
            return [(value, value)]
        case "<>":
            return [(LEAST, value - 1), (value + 1, GREATEST)]
        case "<" | "<=":
            return [(LEAST, value if operator == "<=" else value - 1)]
    return [(value if operator == ">=" else value + 1, GREATEST)]


def _any_of(parts: Sequence[list[Interval]]) -> list[Interval]:
    found: list[Interval] = []
    for low, high in sorted(each for part in parts for each in part):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def _all_of(parts: Sequence[list[Interval]]) -> list[Interval]:
    found: list[Interval] = [(LEAST, GREATEST)]
    for part in parts:
        both = [(max(low, other), min(high, end)) for low, high in found for other, end in part]
        found = [(low, high) for low, high in both if low <= high]
    return found
