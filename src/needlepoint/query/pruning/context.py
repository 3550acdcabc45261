"""What the steps are asked, and where they report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from needlepoint.parquet.read.page_reader import ReadStats
from needlepoint.predicate import Predicate, leaves
from needlepoint.query.cache.card_cache import Cards
from needlepoint.query.cache.index_cache import FileIndexes
from needlepoint.query.cache.table_state import Prepared
from needlepoint.query.report.explain import IndexUse, StepReport
from needlepoint.query.scan.cost_model import Costs, column_bytes
from needlepoint.stores.base import KeyStore
from needlepoint.tables.model import File, Index
from needlepoint.tables.snapshots import Snapshot


@dataclass(slots=True)
class Question:
    """One predicate on one snapshot. `spent` is what the steps themselves read of files."""

    prepared: Prepared
    predicate: Predicate
    stores: Callable[[Index], KeyStore]
    cards: Cards
    range_limit: int
    columns: frozenset[str]
    costs: Costs
    file_indexes: FileIndexes
    always: bool  # ask indexes, whatever a scan costs
    only: str | None = None  # the one index that is to be asked
    steps: list[StepReport] = field(default_factory=list)
    indexes: list[IndexUse] = field(default_factory=list)
    spent: list[ReadStats] = field(default_factory=list)

    @property
    def snapshot(self) -> Snapshot:
        return self.prepared.snapshot

    @property
    def indexes_to_ask(self) -> list[Index]:
        return [index for index in self.snapshot.indexes if self.only in (None, index.name)]

    def scan_seconds(self, file: File) -> float:
        """What a native scan of the file takes, about: it reads the columns of the predicate, and little of the others
        where little matches."""
        if self.always:
            return math.inf
        card = self.cards.get(file)
        if card is None:
            return self.costs.scan_file + file.identity.size * self.costs.scan_byte
        asked = sorted({leaf.column for leaf in leaves(self.predicate) if card.has(leaf.column)})
        return self.costs.scan_file + column_bytes(card, asked) * self.costs.scan_byte
