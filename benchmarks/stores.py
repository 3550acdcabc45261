"""Key stores compared: bytes a key, build rate, one key and a thousand, cold and warm.

    python benchmarks/stores.py --keys 1e6 2e7 [--stores NAME …] [--data NAME …] [--json FILE]

Every store gets the same entries, in runs of up to four million with one range of keys each, as a backfill makes them,
and answers the same keys; each answer is compared with what was written. Entries are made run by run, so a billion keys
take disk and time, and no more memory than twenty million.

cold    the first lookup of a new process with an empty cache; requests are counted in the bucket
warm    other keys each time, after `--warm` thousands of them; medians of rounds, of which the median is taken

The page cache of the system is warm in both. Servers run on this machine, with the settings of the tests. MariaDB is
left out where it is not installed. A new store adds a line to STORES.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # for the servers of the tests
    sys.path.insert(0, str(Path(__file__).parents[1]))

from needlepoint.access import each_once
from needlepoint.stores import Entries, KeyStore

RUN = 4_000_000
FILE_ROWS = 100_000
SAMPLES = 400_000
BLOCK_BYTES = 256 << 20  # the setting's default
LAKE, INDEX = "0123456789abcdef", 7
ROUNDS = 5
ONE_A_ROUND, MANY_A_ROUND, COLD_TIMES = 100, 10, 3


@dataclass(frozen=True)
class Place:
    """Where a store is: what `open_store` takes, and how many requests it got until now."""

    kind: str
    location: str
    requests: Callable[[], int | None] = lambda: None


def open_store(kind: str, location: str, width: int) -> KeyStore:
    """As on a machine that knows nothing of the store yet."""
    if kind == "rocksdb":
        from needlepoint.stores import RocksKeyStore

        return RocksKeyStore(Path(location), width, BLOCK_BYTES)
    if kind == "leaf files":
        from needlepoint.indexes.leaf_stores import leaf_key_bits
        from needlepoint.stores.leaf_files import LeafCache, LeafKeyStore

        cache = LeafCache(Path(tempfile.mkdtemp(prefix="needlepoint-leaves-")), 1 << 32) if "://" in location else None
        return LeafKeyStore(location, width, cache, BLOCK_BYTES, leaf_key_bits(width))
    from needlepoint.stores.keys import BlockKeyStore, key_server

    return BlockKeyStore(key_server(location).space(LAKE, INDEX), width, BLOCK_BYTES)


@contextmanager
def _rocksdb(directory: Path) -> Iterator[Place]:
    yield Place("rocksdb", str(directory / "index"))


@contextmanager
def _leaf_files(directory: Path) -> Iterator[Place]:
    yield Place("leaf files", str(directory / "index"))


@contextmanager
def _leaf_files_in_a_bucket(directory: Path) -> Iterator[Place]:
    """With a server on this machine: times have no network in them, and its own."""
    from tests.buckets import aws_server

    with aws_server() as server:
        yield Place("leaf files", server.bucket().url("index"), lambda: len(server.asked))


def _server(name: str) -> Callable[[Path], AbstractContextManager[Place]]:
    @contextmanager
    def start(directory: Path) -> Iterator[Place]:
        from tests import database_servers

        with database_servers.started("benchmark", getattr(database_servers, name)) as server:
            yield Place("server", server.url())

    return start


STORES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "rocksdb": _rocksdb,
    "leaf files": _leaf_files,
    "leaf files in a bucket": _leaf_files_in_a_bucket,
    "postgresql": _server("PostgresServer"),
    "mariadb": _server("MysqlServer"),
    "redis": _server("RedisServer"),
}


def _numbers(keys: np.ndarray) -> np.ndarray:
    """Signed numbers as key bytes, as the key index has them."""
    return (keys.astype(np.uint64) ^ np.uint64(1 << 63)).astype(">u8").view(np.uint8).reshape(-1, 8)


def _between(share: tuple[float, float], low: int, high: int, count: int, chance: np.random.Generator) -> np.ndarray:
    """Different random numbers in a share of a range, ascending."""
    first, last = (low + int(part * (high - low)) for part in share)
    return each_once(chance.integers(first, max(last, first + 1), count))


def _dense(share: tuple[float, float], count: int, total: int, chance: np.random.Generator) -> np.ndarray:
    """Ids of which every tenth exists."""
    return _numbers(_between(share, 0, 10 * total, count, chance))


def _sparse(share: tuple[float, float], count: int, total: int, chance: np.random.Generator) -> np.ndarray:
    """Ids of twelve digits."""
    return _numbers(_between(share, 0, 10**12, count, chance))


def _hashes(share: tuple[float, float], count: int, total: int, chance: np.random.Generator) -> np.ndarray:
    """Eight random bytes, as those of UUIDs or of hashes that are a column."""
    return _numbers(_between(share, -(2**63), 2**63 - 1, count, chance))


def _codes(share: tuple[float, float], count: int, total: int, chance: np.random.Generator) -> np.ndarray:
    """Strings of eight hexadecimal digits and more, as the key index has them: eight bytes, and a hash."""
    numbers = _between(share, 0, 2**32, count, chance).astype(">u4").view(np.uint8).reshape(-1, 4)
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    text = np.stack((digits[numbers >> 4], digits[numbers & 15]), axis=-1).reshape(-1, 8)
    return np.concatenate((text, chance.integers(0, 256, (len(text), 8), np.uint8)), axis=1)


def _texts(texts: list[str]) -> np.ndarray:
    """The keys of texts, ascending, each once."""
    import pyarrow as pa

    from needlepoint.indexes.key import encode

    return np.unique(encode(pa.array(texts)).view("V16").ravel()).view(np.uint8).reshape(-1, 16)


def _upcs(share: tuple[float, float], count: int, total: int, chance: np.random.Generator) -> np.ndarray:
    """Texts of twelve digits."""
    return _texts([f"{number:012d}" for number in _between(share, 0, 10**12, count, chance).tolist()])


def _skus(share: tuple[float, float], count: int, total: int, chance: np.random.Generator) -> np.ndarray:
    """As AB-123456."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    pairs = [f"{first}{second}" for first in letters for second in letters]
    numbers = _between(share, 0, len(pairs) * 10**6, count, chance).tolist()
    return _texts([f"{pairs[number // 10**6]}-{number % 10**6:06d}" for number in numbers])


