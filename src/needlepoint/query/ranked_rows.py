"""ORDER BY score(column, 'words') DESC with LIMIT, from text indexes.

    SELECT title FROM product ORDER BY score(title, 'dairy cow') DESC LIMIT 10

The postings of a text index have all that a score needs, so the rows with the ten highest scores are known before a
text is read. The query runs over these rows, with the condition that the score is at least the least of theirs: if its
result has ten rows, no other row belongs to it. Where other conditions leave fewer, it runs again with more rows, and
in the end over all. Files without an index are read whole; they are subject to the same condition.

If fewer rows have one of the words, others follow with a score of 0, in any order. Some of these are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from needlepoint.access import SCANNED, SKIPPED, AccessPlan, RowNumbers, Rows, RowsByFile
from needlepoint.errors import NeedlepointError
from needlepoint.indexes.text import (
    AllOf,
    AnyOf,
    BestRows,
    Fuzzy,
    Postings,
    Prefix,
    Query,
    RankedTerm,
    Term,
    TextStatistics,
    Word,
    best_rows,
    parse,
    terms,
)
from needlepoint.printable import count
from needlepoint.query.cache.table_state import TableState, TermRows
from needlepoint.query.datafusion.scoring import TextColumn, statistics_of
from needlepoint.query.pruning.result import PruningResult
from needlepoint.query.report.explain import IndexUse, StepReport
from needlepoint.query.scan.scan_plan import ScanPlan, ScoreAtLeast
from needlepoint.query.sql.top_rows import RankedRows
from needlepoint.query.top_rows import MOST_ENTRIES, MOST_WANTED, Attempts

# All postings of a term are held in memory.
MOST_POSTINGS = 50_000_000

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Allowed = Callable[[RowNumbers], Mask]


def scans(
    top: RankedRows, scan: ScanPlan, state: TableState, texts: TextColumn, attempts: Attempts, least_rows: int
) -> Iterator[ScanPlan]:
    """The scan of the rows that can have the highest scores; of ever more rows, if conditions left too few."""
    access = (scan.pruning or PruningResult(scan.access)).access
    wanted = [*terms(parse(top.query))]
    if top.wanted > MOST_WANTED or scan.access.count(state.file_rows) < least_rows or not wanted:
        return
    ranked = ranked_terms(state, top.column, wanted, texts)
    if ranked is None or not (ranked.covered & (access.states != SKIPPED)).any():
        return
    statistics = statistics_of(state, top.column, wanted, texts)
    allowed = _Allowed(access, ranked.covered, state.file_rows)
    for tried in attempts:
        limited = None if ranked.is_even and allowed.is_everything else allowed.mask
        best = ranked.best(statistics, tried, bool(top.then), limited)
        if len(best.rows) > MOST_ENTRIES:
            return
        rows, floor = best.rows, best.floor
        fewer = len(rows) < tried  # the others have a score of 0
        if fewer and not top.then:
            rows, floor = np.union1d(rows, allowed.first(tried)), 0.0
        elif len(rows) < top.wanted:
            return  # rows with a score of 0 are next, in the order of other keys
        yield _narrowed(scan, access, top, state, ranked.covered, rows, floor)
        if fewer and top.then:
            return


class RankedTerms:
    """The terms of a query, and the files whose rows they know: `is_even` if each knows those of the same files."""

    def __init__(self, found: Sequence[tuple[Term, TermRows]]) -> None:
        self._terms = [(term, rows.term) for term, rows in found]
        covered = [rows.covered for _, rows in found]
        self.covered: Mask = covered[0] if len(covered) == 1 else np.logical_and.reduce(covered)
        self.is_even = len(found) == 1 or all(np.array_equal(rows.covered, self.covered) for _, rows in found)

    def best(self, statistics: TextStatistics, wanted: int, ties: bool, allowed: Allowed | None = None) -> BestRows:
        return best_rows(self._terms, statistics, wanted, ties, allowed)

    def matching(self, query: Query) -> Allowed | None:
        """Which rows of covered files match a text query of these terms; None if postings do not show it."""
        match query:
            case AllOf(parts) | AnyOf(parts):
                known = [found for part in parts if (found := self.matching(part)) is not None]
                combine = np.logical_and if isinstance(query, AllOf) else np.logical_or
                if len(known) < len(parts):
                    return None
                return lambda rows: combine.reduce([found(rows) for found in known])
            case Word() | Prefix() | Fuzzy():
                term = dict(self._terms)[query]
                return lambda rows: term.times_in(rows) > 0
        return None  # a phrase, or excluded words


def ranked_terms(state: TableState, column: str, wanted: Sequence[Term], texts: TextColumn) -> RankedTerms | None:
    """The postings of these terms over all files, cached with the snapshot; None if no text index has them."""
    found = []
    for term in wanted:
        rows = state.ranked.get((column, term)) or _term_rows(state, column, term, texts)
        if rows is None:
            return None
        found.append((term, rows))
    return RankedTerms(found)


def _term_rows(state: TableState, column: str, term: Term, texts: TextColumn) -> TermRows | None:
    firsts = state.first_rows
    covered = np.zeros(len(firsts) - 1, np.bool_)
    parts: list[Postings] = []
    held = 0
    for position in range(len(covered)):
        postings = _postings(state, column, term, texts, position)
        if postings is None:
            covered[position] = state.snapshot.files[position].rows == 0  # it has no index, and needs none
            continue
        covered[position] = True
        parts.append(replace(postings, rows=postings.rows + firsts[position]))
        held += len(postings.rows)
        if held > MOST_POSTINGS:
            return None
    if not parts:
        return None
    joined = Postings(*(np.concatenate([getattr(each, name) for each in parts]) for name in _FIELDS))
    found = TermRows(RankedTerm(joined, int(firsts[-1])), covered)
    state.ranked.put((column, term), found, found.term.memory)
    return found


_FIELDS = ("rows", "times", "lengths")


def _postings(state: TableState, column: str, term: Term, texts: TextColumn, position: int) -> Postings | None:
    """Of one file; None if its texts must be read."""
    index, rows = texts.words(state, column, position), state.file_rows[position]
    try:
        found = None if index is None else index.postings(term)
    except NeedlepointError:
        return None  # a damaged index
    return None if found is None or (len(found.rows) and found.rows[-1] >= rows) else found


class _Allowed:
    """The rows of covered files that conditions leave, as ranges through all files."""

    def __init__(self, access: AccessPlan, covered: Mask, file_rows: RowNumbers) -> None:
        ends = np.cumsum(file_rows)
        whole = covered & (access.states == SCANNED)
        starts, stops = [(ends - file_rows)[whole]], [ends[whole]]
        for position, rows in access.rows.items():
            if covered[position]:
                first = ends[position] - file_rows[position]
                starts.append(rows.starts + first)
                stops.append(rows.stops + first)
        self._starts, self._stops = np.sort(np.concatenate(starts)), np.sort(np.concatenate(stops))
        self.is_everything = bool((whole | ~covered).all())

    def mask(self, rows: RowNumbers) -> Mask:
        places = np.searchsorted(self._starts, rows, "right") - 1
        inside: Mask = (places >= 0) & (rows < self._stops[places]) if len(self._starts) else np.zeros(len(rows), bool)
        return inside

    def first(self, wanted: int) -> RowNumbers:
        """The first rows."""
        lengths = np.cumsum(self._stops - self._starts)
        ranges = int(np.searchsorted(lengths, wanted)) + 1
        return Rows(self._starts[:ranges], self._stops[:ranges]).numbers()[:wanted]


def _narrowed(
    scan: ScanPlan,
    access: AccessPlan,
    top: RankedRows,
    state: TableState,
    covered: Mask,
    rows: RowNumbers,
    floor: float,
) -> ScanPlan:
    """The scan with only these rows of covered files."""
    narrowed = access.only(covered, by_file(rows, state))
    why = f"score({top.column}, …) >= {floor:.4g} for the first {top.wanted}"
    return replace(
        scan,
        access=narrowed,
        widened=0,
        overruled=0,
        pruning=_explained(scan, access, narrowed, top, state, covered, len(rows)),
        only=ScoreAtLeast(top.column, top.query, floor),
        narrowed_by=(why,),
    )


def by_file(rows: RowNumbers, state: TableState) -> RowsByFile:
    """The rows of each file, by its position."""
    firsts = state.first_rows
    owners = np.searchsorted(firsts, rows, "right") - 1
    return RowsByFile.at(owners, rows - firsts[owners])


def _explained(
    scan: ScanPlan,
    before: AccessPlan,
    after: AccessPlan,
    top: RankedRows,
    state: TableState,
    covered: Mask,
    rows: int,
) -> PruningResult:
    known = scan.pruning or PruningResult(before)
    files = state.file_rows
    step = StepReport("by_score", before.kept(), after.kept(), before.count(files), after.count(files))
    why = f"{count(rows, 'row')} of {count(int(covered.sum()), 'file')} can have the highest scores"
    names = {index.name for index in state.snapshot.indexes if index.kind == "text" and index.column == top.column}
    uses = tuple(
        IndexUse(use.index, use.kind, use.column, True, why) if use.index in names else use for use in known.indexes
    )
    return replace(known, access=after, steps=(*known.steps, step), indexes=uses, accesses=(*known.accesses, after))
