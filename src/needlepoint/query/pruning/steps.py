"""Pruning steps: each narrows an access plan by one kind of statistics or index.

    result = step(access, context)

A step leaves the plan unchanged for conditions that it does not support, and the report says why. Steps prune files
first, then the row groups of the remaining files, then their pages; each level is evaluated for all files at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from needlepoint.access import ROW_BITS, AccessPlan, Rows, RowsByFile
from needlepoint.errors import NeedlepointError
from needlepoint.indexes import ZoneMap, may_match
from needlepoint.objects import concurrently, is_url, open_object
from needlepoint.parquet import ReadStats
from needlepoint.parquet.format import Int64Array
from needlepoint.predicate import (
    Compare,
    CompareColumns,
    Condition,
    In,
    Leaf,
    Like,
    Match,
    Predicate,
    TextMatch,
    Zone,
    Zones,
    columns_of,
    fold,
    leaves,
    match,
    without_not,
)
from needlepoint.printable import count
from needlepoint.query.pruning.context import PruningContext
from needlepoint.query.pruning.index_step import by_index
from needlepoint.query.pruning.key_step import by_key
from needlepoint.query.pruning.result import PruningResult, StepResult
from needlepoint.query.report.explain import IndexUse, StepReport
from needlepoint.query.scan.cost_model import overlaps
from needlepoint.tables import File

Step = Callable[[AccessPlan, PruningContext], StepResult]


def prune(access: AccessPlan, context: PruningContext) -> PruningResult:
    """All steps in order, with counts for each."""
    rows = access.count(context.state.file_rows)
    steps: list[StepReport] = []
    indexes: list[IndexUse] = []
    reads: list[ReadStats] = []
    accesses: list[AccessPlan] = []
    for step in STEPS:
        files_before, rows_before = access.kept(), rows
        if files_before:
            found = step(access, context)
            rows = rows if found.access is access else found.access.count(context.state.file_rows)
            access = found.access
            indexes += found.indexes
            reads += found.reads
        accesses.append(access)
        steps.append(StepReport(step.__name__, files_before, access.kept(), rows_before, rows))
    return PruningResult(access, tuple(steps), tuple(indexes), tuple(reads), tuple(accesses))


def by_partition(access: AccessPlan, context: PruningContext) -> StepResult:
    """Hive partition values rule files out: year=2023 has no row with year = 2024."""
    return _by_zones(access, context, context.state.partition_zones(_asked(context)))


def by_zone(access: AccessPlan, context: PruningContext) -> StepResult:
    """A file with ids from 10 to 20 has no row with id = 25."""
    return _by_zones(access, context, context.state.zones(_asked(context)))


def _asked(context: PruningContext) -> list[str]:
    # Bounds do not help with the inside of a text: do not load them.
    asked = [leaf for leaf in leaves(context.predicate) if not isinstance(leaf, Like | TextMatch)]
    return list({column: None for leaf in asked for column in columns_of(leaf)})


def _by_zones(access: AccessPlan, context: PruningContext, zones: Zones) -> StepResult:
    if not zones.columns:
        return StepResult(access)
    return StepResult(access.without(match(context.predicate, zones) == Match.NEVER))


def by_row_group(access: AccessPlan, context: PruningContext) -> StepResult:
    """A row group with ids from 30 to 40 has no row with id = 25."""
    looked = _ZoneMaps.of(access, context, lambda file: (file.row_groups or 0) > 1)
    if looked is None:
        return StepResult(access)
    starts = looked.group_rows
    zones = {
        column: Zone.joined([Zone.unknown(len(rows) - 1) if each is None else each.groups
                             for each, rows in zip(maps, starts, strict=True)])
        for column, maps in looked.maps.items()
    }  # fmt: skip
    counts = [len(rows) - 1 for rows in starts]
    answers = match(context.predicate, Zones(sum(counts), zones)) != Match.NEVER
    parts = zip(looked.positions, starts, np.split(answers, np.cumsum(counts)[:-1]), strict=True)
    kept = {position: Rows.where(rows, keep) for position, rows, keep in parts if not keep.all()}
    return StepResult(access.narrowed(kept))


def by_bloom(access: AccessPlan, context: PruningContext) -> StepResult:
    """The bloom filters in the files: row group 3 has no id = 35. Each value costs 32 bytes per row group."""
    asked = {leaf.column for leaf in leaves(context.predicate) if isinstance(leaf, In) or _is_equality(leaf)}
    files = context.snapshot.files
    positions = [at for at in _narrowable(access, files) if asked & files[at].blooms] if asked else []
    if not positions:
        return StepResult(access)
    found = _ask_filters(access, context, positions)
    kept = {at: rows for at, (rows, _) in zip(positions, found, strict=True) if rows is not None}
    narrowed = access.narrowed(kept)
    why = f"probed in {count(len(positions), 'file')}, {access.kept() - narrowed.kept()} of them without such a value"
    columns = sorted(asked.intersection(*(files[at].blooms for at in positions)))
    uses = tuple(IndexUse(f"{column} in the files", "bloom", column, True, why) for column in columns)
    return StepResult(narrowed, uses, tuple(stats for _, stats in found if stats is not None))


def _is_equality(leaf: Leaf) -> bool:
    return isinstance(leaf, Compare) and leaf.operator == "="


def _ask_filters(
    access: AccessPlan, context: PruningContext, positions: Sequence[int]
) -> list[tuple[Rows | None, ReadStats | None]]:
    """For each file the rows of the row groups that can match, None if nothing was ruled out; and the metrics of the
    read."""
    table, files = context.snapshot.table, context.snapshot.files

    def ask(at: int) -> tuple[Rows | None, ReadStats | None]:
        cached = context.cards.cached(files[at])
        if cached is None:
            return None, None
        card, before = cached.card, access.selection(at)
        edges = card.row_group_rows
        groups = np.flatnonzero(overlaps(edges[:-1], before)) if isinstance(before, Rows) else np.arange(len(edges) - 1)
        try:
            with open_object(f"{table.location}/{files[at].path}", files[at].identity) as file:
                file.check_unchanged(card.identity)
                keep = may_match(file, card, context.predicate, groups.tolist(), table.schema, cached.filters)
                file.check_unchanged(card.identity)
        except (NeedlepointError, OSError):
            return None, None  # the scan of the file reports the problem
        rows = None if keep.all() else Rows.joined(edges[groups[keep]], edges[groups[keep] + 1])
        return rows, ReadStats(file.bytes_requested, file.requests, 0, 0)

    remote = is_url(table.location)
    return concurrently(ask, positions) if remote else [ask(at) for at in positions]


def by_page(access: AccessPlan, context: PruningContext) -> StepResult:
    """In a row group with ids 30 to 40, only the second page has ids from 35 to 37.

    Pages of different columns end at different rows, so each column selects a set of rows; their intersection is read.
    """
    looked = _ZoneMaps.of(access, context, lambda file: (file.pages or 0) > (file.row_groups or 0))
    if looked is None:
        return StepResult(access)
    ends = np.cumsum([int(rows[-1]) for rows in looked.group_rows])
    found = _PageRows(looked, ends).rows(without_not(context.predicate))
    if found is None:
        return StepResult(access)
    positions = np.array(looked.positions)
    rows = RowsByFile.through(found, positions, ends)
    left = np.zeros(len(positions), np.int64)
    left[np.searchsorted(positions, rows.positions)] = rows.counts
    fewer = positions[left < np.diff(ends, prepend=0)]
    return StepResult(access.narrowed(rows.only(np.isin(rows.positions, fewer)), fewer))


def _narrowable(access: AccessPlan, files: Sequence[File]) -> list[int]:
    """Positions of files that can be narrowed more. A damaged file may claim more rows than a plan can number."""
    return [at for at in access.narrowable() if (files[at].rows or 0) < 1 << ROW_BITS]


class _ZoneMaps:
    """The files that a step can still narrow, with their zone maps by column."""

    def __init__(self, positions: list[int], maps: dict[str, list[ZoneMap | None]]) -> None:
        # A file without zone maps of these columns cannot be narrowed.
        any_map = [
            next((each for each in maps_of if each is not None), None) for maps_of in zip(*maps.values(), strict=True)
        ]
        known = [at for at, each in enumerate(any_map) if each is not None]
        self.positions = [positions[at] for at in known]
        self.maps = {name: [column[at] for at in known] for name, column in maps.items()}
        self.group_rows = [each.group_rows for each in any_map if each is not None]

    @classmethod
    def of(cls, access: AccessPlan, context: PruningContext, worth: Callable[[File], bool]) -> _ZoneMaps | None:
        files = context.snapshot.files
        partitions = context.snapshot.table.partitions
        columns = [name for name in _asked(context) if name not in partitions and name in context.state.types]
        known = _narrowable(access, files) if columns else []
        positions = [at for at in known if files[at].has_card and worth(files[at])]
        if not positions:
            return None
        chosen = [files[at] for at in positions]
        types = context.state.types
        found = cls(positions, {name: context.cards.zone_maps(chosen, name, types[name]) for name in columns})
        return found if found.positions else None


class _PageRows:
    """Rows that the pages of each column select, over all files, with consecutive row numbers."""

    def __init__(self, looked: _ZoneMaps, ends: Int64Array) -> None:
        self._looked = looked
        self._starts = np.concatenate(([0], ends[:-1])).tolist()
        self._ends = ends
        self._joined: dict[str, tuple[Int64Array, Int64Array, Zone] | None] = {}

    def rows(self, predicate: Predicate) -> Rows | None:
        """None means all rows."""
        return fold(
            predicate,
            lambda conditions: map(self._of_condition, conditions),
            all_of=partial(reduce, Rows.__and__),
            any_of=partial(reduce, Rows.__or__),
            nothing=lambda: Rows.of([]),
        )

    def _of_condition(self, condition: Condition) -> Rows | None:
        leaf = next(leaves(condition))  # `without_not` leaves only a leaf below a NOT
        if isinstance(leaf, CompareColumns):
            return self._of_columns(condition, leaf)
        column = leaf.column
        pages = self._pages(column)
        if pages is None:
            return None
        starts, stops, zone = pages
        keep = match(condition, Zones(len(zone.known), {column: zone})) != Match.NEVER
        return Rows.joined(starts[keep], stops[keep])

    def _of_columns(self, condition: Condition, leaf: CompareColumns) -> Rows | None:
        """Pages of two columns overlap: each part of rows that is in one page of either is compared."""
        one, other = self._pages(leaf.column), self._pages(leaf.other)
        if one is None or other is None:
            return None
        edges = np.union1d(one[0], other[0])
        zones = {
            name: zone.part(np.searchsorted(starts, edges, "right") - 1)
            for name, (starts, _, zone) in ((leaf.column, one), (leaf.other, other))
        }
        keep = match(condition, Zones(len(edges), zones)) != Match.NEVER
        return Rows.joined(edges[keep], np.append(edges[1:], self._ends[-1])[keep])

    def _pages(self, column: str) -> tuple[Int64Array, Int64Array, Zone] | None:
        """First and last rows and bounds of all pages of a column, concatenated once for all conditions on it."""
        if column not in self._joined:
            self._joined[column] = self._join(column)
        return self._joined[column]

    def _join(self, column: str) -> tuple[Int64Array, Int64Array, Zone] | None:
        maps = self._looked.maps.get(column)
        if maps is None or all(each is None for each in maps):
            return None
        starts, stops, zones = [], [], []
        for each, start, end in zip(maps, self._starts, self._ends.tolist(), strict=True):
            if each is None:
                starts.append(np.array([start]))
                stops.append(np.array([end]))
                zones.append(Zone.unknown(1))
            else:
                starts.append(each.page_rows[:-1] + start)
                stops.append(each.page_rows[1:] + start)
                zones.append(each.pages)
        return np.concatenate(starts), np.concatenate(stops), Zone.joined(zones)


STEPS: tuple[Step, ...] = (by_partition, by_zone, by_key, by_row_group, by_bloom, by_page, by_index)
