"""`x IS NOT DISTINCT FROM y`, the comparison for which NULL equals NULL.

DataFusion 55 reads an AND or OR after it as part of y:

>>> with_parentheses("SELECT * FROM t WHERE a IS DISTINCT FROM b AND c = 1")
'SELECT * FROM t WHERE (a IS DISTINCT FROM b) AND c = 1'

And where it joins by such a comparison, it takes the two columns for equal, and NULL for equal in any other key of the
join; beside a CROSS JOIN, it takes NULL for equal nowhere. Lists of one value are equal if both values are NULL too,
and say nothing about the columns:

>>> as_lists("SELECT * FROM a LEFT JOIN b ON a.x IS NOT DISTINCT FROM b.x WHERE a.y = b.y")
'SELECT * FROM a LEFT JOIN b ON make_array(a.x) = make_array(b.x) WHERE a.y = b.y'

Lists distinguish -0.0 from 0.0. For floats, there is a form without a key to join by:

>>> spelled_out("SELECT * FROM a LEFT JOIN b ON a.x IS NOT DISTINCT FROM b.x")
'SELECT * FROM a LEFT JOIN b ON coalesce(a.x = b.x, a.x IS NULL AND b.x IS NULL)'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from needlepoint.query.sql.rewriting.operands import Operands

_MAY_NEED = re.compile(r"\bDISTINCT\s+FROM\b", re.IGNORECASE)
_MOST_NESTED = 9
_NOT = ["IS", "NOT", "DISTINCT", "FROM"]
_IS = ["IS", "DISTINCT", "FROM"]


def with_parentheses(query: str) -> str:
    """The query with parentheses around such comparisons."""
    if _MAY_NEED.search(query) is None:
        return query
    for _ in range(_MOST_NESTED):  # a comparison of comparisons changes from the inside
        sql = Operands(query)
        bare = ((first, stop) for first, _, _, stop in _comparisons(sql) if not sql.is_enclosed(first, stop))
        written = sql.changed((first, stop, f"({sql.part(first, stop)})") for first, stop in bare)
        if written == query:
            break
        query = written
    return query


def as_lists(query: str) -> str:
    """The query with lists of one value instead of IS NOT DISTINCT FROM between columns."""
    return _between_columns(query, "make_array({0}) = make_array({1})")


def spelled_out(query: str) -> str:
    """The query with `=` and `IS NULL` instead."""
    return _between_columns(query, "coalesce({0} = {1}, {0} IS NULL AND {1} IS NULL)")


def _between_columns(query: str, form: str) -> str:
    if _MAY_NEED.search(query) is None:
        return query
    sql = Operands(query)
    return sql.changed(
        (first, stop, form.format(sql.part(first, end), sql.part(begin, stop)))
        for first, end, begin, stop in _comparisons(sql)
        if begin - end == len(_NOT) and not sql.is_volatile(first, stop)
        if not (sql.is_constant(first, end) or sql.is_constant(begin, stop))
    )


def _comparisons(sql: Operands) -> Iterator[tuple[int, int, int, int]]:
    """The first token of each comparison, the one after its first operand, that of its second one, and the one after
    it."""
    for place in (place for place, word in enumerate(sql.words) if word == "IS"):
        sign = next((sign for sign in (_NOT, _IS) if sql.words[place : place + len(sign)] == sign), None)
        if sign is None:
            continue
        first, begin = sql.left(place), place + len(sign)
        stop = sql.right(begin)
        if first is not None and first < place and stop is not None:
            yield first, place, begin, stop
