"""The ORDER BY of the whole query, with keys that DataFusion 55 sorts by correctly.

1. If a column is constant below an outer join, DataFusion treats it as constant above it too, although some of its
values are NULL there, and drops it from the keys of ORDER BY:

    SELECT c.s FROM c LEFT JOIN b ON b.id = c.n AND b.p = 7 ORDER BY b.p, c.s        is sorted by c.s alone

A column of a union is constant only if it is constant in all parts. So the rows are sorted as a union with no rows:

    Limit, Projection                          Limit, Projection
      Sort: b.p, c.s                             Sort: k0, k1
        the rows                                   Union
                                                     Projection: the columns as c0, c1, …; b.p AS k0, c.s AS k1
                                                       the rows
                                                     no rows

sql/rewriting/sort_keys.py has those of windows and subqueries.

2. With LIMIT, it orders -0.0 before 0.0, but skips rows as if both were equal, and loses some. Floats are sorted as
`f + 0.0`, which is 0.0 for both: they are equal, as in SQL. sql/plan_facts.py has those of subqueries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import datafusion
import pyarrow as pa

from needlepoint.query.sql.plan_nodes import field_names
from needlepoint.query.sql.statements import quoted

_ALL = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _FinalSort:
    """The parts of a plan: the rows, their order, which columns are shown, and how many rows. Where the query does not
    limit or choose, `limit` or `shown` is None."""

    rows: Any
    sort: Any
    shown: Any
    limit: Any


def sort_correctly(
    context: datafusion.SessionContext, frame: datafusion.DataFrame, *, over_union: bool
) -> datafusion.DataFrame:
    """The frame with its last ORDER BY as it has to be; columns may have other names. The frame itself, if it has no
    ORDER BY that has to change."""
    found = _taken_apart(frame.logical_plan())
    if found is None:
        return frame
    if over_union:
        return _over_union(context, found) or frame
    return _with_equal_zeros(context, found) or frame


def with_equal_zeros(frame: datafusion.DataFrame, keys: Sequence[Any]) -> list[datafusion.Expr]:
    """The keys of a sort of this frame, as what is to be sorted by."""
    plain = [datafusion.Expr(each.expr()) for each in keys]
    types = frame.select(*(key.alias(f"k{at}") for at, key in enumerate(plain))).schema().types
    return [key + _zero(type) if pa.types.is_floating(type) else key for key, type in zip(plain, types, strict=True)]


def _zero(type: pa.DataType) -> datafusion.Expr:
    zero = datafusion.lit(0.0)
    return zero if pa.types.is_float64(type) else zero.cast(type)


def ordered(expressions: Sequence[datafusion.Expr], keys: Sequence[Any]) -> list[Any]:
    """The expressions as keys of a sort, each in the direction of the key in its place."""
    return [
        expression.sort(ascending=each.ascending(), nulls_first=each.nulls_first())
        for expression, each in zip(expressions, keys, strict=True)
    ]


def _taken_apart(plan: Any) -> _FinalSort | None:
    limit, plan = _peeled(plan, "Limit")
    shown, plan = _peeled(plan, "Projection")
    sort, rows = _peeled(plan, "Sort")
    return None if sort is None or sort.get_fetch_val() is not None else _FinalSort(rows, sort, shown, limit)


def _with_equal_zeros(context: datafusion.SessionContext, found: _FinalSort) -> datafusion.DataFrame | None:
    """None if no key is a float."""
    whole, keys = context.create_dataframe_from_logical_plan(found.rows), found.sort.sort_exprs()
    expressions = with_equal_zeros(whole, keys)
    if all(each.canonical_name() == key.expr().canonical_name() for each, key in zip(expressions, keys, strict=True)):
        return None
    sorted_rows = _limited(context, whole.sort(*ordered(expressions, keys)), found.limit)
    if found.shown is None:
        return sorted_rows
    return sorted_rows.select(*map(datafusion.Expr, found.shown.projections()))


def _over_union(context: datafusion.SessionContext, found: _FinalSort) -> datafusion.DataFrame | None:
    """None if one of the columns has no name."""
    rows, keys = found.rows, found.sort.sort_exprs()
    names = field_names(_peeled(rows, "Distinct")[1])
    chosen = names if found.shown is None else [each.canonical_name() for each in found.shown.projections()]
    whole = context.create_dataframe_from_logical_plan(rows)
    columns = [_column(whole, name, field) for name, field in zip(names, whole.schema().names, strict=True)]
    if not set(chosen) <= set(names) or any(each is None for each in columns):
        return None
    wide = whole.select(
        *(column.alias(f"c{at}") for at, column in enumerate(columns) if column is not None),
        *(key.alias(f"k{at}") for at, key in enumerate(with_equal_zeros(whole, keys))),
    )
    none = context.read_batches([pa.RecordBatch.from_pylist([], wide.schema())])
    order = ordered([datafusion.col(f"k{at}") for at in range(len(keys))], keys)
    sorted_rows = _limited(context, wide.union(none).sort(*order), found.limit)
    return sorted_rows.select(*(datafusion.col(f"c{names.index(name)}") for name in chosen))


def _limited(context: datafusion.SessionContext, frame: datafusion.DataFrame, limit: Any) -> datafusion.DataFrame:
    if limit is None:
        return frame
    skip, count = _number(context, limit.skip(), 0), _number(context, limit.fetch(), _ALL)
    return frame.limit(min(count, _ALL - skip), skip)


def _peeled(plan: Any, kind: str) -> tuple[Any, Any]:
    """The first node, if it is of this kind, and the plan below it."""
    node = plan.to_variant()
    return (node, plan.inputs()[0]) if type(node).__name__ == kind else (None, plan)


def _number(context: datafusion.SessionContext, expression: Any, otherwise: int) -> int:
    """The value of a constant expression; `otherwise` if it is missing or NULL."""
    if expression is None:
        return otherwise
    if expression.variant_name() == "Literal":
        value = expression.python_value().as_py()
    else:
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
