"""What a batch added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.printable import count

if TYPE_CHECKING:
    from needlepoint.lake import Lake
    from needlepoint.tables import Batch


def published(lake: Lake, table: str, batch: str | None) -> bool:
    """Whether a batch of this id is in the table."""
    if batch is None or table not in lake.tables():
        return False
    found = lake.registry.batches.get(lake.registry.tables.get(table), batch)
    return found is not None and found.state != "publishing"


def brought(batch: Batch) -> str:
    return f"{count(batch.rows, 'row')} in {count(len(batch.moves), 'file')}"
