"""What to read of one table, and the metrics of reading it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from needlepoint.access import AccessPlan, Rows
from needlepoint.objects import Identity, OpenObject, is_url
from needlepoint.parquet import CachedCard, Caches, ReadStats, foresee_dictionaries
from needlepoint.predicate import Predicate, leaves
from needlepoint.query.cache.card_cache import CardCache
from needlepoint.query.pruning.result import PruningResult
from needlepoint.query.scan.cost_model import (
    Costs,
    Estimate,
    NativeFilter,
    by_pages,
    by_row_groups,
    overlaps,
    scan_seconds,
)
from needlepoint.query.timed_choice import TimedChoice
from needlepoint.tables import File, Snapshot

# Reading so few rows of so few files takes less time than starting a native scan: do not estimate.
FEW_FILES, FEW_ROWS = 2, 1000
# The dictionaries of one file may take this part of their cache.
SHARE_OF_CACHE = 8


# Estimates of pages and scans that differ by less than this factor do not settle which is faster; and of less than this
# many seconds it does not matter.
NEAR, WORTH_SECONDS = 6.0, 0.002


@dataclass(frozen=True, slots=True)
class Undecided:
    """A choice between pages and scans that is made by the times of earlier queries with the same key."""

    key: Hashable
    by_pages: bool


class HeldVersion(Protocol):
    """A version of a file that stays readable while the query runs."""

    @property
    def identity(self) -> Identity: ...

    def open(self) -> OpenObject: ...

    def source(self) -> str:
        """A local path of this version."""

    def check(self) -> None:
        """Raise FileChanged if this version is no longer readable."""


@dataclass(frozen=True, slots=True)
class ScoreAtLeast:
    """The condition `score(column, query) >= floor`."""

    column: str
    query: str
    floor: float


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What to read of one table.

    unprunable   columns that DataFusion must not prune by
    zeros        columns in which every zero gets the same sign
    constants    whether DataFusion sees partition columns as constants of a file (table_provider.py)
    widened      files of which whole row groups are read
    overruled    files that are scanned, because that is faster, though only some rows are wanted
    may_list     whether DataFusion may list the directory
    held         versions of files to read, by path; native scans find them at `sources`
    pruning      the result of pruning that led to this plan
    only         a condition that rows must meet beyond those of the query (top_rows.py, ranked_rows.py)
    narrowed_by  conditions that a join or an ORDER BY with LIMIT implies, in words (semi_joins.py, top_rows.py,
                 ranked_rows.py)
    undecided    the choice between pages and scans, if the estimates are near each other
    counted      files whose rows are counted without reading them (aggregates), and `counted_by` in words
    """

    snapshot: Snapshot
    columns: frozenset[str]
    predicate: Predicate
    access: AccessPlan
    costs: Costs
    unprunable: frozenset[str] = frozenset()
    zeros: Mapping[str, float] = field(default_factory=dict)
    constants: bool = True
    scanned: tuple[File, ...] = ()
    paged: tuple[File, ...] = ()
    widened: int = 0
    overruled: int = 0
    may_list: bool = True
    held: Mapping[str, HeldVersion] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    pruning: PruningResult | None = None
    only: Predicate | ScoreAtLeast | None = None
    narrowed_by: tuple[str, ...] = ()
    undecided: Undecided | None = None
    counted: tuple[File, ...] = ()
    counted_by: tuple[str, ...] = ()

    @property
    def remote(self) -> bool:
        return is_url(self.snapshot.table.location)

    def path(self, file: File) -> str:
        return f"{self.snapshot.table.location}/{file.path}"

    def source(self, file: File) -> str:
        """The path of the planned version, for DataFusion."""
        return self.sources.get(file.path) or self.path(file)

    def stored_columns(self) -> list[str]:
        """The wanted columns that are stored in the files, not in their paths, in the table's order."""
        return [name for name in self.snapshot.table.data_columns if name in self.columns]

    def with_access(self, access: AccessPlan) -> ScanPlan:
        files = self.snapshot.files
        scanned = tuple(files[position] for position in access.scanned())
        return replace(self, access=access, scanned=scanned, paged=tuple(files[position] for position in access.rows))


@dataclass(frozen=True, slots=True)
class ScanMetrics:
    """The metrics of reading a table.

    reads     page reads
    sifted    files whose predicate columns were read first
    matched   rows read by page that went to DataFusion
    listed    whether DataFusion listed the directory
    """

    reads: tuple[ReadStats, ...] = ()
    sifted: int = 0
    matched: int = 0
    listed: bool = False


