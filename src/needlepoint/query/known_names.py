"""The tables and views that a query can name: those of the registry, or some of them."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from needlepoint.query.sql.tokens import words
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    from needlepoint.query.sql.views import View

CATALOG, SCHEMA = "needle", "lake"

# The tables that the current query may read; None means all.
visible_tables: ContextVar[frozenset[str] | None] = ContextVar("visible", default=None)


@dataclass(frozen=True, slots=True)
class Names:
    """Tables and views as of one state of the registry."""

    sequence: int
    tables: frozenset[str]
    views: list[View]

    def only(self, tables: frozenset[str]) -> Names:
        """Without other tables, and without views that say the name of one, or of such a view."""
        hidden = set(self.tables - tables)
        shown = list(self.views)
        while hiding := [name for name, view in shown if not hidden.isdisjoint(words(view))]:
            hidden |= set(hiding)
            shown = [each for each in shown if each[0] not in hiding]
        return Names(self.sequence, self.tables & tables, shown)


class KnownNames:
    """Reads the names again when the registry has changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: Names | None = None

    def current(self) -> Names:
        """What the current query can name."""
        known, tables = self.all(), visible_tables.get()
        return known if tables is None else known.only(tables)

    def all(self) -> Names:
        sequence = self._registry.sequence()
        if self._known is None or self._known.sequence != sequence:
            names = frozenset(self._registry.tables.names())
            self._known = Names(sequence, names, self._registry.views.all())
        return self._known
