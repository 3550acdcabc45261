"""From a DataFusion plan to a request for each table: columns and a predicate.

The SQL is planned against tables without files. The optimizer pushes every predicate it can into the table scans: on
both sides of joins, into CTEs, views and parts of a UNION. This module reads them there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from needlepoint.predicate import (
    And,
    Between,
    Compare,
    Or,
    Ordinal,
    Predicate,
    conjuncts,
)
from needlepoint.query.sql.plan_nodes import parts_of
from needlepoint.query.sql.predicates.converter import Converter
from needlepoint.query.sql.predicates.time_bounds import with_months
from needlepoint.query.sql.request import Request, Types, everything

_ROW_BY_ROW = {"Projection", "SubqueryAlias", "Filter"}
SCAN_LINE = re.compile(r"^ *TableScan: (?:\w+\.)*(\w+)", re.MULTILINE)


def requests(plan: Any, drawn_plan: str, tables: Mapping[str, Types], shown: Any = None) -> dict[str, Request]:
    """The request for each table, given the types of its columns and the text of the plan.

    Uncorrelated scalar subqueries stay inside expressions, and DataFusion 55 does not expose their plans. But every
    scan is a line of the plan's text, theirs too. (A literal with such a line in it only adds a needless request.)
    `shown` is a plan of the same query with these subqueries as joins. Where the text has the same scans of a table,
    they are taken from there: a condition that only the joins bring about must not change what a subquery returns. A
    table with a scan that no plan shows is requested whole.
    """
    scans = _scans_by_table(plan)
    others = {} if shown is None else _scans_by_table(shown)
    drawn = Counter(SCAN_LINE.findall(drawn_plan))
    lines = Counter(line.strip() for line in drawn_plan.splitlines() if SCAN_LINE.match(line)) if others else Counter()

    def request(name: str, types: Types) -> Request:
        found = scans.get(name, [])
        if len(found) != drawn[name]:
            found = others.get(name, [])
            written = Counter(_without_truths(each.display()) for each in found)
            if sum(written.values()) != drawn[name] or written - lines:
                return everything(types)
        return _either([_request(each.to_variant(), types) for each in found])

    found = {name: request(name, types) for name, types in tables.items() if drawn[name]}
    if len(found) == drawn.total() == 1 and (limit := _limit(plan)) is not None:
        return {name: replace(each, limit=limit) for name, each in found.items()}
    return found


def _limit(plan: Any) -> int | None:
    """The rows that a query needs of its only scan; None if that is not known, as for ORDER BY and groups."""
    limit = None
    while (kind := type(node := plan.to_variant()).__name__) != "TableScan":
        if kind == "Limit":
            fetch = literal_of_limit(node.fetch())
            limit = limit if fetch is None else fetch + (literal_of_limit(node.skip()) or 0)
        elif kind not in _ROW_BY_ROW:
            return None
        (plan,) = plan.inputs()
    return limit


def literal_of_limit(expression: Any) -> int | None:
    """The number of a LIMIT or OFFSET; None if it is none."""
    if expression is None or expression.variant_name() != "Literal":
        return None
    value: int | None = expression.python_value().as_py()
    return value


def _without_truths(scan: str) -> str:
    """The text of a scan without the conditions that replace a subquery."""
    return scan.replace(", Boolean(true)]", "]").replace(", partial_filters=[Boolean(true)]", "")


def _either(found: list[Request]) -> Request:
    if len(found) == 1:
        return found[0]
    columns = frozenset[str]().union(*(request.columns for request in found))
    unprunable = frozenset[str]().union(*(request.unprunable for request in found))
    nested = any(request.nested for request in found)
    together = frozenset[str]().union(*(request.together for request in found))
    return Request(columns, Or(tuple(request.predicate for request in found)), unprunable, nested, together=together)


def _scans_by_table(plan: Any) -> dict[str, list[Any]]:
    scans: dict[str, list[Any]] = {}
    waiting = [plan]
    while waiting:
        found = waiting.pop()
        node = found.to_variant()
        if type(node).__name__ == "TableScan":
            scans.setdefault(node.table_name(), []).append(found)
        waiting += reversed(found.inputs())
    return scans


def _request(scan: Any, types: Types) -> Request:
    columns = frozenset(name for _, name in scan.projection() if name in types)
    # The filters of a scan can name columns beyond the projection.
    convert = Converter(types)
    found = And(tuple(convert(expression) for expression in scan.filters()))
    predicate = with_months(_with_float_ranges(found, types))
    nested = any(pa.types.is_nested(types[name]) for name in convert.columns)
    return Request(
        columns | convert.columns, predicate, convert.unprunable, nested, together=_together(scan.filters(), types)
    )


def _together(conditions: Iterable[Any], types: Types) -> frozenset[str]:
    found: set[str] = set()
    for condition in conditions:
        names = {part.to_variant().name() for part in parts_of(condition) if part.variant_name() == "Column"}
        found |= names if len(names) > 1 else set()
    return frozenset(found) & types.keys()


def _with_float_ranges(predicate: Predicate, types: Types) -> Predicate:
    """Bounds exclude NaN, which may sort on either side of a number, but not between two numbers. So where an AND
    bounds a float column on both sides, add that range. An end that is NaN bounds nothing: `f BETWEEN 5 AND 'NaN'`
    includes NaN."""
    match predicate:
        case Or(children):
            return Or(tuple(_with_float_ranges(child, types) for child in children))
        case And(children):
            changed = tuple(_with_float_ranges(child, types) for child in children)
            lows, highs = dict[str, Ordinal](), dict[str, Ordinal]()
            for child in conjuncts(predicate):
                if not isinstance(child, Compare) or not pa.types.is_floating(types[child.column]):
                    continue
                if child.value != child.value:  # NaN
                    continue
                if child.operator in (">", ">="):
                    lows[child.column] = max(child.value, lows.get(child.column, child.value))
                elif child.operator in ("<", "<="):
                    highs[child.column] = min(child.value, highs.get(child.column, child.value))
            both = [Between(name, lows[name], highs[name]) for name in lows.keys() & highs.keys()]
            return And((*changed, *both))
    return predicate
