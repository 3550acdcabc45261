"""What indexes keep: the only module that chooses a backend.

EntryKind     one sorted store of entries for all files: in RocksDB, one directory per index id in the store of the
              lake; in leaf files, one directory per index id in the lake itself; or in a server, by the id of the
              lake and that of the index
PayloadKind   packs, with the payloads of many files each, in a directory of the lake's store, or in a bucket
"""

from __future__ import annotations

import functools
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from needlepoint import forks
from needlepoint.errors import NeedlepointError, UnknownName
from needlepoint.indexes.key_servers import IN_LAKE_STORE, KeyServers, store_of
from needlepoint.indexes.kinds import entry_kind, keeps_entries
from needlepoint.indexes.leaf_stores import LEAF_FILES, LeafStores, leaf_key_bits
from needlepoint.stores import BLOCK_BYTES, UNCLAIMED_AGE, Entries, IndexDamaged, KeyStore, PackStore
from needlepoint.tables import Index, Table
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    from needlepoint.indexes.shared_packs import SharedPacks
    from needlepoint.stores.leaf_files import LeafKeyStore

# Of an index whose column is no longer in the table: it is destroyed or counted, and never searched.
_ANY_WIDTH = 8


def key_store(directory: Path, key_bytes: int, block_bytes: int = BLOCK_BYTES) -> KeyStore:
    """In RocksDB. Stores with the same `block_bytes` share that much memory for blocks they read."""
    from needlepoint.stores import RocksKeyStore

    return RocksKeyStore(directory, key_bytes, block_bytes)


_FORMATS = {IN_LAKE_STORE: "sst", LEAF_FILES: "leaf"}


def run_format(index: Index) -> str:
    """What `write_run` must write for the store of an index."""
    return _FORMATS.get(store_of(index), "plain")


def write_run(path: Path, entries: Entries, name: str, key_bytes: int, format: str = "sst") -> None:
    """Write ascending entries as a run that a store of these keys can ingest; any process can."""
    if format == "sst":
        key_store(path.parent, key_bytes).write_run(path, entries, name)
    elif format == "leaf":
        from needlepoint.stores.leaf_files import LeafKeyStore

        bits = leaf_key_bits(key_bytes)
        LeafKeyStore(str(path.parent), key_bytes, key_bits=bits).write_run(path, entries, name)
    else:
        from needlepoint.stores.keys import write_run_file

        write_run_file(path, entries, name)


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """A store that is filled before the registry knows its id. `install` is called in the transaction that makes it
    the index's; `abandon` when there is none."""

    store: KeyStore
    install: Callable[[], None]
    abandon: Callable[[], None]


