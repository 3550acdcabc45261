"""What tasks made becomes visible: entries and packs move into the store, then the registry commits.

Entries come first: they are invisible until the registry says that the file is indexed. It says nothing about an index
that was dropped or replaced meanwhile, so what was made for it has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from needlepoint.errors import UnknownName
from needlepoint.indexer.build import Artifact
from needlepoint.indexes import IndexStores, is_current, keeps_entries
from needlepoint.stores import IndexDamaged, KeyStore, MergesInTasks, StoreTasks
from needlepoint.tables import Index
from needlepoint.tables.registry import Registry


def commit(
    registry: Registry, stores: IndexStores, indexes: Sequence[Index], tasks: StoreTasks, artifact: Artifact
) -> None:
    """`tasks` merge what a store has too many runs of, if it lets others do that."""
    current = {index.id for index in registry.indexes.all()}
    for index in indexes:
        if index.id not in current:
            continue
        packs = [Path(pack.path) for pack in artifact.packs if pack.index_id == index.id]
        if packs:
            stores.packs(index).ingest(packs)
        runs = [Path(run.path) for run in artifact.runs if run.index_id == index.id]
        try:
            if runs:
                _ingest(stores.entries(index), runs, tasks)
        except IndexDamaged:
            stores.replace_index(index)
    made = [(run.index_id, run.name) for run in artifact.runs]
    registry.commit_artifacts(artifact.files, made, artifact.entries)
    registry.files.note_problems({each.file_id: each.reason for each in artifact.failures if each.file_id is not None})


def _ingest(store: KeyStore, runs: Sequence[Path], tasks: StoreTasks) -> None:
    if isinstance(store, MergesInTasks):
        store.ingest_and_merge(runs, tasks)
    else:
        store.ingest(runs)


def repair_cards(registry: Registry) -> None:
    """Make the registry forget the cards whose packs are lost or cut, so that a build makes them again."""
    registry.share_cards()
    registry.cards.forget_packs(registry.cards.lost())


def repair(registry: Registry, stores: IndexStores, index: Index) -> None:
    """Make the registry forget what an index has lost, so that a build makes it again."""
    if not keeps_entries(index.kind):
        _forget_lost_payloads(registry, stores, index)
        return
    try:
        stores.check(index)
    except UnknownName:
        return  # dropped meanwhile
    except IndexDamaged:
        stores.replace_index(index)


def _forget_lost_payloads(registry: Registry, stores: IndexStores, index: Index) -> None:
    """Those whose pack is lost, and those that are not of a current version. A pack that is not here may be on the disk
    of another machine, if packs are not shared: then only `repair` and `rebuild` build its payloads again."""
    stores.share(index)
    places = registry.payloads.places(index)
    packs = {place.pack for place in places.values() if place.pack}
    lost = stores.packs(index).missing(packs) if stores.has_all_packs else set[str]()
    stale = [id for id, place in places.items() if place.pack in lost or not is_current(index.kind, place.version)]
    if stale:
        registry.payloads.forget(index, stale)
