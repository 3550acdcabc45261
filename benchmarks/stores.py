"""Key stores compared: bytes a key, build rate, one key and a thousand, cold and warm.

    python benchmarks/stores.py [--keys 1000000] [--store NAME]… [--data NAME]…

Every store gets the same entries, in runs of a million, and answers the same keys; answers are compared with numpy's.
Warm: other keys each time, of a store that has answered before. Cold: the first key of a store that was just opened
with an empty cache, and the requests that it took. The system's page cache is warm in both. A new store adds a line to
STORES.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from needlepoint.stores import Entries, KeyStore

RUN = 1_000_000
FILE_ROWS = 100_000
TIMES_ONE, TIMES_MANY = 500, 30


@dataclass(frozen=True)
class Opened:
    """`open` makes a store anew, as on a machine that knows nothing of it; `requests` counts those to a server."""

    open: Callable[[], KeyStore]
    requests: Callable[[], int] = lambda: 0


@contextmanager
def _rocksdb(directory: Path, width: int) -> Iterator[Opened]:
    from needlepoint.stores import RocksKeyStore

    yield Opened(lambda: RocksKeyStore(directory / "index", width, 256 << 20))


@contextmanager
def _leaf_files(directory: Path, width: int) -> Iterator[Opened]:
    from needlepoint.stores.leaf_files import LeafKeyStore

    yield Opened(lambda: LeafKeyStore(str(directory / "index"), width))


@contextmanager
def _leaf_files_in_a_bucket(directory: Path, width: int) -> Iterator[Opened]:
    """With a server on this machine: times have no network in them, and its own."""
    from tests.buckets import aws_server

    from needlepoint.stores.leaf_files import LeafCache, LeafKeyStore

    with aws_server() as server:
        location = server.bucket().url("index")

        def open_anew() -> KeyStore:
            cache = LeafCache(directory / f"cache-{uuid.uuid4().hex}", 1 << 30)
            return LeafKeyStore(location, width, cache)

        yield Opened(open_anew, lambda: len(server.asked))


STORES: dict[str, Callable[[Path, int], Any]] = {
    "rocksdb": _rocksdb,
    "leaf files": _leaf_files,
    "leaf files in a bucket": _leaf_files_in_a_bucket,
}


def _numbers(keys: np.ndarray) -> np.ndarray:
    """Signed numbers as key bytes, as the key index has them."""
    return (keys.astype(np.uint64) ^ np.uint64(1 << 63)).astype(">u8").view(np.uint8).reshape(-1, 8)


def _dense(count: int, chance: np.random.Generator) -> np.ndarray:
    """Ids of which every tenth exists."""
    return _numbers(np.sort(chance.choice(10 * count, count, replace=False)))


def _sparse(count: int, chance: np.random.Generator) -> np.ndarray:
    """Ids of twelve digits."""
    return _numbers(np.unique(chance.integers(0, 10**12, count)))


def _hashes(count: int, chance: np.random.Generator) -> np.ndarray:
    """Eight random bytes."""
    return _numbers(np.unique(chance.integers(-(2**63), 2**63 - 1, count)))


def _codes(count: int, chance: np.random.Generator) -> np.ndarray:
    """Strings of eight hexadecimal digits and more, as the key index has them: eight bytes, and a hash."""
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    table = np.concatenate(
        (digits[chance.integers(0, 16, (count, 8))], chance.integers(0, 256, (count, 8), np.uint8)), 1
    )
    return np.unique(table.view("S16").ravel()).view(np.uint8).reshape(-1, 16)


DATA = {"dense ids": _dense, "sparse ids": _sparse, "hashes": _hashes, "codes": _codes}


def entries_of(keys: np.ndarray, chance: np.random.Generator) -> Entries:
    """Each key once, in any row of files with FILE_ROWS rows."""
    places = chance.permutation(len(keys)).astype(np.uint64)
    locations = (places // FILE_ROWS << np.uint64(32) | places % FILE_ROWS).astype(">u8")
    return np.concatenate((keys, locations.view(np.uint8).reshape(-1, 8)), axis=1)


@dataclass(frozen=True)
class Measured:
    bytes_a_key: float
    keys_a_second: float
    cold_ms: float
    cold_requests: int
    one_ms: float
    thousand_ms: float


def measure(make: Callable[[Path, int], Any], entries: Entries) -> Measured:
    width = entries.shape[1] - 8
    keys = np.ascontiguousarray(entries[:, :width])
    locations = np.ascontiguousarray(entries[:, width:]).view(">u8").ravel().astype(np.uint64)
    chance = np.random.default_rng(3)
    scratch = Path(tempfile.mkdtemp(prefix="needlepoint-stores-"))
    try:
        with make(scratch, width) as opened:
            names, seconds = _build(opened.open(), entries, scratch)
            store = opened.open()
            store.refresh(names)
            size = store.size() / len(entries)
            before, started = opened.requests(), time.perf_counter()
            _ask(store, keys, locations, chance.integers(0, len(keys), 1))
            cold, requests = time.perf_counter() - started, opened.requests() - before
            for _ in range(20):
                _ask(store, keys, locations, chance.integers(0, len(keys), 1000))
            one = [_ask(store, keys, locations, chance.integers(0, len(keys), 1)) for _ in range(TIMES_ONE)]
            many = [_ask(store, keys, locations, chance.integers(0, len(keys), 1000)) for _ in range(TIMES_MANY)]
            store.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    one_ms, many_ms = statistics.median(one) * 1e3, statistics.median(many) * 1e3
    return Measured(size, len(entries) / seconds, cold * 1e3, requests, one_ms, many_ms)


def _build(store: KeyStore, entries: Entries, scratch: Path) -> tuple[list[str], float]:
    """Runs as a backfill makes them: one range of keys each."""
    names = []
    started = time.perf_counter()
    store.ingest([])
    for first in range(0, len(entries), RUN):
        names.append(uuid.uuid4().hex)
        store.write_run(scratch / names[-1], entries[first : first + RUN], names[-1])
        store.ingest([scratch / names[-1]])
    return names, time.perf_counter() - started


def _ask(store: KeyStore, keys: np.ndarray, locations: np.ndarray, rows: np.ndarray) -> float:
    asked = [key.tobytes() for key in keys[rows]]
    started = time.perf_counter()
    found = store.find(asked, 1_000_000)
    taken = time.perf_counter() - started
    if found is None or not np.array_equal(np.unique(found), np.unique(locations[rows])):
        raise SystemExit("a store answers incorrectly")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--store", action="append", choices=STORES, help="default: all")
    parser.add_argument("--data", action="append", choices=DATA, help="default: all")
    chosen = parser.parse_args()
    print("| keys | store | bytes a key | keys/s built | cold, ms | requests | one key, ms | 1,000 keys, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for data in chosen.data or DATA:
        chance = np.random.default_rng(11)
        entries = entries_of(DATA[data](chosen.keys, chance), chance)
        for name in chosen.store or STORES:
            found = measure(STORES[name], entries)
            print(
                f"| {len(entries):,} {data} | {name} | {found.bytes_a_key:.2f} | {found.keys_a_second:,.0f} | "
                f"{found.cold_ms:.2f} | {found.cold_requests} | {found.one_ms:.3f} | {found.thousand_ms:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
