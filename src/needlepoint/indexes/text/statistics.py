"""Statistics for scores, from a text index instead of the texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from needlepoint.access import RowNumbers
from needlepoint.indexes.text.evaluation import TextStatistics
from needlepoint.indexes.text.query_language import Fuzzy, Prefix, Term, Word
from needlepoint.indexes.text.ranking import Postings


class WordIndex(Protocol):
    """An index of the words of one file; `odd` are rows it does not describe."""

    @property
    def odd(self) -> RowNumbers: ...

    @property
    def texts(self) -> int:
        """Rows that are not NULL."""
        ...

    @property
    def total_words(self) -> int:
        """Each as often as it occurs."""
        ...

    def document_frequency(self, word: str) -> int | None:
        """In how many rows a word occurs; None when it is not known."""
        ...

    def rows_with_prefix(self, prefix: str) -> RowNumbers | None:
        """Rows that have a word that begins so, and odd ones; None when it is not known."""
        ...

    def postings(self, term: Term) -> Postings | None:
        """Rows that have the term, and how often; None when it is not known."""
        ...


def statistics(index: WordIndex, wanted: Sequence[Term]) -> TextStatistics | None:
    """The statistics of the file; None when its texts must be read."""
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
            case Fuzzy():  # tantivy may find too many rows
                postings = index.postings(term)
                count = None if postings is None else len(postings.rows)
        if count is None:
            return None
        found[term] = count
    return TextStatistics(index.texts, index.total_words, found)
