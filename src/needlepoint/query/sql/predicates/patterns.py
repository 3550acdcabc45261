"""Text pieces that a LIKE pattern or regular expression requires, in order and without overlap.

A missing piece only costs time, since the query evaluates the pattern again; a wrong piece loses rows. So a pattern
that is not fully understood gives no pieces.

>>> of_like("da_ry%cow")
Pieces(texts=('da', 'ry', 'cow'), starts=True, ends=True, fold=False)
>>> of_regex(r"^(?:old )?dai?ry\\s+cow[s!]$")
Pieces(texts=('da', 'ry', 'cow'), starts=False, ends=False, fold=False)
>>> of_regex("cow|goat") is None
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from needlepoint.indexes.text import folds_alike

# A pattern can be as long as a query. This much of it selects about as well as all of it, in bounded time.
MOST_PIECES, LONGEST_PIECE = 32, 1000
LONGEST_PATTERN = 10_000


@dataclass(frozen=True, slots=True)
class Pieces:
    """At least one piece, none of them empty. See predicate.Like."""

    texts: tuple[str, ...]
    starts: bool = False
    ends: bool = False
    fold: bool = False


class _Collector:
    """Collects literal characters and gaps from left to right; anchored at the start of the text."""

    def __init__(self, fold: bool) -> None:
        self._fold = fold
        self._pieces: list[list[str]] = []
        self._open = True
        self._starts = True

    def letter(self, letter: str) -> None:
        if self._fold and not folds_alike(letter):
            self.gap()
        elif self._open and self._pieces:
            self._pieces[-1].append(letter)
        else:
            self._pieces.append([letter])
            self._open = True

    def gap(self) -> None:
        """Any characters, or none, may be here."""
        if not self._pieces:
            self._starts = False
        self._open = False

    def done(self) -> Pieces | None:
        """The text ends here, unless there was a gap."""
        if not self._pieces:
            return None
        return _bounded(list(map("".join, self._pieces)), self._starts, self._open, self._fold)


def _bounded(texts: list[str], starts: bool, ends: bool, fold: bool = False) -> Pieces:
    """Truncated to the limits. A prefix of a piece is in the text too, but not at its end."""
    kept = tuple(text[:LONGEST_PIECE] for text in texts[:MOST_PIECES])
    return Pieces(kept, starts, ends and len(kept) == len(texts) and kept[-1] == texts[-1], fold)


def of_like(pattern: str, fold: bool = False) -> Pieces | None:
    """`fold` for ILIKE. A backslash escapes the next character; at the end it is literal."""
    found = _Collector(fold)
    letters = iter(pattern)
    for count, letter in enumerate(letters):
        if count == LONGEST_PATTERN:
            found.gap()
            break
        if letter in "%_":
            found.gap()
        else:
            found.letter(next(letters, "\\") if letter == "\\" else letter)
    return found.done()


def of_text(text: str, *, starts: bool = False, ends: bool = False) -> Pieces | None:
    """The text itself, anywhere or at an end."""
    return _bounded([text], starts, ends) if text else None


# Rust's syntax (docs.rs/regex). Nested classes and rarer syntax are not understood.
_FLAGS = re.compile(r"\(\?([imsU]+)\)")
_OTHER_FLAGS = re.compile(r"\(\?(?!:|P<|<)")
_QUANTIFIER = re.compile(r"([*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")  # lazy ones too
_OPTIONAL = re.compile(r"[*?]|\{0+[,}]")
_CLASS = re.compile(r"\[\^?\]?(?:[^\[\]\\]|\\.)*\]", re.DOTALL)
_ANYTHING = re.compile(r"[.^$]|\\[dDwWsSntr]|\\[bBAz](?!\{)")
_ESCAPED = re.compile(r"\\([!-/:;=?@\[-`{-~])")  # any punctuation but \< and \>, which are word boundaries
_LITERAL = re.compile(r"[^\\.+*?()|\[\]{}^$]", re.DOTALL)


def of_regex(pattern: str, flags: str = "") -> Pieces | None:
    """The pieces that a text must hold for the expression to match anywhere in it."""
    if len(pattern) > LONGEST_PATTERN:
        return None
    inline = _FLAGS.match(pattern)
    flags += inline[1] if inline else ""
    position = inline.end() if inline else 0
    if not set(flags) <= set("imsU") or _OTHER_FLAGS.search(pattern, position):
        return None
    found = _Collector("i" in flags)
    if "m" not in flags and pattern.startswith("^", position) and not _QUANTIFIER.match(pattern, position + 1):
        position += 1
    else:
        found.gap()
    while position < len(pattern):
        if position == len(pattern) - 1 and pattern[position] == "$" and "m" not in flags:
            return found.done()
        letter = ""
        if literal := _ESCAPED.match(pattern, position) or _LITERAL.match(pattern, position):
            letter, position = literal[0][-1], literal.end()
        else:
            end = _end_of_other(pattern, position)
            if end is None:
                return None
            position = end
        quantifiers = []
        while quantifier := _QUANTIFIER.match(pattern, position):
            quantifiers.append(quantifier[1])
            position = quantifier.end()
        if letter and not any(map(_OPTIONAL.match, quantifiers)):
            found.letter(letter)
        if quantifiers or not letter:
            found.gap()
    found.gap()
    return found.done()


def _end_of_other(pattern: str, position: int) -> int | None:
    """The end of a class, or of a group with its content."""
    if pattern[position] != "(":
        other = _ANYTHING.match(pattern, position) or _CLASS.match(pattern, position)
        return None if other is None else other.end()
    depth = 0
    while position < len(pattern):
        if pattern[position] in "()":
            depth += 1 if pattern[position] == "(" else -1
            position += 1
            if depth == 0:
                return position
        elif pattern[position] == "[":
            inner = _CLASS.match(pattern, position)
            if inner is None:
                return None
            position = inner.end()
        else:
            position += 2 if pattern[position] == "\\" else 1
    return None
