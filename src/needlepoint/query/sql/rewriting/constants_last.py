"""Comparisons with the constant last: `ON a.id = b.id AND 1 = b.id` runs as `… AND b.id = 1`, which means the same.

When DataFusion 55 combines conditions on one column, it takes `1 < id` for `id < 1`: of `2 < id AND id >= 2` it keeps
the second, and `1 = id AND id = 1` is FALSE. In WHERE it puts the column first before that, but not before dates and
decimals, in ON, and in correlated subqueries:

>>> with_constants_last("SELECT * FROM a LEFT JOIN b ON a.id = b.id AND 1 = b.id AND DATE '2024-01-01' <= b.day")
"SELECT * FROM a LEFT JOIN b ON a.id = b.id AND b.id = 1 AND b.day >= DATE '2024-01-01'"
>>> with_constants_last("SELECT * FROM a JOIN b ON a.id = b.id AND 1 BETWEEN b.first AND b.last")
'SELECT * FROM a JOIN b ON a.id = b.id AND (b.first <= 1 AND b.last >= 1)'

Nor where the constant is a column of a subquery: it puts columns in an order of its own before it knows their values. A
function hides the column for as long as that matters:

>>> with_constants_last("SELECT id FROM (SELECT 4 AS four, id FROM t WHERE id = 4) AS t WHERE t.four = id")
'SELECT id FROM (SELECT 4 AS four, id FROM t WHERE id = 4) AS t WHERE id = nullif(t.four, NULL)'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from needlepoint.query.sql.rewriting.operands import EXPRESSION, FLIPPED, Change, Operands

# A constant before a comparison, or a subquery, whose columns may be constants.
_MAY_NEED = re.compile(
    r"(?:[\d')\]]|\$\w+|::\s*\w+|\b(?:TRUE|FALSE))\s*(?:[=<>!]|\bBETWEEN\b|\bIN\b)|\bSELECT\b.*\bSELECT\b",
    re.IGNORECASE | re.DOTALL,
)


def with_constants_last(query: str, views: Iterable[str] = ()) -> str:
    """The query with the constant last in comparisons. The query itself if it has quotes or comments that `tokens` does
    not know. Constants may also be columns of these views."""
    views = [*views]
    if not views and _MAY_NEED.search(query) is None:
        return query
    sql, others = Operands(query), [*map(Operands, views)]
    names: set[str] = set()
    for each in (sql, *others, sql):  # twice: a name may be one of a name
        names |= set(_constant_columns(each, names))
    written = sql.changed(_constants_first(sql, names))
    if not names:
        return written
    sql = Operands(written)
    return sql.changed(_hidden(sql, names))


def _constants_first(sql: Operands, names: Iterable[str]) -> Iterator[Change]:
    """Comparisons whose first operand has no columns, except these outside expressions."""
    for place, clause in enumerate(sql.clauses()):
        word, known = sql.words[place], () if clause == EXPRESSION else names
        if word == "IN":
            yield from _constant_in(sql, place)
        length = 1 if word == "BETWEEN" else sql.operator(place)
        if not length or (first := sql.left(place)) is None or not sql.is_constant(first, place, known):
            continue
        if (stop := sql.right(place + length)) is None or sql.is_constant(place + length, stop, known):
            continue
        if "SELECT" in sql.words[first:stop]:
            continue  # it may have comparisons of its own
        constant, other = sql.part(first, place), sql.part(place + length, stop)
        if word != "BETWEEN":
            yield first, stop, f"{other} {FLIPPED[sql.part(place, place + length)]} {constant}"
        elif sql.word(stop) == "AND" and not sql.is_volatile(first, place) and (end := sql.right(stop + 1)) is not None:
            yield first, end, f"({other} <= {constant} AND {sql.part(stop + 1, end)} >= {constant})"


def _constant_in(sql: Operands, place: int) -> Iterator[Change]:
    """`1 IN (SELECT …)`, for which DataFusion joins by `1 = …`, and `1 IN (x)`, which is `1 = x`."""
    first = sql.left(place)
    if first is None or not sql.is_constant(first, place) or sql.word(place + 1) != "(":
        return
    if sql.word(place + 2) in ("SELECT", "WITH"):
        yield first, place, f"(SELECT {sql.part(first, place)})"
    elif (stop := sql.right(place + 2)) is not None and sql.word(stop) == ")" and not sql.is_constant(place + 2, stop):
        yield first, stop + 1, f"{sql.part(place + 2, stop)} = {sql.part(first, place)}"


def has_constant_not_in(query: str) -> bool:
    """Whether a query has `1 NOT IN (SELECT …)`."""
    sql = Operands(query)
    negations = (
        place
        for place, word in enumerate(sql.words)
        if word == "NOT"
        and sql.words[place + 1 : place + 3] == ["IN", "("]
        and sql.word(place + 3) in ("SELECT", "WITH")
    )
    return any((first := sql.left(place)) is not None and sql.is_constant(first, place) for place in negations)


def _constant_columns(sql: Operands, names: Iterable[str]) -> Iterator[str]:
    """The names of columns that are literals beside columns of a table: `SELECT 4 AS four, … FROM …`."""
    levels: list[list[str]] = [[]]  # names so far in the SELECT of each pair of parentheses
    starts = [0]
    for place, word in enumerate(sql.words):
        first, name = starts[-1], place - 1
        if word in (",", "FROM") and sql.is_constant(first, name, names) and sql.is_alias(name):
            is_literal = "(" not in sql.words[first:name] or sql.words[first] == "CAST"
            levels[-1] += [sql.name(name)] if is_literal else []
        if word in ("SELECT", "DISTINCT", ","):
            starts[-1] = place + 1
        if word == "FROM":
            yield from levels[-1]
            levels[-1] = []
        if word == "(":
            levels.append([])
            starts.append(place + 1)
        elif word == ")" and len(levels) > 1:
            levels.pop()
            starts.pop()


def _hidden(sql: Operands, names: Iterable[str]) -> Iterator[Change]:
    """Columns of these names that are operands of a comparison in WHERE or HAVING."""
    first = 0  # of a name with qualifiers
    for place, clause in enumerate(sql.clauses()):
        if sql.word(place - 1) != "." and sql.words[place] != ".":
            first = place
        if clause not in ("WHERE", "HAVING") or not sql.is_name(place) or sql.name(place) not in names:
            continue
        if _is_beside_column(sql, first, place + 1):
            yield sql.hidden(first, place + 1)


def _is_beside_column(sql: Operands, first: int, stop: int) -> bool:
    """Whether a name is an operand of a comparison whose other operand has columns."""
    if (
        sql.word(stop) in (".", "(", "[")
        or sql.word(first - 1) == ":"
        or (stop < len(sql.found) and sql.found[stop]["text"])
    ):
        return False  # a function, or a type
    length = 1 if sql.word(stop) == "BETWEEN" else sql.operator(stop)
    if length:
        end = sql.right(stop + length)
        return end is not None and not sql.is_constant(stop + length, end)
    for place in range(first - 1, max(first - 3, 0), -1):
        length = 1 if sql.word(place) == "BETWEEN" else sql.operator(place)
        if length and place + length == first:
            start = sql.left(place)
            return start is not None and not sql.is_constant(start, place)
    return sql.word(first - 1) == "AND" and sql.is_of_between(first - 1)
