"""Lakes over all combinations of stores, a process that changes one of them, and what must be true after a fault.

After each fault the lake opens. Every answer is that of DuckDB, by an index and by a scan. Every acknowledged row is
there once, and what was not acknowledged is there entirely or not at all. A reader of the published registry has a
state that the registry had. After a sync all of this holds again, and `verify` finds nothing.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.buckets import Asked, Server
from tests.fault_driver import CHANGES, STRIDE, Stores, follow, publish, read, rows, run
from tests.proxies import Passage, WatchingProxy

from needlepoint import Lake

PLACES = (
    "sqlite, rocksdb, directory",
    "sqlite, lake:, directory",
    "sqlite, mysql, directory",
    "sqlite, redis, directory",
    "postgres, lake:, directory",
    "postgres, postgres, directory",
    "sqlite, rocksdb, bucket",
    "sqlite, lake:, bucket",
    "postgres, lake:, bucket",
    "postgres, redis, bucket",
    "sqlite, lake:, bucket, sqs",
)
"""Where registry and queue, keys, and the lake itself are; and the queue, if it is elsewhere."""

QUERIES = (
    "SELECT count(*), sum(id) FROM t WHERE id = 17",
    "SELECT id, name FROM t WHERE id IN (1, 65, 130, 195, 200, 5000) ORDER BY id",
    "SELECT id, name FROM t WHERE id BETWEEN 50 AND 70 ORDER BY id",
    "SELECT id FROM t WHERE k = 3 ORDER BY id",
    "SELECT id FROM t WHERE name = 'name 21' ORDER BY id",
    "SELECT k, count(*), min(id), max(id) FROM t GROUP BY k ORDER BY k",
)
LONGEST = 120.0  # seconds that a change may take

_NUMBERS = itertools.count(1)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.fault_driver"])


class Wire:
    """What the process sends to its servers: through proxies, and requests for the bucket that change something."""

    def __init__(self) -> None:
        self.proxies: list[WatchingProxy] = []
        self.bucket: Server | None = None
        self.bucket_proxy: WatchingProxy | None = None

    def attend(self, watch: Callable[[], Passage] | None) -> None:
        for proxy in self.proxies:
            proxy.watch = watch
        if self.bucket is not None:
            self.bucket.before = None if watch is None else lambda asked: _status(asked, watch)

    def go_away(self) -> None:
        for proxy in self._all():
            proxy.go_away()

    def come_back(self) -> None:
        for proxy in self._all():
            proxy.come_back()

    def close(self) -> None:
        self.attend(None)
        for proxy in self._all():
            proxy.close()

    def _all(self) -> list[WatchingProxy]:
        return [*self.proxies, *([self.bucket_proxy] if self.bucket_proxy else [])]


def _status(asked: Asked, watch: Callable[[], Passage]) -> int | None:
    if asked.method not in ("PUT", "POST", "DELETE"):
        return None
    return 500 if watch() is Passage.CUT else None


class Fault:
    """What happens at the piece `at` of what an armed process sends: `act` says what becomes of that piece."""

    def __init__(self, at: int, act: Callable[[Work], Passage]) -> None:
        self._at, self._act = at, act
        self._lock = threading.Lock()
        self.seen = 0
        self.work: Work | None = None

    def __call__(self) -> Passage:
        work = self.work
        if work is None or not work.is_armed:
            return Passage.FORWARD
        with self._lock:
            self.seen += 1
            hit = self.seen == self._at
        return self._act(work) if hit else Passage.FORWARD


class Place:
    """Makes lakes with a combination of stores."""

    def __init__(self, name: str, request: pytest.FixtureRequest, directory: Path) -> None:
        self.registry, self.keys, self.lake, *queue = name.split(", ")
        self.has_sqs = bool(queue)
        self.wire = Wire()
        self._request = request
        self._directory = directory
        self._urls: dict[str, str] = {}
        self._environment: dict[str, str] = {}
        request.addfinalizer(self.wire.close)

    def make_ready(self) -> None:
        """Start the servers, so that there is a wire."""
        for kind in {self.registry, self.keys} & {"postgres", "mysql", "redis"}:
            self._server(kind)
        if self.lake == "bucket":
            self._bucket("none")

    def make(self) -> Stores:
        number = next(_NUMBERS)
        base = self._directory / str(number)
        base.mkdir()
        root = str(base / "lake") if self.lake == "directory" else self._bucket(f"lake-{number}")
        made = Stores(root, str(base / "store"))
        if self.registry == "postgres":
            url = f"{self._server('postgres')}?schema=lake_{number}"
            made = replace(made, registry=url, queue=url)
        if self.has_sqs:
            made = replace(made, queue=self._request.getfixturevalue("bucket").server.queue(f"faults-{number}"))
        if self.keys == "rocksdb":
            return made
        return replace(made, keys=self.keys if self.keys == "lake:" else self._server(self.keys))

    def _bucket(self, name: str) -> str:
        """Its process reaches the server through a proxy too."""
        bucket = self._request.getfixturevalue("bucket")
        self.wire.bucket = bucket.server
        if self.wire.bucket_proxy is None:
            self.wire.bucket_proxy = WatchingProxy(int(bucket.server.url.rpartition(":")[2]))
        self._environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        self._environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{self.wire.bucket_proxy.port}"
        return str(bucket.url(name))

    def _server(self, kind: str) -> str:
        """The URL of a proxy before it."""
        if kind not in self._urls:
            url = str(self._request.getfixturevalue(f"{kind}_url"))
            server = self._request.getfixturevalue(f"{kind}_server")
            proxy = WatchingProxy(server.port)
            self.wire.proxies.append(proxy)
            self._urls[kind] = url.replace(f":{server.port}", f":{proxy.port}")
        return self._urls[kind]

    def start(self, change: str, killed_at: int | None = None, largest: int = -1) -> Work:
        """A process that makes the change of a new lake. During it, no file gets larger than `largest` bytes."""
        stores = self.make()
        log = Path(stores.store).parent / "log"
        log.touch()
        arguments = (stores, change, str(log), killed_at, self._environment, largest)
        process = _CONTEXT.Process(target=run, args=arguments)
        process.start()
        return Work(stores, change, log, process)

    def read(self, stores: Stores, largest: int) -> str:
        """What becomes of a reader in a process whose files get no larger."""
        log = Path(stores.store).parent / "reader"
        log.touch()
        arguments = (stores, str(log), largest, f"{stores.store} of a reader", self._environment)
        process = _CONTEXT.Process(target=read, args=arguments)
        process.start()
        return Work(stores, "read", log, process).end()

    def meet(self, change: str, fault: Fault) -> Work:
        """The same, with a fault on the wire. Returns when the process has ended."""
        self.make_ready()
        self.wire.attend(fault)
        try:
            fault.work = work = self.start(change)
            work.process.join(LONGEST)
        finally:
            self.wire.attend(None)
        return work


@dataclass(frozen=True)
class Work:
    """A process that makes a change."""

    stores: Stores
    change: str
    log: Path
    process: multiprocessing.process.BaseProcess

    def kill(self) -> None:
        if self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, signal.SIGKILL)

    @property
    def is_armed(self) -> bool:
        return self.log.stat().st_size > 0

    def end(self) -> str:
        """Wait for it. Returns what became of the change: done, refused with an error of ours, or killed."""
        self.process.join(LONGEST)
        if self.process.exitcode is None:
            self.kill()
            self.process.join()
            pytest.fail(f"{self.change} did not end; its log: {self.log.read_text()}")
        notes = self.log.read_text()
        assert self.process.exitcode in (0, -signal.SIGKILL), notes
        assert notes.startswith("armed"), notes
        return next((word for word in ("done", "refused") if word in notes), "killed")

    @property
    def points(self) -> int:
        return int(self.log.read_text().split()[-1])


def check(work: Work, outcome: str) -> None:
    """After a fault."""
    stores, change = work.stores, CHANGES[work.change]
    with stores.open() as lake:
        after = (set(change.present) | set(change.adds)) - set(change.removes)
        possible = [after] if outcome == "done" else [set(change.present), after]
        found = compare(lake, *possible)
        _check_reader(stores, [set(change.present), after])  # it may not be published yet
        follow(lake)
        lake.sync("t")  # finishes what was begun, or takes it back
        possible = possible if found != after else [after]  # what a query has seen stays
        assert batches(lake) in possible
        if change.adds and outcome != "done":
            publish(lake, stores, *change.adds)  # delivered again, its rows are there once
            follow(lake)
            possible = [after]
        explained = str(lake.explain(QUERIES[0]))
        assert "t_id_key (key): used" in explained, explained
        report = lake.verify("t", samples=1, seed=1)
        assert not report.differences and not report.damaged, report
        lake.sweep(now=True)
        found = compare(lake, *possible)
        if lake.publisher is not None:
            lake.share()
        _check_reader(stores, [found])


def _check_reader(stores: Stores, possible: list[set[int]]) -> None:
    """On a machine without the store: by the registry that is published in the lake, or in PostgreSQL."""
    base = Path(stores.store).parent
    with replace(stores, store=str(base / "none")).open(read_only=True, cache=base / "cache") as node:
        assert node.registry.is_followed or stores.registry
        for _ in possible:
            found = batches(node)
            try:
                compare(node, *possible)
                return
            except AssertionError:
                if batches(node) == found:  # else it has followed the writer meanwhile
                    raise


def batches(lake: Lake) -> set[int]:
    """The batches that are there, by a scan; each entirely, and each row once."""
    scanned = lake.engine.sql("SELECT id, name, k FROM t", use_indexes=False).to_arrow().sort_by("id")
    found = {id % STRIDE for id in scanned["id"].to_pylist()}
    assert scanned.equals(_rows(frozenset(found)).cast(scanned.schema)), scanned["id"]
    return found


def compare(lake: Lake, *possible: set[int]) -> set[int]:
    """Answers, by a scan and by indexes, with those of DuckDB. Returns which of the possible batches are there."""
    found = batches(lake)
    assert found in possible, (found, possible)
    for query, expected in zip(QUERIES, _judged(frozenset(found)), strict=True):
        answer = [tuple(row.values()) for row in lake.engine.sql(query).rows()]
        assert answer == expected, (query, answer, expected)
    return found


@functools.cache
def _rows(found: frozenset[int]) -> pa.Table:
    return pa.concat_tables([rows(batch) for batch in sorted(found)]).sort_by("id")


@functools.cache
def _judged(found: frozenset[int]) -> list[list[Any]]:
    """What DuckDB answers."""
    with duckdb.connect() as judge:
        judge.register("t", _rows(found))
        return [judge.execute(query).fetchall() for query in QUERIES]
