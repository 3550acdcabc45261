"""A card with what reads derive from it. A cache of cards owns it, so that both are evicted together."""

from __future__ import annotations

from needlepoint.parquet.card.card import ColumnSizes, FileCard
from needlepoint.parquet.format.bloom_filter import KnownFilters
from needlepoint.parquet.read.page_plan import ColumnsPlan, plan_columns

# Sets of columns with a plan, and with sizes.
_MOST_PLANS = 32


class CachedCard:
    """`filters` are the places of bloom filters, as far as reads found them."""

    __slots__ = ("_plans", "_sizes", "card", "filters")

    def __init__(self, card: FileCard) -> None:
        self.card = card
        self.filters: KnownFilters = {}
        self._plans: dict[tuple[str, ...], ColumnsPlan] = {}
        self._sizes: dict[tuple[str, ...], ColumnSizes] = {}

    def plan(self, columns: tuple[str, ...]) -> ColumnsPlan:
        """How to read these top-level columns. KeyError when the file lacks one."""
        found = self._plans.get(columns)
        if found is None:
            found = plan_columns(self.card, columns)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[columns] = found
        return found

    def sizes(self, columns: tuple[str, ...]) -> ColumnSizes:
        """The sizes of these columns in the whole file."""
        found = self._sizes.get(columns)
        if found is None:
            found = self.card.sizes(columns)
            if len(self._sizes) >= _MOST_PLANS:
                self._sizes.clear()
            self._sizes[columns] = found
        return found
