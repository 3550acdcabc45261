"""Storage of indexes and the registry.

base          the interface of a store for a key index
rocksdb       key indexes in RocksDB
leaf_files/   key indexes in the lake: Parquet files and a manifest
keys/         key indexes in servers: PostgreSQL, MySQL, Redis
packs         payloads, or cards, of many files in one
lake_packs    packs in a bucket, written by another machine
bucket_packs  packs in a bucket, which this and other machines write
piece_cache   pieces of them on the local disk
place         the directory of a lake's store
database      SQLite for the registry, the queue and the history
postgres/     PostgreSQL for the registry and the queue
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from needlepoint.stores.base import (
    BLOCK_BYTES,
    Entries,
    IndexDamaged,
    KeyStore,
    Locations,
    MergesInTasks,
    StoreTasks,
    name_in_range,
)
from needlepoint.stores.bucket_packs import BucketPacks
from needlepoint.stores.database import Database, Upgrade, is_damaged, read_only_error, statements_of
from needlepoint.stores.lake_packs import LakePacks
from needlepoint.stores.packs import UNCLAIMED_AGE, PackDamaged, PackPiece, PackStore, PackWriter
from needlepoint.stores.piece_cache import PieceCache
from needlepoint.stores.place import (
    IN_LAKE,
    check_owner,
    claim,
    lake_identity,
    set_lake_identity,
    store_directory,
    store_name,
)

if TYPE_CHECKING:
    from needlepoint.stores.rocksdb import RocksKeyStore

__all__ = [
    "BLOCK_BYTES",
    "IN_LAKE",
    "UNCLAIMED_AGE",
    "BucketPacks",
    "Database",
    "Entries",
    "IndexDamaged",
    "KeyStore",
    "LakePacks",
    "Locations",
    "MergesInTasks",
    "PackDamaged",
    "PackStore",
    "PackWriter",
    "PackPiece",
    "PieceCache",
    "RocksKeyStore",
    "StoreTasks",
    "Upgrade",
    "check_owner",
    "claim",
    "is_damaged",
    "lake_identity",
    "name_in_range",
    "read_only_error",
    "statements_of",
    "set_lake_identity",
    "store_directory",
    "store_name",
]


def __getattr__(name: str) -> Any:
    if name == "RocksKeyStore":  # loads RocksDB, which tasks of Spark that import this room do not need
        from needlepoint.stores.rocksdb import RocksKeyStore

        return RocksKeyStore
    raise AttributeError(f"module 'needlepoint.stores' has no attribute '{name}'")
