"""What is to be read of one table, decided but not done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from needlepoint.access import AccessPlan, Rows
from needlepoint.objects import is_url
from needlepoint.parquet.card import FileCard
from needlepoint.parquet.pages import ReadStats
from needlepoint.predicate import Predicate
from needlepoint.query.cards import Cards
from needlepoint.query.gate import Costs, Native, by_pages, by_row_groups, scan_seconds
from needlepoint.tables.definitions import File
from needlepoint.tables.snapshots import Snapshot


@dataclass(slots=True)
class Reading:
    """What is to be read of one table, and afterwards what was."""

    snapshot: Snapshot
    columns: frozenset[str]
    predicate: Predicate
    plan: AccessPlan
    costs: Costs
    opaque: frozenset[str] = frozenset()
    stats: list[ReadStats] = field(default_factory=list)
    scanned: list[File] = field(default_factory=list)
    paged: list[File] = field(default_factory=list)
    widened: int = 0
    sifted: int = 0
    listed: bool = False
    may_list: bool = True

    @property
    def remote(self) -> bool:
        return is_url(self.snapshot.table.location)

    def path(self, file: File) -> str:
        return f"{self.snapshot.table.location}/{file.path}"

    def stored_columns(self) -> list[str]:
        """The wanted columns that are in the files and not in their paths, in the table's order."""
        return [name for name in self.snapshot.table.data_columns if name in self.columns]


def settle(reading: Reading, cards: Cards, native: Native, access: str = "auto") -> None:
    """Pages, row groups or the native scan for each file of which only some rows are wanted.

    `access` overrides the estimates: `pages` reads by page wherever it can, `scan` never does.
    """
    files = reading.snapshot.files
    columns = reading.stored_columns()
    scans: list[int] = []
    savings: dict[int, float] = {}
    widened: dict[int, Rows] = {}
    for position, rows in reading.plan.rows.items():
        card = cards.get(files[position])
        if card is None or access == "scan":
            scans.append(position)
        elif access == "auto" and (rows.count > 1 or position in reading.plan.rough):
            present = [name for name in columns if name in card.arrow_schema.names]
            wider, saved = _weigh(card, present, rows, position in reading.plan.rough, native, reading.costs)
            if wider is not None:
                widened[position] = wider
            if saved > 0:
                savings[position] = saved
    # Scanning at all has its price, which is paid once, and is paid already where some file is scanned anyway.
    if savings and (scans or reading.plan.scanned() or sum(savings.values()) > reading.costs.scan):
        scans += savings
    reading.plan = reading.plan.scanning(scans) if scans else reading.plan
    reading.plan = reading.plan.widened({at: rows for at, rows in widened.items() if at in reading.plan.rows})
    reading.widened = len(widened.keys() & reading.plan.rows.keys())
    reading.scanned = [files[position] for position in reading.plan.scanned()]
    reading.paged = [files[position] for position in reading.plan.rows]


def _weigh(
    card: FileCard, columns: Sequence[str], rows: Rows, rough: bool, native: Native, costs: Costs
) -> tuple[Rows | None, float]:
    """The rows of whole row groups where these are read faster, and how much time a native scan saves, if any."""
    wider = None
    seconds = by_pages(card, columns, rows).seconds(costs)
    all_rows, whole = by_row_groups(card, columns, rows)
    if whole.seconds(costs) < seconds:
        wider, seconds = all_rows, whole.seconds(costs)
    return wider, seconds - scan_seconds(card, columns, rows, rough, native, costs)
