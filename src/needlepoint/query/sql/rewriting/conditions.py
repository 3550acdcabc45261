"""Conditions that DataFusion derives nothing from: `WHERE a = b` as `WHERE (a = b) IS TRUE`, which means the same.

DataFusion 55 sorts the input of a window by b where a condition says that a = b. If it then moves a projection into a
join below, it forgets the condition, and rejects its own plan: the window asks for an order by a.

>>> as_truths("SELECT rank() OVER (ORDER BY a) FROM (SELECT * FROM t WHERE a = b AND c > 1 LIMIT 5) WHERE a = 2")
'SELECT rank() OVER (ORDER BY a) FROM (SELECT * FROM t WHERE (a = b AND c > 1) IS TRUE LIMIT 5) WHERE (a = 2) IS TRUE'

Conditions with a subquery stay as they are, and so do those inside it: DataFusion makes joins of them.

>>> as_truths("SELECT a FROM t WHERE a = b AND a NOT IN (SELECT c FROM u WHERE d = t.b) ORDER BY a")
'SELECT a FROM t WHERE a = b AND a NOT IN (SELECT c FROM u WHERE d = t.b) ORDER BY a'

It also takes a column for constant where a condition compares it with one, even above an outer join that makes it NULL.
There only such conditions are hidden, also those of ON, and the keys of joins stay:

>>> with_hidden_constants("SELECT * FROM a LEFT JOIN b ON a.x = b.x AND b.y = 2 WHERE a.x IN (3) AND a.y = a.z")
'SELECT * FROM a LEFT JOIN b ON a.x = b.x AND (b.y = 2) IS TRUE WHERE (a.x IN (3)) IS TRUE AND a.y = a.z'
"""

from __future__ import annotations

from collections.abc import Iterator

from needlepoint.query.sql.rewriting.operands import EXPRESSION, Operands

_BEFORE = {"WHERE", "HAVING"}
_AFTER = {"GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "FETCH", "UNION", "EXCEPT", "INTERSECT"}
_OPENS, _CLOSES = {"(", "[", "CASE"}, {")", "]", "END"}
_LONGEST = 1000  # tokens
_JOINS = {"WHERE", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", ",", ";"}


def as_truths(query: str) -> str:
    """The query with `IS TRUE` after such conditions of WHERE and HAVING. The query itself if it has quotes or comments
    that `tokens` does not know."""
    sql = Operands(query)
    return _with_truths(sql, ((first, _end(sql, first)) for first in _starts(sql, _BEFORE)))


def with_hidden_constants(query: str) -> str:
    """The query with `IS TRUE` after conditions of WHERE, HAVING and ON that may compare a column with a constant."""
    sql = Operands(query)
    return _with_truths(
        sql,
        (
            part
            for first in _starts(sql, _BEFORE | {"ON"})
            for part in _conjuncts(sql, first, _end(sql, first))
            if not _is_key(sql, *part)
        ),
    )


def _with_truths(sql: Operands, conditions: Iterator[tuple[int, int]]) -> str:
    return sql.changed(
        (first, stop, f"({sql.part(first, stop)}) IS TRUE")
        for first, stop in conditions
        if first < stop and "SELECT" not in sql.words[first:stop]
    )


def _starts(sql: Operands, before: set[str]) -> Iterator[int]:
    """The first words of conditions, except those in subqueries that are expressions."""
    for place, clause in enumerate(sql.clauses()):
        is_filter = sql.word(place - 1) == "("  # FILTER (WHERE …)
        if sql.words[place] in before and clause != EXPRESSION and not is_filter:
            yield place + 1


def _conjuncts(sql: Operands, first: int, stop: int) -> list[tuple[int, int]]:
    """The conditions that must all hold."""
    ands, depth = [first - 1], 0
    for place in range(first, stop):
        word = sql.words[place]
        if depth == 0 and word == "OR":
            return [(first, stop)]
        if depth == 0 and word == "AND" and not sql.is_of_between(place):
            ands.append(place)
        depth += (word in _OPENS) - (word in _CLOSES)
    return [(start + 1, end) for start, end in zip(ands, [*ands[1:], stop], strict=True)]


def _is_key(sql: Operands, first: int, stop: int) -> bool:
    """Whether a condition says that two columns are equal, or is too long to tell."""
    if stop - first > _LONGEST:
        return True
    signs = [(place, place + count) for place in range(first, stop) if (count := sql.operator(place))]
    if len(signs) != 1 or sql.part(*signs[0]) not in ("=", "=="):
        return False
    ((before, after),) = signs
    return not (sql.is_constant(first, before) or sql.is_constant(after, stop))


def _end(sql: Operands, first: int) -> int:
    """The word after a condition."""
    depth = 0
    for place in range(first, len(sql.words)):
        word = sql.words[place]
        if depth == 0 and (word in _AFTER or word in _CLOSES or (word in _JOINS and not _is_function(sql, place))):
            return place
        depth += (word in _OPENS) - (word in _CLOSES)
    return len(sql.words)


def _is_function(sql: Operands, place: int) -> bool:
    return sql.words[place] in ("LEFT", "RIGHT") and sql.word(place + 1) == "("
