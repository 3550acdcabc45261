"""Chooses pages, row groups or the native scan for each file of which only some rows are wanted.

The work of all files is estimated at once, as arrays (cost_model.py). Where the estimates are near each other, the
times of earlier queries decide (timed_choice.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from needlepoint.access import SCANNED, Rows, RowsByFile
from needlepoint.parquet import CachedCard, Caches, foresee_dictionaries, reads_jointly
from needlepoint.predicate import leaves
from needlepoint.query.cache.card_cache import CardCache
from needlepoint.query.scan.cost_model import Estimate, FileSizes, Mask, NativeFilter, row_groups_of, scan_seconds
from needlepoint.query.scan.costs import THREADS, shared
from needlepoint.query.scan.scan_plan import FEW_FILES, FEW_ROWS, WORTH_SECONDS, ScanPlan, Undecided
from needlepoint.query.timed_choice import TimedChoice

# Reading so few rows of so few files takes less time than starting a native scan: do not estimate.
FEWEST_ROWS = 10
# Rows that an index names are as often as this next to each other where the file is sorted by the index's column.
CLUSTERED = 8
# The dictionaries of one file may take this part of their cache.
SHARE_OF_CACHE = 8

# Estimates of pages and scans that differ by less than this factor do not settle which is faster; and of less than this
# many seconds it does not matter; even less is not estimated.
NEAR, LITTLE_SECONDS = 6.0, 0.0005
CLEARLY = 0.8

Numbers = npt.NDArray[np.float64]


def choose_access(
    scan: ScanPlan,
    cards: CardCache,
    native: NativeFilter,
    access: str = "auto",
    caches: Caches | None = None,
    times: TimedChoice | None = None,
) -> ScanPlan:
    """The plan with the choice for each file.

    `access` overrides the estimates: `pages` reads by page wherever it can, `scan` never does. Where estimates are near
    each other, the `times` of earlier queries decide.
    """
    rows, files = scan.access.rows, scan.snapshot.files
    scan = replace(scan, widened=0, overruled=0, undecided=None, postponed=False)
    found = list(cards.each([files[position] for position in rows.positions.tolist()]))
    known = np.array([each is not None and access != "scan" for each in found], np.bool_)
    without_card = rows.positions[~known].tolist()
    weighed = None
    if access == "auto" and known.any() and not (len(rows) <= FEW_FILES and rows.count <= FEWEST_ROWS):
        wanted = rows.only(known)
        weighed = _Weighed.of(scan, [each for each in found if each is not None], wanted, native, caches)
    if weighed is None:
        return scan.with_access(scan.access.scanning(without_card) if without_card else scan.access)
    return _chosen(scan, weighed, without_card, native, times)


def _chosen(
    scan: ScanPlan, weighed: _Weighed, without_card: Sequence[int], native: NativeFilter, times: TimedChoice | None
) -> ScanPlan:
    """The fastest way of each file, or of all where earlier queries tell."""
    saved = np.where(weighed.seconds > weighed.scan, weighed.seconds - weighed.scan, 0.0)
    faster = saved > 0 if saved.sum() > weighed.base else np.zeros(len(saved), np.bool_)
    pages = float(weighed.seconds.sum())
    whole = float(weighed.scan.sum()) + weighed.base
    both = pages - float(saved.sum()) + weighed.base
    undecided = None
    # Some files by page and some by scan is a third way, which is taken if it is clearly faster.
    if both > CLEARLY * min(pages, whole):
        by_pages = pages <= whole
        if times is not None and not scan.remote:  # a try in a bucket costs requests
            undecided = _undecided(scan, native, (pages, whole), by_pages, times)
        faster = np.full(len(saved), not (by_pages if undecided is None else undecided.by_pages))
    by_scan = {*weighed.positions[faster].tolist()}
    scans = [*without_card, *by_scan]
    widened = {at: rows for at, rows in weighed.wider.items() if at not in by_scan}
    chosen = scan.access.scanning(scans) if scans else scan.access
    scan = scan.with_access(chosen.widened(widened))
    overruled = int(np.count_nonzero(faster))
    return replace(scan, widened=len(widened), overruled=overruled, undecided=undecided, postponed=weighed.postponed)


def _undecided(
    scan: ScanPlan, native: NativeFilter, seconds: tuple[float, float], by_pages: bool, times: TimedChoice
) -> Undecided | None:
    """The choice by earlier times, if the seconds by page and by scan are near each other. Queries are alike if they
    read the same columns with conditions of the same kind, and are estimated about the same."""
    if min(seconds) < WORTH_SECONDS or max(seconds) > NEAR * min(seconds):
        return None
    conditions = tuple((type(leaf).__name__, leaf.column) for leaf in leaves(scan.predicate))
    sizes = tuple(round(math.log2(each)) for each in seconds)
    key = (scan.snapshot.table.id, scan.columns, conditions, native.pushdown, sizes)
    return Undecided(key, times.choose(key, by_pages), times.is_settled(key))


@dataclass(frozen=True, slots=True)
class _Weighed:
    """The time of each file by page, or by row group for those in `wider`, which has the rows for that; the time by
    native scan, and the `base` that any scan takes. Dictionaries that are not decoded yet may be `postponed`."""

    positions: npt.NDArray[np.int64]
    seconds: Numbers
    wider: dict[int, Rows]
    scan: Numbers
    base: float
    postponed: bool

    @classmethod
    def of(
        cls, scan: ScanPlan, cards: Sequence[CachedCard], rows: RowsByFile, native: NativeFilter, caches: Caches | None
    ) -> _Weighed | None:
        """None if so little is read that weighing would take as long."""
        costs, columns = scan.costs, scan.stored_columns()
        sizes = FileSizes.of(cards, columns)
        pages = sizes.by_pages(rows.counts, rows.ranges, not scan.remote and reads_jointly(rows.count, caches))
        by_page = pages.seconds(costs)
        joint = bool(np.any(pages.joint))
        share = costs.in_parallel(1.0, round(float(pages.pages.sum())), len(columns) if joint else THREADS)
        # The first native scan has a fixed cost, which is already paid if another file must be scanned anyway.
        is_first = len(rows) == len(scan.access.rows) and not (scan.access.states == SCANNED).any()
        base = costs.scan + native.values * costs.scan_value if is_first else 0.0
        groups = sum(each.card.num_row_groups for each in cards)
        scan_share = _share_until_limit(scan) * (1.0 if scan.remote else shared(1.0, groups))
        little = max(LITTLE_SECONDS, min(WORTH_SECONDS, base + len(cards) * costs.scan_file * scan_share))
        if float(by_page.sum()) * share <= little:
            return None
        inexact = np.isin(rows.positions, list(scan.access.inexact))
        # Conditions are evaluated before other columns are read, and once more by DataFusion.
        evaluating = native.row_seconds * np.where(inexact, 2.0, 1.0)
        seconds = by_page + rows.counts * evaluating
        of_groups = _RowGroups.of(cards, rows)
        # The rows are found by their values then: the file is opened twice, and each value of an IN is put into a set.
        finding = costs.file + native.values * costs.scan_list
        by_group = of_groups.work(sizes, rows).seconds(costs) + of_groups.counts * evaluating + finding
        is_wider = (pages.requests > sizes.columns) & (by_group < seconds)
        seconds = np.where(is_wider, by_group, seconds)
        bounded = _bounded(scan, rows)
        by_scan = scan_seconds(cards, columns, (rows.counts, rows.ranges), bounded, native, costs) * scan_share
        postponed = False
        if caches is not None:
            with_dictionaries = (seconds > by_scan) & (rows.counts <= FEW_ROWS) & (sizes.dictionaries > 0)
            for number in np.flatnonzero(with_dictionaries).tolist():
                position = int(rows.positions[number])
                file = _FileRead(scan, position, cards[number], rows[position], pages, number)
                kept = file.with_dictionaries(caches, float(by_scan[number]))
                postponed |= file.cached.declined
                if kept < seconds[number]:
                    seconds[number], is_wider[number] = kept, False
        # For the other columns, the file is opened again.
        seconds = (seconds + np.where(inexact, pages.file_seconds(costs), 0.0)) * share
        wider = {int(rows.positions[number]): of_groups.rows(number) for number in np.flatnonzero(is_wider).tolist()}
        return cls(rows.positions, seconds, wider, by_scan, base, postponed)


@dataclass(frozen=True, slots=True)
class _RowGroups:
    """The row groups of each file that hold any of the wanted rows: `counts` of their rows, and the `share` of all. Of
    files with several row groups, `edges` are the ranges of rows."""

    counts: Numbers
    share: Numbers
    edges: dict[int, Rows]

    @classmethod
    def of(cls, cards: Sequence[CachedCard], rows: RowsByFile) -> _RowGroups:
        counts = np.array([each.card.num_rows for each in cards], np.float64)
        share, edges = np.ones(len(cards)), dict[int, Rows]()
        positions = rows.positions.tolist()
        for number, cached in enumerate(cards):
            if (total := cached.card.num_row_groups) > 1:
                groups = row_groups_of(cached, rows[positions[number]])
                bounds = cached.card.row_group_rows
                edges[number] = Rows.joined(bounds[groups], bounds[groups + 1])
                counts[number], share[number] = edges[number].count, len(groups) / total
        return cls(counts, share, edges)

    def work(self, sizes: FileSizes, rows: RowsByFile) -> Estimate:
        """The work of reading them: values beyond the wanted rows count twice, since the predicate is evaluated on
        them."""
        return sizes.whole(self.share, (self.counts - rows.counts) * sizes.leaves)

    def rows(self, number: int) -> Rows:
        whole = np.array([0, int(self.counts[number])])
        return self.edges.get(number) or Rows(whole[:1], whole[1:])


def _bounded(scan: ScanPlan, rows: RowsByFile) -> tuple[Mask, Numbers, Numbers]:
    """The files of which bounds leave some rows, also to DataFusion, with how many rows in how many ranges."""
    before = scan.left_by_bounds
    left, positions = before.rows, rows.positions
    in_before = np.isin(positions, list(before.inexact))
    is_bounded = in_before | (rows.counts >= CLUSTERED * rows.ranges)
    counts, ranges = rows.counts.astype(np.float64), rows.ranges.astype(np.float64)
    places = np.searchsorted(left.positions, positions[in_before])
    counts[in_before], ranges[in_before] = left.counts[places], left.ranges[places]
    return is_bounded, counts, ranges


def _share_until_limit(scan: ScanPlan) -> float:
    """The share of the files that a scan reads until it has enough rows: those that indexes name are evenly spread."""
    if scan.limit is None:
        return 1.0
    rows = scan.access.rows
    exact = ~np.isin(rows.positions, list(scan.left_by_bounds.inexact))
    return min(1.0, 2 * scan.limit / max(1, int(rows.counts[exact].sum())))


@dataclass(frozen=True, slots=True)
class _FileRead:
    """A read by page of some rows of one file; its estimate is the one with this number."""

    scan: ScanPlan
    position: int
    cached: CachedCard
    rows: Rows
    pages: Estimate
    number: int

    def with_dictionaries(self, caches: Caches, by_scan: float) -> float:
        """The time if values are looked up in dictionaries. Those that are not decoded yet cost more than a scan, but
        once: they are decoded when such a read is wanted for the second time, if there is room to keep them."""
        costs, cached = self.scan.costs, self.cached
        path = self.scan.path(self.scan.snapshot.files[self.position])
        columns = cached.present(self.scan.stored_columns())
        groups = row_groups_of(cached, self.rows).tolist()
        read = foresee_dictionaries(path, cached, columns, self.rows.count, groups, caches)
        codec = int(self.pages.codec[self.number])
        pages, requests = float(self.pages.pages[self.number]), float(self.pages.requests[self.number])
        of_byte = costs.read_byte(codec)
        skimmed = read.decoded * of_byte + read.skimmed * costs.skimmed_byte
        warm = float(Estimate(pages, requests, 0, 0, 0, codec).seconds(costs)) + skimmed
        now = warm + read.cold * of_byte
        if now <= by_scan or 2 * warm > by_scan or read.cold > caches.dictionaries.limit // SHARE_OF_CACHE:
            return now
        cached.declined = not cached.declined
        return now if cached.declined else warm
