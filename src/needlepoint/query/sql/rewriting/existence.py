"""`SELECT EXISTS (…)`, which DataFusion 55 does not run.

>>> as_count("SELECT NOT EXISTS (SELECT id FROM t WHERE id = 5) AS absent")
'SELECT count(*) = 0 AS absent FROM (SELECT 1 FROM (SELECT id FROM t WHERE id = 5) LIMIT 1)'

Only a query that is nothing else: then the subquery depends on no other table.
"""

from __future__ import annotations

import re

from needlepoint.query.sql.rewriting.operands import Operands

_MAY_BE = re.compile(r"\s*SELECT\s+(?:NOT\s+)?EXISTS\b", re.IGNORECASE)


def as_count(query: str) -> str:
    """The query with a count of at most one row in place of EXISTS."""
    if _MAY_BE.match(query) is None:
        return query
    sql = Operands(query)
    negated = sql.word(1) == "NOT"
    opens = 3 if negated else 2
    closes = sql.closed(opens)
    if sql.word(opens) != "(" or sql.word(opens + 1) not in ("SELECT", "WITH") or closes >= len(sql.words):
        return query
    first = closes + 1
    stop = len(sql.words) - (sql.word(len(sql.words) - 1) == ";")
    named = sql.words[first:stop]
    if not (len(named) == 0 or (len(named) == 2 and named[0] == "AS" and sql.is_name(first + 1))):
        return query
    name = f" AS {sql.part(first + 1, stop)}" if named else ""
    inner = sql.part(opens + 1, closes)
    return f"SELECT count(*) {'=' if negated else '>'} 0{name} FROM (SELECT 1 FROM ({inner}) LIMIT 1)"
