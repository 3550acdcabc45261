"""Which tables a join narrows: rows whose key no row of the other side has do not count.

    Inner Join: wanted.id = p.product_id
      TableScan: wanted                       3 rows
      SubqueryAlias: p
        TableScan: product                    only rows whose product_id is one of the 3 values of wanted.id count

An edge says so of two columns of tables. It holds if every row between the scan of the narrowed table and the join
depends on rows with the same key only: filters, projections, other joins, and groups by the key, but no LIMIT and no
window. Of the other table, the values of the column must include those that reach the join.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from needlepoint.query.sql.plan_facts import nodes
from needlepoint.query.sql.predicate_extraction import SCAN_LINE, Types

# The inputs that a join narrows by the keys of the other: left, right. Not those whose rows it keeps without a match.
_NARROWED = {
    "Inner": (True, True),
    "LeftSemi": (True, True),
    "RightSemi": (True, True),
    "Left": (False, True),
    "LeftAnti": (False, True),
    "Right": (True, False),
    "RightAnti": (True, False),
}
_SAME_COLUMNS = {"Filter", "SubqueryAlias"}
_FEWER_ROWS = {"Limit", "Sort", "Distinct"}  # a Sort may have a limit of its own
# Casts that change no value of an integer, a text or a date.
_HARMLESS_CAST = re.compile(r" AS (?:U?Int(?:8|16|32|64)|Utf8|LargeUtf8|Utf8View)\)$")


@dataclass(frozen=True, slots=True)
class JoinEdge:
    """Rows of `table` count only if their `column` has a value of `by_column` of `by_table`."""

    table: str
    column: str
    by_table: str
    by_column: str


def join_edges(plan: Any, drawn: str, tables: Mapping[str, Types]) -> tuple[JoinEdge, ...]:
    """The edges of an optimized plan, given its text and the types of the tables' columns. A table that is scanned more
    than once is not narrowed: the other scan may need all rows."""
    if "RecursiveQuery" in drawn:  # a table of its own may have the name of one of the lake
        return ()
    once = {name for name, scans in Counter(SCAN_LINE.findall(drawn)).items() if scans == 1}
    return tuple(dict.fromkeys(_edges(plan, once, tables)))


def _edges(plan: Any, once: set[str], tables: Mapping[str, Types]) -> Iterator[JoinEdge]:
    for node, join in nodes(plan):
        if type(join).__name__ != "Join" or join.null_equals_null() or "null_aware" in node.display():
            continue
        narrows_left, narrows_right = _NARROWED.get(str(join.join_type()), (False, False))
        left, right = node.inputs()
        for left_key, right_key in join.on():
            if narrows_right:
                yield from _edge((right, right_key), (left, left_key), once, tables)
            if narrows_left:
                yield from _edge((left, left_key), (right, right_key), once, tables)


def _edge(
    narrowed: tuple[Any, Any], by: tuple[Any, Any], once: set[str], tables: Mapping[str, Types]
) -> Iterator[JoinEdge]:
    found, other = origin(*narrowed, narrowed=True), origin(*by, narrowed=False)
    if found is None or other is None or found[0] not in once:
        return
    types = [tables.get(table, {}).get(column) for table, column in (found, other)]
    if _comparable(types):
        yield JoinEdge(*found, *other)


def _comparable(types: list[pa.DataType | None]) -> bool:
    """Whether equal values of both columns are equal as Python values."""
    return (
        all(type is not None and pa.types.is_integer(type) for type in types)
        or all(type is not None and pa.types.is_string(type) for type in types)
        or all(type is not None and pa.types.is_date32(type) for type in types)
    )


def origin(plan: Any, key: Any, narrowed: bool) -> tuple[str, str] | None:
    """The table and the column that an expression of a plan is read from. For a table that is `narrowed`, only through
    nodes that treat rows with different keys separately."""
    if key.variant_name() == "Cast" and _HARMLESS_CAST.search(key.canonical_name()):
        (key,) = key.rex_call_operands()
    place = _place(plan, key)
    while place is not None:
        node = plan.to_variant()
        match type(node).__name__:
            case "TableScan":
                names = [name for _, name in node.projection()]
                if (narrowed and node.fetch() is not None) or len(names) != len(_fields(plan)):
                    return None
                return node.table_name(), names[place]
            case kind if kind in _SAME_COLUMNS or (kind in _FEWER_ROWS and not narrowed):
                plan = plan.inputs()[0]
            case "Projection":
                plan, place = plan.inputs()[0], _place(plan.inputs()[0], _unnamed(node.projections()[place]))
            case "Aggregate":
                keys = node.group_by_exprs()
                key = keys[place] if place < len(keys) else None
                plan, place = plan.inputs()[0], None if key is None else _place(plan.inputs()[0], key)
            case "Join":
                plan, place = _input(plan, node, place)
            case _:
                return None
    return None


def _fields(plan: Any) -> list[str]:
    names: list[str] = plan.to_variant().schema().field_names()
    return names


def _place(plan: Any, expression: Any) -> int | None:
    """The place of a column in the schema of a plan; None for any other expression."""
    if expression.variant_name() != "Column":
        return None
    names, name = _fields(plan), expression.canonical_name()
    return names.index(name) if names.count(name) == 1 else None


def _unnamed(expression: Any) -> Any:
    return expression.to_variant().expr() if expression.variant_name() == "Alias" else expression


def _input(plan: Any, join: Any, place: int) -> tuple[Any, int | None]:
    """The input of a join that has a column, and its place there."""
    left, right = plan.inputs()
    kind, count = str(join.join_type()), len(_fields(left))
    if kind in ("Inner", "Left", "Right", "Full"):
        return (left, place) if place < count else (right, place - count)
    if kind in ("LeftSemi", "LeftAnti", "LeftMark"):
        return left, place if place < count else None
    return (right, place) if kind in ("RightSemi", "RightAnti") else (plan, None)
