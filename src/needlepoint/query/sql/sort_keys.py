"""Keys of ORDER BY, PARTITION BY and DISTINCT ON that DataFusion does not take for constant.

If a column is constant below an outer join or grouping sets, DataFusion 55 treats it as constant above them too,
although some of its values are NULL there, and drops it from the keys of a sort:

    SELECT s, row_number() OVER (PARTITION BY b.p ORDER BY s) FROM c LEFT JOIN b ON b.id = c.n AND b.p = 7

numbers all rows as one partition. An expression with a subquery in it is not constant for DataFusion, and has the
value of the key:

>>> with_kept_keys("SELECT rank() OVER (PARTITION BY s ORDER BY p DESC) FROM t ORDER BY p")
'SELECT rank() OVER (PARTITION BY CASE WHEN (SELECT true) THEN s END ORDER BY CASE WHEN (SELECT true) THEN p END DESC) \
FROM t ORDER BY p'

After an internal failure, all keys are written like this: of a constant that is also the key of a join, DataFusion
makes plans that it rejects itself.

The ORDER BY of the whole query stays as it is (datafusion/union_sort.py), unless DISTINCT ON has to have the same keys.
So do the keys of aggregates, which DataFusion keeps, and positions such as ORDER BY 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from needlepoint.query.sql.literals import tokens

_OPENS_WINDOW = {"OVER", "AS"}  # `OVER (…)`, `WINDOW w AS (…)`
_AFTER_KEYS = {"ORDER", "LIMIT", "OFFSET", "FETCH", "ROWS", "RANGE", "GROUPS", "UNION", "EXCEPT", "INTERSECT", ";"}
_DIRECTIONS = {"ASC", "DESC", "NULLS", "FIRST", "LAST"}


@dataclass(slots=True)
class _Level:
    """A pair of parentheses: whether it has the definition of a window, and whether it has a SELECT."""

    window: bool = False
    selects: bool = False


def with_kept_keys(query: str) -> str:
    """The same query with keys that DataFusion keeps. The query itself if it has quotes or comments that `tokens` does
    not know."""
    found = tokens(query)
    words = [each[0].upper() for each in found]
    wrapped = []
    for first, stop in _keys(words):
        while words[stop - 1] in _DIRECTIONS and stop - 1 > first:
            stop -= 1
        if first < stop and not (stop == first + 1 and (words[first].isdigit() or words[first] == "ALL")):
            wrapped.append((found[first].start(), found[stop - 1].end()))
    parts, position = [], 0
    for start, end in wrapped:
        parts += [query[position:start], f"CASE WHEN (SELECT true) THEN {query[start:end]} END"]
        position = end
    return "".join((*parts, query[position:]))


def _keys(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The first word of each key, and the word after it."""
    levels = [_Level(selects=_has_distinct_on(words))]
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if word == "(":
            on = before == "ON" and place > 1 and words[place - 2] == "DISTINCT"
            levels.append(_Level(window=before in _OPENS_WINDOW))
            if on:
                yield from _list(words, place + 1)
        elif word == ")" and len(levels) > 1:
            levels.pop()
        elif word == "SELECT" and len(levels) > 1:
            levels[-1].selects = True
        elif word == "BY" and _sorts(before, levels[-1]):
            yield from _list(words, place + 1)


def _sorts(before: str, level: _Level) -> bool:
    return (before == "PARTITION" and level.window) or (before == "ORDER" and (level.window or level.selects))


def _has_distinct_on(words: Sequence[str]) -> bool:
    return any(pair == ("DISTINCT", "ON") for pair in itertools.pairwise(words))


def _list(words: Sequence[str], first: int) -> Iterator[tuple[int, int]]:
    """The items of a list that begins here, without those of lists inside."""
    depth, start = 0, first
    for place in range(first, len(words)):
        word = words[place]
        if depth == 0 and (word in _AFTER_KEYS or word == ")"):
            yield start, place
            return
        if depth == 0 and word == ",":
            yield start, place
            start = place + 1
        depth += (word in "([") - (word in ")]")
    yield start, len(words)
