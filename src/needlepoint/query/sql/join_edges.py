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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from needlepoint.query.sql.plan_nodes import field_names, nodes
from needlepoint.query.sql.predicate_extraction import SCAN_LINE
from needlepoint.query.sql.predicates.converter import terms
from needlepoint.query.sql.request import Types

# The inputs that a join narrows by the keys of the other: left, right. Not those whose rows it keeps without a match.
_NARROWED = {
    "Inner": (True, True),
    "LeftSemi": (True, True),
    "RightSemi": (True, True),
    "Left": (False, True),
    "LeftAnti": (False, True),
    "LeftMark": (False, True),
    "Right": (True, False),
    "RightAnti": (True, False),
}
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SAME_COLUMNS = {"Filter", "SubqueryAlias"}
_FEWER_ROWS = {"Limit", "Sort", "Distinct"}  # a Sort may have a limit of its own
# The end of a cast to an integer, and of one to a text.
_TO_INTEGER, _TO_TEXT = re.compile(r" AS U?Int(?:8|16|32|64)\)$"), re.compile(r" AS (?:Utf8|LargeUtf8|Utf8View)\)$")
_SCALAR, _MIN_OR_MAX = re.compile(r"SubqueryAlias: __scalar_sq_"), re.compile(r"(?:min|max)\(")


@dataclass(frozen=True, slots=True)
class JoinEdge:
    """Rows of `table` count only if their `column` has a value of `by_column` of `by_table`, plus an offset. With an
    operator, only if it compares so with the `extreme` (min or max) of that column, plus the offset. Sums are of 64
    bits, and wrap around."""

    table: str
    column: str
    by_table: str
    by_column: str
    offset: int = 0
    operator: str = "="
    extreme: str = ""


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
        if str(join.join_type()) == "Inner" and join.filter() is not None:
            yield from _comparisons(join.filter(), left, right, once, tables)
        for left_key, right_key in join.on():
            if narrows_right:
                yield from _edge((right, right_key), (left, left_key), once, tables)
            if narrows_left:
                yield from _edge((left, left_key), (right, right_key), once, tables)


def _edge(
    narrowed: tuple[Any, Any], by: tuple[Any, Any], once: set[str], tables: Mapping[str, Types]
) -> Iterator[JoinEdge]:
    found, other = _column(*narrowed, tables, narrowed=True), _column(*by, tables, narrowed=False)
    if found is None or other is None or found.table not in once or not _comparable(found.type, other.type):
        return
    yield JoinEdge(found.table, found.name, other.table, other.name, other.offset - found.offset)


def _comparisons(
    condition: Any, left: Any, right: Any, once: set[str], tables: Mapping[str, Types]
) -> Iterator[JoinEdge]:
    """Comparisons with the least or greatest value of a table, as `id > (SELECT max(x) FROM u)`."""
    for term in terms(condition, "AND"):
        if term.variant_name() != "BinaryExpr" or (operator := term.rex_call_operator()) not in _SWAPPED:
            continue
        one, other = term.rex_call_operands()
        for narrowed, scalar, sign in ((one, other, operator), (other, one, _SWAPPED[operator])):
            for outer, inner in ((left, right), (right, left)):
                value = _Changes().undone(scalar)
                if not _SCALAR.match(inner.display()) or _place(inner, value) != 0 or _place(outer, narrowed) is None:
                    continue
                found, by = (
                    _column(outer, narrowed, tables, narrowed=True),
                    _column(inner, scalar, tables, narrowed=False),
                )
                extreme = _exact_extreme(inner, once)
                if found is None or by is None or not extreme or found.table not in once or found.offset:
                    continue
                if _comparable(found.type, by.type):
                    yield JoinEdge(found.table, found.name, by.table, by.name, by.offset, sign, extreme)


def _exact_extreme(plan: Any, once: set[str]) -> str:
    """ "min" or "max", if a plan has this value of all rows that the scan of a table is asked for, plus a number
    perhaps; else nothing. The extreme of sums is another: one may wrap around."""
    extreme, conditions = "", set[str]()
    while True:
        node = plan.to_variant()
        match type(node).__name__:
            case "SubqueryAlias":
                pass
            case "Projection" if not (extreme and any(map(_is_sum, node.projections()))):
                pass
            case "Aggregate" if not extreme and not node.group_by_exprs() and len(node.aggregate_exprs()) == 1:
                (aggregate,) = node.aggregate_exprs()
                argument = _extreme(aggregate)
                name = "" if argument is None else argument.canonical_name()
                extreme = aggregate.canonical_name()[:3]
                if aggregate.canonical_name() != f"{extreme}({name})" or argument is None or _is_sum(argument):
                    return ""  # with a FILTER, for instance
            case "Filter" if extreme:
                conditions |= {each.canonical_name() for each in terms(node.predicate(), "AND")}
            case "TableScan" if extreme and node.fetch() is None:
                asked = {each.canonical_name() for each in node.filters()} - {"Boolean(true)"}
                return extreme if conditions <= asked and (not asked or node.table_name() in once) else ""
            case _:
                return ""
        plan = plan.inputs()[0]


class _Column(NamedTuple):
    table: str
    name: str
    type: pa.DataType
    offset: int = 0


