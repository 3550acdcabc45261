"""Index kinds by name."""

from __future__ import annotations

from needlepoint.errors import UnknownName
from needlepoint.indexes.base import IndexKind


def kind(name: str) -> IndexKind:
    raise UnknownName("index kind", name, ["key"])
