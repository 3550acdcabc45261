"""Columns of the rows of one table for which a condition is TRUE.

    Projection: product.title, product.upc AS code
      Filter: product.price > Int64(3)                 an exact predicate: every row is TRUE by it or is not
        TableScan: product

If all rows that may match are read by page, such a query needs no DataFusion to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from needlepoint.predicate import Predicate
from needlepoint.query.sql.join_edges import origin, unnamed
from needlepoint.query.sql.request import Types
from needlepoint.query.sql.table_aggregate import rows_of_scan


@dataclass(frozen=True, slots=True)
class TableSelection:
    """`columns` of the table, in the order of the result; the `predicate` is TRUE for its rows and no others."""

    columns: tuple[str, ...]
    predicate: Predicate


def table_selection(plan: Any, tables: Mapping[str, Types]) -> TableSelection | None:
    """What an optimized plan with one scan selects, if it is of this kind."""
    path = [plan]
    while inputs := path[-1].inputs():
        if len(inputs) != 1:
            return None
        path += inputs
    scan = path[-1].to_variant()
    if type(scan).__name__ != "TableScan" or (rows := rows_of_scan(path, tables, limited=False)) is None:
        return None
    while type(top := path[0].to_variant()).__name__ == "SubqueryAlias":
        path = path[1:]
    if type(top).__name__ == "Projection":
        found = [origin(path[1], unnamed(each), narrowed=True) for each in top.projections()]
        columns = tuple(each[1] for each in found if each is not None)
        return TableSelection(columns, rows[0]) if len(columns) == len(found) else None
    if any(type(each.to_variant()).__name__ == "Projection" for each in path):
        return None
    return TableSelection(tuple(name for _, name in scan.projection()), rows[0])
