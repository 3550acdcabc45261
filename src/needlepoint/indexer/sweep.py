"""Remove what indexes keep of files that are gone.

A key index is read once, in order, and the entries of files that it still covers become the runs of a new store, which
replaces the old one in one commit, under a new id. Entries that do not have enough of their keys for the new store are
made from the files again. A pack with payloads that nothing refers to is copied without them.
Readers of the old store or pack find it gone, and scan.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from needlepoint.errors import StoreError, UnknownName
from needlepoint.indexer.build import Artifact, BuildTask, build
from needlepoint.indexer.plan import file_tasks, index_tasks
from needlepoint.indexes import IndexStores, entries_per_file, entry_kind, index_fields, keeps_entries
from needlepoint.stores import Entries, IndexDamaged, KeyStore, PackStore, name_in_range
from needlepoint.tables import Index
from needlepoint.tables.registry import PackEntry, Registry

# An entry is held as it is read, as it is selected, as it is joined with others, and as it is written.
COPIES_OF_AN_ENTRY = 4
FEWEST_ENTRIES = 1 << 16


@dataclass(frozen=True, slots=True)
class EntryCount:
    """Entries of an index: of files it covers, and of others. `is_known`: all runs are known to the registry."""

    live: int
    dead: int
    is_known: bool = True


def count_entries(registry: Registry, stores: IndexStores, index: Index) -> EntryCount:
    """Never fewer dead entries than there are: an entry that is in two runs counts twice. Of an index that cannot be
    read, or that keeps no entries in a store, those that the registry knows."""
    try:
        if keeps_entries(index.kind):
            with registry.snapshot():
                runs, live = registry.indexes.runs(index), sum(registry.indexes.entries(index).values())
            store = stores.entries(index)
            store.refresh(runs)
            return EntryCount(live, max(0, store.count() - live), not store.has_other_runs())
    except StoreError:
        pass
    return EntryCount(registry.indexes.coverage(index)[1], 0)


def sweep_entries(
    registry: Registry, stores: IndexStores, index: Index, scratch: Path, memory: int, worth: float
) -> int:
    """Remove entries of files that are gone, if they are more than this share of all. If any is worth it, also those of
    runs that the registry does not know; otherwise a writer may be about to commit them. Returns how many there were.
    """
    found = count_entries(registry, stores, index)
    is_worth = found.dead and found.dead > worth * (found.live + found.dead)
    if not is_worth and (found.is_known or worth):
        return 0
    return found.dead if copy_entries(registry, stores, index, scratch, memory, index.options) else 0


def copy_entries(
    registry: Registry, stores: IndexStores, index: Index, scratch: Path, memory: int, options: str
) -> bool:
    """Continue an index as a generation of its live entries, with these options, which may name another store. False
    when it was dropped or replaced meanwhile, or its column is gone."""
    table = next((table for table in registry.tables.all() if table.id == index.table_id), None)
    fields = None if table is None else index_fields(table, index)
    if fields is None:
        return False
    width = entry_kind(index.kind).key_bytes(fields)
    if not _copy_live_entries(registry, stores, index, width, scratch, memory, options):
        return False
    stores.retire(index.id)
    return True


def _copy_live_entries(
    registry: Registry, stores: IndexStores, index: Index, width: int, scratch: Path, memory: int, options: str
) -> bool:
    with registry.snapshot():
        try:
            runs = registry.indexes.runs(index)
        except UnknownName:
            return False
        files = registry.indexes.entries(index)
    store = stores.reader(index)
    new = replace(index, id=registry.generations.reserve(), options=options)
    beside = scratch / uuid.uuid4().hex
    generation = None
    installed = False
    names: list[str] = []
    covered = frozenset(files)
    registry.locks.claim(beside.name)
    try:
        store.refresh(runs)
        beside.mkdir(parents=True)
        generation = stores.new_generation(new, beside)
        if store.key_bits() in (8 * width, generation.store.key_bits()):
            capacity = max(FEWEST_ENTRIES, memory // ((width + 8) * COPIES_OF_AN_ENTRY))
            covered = _with_own_entries(store, files)
            for entries in _portions(store.scan(), covered, capacity):
                names.append(name_in_range(uuid.uuid4().hex, entries))
                run = beside / f"{len(names)}.run"
                generation.store.write_run(run, entries, names[-1])
                generation.store.ingest([run])
        else:
            made = _entries_of_files(registry, new, covered, beside, memory)
            generation.store.ingest([Path(run.path) for run in made.runs])
            names = [run.name for run in made.runs]
            covered -= {each.file_id for each in made.failures}
        installed = registry.generations.replace(index, new.id, covered, names, generation.install, new.options)
        return installed
    except IndexDamaged:
        if index.id in registry.generations.current_ids():
            raise
        return False
    finally:
        store.close()
        if generation is not None and not installed:
            generation.abandon()
        shutil.rmtree(beside, ignore_errors=True)
        registry.locks.release(beside.name)


def _with_own_entries(store: KeyStore, files: Mapping[int, int]) -> frozenset[int]:
    """The files, by id, without those that have entries of others. Sync builds theirs again."""
    if not store.has_other_runs():
        return frozenset(files)
    counted = np.zeros(max(files, default=0) + 1, np.int64)
    for entries in store.scan():
        counted += entries_per_file(entries, len(counted))
    return frozenset(id for id, entries in files.items() if counted[id] == entries)


def _entries_of_files(registry: Registry, new: Index, covered: frozenset[int], scratch: Path, memory: int) -> Artifact:
    """The runs of a generation, made from the data of these files, or from what they carry. One that changed meanwhile
    is a failure, and the next sync looks at it."""
    table = registry.tables.of(new)
    files = sorted((file for file in registry.files.of(table) if file.id in covered), key=lambda file: file.id or 0)
    tasks = file_tasks(registry, table, files, frozenset({new.id}), trust_embedded=False)
    indexes = tuple(replace(task, embed=False) for task in index_tasks(table, [new]))
    return build(BuildTask(tuple(tasks), indexes, memory), scratch)


def _portions(chunks: Iterator[Entries], covered: frozenset[int], capacity: int) -> Iterator[Entries]:
    """Entries of covered files, as many at a time as a run takes."""
    held: list[Entries] = []
    wanted = np.array(sorted(covered), np.uint32)
    for entries in chunks:
        ids = np.ascontiguousarray(entries[:, -8:-4]).view(">u4").ravel()
        held.append(entries[np.isin(ids, wanted)])
        if sum(map(len, held)) >= capacity:
            yield np.concatenate(held)
            held = []
    if any(map(len, held)):
        yield np.concatenate(held)


def sweep_packs(registry: Registry, stores: IndexStores, older_than: float) -> int:
    """Remove payloads of files that are gone, and packs that nothing refers to. Returns the bytes that are free."""
    freed, sizes = 0, functools.cache(lambda index_id: stores.packs_of(index_id).sizes())
    for (index_id, name), live in registry.payloads.pack_entries().items():
        with contextlib.suppress(FileNotFoundError):  # sync builds again what was lost
            size = sizes(index_id).get(name, 0)
            freed += _sweep_pack(registry, stores.packs_of(index_id), index_id, name, size, live)
    wanted: dict[int, set[str]] = {}
    for index_id, pack in registry.payloads.packs():
        wanted.setdefault(index_id, set()).add(pack)
    return freed + sum(stores.packs_of(id).sweep(wanted.get(id, set()), older_than) for id in stores.ids())


def _sweep_pack(
    registry: Registry, packs: PackStore, index_id: int, name: str, size: int, live: Sequence[PackEntry]
) -> int:
    """Copy the payloads that are of use into a new pack, if there are others. Returns the bytes that are free."""
    if sum(each.length for each in live) >= size:
        return 0
    with packs.open(name) as file:
        copied, kept = packs.write(file.read(each.offset, each.length) for each in live)
    starts = itertools.accumulate((each.length for each in live), initial=0)
    registry.payloads.repack(index_id, name, copied, list(zip(live, starts, strict=False)))
    packs.remove(name)
    return size - kept
