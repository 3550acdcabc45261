"""Columns of a plan that are equal in every row, as DataFusion finds them.

DataFusion 55 takes columns that are equal below ROLLUP, CUBE or GROUPING SETS for equal above them too, although
subtotals have NULL for one of them and not for the other:

    Sort: c.n, b.id                              is sorted by one of the two
      Aggregate: groupBy=[ROLLUP (c.n, b.id)]
        Inner Join: c.n = b.id                   equal here
"""

from __future__ import annotations

from typing import Any

from needlepoint.query.sql.plan_nodes import field_names

_AFTER_KEYS = "__grouping_id"
Classes = list[object]
"""For each column of a node, an object that equal columns share."""


def has_equal_keys(aggregate: Any) -> bool:
    """Whether an aggregate with grouping sets has two columns as keys that are equal in its input."""
    names, below = field_names(aggregate), aggregate.inputs()[0]
    known = dict(zip(field_names(below), _classes(below), strict=True))
    found = [id(known[name]) for name in names[: names.index(_AFTER_KEYS)] if name in known]
    return len({*found}) < len(found)


def _classes(plan: Any) -> Classes:
    node, inputs = plan.to_variant(), plan.inputs()
    names = field_names(plan)
    match type(node).__name__:
        case "SubqueryAlias" | "Sort" | "Limit" | "Distinct":
            return _classes(inputs[0])
        case "Filter":
            return _merged(names, _classes(inputs[0]), [node.predicate()])
        case "TableScan":
            return _merged(names, _different(names), node.filters())
        case "Projection":
            return _chosen(node.projections(), names, inputs[0])
        case "Aggregate" if len(node.group_by_exprs()) <= len(names):
            return _chosen(node.group_by_exprs(), names, inputs[0])
        case "Join" if len(found := [each for below in inputs for each in _classes(below)]) == len(names):
            for left, right in node.on():
                found = _unified(names, found, left, right)
            return found
    return _different(names)


def _different(names: list[str]) -> Classes:
    return [object() for _ in names]


def _chosen(expressions: list[Any], names: list[str], below: Any) -> Classes:
    """The classes of columns that are these expressions; others follow."""
    known = dict(zip(field_names(below), _classes(below), strict=True))
    found = _different(names)
    for at, each in enumerate(expressions):
        if each.variant_name() == "Alias":
            each = each.to_variant().expr()
        if each.variant_name() == "Column":
            found[at] = known.get(_name(each), found[at])
    return found


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
    if not (left.variant_name() == right.variant_name() == "Column" and {_name(left), _name(right)} <= {*names}):
        return classes
    kept, other = classes[names.index(_name(left))], classes[names.index(_name(right))]
    return [kept if each is other else each for each in classes]


def _name(column: Any) -> str:
    return str(column.canonical_name())
