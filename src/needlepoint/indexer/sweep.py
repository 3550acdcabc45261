"""What indexes know of files that are gone, taken out of them.

A key index is read once through, in order, and entries of files that it still covers become the runs of a new database,
which takes its place in one commit under a new id. A pack with payloads that nobody wants becomes a pack without them.
Readers of the old ones find them gone, and scan.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from needlepoint.errors import UnknownName
from needlepoint.stores.base import Entries, IndexDamaged, KeyStore, name_in_range
from needlepoint.stores.packs import PackStore, PackWriter
from needlepoint.stores.rocksdb import RocksKeyStore
from needlepoint.tables.model import Index
from needlepoint.tables.registry.index_generations import Packed
from needlepoint.tables.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class Counted:
    """Entries of a key index: of files it covers, and of others."""

    live: int
    dead: int


def count(registry: Registry, store: KeyStore, index: Index) -> Counted:
    """Never fewer dead entries than there are: an entry that lies in two runs counts twice."""
    with registry.snapshot():
        runs, live = registry.runs(index), sum(registry.renewals.entries(index).values())
    store.refresh(runs)
    return Counted(live, max(0, store.count() - live))


def sweep_entries(
    registry: Registry, index: Index, width: int, indexes: Path, scratch: Path, capacity: int
) -> int | None:
    """Make a key index anew of its live entries. Returns its new id; None when it was dropped, or begun
    anew, meanwhile."""
    with registry.snapshot():
        try:
            runs = registry.runs(index)
        except UnknownName:
            return None
        files = registry.renewals.entries(index)
    # A reader of its own: those of queries may be closed and opened again meanwhile.
    store = RocksKeyStore(indexes / str(index.id), width)
    new_id = registry.renewals.new_id()
    beside = scratch / uuid.uuid4().hex
    database = RocksKeyStore(beside / "database", width)
    covered = np.array(sorted(files), np.uint32)
    names: list[str] = []
    registry.turns.claim(beside.name)
    try:
        store.refresh(runs)
        beside.mkdir(parents=True)
        database.ingest([])
        for entries in _portions(store.scan(), covered, width, capacity):
            names.append(name_in_range(uuid.uuid4().hex, entries))
            run = beside / f"{len(names)}.sst"
            database.write_run(run, entries, names[-1])
            database.ingest([run])

        def arrive() -> None:
            (beside / "database").rename(indexes / str(new_id))

        return new_id if registry.renewals.renew(index, new_id, files.keys(), names, arrive) else None
    except IndexDamaged:
        if index.id in registry.renewals.known_ids():
            raise
        return None
    finally:
        store.close()
        shutil.rmtree(beside, ignore_errors=True)
        registry.turns.release(beside.name)


def _portions(
    chunks: Iterator[Entries], covered: npt.NDArray[np.uint32], width: int, capacity: int
) -> Iterator[Entries]:
    """Entries of covered files, as many at a time as a run takes."""
    held: list[Entries] = []
    for entries in chunks:
        ids = np.ascontiguousarray(entries[:, width : width + 4]).view(">u4").ravel()
        held.append(entries[np.isin(ids, covered)])
        if sum(map(len, held)) >= capacity:
            yield np.concatenate(held)
            held = []
    if any(map(len, held)):
        yield np.concatenate(held)


def sweep_pack(registry: Registry, packs: PackStore, index_id: int, name: str, live: Sequence[Packed]) -> int:
    """Make a pack anew of the payloads that are of use, if there are others in it. Returns the bytes that are free."""
    old = packs.path(name)
    size = old.stat().st_size
    if sum(each.length for each in live) >= size:
        return 0
    writer = PackWriter(old.parent)
    moved = []
    try:
        with old.open("rb") as file:
            for each in live:
                file.seek(each.offset)
                moved.append((each, writer.position))
                writer.add(file.read(each.length))
        writer.close()
    except BaseException:
        writer.path.unlink(missing_ok=True)
        raise
    registry.renewals.repack(index_id, name, writer.name, moved)
    old.unlink(missing_ok=True)
    return size - writer.path.stat().st_size
