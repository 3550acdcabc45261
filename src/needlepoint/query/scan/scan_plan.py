"""What to read of one table, and the metrics of reading it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from needlepoint.access import AccessPlan, Rows
from needlepoint.objects import Identity, OpenObject, is_url
from needlepoint.parquet import CachedCard, Caches, ReadStats, foresee_dictionaries
from needlepoint.predicate import Predicate, leaves
from needlepoint.query.cache.card_cache import CardCache
from needlepoint.query.pruning.result import PruningResult
from needlepoint.query.scan.cost_model import (
    Estimate,
    NativeFilter,
    by_pages,
    by_row_groups,
    row_groups_of,
    scan_seconds,
)
from needlepoint.query.scan.costs import Costs, shared
from needlepoint.query.timed_choice import TimedChoice
from needlepoint.tables import File, Snapshot

# Reading so few rows of so few files takes less time than starting a native scan: do not estimate.
FEW_FILES, FEWEST_ROWS = 2, 10
# Rows that are few enough to look their values up in dictionaries, or to read them in the process that asks.
FEW_ROWS = 1000
# Rows that an index names are as often as this next to each other where the file is sorted by the index's column.
CLUSTERED = 8
# The dictionaries of one file may take this part of their cache.
SHARE_OF_CACHE = 8


# Estimates of pages and scans that differ by less than this factor do not settle which is faster; and of less than this
# many seconds it does not matter; even less is not estimated.
NEAR, WORTH_SECONDS, LITTLE_SECONDS = 6.0, 0.002, 0.0005
CLEARLY = 0.8


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
    limit        how many of the rows that match are enough, if any of them will do
    filled       columns that have no NULL in any scanned file, if DataFusion should know that
    counted      files whose rows are counted without reading them (aggregates), and `counted_by` in words
    views        DataFusion reads texts as views, in which it groups and compares them fastest. It is slower where it
                 only passes on the few rows of a page that a filter leaves
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
    limit: int | None = None
    filled: frozenset[str] = frozenset()
    counted: tuple[File, ...] = ()
    counted_by: tuple[str, ...] = ()
    views: bool = True

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

    def bounded_shares(self, pushdown: bool) -> Iterator[tuple[File, float]]:
        """The files to scan, and the share of each that bounds leave, to DataFusion too if it filters while it
        reads."""
        files, before = self.snapshot.files, _left_by_bounds(self)
        for position in self.access.scanned():
            file, rows = files[position], before.rows.get(position) if pushdown else None
            yield file, 1.0 if rows is None or not file.rows else min(1.0, rows.count / file.rows)

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
    files, rows, costs = scan.snapshot.files, scan.access.rows, scan.costs
    scans: list[int] = []
    read: dict[int, _PageRead] = {}
    weighed: dict[int, _Estimates] = {}
    overruled, undecided = 0, None
    columns = scan.stored_columns()
    few = len(rows) <= FEW_FILES and sum(each.count for each in rows.values()) <= FEWEST_ROWS
    for position, cached in zip(rows, cards.each([files[position] for position in rows]), strict=True):
        if cached is None or access == "scan":
            scans.append(position)
        elif access == "auto" and not few:
            present = [name for name in columns if cached.card.has(name)]
            read[position] = _PageRead(cached, present, by_pages(cached, present, rows[position]))
    if read:
        base = costs.scan + native.values * costs.scan_value
        # The first native scan has a fixed cost, which is already paid if another file must be scanned anyway.
        base = 0.0 if scans or scan.access.scanned() else base
        share = costs.in_parallel(1.0, round(sum(each.pages.pages for each in read.values())))
        groups = sum(each.cached.card.num_row_groups for each in read.values())
        scan_share = _share_until_limit(scan) * (1.0 if scan.remote else shared(1.0, groups))
        # What takes so little is read by page: weighing a file takes as long as reading a page.
        little = max(LITTLE_SECONDS, min(WORTH_SECONDS, base + len(read) * costs.scan_file * scan_share))
        if sum(each.pages.seconds(costs) for each in read.values()) * share > little:
            weighed = {at: _weigh(scan, each, at, native, caches, scan_share) for at, each in read.items()}
    if weighed:
        savings = {
            at: each.seconds * share - each.scan for at, each in weighed.items() if each.seconds * share > each.scan
        }
        faster = list(savings) if sum(savings.values()) > base else []
        pages = sum(each.seconds for each in weighed.values()) * share
        whole = sum(each.scan for each in weighed.values()) + base
        both = pages - sum(savings.values()) + base
        # Some files by page and some by scan is a third way, which is taken if it is clearly faster. A try in a bucket
        # costs requests.
        if times is not None and not scan.remote and both > CLEARLY * min(pages, whole):
            undecided = _undecided(scan, native, (pages, whole), pages <= whole, times)
        if undecided is not None:
            faster = [] if undecided.by_pages else list(weighed)
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


class _PageRead(NamedTuple):
    """The wanted columns that a file has, and the work of reading them by page."""

    cached: CachedCard
    columns: list[str]
    pages: Estimate


@dataclass(frozen=True, slots=True)
class _Estimates:
    """The time of a file by page, by row group (if `wider` has the rows for that) and by native scan."""

    seconds: float
    wider: Rows | None
    scan: float


def _weigh(
    scan: ScanPlan, read: _PageRead, position: int, native: NativeFilter, caches: Caches | None, scan_share: float
) -> _Estimates:
    rows, costs = scan.access.rows[position], scan.costs
    (cached, columns, pages), wider = read, None
    is_inexact = position in scan.access.inexact
    # Conditions are evaluated before other columns are read, and once more by DataFusion.
    evaluating = native.row_seconds * (2 if is_inexact else 1)
    seconds = pages.seconds(costs) + rows.count * evaluating
    if pages.requests > len(columns):
        all_rows, groups = by_row_groups(cached, columns, rows)
        # The rows are found by their values then: the file is opened twice, and each value of an IN is put into a set.
        finding = costs.file + native.values * costs.scan_list
        whole = groups.seconds(costs) + all_rows.count * evaluating + finding
        if whole < seconds:
            wider, seconds = all_rows, whole
    by_scan = scan_seconds(cached, columns, rows, _bounded(scan, position), native, costs) * scan_share
    if (
        caches is not None
        and seconds > by_scan
        and rows.count <= FEW_ROWS
        and cached.sizes(tuple(columns)).dictionaries
    ):
        path = scan.path(scan.snapshot.files[position])
        kept = _with_dictionaries(path, cached, columns, rows, pages, caches, costs, by_scan)
        seconds, wider = (kept, None) if kept < seconds else (seconds, wider)
    # For the other columns, the file is opened again.
    return _Estimates(seconds + (costs.file if is_inexact else 0.0), wider, by_scan)


def _left_by_bounds(scan: ScanPlan) -> AccessPlan:
    """Before indexes of single files, which DataFusion does not know."""
    return scan.pruning.accesses[-2] if scan.pruning is not None and len(scan.pruning.accesses) > 1 else scan.access


def _bounded(scan: ScanPlan, position: int) -> Rows | None:
    """The rows of a file that bounds leave, also to DataFusion; None if bounds do not help."""
    rows, before = scan.access.rows[position], _left_by_bounds(scan)
    if position in before.inexact:
        return before.rows[position]
    return rows if rows.count >= CLUSTERED * len(rows.starts) else None


def _share_until_limit(scan: ScanPlan) -> float:
    """The share of the files that a scan reads until it has enough rows: those that indexes name are evenly spread."""
    if scan.limit is None:
        return 1.0
    bounded = _left_by_bounds(scan).inexact
    named = sum(rows.count for position, rows in scan.access.rows.items() if position not in bounded)
    return min(1.0, 2 * scan.limit / max(1, named))


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
    groups = row_groups_of(cached, rows).tolist()
    read = foresee_dictionaries(path, cached, columns, rows.count, groups, caches)
    of_byte = costs.read_byte(pages.codec)
    warm = (
        replace(pages, bytes=0, values=0, texts=0).seconds(costs)
        + read.decoded * of_byte
        + read.skimmed * costs.skimmed_byte
    )
    now = warm + read.cold * of_byte
    if now <= by_scan or 2 * warm > by_scan or read.cold > caches.dictionaries.limit // SHARE_OF_CACHE:
        return now
    cached.declined = not cached.declined
    return now if cached.declined else warm