class IndexStores:
    """Each store is opened once in a process, and shared by its threads."""

    def __init__(
        self,
        directory: Path,
        registry: Registry,
        block_bytes: int,
        keys: str = "",
        leaves: LeafStores | None = None,
        identity: Callable[[], str] | None = None,
        shared: SharedPacks | None = None,
    ) -> None:
        """`keys` is the setting; `leaves` are those in the lake, by default the one that the store is in; `identity` is
        that of the registry, if it is a copy of another one; `shared` are packs that other machines write, too."""
        self._identity = functools.cache(identity or registry.identity)
        self._leaves = leaves or LeafStores(directory.parent.parent)
        self._directory = directory
        self._shared = shared
        self._registry = registry
        self._block_bytes = block_bytes
        self._servers = KeyServers(directory.parent, registry, keys, self._identity)
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
        self._servers.close()

    def declared_store(self, kind: str, given: object = None) -> str:
        """The store of a new index, as the registry keeps it: the one that is given, or the setting's. An error if it
        is none, or does not answer."""
        return self._servers.declared(keeps_entries(kind), given)

    def entries(self, index: Index) -> KeyStore:
        """The store of an EntryKind."""
        with self._lock:
            if index.id not in self._open:
                store = self._store(index, self._block_bytes)
                # A replaced generation is left to its readers, and takes no memory after them.
                current = {each.id for each in self._registry.indexes.all()}
                self._open = {id: store for id, store in self._open.items() if id in current}
                self._open[index.id] = store
            return self._open[index.id]

    def _store(self, index: Index, block_bytes: int = BLOCK_BYTES) -> KeyStore:
        width, url = self._key_bytes(index), store_of(index)
        if url == IN_LAKE_STORE:
            return key_store(self._place(index.id), width, block_bytes)
        if url == LEAF_FILES:
            return self._leaves.store(self._identity(), index.id, width, block_bytes)
        from needlepoint.stores.keys import BlockKeyStore

        return BlockKeyStore(self._servers.space(url, index.id), width, block_bytes)

    def packs(self, index: Index) -> PackStore:
        """The packs of a PayloadKind."""
        return self.packs_of(index.id)

    def packs_of(self, index_id: int) -> PackStore:
        return PackStore(self._place(index_id)) if self._shared is None else self._shared.of(index_id)

    @property
    def has_all_packs(self) -> bool:
        """Whether no other machine has packs that this one lacks."""
        return self._shared is not None or not self._registry.is_on_server

    def share(self, index: Index) -> None:
        """Put packs that are on the disk of this machine where others have theirs."""
        if self._shared is not None:
            self.take_packs(index, PackStore(self._place(index.id)))

    def take_packs(self, index: Index, other: PackStore) -> None:
        """Copy the packs of an index that are missing, as far as the other store has them."""
        here, names = self.packs(index), self._registry.payloads.packs_of(index)
        for name in sorted(here.missing(names & other.sizes().keys())):
            here.take(other, name)

    def ids(self) -> list[int]:
        """Of all indexes that keep something in the lake, its store or a server that answers, known to the registry or
        not."""
        return sorted({*self._local_ids(), *self._leaf_ids(), *self._pack_ids(), *self._servers.ids()})

    def _pack_ids(self) -> dict[int, float]:
        return {} if self._shared is None else self._shared.ids()

    def _leaf_ids(self) -> dict[int, float]:
        return self._leaves.ids(self._identity()) if self._servers.uses_leaf_files else {}

    def _local_ids(self) -> list[int]:
        return [int(path.name) for path in self._directory.glob("*") if path.name.isdecimal()]

    def create(self, index: Index) -> None:
        """From here on a missing store means a lost index, not an empty one."""
        self._remove_older(index)
        self._creation(index)()

    def replace_index(self, index: Index) -> None:
        """Replace an index with an empty generation under a new id. A query or a build that still has the old id reads
        nothing from the new one, and writes nothing to it. Until it is built again, queries scan."""
        generations = self._registry.generations
        new = replace(index, id=generations.reserve())
        self._remove_older(new)
        if generations.replace(index, new.id, (), (), self._creation(new)):
            self.destroy(index.id)
        elif store_of(new) != IN_LAKE_STORE:
            self.destroy(new.id)

    def _remove_older(self, index: Index) -> None:
        """Remove what is there under a new id: a registry that was replaced by an older backup of it had it before."""
        if keeps_entries(index.kind):
            store = self._store(index)
            try:
                store.destroy()
            except IndexDamaged:  # some tables of a server are gone
                store.ingest([])
                store.destroy()
            store.close()

    def destroy(self, index_id: int) -> None:
        """Remove all that an index keeps, whatever its kind. A server that does not answer keeps it until a sweep."""
        with self._lock:
            store = self._open.pop(index_id, None)
        if store is not None:
            store.close()
        key_store(self._place(index_id), _ANY_WIDTH).destroy()
        PackStore(self._place(index_id)).destroy()
        self._destroy_elsewhere(index_id)

    def _destroy_elsewhere(self, index_id: int) -> None:
        """In the lake and in servers."""
        if self._shared is not None:
            self._shared.of(index_id).destroy()
        if self._servers.uses_leaf_files:
            self._leaves.destroy(self._identity(), index_id)
        self._servers.destroy(index_id)

    def retire(self, index_id: int) -> None:
        """Remove what a replaced generation keeps. Its store is not closed: another thread may be reading it."""
        with self._lock:
            self._open.pop(index_id, None)
        shutil.rmtree(self._place(index_id), ignore_errors=True)
        self._destroy_elsewhere(index_id)

    def sweep(self, older_than: float = UNCLAIMED_AGE) -> None:
        """Destroy what replaced generations, and drops that were killed, left behind, and leaf files that were merged.
        In the lake and in a server, what is younger may be a generation that another process fills."""
        # In this order: an index is in the registry before it has a store, or gets one in the commit that adds it.
        there, served = self._local_ids(), {**self._servers.ids(), **self._leaf_ids(), **self._pack_ids()}
        if not {index.id for index in self._registry.indexes.all()}.issuperset([*there, *served]):
            known = self._registry.generations.current_ids()
            for id in {*there, *(id for id, age in served.items() if age >= older_than)} - known:
                self.destroy(id)
        for index in self._registry.indexes.all():
            if store_of(index) == LEAF_FILES:
                self._leaves.sweep(self._identity(), index.id, self._key_bytes(index), older_than)

    def size(self, index: Index) -> int:
        """Bytes on disk, or in a server; of an embedded index, those inside the files."""
        return self.entries(index).size() if keeps_entries(index.kind) else self._registry.payloads.size(index)

    def check(self, index: Index) -> None:
        """IndexDamaged if the store of an EntryKind has lost runs or files; no entry is read. Lookups in a bucket do
        not list its leaf files, so they find a lost one when they need it."""
        store = self.entries(index)
        store.refresh(self._registry.indexes.runs(index))
        if store_of(index) == LEAF_FILES:
            cast("LeafKeyStore", store).check_leaves()

    def problem(self, index: Index) -> str:
        """Why the store of an index cannot be used now; empty if it can."""
        if not keeps_entries(index.kind):
            lost = self.packs(index).missing(self._registry.payloads.packs_of(index))
            return f"{self.packs(index).where(min(lost))} is missing." if lost else ""
        try:
            self.check(index)
        except UnknownName:
            return ""  # dropped meanwhile
        except NeedlepointError as error:  # the package of a driver may be missing, or a variable with a password
            return str(error)
        return ""

    def format_of(self, store: str) -> int | None:
        """The version of how keys are kept in a store; None if it has none of ours."""
        if store == IN_LAKE_STORE:
            return None
        if store == LEAF_FILES:
            from needlepoint.stores.leaf_files import FORMAT

            return FORMAT
        from needlepoint.stores.keys import FORMAT as BLOCKS

        return BLOCKS

    def reader(self, index: Index, *, cached: bool = True) -> KeyStore:
        """Another store of the same entries, for a long scan: those of queries may be closed and opened meanwhile. One
        that is not `cached` reads all that it returns."""
        return self._store(index, self._block_bytes if cached else 0)

    def new_generation(self, index: Index, beside: Path) -> NewGeneration:
        """An empty store for an index whose id is reserved: in a directory `beside` the others, on the same file
        system, or in a server, where nobody knows its id yet."""
        self._remove_older(index)
        if store_of(index) != IN_LAKE_STORE:
            store = self._store(index)
            store.ingest([])
            return NewGeneration(store, lambda: None, lambda: self._destroy_elsewhere(index.id))
        store, directory = key_store(beside / "database", self._key_bytes(index)), beside / "database"
        store.ingest([])
        return NewGeneration(store, lambda: self._install(directory, index.id), lambda: None)

    def _install(self, directory: Path, index_id: int) -> None:
        self._directory.mkdir(exist_ok=True)
        directory.rename(self._place(index_id))

    def _creation(self, index: Index) -> Callable[[], None]:
        """What makes an index that is there, and empty. A pack store without packs needs nothing. A store in a server
        is made before: a transaction of the registry does not wait for a server."""
        if not keeps_entries(index.kind):
            return lambda: None
        store = self.entries(index)
        if store_of(index) != IN_LAKE_STORE:
            store.ingest([])
            return lambda: None
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


def kind_options(index: Index) -> str:
    """The options that its kind knows, as JSON: without the store, which is nobody else's business."""
    options = json.loads(index.options)
    return json.dumps({name: value for name, value in options.items() if name != "store"}, sort_keys=True)
