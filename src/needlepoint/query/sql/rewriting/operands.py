"""The operands of comparisons in the text of a query: where each begins and ends.

>>> sql = Operands("SELECT * FROM a JOIN b ON 1 + 1 = left(b.x, 2) AND a.y")
>>> at = sql.words.index("=")
>>> sql.part(sql.left(at), at), sql.part(at + 1, sql.right(at + 1))
('1 + 1', 'left(b.x, 2)')

An operand that is long, or has words that it does not know, has no end: None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from needlepoint.query.sql.tokens import Parentheses, tokens, with_added

FLIPPED = {"=": "=", "==": "==", "<>": "<>", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_SIGNS = frozenset("=<>!~@#&|^:-")  # of operators with several characters
_OPENS, _CLOSES = {"(", "[", "{", "CASE"}, {")", "]", "}", "END"}
_STARTS = {"ON", "AND", "OR", "NOT", "WHERE", "HAVING", "WHEN"}
_LIST_STARTS = {"(", "[", ",", "SELECT", "BY"}
_STOPS = {"AND", "OR", "WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "FETCH", "UNION",
          "EXCEPT", "INTERSECT", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "WHEN", "THEN", "ELSE",
          ",", ";"}  # fmt: skip
# What binds as loosely as a comparison, or has parts of its own.
_LOOSE = {"IS", "IN", "LIKE", "ILIKE", "SIMILAR", "BETWEEN", "NOT", "CASE", "THEN", "ELSE", "SELECT", "FROM", "ANY",
          "ALL", "SOME", "EXISTS", "=", "<", ">", "!", "~"}  # fmt: skip
_BEFORE_TABLE = {"", "AS", "FROM", "JOIN", "UNION", "EXCEPT", "INTERSECT"}
_CLAUSES = {"SELECT", "FROM", "ON", "WHERE", "HAVING", "GROUP", "ORDER", "QUALIFY", "LIMIT"}
_BEFORE_OPERAND = {"SELECT", "DISTINCT", "WHERE", "ON", "HAVING", "BY", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE",
                   "WHEN", "THEN", "ELSE", "CASE"}  # fmt: skip
_LONGEST = 100  # tokens of an operand, and of what is before it: a hostile query may have many without an end
_VOLATILE = {"RANDOM", "RAND", "UUID"}
_CONSTANTS = {"TRUE", "FALSE", "NULL", "DATE", "TIME", "TIMESTAMP", "INTERVAL", "AS", "PRECISION"}

_TYPE_WORDS = {("TIMESTAMP", "WITH"), ("TIMESTAMP", "WITHOUT"), ("WITH", "TIME"), ("WITHOUT", "TIME"),
               ("TIME", "ZONE"), ("DOUBLE", "PRECISION")}  # fmt: skip
_UNITS = {"YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}

EXPRESSION = "expression"
Change = tuple[int, int, str]  # the first token of a part, the one after it, and what to write instead
Wrap = tuple[int, int, str, str]  # the same, and what to write before and after it


@dataclass(frozen=True, slots=True)
class Operands:
    """The tokens of a query, and the same in capitals, except names after a dot."""

    text: str
    found: Sequence[re.Match[str]] = field(init=False)
    words: Sequence[str] = field(init=False)
    _closed: Mapping[int, int] = field(init=False)
    _opened: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        found = tokens(self.text)
        words = [each[0].upper() for each in found]
        for place in range(1, len(words)):
            if words[place - 1] == ".":
                words[place] = words[place].lower()  # a column, even if it is named like a keyword
        object.__setattr__(self, "found", found)
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "_closed", Parentheses.of(words).closed)
        object.__setattr__(self, "_opened", {closes: opens for opens, closes in self._closed.items()})

    def word(self, place: int) -> str:
        return self.words[place] if 0 <= place < len(self.words) else ""

    def part(self, first: int, stop: int) -> str:
        return self.text[self.found[first].start() : self.found[stop - 1].end()]

    def hidden(self, first: int, stop: int) -> Change:
        """The part inside a function that changes nothing, and of which DataFusion derives nothing."""
        return first, stop, f"nullif({self.part(first, stop)}, NULL)"

    def changed(self, changes: Iterable[Change]) -> str:
        """The text with parts written differently, but none inside another."""
        parts, position = [], 0
        for first, stop, text in changes:
            if self.found[first].start() >= position:
                parts += [self.text[position : self.found[first].start()], text]
                position = self.found[stop - 1].end()
        return "".join((*parts, self.text[position:]))

    def wrapped(self, parts: Iterable[Wrap]) -> str:
        """The text with something before and after parts, also of some inside others.

        >>> Operands("SELECT f(a)").wrapped([(1, 5, "g(", ")"), (3, 4, "-", "")])
        'SELECT g(f(-a))'
        """
        added = []
        for first, stop, before, after in parts:
            added += [(self.found[first].start(), before), (self.found[stop - 1].end(), after)]
        return with_added(self.text, added)

    def name(self, place: int) -> str:
        return self.found[place][0].strip('"`').lower()

    def is_name(self, place: int) -> bool:
        token = self.found[place]
        return token[0][0] in '"`' or bool(token["word"] and token[0][0] != "$")

    def is_alias(self, place: int) -> bool:
        """Whether a name follows the end of an operand."""
        before = self.found[place - 1]
        ends = before["word"] or before["text"] or before["number"] or before[0] in ")]"
        return self.is_name(place) and bool(ends)

    def is_enclosed(self, first: int, stop: int) -> bool:
        return self.word(first - 1) == "(" and self.word(stop) == ")"

    def is_constant(self, first: int, stop: int, names: Iterable[str] = ()) -> bool:
        """Whether a part has no columns, except these. A name before a parenthesis is a function, one after AS is a
        type."""
        return first < stop <= first + _LONGEST and all(
            not self.is_name(place)
            or self.words[place] in _CONSTANTS
            or self.word(place - 1) in ("AS", ":")
            or self.word(place + 1) in ("(", ".")
            or self.name(place) in names
            for place in range(first, stop)
        )

    def is_volatile(self, first: int, stop: int) -> bool:
        return not _VOLATILE.isdisjoint(self.words[first:stop])

    def operator(self, place: int) -> int:
        """How many tokens the comparison operator has that begins here, or 0."""
        if self.word(place) not in ("=", "<", ">", "!") or self._adjoins(place):
            return 0
        stop = place + 1
        while self.word(stop) in _SIGNS and self.word(stop) != "-" and self._adjoins(stop):
            stop += 1
        return stop - place if self.part(place, stop) in FLIPPED else 0

    def _adjoins(self, place: int) -> bool:
        """Whether a sign belongs to the sign before it."""
        return self.word(place - 1) in _SIGNS and self.found[place - 1].end() == self.found[place].start()

    def before_cast(self, stop: int) -> int | None:
        """The first token of the name, call, text, parenthesis or other cast that ends here, before a `::`.

        >>> sql = Operands("SELECT a, b.c::TIMESTAMP WITH TIME ZONE::DATE")
        >>> sql.words[sql.before_cast(len(sql.words) - 3)]
        'B'
        """
        for _ in range(_LONGEST):
            place = stop - 1
            if self.word(place) == ")":
                place = self._opened.get(place, -1)
                if place > 0 and self.is_name(place - 1) and self.word(place - 1) not in _BEFORE_OPERAND:
                    place -= 1
            elif place < 0 or not (self.is_name(place) or self.found[place]["text"]):
                return None
            while (self.word(place - 1), self.word(place)) in _TYPE_WORDS:
                place -= 1
            if self.word(place - 1) == ":" and self.word(place - 2) == ":":
                stop = place - 2
                continue
            while place > 1 and self.word(place - 1) == "." and self.is_name(place - 2):
                place -= 2
            return place if place >= 0 else None
        return None

    def left(self, stop: int) -> int | None:
        """The first token of the operand that ends here."""
        for place, word in self._back(stop):
            if word in _STARTS or word in ("(", "["):
                return None if self.is_of_between(place) else place + 1
            if word in _LOOSE or word in _STOPS or word in ("BY", "DISTINCT"):
                return None
        return None

    def is_of_between(self, place: int) -> bool:
        """Whether this is the AND of a BETWEEN."""
        if self.words[place] != "AND":
            return False
        before = (word for _, word in self._back(place) if word == "BETWEEN" or word in _STARTS or word in _LIST_STARTS)
        return next(before, "BETWEEN") == "BETWEEN"  # or it is too far

    def _back(self, stop: int) -> Iterator[tuple[int, str]]:
        """The tokens before this one, up to the parenthesis or CASE that opens, without those in others."""
        depth = 0
        for place in range(stop - 1, max(stop - _LONGEST, 0) - 1, -1):
            word = self.words[place]
            if depth == 0 and word not in _CLOSES:
                yield place, word
                if word in _OPENS:
                    return
            if word in _CLOSES:
                depth += 1
            elif word in _OPENS:
                depth -= 1

    def right(self, first: int) -> int | None:
        """The token after the operand that begins here."""
        depth = 0
        for place in range(first, min(first + _LONGEST, len(self.words))):
            word = self.words[place]
            if depth == 0:
                if word in _CLOSES or self._stops(place):
                    return place if place > first else None
                if word in _LOOSE and word != "CASE":
                    return None
                if place > first and self.is_alias(place) and not self._continues(place):
                    return None
            if word in _OPENS:
                depth += 1
            elif word in _CLOSES:
                depth -= 1
        return len(self.words) if first < len(self.words) <= first + _LONGEST else None

    def _continues(self, place: int) -> bool:
        """Whether a word belongs to the type or the interval before it, as in `TIMESTAMP WITH TIME ZONE '…'`."""
        pair = (self.words[place - 1], self.words[place])
        return pair in _TYPE_WORDS or (self.word(place - 2) == "INTERVAL" and self.words[place] in _UNITS)

    def _stops(self, place: int) -> bool:
        word = self.words[place]
        return word in _STOPS and not (word in ("LEFT", "RIGHT") and self.word(place + 1) == "(")

    def clauses(self) -> Iterator[str]:
        """The clause of each token, or EXPRESSION in a subquery that is one."""
        clauses = [""]  # of each pair of parentheses
        for place, word in enumerate(self.words):
            if word == "(":
                clauses.append(EXPRESSION if self._opens_expression(place, clauses[-1]) else clauses[-1])
            elif word == ")" and len(clauses) > 1:
                clauses.pop()
            elif word in _CLAUSES and self.word(place - 1) != "DISTINCT" and clauses[-1] != EXPRESSION:
                clauses[-1] = word
            yield clauses[-1]

    def opened_expressions(self) -> Iterator[int]:
        """The parentheses of subqueries that are expressions."""
        for place, clause in enumerate(self.clauses()):
            is_query = self.words[place] == "(" and self.word(place + 1) in ("SELECT", "WITH")
            if is_query and clause == EXPRESSION and self.word(place - 1) not in _BEFORE_TABLE:
                yield place

    def closed(self, opens: int) -> int:
        """Where a parenthesis is closed, or the end."""
        return self._closed.get(opens, len(self.words))

    def level(self, place: int) -> Iterator[tuple[int, str]]:
        """The tokens from here to the parenthesis that closes, without those in other parentheses."""
        while place < len(self.words) and self.words[place] != ")":
            yield place, self.words[place]
            place = 1 + (self.closed(place) if self.words[place] == "(" else place)

    def inside(self, opens: int) -> Iterator[tuple[int, str]]:
        """The tokens in parentheses, without those in others inside them."""
        place = opens + 1
        while place < self.closed(opens):
            yield place, self.words[place]
            place = 1 + (self.closed(place) if self.words[place] == "(" else place)

    def _opens_expression(self, place: int, clause: str) -> bool:
        """Whether a subquery begins here that is not a table: `FROM (SELECT …)`, `WITH t AS (SELECT …)`, or a part of a
        UNION."""
        if clause == EXPRESSION or self.word(place + 1) not in ("SELECT", "WITH"):
            return clause == EXPRESSION
        before = self.word(place - 1)
        is_table = before in _BEFORE_TABLE or (before == "ALL" and self.word(place - 2) in _BEFORE_TABLE)
        return not (is_table or clause == "FROM")
