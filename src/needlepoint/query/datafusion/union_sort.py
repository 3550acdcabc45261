"""ORDER BY over outer joins that keeps all its keys.

If a column is constant below an outer join, DataFusion 55 treats it as constant above it too, although some of its
values are NULL there, and drops it from the keys of ORDER BY:

    SELECT c.s FROM c LEFT JOIN b ON b.id = c.n AND b.p = 7 ORDER BY b.p, c.s        is sorted by c.s alone

A column of a union is constant only if it is constant in all parts. So the rows are sorted as a union with no rows:

    Limit, Projection                          Limit, Projection
      Sort: b.p, c.s                             Sort: k0, k1
        the rows                                   Union
                                                     Projection: the columns as c0, c1, …; b.p AS k0, c.s AS k1
                                                       the rows
                                                     no rows

This applies to the ORDER BY of the whole query; sql/rewriting/sort_keys.py has those of windows and subqueries.
"""

from __future__ import annotations

from typing import Any

import datafusion
import pyarrow as pa

from needlepoint.query.sql.plan_nodes import field_names
from needlepoint.query.sql.statements import quoted

_ALL = 2**63 - 1


def sort_over_union(context: datafusion.SessionContext, frame: datafusion.DataFrame) -> datafusion.DataFrame:
    """The frame with its last ORDER BY over a union; its columns have other names. The frame itself, if it has no
    ORDER BY, or if one of its columns has no name."""
    plan = frame.logical_plan()
    limit, plan = _peeled(plan, "Limit")
    shown, plan = _peeled(plan, "Projection")
    sort, rows = _peeled(plan, "Sort")
    if sort is None or sort.get_fetch_val() is not None:
        return frame
    names = field_names(_peeled(rows, "Distinct")[1])
    chosen = names if shown is None else [each.canonical_name() for each in shown.projections()]
    whole = context.create_dataframe_from_logical_plan(rows)
    columns = [_column(whole, name, field) for name, field in zip(names, whole.schema().names, strict=True)]
    if not set(chosen) <= set(names) or any(each is None for each in columns):
        return frame
    keys = [datafusion.Expr(each.expr()) for each in sort.sort_exprs()]
    wide = whole.select(
        *(column.alias(f"c{at}") for at, column in enumerate(columns) if column is not None),
        *(key.alias(f"k{at}") for at, key in enumerate(keys)),
    )
    none = context.read_batches([pa.RecordBatch.from_pylist([], wide.schema())])
    order = [
        datafusion.col(f"k{at}").sort(ascending=each.ascending(), nulls_first=each.nulls_first())
        for at, each in enumerate(sort.sort_exprs())
    ]
    found = wide.union(none).sort(*order)
    if limit is not None:
        skip, count = _number(context, limit.skip(), 0), _number(context, limit.fetch(), _ALL)
        found = found.limit(min(count, _ALL - skip), skip)
    return found.select(*(datafusion.col(f"c{names.index(name)}") for name in chosen))


def _peeled(plan: Any, kind: str) -> tuple[Any, Any]:
    """The first node, if it is of this kind, and the plan below it."""
    node = plan.to_variant()
    return (node, plan.inputs()[0]) if type(node).__name__ == kind else (None, plan)


def _number(context: datafusion.SessionContext, expression: Any, otherwise: int) -> int:
    """The value of a constant expression; `otherwise` if it is missing or NULL."""
    if expression is None:
        return otherwise
    one = context.read_batches([pa.RecordBatch.from_pydict({"one": [1]})])
    (value,) = one.select(datafusion.Expr(expression).alias("n")).to_arrow_table().column("n").to_pylist()
    return otherwise if value is None else int(value)


def _column(frame: datafusion.DataFrame, name: str, field: str) -> datafusion.Expr | None:
    """A column of a frame by its name in the plan, such as `t.id`; None if the name is ambiguous."""
    table = name.removesuffix(field).removesuffix(".")
    if not table:
        return datafusion.col(quoted(field))
    for written in (quoted(table), ".".join(map(quoted, table.split(".")))):  # an alias can contain dots
        column = datafusion.col(f"{written}.{quoted(field)}")
        if "." not in table or _is_in(frame, column):
            return column
    return None


def _is_in(frame: datafusion.DataFrame, column: datafusion.Expr) -> bool:
    try:
        frame.select(column)
    except Exception:
        return False
    return True
