"""Text queries asked of an index of words: rows of a file outside of which nothing matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np

from needlepoint.access import RowNumbers
from needlepoint.indexes.text_evaluation import Statistics
from needlepoint.indexes.text_query import AllOf, AnyOf, Fuzzy, Not, Phrase, Prefix, Query, Term, Word


class WordIndex(Protocol):
    """Rows ascend and are never too few. None is any row.

    `odd` are rows the index does not describe, which are in every answer. Apart from them `rows_with` and
    `rows_with_prefix` name exactly the rows that have such a word; the others may name too many.
    """

    @property
    def odd(self) -> RowNumbers: ...

    def rows_with(self, word: str) -> RowNumbers | None: ...

    def rows_with_phrase(self, words: Sequence[str]) -> RowNumbers | None: ...

    def rows_with_prefix(self, prefix: str) -> RowNumbers | None: ...

    def rows_with_fuzzy(self, word: str, distance: int) -> RowNumbers | None: ...

    @property
    def texts(self) -> int:
        """Rows that are not NULL."""
        ...

    @property
    def total_words(self) -> int:
        """Each as often as it occurs."""
        ...

    def document_frequency(self, word: str) -> int | None:
        """In how many rows a word occurs."""
        ...


@dataclass(frozen=True, slots=True)
class _Found:
    """`exact` says that, apart from odd rows, none is named that does not match."""

    rows: RowNumbers | None
    exact: bool = False


def candidates(query: Query, index: WordIndex) -> RowNumbers | None:
    """Rows outside of which the query does not match; None when it cannot be told, as of what only excludes words."""
    return _find(query, index).rows


def _find(query: Query, index: WordIndex) -> _Found:
    match query:
        case Word(text):
            return _Found(index.rows_with(text), exact=True)
        case Prefix(text):
            return _Found(index.rows_with_prefix(text), exact=True)
        case Fuzzy(text, distance):
            return _Found(index.rows_with_fuzzy(text, distance))
        case Phrase(words, 0):
            return _Found(index.rows_with_phrase(words))
        case Phrase(words):
            return _Found(_find(AllOf(tuple(map(Word, words))), index).rows)
        case AnyOf(parts):
            found = [_find(part, index) for part in parts]
            known = [each.rows for each in found if each.rows is not None]
            if len(known) < len(found):
                return _Found(None)
            return _Found(reduce(np.union1d, known), all(each.exact for each in found))
        case AllOf(parts):
            return _all(parts, index)
        case Not(Not(part)):
            return _find(part, index)
    return _Found(None)


def _all(parts: Sequence[Query], index: WordIndex) -> _Found:
    found = [_find(part, index) for part in parts if not isinstance(part, Not)]
    known = [each.rows for each in found if each.rows is not None]
    if not known:
        return _Found(None)
    rows = reduce(lambda left, right: np.intersect1d(left, right, assume_unique=True), sorted(known, key=len))
    exact = len(known) == len(found) and all(each.exact for each in found)
    for part in parts:
        if isinstance(part, Not):
            without = _find(part.part, index)
            if without.rows is None or not without.exact:
                exact = False
            else:
                surely = np.setdiff1d(without.rows, index.odd, assume_unique=True)
                rows = np.setdiff1d(rows, surely, assume_unique=True)
    return _Found(rows, exact)


def statistics(index: WordIndex, wanted: Sequence[Term]) -> Statistics | None:
    """Those of the file; None when its texts must be read for them."""
    if len(index.odd):
        return None
    found: dict[Term, int] = {}
    for term in wanted:
        match term:
            case Word(text):
                count = index.document_frequency(text)
            case Prefix(text):
                rows = index.rows_with_prefix(text)
                count = None if rows is None else len(rows)
            case Fuzzy():
                count = None  # of these an index may name too many
        if count is None:
            return None
        found[term] = count
    return Statistics(index.texts, index.total_words, found)
