"""Key stores for tests: by a place, which is a directory, the URL of a server, `leaf+` and where leaf files are, or
`own+` and a directory for a store that is not in this repository."""

from __future__ import annotations

import os
import pkgutil
import tempfile
import uuid
from pathlib import Path

import numpy as np

from needlepoint.stores.base import KeyStore
from needlepoint.stores.keys import BlockKeyStore, key_server
from needlepoint.stores.leaf_files import LeafCache, LeafKeyStore
from needlepoint.stores.rocksdb import RocksKeyStore

LAKE = "0123456789abcdef"
OWN = os.environ.get("NEEDLE_TEST_KEY_STORE", "")
"""`module:function` that opens a store which is not in this repository, by a directory and the bytes of a key."""


def open_store(place: str, width: int = 8, *, index: int = 7, lake: str = LAKE) -> KeyStore:
    """The store of an index. Its server is closed by the garbage collector."""
    if place.startswith("leaf+"):
        location = f"{place.removeprefix('leaf+')}/{index}"
        cache = Path(tempfile.gettempdir()) / "leaf cache"
        return LeafKeyStore(location, width, LeafCache(cache, 1 << 20) if "://" in location else None)
    if place.startswith("own+"):
        own: KeyStore = pkgutil.resolve_name(OWN)(Path(place.removeprefix("own+")), width)
        return own
    if "://" in place:
        return BlockKeyStore(key_server(place).space(lake, index), width)
    return RocksKeyStore(Path(place) / str(index), width)


def entries(pairs: list[tuple[int, int]]) -> np.ndarray:
    array = np.array(sorted(set(pairs)), dtype=">u8").reshape(-1, 2)
    return array.view(np.uint8).reshape(-1, 16)


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def fill(store: KeyStore, directory: Path, *runs: list[tuple[int, int]]) -> list[str]:
    """Ingest runs in one batch, and see them."""
    names = [uuid.uuid4().hex for _ in runs]
    for name, pairs in zip(names, runs, strict=True):
        store.write_run(directory / name, entries(pairs), name)
    store.ingest([directory / name for name in names])
    store.refresh(names)
    return names


def ingest_one(place: str, directory: str, number: int) -> None:
    """One entry in a run of its own, by a process that imports no more than this module."""
    store = open_store(place)
    run = Path(directory) / f"process-{number}"
    store.write_run(run, entries([(number, number)]), f"run of {number}")
    store.ingest([run])
