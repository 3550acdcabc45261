"""Clauses that DataFusion 55 reads and ignores: a query with one would silently have other rows, so it is refused.

>>> without_ignored_clauses("SELECT b, count(*) FROM t GROUP BY b WITH ROLLUP")
Traceback (most recent call last):
    ...
needlepoint.errors.SqlError: WITH ROLLUP is not supported. Write GROUP BY ROLLUP (…).
>>> without_ignored_clauses("WITH rollup AS (SELECT 1 AS sample) SELECT sample FROM rollup")
'WITH rollup AS (SELECT 1 AS sample) SELECT sample FROM rollup'
"""

from __future__ import annotations

import re

from needlepoint.errors import SqlError
from needlepoint.query.sql.rewriting.operands import Operands

_SIGNS = re.compile(
    r"\b(?:TABLESAMPLE|SAMPLE|CONNECT|PREWHERE|PARTITION|ROLLUP|CUBE|TOTALS|ORDINALITY|ILIKE|OVER)\b", re.IGNORECASE
)
_SELECT, _FROM = re.compile(r"\bSELECT\b", re.IGNORECASE), re.compile(r"\bFROM\b", re.IGNORECASE)
_SAMPLES = "Write ORDER BY random() LIMIT n, or a condition such as random() < 0.01."
_GROUPS = {"ROLLUP": "Write GROUP BY ROLLUP (…).", "CUBE": "Write GROUP BY CUBE (…).", "TOTALS": "Write ROLLUP (…)."}
_STARTS = {"SELECT", "DISTINCT", "ALL", ",", "."}
_PARTS_OF_A_WINDOW = {"PARTITION", "ORDER", "ROWS", "RANGE", "GROUPS", ")"}
_AFTER_A_NAME = {"", ",", ")", ";", ".", "FROM", "AS", "=", "<", ">", "!", "+", "-", "*", "/", "%", "|", "IS", "IN"}
_BEFORE_A_QUERY = {"", "(", ";", "UNION", "EXCEPT", "INTERSECT", "MINUS"}


def without_ignored_clauses(query: str) -> str:
    """The query; SqlError if it has such a clause."""
    if _SIGNS.search(query) is not None or len(_FROM.findall(query)) > len(_SELECT.findall(query)):
        sql = Operands(query)
        for place in range(len(sql.words)):
            if (found := _ignored(sql, place)) is not None:
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
        case "FROM" if _begins_query(sql, place) and "SELECT" not in _level(sql, place):
            return "FROM without SELECT", "Write SELECT * FROM …"
    return None


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


def _level(sql: Operands, place: int) -> list[str]:
    """The words from here to the parenthesis that closes, without those in parentheses."""
    found = []
    while place < len(sql.words) and sql.words[place] != ")":
        found.append(sql.words[place])
        place = 1 + (sql.closed(place) if sql.words[place] == "(" else place)
    return found
