"""What is to be read of one table, decided but not done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from needlepoint.access import AccessPlan, Rows
from needlepoint.objects import Identity, OpenObject, is_url
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.read.page_reader import ReadStats
from needlepoint.predicate import Predicate
from needlepoint.query.cache.card_cache import Cards
from needlepoint.query.scan.cost_model import Costs, Native, by_pages, by_row_groups, scan_seconds
from needlepoint.tables.model import File
from needlepoint.tables.snapshots import Snapshot

# So few rows of so few files take less time than a native scan takes to begin: not worth weighing.
FEW_FILES, FEW_ROWS = 2, 1000


class Held(Protocol):
    """A version of a file that stays readable while the query runs."""

    @property
    def identity(self) -> Identity: ...

    def open(self) -> OpenObject: ...

    def source(self) -> str:
        """A local path at which this version is found."""

    def check(self) -> None:
        """Raise FileChanged when it did not stay."""


@dataclass(slots=True)
class Reading:
    """What is to be read of one table, and afterwards what was. `opaque` columns DataFusion must not prune by; in those
    of `zeros` every zero is to have the same sign. `held` are versions of files, by path, that are read in the place of
    what lies there; scans find them at `sources`. Without `constants`, DataFusion does not learn that partition columns
    are constant in a file (table_provider.py)."""

    snapshot: Snapshot
    columns: frozenset[str]
    predicate: Predicate
    plan: AccessPlan
    costs: Costs
    opaque: frozenset[str] = frozenset()
    zeros: Mapping[str, float] = field(default_factory=dict)
    constants: bool = True
    stats: list[ReadStats] = field(default_factory=list)
    scanned: list[File] = field(default_factory=list)
    paged: list[File] = field(default_factory=list)
    widened: int = 0
    sifted: int = 0
    overruled: int = 0
    listed: bool = False
    may_list: bool = True
    matched: int = 0  # rows read by page that were handed on
    held: dict[str, Held] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def remote(self) -> bool:
        return is_url(self.snapshot.table.location)

    def path(self, file: File) -> str:
        return f"{self.snapshot.table.location}/{file.path}"

    def source(self, file: File) -> str:
        """Where DataFusion finds the version that is meant."""
        return self.sources.get(file.path) or self.path(file)

    def stored_columns(self) -> list[str]:
        """The wanted columns that are in the files and not in their paths, in the table's order."""
        return [name for name in self.snapshot.table.data_columns if name in self.columns]


def settle(reading: Reading, cards: Cards, native: Native, access: str = "auto") -> None:
    """Pages, row groups or the native scan for each file of which only some rows are wanted.

    `access` overrides the estimates: `pages` reads by page wherever it can, `scan` never does.
    """
    files = reading.snapshot.files
    scans: list[int] = []
    weighed: dict[int, _Weighed] = {}
    columns = reading.stored_columns()
    few = len(reading.plan.rows) <= FEW_FILES and sum(rows.count for rows in reading.plan.rows.values()) <= FEW_ROWS
    cards_of = {position: cards.get(files[position]) for position in reading.plan.rows}
    for position, card in cards_of.items():
        if card is None or access == "scan":
            scans.append(position)
        elif access == "auto" and not few:
            weighed[position] = _weigh(reading, card, columns, position, native)
    if weighed:
        share = reading.costs.in_parallel(1.0, len(weighed))
        savings = {
            at: each.seconds * share - each.scan for at, each in weighed.items() if each.seconds * share > each.scan
        }
        base = reading.costs.scan + native.values * reading.costs.scan_value
        # Scanning at all has its price, which is paid once, and is paid already where some file is scanned anyway.
        if scans or reading.plan.scanned() or sum(savings.values()) > base:
            scans += savings
            reading.overruled = len(savings)
    widened = {at: each.wider for at, each in weighed.items() if each.wider is not None and at not in scans}
    reading.plan = reading.plan.scanning(scans) if scans else reading.plan
    reading.plan = reading.plan.widened(widened)
    reading.widened = len(widened)
    reading.scanned = [files[position] for position in reading.plan.scanned()]
    reading.paged = [files[position] for position in reading.plan.rows]


@dataclass(frozen=True, slots=True)
class _Weighed:
    """How long a file takes by page, or by row group if `wider` says which rows that are, and by the native scan."""

    seconds: float
    wider: Rows | None
    scan: float


def _weigh(reading: Reading, card: FileCard, columns: Sequence[str], position: int, native: Native) -> _Weighed:
    rows, costs = reading.plan.rows[position], reading.costs
    columns = [name for name in columns if card.has(name)]
    pages, wider = by_pages(card, columns, rows), None
    seconds = pages.seconds(costs)
    if pages.requests > len(columns):
        all_rows, whole = by_row_groups(card, columns, rows)
        if whole.seconds(costs) < seconds:
            wider, seconds = all_rows, whole.seconds(costs)
    scan = scan_seconds(card, columns, rows, pages if position in reading.plan.rough else None, native, costs)
    return _Weighed(seconds, wider, scan)
