"""Lists of values that DataFusion does not combine: `x NOT IN (1) OR x NOT IN (2)`.

DataFusion 55 makes one list of two lists of a column, as if no value were NULL: TRUE of the one above, and `x IN (1)`
of `x IN (1, 2) AND x NOT IN (2, NULL)`, which is never TRUE. A function that changes nothing hides all lists of a
column but the first:

>>> with_separate_lists("SELECT * FROM t WHERE x NOT IN (1) OR t.x NOT IN (2, 3) AND y IN (4)")
'SELECT * FROM t WHERE x NOT IN (1) OR nullif(t.x NOT IN (2, 3), NULL) AND y IN (4)'

And each list with a NULL, since the column may have another name in a subquery. Without any NOT, NULL or parameter,
lists are combined correctly:

>>> with_separate_lists("SELECT * FROM t WHERE x IN (1, 2) AND x IN (2, 3)")
'SELECT * FROM t WHERE x IN (1, 2) AND x IN (2, 3)'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from needlepoint.query.sql.rewriting.operands import Change, Operands

_IN = re.compile(r"\bIN\s*\(", re.IGNORECASE)
_NEEDS = re.compile(r"\bNOT\b|\bIS\s+(?:FALSE|UNKNOWN)\b|\bNULL\b|\$", re.IGNORECASE)


def with_separate_lists(query: str) -> str:
    """The query with only one visible list for each column."""
    if _IN.search(query) is None or _NEEDS.search(query) is None:
        return query
    sql = Operands(query)
    return sql.changed(_hidden(sql))


def _hidden(sql: Operands) -> Iterator[Change]:
    seen: set[str] = set()
    for place, word in enumerate(sql.words):
        if word != "IN" or sql.word(place + 1) != "(" or sql.word(place + 2) in ("SELECT", "WITH", "VALUES", "("):
            continue
        stop = sql.closed(place + 1) + 1
        before = place - (sql.word(place - 1) == "NOT")
        if stop > len(sql.words) or before < 1:
            continue
        column, first = sql.name(before - 1), sql.left(before)
        if first is not None and (column in seen or "NULL" in sql.words[place + 2 : stop]):
            yield first, stop, f"nullif({sql.part(first, stop)}, NULL)"
        seen.add(column)
