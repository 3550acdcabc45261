"""What to read of one table, and the metrics of reading it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from needlepoint.access import AccessPlan
from needlepoint.objects import Identity, OpenObject, is_url
from needlepoint.parquet import ReadStats
from needlepoint.predicate import Predicate
from needlepoint.query.pruning.result import PruningResult
from needlepoint.query.scan.costs import Costs
from needlepoint.tables import File, Snapshot

# Few rows of so few files are read by page.
FEW_FILES = 2
# A query that takes less is not worth trying in two ways.
WORTH_SECONDS = 0.002
# With fewer values than this, an index is used without an estimate.
FEW_VALUES = 20
# Rows that are few enough to look their values up in dictionaries, or to read them in the process that asks.
FEW_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Undecided:
    """A choice between pages and scans that is made by the times of earlier queries with the same key. If it is not
    settled, another one may be tried next time."""

    key: Hashable
    by_pages: bool
    is_settled: bool = False


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
    postponed    whether a dictionary is decoded when the query runs again, and its values are then looked up
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
    postponed: bool = False
    limit: int | None = None
    filled: frozenset[str] = frozenset()
    counted: tuple[File, ...] = ()
    counted_by: tuple[str, ...] = ()
    views: bool = True

    @property
    def remote(self) -> bool:
        return is_url(self.snapshot.table.location)

    @property
    def left_by_bounds(self) -> AccessPlan:
        """The plan before indexes of single files, which DataFusion does not know."""
        known = self.pruning is not None and len(self.pruning.accesses) > 1
        return self.pruning.accesses[-2] if known and self.pruning is not None else self.access

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
        files, before = self.snapshot.files, self.left_by_bounds
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
