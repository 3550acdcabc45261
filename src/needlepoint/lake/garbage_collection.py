"""Sweeping a lake: what nothing refers to any more is removed."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from needlepoint.indexer.sweep import sweep_entries, sweep_pack
from needlepoint.indexes.key.kind import key_bytes
from needlepoint.indexes.stored import JUST_USED
from needlepoint.lake.status import SweepReport, counted
from needlepoint.objects import is_url
from needlepoint.stores.packs import UNCLAIMED_AGE, PackStore
from needlepoint.tables import publishing
from needlepoint.tables.model import Index

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake

WORTH_A_SWEEP = 0.1  # of the entries of an index: sweeping writes all others anew
COPIES_OF_AN_ENTRY = 4  # as it is read, picked, joined with others and written


def sweep(lake: Lake, *, now: bool = False) -> SweepReport:
    """With `now` also files that are kept for a while longer, the last dead entry of an index, and what is so new that
    a process may be about to refer to it, which then has to make it again."""
    for table in lake.registry.tables():
        publishing.recover(lake.registry, lake.queue, table, keeping=not now)
    share = 0.0 if now else WORTH_A_SWEEP
    entries = sum(sweep_index_entries(lake, index, share) for index in lake.registry.indexes() if index.kind == "key")
    freed = _sweep_packs(lake, 0.0 if now else UNCLAIMED_AGE)
    unpacked = lake.unpacked.sweep(lake.registry.checksums(), just_used=0.0 if now else JUST_USED)
    staging = len(publishing.sweep_staging(lake.store, lake.registry, now=now))
    if isinstance(lake.root, str) or any(is_url(table.location) for table in lake.registry.tables()):
        staging += len(publishing.sweep_prefixes(lake.root, lake.registry, now=now))
    copies = publishing.sweep_tables(lake.registry)
    if now:
        _sweep_scratch(lake)
    lake.sweep_indexes()
    lake.registry.settle(whole=now)
    return SweepReport(freed, unpacked, staging + copies, entries)


def _sweep_scratch(lake: Lake) -> None:
    """What builds that were killed left; one of a large table begins anew then."""
    for directory in (lake.store / "scratch").glob("*"):
        if lake.registry.turns.is_claimed(directory.name) is False:
            shutil.rmtree(directory, ignore_errors=True)


def _sweep_packs(lake: Lake, older_than: float) -> int:
    packed = lake.registry.renewals.packed()
    freed = 0
    for (index_id, name), live in packed.items():
        with contextlib.suppress(FileNotFoundError):  # sync makes anew what was lost
            freed += sweep_pack(lake.registry, PackStore(lake.store / "indexes" / str(index_id)), index_id, name, live)
    wanted: dict[int, set[str]] = {}
    for index_id, pack in lake.registry.packs():
        wanted.setdefault(index_id, set()).add(pack)
    for directory in (lake.store / "indexes").glob("*"):
        if directory.name.isdigit():
            freed += PackStore(directory).sweep(wanted.get(int(directory.name), set()), older_than)
    return freed


def sweep_index_entries(lake: Lake, index: Index, worth: float) -> int:
    """Take entries of files that are gone out of a key index, if they are more than this share of all. Returns how many
    that were."""
    found = counted(lake, index)
    if not found.dead or found.dead <= worth * (found.live + found.dead):
        return 0
    table = next(table for table in lake.registry.tables() if table.id == index.table_id)
    width = key_bytes(table.schema.field(index.column).type)
    capacity = max(1 << 16, lake.settings.index_memory // ((width + 8) * COPIES_OF_AN_ENTRY))
    indexes, scratch = lake.store / "indexes", lake.store / "scratch"
    if sweep_entries(lake.registry, index, width, indexes, scratch, capacity) is None:
        return 0
    # Not closed: another thread may be asking it.
    lake.forget_store(index)
    shutil.rmtree(indexes / str(index.id), ignore_errors=True)
    return found.dead
