"""What conditions on a text column ask of its words, or of its trigrams.

A text that contains a literal contains the words of the literal in sequence. The first may be the end of a longer word
and the last the beginning of one, unless the literal has another character there than a letter.

>>> [str(run) for run in wanted(Like("t", ("airy co",)), WORDS)[0]]
['*airy co*']
>>> [str(run) for run in wanted(Like("t", ("Dairy Cow, ", "milk"), starts=True, ends=True), WORDS)[0]]
['dairy cow', '*milk']
>>> [str(run) for run in wanted(Like("t", ("牛乳を飲む",)), TRIGRAMS)[0]]
['牛乳を 乳を飲 を飲む']
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.indexes.base import Condition
from needlepoint.indexes.text.words import folded, folds_alike, lettered
from needlepoint.predicate import Compare, In, Like, StartsWith


@dataclass(frozen=True, slots=True)
class WordPattern:
    """A word or, if it is open, the beginning, end or middle of one."""

    letters: str
    open_left: bool = False
    open_right: bool = False

    @property
    def exact(self) -> bool:
        return not (self.open_left or self.open_right)

    def __str__(self) -> str:
        return f"{'*' if self.open_left else ''}{self.letters}{'*' if self.open_right else ''}"


@dataclass(frozen=True, slots=True)
class WordSequence:
    """Words of one text, each directly after the one before, or with `apart` anywhere."""

    words: tuple[WordPattern, ...]
    apart: bool = False

    def __str__(self) -> str:
        return " ".join(map(str, self.words))


WordSequences = tuple[WordSequence, ...]
"""The text contains all of them."""


@dataclass(frozen=True, slots=True)
class LiteralPart:
    """A literal that the text contains, at its beginning if it `starts`, at its end if it `ends`."""

    text: str
    starts: bool = False
    ends: bool = False


Tokenizer = Callable[[LiteralPart], WordSequence | None]
Certain = Callable[[str], bool] | None


def _words(piece: LiteralPart) -> WordSequence | None:
    letters = str(lettered(pa.array([piece.text]))[0].as_py())
    found = [WordPattern(word) for word in letters.split(" ") if word]
    if not found:
        return None
    open_left = not piece.starts and letters[0] != " "
    open_right = not piece.ends and letters[-1] != " "
    found[0] = WordPattern(found[0].letters, open_left, open_right and len(found) == 1)
    if len(found) > 1:
        found[-1] = WordPattern(found[-1].letters, False, open_right)
    return WordSequence(tuple(found))


def padded(texts: pa.Array) -> pa.Array:
    """What trigrams are made of: two spaces at the end, so that a trigram begins with each character of the text.

    Characters that JSON would escape are spaces, for texts and for patterns.
    """
    plain = pc.replace_substring_regex(folded(texts), r'[\x00-\x1f"\\]', " ")
    return pc.binary_join_element_wise(plain, pa.scalar("  ", plain.type), pa.scalar("", plain.type))


def _trigrams(piece: LiteralPart) -> WordSequence | None:
    if not piece.text:
        return None
    letters: str = padded(pa.array([piece.text]))[0].as_py()
    if not piece.ends:
        letters = letters[:-2]
    if len(letters) < 3:
        return WordSequence((WordPattern(letters, open_right=True),))
    return WordSequence(
        tuple(dict.fromkeys(WordPattern(letters[at : at + 3]) for at in range(len(letters) - 2))), apart=True
    )


WORDS: Tokenizer = _words
TRIGRAMS: Tokenizer = _trigrams


@functools.lru_cache(maxsize=256)  # the same for each file of a query
def wanted(condition: Condition, tokenizer: Tokenizer, certain: Certain = None) -> list[WordSequences] | None:
    """Texts for which the condition is TRUE contain all sequences of at least one of these. None: any text can match.

    Characters for which `certain` is false are not searched; by default all are certain.
    """
    match condition:
        case Like(_, pieces, starts, ends, fold):
            last = len(pieces) - 1
            asked = [LiteralPart(text, starts and at == 0, ends and at == last) for at, text in enumerate(pieces)]
            options = [_certain(asked, [certain, folds_alike if fold else None])]
        case Compare(_, "=", bytes(value)):
            options = [_certain(_whole(value), [certain])]
        case In(_, values) if all(isinstance(value, bytes) for value in values):
            options = [_certain(_whole(value), [certain]) for value in values if isinstance(value, bytes)]
        case StartsWith(_, prefix):
            # A prefix may end within a character.
            options = [_certain([LiteralPart(prefix.decode(errors="ignore"), starts=True)], [certain])]
        case _:
            return None
    found = [tuple(run for piece in pieces if (run := tokenizer(piece)) is not None) for pieces in options]
    return found if all(found) else None


def _whole(value: bytes) -> list[LiteralPart]:
    try:
        return [LiteralPart(value.decode(), starts=True, ends=True)]
    except UnicodeDecodeError:
        return []


def _certain(pieces: Sequence[LiteralPart], tests: Sequence[Certain]) -> list[LiteralPart]:
    """The literals, split at the characters for which a test is false."""
    sure = [test for test in tests if test is not None]
    if not sure:
        return list(pieces)
    found = []
    for piece in pieces:
        kept = "".join(letter if all(test(letter) for test in sure) else "\0" for letter in piece.text)
        parts = kept.split("\0")
        # A literal may contain NUL itself: then it is only split more often.
        for at, part in enumerate(parts):
            if part:
                found.append(LiteralPart(part, piece.starts and at == 0, piece.ends and at == len(parts) - 1))
    return found
