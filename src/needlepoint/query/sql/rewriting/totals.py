"""Totals that no condition passes: subqueries such as `SELECT count(*) FROM t`, which have one row even of no rows.

Where DataFusion 55 finds that a condition on a total is FALSE, it filters the rows of the table instead, and keeps the
total of none. No condition passes a LIMIT:

>>> with_limited_totals("SELECT n FROM (SELECT 'a' AS x, count(*) AS n FROM a UNION SELECT 'b', 1) WHERE x = 'b'")
"SELECT n FROM (SELECT * FROM (SELECT 'a' AS x, count(*) AS n FROM a LIMIT 9223372036854775807) UNION SELECT 'b', 1) \
WHERE x = 'b'"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from needlepoint.query.sql.rewriting.operands import Operands
from needlepoint.query.sql.tokens import with_added

_LIMIT = f" LIMIT {(1 << 63) - 1}"
_AGGREGATES = {"COUNT", "SUM", "MIN", "MAX", "AVG", "MEAN", "MEDIAN", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "VAR",
               "VAR_POP", "VAR_SAMP", "BOOL_AND", "BOOL_OR", "ARRAY_AGG", "STRING_AGG", "FIRST_VALUE", "LAST_VALUE",
               "APPROX_DISTINCT", "APPROX_MEDIAN", "BIT_AND", "BIT_OR", "BIT_XOR", "CORR", "COVAR", "COVAR_POP",
               "COVAR_SAMP", "PERCENTILE_CONT", "QUANTILE_CONT", "APPROX_PERCENTILE_CONT", "NTH_VALUE",
               "APPROX_PERCENTILE_CONT_WITH_WEIGHT"}  # fmt: skip
_BETWEEN_PARTS = {"UNION", "EXCEPT", "INTERSECT"}
_SUBTOTALS = {"ROLLUP", "CUBE", "GROUPING"}


@dataclass(slots=True)
class _Part:
    """A SELECT so far: its first token, and whether its list has an aggregate, it has groups, and it has a LIMIT."""

    first: int
    in_list: bool = True
    aggregates: bool = False
    groups: bool = False
    limited: bool = False

    @property
    def is_total(self) -> bool:
        return self.aggregates and not self.groups and not self.limited


def with_limited_totals(query: str, is_view: bool = False) -> str:
    """The query with a LIMIT in each subquery that is a total, or has subtotals; and so is a view. Expressions stay: a
    correlated one must not have a LIMIT."""
    sql = Operands(f"({query})" if is_view else query)
    expressions = {opens + 1 for opens in sql.opened_expressions()}
    added: list[tuple[int, str]] = []
    for part, stop, of_several in _parts(sql):
        if part.is_total and part.first not in expressions:
            # In parentheses, the parts of a union would need the same names.
            opens, closes = ("SELECT * FROM (", ")") if of_several else ("", "")
            added += [(sql.found[part.first].start(), opens), (sql.found[stop - 1].end(), _LIMIT + closes)]
    written = with_added(sql.text, added)
    return written[1:-1] if is_view else written


def _parts(sql: Operands) -> Iterator[tuple[_Part, int, bool]]:
    """Each SELECT in parentheses, the token after it, and whether it is one of several, as in a UNION."""
    levels: list[list[_Part]] = [[]]
    several = [False]
    for place, word in enumerate(sql.words):
        parts = levels[-1]
        part = parts[-1] if parts else None
        if word == "(":
            levels.append([])
            several.append(False)
        elif word == ")" and len(levels) > 1:
            levels.pop()
            of_several = several.pop()
            if part is not None:
                yield part, place, of_several
        elif word == "SELECT":
            parts.append(_Part(place))
        elif part is not None and word in _BETWEEN_PARTS and len(levels) > 1:
            several[-1] = True
            yield part, place, True
            parts.clear()
        elif part is not None and word == "FROM" and sql.word(place - 1) != "DISTINCT":
            part.in_list = False
        elif part is not None and word == "GROUP" and sql.word(place - 1) != "WITHIN":
            part.groups = sql.word(place + 2) not in _SUBTOTALS
        elif part is not None and word in ("LIMIT", "FETCH", "OFFSET"):
            part.limited = True
        elif (word in _AGGREGATES or word.startswith("REGR_")) and sql.word(place + 1) == "(":
            _mark(levels)


def _mark(levels: list[list[_Part]]) -> None:
    """An aggregate belongs to the nearest SELECT around it."""
    part = next((parts[-1] for parts in reversed(levels) if parts), None)
    if part is not None and part.in_list:
        part.aggregates = True
