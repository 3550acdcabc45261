"""Columns of a plan that are equal in every row, as DataFusion finds them.

DataFusion 55 takes columns that are equal below ROLLUP, CUBE or GROUPING SETS for equal above them too, although
subtotals have NULL for one of them and not for the other:

    Sort: c.n, b.id                              is sorted by one of the two
      Aggregate: groupBy=[ROLLUP (c.n, b.id)]
        Inner Join: c.n = b.id                   equal here, and so are c.n + 1 and b.id + 1
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable
from typing import Any

from needlepoint.query.sql.plan_nodes import field_names

_AFTER_KEYS = "__grouping_id"
_NUMBERS, _CLASS = itertools.count(), re.compile(r"<\w+>")
Classes = list[str]
"""For each column of a node, a name that equal columns share."""


def has_equal_keys(aggregate: Any) -> bool:
    """Whether an aggregate with grouping sets has two keys that are equal in its input, or may be."""
    names, below = field_names(aggregate), aggregate.inputs()[0]
    try:
        found = _classes_of(names[: names.index(_AFTER_KEYS)], below)
    except RecursionError:
        return True
    return len({*found}) < len(found)


def _classes(plan: Any) -> Classes:
    node, inputs, names = plan.to_variant(), plan.inputs(), field_names(plan)
    match type(node).__name__:
        case "SubqueryAlias" | "Sort" | "Limit" | "Distinct":
            return _classes(inputs[0])
        case "Filter":
            return _merged(names, _classes(inputs[0]), [node.predicate()])
        case "TableScan":
            return _merged(names, _different(names), node.filters())
        case "Projection":
            return _classes_of(map(_text, node.projections()), inputs[0])
        case "Aggregate" if len(node.group_by_exprs()) <= len(names):
            keys = _classes_of(map(_text, node.group_by_exprs()), inputs[0])
            return keys + _different(names)[len(keys) :]
        case "WindowExpr":
            known = _classes(inputs[0])
            return known + _different(names)[len(known) :]
        case "Join" if len(found := [each for below in inputs for each in _classes(below)]) == len(names):
            for left, right in node.on():
                found = _unified(names, found, left, right)
            return found
    return _different(names)


def _different(names: list[str]) -> Classes:
    return [f"<{next(_NUMBERS)}>" for _ in names]


def _classes_of(expressions: Iterable[str], below: Any) -> Classes:
    """The classes of expressions, as texts: two are equal if they are the same expression of equal columns."""
    known = dict(zip(field_names(below), _classes(below), strict=True))
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    column = re.compile(rf"(?<![\w.])(?:{names})(?!\w)" if known else r"(?!)")
    return [_short(column.sub(lambda found: known[found[0]], each)) for each in expressions]


def _short(text: str) -> str:
    """A class as it is, and a name for an expression: expressions of expressions would grow without bound."""
    return text if _CLASS.fullmatch(text) else f"<{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}>"


def _text(expression: Any) -> str:
    while expression.variant_name() == "Alias":
        expression = expression.to_variant().expr()
    return str(expression.canonical_name())


def _merged(names: list[str], classes: Classes, conditions: list[Any]) -> Classes:
    waiting = [*conditions]
    while waiting:
        each = waiting.pop()
        if each.variant_name() == "BinaryExpr":
            left, right = each.rex_call_operands()
            if each.rex_call_operator() == "AND":
                waiting += [left, right]
            elif each.rex_call_operator() == "=":
                classes = _unified(names, classes, left, right)
    return classes


def _unified(names: list[str], classes: Classes, left: Any, right: Any) -> Classes:
    one, other = _text(left), _text(right)
    if one not in names or other not in names:
        return classes
    kept, replaced = classes[names.index(one)], classes[names.index(other)]
    return [kept if each == replaced else each for each in classes]
