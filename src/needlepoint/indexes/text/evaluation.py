"""Evaluate text queries on texts, without an index: which texts match, and how well.

This defines `text_match` and `score`; an index only makes them faster. Scores are BM25 with the usual parameters, over
all texts of a table:

    score = Σ  idf · tf · (k1 + 1) / (tf + k1 · (1 - b + b · words / average words))
    idf   = ln(1 + (texts - df + ½) / (df + ½))         k1 = 1.2    b = 0.75

summed over the query's terms. tf is how often a term occurs in the text, df in how many texts it does. All words that
fit `dair*` or `dairy~1` are one term. A text that is NULL or has none of them scores 0.

>>> from needlepoint.indexes.text.query_language import parse
>>> texts = pa.array(["Dairy cow", "A dairy: goats, and a cow", "Ice cream", None])
>>> evaluate(parse('"dairy cow" OR goat*'), texts).to_pylist()
[True, True, False, None]
>>> query = parse("cow goat*")
>>> bm25(query, texts, TextStatistics.of(texts, terms(query))).round(2).tolist()
[0.56, 1.09, 0.0, 0.0]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.indexes.text.query_language import (
    AllOf,
    AnyOf,
    Fuzzy,
    Negation,
    Phrase,
    Prefix,
    Query,
    Term,
    Word,
    terms,
)
from needlepoint.indexes.text.words import folded, words

K1, B = 1.2, 0.75

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TextStatistics:
    """Of many texts: how many there are, NULL not counted; their words, each as often as it occurs; and in how many
    texts each term occurs. Those of a table are the sum of its files'."""

    texts: int
    words: int
    frequencies: Mapping[Term, int]

    @classmethod
    def of(cls, texts: pa.Array | pa.ChunkedArray, wanted: Iterable[Term]) -> TextStatistics:
        taken = _TokenizedTexts(_plain(texts))
        found = {term: int(np.count_nonzero(taken.rows_with(taken.places(term)))) for term in wanted}
        return cls(len(texts) - texts.null_count, len(taken.ids), found)

    def __add__(self, other: TextStatistics) -> TextStatistics:
        """Both know the same terms."""
        both = {term: count + other.frequencies[term] for term, count in self.frequencies.items()}
        return TextStatistics(self.texts + other.texts, self.words + other.words, both)


