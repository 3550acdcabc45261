"""Casts that drop digits: `CAST(d AS BIGINT) = 5`, where d is a decimal.

DataFusion 55 moves such a cast to the literal: `d = 5.00`, which is not TRUE for 5.10. A function that changes nothing
hides it:

>>> with_hidden_casts("SELECT CAST(d AS INT) AS n FROM t WHERE d::decimal(12, 0) = 5 AND CAST('7' AS INT) = 7")
"SELECT nullif(CAST(d AS INT), NULL) AS n FROM t WHERE nullif(d::decimal(12, 0), NULL) = 5 AND CAST('7' AS INT) = 7"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from needlepoint.query.sql.rewriting.operands import Operands

HIDES_CAST = "nullif("
ROUNDING = r"U?(?:TINY|SMALL|BIG)?INT(?:EGER|\d+)?|DEC(?:IMAL(?:\d+)?)?|NUMERIC"
_ROUNDING = re.compile(ROUNDING)
_WORD = re.compile(r"\w+")
_CASTS = re.compile(r"\bCAST\b|\bTRY_CAST\b|\barrow_cast\b|::", re.IGNORECASE)


def with_hidden_casts(query: str) -> str:
    """The query with all casts of columns to integers and decimals hidden."""
    if _CASTS.search(query) is None:
        return query
    sql = Operands(query)
    return sql.wrapped(
        (first, stop, HIDES_CAST, ", NULL)")
        for first, stop in casts_to(_ROUNDING, sql)
        if stop <= len(sql.found) and not sql.is_constant(first, stop)
    )


def casts_to(types: re.Pattern[str], sql: Operands) -> Iterator[tuple[int, int]]:
    """The first token of each cast to a type of such a name, in capitals, and the token after the cast."""

    def is_one(place: int) -> bool:
        name = _WORD.search(sql.word(place).upper())
        return name is not None and types.fullmatch(name[0]) is not None

    for place, word in enumerate(sql.words):
        if word in ("CAST", "TRY_CAST") and sql.word(place + 1) == "(":
            stop = sql.closed(place + 1)
            if any(is_one(at + 1) for at, each in sql.inside(place + 1) if each == "AS"):
                yield place, stop + 1
        elif word == "ARROW_CAST" and sql.word(place + 1) == "(":
            stop = sql.closed(place + 1)
            if is_one(stop - 1):
                yield place, stop + 1
        elif word == ":" and sql.word(place + 1) == ":" and is_one(place + 2):
            first = sql.before_cast(place)
            if first is not None:
                yield first, sql.closed(place + 3) + 1 if sql.word(place + 3) == "(" else place + 3
