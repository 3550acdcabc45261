"""count(DISTINCT x) and sum(x) where x is a constant of a subquery.

DataFusion 55 knows that a literal has one distinct value, and returns 1, also of no rows, and also if it is NULL. Of no
rows, it knows the sum of a literal to be 0, which should be NULL. A function hides the literal:

>>> with_hidden_arguments("SELECT count(*), count(DISTINCT x) FROM (SELECT 5 AS x FROM t WHERE id < 0) AS t")
'SELECT count(*), count(DISTINCT nullif(x, NULL)) FROM (SELECT 5 AS x FROM t WHERE id < 0) AS t'
>>> with_hidden_arguments("SELECT sum(x) FROM (SELECT 5 AS x FROM t WHERE id < 0) AS t")
'SELECT sum(nullif(x, NULL)) FROM (SELECT 5 AS x FROM t WHERE id < 0) AS t'
"""

from __future__ import annotations

from collections.abc import Iterator

from needlepoint.query.sql.rewriting.operands import Change, Operands

_CALLS = (["COUNT", "(", "DISTINCT"], ["SUM", "(", "DISTINCT"], ["SUM", "("])
_ENDS_ARGUMENT = {",", "ORDER"}


def with_hidden_arguments(query: str) -> str:
    """The query with the columns hidden that are counted or summed so."""
    sql = Operands(query)
    return sql.changed(_changes(sql))


def _changes(sql: Operands) -> Iterator[Change]:
    for place in range(len(sql.words)):
        call = next((each for each in _CALLS if sql.words[place : place + len(each)] == each), None)
        if call is None:
            continue
        first, stop = place + len(call), sql.closed(place + 1)
        is_one = all(word not in _ENDS_ARGUMENT for _, word in sql.inside(place + 1))
        if first < stop < len(sql.words) and is_one and not sql.is_constant(first, stop):
            yield sql.hidden(first, stop)
