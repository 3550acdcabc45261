"""Instants beside columns with a zone: now(), TIMESTAMPTZ '…', casts to it, and to_timestamp.

In DataFusion 55 they have no zone, and are the clock of UTC. Beside a column with another zone, they would be taken for
the same clock there, hours away. A cast gives them the zone UTC. The setting `time_zone` does it too, but to_timestamp
of a text column then fails (datafusion#24632).

>>> print(with_zones("SELECT id FROM t WHERE z > now()"))
SELECT id FROM t WHERE z > arrow_cast(now(), 'Timestamp(Nanosecond, Some("+00:00"))')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from needlepoint.query.sql.rewriting.operands import Operands

_SIGNS = re.compile(r"\bnow\b|current_timestamp|to_timestamp|timestamptz|\bzone\b", re.IGNORECASE)
_UNITS = {"TO_TIMESTAMP_SECONDS": "Second", "TO_TIMESTAMP_MILLIS": "Millisecond", "TO_TIMESTAMP_MICROS": "Microsecond"}


def with_zones(query: str) -> str:
    """The query in which every instant has the zone UTC."""
    if _SIGNS.search(query) is None:
        return query
    sql = Operands(query)
    return sql.wrapped((first, stop, "arrow_cast(", f", '{_type(sql.word(first))}')") for first, stop in _instants(sql))


def _type(function: str) -> str:
    return f'Timestamp({_UNITS.get(function, "Nanosecond")}, Some("+00:00"))'


def _instants(sql: Operands) -> Iterator[tuple[int, int]]:
    """The first token of each, and the one after it."""
    for place, word in enumerate(sql.words):
        opens = sql.word(place + 1) == "(" and sql.word(place - 1) != "."
        if (word == "NOW" or word.startswith("TO_TIMESTAMP")) and opens:
            yield place, sql.closed(place + 1) + 1
        elif word == "CURRENT_TIMESTAMP" and sql.word(place - 1) not in (".", "AS"):
            yield place, sql.closed(place + 1) + 1 if opens else place + 1
        elif word in ("CAST", "TRY_CAST") and opens:
            if any(_after_type(sql, at + 1) for at, each in sql.inside(place + 1) if each == "AS"):
                yield place, sql.closed(place + 1) + 1
        elif word == ":" and sql.word(place + 1) == ":" and (stop := _after_type(sql, place + 2)):
            first = sql.before_cast(place)
            if first is not None:
                yield first, stop
        elif (stop := _after_type(sql, place)) and sql.word(stop).startswith("'"):
            yield place, stop + 1


def _after_type(sql: Operands, place: int) -> int:
    """The token after the type TIMESTAMPTZ, or TIMESTAMP WITH TIME ZONE; 0 if there is another one."""
    if sql.word(place) == "TIMESTAMPTZ":
        return place + 1
    words = [sql.word(place + each) for each in range(4)]
    return place + 4 if words == ["TIMESTAMP", "WITH", "TIME", "ZONE"] else 0
