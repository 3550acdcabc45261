"""Move key indexes from one store to another, while queries go on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from needlepoint.errors import StoreError, TableChanged, UsageError
from needlepoint.indexer import copy_entries
from needlepoint.indexes import find_damage, is_same_store, keeps_entries, store_of
from needlepoint.query import VerifyReport, verify_indexes
from needlepoint.tables import Index

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake

ROCKSDB = "rocksdb"
"""The name of the lake's own store, beside URLs."""
SAMPLES = 20


@dataclass(frozen=True, slots=True)
class CopiedIndex:
    """An index that is in another store now, and how many of its answers were compared with a scan."""

    name: str
    entries: int
    bytes: int
    checks: int


def copy_store(lake: Lake, source: str, target: str, name: str | None = None) -> list[CopiedIndex]:
    """Copy the key indexes that are in `source`, or the one of that name, to `target`, check them, and remove them
    from the source. Each is used in its new place from the commit that ends its copy."""
    origin = lake.index_stores.declared_store("key", "" if source == ROCKSDB else source)
    place = lake.index_stores.declared_store("key", "" if target == ROCKSDB else target)
    if is_same_store(origin, place):
        raise UsageError("both stores are the same.", hint="Name another one to copy to.")
    wanted = [each for each in lake.registry.indexes.all() if keeps_entries(each.kind)]
    if name is not None:
        wanted = [lake.registry.indexes.get(name)]
    chosen = [each for each in wanted if keeps_entries(each.kind) and is_same_store(store_of(each), origin)]
    if name is not None and not chosen:
        raise UsageError(f"index '{name}' is not in that store.", hint="`needle status` shows where indexes are.")
    return [_copy(lake, index, place) for index in chosen]


def _copy(lake: Lake, index: Index, place: str) -> CopiedIndex:
    options = {key: value for key, value in json.loads(index.options).items() if key != "store"}
    text = json.dumps({**options, **({"store": place} if place else {})}, sort_keys=True)
    memory, scratch = lake.settings.index_memory, lake.store / "scratch"
    if not copy_entries(lake.registry, lake.index_stores, index, scratch, memory, text):
        raise TableChanged(f"index '{index.name}' was rebuilt or dropped while it was copied.", hint="Copy it again.")
    moved = lake.registry.indexes.get(index.name)
    table = lake.registry.tables.of(moved)
    if damage := find_damage(lake.registry, lake.index_stores, table, moved):
        raise StoreError(f"index '{index.name}' is damaged: {damage.reason}", hint="`needle repair` builds it again.")
    report: VerifyReport = verify_indexes(lake.engine, table, SAMPLES, None)
    checks = [check for check in report.checks if check.index == index.name]
    if wrong := [check for check in report.differences if check.index == index.name]:
        raise StoreError(
            f"index '{index.name}' answers differently than a scan for {wrong[0].condition}.",
            hint="`needle repair` builds it again.",
        )
    covered = lake.registry.indexes.coverage(moved)[1]
    return CopiedIndex(index.name, covered, lake.index_stores.size(moved), len(checks))
