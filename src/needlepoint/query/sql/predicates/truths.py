"""Conditions on the truth of other conditions: `x IS NOT TRUE`, and the ELSE of a CASE.

A predicate is TRUE, FALSE or NULL for a row. NULL comes from NULLs in the columns of its leaves.

>>> from needlepoint.predicate import Compare
>>> not_true(Compare("id", ">", 5))
Or(children=(Not(child=Compare(column='id', operator='>', value=5)), IsNull(column='id')))
>>> not_true(IsNotNull("id")), not_false(Not(IsNull("id")))
(IsNull(column='id'), IsNotNull(column='id'))
"""

from __future__ import annotations

from needlepoint.predicate import (
    And,
    Constant,
    IsNotNull,
    IsNull,
    Leaf,
    Not,
    Or,
    Predicate,
    Unknown,
    columns_of,
)


def not_true(predicate: Predicate) -> Predicate:
    """Where the predicate is FALSE or NULL."""
    match predicate:
        case And(children):
            return Or(tuple(map(not_true, children)))
        case Or(children):
            return And(tuple(map(not_true, children)))
        case Not(child):
            return not_false(child)
        case Constant(value):
            return Constant(not value)
        case IsNull(column):
            return IsNotNull(column)
        case IsNotNull(column):
            return IsNull(column)
        case Unknown():
            return predicate
    return Or((Not(predicate), *_nulls(predicate)))


def not_false(predicate: Predicate) -> Predicate:
    """Where the predicate is TRUE or NULL."""
    match predicate:
        case And(children):
            return And(tuple(map(not_false, children)))
        case Or(children):
            return Or(tuple(map(not_false, children)))
        case Not(child):
            return not_true(child)
        case Constant(False):
            return Unknown()  # it stands for NULL too
        case Constant() | IsNull() | IsNotNull() | Unknown():
            return predicate
    return Or((predicate, *_nulls(predicate)))


def _nulls(leaf: Leaf) -> tuple[IsNull, ...]:
    return tuple(map(IsNull, columns_of(leaf)))
