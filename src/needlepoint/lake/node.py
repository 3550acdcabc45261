"""The parts of a lake that is read from its published registry, without a store: see docs/nodes.md."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from needlepoint.errors import StoreError
from needlepoint.indexes import IndexStores, LeafStores, SharedPacks, is_local, keeps_entries
from needlepoint.lake.locations import lake_root
from needlepoint.objects import is_url
from needlepoint.settings import Settings
from needlepoint.stores import IN_LAKE, KeyStore, LakePacks, PackStore, PieceCache, store_directory, store_name
from needlepoint.tables import Index
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    from needlepoint.tables.published import Follower


def cache_directory(root: Path | str, chosen: str) -> Path:
    """Where a reader of a lake keeps what it fetches; `chosen` is the setting."""
    if chosen:
        parent = Path(chosen).expanduser().resolve()
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().resolve() / "needlepoint"
    return parent / store_name(str(root))


def has_store(root: str | Path, store: str | Path | None) -> bool:
    """Whether a lake has a store on this machine; `store` is what a caller chose."""
    chosen = Settings.from_environment(store=store).store
    elsewhere = Settings.from_environment().registry
    return bool(elsewhere) or (store_directory(lake_root(root), chosen) / "registry.db").exists()


def open_node(root: Path | str, store: Path, settings: Settings) -> Node | None:
    """A reader of the published registry; None if the lake is read from its store, or if nothing is published."""
    if (
        settings.registry
        or settings.shared == "off"
        or (settings.shared == "auto" and (store / "registry.db").exists())
    ):
        return None
    try:
        return Node.open(root, settings)
    except FileNotFoundError:
        return None


def is_shared(root: Path | str, settings: Settings) -> bool:
    """Whether a lake that is opened for writing publishes its registry. One in PostgreSQL is asked by readers."""
    if settings.registry:
        return False
    inside = root / IN_LAKE if isinstance(root, Path) else None
    if inside is not None and Path(settings.store) != inside and (inside / "registry.db").exists():
        return False  # the packs of another store are where they would be published
    return settings.shared == "on" or (settings.shared == "auto" and isinstance(root, str))


@dataclass(frozen=True, slots=True)
class Node:
    """A reader: the copy of the registry, and where it reads packs."""

    root: Path | str
    follower: Follower
    registry: Registry
    pieces: PieceCache
    cache: Path

    @classmethod
    def open(cls, root: Path | str, settings: Settings) -> Node:
        """FileNotFoundError when no registry is published in the lake."""
        cache = cache_directory(root, settings.cache)
        refresh = settings.object_refresh if isinstance(root, str) else settings.refresh
        from needlepoint.tables.published import Follower

        follower = Follower(root, cache, refresh)
        pieces = PieceCache(cache, settings.pack_bytes)
        registry = Registry(
            follower.directory,
            root,
            own=follower.directory,
            cards=packs_at(follower.place.path("cards"), pieces),
            follow=lambda at_once: follower.follow(at_once=at_once),
        )
        return cls(root, follower, registry, pieces, cache)

    def index_stores(self, settings: Settings) -> NodeIndexStores:
        return NodeIndexStores(self, self.root, settings)

    def close(self) -> None:
        """After the registry."""
        self.pieces.close()
        self.follower.close()


def shared_packs(root: str, work: Path, registry: Registry, pieces: PieceCache | None) -> SharedPacks:
    """Packs in the bucket, of machines that share a registry."""
    identity = functools.cache(registry.identity)
    return SharedPacks(root, identity, pieces or PieceCache(work, 0), work / "scratch" / "packs")


def packs_at(place: str, pieces: PieceCache) -> PackStore:
    return LakePacks(place, pieces) if is_url(place) else PackStore(Path(place))


class NodeIndexStores(IndexStores):
    """Packs and leaf files in the lake, and keys in servers; not RocksDB, which is on the machine that writes."""

    def __init__(self, node: Node, root: Path | str, settings: Settings) -> None:
        leaves = LeafStores.cached(root, node.cache / "leaves", settings.pack_bytes)
        directory = node.follower.directory / "indexes"
        super().__init__(
            directory,
            node.registry,
            settings.block_bytes,
            settings.keys,
            leaves=leaves,
            identity=node.follower.registry_identity,
        )
        self._node = node

    def entries(self, index: Index) -> KeyStore:
        if not is_local(index):
            return super().entries(index)
        raise StoreError(
            f"the entries of index '{index.name}' are in the store of the machine that writes the lake.",
            hint="`needle store copy rocksdb lake:` moves them into the lake.",
        )

    def packs_of(self, index_id: int) -> PackStore:
        return packs_at(self._node.follower.place.path(f"indexes/{index_id}"), self._node.pieces)

    def problem(self, index: Index) -> str:
        """Packs are not listed here: a query that finds one missing scans."""
        return super().problem(index) if keeps_entries(index.kind) else ""

    def size(self, index: Index) -> int:
        return 0 if keeps_entries(index.kind) and is_local(index) else super().size(index)
