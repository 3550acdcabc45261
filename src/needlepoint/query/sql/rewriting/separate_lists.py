"""Lists of values that DataFusion does not combine: `x NOT IN (1) OR x NOT IN (2)`.

DataFusion 55 makes one list of two lists of a column, as if no value were NULL: TRUE of the one above, and `x IN (1)`
of `x IN (1, 2) AND x NOT IN (2, NULL)`, which is never TRUE. A function that changes nothing hides all lists of a
column but the first:

>>> with_separate_lists("SELECT * FROM t WHERE x NOT IN (1) OR t.x NOT IN (2, 3) AND y IN (4)")
'SELECT * FROM t WHERE x NOT IN (1) OR nullif(t.x NOT IN (2, 3), NULL) AND y IN (4)'

And each list with a NULL, since the column may have another name in a subquery. In conditions without a NOT and the
like, FALSE and NULL are the same, and lists can be combined:

>>> with_separate_lists("SELECT * FROM t WHERE x IN ('a', 'in case') AND x IN ('b', 'not')")
"SELECT * FROM t WHERE x IN ('a', 'in case') AND x IN ('b', 'not')"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from needlepoint.query.sql.rewriting.operands import Change, Operands

_IN = re.compile(r"\bIN\s*\(", re.IGNORECASE)
# What distinguishes FALSE from NULL, or may have a NULL in a list.
_NEEDS = {"NOT", "IS", "NULL", "CASE", "COALESCE", "NULLIF", "IFNULL", "NVL", "NVL2"}
_CONDITIONS = {"WHERE", "HAVING", "ON"}


def with_separate_lists(query: str) -> str:
    """The query with only one visible list for each column."""
    if _IN.search(query) is None:
        return query
    sql = Operands(query)
    everywhere = "$" in query or not _NEEDS.isdisjoint(word.strip('"`') for word in sql.words)
    return sql.changed(_hidden(sql, everywhere))


def _hidden(sql: Operands, everywhere: bool) -> Iterator[Change]:
    seen: set[str] = set()
    for place, clause in enumerate(sql.clauses()):
        word = sql.words[place]
        if word != "IN" or sql.word(place + 1) != "(" or sql.word(place + 2) in ("SELECT", "WITH", "VALUES", "("):
            continue
        stop = sql.closed(place + 1) + 1
        before = place - (sql.word(place - 1) == "NOT")
        if stop > len(sql.words) or before < 1:
            continue
        column, first = _last_name(sql, before - 1), sql.left(before)
        repeated = column in seen and (everywhere or clause not in _CONDITIONS)
        if first is not None and (repeated or "NULL" in sql.words[place + 2 : stop]):
            yield sql.hidden(first, stop)
        seen.add(column)


def _last_name(sql: Operands, place: int) -> str:
    """The last name of an operand: of `x`, `t.x` and `(x)` the same."""
    while place > 0 and sql.words[place] == ")":
        place -= 1
    return sql.name(place)
