"""count(DISTINCT x) where x is a constant of a subquery.

DataFusion 55 knows that a literal has one distinct value, and returns 1, also of no rows, and also if it is NULL. A
function hides the literal:

>>> with_hidden_arguments("SELECT count(*), count(DISTINCT x) FROM (SELECT 5 AS x FROM t WHERE id < 0) AS t")
'SELECT count(*), count(DISTINCT nullif(x, NULL)) FROM (SELECT 5 AS x FROM t WHERE id < 0) AS t'
"""

from __future__ import annotations

from collections.abc import Iterator

from needlepoint.query.sql.rewriting.operands import Change, Operands

_COUNT = ["COUNT", "(", "DISTINCT"]


def with_hidden_arguments(query: str) -> str:
    """The query with the columns hidden that are counted so."""
    sql = Operands(query)
    return sql.changed(_changes(sql))


def _changes(sql: Operands) -> Iterator[Change]:
    for place in range(len(sql.words)):
        if sql.words[place : place + len(_COUNT)] != _COUNT:
            continue
        first, stop = place + len(_COUNT), sql.closed(place + 1)
        is_one = all(word != "," for _, word in sql.inside(place + 1))
        if first < stop < len(sql.words) and is_one and not sql.is_constant(first, stop):
            yield sql.hidden(first, stop)
