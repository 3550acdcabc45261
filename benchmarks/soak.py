"""Ten minutes of everything at once against `needle serve`: memory and file handles stay flat, and every answer is
right.

    make soak                        MINUTES=10 by default

Clients look up rows by key, by SQL and over Flight SQL, search texts, scan ranges, stream results, and cancel queries,
while a writer adds a partition every two seconds and drops the oldest. The table is a window of partitions that moves,
so a long run holds as much as a short one. The answer of every query follows from its ids.

It ends with 1 if an answer is wrong, a request fails, or memory or handles grow after the first two fifths, in which
caches and the memory of the allocator fill.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql
import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from service import free_port

import needlepoint
from needlepoint.tables.staged_file import StagedFile

ROWS, PARTITIONS, MARGIN = 5_000, 40, 6  # rows of a partition, partitions of the table, and those near its ends
WARM_UP = 0.4  # of the time: the memory is level after three to four of ten minutes
# Caches that are full after a minute: what grows after that is a leak.
SMALL_CACHES = {f"NEEDLE_{name}_BYTES": str(8 << 20) for name in ("CACHE", "BLOCK", "DICTIONARY", "PAGE", "INDEX")}
# A second of work. DataFusion does not notice that such a join is cancelled, so it must end by itself: else the soak
# measures how many of them run.
LONG = "SELECT a.id % 7 AS d, max(b.text) AS m FROM event a JOIN event b ON a.id % 2000 = b.id % 2000 GROUP BY d"


def rows_of(partition: int) -> pa.Table:
    ids = np.random.default_rng(partition).permutation(np.arange(partition * ROWS, (partition + 1) * ROWS))
    texts = [f"event {id} of number{id} in group{id % 100}" for id in ids]
    return pa.table({"id": ids, "text": texts, "value": ids * 3})


@dataclass
class Window:
    """The partitions that are certainly there: published, and not dropped soon."""

    first: int = 0
    end: int = 0

    def ids(self) -> range:
        return range((self.first + MARGIN) * ROWS, self.end * ROWS)


@dataclass
class Soak:
    base: str
    flight: str
    window: Window
    ends: float
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def client(self, seed: int) -> None:
        generator = random.Random(seed)
        names, weights = zip(*WAYS.items(), strict=True)
        with (
            httpx.Client(base_url=self.base, timeout=60) as http,
            flight_sql.connect(self.flight, autocommit=True) as adbc,
        ):
            while time.time() < self.ends:
                way = generator.choices(names, [weight for weight, _ in weights])[0]
                id = generator.choice(self.window.ids())
                try:
                    WAYS[way][1](http, adbc, id)
                except Exception as error:
                    self.failures.append(f"{way}, id {id}: {type(error).__name__}: {str(error)[:300]}")
                self.done[way] += 1


def by_key(http: httpx.Client, adbc: object, id: int) -> None:
    found = http.get("/v1/tables/event/rows", params={"id": id, "columns": "id,value"}).json()
    assert found["rows"] == [{"id": id, "value": id * 3}], found


def ask(http: httpx.Client, sql: str, **parameters: int | str) -> list[dict[str, object]]:
    found = http.post("/v1/sql", json={"sql": sql, "parameters": parameters}).json()
    assert "rows" in found, found
    return list(found["rows"])


def by_sql(http: httpx.Client, adbc: object, id: int) -> None:
    found = ask(http, "SELECT value FROM event WHERE id = $id", id=id)
    assert found == [{"value": id * 3}], found


def by_flight(http: httpx.Client, adbc: flight_sql.Connection, id: int) -> None:
    with adbc.cursor() as cursor:
        cursor.execute("SELECT value FROM event WHERE id = ?", [id])
        assert cursor.fetchall() == [(id * 3,)]


def by_text(http: httpx.Client, adbc: object, id: int) -> None:
    found = ask(http, "SELECT id FROM event WHERE text_match(text, $word)", word=f"number{id}")
    assert found == [{"id": id}], found


def by_range(http: httpx.Client, adbc: object, id: int) -> None:
    found = ask(http, "SELECT count(*) AS n, sum(value) AS s FROM event WHERE id BETWEEN $a AND $b", a=id - 99, b=id)
    assert found == [{"n": 100, "s": sum(range(id - 99, id + 1)) * 3}], found


def by_group(http: httpx.Client, adbc: object, id: int) -> None:
    found = ask(
        http, "SELECT id % 10 AS d, count(*) AS n FROM event WHERE id <= $id AND id > $id - 1000 GROUP BY d", id=id
    )
    assert sorted(row["d"] for row in found) == list(range(10)) and all(row["n"] == 100 for row in found), found


def by_stream(http: httpx.Client, adbc: object, id: int) -> None:
    body = {"sql": "SELECT id, text FROM event WHERE id <= $id AND id > $id - 20000", "parameters": {"id": id}}
    lines = 0
    with http.stream("POST", "/v1/sql", json=body, headers={"Accept": "application/x-ndjson"}) as found:
        assert found.status_code == 200, found.read()
        lines = sum(1 for _ in found.iter_lines())
    assert lines == 20_000, lines


def cancelled(http: httpx.Client, adbc: object, id: int) -> None:
    name = f"soak-{id}-{time.time_ns()}"

    def cancel() -> None:
        httpx.delete(f"{http.base_url}/v1/queries/{name}", timeout=60)

    timer = threading.Timer(0.2, cancel)
    timer.start()
    found = http.post("/v1/sql", json={"sql": LONG, "query_id": name})
    timer.join()
    assert found.status_code in (200, 409), found.text


WAYS: dict[str, tuple[float, Callable[..., None]]] = {
    "by key": (60, by_key),
    "by SQL": (12, by_sql),
    "by Flight SQL": (8, by_flight),
    "text": (6, by_text),
    "range": (8, by_range),
    "groups": (3, by_group),
    "stream": (2, by_stream),
    "cancelled": (0.3, cancelled),
}


class Writer:
    """Adds a partition and drops the oldest, every two seconds."""

    def __init__(self, root: Path, window: Window) -> None:
        self.lake = needlepoint.open(root)
        self.window = window

    def add(self) -> None:
        number, rows = self.window.end, rows_of(self.window.end)
        staging = Path(self.lake.writer.staging("event"))
        path = staging / f"part={number}" / "0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows, path, write_page_index=True)
        staged = StagedFile(str(path), f"part={number}", path.stat().st_size, rows.num_rows)
        self.lake.publish("event", [staged], staging)
        self.window.end += 1

    def drop(self) -> None:
        self.window.first += 1  # before it is dropped, so that nobody asks for it
        if self.window.first >= MARGIN:
            self.lake.drop_partition("event", part=self.window.first - MARGIN)

    def run(self, ends: float) -> None:
        while time.time() < ends:
            began = time.time()
            self.add()
            if self.window.end - self.window.first > PARTITIONS:
                self.drop()
            time.sleep(max(0.0, 2 - (time.time() - began)))


def sample(process: psutil.Process) -> dict[str, tuple[int, int]]:
    """Resident bytes and open handles of the server and of the indexer beside it."""
    found = {"server": (process.memory_info().rss, process.num_fds())}
    for child in process.children():
        found["indexer"] = (child.memory_info().rss, child.num_fds())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="needlepoint-soak-") as directory:
        sys.exit(run(Path(directory) / "lake", options.minutes * 60, options.clients))


def run(root: Path, seconds: float, clients: int) -> int:
    window = Window()
    writer = Writer(root, window)
    for _ in range(PARTITIONS):
        writer.add()
    writer.lake.create_index("event", "id")
    writer.lake.create_index("event", "text", "text")
    port, flight_port = free_port(), free_port()
    command = [sys.executable, "-m", "needlepoint", "--lake", str(root), "serve", "--port", str(port), "--indexer",
               "--flight-port", str(flight_port)]  # fmt: skip
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **SMALL_CACHES}
    )
    soak = Soak(f"http://127.0.0.1:{port}", f"grpc://127.0.0.1:{flight_port}", window, time.time() + seconds + 5)
    samples: list[dict[str, tuple[int, int]]] = []
    try:
        while True:
            try:
                httpx.get(f"{soak.base}/ready", timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        threads = [threading.Thread(target=soak.client, args=(seed,)) for seed in range(clients)]
        threads.append(threading.Thread(target=writer.run, args=(soak.ends,)))
        for thread in threads:
            thread.start()
        watched = psutil.Process(server.pid)
        while time.time() < soak.ends:
            time.sleep(min(5.0, seconds / 20))
            samples.append(sample(watched))
            memory, handles = samples[-1]["server"]
            print(f"\r{sum(soak.done.values()):,} requests, {len(soak.failures)} failed, server {memory >> 20} MB, "
                  f"{handles} handles", end="", flush=True)  # fmt: skip
        for thread in threads:
            thread.join()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        writer.lake.close()
    print()
    return judge(soak, samples, window)


def judge(soak: Soak, samples: list[dict[str, tuple[int, int]]], window: Window) -> int:
    print(f"{window.end} partitions written, {max(0, window.first - MARGIN)} dropped")
    for way, count in soak.done.most_common():
        print(f"  {way:<14} {count:>9,}")
    for failure in soak.failures[:20]:
        print(f"  FAILED {failure}")
    grew = False
    for name in ("server", "indexer"):
        found = [each[name] for each in samples[int(len(samples) * WARM_UP) :] if name in each]
        half = len(found) // 2
        memory = [statistics.median(each[0] for each in part) / 2**20 for part in (found[:half], found[half:])]
        handles = [statistics.median(each[1] for each in part) for part in (found[:half], found[half:])]
        print(f"  {name:<8} {memory[0]:.0f} -> {memory[1]:.0f} MB, {handles[0]:.0f} -> {handles[1]:.0f} handles")
        grew |= memory[1] > memory[0] * 1.05 or handles[1] > handles[0] * 1.1 + 10
    print("grows" if grew else "flat", "with wrong answers" if soak.failures else "and every answer is right")
    return int(grew or bool(soak.failures))


if __name__ == "__main__":
    main()
