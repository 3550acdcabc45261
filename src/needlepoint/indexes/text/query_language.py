"""The language of `text_match(column, 'query')` and `score(column, 'query')`.

    query   = all {"OR" all}
    all     = part {["AND"] part}                 words side by side must all occur
    part    = ("NOT" | "-" | "+") part            "+" says nothing new
            | "(" query ")"
            | '"' words '"' ["~" number]          a phrase: these words in this order, at most so many others between
            | word
            | word "*"                            any word that begins so
            | word "~" [1 | 2]                    any word that becomes it with one or two letters added, left out or
                                                  changed, or neighbours exchanged; no letter twice

AND, OR and NOT are upper case. words.py defines what a word is, in any case; several words in one (e-mail) are a
phrase. A query may only exclude: then all texts without the words match. NULL never matches.

>>> parse('dairy AND (cow OR goat*) -"ice cream"')
AllOf(parts=(Word(text='dairy'), AnyOf(parts=(Word(text='cow'), Prefix(text='goat'))), \
Negation(part=Phrase(words=('ice', 'cream'), slop=0))))
>>> parse("dairy AND (cow")
Traceback (most recent call last):
needlepoint.errors.SqlError: text query 'dairy AND (cow': the parenthesis at 11 is not closed. Add ')'.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from needlepoint.errors import SqlError
from needlepoint.indexes.text.words import words

LONGEST_QUERY = 10_000
LONGEST_FUZZY_WORD = 100
DEEPEST, MOST_PARTS = 50, 500


@dataclass(frozen=True, slots=True)
class Word:
    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """Any word that begins with the text, or is it."""

    text: str


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """Any word at most so many edits away from the text. An exchange of neighbours is one edit."""

    text: str
    distance: int


@dataclass(frozen=True, slots=True)
class Phrase:
    """Two words or more in this order, with at most `slop` others between them."""

    words: tuple[str, ...]
    slop: int = 0


@dataclass(frozen=True, slots=True)
class Negation:
    part: Query


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Query, ...]


Term = Word | Prefix | Fuzzy
Query = Term | Phrase | Negation | AllOf | AnyOf

_TOKEN = re.compile(
    r'(?P<space>\s+)|(?P<open>\()|(?P<close>\))|"(?P<phrase>[^"]*)"(?P<slop>~[0-9]*)?|(?P<sign>[+-](?=\S))'
    r'|(?P<word>[^\s()"]+)|(?P<quote>")'
)
_WORD = re.compile(r"([^*~]+)(\*|~[0-9]*)?")
_OPERATORS = ("AND", "OR", "NOT")
_QUOTED = "Put it in double quotes to search for it as it is."


@functools.lru_cache(maxsize=1000)
def parse(text: str) -> Query:
    """Parse a query; SqlError with the position, counted from 1, when it is not one."""
    if len(text) > LONGEST_QUERY:
        raise SqlError(f"a text query has {len(text):,} characters, and may have {LONGEST_QUERY:,}.")
    return _Parser(text).query()


def terms(query: Query) -> tuple[Term, ...]:
    """The terms that a score counts: words, also those of phrases, that are not excluded. Each once, in order.

    >>> terms(parse('"dairy cow" goat* -dairy NOT (NOT cow OR hen)'))
    (Word(text='dairy'), Word(text='cow'), Prefix(text='goat'))
    """
    return tuple(dict.fromkeys(_terms(query, True)))


def _terms(query: Query, wanted: bool) -> Iterator[Term]:
    match query:
        case Negation(part):
            yield from _terms(part, not wanted)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _terms(part, wanted)
        case Phrase(several):
            yield from map(Word, several if wanted else ())
        case term:
            yield from (term,) if wanted else ()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int
    slop: str = ""


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._read())
        self._next = 0
        self._parts = 0

    def query(self) -> Query:
        if not self._tokens:
            raise self._wrong("it is empty.", "Write a word.")
        found = self._any(0)
        left = self._peek()
        if left is not None:
            raise self._wrong(f"the ')' at {left.place} closes nothing.", "Remove it.")
        return found

    def _read(self) -> Iterator[_Token]:
        for found in _TOKEN.finditer(self._text):
            kind, place = found.lastgroup or "", found.start() + 1
            if found["phrase"] is not None:
                yield _Token("phrase", found["phrase"], place, found["slop"] or "")
            elif kind == "quote":
                raise self._wrong(f"the phrase at {place} is not closed.", "Add a double quote.")
            elif kind == "word" and found[0] in _OPERATORS:
                yield _Token(found[0], found[0], place)
            elif kind != "space":
                yield _Token(kind, found[0], place)

    def _wrong(self, problem: str, hint: str) -> SqlError:
        shown = self._text if len(self._text) <= 60 else self._text[:60] + "…"
        return SqlError(f"text query '{shown}': {problem}", hint=hint)

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _at(self, *kinds: str) -> bool:
        token = self._peek()
        return token is not None and token.kind in kinds

    def _any(self, depth: int) -> Query:
        parts = [self._all(depth)]
        while self._at("OR"):
            self._next += 1
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all(self, depth: int) -> Query:
        parts = [self._part(depth)]
        while self._peek() is not None and not self._at("OR", "close"):
            self._next += self._at("AND")
            parts.append(self._part(depth))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _part(self, depth: int) -> Query:
        token = self._peek()
        self._parts += 1
        if depth > DEEPEST or self._parts > MOST_PARTS:
            raise self._wrong(f"it has more than {MOST_PARTS} parts, or {DEEPEST} within another.", "Ask for less.")
        if token is None or token.kind in ("AND", "OR", "close"):
            if token is None:
                raise self._wrong("a word is missing at the end.", "Put operators between words.")
            raise self._wrong(f"a word is missing before '{token.text}' at {token.place}.", _QUOTED)
        self._next += 1
        match token.kind:
            case "NOT":
                return Negation(self._part(depth + 1))
            case "sign":
                part = self._part(depth + 1)
                return Negation(part) if token.text == "-" else part
            case "open":
                inner = self._any(depth + 1)
                if not self._at("close"):
                    raise self._wrong(f"the parenthesis at {token.place} is not closed.", "Add ')'.")
                self._next += 1
                return inner
            case "phrase":
                return self._phrase(token)
        return self._word(token)

    def _phrase(self, token: _Token) -> Query:
        if token.slop == "~":
            raise self._wrong(f"a number is missing after ~ of the phrase at {token.place}.", 'Write "a b"~2.')
        slop = int(token.slop[1:6] or 0)  # larger ones make no difference
        return self._several(token, token.text, slop)

    def _word(self, token: _Token) -> Query:
        found = _WORD.fullmatch(token.text)
        if found is None:
            raise self._wrong(f"* or ~ is not at the end of '{token.text}' at {token.place}.", _QUOTED)
        text, suffix = found[1], found[2] or ""
        several = self._several(token, text, 0)
        if not suffix:
            return several
        if not isinstance(several, Word):
            raise self._wrong(
                f"'{token.text}' at {token.place} is several words, and {suffix[0]} is for one.", "Leave it out."
            )
        if suffix == "*":
            return Prefix(several.text)
        distance = int(suffix[1:6] or 1)
        if distance > 2 or len(several.text) > LONGEST_FUZZY_WORD:
            raise self._wrong(
                f"'{token.text}' at {token.place} is too fuzzy.",
                f"Write ~1 or ~2 after a word of at most {LONGEST_FUZZY_WORD} letters.",
            )
        return Fuzzy(several.text, distance) if distance else several

    def _several(self, token: _Token, text: str, slop: int) -> Query:
        found: list[str] = words(pa.array([text], pa.string()))[0].as_py()
        self._parts += len(found)
        if not found:
            raise self._wrong(f"'{token.text}' at {token.place} has no letter and no digit.", "Leave it out.")
        return Word(found[0]) if len(found) == 1 else Phrase(tuple(found), slop)
