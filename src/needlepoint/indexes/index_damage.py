"""What is wrong with what an index keeps: all of it is read, and compared with what the registry knows of it.

Queries scan without an index that they cannot read, so their answers do not show that it is damaged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from needlepoint.errors import FileChanged, FileError, NeedlepointError, PayloadDamaged, StoreError, UnknownName
from needlepoint.indexes.index_stores import IndexStores
from needlepoint.indexes.kinds import keeps_entries
from needlepoint.objects import open_object
from needlepoint.parquet.write import EmbeddedEntry, read_payload
from needlepoint.stores import Entries, IndexDamaged
from needlepoint.tables import File, Index, Place, Table
from needlepoint.tables.registry import Registry


@dataclass(frozen=True, slots=True)
class IndexDamage:
    """`files`, by id, are those whose payloads are damaged; none means the whole index. One that `is_away`, since its
    server does not answer, may be whole. Only a writer of data files repairs one that is `embedded`."""

    index: str
    kind: str
    reason: str
    files: tuple[int, ...] = ()
    is_away: bool = False
    embedded: bool = False


def find_damage(registry: Registry, stores: IndexStores, table: Table, index: Index) -> IndexDamage | None:
    """None if all of it is as the registry has it, or if it was dropped or replaced meanwhile."""
    found = _entries_damage(registry, stores, index) if keeps_entries(index.kind) else None
    if not keeps_entries(index.kind):
        found = _payload_damage(registry, stores, table, index)
    return found if index.id in {each.id for each in registry.indexes.all()} else None


def _entries_damage(registry: Registry, stores: IndexStores, index: Index) -> IndexDamage | None:
    try:
        stores.check(index)
        store = stores.reader(index, cached=False)
        try:
            with registry.snapshot():
                runs, wanted = registry.indexes.runs(index), registry.indexes.entries(index)
            store.refresh(runs)
            counted = np.zeros(max(wanted, default=0) + 1, np.int64)
            for entries in store.scan():
                counted += entries_per_file(entries, len(counted))
        finally:
            store.close()
    except UnknownName:
        return None
    except NeedlepointError as error:
        away = not isinstance(error, IndexDamaged)
        return IndexDamage(index.name, index.kind, str(error), is_away=away)
    lost = sum(counted[id] < entries for id, entries in wanted.items())
    if lost:
        return IndexDamage(index.name, index.kind, f"it has lost entries of {lost:,} of {len(wanted):,} files.")
    foreign = sum(counted[id] > entries for id, entries in wanted.items())
    if foreign:
        reason = f"it has too many entries of {foreign:,} of {len(wanted):,} files. Was the registry restored?"
        return IndexDamage(index.name, index.kind, reason)
    return None


def entries_per_file(entries: Entries, files: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many entries each file has, by id; those of later files do not count."""
    ids = np.ascontiguousarray(entries[:, -8:-4]).view(">u4").ravel().astype(np.int64)
    return np.bincount(ids[ids < files], minlength=files).astype(np.int64)


def _payload_damage(registry: Registry, stores: IndexStores, table: Table, index: Index) -> IndexDamage | None:
    files = {file.id: file for file in registry.files.of(table)}
    damaged: dict[int, str] = {}
    is_embedded = False
    places = registry.payloads.places(index)
    for id, place in sorted(places.items(), key=lambda each: (each[1].pack, each[1].offset)):
        if id in files and (reason := _place_problem(stores, table, index, files[id], place)):
            damaged[id] = reason
            is_embedded |= not place.pack
    now = registry.payloads.places(index) if damaged else {}
    damaged = {id: reason for id, reason in damaged.items() if now.get(id) == places[id]}  # else a sweep moved it
    if not damaged:
        return None
    return IndexDamage(index.name, index.kind, next(iter(damaged.values())), tuple(damaged), embedded=is_embedded)


def _place_problem(stores: IndexStores, table: Table, index: Index, file: File, place: Place) -> str:
    entry = EmbeddedEntry(
        index.kind, index.columns, place.version, place.offset, place.length, place.codec, place.size,
        place.checksum, "",
    )  # fmt: skip
    packs, where = stores.packs(index), f"{table.location}/{file.path}"
    try:
        with packs.open(place.pack) if place.pack else open_object(where, file.identity) as opened:
            if not place.pack:
                opened.check_unchanged(file.identity)
            read_payload(opened, entry)
    except FileChanged:
        return ""  # a sync looks at it
    except FileNotFoundError:
        return f"{packs.where(place.pack)} is missing." if place.pack else ""
    except (PayloadDamaged, FileError, StoreError, OSError) as error:
        return str(error)
    return ""
