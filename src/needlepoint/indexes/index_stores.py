"""What indexes keep in the store of a lake, one directory per index id: the only module that chooses a backend.

EntryKind     one sorted store of entries for all files, in RocksDB
PayloadKind   packs, with the payloads of many files each
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from needlepoint import forks
from needlepoint.errors import UnknownName
from needlepoint.indexes.kinds import entry_kind, keeps_entries
from needlepoint.stores import BLOCK_BYTES, Entries, KeyStore, PackStore
from needlepoint.tables import Index, Table
from needlepoint.tables.registry import Registry

# Of an index whose column is no longer in the table: it is destroyed or counted, and never searched.
_ANY_WIDTH = 8


def key_store(directory: Path, key_bytes: int, block_bytes: int = BLOCK_BYTES) -> KeyStore:
    """Stores with the same `block_bytes` share that much memory for blocks they read."""
    from needlepoint.stores import RocksKeyStore

    return RocksKeyStore(directory, key_bytes, block_bytes)


def write_run(path: Path, entries: Entries, name: str, key_bytes: int) -> None:
    """Write ascending entries as a run that a store of these keys can ingest; any process can."""
    key_store(path.parent, key_bytes).write_run(path, entries, name)


class IndexStores:
    """Each store is opened once in a process, and shared by its threads."""

    def __init__(self, directory: Path, registry: Registry, block_bytes: int) -> None:
        self._directory = directory
        self._registry = registry
        self._block_bytes = block_bytes
        self._open: dict[int, KeyStore] = {}
        self._lock = threading.Lock()
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it: see forks.py."""
        for store in self._open.values():
            forks.leak(store)
        self._open, self._lock = {}, threading.Lock()

    def close(self) -> None:
        for store in self._open.values():
            store.close()

    def entries(self, index: Index) -> KeyStore:
        """The store of an EntryKind."""
        with self._lock:
            if index.id not in self._open:
                width = self._key_bytes(index)
                # A replaced generation is left to its readers, and takes no memory after them.
                current = {each.id for each in self._registry.indexes.all()}
                self._open = {id: store for id, store in self._open.items() if id in current}
                self._open[index.id] = key_store(self._place(index.id), width, self._block_bytes)
            return self._open[index.id]

    def packs(self, index: Index) -> PackStore:
        """The packs of a PayloadKind."""
        return self.packs_of(index.id)

    def packs_of(self, index_id: int) -> PackStore:
        return PackStore(self._place(index_id))

    def ids(self) -> list[int]:
        """Of all indexes that keep something here, known to the registry or not."""
        return [int(path.name) for path in self._directory.glob("*") if path.name.isdecimal()]

    def create(self, index: Index) -> None:
        """From here on a missing directory means a lost index, not an empty one."""
        self._creation(index)()

    def replace_index(self, index: Index) -> None:
        """Replace an index with an empty generation under a new id. A query or a build that still has the old id reads
        nothing from the new one, and writes nothing to it. Until it is built again, queries scan."""
        generations = self._registry.generations
        new_id = generations.reserve()
        if generations.replace(index, new_id, (), (), self._creation(replace(index, id=new_id))):
            self.destroy(index.id)

    def destroy(self, index_id: int) -> None:
        """Remove all that an index keeps, whatever its kind."""
        with self._lock:
            store = self._open.pop(index_id, None)
        (store or key_store(self._place(index_id), _ANY_WIDTH)).destroy()
        self.packs_of(index_id).destroy()

    def retire(self, index_id: int) -> None:
        """Remove what a replaced generation keeps. Its store is not closed: another thread may be reading it."""
        with self._lock:
            self._open.pop(index_id, None)
        shutil.rmtree(self._place(index_id), ignore_errors=True)

    def sweep(self) -> None:
        """Destroy what replaced generations, and drops that were killed, left behind."""
        # In this order: an index is in the registry before it has a directory, or gets one in the commit that adds it.
        there = self.ids()
        if not {index.id for index in self._registry.indexes.all()}.issuperset(there):
            known = self._registry.generations.current_ids()
            for id in there:
                if id not in known:
                    self.destroy(id)

    def size(self, index: Index) -> int:
        """Bytes on disk; of an embedded index, those inside the files."""
        return self.entries(index).size() if keeps_entries(index.kind) else self._registry.payloads.size(index)

    def reader(self, index: Index) -> KeyStore:
        """Another store of the same entries, for a long scan: those of queries may be closed and opened meanwhile."""
        return key_store(self._place(index.id), self._key_bytes(index), self._block_bytes)

    def install(self, directory: Path, index_id: int) -> None:
        """Move a store that was built elsewhere, on the same file system, into the place of an index."""
        directory.rename(self._place(index_id))

    def _creation(self, index: Index) -> Callable[[], None]:
        """What makes an index that is there, and empty. A pack store without packs needs nothing."""
        if not keeps_entries(index.kind):
            return lambda: None
        store = self.entries(index)
        return lambda: store.ingest([])

    def _key_bytes(self, index: Index) -> int:
        table = next((table for table in self._registry.tables.all() if table.id == index.table_id), None)
        if table is None:
            raise UnknownName("index", index.name, [each.name for each in self._registry.indexes.all()])
        fields = index_fields(table, index)
        return _ANY_WIDTH if fields is None else entry_kind(index.kind).key_bytes(fields)

    def _place(self, index_id: int) -> Path:
        return self._directory / str(index_id)


def index_fields(table: Table, index: Index) -> tuple[pa.Field, ...] | None:
    """The columns of an index; None when one is no longer in the table, as a Delta or Iceberg log can have it."""
    if not set(index.columns).issubset(table.schema.names):
        return None
    return tuple(table.schema.field(name) for name in index.columns)
