"""Clauses that DataFusion 55 reads and ignores, or answers wrongly: a query with one is refused.

    ignored     WITH ROLLUP, TABLESAMPLE, SAMPLE, CONNECT BY, PREWHERE, PARTITION (…), WITH ORDINALITY, * ILIKE, the
                name of a window inside another one, FROM without SELECT
    multisets   EXCEPT ALL and INTERSECT ALL are answered by anti and semi joins
    quantified  x < ANY (SELECT …) compares with a column of the query around it, if that has a table of the same name
    merged      the column x of RIGHT and FULL JOIN … USING (x) is that of the left side, NULL if only the right has it

>>> check_clauses("SELECT b, count(*) FROM t GROUP BY b WITH ROLLUP")
Traceback (most recent call last):
    ...
needlepoint.errors.SqlError: WITH ROLLUP is not supported. Write GROUP BY ROLLUP (…).
>>> check_clauses("WITH rollup AS (SELECT 1 AS sample) SELECT sample FROM rollup")
'WITH rollup AS (SELECT 1 AS sample) SELECT sample FROM rollup'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from needlepoint.errors import SqlError
from needlepoint.query.sql.nesting import MOST_RELATIONS
from needlepoint.query.sql.rewriting.operands import Operands

_SIGNS = re.compile(
    r"\b(?:TABLESAMPLE|SAMPLE|CONNECT|PREWHERE|PARTITION|ROLLUP|CUBE|TOTALS|ORDINALITY|ILIKE|OVER|WINDOW|ALL|ANY|SOME"
    r"|USING|NATURAL)\b",
    re.IGNORECASE,
)
_SELECT, _FROM = re.compile(r"\bSELECT\b", re.IGNORECASE), re.compile(r"\bFROM\b", re.IGNORECASE)
_SAMPLES = "Write ORDER BY random() LIMIT n, or a condition such as random() < 0.01."
_GROUPS = {"ROLLUP": "Write GROUP BY ROLLUP (…).", "CUBE": "Write GROUP BY CUBE (…).", "TOTALS": "Write ROLLUP (…)."}
_STARTS = {"SELECT", "DISTINCT", "ALL", ",", "."}
_PARTS_OF_A_WINDOW = {"PARTITION", "ORDER", "ROWS", "RANGE", "GROUPS", ")"}
_QUERIES = {"SELECT", "WITH", "VALUES", "TABLE", "FROM"}
_AFTER_TABLE = {"ON", "USING", "JOIN", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT"}
_BEFORE_OTHERS = {".", "AS", ":", "FROM", "JOIN", "OVER", "WINDOW", "EXTRACT", "INTERVAL"}
_KEYWORDS = {
    "ALL", "AND", "ANTI", "ANY", "AS", "ASC", "BETWEEN", "BY", "CASE", "CROSS", "CURRENT", "DATE", "DESC",
    "DISTINCT", "ELSE", "END", "ESCAPE", "EXCEPT", "EXISTS", "FALSE", "FILTER", "FIRST", "FOLLOWING", "FROM",
    "FULL", "GROUP", "GROUPS", "HAVING", "ILIKE", "IN", "INNER", "INTERSECT", "INTERVAL", "IS", "JOIN", "LAST",
    "LATERAL", "LEFT", "LIKE", "LIMIT", "NATURAL", "NOT", "NULL", "NULLS", "OFFSET", "ON", "OR", "ORDER", "OUTER",
    "OVER", "PARTITION", "PRECEDING", "QUALIFY", "RANGE", "RIGHT", "ROW", "ROWS", "SELECT", "SEMI", "SIMILAR",
    "SOME", "THEN", "TIMESTAMP", "TO", "TRUE", "UNBOUNDED", "UNION", "UNKNOWN", "USING", "VALUES", "WHEN", "WHERE",
    "WINDOW", "WITH", "WITHIN",
}  # fmt: skip
_AFTER_A_NAME = {"", ",", ")", ";", ".", "FROM", "AS", "=", "<", ">", "!", "+", "-", "*", "/", "%", "|", "IS", "IN"}
_BEFORE_A_QUERY = {"", "(", ";", "UNION", "EXCEPT", "INTERSECT", "MINUS"}


def check_clauses(query: str) -> str:
    """The query; SqlError if it has such a clause."""
    if _SIGNS.search(query) is not None or len(_FROM.findall(query)) > len(_SELECT.findall(query)):
        sql = Operands(query)
        if max(sql.words.count("SELECT"), sql.words.count("JOIN")) > MOST_RELATIONS:
            return query  # it is refused later
        for place in range(len(sql.words)):
            if (found := _ignored(sql, place) or _answered_wrongly(sql, place)) is not None:
                clause, hint = found
                raise SqlError(f"{clause} is not supported.", hint=hint)
    return query


def _ignored(sql: Operands, place: int) -> tuple[str, str] | None:
    """The clause that begins with this token, and what to write instead."""
    word, following = sql.words[place], sql.word(place + 1)
    match word:
        case "TABLESAMPLE" if following in ("(", "BERNOULLI", "SYSTEM", "RESERVOIR", "BLOCK", "ROW"):
            return "TABLESAMPLE", _SAMPLES
        case "SAMPLE" if place and sql.is_alias(place) and (following == "(" or following[:1].isdigit()):
            return ("SAMPLE", _SAMPLES) if _is_table(sql, place - 1) else None
        case "CONNECT" if following == "BY":
            return "CONNECT BY", "Write WITH RECURSIVE."
        case "PREWHERE" if place and sql.is_alias(place) and following not in _AFTER_A_NAME:
            return "PREWHERE", "Write WHERE."
        case "PARTITION" if following == "(":
            return "PARTITION (…) of a table", "Write a condition on its partition columns."
        case "WITH" if following == "ORDINALITY":
            return "WITH ORDINALITY", "Write row_number() OVER ()."
        case "WITH" if following in _GROUPS and sql.word(place + 2) not in ("AS", "("):
            return f"WITH {following}", _GROUPS[following]
        case "*" if following == "ILIKE" and sql.word(place - 1) in _STARTS:
            return "SELECT * ILIKE", "Name the columns."
        case "OVER" if following == "(" and sql.word(place + 2) not in _PARTS_OF_A_WINDOW:
            return "a named window inside OVER (…)", "Write its parts there, or only its name: OVER w."
        case "AS" if following == "(" and _is_name_of_window(sql, place + 2):
            return "a named window inside another one", "Write its parts there."
        case "FROM" if _begins_query(sql, place) and all(word != "SELECT" for _, word in sql.level(place)):
            return "FROM without SELECT", "Write SELECT * FROM …"
    return None


def _is_name_of_window(sql: Operands, place: int) -> bool:
    """Whether a window begins with the name of another: `WINDOW w AS (PARTITION BY x), v AS (w ORDER BY y)`."""
    is_name = sql.word(place) not in _PARTS_OF_A_WINDOW | _QUERIES
    return is_name and sql.word(place + 1) in _PARTS_OF_A_WINDOW


def _answered_wrongly(sql: Operands, place: int) -> tuple[str, str] | None:
    word, before, following = sql.words[place], sql.word(place - 1), sql.word(place + 1)
    match word:
        case "ALL" if before in ("EXCEPT", "INTERSECT", "MINUS"):
            return f"{before} ALL", f"Write {before}, which returns each row once, or count the rows of each."
        case "ALL" | "ANY" | "SOME" if before in ("=", "<", ">") and following == "(":
            if sql.word(place + 2) in _QUERIES | {"("}:
                return f"{word} (SELECT …)", "Write IN (SELECT …), EXISTS, or compare with (SELECT max(x) …)."
        case "JOIN" if _is_right_or_full(sql, place):
            if _uses_any(sql, place, _merged_names(sql, place)):
                hint = "Write ON, and name the column of a side, or coalesce(a.x, b.x)."
                return "the common column of a RIGHT or FULL JOIN with USING or NATURAL", hint
    return None


def _is_right_or_full(sql: Operands, place: int) -> bool:
    place -= 1 + (sql.word(place - 1) == "OUTER")
    return sql.word(place) in ("RIGHT", "FULL")


def _merged_names(sql: Operands, place: int) -> Set[str] | None:
    """The names after USING, none if the join has ON; None if it is a NATURAL one, which may merge any."""
    if "NATURAL" in (sql.word(place - 2), sql.word(place - 3)):
        return None
    words = sql.level(place + 1)
    at = next((at for at, word in words if word in _AFTER_TABLE), len(sql.words))
    if sql.word(at) != "USING":
        return frozenset()
    inside = range(at + 2, sql.closed(at + 1))
    return {sql.name(each) for each in inside if sql.is_name(each)}


def _uses_any(sql: Operands, join: int, names: Set[str] | None) -> bool:
    """Whether the SELECT around a join has `*`, or one of the names without a table. A name that it gives to a column
    means that one, words of SQL are no names, and subqueries have columns of their own."""
    if names is not None and not names:
        return False
    places = [*_without_subqueries(sql, *_select_around(sql, join))]
    given = {sql.name(place) for place in places if sql.word(place - 1) == "AS"}
    for place in places:
        word, before, following = sql.word(place), sql.word(place - 1), sql.word(place + 1)
        if word == "*" and before in _STARTS - {"."}:
            return True
        is_unit = before == "(" and following == "FROM"  # extract(day FROM x)
        if not sql.is_name(place) or is_unit or before in _BEFORE_OTHERS or following in (".", "("):
            continue
        is_alias = sql.is_alias(place) and (before == ")" or sql.word(place - 2) in ("FROM", "JOIN"))  # FROM a x
        is_column = word not in _KEYWORDS and not is_alias and not _is_in_using(sql, place)
        if is_column and sql.name(place) not in given and (names is None or sql.name(place) in names):
            return True
    return False


def _without_subqueries(sql: Operands, place: int, stop: int) -> Iterator[int]:
    while place < stop:
        if sql.word(place) == "(" and sql.word(place + 1) in _QUERIES | {"("}:
            inner = place
            while sql.word(inner) == "(":
                inner += 1
            place = sql.closed(place) if sql.word(inner) in _QUERIES else place
        else:
            yield place
        place += 1


def _is_in_using(sql: Operands, place: int) -> bool:
    """Whether a name is in the list after USING, which has names and commas only."""
    while sql.word(place) == "," or (sql.word(place) not in ("", "(") and sql.is_name(place)):
        place -= 1
    return sql.word(place) == "(" and sql.word(place - 1) == "USING"


def _select_around(sql: Operands, place: int) -> tuple[int, int]:
    """The tokens of the SELECT that has this token in its FROM."""
    starts = [at for at in range(place) if sql.words[at] == "SELECT"]
    for first in reversed(starts):
        stop = first
        for at, word in sql.level(first):
            if word in ("UNION", "EXCEPT", "INTERSECT", "MINUS", ";"):
                break
            stop = at + 1 if word != "(" else sql.closed(at) + 1
        if place < stop:
            return first, stop
    return 0, len(sql.words)


def _begins_query(sql: Operands, place: int) -> bool:
    before = place - 1
    if sql.word(before) in ("ALL", "DISTINCT") and sql.word(before - 1) in _BEFORE_A_QUERY:
        before -= 1
    return sql.word(before) in _BEFORE_A_QUERY and sql.word(before - 1) != "TRIM"


def _is_table(sql: Operands, place: int) -> bool:
    """Whether a table of FROM ends with this token."""
    while place > 1 and sql.word(place - 1) == ".":
        place -= 2
    return sql.word(place - 1) in ("FROM", "JOIN", ",")
