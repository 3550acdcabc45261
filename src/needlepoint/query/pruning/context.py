"""The input of pruning."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from needlepoint.predicate import Predicate, leaves
from needlepoint.query.cache.card_cache import CardCache
from needlepoint.query.cache.index_cache import IndexCache
from needlepoint.query.cache.table_state import TableState
from needlepoint.query.scan.cost_model import FileSizes, row_seconds
from needlepoint.query.scan.costs import ZSTD, Costs
from needlepoint.stores import KeyStore
from needlepoint.tables import File, Index, Snapshot


@dataclass(frozen=True, slots=True)
class PruningContext:
    """One predicate on one snapshot, and the indexes and caches to use.

    always   use indexes at any cost
    only     the only index to use
    limit    how many of the rows that match are enough, if any of them will do
    """

    state: TableState
    predicate: Predicate
    columns: frozenset[str]
    costs: Costs
    stores: Callable[[Index], KeyStore]
    cards: CardCache
    file_indexes: IndexCache
    range_limit: int
    always: bool = False
    only: str | None = None
    limit: int | None = None

    @property
    def snapshot(self) -> Snapshot:
        return self.state.snapshot

    @property
    def indexes_to_ask(self) -> list[Index]:
        return [index for index in self.snapshot.indexes if self.only in (None, index.name)]

    def scan_seconds(self, file: File) -> float:
        """The estimated time of a native scan: it reads the columns of the predicate, and little of the others if few
        rows match."""
        if self.always:
            return math.inf
        cached = self.cards.cached(file)
        if cached is None:
            return self.costs.scan_file + file.identity.size * self.costs.scanned_byte(ZSTD)
        conditions = list(leaves(self.predicate))
        asked = sorted({leaf.column for leaf in conditions})
        evaluating = row_seconds(conditions, self.costs) * cached.card.num_rows
        (seconds,) = FileSizes.of([cached], asked).whole().scan_seconds(self.costs).tolist()
        return float(seconds + evaluating)