def choose_access(
    scan: ScanPlan,
    cards: CardCache,
    native: NativeFilter,
    access: str = "auto",
    caches: Caches | None = None,
    times: TimedChoice | None = None,
) -> ScanPlan:
    """Choose pages, row groups or the native scan for each file of which only some rows are wanted.

    `access` overrides the estimates: `pages` reads by page wherever it can, `scan` never does. Where estimates are near
    each other, the `times` of earlier queries decide.
    """
    files, rows = scan.snapshot.files, scan.access.rows
    scans: list[int] = []
    weighed: dict[int, _Estimates] = {}
    overruled, undecided = 0, None
    columns = scan.stored_columns()
    few = len(rows) <= FEW_FILES and sum(each.count for each in rows.values()) <= FEW_ROWS
    for position in rows:
        cached = cards.cached(files[position])
        if cached is None or access == "scan":
            scans.append(position)
        elif access == "auto" and not few:
            weighed[position] = _weigh(scan, cached, columns, position, native, caches)
    if weighed:
        share = scan.costs.in_parallel(1.0, sum(each.pages for each in weighed.values()))
        savings = {
            at: each.seconds * share - each.scan for at, each in weighed.items() if each.seconds * share > each.scan
        }
        base = scan.costs.scan + native.values * scan.costs.scan_value
        # The first native scan has a fixed cost, which is already paid if another file must be scanned anyway.
        base = 0.0 if scans or scan.access.scanned() else base
        faster = list(savings) if sum(savings.values()) > base else []
        if times is not None and not scan.remote:  # a try in a bucket costs requests
            pages = sum(each.seconds for each in weighed.values()) * share
            whole = sum(each.scan for each in weighed.values()) + base
            undecided = _undecided(scan, native, (pages, whole), not faster, times)
        if undecided is not None and undecided.by_pages == bool(faster):
            faster = [] if faster else list(weighed)
        scans += faster
        overruled = len(faster)
    widened = {at: each.wider for at, each in weighed.items() if each.wider is not None and at not in scans}
    chosen = scan.access.scanning(scans) if scans else scan.access
    scan = scan.with_access(chosen.widened(widened))
    return replace(scan, widened=len(widened), overruled=overruled, undecided=undecided)


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
    return Undecided(key, times.choose(key, by_pages))


@dataclass(frozen=True, slots=True)
class _Estimates:
    """The time of a file by page, by row group (if `wider` has the rows for that) and by native scan, and its pages."""

    seconds: float
    wider: Rows | None
    scan: float
    pages: int


def _weigh(
    scan: ScanPlan,
    cached: CachedCard,
    columns: Sequence[str],
    position: int,
    native: NativeFilter,
    caches: Caches | None,
) -> _Estimates:
    rows, costs = scan.access.rows[position], scan.costs
    columns = [name for name in columns if cached.card.has(name)]
    pages, wider = by_pages(cached, columns, rows), None
    seconds = pages.seconds(costs)
    if pages.requests > len(columns):
        all_rows, whole = by_row_groups(cached, columns, rows)
        if whole.seconds(costs) < seconds:
            wider, seconds = all_rows, whole.seconds(costs)
    bounded = pages if position in scan.access.inexact else None
    by_scan = scan_seconds(cached, columns, rows, bounded, native, costs)
    if (
        caches is not None
        and seconds > by_scan
        and rows.count <= FEW_ROWS
        and cached.sizes(tuple(columns)).dictionaries
    ):
        path = scan.path(scan.snapshot.files[position])
        kept = _with_dictionaries(path, cached, columns, rows, pages, caches, costs, by_scan)
        seconds, wider = (kept, None) if kept < seconds else (seconds, wider)
    return _Estimates(seconds, wider, by_scan, pages.pages)


def _with_dictionaries(
    path: str,
    cached: CachedCard,
    columns: Sequence[str],
    rows: Rows,
    pages: Estimate,
    caches: Caches,
    costs: Costs,
    by_scan: float,
) -> float:
    """The time of a read by page that looks values up in dictionaries. Those that are not decoded yet cost more than a
    scan, but once: they are decoded when such a read is wanted for the second time, if there is room to keep them."""
    groups = np.flatnonzero(overlaps(cached.card.row_group_rows[:-1], rows)).tolist()
    read = foresee_dictionaries(path, cached, columns, rows.count, groups, caches)
    of_byte = costs.dictionary_byte()
    warm = replace(pages, bytes=0, values=0).seconds(costs) + read.decoded * of_byte + read.skimmed * costs.skimmed_byte
    now = warm + read.cold * of_byte
    if now <= by_scan or 2 * warm > by_scan or read.cold > caches.dictionaries.limit // SHARE_OF_CACHE:
        return now
    cached.declined = not cached.declined
    return now if cached.declined else warm
