"""Turn sequences of words into a tantivy query with an estimated cost.

    *airy cow*                      a sequence of two words, open on both sides (patterns.py)
    {dairy, fairy} {cow, cows}      the words of this file that fit, and in how many rows each occurs
    "dairy cow" "fairy cow"         phrases of neighbours that occur at all (pairs.py)

All of this costs microseconds and reads no postings. It shows when nothing can be found, or too much.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.indexes.text import query_language
from needlepoint.indexes.text.pairs import PairTable
from needlepoint.indexes.text.patterns import WordPattern, WordSequence, WordSequences
from needlepoint.predicate import after

# Seconds, measured with a million titles.
PER_WORD_SEEN = 5e-9  # when words are compared with the inside or the end of one
PER_WORD_WANTED = 3e-6  # in a set of words
PER_QUERY = 30e-6  # each word or phrase that tantivy looks for
PER_POSTING = 8e-9
PER_PHRASE_POSTING = 50e-9  # of the rarest word
PER_ROW_OF_A_SET = 0.3e-9  # sets of words are bitmaps over all rows
PER_OPTION = 150e-6  # of IN: what comes before tantivy
PER_HIT = 0.25e-6
PER_ROW_READ = 20e-6  # reading a row that was found: about a page of each column
PER_ROW_OF_ALL = 150e-9  # reading all rows

LITTLE = 100e-6  # always worth spending to find fewer rows
FEW = 1000  # rows, where nothing is known beforehand
MOST_PHRASES = 16
MOST_COMBINATIONS = 256
MOST_TRIGRAMS = 8  # the rarest few narrow as well as all

Places = npt.NDArray[np.int64]


class Vocabulary:
    """The words of a file in byte order, and in how many rows each occurs."""

    def __init__(self, words: pa.LargeBinaryArray, rows: Places) -> None:
        self.words, self.rows = words, rows

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, place: int) -> str:
        return bytes(self.words[place].as_py()).decode()

    def _before(self, word: bytes) -> int:
        """How many words come before this one."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.words[middle].as_py() < word:
                low = middle + 1
            else:
                high = middle
        return low

    def matching(self, word: WordPattern) -> Places:
        """The positions of the words that match."""
        letters = word.letters.encode()
        if word.open_left:
            fits = pc.match_substring if word.open_right else pc.ends_with
            return np.flatnonzero(fits(self.words, pattern=letters).to_numpy(zero_copy_only=False))
        first = self._before(letters)
        if word.open_right:
            beyond = after(letters)
            return np.arange(first, len(self) if beyond is None else self._before(beyond))
        found = first < len(self) and self.words[first].as_py() == letters
        return np.arange(first, first + found)


@dataclass(frozen=True, slots=True)
class TantivyQuery:
    """A query that is not run yet: it finds about `expected` rows, never more than `most`, and takes about `seconds`.

    `query` makes it, given the module tantivy and a schema."""

    query: Callable[[Any, Any], Any]
    expected: float
    most: int
    seconds: float


