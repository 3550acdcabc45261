"""Scalar subqueries whose value may be missing.

A subquery without rows is NULL. DataFusion 55 takes it for NOT NULL if its column is, such as a constant or count(*),
and removes IS NULL and coalesce around it. So the column becomes one that can be NULL:

>>> with_nullable_values("SELECT coalesce((SELECT count(*) AS n FROM u WHERE u.k = t.k GROUP BY u.k), 0) FROM t")
'SELECT coalesce((SELECT nullif(count(*), -1) AS n FROM u WHERE u.k = t.k GROUP BY u.k), 0) FROM t'
>>> with_nullable_values("SELECT id FROM t WHERE (SELECT 1 FROM u WHERE k = 9) IS NULL")
'SELECT id FROM t WHERE (SELECT CASE WHEN random() >= 0 THEN 1 END AS "1" FROM u WHERE k = 9) IS NULL'

A function of literals would be evaluated at once; random() is not. A count without GROUP BY and HAVING always has a
row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from needlepoint.query.sql.rewriting.operands import Change, Operands

_MAY_NEED = re.compile(r"\(\s*SELECT\b", re.IGNORECASE)
_LISTED = {"IN", "EXISTS", "ANY", "ALL", "SOME"}  # before a subquery of many rows
_LIST_ENDS = {"FROM", "AS", ","}


def with_nullable_values(query: str) -> str:
    """The query with columns that can be NULL in scalar subqueries."""
    if _MAY_NEED.search(query) is None:
        return query
    sql = Operands(query)
    return sql.changed(_changes(sql))


def _changes(sql: Operands) -> Iterator[Change]:
    for opens in sql.opened_expressions():
        first = opens + 2
        closes, words = sql.closed(opens), {word for _, word in sql.inside(opens)}
        stop = next((place for place, word in sql.inside(opens) if place >= first and word in _LIST_ENDS), closes)
        if sql.word(opens - 1) in _LISTED or sql.word(stop) == "," or "FROM" not in words:
            continue
        value = sql.part(first, stop) if first < stop else ""
        if (
            sql.word(first) == "COUNT"
            and sql.closed(first + 1) == stop - 1
            and not words.isdisjoint(("GROUP", "HAVING"))
        ):
            yield first, stop, f"nullif({value}, -1){_name(sql, value, stop)}"
        elif (
            value
            and "(" not in sql.words[first:stop]
            and sql.words[first] != "DISTINCT"
            and sql.is_constant(first, stop)
        ):
            yield first, stop, f"CASE WHEN random() >= 0 THEN {value} END{_name(sql, value, stop)}"


def _name(sql: Operands, value: str, stop: int) -> str:
    """A name for the column, as it may be the one of the result."""
    return "" if sql.word(stop) == "AS" else ' AS "' + value.replace('"', '""') + '"'
