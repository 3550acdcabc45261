"""The step that uses the indexes of single files: distinct, bloom and text indexes, and those of other packages.

Each condition of the predicate is looked up in the indexes of a file. The results are intersected for AND and united
for OR. A condition that no index supports selects all rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from needlepoint.access import AccessPlan, Rows
from needlepoint.errors import NeedlepointError
from needlepoint.indexes import Answer, keeps_entries
from needlepoint.objects import concurrently, is_url
from needlepoint.predicate import CompareColumns, Condition, Predicate, fold, leaves, without_not
from needlepoint.printable import count
from needlepoint.query.pruning.context import PruningContext
from needlepoint.query.pruning.result import StepResult
from needlepoint.query.report.explain import IndexUse
from needlepoint.tables import File, Index

# A file in which other indexes selected fewer rows is not looked up.
FEW_ROWS = 1000
# If the first file has so many times the rows that a LIMIT wants, a scan finds them soon.
PLENTY = 20


def by_index(access: AccessPlan, context: PruningContext) -> StepResult:
    """Distinct, bloom and text indexes of single files select the rows that can match."""
    asked = {leaf.column for leaf in leaves(context.predicate)}
    indexes = [index for index in context.indexes_to_ask if not keeps_entries(index.kind)]
    usable = [index for index in indexes if asked & set(index.columns)]
    tally = _AnswerCounts()
    files = context.snapshot.files
    positions = [at for at in _worth_asking(access) if _has_any(files[at], usable)] if usable else []
    has_plenty = _has_plenty(context, usable, positions)
    narrowed = _ask_all(access, context, usable, positions, tally) if positions and not has_plenty else access
    unasked = "one file has many more rows than LIMIT wants: a scan is faster" if has_plenty else ""
    if usable and not positions:
        left = any(_has_any(files[at], usable) for at in np.flatnonzero(access.states).tolist())
        unasked = "other indexes leave few rows" if left else "none of the remaining files has an up-to-date index"
    return StepResult(narrowed, tuple(tally.use(index, index in usable, unasked) for index in indexes))


def _worth_asking(access: AccessPlan) -> list[int]:
    """Files that are read whole, or in large part: more pruning can pay."""
    named = [at for at, rows in access.rows.items() if at not in access.inexact and rows.count > FEW_ROWS]
    return sorted([*access.narrowable(), *named])


def _has_any(file: File, indexes: Sequence[Index]) -> bool:
    return any(index.id in file.indexed for index in indexes)


def _has_plenty(context: PruningContext, indexes: Sequence[Index], positions: Sequence[int]) -> bool:
    """Whether the first of several files has many more rows than a LIMIT wants."""
    if context.limit is None or context.always or len(positions) < 2:
        return False
    asked = _FileAnswers(context, context.snapshot.files[positions[0]], indexes)
    rows = asked.rows(without_not(context.predicate))
    return rows is not None and rows.count > PLENTY * context.limit


def _ask_all(
    access: AccessPlan,
    context: PruningContext,
    indexes: Sequence[Index],
    positions: Sequence[int],
    tally: _AnswerCounts,
) -> AccessPlan:
    predicate = without_not(context.predicate)

    def ask(at: int) -> tuple[Rows | None, _FileAnswers]:
        asked = _FileAnswers(context, context.snapshot.files[at], indexes)
        return asked.rows(predicate), asked

    remote = is_url(context.snapshot.table.location)
    found = concurrently(ask, positions) if remote else [ask(at) for at in positions]
    exact, named, inexact = np.zeros(len(access.states), np.bool_), dict[int, Rows](), dict[int, Rows]()
    for at, (rows, asked) in zip(positions, found, strict=True):
        for index, answer in asked.answers:
            tally.note(index, answer)
        if rows is not None:
            exact[at] = asked.exact
            (named if asked.exact else inexact)[at] = rows
    return (access.only(exact, named) if named else access).narrowed(inexact)


class _AnswerCounts:
    """The answers of the indexes, summed over all files."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()
        self.silent: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def note(self, index: Index, answer: Answer) -> None:
        if answer.rows is None:
            self.silent[index.name][answer.why] += 1
        else:
            self.answered[index.name] += 1
            self.rows[index.name] += answer.rows.count

    def use(self, index: Index, usable: bool, unasked: str) -> IndexUse:
        name, shown = index.name, index.shown_columns
        silent = self.silent[name].most_common(3)
        whys = [f"{why} ({count(files, 'file')})" if files > 1 else why for why, files in silent if why]
        if self.answered[name]:
            whys.insert(0, f"{count(self.rows[name], 'row')} of {count(self.answered[name], 'file')} can match")
        if not whys:
            silence = unasked or f"it does not support this condition on column {shown}"
            whys.append(silence if usable else f"column {shown} is not in the predicate")
        return IndexUse(name, index.kind, shown, self.answered[name] > 0, "; ".join(whys))


class _FileAnswers:
    """The answers of the indexes of one file for one predicate."""

    def __init__(self, context: PruningContext, file: File, indexes: Sequence[Index]) -> None:
        self._context = context
        self._file = file
        self._indexes = indexes
        self._seconds = context.scan_seconds(file)
        self.answers: list[tuple[Index, Answer]] = []

    @property
    def exact(self) -> bool:
        return any(answer.exact for _, answer in self.answers)

    def rows(self, predicate: Predicate) -> Rows | None:
        """Rows outside of which the predicate is not TRUE; None means all rows."""
        return fold(
            predicate,
            lambda conditions: (self._conditions(conditions),),
            all_of=partial(reduce, Rows.__and__),
            any_of=partial(reduce, Rows.__or__),
            nothing=lambda: Rows.of([]),
        )

    def _conditions(self, conditions: Sequence[Condition]) -> Rows | None:
        found: Rows | None = None
        for index in self._indexes:
            wanted = [each for each in conditions if _column(each) in index.columns and not _compares_columns(each)]
            if not wanted or (found is not None and not found.count):
                continue
            answer = self._ask(index, wanted)
            self.answers.append((index, answer))
            if answer.rows is not None:
                found = answer.rows if found is None else found & answer.rows
        return found

    def _ask(self, index: Index, conditions: Sequence[Condition]) -> Answer:
        context, file = self._context, self._file
        if context.snapshot.refined.intersection(index.columns):
            return Answer(None, f"files not synced yet have {index.shown_columns} in a finer unit: sync rebuilds it")
        if index.id not in file.indexed:
            return Answer(None, "not indexed yet, so scanned")
        place = context.state.places(index).get(-1 if file.id is None else file.id)
        if place is None:
            return Answer(None, "not built for this file: sync reports why")
        try:
            opened = context.file_indexes.get(context.snapshot.table, context.state.types, index, file, place)
            answer = opened.find(conditions, self._seconds)
        except (NeedlepointError, OSError) as error:
            return Answer(None, f"cannot be read, so it is passed over: {error}")
        except Exception as error:  # a kind of another package may raise anything
            return Answer(None, f"fails, so it is passed over: {type(error).__name__}: {error}")
        if answer.rows is not None and len(answer.rows.stops) and answer.rows.stops[-1] > (file.rows or 0):
            return Answer(None, f"names rows beyond the end of {file.path}, so it is ignored")
        return answer


def _compares_columns(condition: Condition) -> bool:
    """Indexes know the values of one column, not which rows of another have them."""
    return isinstance(next(leaves(condition)), CompareColumns)


def _column(condition: Condition) -> str:
    return next(leaves(condition)).column