@dataclass(slots=True)
class _Changes:
    """What was done to the values of a column: casts, by their texts, and a number that was added."""

    casts: list[str] = field(default_factory=list)
    offset: int = 0

    def undone(self, expression: Any) -> Any:
        """The argument of casts and sums: x of `CAST(x AS BIGINT) + 1`. Sums of integers of 64 bits only."""
        while True:
            number = _summand(expression)
            if number is not None:
                self.offset += number
            elif expression.variant_name() == "Cast":
                self.casts.append(expression.canonical_name())
            else:
                return expression
            expression = expression.rex_call_operands()[0]

    def keep(self, type: pa.DataType) -> bool:
        """Whether these changes, but for the number, keep each value of a column of this type, or fail for it."""
        if pa.types.is_integer(type):
            return all(map(_TO_INTEGER.search, self.casts))
        return not self.offset and (
            not self.casts or (pa.types.is_string(type) and all(map(_TO_TEXT.search, self.casts)))
        )


def _column(plan: Any, key: Any, tables: Mapping[str, Types], narrowed: bool) -> _Column | None:
    """The column of a table that a key of a join is. A cast between integers, or between texts, changes no value."""
    changes = _Changes()
    found = origin(plan, changes.undone(key), narrowed, changes)
    type = None if found is None else tables.get(found[0], {}).get(found[1])
    if found is None or type is None or not changes.keep(type):
        return None
    return _Column(*found, type, changes.offset)


def _summand(expression: Any) -> int | None:
    """The number that is added last, or subtracted; None if the expression is no such sum."""
    if expression.variant_name() != "BinaryExpr" or expression.rex_call_operator() not in ("+", "-"):
        return None
    literal = expression.rex_call_operands()[1]
    if literal.variant_name() != "Literal" or not pa.types.is_int64(literal.python_value().type):
        return None
    number: int | None = literal.python_value().as_py()
    return number if number is None or expression.rex_call_operator() == "+" else -number


def _same(expression: Any) -> Any:
    return expression


def _is_sum(expression: Any) -> bool:
    changes = _Changes()
    changes.undone(unnamed(expression))
    return changes.offset != 0


def _comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether equal values of both types are equal as Python values."""
    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32)
    return any(is_kind(left) and is_kind(right) for is_kind in kinds)


def origin(plan: Any, key: Any, narrowed: bool, changes: _Changes | None = None) -> tuple[str, str] | None:
    """The table and the column that an expression of a plan is read from. For a table that is `narrowed`, only through
    nodes that treat rows with different keys separately. Casts and sums on the way are added to the `changes`, if they
    are allowed: the caller checks what they did to the values of the column."""
    undone: Callable[[Any], Any] = _same if narrowed or changes is None else changes.undone
    place = _place(plan, key)
    while place is not None:
        node = plan.to_variant()
        match type(node).__name__:
            case "TableScan":
                names = [name for _, name in node.projection()]
                if (narrowed and node.fetch() is not None) or len(names) != len(field_names(plan)):
                    return None
                return node.table_name(), names[place]
            case "SubqueryAlias" if narrowed and place == 0 and _SCALAR.match(plan.display()):
                return None  # with fewer rows, a scalar subquery may have another value, or no error
            case kind if kind in _SAME_COLUMNS or (kind in _FEWER_ROWS and not narrowed):
                plan = plan.inputs()[0]
            case "Projection":
                chosen = undone(unnamed(node.projections()[place]))
                plan, place = plan.inputs()[0], _place(plan.inputs()[0], chosen)
            case "Aggregate":
                keys = node.group_by_exprs()
                if any(each.variant_name() == "GroupingSet" for each in keys):
                    return None  # it has more columns than expressions
                if place < len(keys):
                    key = keys[place]
                else:
                    key = None if narrowed else _extreme(node.aggregate_exprs()[place - len(keys)])
                plan, place = plan.inputs()[0], None if key is None else _place(plan.inputs()[0], undone(key))
            case "Join":
                plan, place = _input(plan, node, place)
            case _:
                return None
    return None


def _extreme(aggregate: Any) -> Any | None:
    """The argument of min or max, which is one of its values."""
    if not _MIN_OR_MAX.match(aggregate.canonical_name()):
        return None
    operands = aggregate.rex_call_operands()
    return operands[0] if len(operands) == 1 else None


def definition(plan: Any, key: Any) -> tuple[Any, Any] | None:
    """What an expression of a plan is computed as, and the plan whose columns that uses; None for a column of a table.
    Only through nodes that change no column."""
    if key.variant_name() != "Column":
        return plan, key
    place = _place(plan, key)
    while place is not None:
        node = plan.to_variant()
        kind = type(node).__name__
        if kind != "Projection" and kind not in _SAME_COLUMNS:
            return None
        (plan,) = plan.inputs()
        if kind == "Projection":
            expression = unnamed(node.projections()[place])
            if expression.variant_name() != "Column":
                return plan, expression
            place = _place(plan, expression)
    return None


def _place(plan: Any, expression: Any) -> int | None:
    """The place of a column in the schema of a plan; None for any other expression."""
    if expression.variant_name() != "Column":
        return None
    names, name = field_names(plan), expression.canonical_name()
    return names.index(name) if names.count(name) == 1 else None


def unnamed(expression: Any) -> Any:
    """The expression without its alias."""
    return expression.to_variant().expr() if expression.variant_name() == "Alias" else expression


def _input(plan: Any, join: Any, place: int) -> tuple[Any, int | None]:
    """The input of a join that has a column, and its place there."""
    left, right = plan.inputs()
    kind, count = str(join.join_type()), len(field_names(left))
    if kind in ("Inner", "Left", "Right", "Full"):
        return (left, place) if place < count else (right, place - count)
    if kind in ("LeftSemi", "LeftAnti", "LeftMark"):
        return left, place if place < count else None
    return (right, place) if kind in ("RightSemi", "RightAnti") else (plan, None)
