"""Wildcards that name their tables: `SELECT a.*, b.*` instead of `SELECT *`.

Where tables are joined with USING, `*` has one column of each pair. DataFusion 55 leaves out the other by its name. It
does so for a USING in a subquery, a CTE or a view too, but there it leaves out a column of the query around it:

>>> with_named_wildcards("SELECT * FROM a JOIN b ON a.x = b.x WHERE a.id IN (SELECT a.id FROM a JOIN b USING (dt))")
'SELECT a.*, b.* FROM a JOIN b ON a.x = b.x WHERE a.id IN (SELECT a.id FROM a JOIN b USING (dt))'
>>> with_named_wildcards("SELECT * FROM v, a, b", ["SELECT a.id FROM a JOIN b USING (dt)"])
'SELECT v.*, a.*, b.* FROM v, a, b'

If the query around it joins with USING itself, its `*` cannot be written differently. The query is refused if both join
tables of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from needlepoint.errors import SqlError
from needlepoint.query.sql.nesting import MOST_RELATIONS
from needlepoint.query.sql.rewriting.operands import Change, Operands

_PAIRS = re.compile(r"\bUSING\s*\(|\bNATURAL\b", re.IGNORECASE)
_BEFORE_WILDCARD = {"SELECT", "DISTINCT", "ALL", ","}
_AFTER_FROM = {"WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "FETCH"}
_AFTER_SELECT = {"UNION", "EXCEPT", "INTERSECT", "MINUS", ";"}
_AFTER_TABLE = {"ON", "USING", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", ","}
_QUERIES = {"SELECT", "WITH", "VALUES"}


def with_named_wildcards(query: str, views: Sequence[str] = ()) -> str:
    """The query, which may use the views, with the tables of each `*` that DataFusion may expand to too few columns."""
    others = [view for view in views if view != query and _PAIRS.search(view)]
    if "*" not in query or (_PAIRS.search(query) is None and not others):
        return query
    sql = Operands(query)
    return sql.changed(_changes(sql, [each for view in others for each in _selects(Operands(view)) if each.pairs]))


def _changes(sql: Operands, of_views: Sequence[_Select]) -> Iterator[Change]:
    if sql.words.count("SELECT") > MOST_RELATIONS:
        return  # it is refused later
    selects = list(_selects(sql))
    for each in selects:
        inner = [*of_views, *(other for other in selects if other.pairs and _may_be_inside(other, each))]
        if not (inner and each.wildcards):
            continue
        if each.tables and not each.pairs and not each.excludes:
            for place in each.wildcards:
                yield place, place + 1, ", ".join(f"{name}.*" for name in each.tables)
        elif any(not other.names or not each.names or each.names & other.names for other in inner):
            raise SqlError(
                "SELECT * is not supported where a subquery joins tables of the same names with USING or NATURAL.",
                hint="Name the columns instead of *, or write ON instead of USING in the subquery.",
            )


def _may_be_inside(other: _Select, each: _Select) -> bool:
    """Whether `other` is in a subquery of `each`, or in a CTE that it may use."""
    return each.first < other.first < each.stop or other.end_of_cte < each.first


@dataclass(slots=True)
class _Select:
    """A SELECT from its first token to the one after it. `tables` are named as SQL names them, and empty if they are
    not understood. `pairs`: it joins with USING or NATURAL. `end_of_cte`: of the CTE around it, if there is one."""

    first: int
    end_of_cte: int
    stop: int = 0
    wildcards: list[int] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    pairs: bool = False
    excludes: bool = False

    @property
    def names(self) -> set[str]:
        return {name.strip('"`').lower() for name in self.tables}


def _selects(sql: Operands) -> Iterator[_Select]:
    ends: list[int] = []  # of the CTEs around a token
    for place, word in enumerate(sql.words):
        while ends and ends[-1] < place:
            ends.pop()
        if word == "(" and sql.word(place - 1) in ("AS", "MATERIALIZED"):
            ends.append(sql.closed(place))
        elif word == "SELECT":
            yield _select(sql, place, ends[-1] if ends else len(sql.words))


def _select(sql: Operands, first: int, end_of_cte: int) -> _Select:
    found, start, stop = _Select(first, end_of_cte), 0, 0
    for place, word in sql.level(first + 1):
        if word in _AFTER_SELECT:
            break
        found.stop = place + 1 if word != "(" else sql.closed(place) + 1
        if word == "FROM" and not start and sql.word(place - 1) != "DISTINCT":
            start = place + 1
        elif start and not stop and word in _AFTER_FROM:
            stop = place
        elif not start and word == "*" and sql.word(place - 1) in _BEFORE_WILDCARD:
            found.wildcards.append(place)
            found.excludes |= sql.word(place + 1) in ("EXCLUDE", "EXCEPT", "REPLACE")
        elif word == "NATURAL" or (word == "USING" and sql.word(place + 1) == "("):
            found.pairs = True
    if start:
        found.tables = _tables(sql, start, stop or found.stop) or []
    return found


def _tables(sql: Operands, start: int, stop: int) -> list[str] | None:
    """The names of the tables between two tokens of a FROM, as aliases rename them; None if not all have one."""
    found: list[str] = []
    while start < stop:
        name, end = _table(sql, start)
        if name is None:
            return None
        found.append(name)
        start = stop
        for place, word in sql.level(end):
            if word in ("SEMI", "ANTI"):
                return None  # the other table has no columns in *
            if word in ("JOIN", ",") or place >= stop:
                start = place + 1
                break
    return found


def _table(sql: Operands, place: int) -> tuple[str | None, int]:
    """The name of the table that begins here, and the token after it."""
    name: str | None = None
    if sql.word(place) == "LATERAL":
        place += 1
    if sql.word(place) == "(":
        if sql.word(place + 1) not in _QUERIES:
            return None, place  # joins in parentheses
        place = sql.closed(place) + 1
    else:
        while sql.word(place + 1) == ".":
            place += 2
        if place < len(sql.words) and sql.is_name(place) and sql.word(place + 1) != "(":
            name = sql.found[place][0]
        place = sql.closed(place + 1) + 1 if sql.word(place + 1) == "(" else place + 1
    place += sql.word(place) == "AS"
    is_alias = place < len(sql.words) and sql.is_name(place) and sql.words[place] not in _AFTER_TABLE | _AFTER_FROM
    return (sql.found[place][0], place + 1) if is_alias else (name, place)
