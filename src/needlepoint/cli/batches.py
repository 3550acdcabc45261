"""How much a batch brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.cli.screen import count

if TYPE_CHECKING:
    from needlepoint.lake import Lake


def published(lake: Lake, table: str, batch: str | None) -> bool:
    """Whether a batch of this id is in the table."""
    if batch is None or table not in lake.tables():
        return False
    found = lake.registry.batch(lake.registry.table(table), batch)
    return found is not None and found.state != "publishing"


def rows_by_file(lake: Lake, table: str) -> dict[str, int]:
    if table not in lake.tables():
        return {}
    return {file.path: file.rows or 0 for file in lake.registry.files(lake.registry.table(table))}


def brought(before: dict[str, int], after: dict[str, int]) -> str:
    """
    >>> brought({"a.parquet": 10}, {"a.parquet": 10, "b.parquet": 2000})
    '2,000 rows in 1 file'
    """
    new = [rows for path, rows in after.items() if path not in before]
    return f"{count(sum(new), 'row')} in {count(len(new), 'file')}"
