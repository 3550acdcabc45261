"""The shape of a predicate: its columns and kinds of conditions, without values.

The history of queries keeps shapes, so they must not reveal what a query searched for.

>>> from needlepoint.predicate import Compare, In
>>> shape = shape_of(And((Compare("id", "=", 384209819), Compare("price", ">", 5), Compare("price", "<", 9))))
>>> shape
('and', ('eq', 'id'), ('range', 'price'))
>>> shown(shape)
'id = ? AND price in a range'
>>> values_in(In("id", (1, 2, 3)))
3
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from needlepoint.predicate import (
    And,
    Between,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    TextMatch,
    leaves,
)

Shape = tuple[Any, ...]
"""`(kind, column)` of a leaf; `("and", …)`, `("or", …)`, `("not", shape)`; `("unknown",)`."""

UNKNOWN: Shape = ("unknown",)
MOST_CHILDREN = 16

_OPERATORS = {"=": "eq", "<>": "differs", "<": "range", "<=": "range", ">": "range", ">=": "range"}
_LEAVES = {
    Between: "range", IsNull: "is_null", IsNotNull: "is_not_null", StartsWith: "prefix", Like: "like",
    TextMatch: "text_match",
}  # fmt: skip
_SHOWN = {
    "eq": "{} = ?", "in": "{} IN (…)", "range": "{} in a range", "differs": "{} <> ?", "is_null": "{} IS NULL",
    "is_not_null": "{} IS NOT NULL", "prefix": "{} LIKE '…%'", "like": "{} LIKE '%…%'", "text_match": "text_match({})",
}  # fmt: skip


def shape_of(predicate: Predicate) -> Shape:
    """Conditions of one kind on one column count once, and their order does not matter. What the tree cannot express
    only narrows what stands beside it in an AND, and is left out there."""
    if isinstance(predicate, Compare):
        return _OPERATORS[predicate.operator], predicate.column
    if isinstance(predicate, In):
        return "eq" if len(predicate.values) == 1 else "in", predicate.column
    kind = _LEAVES.get(type(predicate))
    if kind is not None:
        return kind, predicate.column  # type: ignore[union-attr]
    if isinstance(predicate, Not):
        return "not", shape_of(predicate.child)
    if not isinstance(predicate, And | Or):
        return UNKNOWN
    word = "and" if isinstance(predicate, And) else "or"
    found: set[Shape] = set()
    for child in predicate.children:
        shape = shape_of(child)
        found.update(shape[1:] if shape[0] == word else (shape,))
    if word == "and" and len(found) > 1:
        found.discard(UNKNOWN)
    if not 0 < len(found) <= MOST_CHILDREN:
        return UNKNOWN
    return next(iter(found)) if len(found) == 1 else (word, *sorted(found))


def values_in(predicate: Predicate) -> int:
    """How many values the predicate compares with for equality."""
    if isinstance(predicate, Compare):
        return 1 if predicate.operator == "=" else 0
    if isinstance(predicate, In):
        return len(predicate.values)
    return sum(values_in(leaf) for leaf in leaves(predicate)) if isinstance(predicate, And | Or) else 0


def found_by(shape: Shape, column: str, kinds: frozenset[str]) -> bool:
    """Whether an index that answers these kinds of conditions on the column names all rows that can match.

    >>> either = ("or", ("eq", "a"), ("eq", "b"))
    >>> found_by(("and", ("eq", "a"), either), "a", frozenset({"eq"})), found_by(either, "a", frozenset({"eq"}))
    (True, False)
    """
    match shape:
        case ("and", *children):
            return any(found_by(child, column, kinds) for child in children)
        case ("or", *children):
            return all(found_by(child, column, kinds) for child in children)
        case (kind, str(named)):
            return kind in kinds and named == column
    return False


def conditions(shape: Shape) -> Iterator[tuple[str, str]]:
    """Kind and column of every leaf."""
    match shape:
        case ("and" | "or" | "not", *children):
            for child in children:
                yield from conditions(child)
        case (str(kind), str(column)):
            yield kind, column


def shown(shape: Shape) -> str:
    """As a person reads it."""
    match shape:
        case ("and" | "or", *children):
            inside = [f"({shown(child)})" if child[0] in ("and", "or") else shown(child) for child in children]
            return f" {shape[0].upper()} ".join(inside)
        case ("not", child):
            return f"NOT {shown(child)}"
        case (str(kind), str(column)):
            return _SHOWN[kind].format(column)
    return "anything"


def written(shape: Shape) -> str:
    return json.dumps(shape, separators=(",", ":"))


def read(text: str) -> Shape:
    """
    >>> read(written(("not", ("eq", "id"))))
    ('not', ('eq', 'id'))
    """
    shape: Shape = _as_tuples(json.loads(text))
    return shape


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
