"""Aggregates of one table: counts, least and greatest values, and groups by columns.

    Projection: product.tenant, count(Int64(1)) AS n         above: it runs over the rows of the aggregate
      Aggregate: groupBy=[[product.tenant]], aggr=[[count(Int64(1))]]
        Filter: product.price > Int64(3)                     an exact predicate: every row is TRUE by it or is not
          TableScan: product

What indexes know of such an aggregate is computed without reading rows (query/aggregates).

So is the number of rows that a LIMIT keeps, if no column of them counts:

    Projection: Int64(1)                                     above
      Limit: skip=0, fetch=1                                 how many of the rows
        Filter: product.price > Int64(3)
          TableScan: product
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from needlepoint.predicate import Constant, Predicate
from needlepoint.query.sql.join_edges import origin, unnamed
from needlepoint.query.sql.predicate_extraction import literal_of_limit
from needlepoint.query.sql.predicates.converter import exact_predicate
from needlepoint.query.sql.request import Types

# Nodes that are run over the rows of the aggregate, and nodes between it and the table.
_ABOVE = {"Projection", "SubqueryAlias", "Filter", "Sort", "Limit", "Aggregate"}
_BETWEEN = {"Projection", "SubqueryAlias"}
_FUNCTIONS = {"count", "min", "max"}
# A LIMIT with more rows is run as usual.
MOST_LIMITED = 10_000


@dataclass(frozen=True, slots=True)
class Function:
    """`count`, `min` or `max` of a column; without one, the count of all rows."""

    name: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class TableAggregate:
    """
    table       that it aggregates
    keys        columns of the table by which it groups
    functions   what it computes for each group
    predicate   that is TRUE for the rows that count, and for no others
    condition   the same as an expression of DataFusion; None for all rows
    node        the aggregate in the plan; its columns are the keys, then the functions
    above       the nodes above it, the lowest first
    limit       how many rows are skipped, and kept at most: then it only counts rows, and `above` runs over the rows
    """

    table: str
    keys: tuple[str, ...]
    functions: tuple[Function, ...]
    predicate: Predicate
    condition: Any
    node: Any
    above: tuple[Any, ...]
    limit: tuple[int, int] | None = None


def table_aggregate(plan: Any, tables: Mapping[str, Types]) -> TableAggregate | None:
    """The lowest aggregate of an optimized plan with one scan, or the rows of its LIMIT, if it is of this kind."""
    path = [plan]
    while inputs := path[-1].inputs():
        if len(inputs) != 1:
            return None
        path += inputs
    kinds = [_kind(each) for each in path]
    places = [place for place, kind in enumerate(kinds) if kind in ("Aggregate", "Limit")]
    if kinds[-1] != "TableScan" or not places or not _ABOVE.issuperset(kinds[: places[-1]]):
        return None
    place, name = places[-1], path[-1].to_variant().table_name()
    rows = rows_of_scan(path[place + 1 :], tables, kinds[place] == "Limit")
    if rows is None:
        return None
    if kinds[place] == "Limit":
        limit, above = _limit(path[place].to_variant()), _of_no_columns(path, place)
        if limit is None or above is None:
            return None
        return TableAggregate(name, (), (Function("count"),), *rows, path[place], above, limit)
    keys, functions = _keys(path[place]), _functions(path[place])
    if keys is None or functions is None:
        return None
    return TableAggregate(name, keys, functions, *rows, path[place], tuple(reversed(path[:place])))


def rows_of_scan(path: Sequence[Any], tables: Mapping[str, Types], limited: bool) -> tuple[Predicate, Any] | None:
    """What is TRUE for the rows of a plan down to a scan, as a predicate and as an expression. A LIMIT above may have
    told the scan how many rows it needs."""
    scan, between = path[-1].to_variant(), [_kind(each) for each in path[:-1]]
    filtered = between[-1:] == ["Filter"]
    if (
        not _BETWEEN.issuperset(between[:-1] if filtered else between)
        or (scan.fetch() is not None and not limited)
        or scan.table_name() not in tables
        or (scan.filters() and not filtered)
    ):
        return None
    condition = path[-2].to_variant().predicate() if filtered else None
    predicate = exact_predicate(condition, tables[scan.table_name()]) if filtered else Constant(True)
    return None if predicate is None else (predicate, condition)


def _limit(limit: Any) -> tuple[int, int] | None:
    """How many rows a LIMIT skips and keeps, if it keeps few."""
    skip = 0 if limit.skip() is None else literal_of_limit(limit.skip())
    most = literal_of_limit(limit.fetch())
    return None if skip is None or most is None or most > MOST_LIMITED else (skip, most)


def _of_no_columns(path: Sequence[Any], limit: int) -> tuple[Any, ...] | None:
    """The nodes that run over the rows of a LIMIT, the lowest first, if they need none of their columns: first a
    projection of literals, which may be below the LIMIT too, or a count."""
    for place in range(len(path) - 1, -1, -1):
        node = path[place].to_variant()
        match type(node).__name__:
            case "Projection" if all(each.variant_name() == "Column" for each in node.projections()):
                continue
            case "Projection" if all(unnamed(each).variant_name() == "Literal" for each in node.projections()):
                above = path[:limit] if place > limit else path[:place]
                return (path[place], *reversed(above)) if place < limit or place == limit + 1 else None
            case "Aggregate" if place < limit and not node.group_by_exprs():
                return tuple(reversed(path[: place + 1])) if _functions(path[place]) == (Function("count"),) else None
            case "TableScan" | "Filter" | "SubqueryAlias" | "Limit":
                if place < limit and type(node).__name__ in ("Filter", "Limit"):
                    return None
            case _:
                return None
    return None


def _kind(plan: Any) -> str:
    return type(plan.to_variant()).__name__


def _keys(aggregate: Any) -> tuple[str, ...] | None:
    (below,) = aggregate.inputs()
    found = [origin(below, unnamed(each), narrowed=True) for each in aggregate.to_variant().group_by_exprs()]
    columns = [each[1] for each in found if each is not None]
    return tuple(columns) if len(columns) == len(found) else None


def _functions(aggregate: Any) -> tuple[Function, ...] | None:
    (below,) = aggregate.inputs()
    found = [_function(below, unnamed(each)) for each in aggregate.to_variant().aggregate_exprs()]
    functions = [each for each in found if each is not None]
    return tuple(functions) if len(functions) == len(found) else None


def _function(below: Any, expression: Any) -> Function | None:
    if expression.variant_name() != "AggregateFunction":
        return None
    call = expression.to_variant()
    name, arguments = call.aggregate_type(), call.args()
    # DataFusion does not expose FILTER, ORDER BY and DISTINCT of an aggregate: then its text is longer than this.
    if name not in _FUNCTIONS or len(arguments) != 1:
        return None
    (argument,) = arguments
    if expression.canonical_name() != f"{name}({argument.canonical_name()})":
        return None
    if argument.variant_name() == "Literal":
        return Function("count") if name == "count" and argument.python_value().is_valid else None
    found = origin(below, argument, narrowed=True)
    return None if found is None else Function(name, found[1])


def output_names(node: Any) -> Sequence[tuple[str | None, str]]:
    """The relation and name of each column of an aggregate."""
    variant = node.to_variant()
    names: list[tuple[str | None, str]] = []
    for expression, name in zip(
        [*variant.group_by_exprs(), *variant.aggregate_exprs()], variant.schema().field_names(), strict=True
    ):
        column = expression.to_variant() if expression.variant_name() == "Column" else None
        names.append((None, name) if column is None else (column.relation(), column.name()))
    return names


def is_supported(type: pa.DataType) -> bool:
    """Whether values of this type are grouped and compared as their ordinals are. Not floats: -0.0 equals 0.0, and NaN
    has no place in the order that all engines agree on."""
    return bool(
        pa.types.is_integer(type)
        or pa.types.is_boolean(type)
        or pa.types.is_date32(type)
        or pa.types.is_timestamp(type)
        or pa.types.is_string(type)
        or pa.types.is_binary(type)
    )
