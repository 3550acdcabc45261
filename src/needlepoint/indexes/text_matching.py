"""From a text query (text_query.py) to what is sought in an index. What only excludes texts is passed over: rows that
are found too many are evaluated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from needlepoint.indexes.text_patterns import Run
from needlepoint.indexes.text_patterns import Word as Wanted
from needlepoint.indexes.text_query import AllOf, AnyOf, Fuzzy, Not, Phrase, Prefix, Query, Word
from needlepoint.indexes.text_search import PER_QUERY, Search, Sought

PER_WORD_NEAR = 20e-9  # tantivy walks the words with an automaton

Inside = Callable[[str], Run | None]
"""For indexes in which words are not found as words: what a text has that has these letters side by side."""


def matching(query: Query, search: Search, inside: Inside | None) -> Sought | None:
    """None: any text can match. With `inside`, words are sought as letters of texts."""
    match query:
        case Word(text):
            run = Run((Wanted(text),)) if inside is None else inside(text)
            return None if run is None else search.one(run)
        case Prefix(text):
            run = Run((Wanted(text, open_right=True),)) if inside is None else inside(text)
            return None if run is None else search.one(run)
        case Fuzzy(text, distance):
            return None if inside is not None else fuzzy(text, distance, search)
        case Phrase(words, 0) if inside is None:
            return search.one(Run(tuple(map(Wanted, words))))
        case Phrase(words):
            return matching(AllOf(tuple(map(Word, words))), search, inside)
        case AnyOf(parts):
            found = [matching(part, search, inside) for part in parts]
            known = [each for each in found if each is not None]
            return search.either(known) if len(known) == len(found) else None
        case AllOf(parts):
            return _all_of(parts, search, inside)
        case Not(Not(part)):
            return matching(part, search, inside)
    return None


def _all_of(parts: Sequence[Query], search: Search, inside: Inside | None) -> Sought | None:
    found = [matching(part, search, inside) for part in parts]
    known = [each for each in found if each is not None]
    return search.both(known) if known else None


def fuzzy(text: str, distance: int, search: Search) -> Sought:
    def query(tantivy: Any, schema: Any) -> Any:
        return tantivy.Query.fuzzy_term_query(
            schema, search.field, text, distance=distance, transposition_cost_one=True
        )

    exactly = search.vocabulary.rows[search.vocabulary.matching(Wanted(text))].sum()
    expected = min(search.rows, 2.0 * float(exactly) + search.rows / 1000)
    return Sought(query, expected, search.rows, PER_QUERY + len(search.vocabulary) * PER_WORD_NEAR)