def _uuids(share: tuple[float, float], count: int, total: int, chance: np.random.Generator) -> np.ndarray:
    """As texts of 36 letters."""
    first = _between(share, 0, 2**63, count, chance)
    rest = chance.integers(0, 2**63, len(first))
    pairs = zip(first.tolist(), rest.tolist(), strict=True)
    return _texts([str(uuid.UUID(int=upper << 65 | lower)) for upper, lower in pairs])


def _mails(share: tuple[float, float], count: int, total: int, chance: np.random.Generator) -> np.ndarray:
    """Names of syllables, some with a number, as mary.johnson17@example.org."""
    syllables = sorted(("an", "be", "chri", "da", "el", "fan", "jo", "ka", "li", "mar", "mi", "na", "pe", "ra", "ste"))
    first = [f"{a}{b}" for a in syllables for b in syllables]
    last = [f"{a}{b}{c}" for a in syllables for b in syllables for c in ("son", "ter", "man", "")]
    names = _between(share, 0, len(first) * 10**6, count, chance) // 10**6
    rest = zip(names.tolist(), chance.integers(0, len(last), count), chance.integers(0, 3000, count), strict=False)
    return _texts([f"{first[name]}.{last[family]}{number}@example.org" for name, family, number in rest])


Maker = Callable[[tuple[float, float], int, int, np.random.Generator], np.ndarray]
DATA: dict[str, Maker] = {"dense ids": _dense, "sparse ids": _sparse, "hashes": _hashes, "codes": _codes}
TEXTS: dict[str, Maker] = {"upcs": _upcs, "skus": _skus, "uuids": _uuids, "mails": _mails}
DATA |= TEXTS
WIDTHS = dict.fromkeys(["codes", *TEXTS], 16)


