"""Remove what nothing in a lake refers to any more."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from needlepoint.indexer import sweep_cards, sweep_entries, sweep_packs
from needlepoint.indexes import JUST_USED
from needlepoint.lake.status import SweepReport
from needlepoint.objects import is_url
from needlepoint.stores import UNCLAIMED_AGE
from needlepoint.tables import Index, recover, sweep_prefixes, sweep_staging, sweep_tables

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake

WORTH_A_SWEEP = 0.1  # of the entries of an index, or the bytes of a pack of cards: sweeping rewrites all others


def sweep(lake: Lake, *, now: bool = False) -> SweepReport:
    """With `now` also files that are kept for a while, every dead entry of an index, and what is so new that a process
    may be about to refer to it, which then makes it again."""
    for table in lake.registry.tables.all():
        recover(lake.registry, lake.queue, table, keeping=not now)
    share = 0.0 if now else WORTH_A_SWEEP
    entries = sum(sweep_index_entries(lake, index, share) for index in lake.registry.indexes.all())
    age = 0.0 if now else UNCLAIMED_AGE
    freed = sweep_packs(lake.registry, lake.index_stores, age) + sweep_cards(lake.registry, age, share)
    unpacked = lake.unpacked.sweep(lake.registry.payloads.checksums(), just_used=0.0 if now else JUST_USED)
    staging = len(sweep_staging(lake.store, lake.registry, now=now))
    if isinstance(lake.root, str) or any(is_url(table.location) for table in lake.registry.tables.all()):
        staging += len(sweep_prefixes(lake.root, lake.registry, now=now))
    copies = sweep_tables(lake.registry)
    if now:
        _sweep_scratch(lake)
    lake.index_stores.sweep(0.0 if now else UNCLAIMED_AGE)
    lake.registry.settle(whole=now)
    if lake.publisher is not None:
        freed += lake.publisher.sweep(now=now)
    return SweepReport(freed, unpacked, staging + copies, entries)


def _sweep_scratch(lake: Lake) -> None:
    """Remove what killed builds left behind; a killed build of a large table starts over then."""
    for directory in (lake.store / "scratch").glob("*"):
        if lake.registry.locks.is_claimed(directory.name) is False:
            shutil.rmtree(directory, ignore_errors=True)


def sweep_table_entries(lake: Lake, table: str, worth: float = 0.0) -> int:
    """Remove entries of deleted files from the indexes of a table where their share is larger than `worth`. Returns how
    many."""
    indexes = lake.registry.indexes.of(lake.registry.tables.get(table))
    return sum(sweep_index_entries(lake, index, worth) for index in indexes)


def sweep_index_entries(lake: Lake, index: Index, worth: float) -> int:
    """Remove entries of deleted files from an index, if their share is larger than `worth`. Returns how many."""
    return sweep_entries(
        lake.registry, lake.index_stores, index, lake.store / "scratch", lake.settings.index_memory, worth
    )
