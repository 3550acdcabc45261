"""The rows that an ORDER BY with LIMIT keeps, if they are ordered by a column of one table, or by a score of one.

Limit: skip=5, fetch=10
  Sort: product.score DESC NULLS FIRST, fetch=15      the last 15 values of score are enough
    Filter: product.price > 3
      TableScan: product
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from needlepoint.query.sql.join_edges import definition, origin
from needlepoint.query.sql.predicate_extraction import literal_of_limit

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


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column that rows are ordered by."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class RankedRows:
    """The same, ordered by `score(column, query)`, the highest first, `then` by other keys, of which None is no plain
    column. If there are none, rows with the same score may come in any order."""

    table: str
    column: str
    query: str
    wanted: int
    rows: int
    filtered: bool
    then: tuple[SortKey | None, ...] = ()


def top_rows(plan: Any) -> TopRows | RankedRows | None:
    """The top rows of an optimized plan, if it is such a query."""
    rows = None
    while (kind := type(plan.to_variant()).__name__) != "Sort":
        if kind == "Limit" and rows is None:
            rows = literal_of_limit(plan.to_variant().fetch())
        elif kind not in _ABOVE:
            return None
        (plan,) = plan.inputs()
    sort = plan.to_variant()
    wanted, keys = sort.get_fetch_val(), sort.sort_exprs()
    (below,) = plan.inputs()
    score = scored(below, keys[0].expr())
    found = origin(below, keys[0].expr(), narrowed=True)
    then = () if score is None else tuple(_sort_key(below, key) for key in keys[1:])
    filtered = False
    while (kind := type(below.to_variant()).__name__) != "TableScan":
        if kind not in _BELOW:
            return None
        filtered = filtered or kind == "Filter"
        (below,) = below.inputs()
    filtered = filtered or bool(below.to_variant().filters())
    rows = wanted if rows is None else rows
    if not wanted:
        return None
    if score is not None and not keys[0].ascending():
        return RankedRows(*score, wanted, rows, filtered, then)
    if found is None:
        return None
    return TopRows(*found, not keys[0].ascending(), keys[0].nulls_first(), wanted, rows, filtered=filtered)


def _sort_key(plan: Any, key: Any) -> SortKey | None:
    found = origin(plan, key.expr(), narrowed=True)
    return None if found is None else SortKey(found[1], not key.ascending(), key.nulls_first())


def scored(plan: Any, key: Any) -> tuple[str, str, str] | None:
    """The table, the column and the query of the score that an expression of a plan is."""
    defined = definition(plan, key)
    if defined is None:
        return None
    below, call = defined
    if call.variant_name() != "ScalarFunction" or call.rex_call_operator() != "score":
        return None
    text, query = call.rex_call_operands()
    found = origin(below, text, narrowed=True)
    if found is None or query.variant_name() != "Literal" or query.python_value().as_py() is None:
        return None
    return *found, query.python_value().as_py()
