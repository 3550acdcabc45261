"""Tokens of SQL: just enough to tell words, numbers and signs from strings, quoted names and comments.

>>> [each[0] for each in tokens("SELECT 'a ?', x.y -- why?")]
['SELECT', "'a ?'", ',', 'x', '.', 'y']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_WORDS = re.compile(r"\w+")
_TOKENS = re.compile(
    r"""
      (?P<text> [eE]'(?:[^'\\]|\\.)*' | '[^']*' | "[^"]*" | `[^`]*` | --[^\n]* | /\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/ )
    | (?P<strange> /\* | \$\w*\$ )
    | (?P<word> [^\W\d]\w* | \$\w+ )
    | (?P<number> (?:\d+\.\d* | \.\d+ | \d+) (?P<exponent>[eE][+-]?\d+)? \w* )
    | (?P<other> \S )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(query: str) -> list[re.Match[str]]:
    """The tokens of a query, without its comments. The list is empty if the query has nested comments or dollar-quoted
    strings: the pattern does not find their ends."""
    found = [each for each in _TOKENS.finditer(query) if not _is_comment(each[0])]
    return [] if any(each["strange"] for each in found) else found


@dataclass(frozen=True, slots=True)
class Parentheses:
    """The parenthesis around each word, -1 for none, and where each is closed.

    >>> Parentheses.of(["f", "(", "a", ")", "b"])
    Parentheses(around=[-1, -1, 1, -1, -1], closed={1: 3})
    """

    around: Sequence[int]
    closed: Mapping[int, int]

    @classmethod
    def of(cls, words: Sequence[str]) -> Parentheses:
        around, closed, opened = [], {}, [-1]
        for place, word in enumerate(words):
            if word == ")" and len(opened) > 1:
                closed[opened.pop()] = place
            around.append(opened[-1])
            if word == "(":
                opened.append(place)
        return cls(around, closed)


def with_added(query: str, added: Iterable[tuple[int, str]]) -> str:
    """The query with texts added at offsets.

    >>> with_added("SELECT a, b", [(8, ")"), (7, "(")])
    'SELECT (a), b'
    """
    parts, position = [], 0
    for offset, text in sorted(added):
        parts += [query[position:offset], text]
        position = offset
    return "".join((*parts, query[position:]))


def split(text: str) -> list[str]:
    """The statements of a text, which semicolons separate, each at its line and column of the text.

    >>> split("SELECT ';' AS a; -- one; two\\nSELECT 2;;")
    ["SELECT ';' AS a", '                 -- one; two\\nSELECT 2']
    """
    statements: list[str] = []
    start, is_empty = 0, True
    for each in tokens(text):
        if each[0] != ";":
            is_empty = False
            continue
        statements += [] if is_empty else [_in_place(text, start, each.start())]
        start, is_empty = each.end(), True
    return statements if is_empty and statements else [*statements, _in_place(text, start, len(text))]


def _in_place(text: str, start: int, end: int) -> str:
    """A part of a text behind as many lines and columns as are before it."""
    column = start - (text.rfind("\n", 0, start) + 1)
    return "\n" * text.count("\n", 0, start) + " " * column + text[start:end].rstrip()


def without_values(query: str) -> str:
    """The query on one line, with ? for its strings and numbers: for logs.

    >>> without_values("SELECT x1 FROM t -- mine\\nWHERE s = 'it''s' AND \\"a b\\" > 8.64 LIMIT 3")
    'SELECT x1 FROM t WHERE s = ? AND "a b" > ? LIMIT ?'
    """
    shown, end = "", 0
    for each in tokens(query):
        is_value = each["number"] or each[0].endswith("'")
        if is_value and shown.endswith("?") and each.start() == end:
            shown, end = shown, each.end()  # the second half of a string with a quote
            continue
        gap = " " if each.start() > end and shown else ""
        shown, end = f"{shown}{gap}{'?' if is_value else each[0]}", each.end()
    return shown or "…"


def _is_comment(token: str) -> bool:
    return token.startswith("--") or (token.startswith("/*") and len(token) > 2)


def words(text: str) -> set[str]:
    """All words, in lower case, also those inside of texts."""
    return {word.lower() for word in _WORDS.findall(text)}