def make_runs(data: str, keys: int) -> Iterator[Entries]:
    """About so many entries, ascending, each key once, in any row of files with FILE_ROWS rows."""
    runs = -(-keys // RUN)
    for number in range(runs):
        chance = np.random.default_rng((11, number))
        count = min(RUN, keys - number * RUN)
        made = DATA[data]((number / runs, (number + 1) / runs), count, keys, chance)
        places = chance.integers(0, keys, len(made), np.uint64)
        locations = (places // FILE_ROWS << np.uint64(32) | places % FILE_ROWS).astype(">u8")
        yield np.concatenate((made, locations.view(np.uint8).reshape(-1, 8)), axis=1)


@dataclass(frozen=True)
class Built:
    names: list[str]
    entries: int
    seconds: float
    samples: Entries


def build(store: KeyStore, runs: Iterator[Entries], keys: int, scratch: Path) -> Built:
    """Write and ingest all runs. Making them is not counted."""
    names, entries, seconds, samples = list[str](), 0, 0.0, list[Entries]()
    store.ingest([])
    for run in runs:
        names.append(uuid.uuid4().hex)
        started = time.perf_counter()
        store.write_run(scratch / names[-1], run, names[-1])
        store.ingest([scratch / names[-1]])
        seconds += time.perf_counter() - started
        entries += len(run)
        samples.append(run[:: max(1, keys // SAMPLES)].copy())
    return Built(names, entries, seconds, np.concatenate(samples))


class Questions:
    """Keys to ask for, each time others, and what they must find."""

    def __init__(self, samples: Entries, seed: int) -> None:
        self._width = samples.shape[1] - 8
        self._samples = samples
        self._chance = np.random.default_rng(seed)

    def next(self, count: int) -> tuple[list[bytes], list[int]]:
        lines = self._samples[self._chance.integers(0, len(self._samples), count)]
        found = np.ascontiguousarray(lines[:, self._width :]).view(">u8").ravel()
        return [line.tobytes() for line in lines[:, : self._width]], np.unique(found).tolist()


def ask(store: KeyStore, keys: Sequence[bytes], expected: Sequence[int]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    found = store.find(keys, 1_000_000)
    taken = time.perf_counter() - started
    if found is None or np.unique(found).tolist() != list(expected):
        raise SystemExit("a store answers incorrectly")
    return taken * 1e3


def ask_warm(store: KeyStore, questions: Questions, warm: int, rounds: int) -> tuple[float, float]:
    """One key and a thousand: the medians of rounds, of these the median."""
    for _ in range(warm):
        ask(store, *questions.next(1000))
    ones, manys = [], []
    for _ in range(rounds):
        ones.append(statistics.median(ask(store, *questions.next(1)) for _ in range(ONE_A_ROUND)))
        manys.append(statistics.median(ask(store, *questions.next(1000)) for _ in range(MANY_A_ROUND)))
    return statistics.median(ones), statistics.median(manys)


def ask_cold(place: Place, width: int, names: list[str], questions: Questions, count: int) -> tuple[float, int | None]:
    """The first lookup of a process that opened the store, and the requests that it took."""
    keys, expected = questions.next(count)
    told = {"kind": place.kind, "location": place.location, "width": width, "names": names, "expected": expected}
    with subprocess.Popen(
        [sys.executable, __file__, "--answer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        encoded = [base64.b64encode(key).decode() for key in keys]
        process.stdin.write(json.dumps({**told, "keys": encoded}) + "\n")
        process.stdin.flush()
        process.stdout.readline()  # it is open
        before = place.requests()
        process.stdin.write("go\n")
        process.stdin.close()
        taken = process.stdout.read()
        after = place.requests()
    if process.returncode:
        raise SystemExit("a new process cannot read the store")
    return float(taken), None if before is None or after is None else after - before


def answer() -> None:
    """What the new process does."""
    told = json.loads(sys.stdin.readline())
    store = open_store(told["kind"], told["location"], told["width"])
    store.refresh(told["names"])
    print("open", flush=True)
    sys.stdin.readline()
    print(ask(store, [base64.b64decode(key) for key in told["keys"]], told["expected"]))
    sys.stdout.flush()
    os._exit(0)


@dataclass(frozen=True)
class Measured:
    store: str
    data: str
    keys: int
    bytes_a_key: float
    keys_a_second: float
    one_cold_ms: float
    one_cold_requests: int | None
    one_ms: float
    thousand_cold_ms: float
    thousand_ms: float

    def line(self) -> str:
        requests = "" if self.one_cold_requests is None else f" ({self.one_cold_requests} requests)"
        return (
            f"| {self.keys:,} {self.data} | {self.store} | {self.bytes_a_key:.2f} | {self.keys_a_second:,.0f} | "
            f"{self.one_cold_ms:.2f}{requests} | {self.one_ms:.3f} | {self.thousand_cold_ms:.1f} | "
            f"{self.thousand_ms:.2f} |"
        )


HEADER = (
    "| keys | store | bytes a key | keys/s built | one key: cold, ms | warm | 1,000 keys: cold, ms | warm |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def measure(name: str, data: str, keys: int, warm: int, rounds: int, parent: Path | None) -> Measured:
    width = WIDTHS.get(data, 8)
    scratch = Path(tempfile.mkdtemp(prefix="needlepoint-stores-", dir=parent))
    try:
        with STORES[name](scratch) as place:
            writer = open_store(place.kind, place.location, width)
            built = build(writer, make_runs(data, keys), keys, scratch)
            writer.close()
            questions = Questions(built.samples, 3)
            one = [ask_cold(place, width, built.names, questions, 1) for _ in range(COLD_TIMES)]
            many = [ask_cold(place, width, built.names, questions, 1000) for _ in range(COLD_TIMES)]
            store = open_store(place.kind, place.location, width)
            store.refresh(built.names)
            size = store.size() / built.entries
            one_ms, thousand_ms = ask_warm(store, questions, warm, rounds)
            store.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    cold_ms, requests = statistics.median(ms for ms, _ in one), one[0][1]
    thousand_cold = statistics.median(ms for ms, _ in many)
    rate = built.entries / built.seconds
    return Measured(name, data, built.entries, size, rate, cold_ms, requests, one_ms, thousand_cold, thousand_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=lambda text: int(float(text)), nargs="+", default=[1_000_000])
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--data", nargs="+", choices=DATA, default=["sparse ids", "codes"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--warm", type=int, default=50, help="thousands of keys before warm lookups are measured")
    parser.add_argument("--scratch", type=Path, help="where the stores are; by default a temporary directory")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.answer:
        answer()
    from tests.database_servers import ServerMissing

    figures: list[Measured] = []
    print(HEADER, flush=True)
    for keys in chosen.keys:
        for data in chosen.data:
            for name in chosen.stores:
                try:
                    figures.append(measure(name, data, keys, chosen.warm, chosen.rounds, chosen.scratch))
                    print(figures[-1].line(), flush=True)
                except ServerMissing as missing:
                    print(f"{name} is left out: {missing}", file=sys.stderr, flush=True)
                if chosen.json:
                    chosen.json.parent.mkdir(parents=True, exist_ok=True)
                    told: dict[str, Any] = {
                        "cores": os.cpu_count(),
                        "load": os.getloadavg(),
                        "block_bytes": BLOCK_BYTES,
                    }
                    chosen.json.write_text(json.dumps({**told, "stores": [asdict(each) for each in figures]}, indent=2))


if __name__ == "__main__":
    main()
