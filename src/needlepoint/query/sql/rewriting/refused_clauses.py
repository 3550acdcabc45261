"""Clauses that DataFusion 55 reads and ignores, or answers wrongly: a query with one is refused.

    ignored     WITH ROLLUP, TABLESAMPLE, SAMPLE, CONNECT BY, PREWHERE, PARTITION (…), WITH ORDINALITY, * ILIKE, the
                name of a window inside another one, FROM without SELECT
    multisets   EXCEPT ALL and INTERSECT ALL are answered by anti and semi joins
    quantified  x < ANY (SELECT …) compares with a column of the query around it, if that has a table of the same name
    merged      the column x of RIGHT and FULL JOIN … USING (x) is that of the left side, NULL if only the right has it;
                with NATURAL, any column may be one

>>> check_clauses("SELECT b, count(*) FROM t GROUP BY b WITH ROLLUP")
Traceback (most recent call last):
    ...
needlepoint.errors.SqlError: WITH ROLLUP is not supported. Write GROUP BY ROLLUP (…).
>>> check_clauses("WITH rollup AS (SELECT 1 AS sample) SELECT sample FROM rollup")
'WITH rollup AS (SELECT 1 AS sample) SELECT sample FROM rollup'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
        case "TABLESAMPLE" if following in ("BERNOULLI", "SYSTEM", "RESERVOIR", "BLOCK", "ROW"):
            return word, _SAMPLES
        case "TABLESAMPLE" | "SAMPLE" if (
            place and sql.is_alias(place) and (following == "(" or following[:1].isdigit())
        ):
            return word, _SAMPLES
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
        case "JOIN" if _is_right_or_full(sql, place) and "NATURAL" in (sql.word(place - 2), sql.word(place - 3)):
            return "NATURAL RIGHT or FULL JOIN", "Write ON, and name the column of a side, or coalesce(a.x, b.x)."
        case "SELECT" if _uses_merged_column(sql, place):
            hint = "Write ON, and name the column of a side, or coalesce(a.x, b.x)."
            return "the common column of a RIGHT or FULL JOIN with USING", hint
    return None


def _is_right_or_full(sql: Operands, place: int) -> bool:
    place -= 1 + (sql.word(place - 1) == "OUTER")
    return sql.word(place) in ("RIGHT", "FULL")


def _uses_merged_column(sql: Operands, first: int) -> bool:
    """Whether a SELECT has `*`, or a name of USING without a table. In ORDER BY, a name that it gives to a column means
    that one."""
    level = dict(_level_of_select(sql, first))
    last = max(level)
    places = [*_without_subqueries(sql, first, 1 + (sql.closed(last) if sql.words[last] == "(" else last))]
    joins = [place for place in places if sql.words[place] == "JOIN" and _is_right_or_full(sql, place)]
    names = {name for join in joins for name in _names_after_using(sql, join)}
    if not names:
        return False
    given = {sql.name(place) for place in places if sql.word(place - 1) == "AS"}
    order = next((place for place, word in level.items() if word == "ORDER"), len(sql.words))
    source = next((place for place, word in level.items() if word == "FROM"), 0)
    for place in places:
        if sql.words[place] == "*" and sql.word(place - 1) in _STARTS - {"."}:
            return True
        means_result = place > order and sql.name(place) in given
        if sql.name(place) in names and not means_result and _is_column(sql, place, source):
            return True
    return False


def _level_of_select(sql: Operands, first: int) -> Iterator[tuple[int, str]]:
    for place, word in sql.level(first):
        if word in ("UNION", "EXCEPT", "INTERSECT", "MINUS", ";"):
            return
        yield place, word


def _names_after_using(sql: Operands, join: int) -> list[str]:
    at = next((at for at, word in sql.level(join + 1) if word in _AFTER_TABLE), len(sql.words))
    inside = range(at + 2, sql.closed(at + 1)) if sql.word(at) == "USING" else ()
    return [sql.name(each) for each in inside if sql.is_name(each)]


def _is_column(sql: Operands, place: int, source: int) -> bool:
    """Whether a name is a column without a table, in a SELECT whose FROM is at `source`."""
    before, following = sql.word(place - 1), sql.word(place + 1)
    if not sql.is_name(place) or before in (".", "AS", ":", "OVER", "WINDOW", "NULLS") or following in (".", "("):
        return False
    is_table = before == "JOIN" or place - 1 == source
    is_alias = sql.is_alias(place) and (
        before == ")" or sql.word(place - 2) == "JOIN" or place - 2 == source
    )  # FROM a x
    is_unit = before == "(" and following == "FROM"  # extract(day FROM x)
    is_type = following.startswith("'")  # DATE '2024-05-06'
    return not (is_table or is_alias or is_unit or is_type or _is_in_using(sql, place))


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


def _begins_query(sql: Operands, place: int) -> bool:
    before = place - 1
    if sql.word(before) in ("ALL", "DISTINCT") and sql.word(before - 1) in _BEFORE_A_QUERY:
        before -= 1
    return sql.word(before) in _BEFORE_A_QUERY and sql.word(before - 1) != "TRIM"
