"""Aggregates of one table: counts, least and greatest values, and groups by columns.

    Projection: product.tenant, count(Int64(1)) AS n         above: it runs over the rows of the aggregate
      Aggregate: groupBy=[[product.tenant]], aggr=[[count(Int64(1))]]
        Filter: product.price > Int64(3)                     an exact predicate: every row is TRUE by it or is not
          TableScan: product

What indexes know of such an aggregate is computed without reading rows (query/aggregates).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from needlepoint.predicate import Constant, Predicate
from needlepoint.query.sql.join_edges import origin, unnamed
from needlepoint.query.sql.predicates.converter import Types, exact_predicate

# Nodes that are run over the rows of the aggregate, and nodes between it and the table.
_ABOVE = {"Projection", "SubqueryAlias", "Filter", "Sort", "Limit", "Aggregate"}
_BETWEEN = {"Projection", "SubqueryAlias"}
_FUNCTIONS = {"count", "min", "max"}


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
    """

    table: str
    keys: tuple[str, ...]
    functions: tuple[Function, ...]
    predicate: Predicate
    condition: Any
    node: Any
    above: tuple[Any, ...]


def table_aggregate(plan: Any, tables: Mapping[str, Types]) -> TableAggregate | None:
    """The lowest aggregate of an optimized plan with one scan, if it is of this kind."""
    path = [plan]
    while inputs := path[-1].inputs():
        if len(inputs) != 1:
            return None
        path += inputs
    kinds = [_kind(each) for each in path]
    if kinds[-1] != "TableScan" or "Aggregate" not in kinds:
        return None
    place = len(kinds) - 1 - kinds[::-1].index("Aggregate")
    scan, between = path[-1].to_variant(), kinds[place + 1 : -1]
    filtered = between[-1:] == ["Filter"]
    if (
        not _ABOVE.issuperset(kinds[:place])
        or not _BETWEEN.issuperset(between[:-1] if filtered else between)
        or scan.fetch() is not None
        or scan.table_name() not in tables
        or (scan.filters() and not filtered)
    ):
        return None
    condition = path[-2].to_variant().predicate() if filtered else None
    predicate = exact_predicate(condition, tables[scan.table_name()]) if filtered else Constant(True)
    keys, functions = _keys(path[place]), _functions(path[place])
    if predicate is None or keys is None or functions is None:
        return None
    above = tuple(reversed(path[:place]))
    return TableAggregate(scan.table_name(), keys, functions, predicate, condition, path[place], above)


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
