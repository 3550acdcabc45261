"""The limit on nesting: SQL that would take DataFusion too long, or crash it, is flattened or rejected.

DataFusion 55 turns `a OR b OR c OR …` into a tree as deep as the chain is long. Planning time grows with the square of
the depth or worse. DataFusion's own threads have small stacks and overflow somewhere beyond 2,000 levels, which ends
the process. So long chains get parentheses, which make the tree shallow and keep the meaning. What is still too deep is
rejected. DataFusion itself rejects more than 50 levels of parentheses.

>>> shallow("SELECT * FROM t WHERE " + " OR ".join(f"x = {number}" for number in range(4)), group=2)
'SELECT * FROM t WHERE (x = 0 OR x = 1) OR (x = 2 OR x = 3)'
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import datafusion

from needlepoint.errors import SqlError

# A shorter text cannot be too deep.
SHORT = 2000
# A chain of at most this many terms stays as it is.
GROUP = 32
# Limits: nested operators; terms of an AND; tables, subqueries and parts of a union.
DEEPEST, MOST_CONDITIONS, MOST_RELATIONS = 1000, 1000, 500
# The limit for a whole query: DataFusion takes seconds to plan this many.
MOST_ALTERNATIVES = 20_000

_READ_ONLY = datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)

# The values of a list are one token, since a list can be very long. An unterminated string, quoted name or comment
# extends to the end.
_TOKEN = re.compile(
    r"""(?P<list>(?:(?:-?\d++(?:\.\d++)?|'[^']*+'|\$\w++)\s*+,\s*+)++)
    |(?P<comment>--[^\n]*+|/\*.*?(?:\*/|\Z))
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*+'?|'(?:[^']|'')*+'?|\$(?P<tag>\w*+)\$.*?(?:\$(?P=tag)\$|\Z))
    |(?P<name>"(?:[^"]|"")*+"?|`[^`]*+`?|\$\w++)
    |(?P<word>\w[\w.]*+)
    |(?P<open>\()|(?P<close>\))|(?P<comma>,)|(?P<end>;)
    |(?P<sign>[-+*/%|=<>!~^&\#@:?.\[\]{}]++)""",
    re.DOTALL | re.VERBOSE,
)
_PLACE = re.compile(r"Line: (\d+), Column: (\d+)")
_KINDS = {
    "AND": "A", "OR": "O", "NOT": "N", "IS": "I", "NULL": "U", "TRUE": "U", "FALSE": "U", "LIKE": "L", "ILIKE": "L",
    "IN": "n", "BETWEEN": "B", "DATE": "t", "TIMESTAMP": "t", "TIME": "t",
}  # fmt: skip
_OPERATORS = "olAONILnB"
_STARTS = {"WHERE", "HAVING", "ON"}
_STOPS = {"GROUP", "ORDER", "LIMIT", "HAVING", "UNION", "EXCEPT", "INTERSECT", "WINDOW", "QUALIFY", "OFFSET", "FETCH"}
_RELATIONS = {"SELECT", "JOIN", "UNION", "EXCEPT", "INTERSECT", "OVER", "VALUES", "TABLE", "UNNEST"}
# Words that cannot be part of a plain condition, although a parenthesis may follow them.
_BOUNDARIES = _STARTS | _STOPS | {"SELECT", "FROM", "JOIN", "WHEN", "THEN", "ELSE"}
_OTHERS = {"SELECT", "DISTINCT", "ALL", "WITH", "VALUES", "CASE", "WHEN", "THEN", "ELSE", "FROM", "BY", "USING", "AS",
           "INTERVAL", "XOR", "LATERAL", "RETURN", "ESCAPE", "COLLATE"}  # fmt: skip
_LOWER = re.compile(r"->|=>|:=|(?<!:):(?!:)|[?{}]|^\.$")  # lower precedence than OR, or unknown precedence

_OPERAND = r"(?:o?(?:vp?|s|p|U|ts))"
_VALUE = rf"{_OPERAND}(?:o+{_OPERAND})*+"
_TERM = re.compile(rf"N*+{_VALUE}(?:IN?U|N?L{_VALUE}|N?np|N?B{_VALUE}A{_VALUE})?+")


@dataclass(slots=True)
class _Chain:
    """The tokens of a possible condition: one letter for each, and its position."""

    plain: bool
    kinds: list[str] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Level:
    """A pair of parentheses. `operators` and `below` describe what is between two commas."""

    start: int
    chain: _Chain
    case: bool = False  # between CASE and END
    operators: int = 0
    below: int = 0
    deepest: int = 0
    conditions: int = 0
    most_conditions: int = 0
    listing: bool = False  # of tables, after FROM

    def finish(self) -> None:
        self.deepest = max(self.deepest, self.operators + self.below)
        self.most_conditions = max(self.most_conditions, self.conditions)
        self.operators = self.below = self.conditions = 0


@dataclass(frozen=True, slots=True)
class Nesting:
    """The nesting of a text, and the parentheses that reduce it: offsets and what to insert there."""

    depth: int
    conditions: int
    alternatives: int
    relations: int
    added: tuple[tuple[int, str], ...]

    def check(self) -> None:
        """Raise SqlError if the text exceeds a limit."""
        for count, most, what, hint in (
            (self.alternatives, MOST_ALTERNATIVES, "alternatives (OR)", "Write x IN (…), or split the query."),
            (self.conditions, MOST_CONDITIONS, "conditions (AND)", "Write x NOT IN (…), or split the query."),
            (self.depth, DEEPEST, "nested operators", "Split the query."),
            (self.relations, MOST_RELATIONS, "subqueries, joins and parts of a union", "Split the query."),
        ):
            if count > most:
                raise SqlError(f"the query has {count:,} {what}, and the limit is {most:,}.", hint=hint)


def frame(
    context: datafusion.SessionContext, query: str, parameters: Mapping[str, Any] | None = None
) -> datafusion.DataFrame:
    """Plan a query that only reads. All SQL of users passes through here."""
    values = dict(parameters) if parameters else None
    if len(query) <= SHORT:
        return context.sql_with_options(query, _READ_ONLY, param_values=values)
    made = shallow(query)
    try:
        return context.sql_with_options(made, _READ_ONLY, param_values=values)
    except ValueError as error:
        if made == query:
            raise
        try:
            measure(query, group=len(query)).check()
            too_deep = False
        except SqlError:
            too_deep = True
        if too_deep:
            raise ValueError(_as_written(str(error), query, made)) from error
        # Report errors for the text as the user wrote it.
        return context.sql_with_options(query, _READ_ONLY, param_values=values)


def _as_written(said: str, query: str, made: str) -> str:
    """DataFusion's message, with positions in the text without our parentheses."""
    found = _PLACE.search(said)
    if found is None:
        return said
    line, column = int(found[1]), int(found[2])
    start = -1
    for _ in range(line - 1):
        start = made.find("\n", start + 1)
    offsets = sorted(offset for offset, _ in measure(query).added)
    before = sum(start < offset + number < start + column for number, offset in enumerate(offsets))
    return f"{said[: found.start()]}Line: {line}, Column: {column - before}{said[found.end() :]}"


@functools.lru_cache(maxsize=8)  # a query is planned twice
def shallow(query: str, group: int = GROUP) -> str:
    """The same query with parentheses around parts of long chains. SqlError when it is too deep."""
    measured = measure(query, group)
    measured.check()
    parts: list[str] = []
    position = 0
    for offset, sign in sorted(measured.added, key=lambda each: each[0]):
        parts += (query[position:offset], sign)
        position = offset
    return "".join((*parts, query[position:]))


def measure(query: str, group: int = GROUP) -> Nesting:
    """Measure a text in one pass."""
    return _Reader(query, group).read()


class _Reader:
    def __init__(self, query: str, group: int) -> None:
        self._query, self._group = query, group
        self._levels = [_Level(0, _Chain(False))]
        self._alternatives = self._relations = 0
        self._added: list[tuple[int, str]] = []

    def read(self) -> Nesting:
        for token in _TOKEN.finditer(self._query):
            kind = token.lastgroup or ""
            match kind:
                case "comment":
                    continue
                case "list":
                    self._comma()
                case "open":
                    self._check_open()
                    self._levels.append(_Level(token.start(), _Chain(True)))
                case "close":
                    self._close(token.end())
                case "comma":
                    self._comma()
                case "end":
                    self._end_chain(True)
                case "word":
                    self._word(token[0], token.span())
                case "sign":
                    self._level.operators += len(token[0])
                    self._add("l" if _LOWER.search(token[0]) else "o", token.span())
                case _:
                    self._add("s" if kind in ("text", "tag") else "v", token.span())
        while len(self._levels) > 1:  # not closed: DataFusion reports it
            self._close(len(self._query))
        self._end_chain(True)
        whole = self._level
        whole.finish()
        return Nesting(whole.deepest, whole.most_conditions, self._alternatives, self._relations, tuple(self._added))

    @property
    def _level(self) -> _Level:
        return self._levels[-1]

    def _add(self, kind: str, place: tuple[int, int]) -> None:
        chain = self._level.chain
        chain.kinds.append(kind)
        chain.places.append(place)

    def _word(self, word: str, place: tuple[int, int]) -> None:
        level, upper = self._level, word.upper()
        level.operators += word.count(".")
        self._relations += upper in _RELATIONS
        if upper in _BOUNDARIES:
            after_operator = level.chain.kinds and level.chain.kinds[-1] in _OPERATORS
            self._end_chain(upper in _STOPS)
            if not after_operator:  # else it is a column name
                level.finish()
        if upper == "CASE":
            self._check_open()
            self._levels.append(_Level(place[0], _Chain(False), case=True))
            return
        if upper == "END" and level.case:
            self._leave(place[1])
            return
        if upper in _STARTS or upper in _STOPS:
            level.chain.plain = upper in _STARTS
            level.listing = False
            return
        if upper == "FROM":
            level.listing = True
        kind = _KINDS.get(upper, "x" if upper in _OTHERS else "v")
        if kind in "AONILnB":
            level.operators += 1
            level.conditions += kind == "A"
        if kind == "O":
            self._alternatives += 1
            level.most_conditions, level.conditions = max(level.most_conditions, level.conditions), 0
        self._add(kind, place)

    def _comma(self) -> None:
        level = self._level
        self._end_chain(False)
        self._relations += level.listing
        level.finish()

    def _check_open(self) -> None:
        if len(self._levels) > DEEPEST:
            Nesting(len(self._levels), 0, 0, 0, ()).check()

    def _close(self, end: int) -> None:
        while self._level.case:  # without END
            self._leave(end)
        if len(self._levels) > 1:  # else it closes nothing: DataFusion reports it
            self._leave(end)

    def _leave(self, end: int) -> None:
        self._end_chain(not self._level.case)
        inner = self._levels.pop()
        inner.finish()
        outer = self._level
        outer.below = max(outer.below, inner.deepest + 1)
        outer.conditions += inner.most_conditions
        self._add("x" if inner.case else "p", (inner.start, end))

    def _end_chain(self, plain: bool) -> None:
        """The tokens since the chain began are a whole condition if both of its ends are `plain`."""
        level = self._level
        chain, level.chain = level.chain, _Chain(False)
        connections = chain.kinds.count("O") + chain.kinds.count("A")
        if not (plain and chain.plain) or connections < 2 * self._group - 1:
            return
        alternatives = _terms(chain)
        if alternatives is None:
            return
        # The operators of one term are not nested in those of another.
        weights = [_weight(kind, place) for kind, place in zip(chain.kinds, chain.places, strict=True)]
        level.operators -= sum(weights) - max(map(sum, _split(chain.kinds, weights)))
        for terms in (*alternatives, [(terms[0][0], terms[-1][1]) for terms in alternatives]):
            if len(terms) >= 2 * self._group:
                level.operators += self._group + math.ceil(math.log2(len(terms) / self._group))
                self._put(terms)

    def _put(self, terms: Sequence[tuple[int, int]]) -> None:
        """Insert parentheses around both halves, recursively, until the halves are short."""
        waiting = [(0, len(terms))]
        while waiting:
            first, stop = waiting.pop()
            middle = (first + stop) // 2
            for start, end in ((first, middle), (middle, stop)):
                self._added += [(terms[start][0], "("), (terms[end - 1][1], ")")]
                if end - start > self._group:
                    waiting.append((start, end))


def _weight(kind: str, place: tuple[int, int]) -> int:
    return place[1] - place[0] if kind == "o" else int(kind in _OPERATORS)


def _split(kinds: Sequence[str], weights: Sequence[int]) -> list[list[int]]:
    """The weights of each term of a chain, without its connectives."""
    found: list[list[int]] = [[]]
    for kind, weight in zip(kinds, weights, strict=True):
        if kind in "AO":
            found.append([])
        else:
            found[-1].append(weight)
    return found


def _terms(chain: _Chain) -> list[list[tuple[int, int]]] | None:
    """The positions of the terms of a condition: its alternatives, and the terms that each connects by AND. None if it
    contains anything else: then it stays as it is."""
    letters = "".join(chain.kinds)
    alternatives: list[list[tuple[int, int]]] = [[]]
    position = 0
    while True:
        term = _TERM.match(letters, position)
        if term is None:
            return None
        alternatives[-1].append((chain.places[position][0], chain.places[term.end() - 1][1]))
        position = term.end()
        if position == len(letters):
            return alternatives
        if letters[position] == "O":
            alternatives.append([])
        elif letters[position] != "A":
            return None
        position += 1
