"""Conditions that DataFusion derives nothing from: `WHERE a = b` as `WHERE (a = b) IS TRUE`, which means the same.

DataFusion 55 sorts the input of a window by b where a condition says that a = b. If it then moves a projection into a
join below, it forgets the condition, and rejects its own plan: the window asks for an order by a.

>>> as_truths("SELECT rank() OVER (ORDER BY a) FROM (SELECT * FROM t WHERE a = b AND c > 1 LIMIT 5) WHERE a = 2")
'SELECT rank() OVER (ORDER BY a) FROM (SELECT * FROM t WHERE (a = b AND c > 1) IS TRUE LIMIT 5) WHERE (a = 2) IS TRUE'

Conditions with a subquery stay as they are, and so do those inside it: DataFusion makes joins of them.

>>> as_truths("SELECT a FROM t WHERE a = b AND a NOT IN (SELECT c FROM u WHERE d = t.b) ORDER BY a")
'SELECT a FROM t WHERE a = b AND a NOT IN (SELECT c FROM u WHERE d = t.b) ORDER BY a'
"""

from __future__ import annotations

from needlepoint.query.sql.rewriting.operands import EXPRESSION, Operands

_BEFORE = {"WHERE", "HAVING"}
_AFTER = {"GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "FETCH", "UNION", "EXCEPT", "INTERSECT"}


def as_truths(query: str) -> str:
    """The query with `IS TRUE` after such conditions of WHERE and HAVING. The query itself if it has quotes or comments
    that `tokens` does not know."""
    sql = Operands(query)
    starts = (
        place + 1
        for place, clause in enumerate(sql.clauses())
        if sql.words[place] in _BEFORE and clause != EXPRESSION and sql.word(place - 1) != "("  # FILTER (WHERE …)
    )
    conditions = ((first, _end(sql, first)) for first in starts)
    return sql.changed(
        (first, stop, f"({sql.part(first, stop)}) IS TRUE")
        for first, stop in conditions
        if first < stop and "SELECT" not in sql.words[first:stop]
    )


def _end(sql: Operands, first: int) -> int:
    """The word after a condition."""
    depth = 0
    for place in range(first, len(sql.words)):
        word = sql.words[place]
        if depth == 0 and (word in _AFTER or word in (")", ";")):
            return place
        depth += (word in ("(", "[")) - (word in (")", "]"))
    return len(sql.words)