def evaluate(query: Query, texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Which texts match; NULL for NULL."""
    texts = _plain(texts)
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    possible = _possible(query, folded(texts))
    found = np.zeros(len(texts), np.bool_)
    if possible is None:
        found = _matching(query, _TokenizedTexts(texts))
    elif possible.any():  # tokenizing costs most, and few texts have the letters
        found[possible] = _matching(query, _TokenizedTexts(texts.filter(pa.array(possible))))
    return pa.array(found, mask=~valid)


def bm25(query: Query, texts: pa.Array | pa.ChunkedArray, statistics: TextStatistics) -> npt.NDArray[np.float64]:
    taken = _TokenizedTexts(_plain(texts))
    scores = np.zeros(len(texts))
    for term in terms(query):
        times = np.bincount(taken.owners[taken.places(term)], minlength=len(texts))
        scores += term_scores(statistics, term, times, taken.lengths)
    return scores


def term_scores(statistics: TextStatistics, term: Term, times: Places, lengths: Places) -> npt.NDArray[np.float64]:
    """What a term adds to the scores of texts that have it so many times among so many words. The same numbers always
    make the same score, to the last bit."""
    average = statistics.words / max(statistics.texts, 1)
    length = K1 * (1 - B + B * lengths / max(average, 1e-9))
    frequency = statistics.frequencies[term]
    idf = np.log1p((statistics.texts - frequency + 0.5) / (frequency + 0.5))
    return np.where(times > 0, idf * times * (K1 + 1) / np.maximum(times + length, 1e-9), 0.0)


def _plain(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return texts if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type) else texts.cast(pa.string())


class _TokenizedTexts:
    """The words of texts, one after the other, as numbers, and the text of each."""

    def __init__(self, texts: pa.Array) -> None:
        lists = words(texts)
        flat = lists.flatten().dictionary_encode()
        self.count = len(texts)
        self.ids: Places = flat.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self.lengths: Places = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        self._distinct: pa.Array = flat.dictionary

    @cached_property
    def owners(self) -> Places:
        return np.repeat(np.arange(self.count), self.lengths)

    def places(self, term: Term) -> Places:
        """The positions, among all words, of those that match."""
        fits = self._fitting(term)
        chosen = np.flatnonzero(fits)
        if len(chosen) == 0:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.ids == chosen[0] if len(chosen) == 1 else fits[self.ids])

    def _fitting(self, term: Term) -> Mask:
        """Which of the distinct words match."""
        match term:
            case Word(text):
                found = pc.equal(self._distinct, text)
            case Prefix(text):
                found = pc.starts_with(self._distinct, text)
            case Fuzzy(text, distance):
                return near(self._distinct, text, distance)
        mask: Mask = found.to_numpy(zero_copy_only=False)
        return mask

    def rows_with(self, places: Places) -> Mask:
        found = np.zeros(self.count, np.bool_)
        found[self.owners[places]] = True
        return found

    def phrase(self, phrase: Phrase) -> Mask:
        """From each position of the first word, the next of the second, and so on: the closest match from there."""
        starts = self.places(Word(phrase.words[0]))
        ends = starts
        for word in phrase.words[1:]:
            places = self.places(Word(word))
            following = np.searchsorted(places, ends, "right")
            reached = following < len(places)
            starts, ends = starts[reached], places[following[reached]]
        near_enough = ends - starts < len(phrase.words) + phrase.slop
        within = near_enough & (self.owners[starts] == self.owners[ends])
        return self.rows_with(starts[within])


def _matching(query: Query, taken: _TokenizedTexts) -> Mask:
    match query:
        case AllOf(parts):
            return reduce(np.logical_and, (_matching(part, taken) for part in parts))
        case AnyOf(parts):
            return reduce(np.logical_or, (_matching(part, taken) for part in parts))
        case Negation(part):
            return ~_matching(part, taken)
        case Phrase():
            return taken.phrase(query)
        case term:
            return taken.rows_with(taken.places(term))


def _possible(query: Query, texts: pa.Array) -> Mask | None:
    """Texts that contain the letters of the query, anywhere; None is all. The texts are folded."""
    match query:
        case AllOf(parts):
            known = [mask for part in parts if (mask := _possible(part, texts)) is not None]
            return reduce(np.logical_and, known) if known else None
        case AnyOf(parts):
            found = [_possible(part, texts) for part in parts]
            known = [mask for mask in found if mask is not None]
            return reduce(np.logical_or, known) if len(known) == len(found) else None
        case Word(text) | Prefix(text):
            return _holding(texts, text)
        case Phrase(several):
            return reduce(np.logical_and, (_holding(texts, text) for text in several))
    return None


def _holding(texts: pa.Array, text: str) -> Mask:
    mask: Mask = pc.fill_null(pc.match_substring(texts, text), False).to_numpy(zero_copy_only=False)
    return mask


def near(distinct: pa.Array, text: str, distance: int) -> Mask:
    """Which words are at most so many edits away: letters added, left out or changed, neighbours exchanged, no letter
    edited twice (optimal string alignment).

    >>> near(pa.array(["dairy", "diary", "daily", "dary", "dairys", "hairdo"]), "dairy", 1).tolist()
    [True, True, True, True, True, False]
    """
    lengths = pc.utf8_length(distinct).to_numpy(zero_copy_only=False).astype(np.int64)
    found: Mask = np.abs(lengths - len(text)) <= distance
    if found.any():
        candidates, lengths = distinct.filter(pa.array(found)).to_pylist(), lengths[found]
        found[found] = _edits(candidates, lengths, text) <= distance
    return found


def _edits(candidates: Sequence[str], lengths: Places, text: str) -> Places:
    """The table of edit distances, filled for all candidates at once: one row of it for each letter of the text."""
    widest = int(lengths.max())
    if widest == 0:
        return np.full(len(candidates), len(text), np.int64)
    letters = np.array(candidates, f"U{widest}").view(np.uint32).reshape(len(candidates), widest).T
    wanted = np.array([text], f"U{len(text)}").view(np.uint32)
    before = row = np.repeat(np.arange(widest + 1)[:, None], len(candidates), axis=1)
    for i, letter in enumerate(wanted):
        earlier, before = before, row
        row = np.empty_like(before)
        row[0] = i + 1
        for j in range(widest):
            least = np.minimum(before[j + 1] + 1, row[j] + 1)
            least = np.minimum(least, before[j] + (letters[j] != letter))
            if i and j:
                exchanged = (letters[j] == wanted[i - 1]) & (letters[j - 1] == letter)
                least = np.where(exchanged, np.minimum(least, earlier[j - 1] + 1), least)
            row[j + 1] = least
    distances: Places = row[lengths, np.arange(len(candidates))]
    return distances
