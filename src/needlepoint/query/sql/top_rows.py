"""The rows that an ORDER BY with LIMIT keeps, if they are ordered by a column of one table.

Limit: skip=5, fetch=10
  Sort: product.score DESC NULLS FIRST, fetch=15      the last 15 values of score are enough
    Filter: product.price > 3
      TableScan: product
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from needlepoint.query.sql.join_edges import origin

_ABOVE = {"Projection", "SubqueryAlias"}
_BELOW = {"Projection", "SubqueryAlias", "Filter"}


@dataclass(frozen=True, slots=True)
class TopRows:
    """A query whose result is the first `rows` of a table, after `wanted - rows` others, ordered by a column. If it is
    `filtered`, not each row of the table counts."""

    table: str
    column: str
    descending: bool
    nulls_first: bool
    wanted: int
    rows: int
    filtered: bool


def top_rows(plan: Any) -> TopRows | None:
    """The top rows of an optimized plan, if it is such a query."""
    rows = None
    while (kind := type(plan.to_variant()).__name__) != "Sort":
        if kind == "Limit" and rows is None:
            rows = _literal(plan.to_variant().fetch())
        elif kind not in _ABOVE:
            return None
        (plan,) = plan.inputs()
    sort = plan.to_variant()
    wanted, key = sort.get_fetch_val(), sort.sort_exprs()[0]
    (below,) = plan.inputs()
    found = origin(below, key.expr(), narrowed=True)
    filtered = False
    while (kind := type(below.to_variant()).__name__) != "TableScan":
        if kind not in _BELOW:
            return None
        filtered = filtered or kind == "Filter"
        (below,) = below.inputs()
    filtered = filtered or bool(below.to_variant().filters())
    if not wanted or found is None:
        return None
    return TopRows(
        *found, not key.ascending(), key.nulls_first(), wanted, wanted if rows is None else rows, filtered=filtered
    )


def _literal(expression: Any) -> int | None:
    """The number of a LIMIT; None if it is none."""
    if expression is None or expression.variant_name() != "Literal":
        return None
    value: int | None = expression.python_value().as_py()
    return value
