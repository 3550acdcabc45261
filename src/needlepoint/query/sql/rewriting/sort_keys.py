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

The ORDER BY of the whole query stays as it is (datafusion/final_sort.py), unless DISTINCT ON has to have the same keys.
So do the keys of aggregates, which DataFusion keeps, and positions such as ORDER BY 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from needlepoint.query.sql.tokens import tokens, with_added

_DISTINCT_ON = ["DISTINCT", "ON"]
_OPENS_WINDOW = {"OVER", "AS"}  # `OVER (…)`, `WINDOW w AS (…)`
_AFTER_KEYS = {"ORDER", "LIMIT", "OFFSET", "FETCH", "ROWS", "RANGE", "GROUPS", "UNION", "EXCEPT", "INTERSECT", ";"}
_BEFORE, _AFTER = "CASE WHEN (SELECT true) THEN ", " END"


@dataclass(slots=True)
class _Level:
    """A pair of parentheses: whether it has the definition of a window, and whether it has a SELECT."""

    window: bool = False
    selects: bool = False


def with_kept_keys(query: str) -> str:
    """The same query with keys that DataFusion keeps. The query itself if it has quotes or comments that `tokens` does
    not know.

    >>> with_kept_keys("SELECT * FROM (SELECT s FROM t ORDER BY rank() OVER (ORDER BY t.last), 1 LIMIT 2)")
    'SELECT * FROM (SELECT s FROM t ORDER BY CASE WHEN (SELECT true) THEN rank() OVER (ORDER BY \
CASE WHEN (SELECT true) THEN t.last END) END, 1 LIMIT 2)'
    """
    found = tokens(query)
    words = [each[0].upper() for each in found]
    added: list[tuple[int, str]] = []  # a key can have a window or a subquery with keys in it
    for first, stop in _keys(words):
        stop = _without_direction(words, first, stop)
        if words[first:stop] and not _is_position(words[first:stop]):
            added += [(found[first].start(), _BEFORE), (found[stop - 1].end(), _AFTER)]
    return with_added(query, added)


def _without_direction(words: Sequence[str], first: int, stop: int) -> int:
    """The end of a key without ASC, DESC, NULLS FIRST and NULLS LAST."""
    if stop - first > 2 and words[stop - 2] == "NULLS":
        stop -= 2
    return stop - 1 if stop - first > 1 and words[stop - 1] in ("ASC", "DESC") else stop


def _is_position(key: Sequence[str]) -> bool:
    """Whether a key is the number of a column, or ALL."""
    return len(key) == 1 and (key[0].isdigit() or key[0] == "ALL")


def _keys(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The first word of each key, and the word after it."""
    levels = [_Level(selects=_has_distinct_on(words))]
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if word == "(":
            levels.append(_Level(window=before in _OPENS_WINDOW))
            if words[max(place - 2, 0) : place] == _DISTINCT_ON:
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
    return any([*pair] == _DISTINCT_ON for pair in itertools.pairwise(words))


def _list(words: Sequence[str], first: int) -> Iterator[tuple[int, int]]:
    """The items of a list that begins here, without those of lists inside."""
    depth, start = 0, first
    for place in range(first, len(words)):
        word = words[place]
        ends = word in _AFTER_KEYS and place > start and words[place - 1] != "."  # else it is a column
        if depth == 0 and (ends or word == ")"):
            yield start, place
            return
        if depth == 0 and word == ",":
            yield start, place
            start = place + 1
        depth += (word in "([") - (word in ")]")
    yield start, len(words)