NOWHERE = TantivyQuery(lambda tantivy, schema: tantivy.Query.empty_query(), 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class QueryPlanner:
    """Plans queries by what is known of a file before postings are read. `field` is the one in tantivy's schema."""

    field: str
    rows: int
    total_words: int
    vocabulary: Vocabulary
    pairs: PairTable

    def all_of(self, runs: Sequence[WordSequence]) -> TantivyQuery:
        """All sequences in one text. Words that are cheap to find come first; they may make the others unnecessary."""
        best, parts = math.inf, []
        for run in sorted(set(runs), key=lambda run: (sum(not word.exact for word in run.words), -len(str(run)))):
            found = self._run(run, best)
            if found is NOWHERE:
                return NOWHERE
            if found is not None:
                parts.append(found)
                best = min(best, found.expected)
        return self.both(parts)

    def any_of(self, options: Sequence[WordSequences]) -> TantivyQuery:
        found = self.either([self.all_of(runs) for runs in options])
        return replace(found, seconds=found.seconds + len(options) * PER_OPTION) if found.most else NOWHERE

    def one(self, run: WordSequence) -> TantivyQuery:
        found = self._run(run, math.inf)
        return NOWHERE if found is None else found

    def matching(self, query: query_language.Query) -> TantivyQuery | None:
        """Rows outside of which a query of `text_match` is not TRUE; None is any row."""
        match query:
            case query_language.Word(text):
                return self.one(WordSequence((WordPattern(text),)))
            case query_language.Prefix(text):
                return self.one(WordSequence((WordPattern(text, open_right=True),)))
            case query_language.Fuzzy():
                return self.fuzzy(query)
            case query_language.Phrase(words, 0):
                return self.one(WordSequence(tuple(map(WordPattern, words))))
            case query_language.Phrase(words):
                return self.both([self.one(WordSequence((WordPattern(word),))) for word in words])
            case query_language.AnyOf(parts):
                found = [self.matching(part) for part in parts]
                known = [each for each in found if each is not None]
                return self.either(known) if len(known) == len(found) else None
            case query_language.AllOf(parts):
                return self._all_but(parts)
            case query_language.Negation(query_language.Negation(part)):
                return self.matching(part)
        return None

    def _all_but(self, parts: Sequence[query_language.Query]) -> TantivyQuery | None:
        known = [each for part in parts if (each := self.matching(part)) is not None]
        if not known:
            return None
        found = self.both(known)
        # Only for single words and prefixes are the rows exactly those that have them.
        without = [
            each
            for part in parts
            if isinstance(part, query_language.Negation)
            and isinstance(part.part, query_language.Word | query_language.Prefix)
            if (each := self.matching(part.part)) is not None and each.most
            if each.seconds < max(found.expected * PER_ROW_READ, LITTLE)
        ]
        if not without or not found.most:
            return found

        def query(tantivy: Any, schema: Any) -> Any:
            never = [(tantivy.Occur.MustNot, each.query(tantivy, schema)) for each in without]
            return tantivy.Query.boolean_query([(tantivy.Occur.Must, found.query(tantivy, schema)), *never])

        return replace(found, query=query, seconds=found.seconds + sum(each.seconds for each in without))

    def fuzzy(self, term: query_language.Fuzzy) -> TantivyQuery:
        """Tantivy finds the words that are near; the estimate assumes that few rows have one."""

        def query(tantivy: Any, schema: Any) -> Any:
            make = tantivy.Query.fuzzy_term_query
            return make(schema, self.field, term.text, distance=term.distance, transposition_cost_one=True)

        seconds = PER_QUERY + len(self.vocabulary) * PER_WORD_SEEN
        return TantivyQuery(query, min(self.rows / 4, FEW), self.rows, seconds)

    def both(self, parts: Sequence[TantivyQuery]) -> TantivyQuery:
        """All of the parts, without those that cost more than reading the rows they could exclude."""
        if any(part is NOWHERE for part in parts):
            return NOWHERE
        first, *others = sorted(parts, key=lambda part: (part.expected, part.seconds))
        worth = max(first.expected * PER_ROW_READ, LITTLE)
        kept = [first, *(part for part in others if part.seconds < worth and part.expected < self.rows / 2)]
        if len(kept) == 1:
            return first
        by_chance = math.prod(part.expected / self.rows for part in kept[1:])
        return TantivyQuery(
            lambda tantivy, schema: _boolean(tantivy, schema, tantivy.Occur.Must, kept),
            first.expected * max(by_chance, 0.1),
            min(part.most for part in kept),
            sum(part.seconds for part in kept),
        )

    def either(self, parts: Sequence[TantivyQuery]) -> TantivyQuery:
        parts = [part for part in parts if part is not NOWHERE]
        if len(parts) <= 1:
            return parts[0] if parts else NOWHERE
        return TantivyQuery(
            lambda tantivy, schema: _boolean(tantivy, schema, tantivy.Occur.Should, parts),
            min(sum(part.expected for part in parts), self.rows),
            min(sum(part.most for part in parts), self.rows),
            sum(part.seconds for part in parts),
        )

    def _run(self, run: WordSequence, best: float) -> TantivyQuery | None:
        """Words that cost more to search than reading the `best` rows that are left are skipped. None: no word of the
        sequence is worth it."""
        sets: list[Places | None] = [None] * len(run.words)
        spent = 0.0
        for at, word in sorted(enumerate(run.words), key=lambda entry: (entry[1].open_left, entry[1].open_right)):
            if word.open_left:
                cost = len(self.vocabulary) * PER_WORD_SEEN
                if cost > best * PER_ROW_READ:
                    continue
                spent += cost
            places = self.vocabulary.matching(word)
            if len(places) == 0:
                return NOWHERE
            sets[at] = places
            best = min(best, float(self.vocabulary.rows[places].sum()))
        known = [each for each in sets if each is not None]
        if not known:
            return None
        if run.apart:
            rare = sorted(known, key=lambda each: int(self.vocabulary.rows[each].sum()))
            found = self.both([self._set(each) for each in rare[:MOST_TRIGRAMS]])
        else:
            found = self.both(self._side_by_side(sets))
        return found if found is NOWHERE else replace(found, seconds=found.seconds + spent)

    def _side_by_side(self, sets: Sequence[Places | None]) -> list[TantivyQuery]:
        """Phrases where words next to each other are known, else what is known of each word."""
        found: list[TantivyQuery] = []
        for known, group in itertools.groupby(sets, key=lambda each: each is not None):
            stretch = [each for each in group if each is not None]
            if not known:
                continue
            if (phrases := self._phrases(stretch)) is not None:
                found.append(phrases)
                continue
            # Too many combinations: a phrase of the words between, and the sets of the outer ones.
            for single, inner in itertools.groupby(stretch, key=lambda each: len(each) == 1):
                members = list(inner)
                phrase = self._phrases(members) if single else None
                found += [phrase] if phrase is not None else [self._set(each) for each in members]
        return found

    def _phrases(self, stretch: Sequence[Places]) -> TantivyQuery | None:
        """Each combination of words that can follow each other; None when there are too many."""
        if len(stretch) == 1:
            return self._set(stretch[0])
        if math.prod(len(each) for each in stretch) > MOST_COMBINATIONS:
            return None
        phrases = []
        for places in itertools.product(*(each.tolist() for each in stretch)):
            words = [self.vocabulary.at(place) for place in places]
            rows = self.vocabulary.rows[list(places)].tolist()
            if expected := self._expected(words, rows):
                phrases.append(self._phrase(words, expected, min(rows)))
        return self.either(phrases) if len(phrases) <= MOST_PHRASES else None

    def _expected(self, words: Sequence[str], rows: Sequence[int]) -> float:
        """About how many rows have these words side by side; each alone has so many `rows`. 0 is certain."""
        rarest, *others = sorted(rows)
        bounds = [self.pairs.at_most(left, right) for left, right in itertools.pairwise(words)]
        known = [bound for bound in bounds if bound is not None]
        if known:
            return min([rarest, *known])
        # Ten times as often as by chance, and at least a tenth of the rarer: words that are searched together often
        # occur together.
        return min(rarest, rarest * (0.1 + 10 * others[0] / max(self.total_words, 1)))

    def _phrase(self, words: list[str], expected: float, rarest: int) -> TantivyQuery:
        return TantivyQuery(
            lambda tantivy, schema: tantivy.Query.phrase_query(schema, self.field, words),
            expected,
            rarest,
            PER_QUERY * len(words) + rarest * PER_PHRASE_POSTING,
        )

    def _set(self, places: Places) -> TantivyQuery:
        """Any of the words."""
        postings = int(self.vocabulary.rows[places].sum())
        most = min(postings, self.rows)
        if len(places) == 1:
            word = self.vocabulary.at(int(places[0]))
            return TantivyQuery(
                lambda tantivy, schema: tantivy.Query.term_query(schema, self.field, word, index_option="basic"),
                most,
                most,
                PER_QUERY + postings * PER_POSTING,
            )

        def query(tantivy: Any, schema: Any) -> Any:
            words = self.vocabulary.words.take(pa.array(places)).to_pylist()
            return tantivy.Query.term_set_query(schema, self.field, [word.decode() for word in words])

        bitmap = PER_QUERY + self.rows * PER_ROW_OF_A_SET
        return TantivyQuery(query, most, most, bitmap + len(places) * PER_WORD_WANTED + postings * PER_POSTING)


def _boolean(tantivy: Any, schema: Any, occur: Any, parts: Sequence[TantivyQuery]) -> Any:
    return tantivy.Query.boolean_query([(occur, part.query(tantivy, schema)) for part in parts])
