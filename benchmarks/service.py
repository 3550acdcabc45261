"""Requests a second and latencies of `needle serve`, beside ROAPI over the same files and calls in this process.

    make bench-service               BENCH_ROWS=1000000 by default; the lake is kept in bench-lake/

Each contender answers lookups of one row, by 1 to 64 clients on loopback that each wait for their answer. The clients
take processor time of the same machine. ROAPI (`pip install roapi`) scans: it has no index. Nothing else should run.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from quick import make_lake, report

import needlepoint
from needlepoint.spark.products import product_id_of

CLIENTS = (1, 4, 16, 64)
Request = Callable[[int], bytes]


def get_request(id: int) -> bytes:
    path = f"/v1/tables/product/rows?product_id={id}&columns=title,upc"
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def sql_request(id: int) -> bytes:
    body = json.dumps({"sql": f"SELECT title, upc FROM product WHERE product_id = {id}"})
    head = f"POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n{body}".encode()


def roapi_request(id: int) -> bytes:
    body = f"SELECT title, upc FROM product WHERE product_id = {id}"
    head = f"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n{body}".encode()


async def client(port: int, request: Request, ids: Iterator[int], ends: float, took: list[float]) -> None:
    """Ask, wait for the answer, and ask again."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < ends:
        began = time.perf_counter()
        writer.write(request(next(ids)))
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = await reader.readexactly(int(length.split(b":")[1]))
        took.append(time.perf_counter() - began)
        if b" 200 " not in head.split(b"\r\n", 1)[0] or b"upc" not in body:
            raise AssertionError(head.decode() + body.decode())
    writer.close()


def load(port: int, request: Request, ids: Iterator[int], clients: int, seconds: float) -> dict[str, float]:
    async def run(for_seconds: float) -> list[float]:
        took: list[float] = []
        ends = time.perf_counter() + for_seconds
        await asyncio.gather(*(client(port, request, ids, ends, took) for _ in range(clients)))
        return took

    asyncio.run(run(0.5))  # warm
    began = time.perf_counter()
    took = asyncio.run(run(seconds))
    return summary(took, time.perf_counter() - began)


def summary(took: list[float], seconds: float) -> dict[str, float]:
    ordered = sorted(took)
    return {
        "a second": len(took) / seconds,
        "p50 ms": statistics.median(took) * 1e3,
        "p99 ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3,
    }


@contextmanager
def server(command: list[str], port: int, ready: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urlopen(f"http://127.0.0.1:{port}{ready}").close()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"{' '.join(command)} ended with {process.returncode}") from None
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def in_process(root: Path, ids: Iterator[int], seconds: float) -> dict[str, dict[str, float]]:
    with needlepoint.open(root, read_only=True, refresh=1) as lake:
        table = lake.table("product")
        ways: dict[str, Callable[[int], object]] = {
            "get": lambda key: table.get(product_id=key, columns=["title", "upc"]).rows(),
            "sql": lambda key: lake.sql(f"SELECT title, upc FROM product WHERE product_id = {key}").rows(),
        }
        found = {}
        for name, way in ways.items():
            for _ in range(300):
                way(next(ids))
            took, ends, began = [], time.perf_counter() + seconds, time.perf_counter()
            while time.perf_counter() < ends:
                start = time.perf_counter()
                way(next(ids))
                took.append(time.perf_counter() - start)
            found[name] = summary(took, time.perf_counter() - began)
        return found


def in_threads(root: Path, rows: int, threads: int, seconds: float) -> dict[str, float]:
    """Threads of this process that share a lake, each with keys of its own."""
    with needlepoint.open(root, read_only=True, refresh=1) as lake, ThreadPoolExecutor(threads) as pool:
        table = lake.table("product")

        def ask(first: int, for_seconds: float) -> list[float]:
            took, ends = [], time.perf_counter() + for_seconds
            for number in itertools.count(first * 1_000_003):
                start = time.perf_counter()
                if start > ends:
                    return took
                table.get(product_id=product_id_of(number * 7919 % rows), columns=["title", "upc"]).rows()
                took.append(time.perf_counter() - start)
            raise AssertionError

        list(pool.map(ask, range(threads), [0.5] * threads))  # warm
        began = time.perf_counter()
        took = [each for part in pool.map(ask, range(threads), [seconds] * threads) for each in part]
        return summary(took, time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=int(os.environ.get("BENCH_ROWS", "1000000")))
    parser.add_argument("--lake", type=Path, default=Path("bench-lake"))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    root = options.lake / str(options.rows)
    make_lake(root, options.rows)
    with needlepoint.open(root) as lake:
        if not lake.sql("SHOW INDEXES").rows():
            lake.create_index("product", "product_id")
    numbers = iter(range(options.rows * 1000))
    ids = (product_id_of((number * 7919) % options.rows) for number in numbers)
    rows = []
    for name, found in in_process(root, ids, options.seconds).items():
        rows.append([f"in this process, {name}", "1", *(f"{value:,.2f}" for value in found.values())])
    for threads in (2, 4, 8):
        found = in_threads(root, options.rows, threads, options.seconds)
        rows.append([f"in this process, get, {threads} threads", str(threads), *(f"{v:,.2f}" for v in found.values())])
    for workers in options.workers:
        port = free_port()
        command = [sys.executable, "-m", "needlepoint", "--lake", str(root), "serve", "--port", str(port)]
        with server([*command, "--workers", str(workers)], port, "/ready"):
            for what, request in (("by key", get_request), ("by SQL", sql_request)):
                for clients in CLIENTS:
                    found = load(port, request, ids, clients, options.seconds)
                    name = f"needle serve --workers {workers}, {what}"
                    rows.append([name, str(clients), *(f"{value:,.2f}" for value in found.values())])
    if roapi := shutil.which("roapi", path=str(Path(sys.executable).parent)):
        port = free_port()
        files = f"product={root}/product,format=parquet,use_memory_table=false"
        ports = ["--addr-postgres", f"127.0.0.1:{free_port()}", "--addr-flight-sql", f"127.0.0.1:{free_port()}"]
        command = [roapi, "--table", files, "--addr-http", f"127.0.0.1:{port}", *ports]
        with server(command, port, "/health"):
            for clients in (1, 16):
                found = load(port, roapi_request, ids, clients, options.seconds)
                rows.append(["ROAPI, by SQL", str(clients), *(f"{value:,.2f}" for value in found.values())])
    report("Lookups of one row", ["", "clients", "a second", "p50 ms", "p99 ms"], rows)


if __name__ == "__main__":
    main()
