"""Index kinds: what they build from a file, what they keep, and how they answer.

base           the interface of a kind
kinds          kinds by name: built in, or from other packages
index_stores   what indexes keep in the store; chooses the backend
index_damage   what is wrong with what an index keeps
key_servers    the servers in which a lake keeps keys
leaf_stores    key indexes in the lake itself
shared_packs   packs in a bucket, of machines that share a registry
key/           value to rows, in one store for all files of a table
distinct/      values of a file and their pages
bloom/         bloom filters of our own
text/          words and their rows
parquet_bloom  Parquet's own bloom filters
zone_map       least and greatest values
values         values of a column as indexes keep them
hashing        64-bit hashes of binary arrays
payload        how payloads are stored
stored         payloads in packs and files, and unpacked ones

Each kind has kind.py (what it is), build.py, search.py and payload.py. key/ and text/ have names of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.on_demand import on_demand

if TYPE_CHECKING:
    from needlepoint.indexes.base import (
        Answer,
        ClosableIndex,
        ColumnSource,
        FileIndex,
        IndexPayload,
        KeysAndRows,
        Options,
    )
    from needlepoint.indexes.index_damage import IndexDamage, entries_per_file, find_damage
    from needlepoint.indexes.index_stores import IndexStores, index_fields, kind_options, run_format, write_run
    from needlepoint.indexes.key_servers import IN_LAKE_STORE, is_local, is_same_store, store_of
    from needlepoint.indexes.kinds import entry_kind, is_current, keeps_entries, kind, payload_kind
    from needlepoint.indexes.leaf_stores import LEAF_FILES, LeafStores
    from needlepoint.indexes.parquet_bloom import filtered_columns, may_match
    from needlepoint.indexes.shared_packs import SharedPacks
    from needlepoint.indexes.stored import JUST_USED, StoredPayload, UnpackedPayloads
    from needlepoint.indexes.zone_map import LONGEST_BOUND, ZoneMap, zone_maps

__all__ = [
    "IN_LAKE_STORE",
    "JUST_USED",
    "LEAF_FILES",
    "LONGEST_BOUND",
    "Answer",
    "ColumnSource",
    "ClosableIndex",
    "FileIndex",
    "IndexDamage",
    "IndexPayload",
    "IndexStores",
    "LeafStores",
    "SharedPacks",
    "KeysAndRows",
    "Options",
    "StoredPayload",
    "UnpackedPayloads",
    "ZoneMap",
    "entries_per_file",
    "entry_kind",
    "filtered_columns",
    "find_damage",
    "index_fields",
    "is_current",
    "is_local",
    "is_same_store",
    "keeps_entries",
    "kind",
    "kind_options",
    "may_match",
    "payload_kind",
    "run_format",
    "store_of",
    "write_run",
    "zone_maps",
]

__getattr__ = on_demand(
    __name__,
    {
        "base": "Answer ClosableIndex ColumnSource FileIndex IndexPayload KeysAndRows Options",
        "index_damage": "IndexDamage entries_per_file find_damage",
        "index_stores": "IndexStores index_fields kind_options run_format write_run",
        "key_servers": "IN_LAKE_STORE is_local is_same_store store_of",
        "kinds": "entry_kind is_current keeps_entries kind payload_kind",
        "leaf_stores": "LEAF_FILES LeafStores",
        "shared_packs": "SharedPacks",
        "parquet_bloom": "filtered_columns may_match",
        "stored": "JUST_USED StoredPayload UnpackedPayloads",
        "zone_map": "LONGEST_BOUND ZoneMap zone_maps",
    },
)
