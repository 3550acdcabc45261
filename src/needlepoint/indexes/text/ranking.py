"""The rows with the highest scores, from postings: no text is read.

What a term adds to a score depends only on how often a text has it and how many words the text has. Texts with the same
two numbers are one class of a term, and there are few classes: the titles of a million products have about thirty for a
frequent word. So all classes get a score, and then those rows are looked at whose class can reach the best:

    cow     3 words, once   1.9     4,000 rows
    cow     4 words, once   1.7     9,000 rows      never looked at, if ten rows of the first class have "goat" too

With several terms, the most that the others can add to a class is known for its number of words. Classes are taken in
the order of these bounds until no other can reach the last of the rows that are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from needlepoint.access import RowNumbers
from needlepoint.indexes.text.evaluation import TextStatistics, term_scores
from needlepoint.indexes.text.query_language import Term

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Rows of how many classes are looked at together, and how many times as many next.
FIRST_ROWS, TIMES_MORE = 1024, 2
# A bound is a sum in another order than the score: it may be less by rounding.
SLACK = 1 + 1e-9
# The scores of all pairs of two small numbers are computed once.
LARGEST_TABLE = 4096
FEW_SCORES = 8
# A term that more rows have than one of so many is also kept as an array of all rows.
DENSE = 32


@dataclass(frozen=True, slots=True)
class Postings:
    """The rows that have a term, ascending; how often each has it, and how many words it has."""

    rows: RowNumbers
    times: Numbers
    lengths: Numbers


class _Scored(NamedTuple):
    """The scores of the classes of a term, and the classes with the highest first, by counts of texts and words."""

    counts: tuple[int, int, int]
    scores: Floats
    order: Numbers


class RankedTerm:
    """The postings of a term over all files of a table, by class. Rows are numbered through all files."""

    def __init__(self, postings: Postings, total: int) -> None:
        self._total = total
        self._rows, self._times = postings.rows, postings.times
        widest = int(postings.lengths.max(initial=0)) + 1
        codes = postings.times * widest + postings.lengths
        highest = int(codes.max(initial=0))
        # Numpy sorts small numbers by their digits.
        order = np.argsort(codes.astype(np.uint16) if highest < 1 << 16 else codes, kind="stable")
        codes = codes[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        self.rows: RowNumbers = postings.rows[order]
        self.edges: Numbers = np.append(starts, len(codes))
        self.times, self.lengths = np.divmod(codes[starts], widest)
        self._scored: _Scored | None = None

    @cached_property
    def most_times(self) -> int:
        return int(self.times.max(initial=0))

    def scored(self, statistics: TextStatistics, term: Term) -> _Scored:
        """The scores of its classes, kept until the statistics change."""
        counts = (statistics.texts, statistics.words, statistics.frequencies[term])
        held = self._scored
        if held is None or held.counts != counts:
            scores = term_scores(statistics, term, self.times, self.lengths)
            held = self._scored = _Scored(counts, scores, np.argsort(-scores, kind="stable"))
        return held

    @property
    def memory(self) -> int:
        """About how many bytes it holds."""
        dense = self._total * 4 if self._is_dense else 0
        return 1000 + 3 * self.rows.nbytes + 3 * self.edges.nbytes + dense

    @property
    def _is_dense(self) -> bool:
        return len(self._rows) * DENSE > self._total

    @cached_property
    def _all_times(self) -> npt.NDArray[Any]:
        every = np.zeros(self._total, np.min_scalar_type(self.most_times))
        every[self._rows] = self._times
        return every

    def times_in(self, rows: RowNumbers) -> npt.NDArray[Any]:
        """How often each of these rows has the term."""
        if self._is_dense:
            return self._all_times[rows]
        places = np.minimum(np.searchsorted(self._rows, rows), max(len(self._rows) - 1, 0))
        return np.where(self._rows[places] == rows, self._times[places], 0) if len(self._rows) else 0 * rows

    def most_at(self, scores: Floats, lengths: Numbers) -> Floats:
        """The highest of the scores of its classes, by number of words: 0 where no row has so many."""
        if not len(self.lengths):
            return np.zeros(len(lengths))
        order = np.argsort(self.lengths, kind="stable")
        known = self.lengths[order]
        firsts = np.flatnonzero(np.diff(known, prepend=-1))
        most, known = np.maximum.reduceat(scores[order], firsts), known[firsts]
        places = np.minimum(np.searchsorted(known, lengths), len(known) - 1)
        return np.where(known[places] == lengths, most[places], 0.0)


@dataclass(frozen=True, slots=True)
class BestRows:
    """Rows with the highest scores, and their scores, in any order. No other row has a higher score than the least of
    these, `floor`; with ties, no other has this one."""

    rows: RowNumbers
    scores: Floats

    @property
    def floor(self) -> float:
        return float(self.scores.min(initial=np.inf))


def best_rows(
    terms: Sequence[tuple[Term, RankedTerm]],
    statistics: TextStatistics,
    wanted: int,
    ties: bool,
    allowed: Callable[[RowNumbers], npt.NDArray[np.bool_]] | None = None,
) -> BestRows:
    """At least `wanted` of the rows with the highest scores above 0, as far as there are so many; with `ties`, all
    that have the score of the last. Only rows that are `allowed` count."""
    scored = [each.scored(statistics, term).scores for term, each in terms]
    if len(terms) == 1 and allowed is None and scored[0].min(initial=1.0) > 0:
        return _best_of_one(terms[0][1], terms[0][1].scored(statistics, terms[0][0]), wanted, ties)
    first = sorted(range(len(terms)), key=lambda at: -scored[at].max(initial=0.0))
    search = _Search(terms, statistics, wanted, ties, allowed)
    for number, at in enumerate(first):
        bounds = scored[at]
        # A row that has an earlier term was looked at with that, or cannot reach the best.
        for other in first[number + 1 :]:
            bounds = bounds + terms[other][1].most_at(scored[other], terms[at][1].lengths)
        search.add(at, scored[at], bounds * SLACK if len(terms) > 1 else bounds)
    return BestRows(search.rows, search.scores)


def _best_of_one(term: RankedTerm, scored: _Scored, wanted: int, ties: bool) -> BestRows:
    """The best rows of a single term: those of its first classes."""
    order, scores = scored.order, scored.scores[scored.order]
    if not len(order):
        return BestRows(np.zeros(0, np.int64), np.zeros(0))
    counts = np.diff(term.edges)[order]
    last = min(int(np.searchsorted(counts.cumsum(), wanted)), len(order) - 1)
    first = int(np.searchsorted(-scores, -scores[last]))
    stop = int(np.searchsorted(-scores, -scores[last], "right")) if ties else last + 1
    parts = [term.rows[term.edges[at] : term.edges[at + 1]] for at in order[:stop].tolist()]
    above = int(counts[:first].sum())
    if not ties and above + int(counts[first:stop].sum()) > wanted:
        equal = np.concatenate(parts[first:])
        parts[first:] = [equal[_closest(equal, wanted - above)]]
    rows = np.concatenate(parts)
    found = np.full(len(rows), scores[last])
    found[:above] = np.repeat(scores[:first], counts[:first])
    return BestRows(rows, found)


class _Search:
    def __init__(
        self,
        terms: Sequence[tuple[Term, RankedTerm]],
        statistics: TextStatistics,
        wanted: int,
        ties: bool,
        allowed: Callable[[RowNumbers], npt.NDArray[np.bool_]] | None,
    ) -> None:
        self._terms, self._statistics, self._wanted, self._ties = terms, statistics, wanted, ties
        self._allowed = allowed
        self.rows: RowNumbers = np.zeros(0, np.int64)
        self.scores: Floats = np.zeros(0)
        self._floor = 0.0  # a row with a lower score is not one of the best

    def add(self, at: int, scores: Floats, bounds: Floats) -> None:
        """Look at the rows of a term's classes with these scores and bounds, those with the highest bounds first."""
        term = self._terms[at][1]
        order = np.argsort(-bounds, kind="stable")
        bounds, ends = bounds[order], np.cumsum(np.diff(term.edges)[order])
        first, some = 0, max(FIRST_ROWS, self._wanted)
        while first < len(order) and self._can_count(float(bounds[first])):
            before = int(ends[first - 1]) if first else 0
            stop = int(np.searchsorted(ends, before + some)) + 1
            stop = first + max(1, int(np.count_nonzero(bounds[first:stop] >= self._floor)))
            self._look_at(at, order[first:stop], scores)
            first, some = stop, some * TIMES_MORE

    def _can_count(self, bound: float) -> bool:
        return bound > self._floor or (bound == self._floor > 0 and self._ties)

    def _look_at(self, at: int, classes: Numbers, scores: Floats) -> None:
        term, others = self._terms[at][1], [ranked for _, ranked in self._terms]
        counts = term.edges[classes + 1] - term.edges[classes]
        slices = zip(term.edges[classes].tolist(), term.edges[classes + 1].tolist(), strict=True)
        rows = np.concatenate([term.rows[start:stop] for start, stop in slices])
        owners = np.repeat(classes, counts)
        times = [ranked.times_in(rows) if ranked is not term else None for ranked in others]
        with_others = np.zeros(len(rows), np.bool_)
        for each in times:
            with_others |= each is not None and each > 0
        chosen = np.flatnonzero(with_others)
        self._score(
            at, rows[chosen], owners[chosen], [None if each is None else each[chosen] for each in times], scores
        )
        # The others have the scores of their classes: most of them, which are often below the floor by now.
        reaching = scores[classes] >= self._floor
        if reaching.any():
            kept = np.repeat(reaching, counts) & ~with_others
            self._score(at, rows[kept], owners[kept], [None], scores)

    def _score(
        self, at: int, rows: RowNumbers, owners: Numbers, times: Sequence[npt.NDArray[Any] | None], scores: Floats
    ) -> None:
        """Keep the best of these rows of a term's classes, given how often each has the other terms; None is the term
        itself."""
        if self._allowed is not None:
            kept = self._allowed(rows)
            rows, owners = rows[kept], owners[kept]
            times = [None if each is None else each[kept] for each in times]
        if not len(rows):
            return
        # Scores are summed in the order of the query's terms, as bm25 does.
        found, lengths = np.zeros(len(rows)), self._terms[at][1].lengths[owners]
        for number, often in enumerate(times):
            found += scores[owners] if often is None else self._scores_of(number, often, lengths)
        self._keep(*self._best(rows, found))

    def _scores_of(self, number: int, times: npt.NDArray[Any], lengths: Numbers) -> Floats:
        """What a term adds to the scores of rows."""
        term, ranked = self._terms[number]
        most, longest = ranked.most_times + 1, int(lengths.max(initial=0)) + 1
        if most * longest > min(LARGEST_TABLE, len(times)):
            return term_scores(self._statistics, term, times, lengths)
        grid = np.divmod(np.arange(most * longest), longest)
        found: Floats = term_scores(self._statistics, term, *grid)[times.astype(np.int64) * longest + lengths]
        return found

    def _keep(self, rows: RowNumbers, scores: Floats) -> None:
        """Keep the best of these and of those so far."""
        rows, scores = np.concatenate((self.rows, rows)), np.concatenate((self.scores, scores))
        if len(self._terms) > 1:  # a row that has two terms may come twice
            rows, places = np.unique(rows, return_index=True)
            scores = scores[places]
        self.rows, self.scores = self._best(rows, scores)
        if len(self.rows) >= self._wanted:
            self._floor = float(self.scores.min())

    def _best(self, rows: RowNumbers, scores: Floats) -> tuple[RowNumbers, Floats]:
        """The best of different rows."""
        if self._floor > 0:
            kept = scores >= self._floor
            rows, scores = rows[kept], scores[kept]
        if len(rows) <= self._wanted:
            return rows, scores
        floor = _highest(scores, self._wanted)
        if self._ties:
            kept = scores >= floor
            return rows[kept], scores[kept]
        above, equal = np.flatnonzero(scores > floor), np.flatnonzero(scores == floor)
        chosen = np.concatenate((above, equal[_closest(rows[equal], self._wanted - len(above))]))
        return rows[chosen], scores[chosen]


def _highest(scores: Floats, wanted: int) -> float:
    """The score of the last of so many with the highest scores.

    >>> _highest(np.array([3.0, 1.0, 3.0, 2.0, 2.0]), 4)
    2.0
    """
    for _ in range(FEW_SCORES):  # often there are few different ones, which is quicker than a partition
        highest = float(scores.max())
        equal = int(np.count_nonzero(scores == highest))
        if equal >= wanted:
            return highest
        scores, wanted = scores[scores < highest], wanted - equal
    return float(np.partition(scores, len(scores) - wanted)[len(scores) - wanted])


def _closest(rows: RowNumbers, wanted: int) -> Numbers:
    """The places of so many rows that lie closest together: they are in few pages.

    >>> _closest(np.array([70, 5, 40, 41, 90]), 3).tolist()
    [2, 3, 0]
    """
    order = np.argsort(rows, kind="stable")
    inner = rows[order]
    first = int(np.argmin(inner[wanted - 1 :] - inner[: len(inner) - wanted + 1]))
    return order[first : first + wanted]
