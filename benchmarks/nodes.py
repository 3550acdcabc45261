"""A node with an empty disk over a lake of 100,000 files in a bucket: ready time, requests, memory and following.

    python benchmarks/nodes.py --files 100000 --latency 0.02

The registry is real: each file has a row, a card, bounds and a zone map, cloned from one real file. A few files are
real objects with values of their own, and those are queried: a node lists nothing, so the others need not exist. The
bucket is moto in a process of its own, which waits `--latency` seconds before each answer and counts requests. Each
node is a new process with an empty cache.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from quick import report

import needlepoint
from needlepoint.indexer.build import BuildTask, FileTask, build
from needlepoint.objects import Identity
from needlepoint.parquet.card.card import FileCard
from needlepoint.predicate import Bounds
from needlepoint.tables.model import File

ROWS = 2_500
REAL = 3
ARTIFACTS_AT_ONCE = 5000
BUCKET = "nodes"


def serve(latency: float) -> None:
    """S3 on loopback. `/-/count` returns the requests since it was asked last."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = DomainDispatcherApplication(create_backend_app)
    asked: list[tuple[str, str]] = []

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == "/-/count":
            body = json.dumps(asked).encode()
            asked.clear()
            start_response("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        asked.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        time.sleep(latency)
        return moto(environ, start_response)

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server.serve_forever()


def counted(url: str) -> list[list[str]]:
    found: list[list[str]] = json.loads(urlopen(f"{url}/-/count").read())
    return found


def model(number: int) -> bytes:
    """A file whose prices are from `number * 1000` on."""
    chance = np.random.default_rng(number)
    table = pa.table(
        {
            "id": chance.permutation(ROWS),
            "price": number * 1000 + np.arange(ROWS) * 999 // ROWS,
            "title": [f"title {each:013}" for each in chance.integers(0, 10**12, ROWS)],
        }
    )
    out = io.BytesIO()
    pq.write_table(
        table, out, max_rows_per_page=250, write_batch_size=250, use_dictionary=False, compression="zstd",
        write_page_index=True,
    )  # fmt: skip
    return out.getvalue()


def make(url: str, store: Path, files: int) -> needlepoint.Lake:
    """A lake of this many files, the last REAL of which exist."""
    import boto3

    client = boto3.client("s3", endpoint_url=url)
    client.create_bucket(Bucket=BUCKET)
    real = range(files - REAL, files)
    for number in real:
        client.put_object(Bucket=BUCKET, Key=f"lake/t/{number}.parquet", Body=model(number))
    lake = needlepoint.open(f"s3://{BUCKET}/lake", store=store, history="off", workers=1, shared="off")
    lake.create_table("t")
    lake.sync("t")
    table = lake.registry.tables.get("t")
    known = lake.registry.files.of(table)[0]
    task = FileTask(known.id or 0, f"{table.location}/{known.path}", known.identity, frozenset())
    (artifact,) = build(BuildTask((task,), (), 1 << 28), store).files
    card = FileCard.from_bytes(artifact.card)
    chance = np.random.default_rng(1)
    added = [
        File(f"{number}.parquet", Identity(known.identity.size, 10**18, chance.bytes(16).hex()))
        for number in range(files - REAL)
    ]
    lake.registry.files.replace(table, added, [])
    every = [file for file in lake.registry.files.of(table) if int(Path(file.path).stem) not in real]
    lows = chance.integers(0, 10**12, files).tolist()
    for start in range(0, len(every), ARTIFACTS_AT_ONCE):
        some = zip(every[start:][:ARTIFACTS_AT_ONCE], lows[start:], strict=False)
        lake.registry.commit_artifacts([_artifact(artifact, card, file, low) for file, low in some], [])
    lake.close()
    return needlepoint.open(f"s3://{BUCKET}/lake", store=store, history="off", workers=1, shared="on")


def _artifact(artifact: Any, card: FileCard, file: File, low: int) -> Any:
    number = int(Path(file.path).stem)
    bounds = {
        "id": Bounds(0, 10**12, 0, ROWS),
        "title": Bounds(b"title %013d" % low, b"title %013d" % (low + 10**8), 0, ROWS),
        "price": Bounds(number * 1000, number * 1000 + 999, 0, ROWS),
    }
    stored = replace(card, identity=file.identity).to_bytes()
    return replace(artifact, file_id=file.id, was=file.identity, identity=file.identity, card=stored, bounds=bounds)


NODE = """
import json, resource, sys, time
import needlepoint
url, cache, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
import needlepoint.lake
from urllib.request import urlopen
import os
count = lambda: json.loads(urlopen(os.environ["AWS_ENDPOINT_URL"] + "/-/count").read())
count()
began = time.perf_counter()
lake = needlepoint.open(url, read_only=True, cache=cache, store=cache + "/none", object_refresh=2)
opened = time.perf_counter() - began
lake.sql("SELECT count(*) FROM t WHERE price = -1").rows()
ready = time.perf_counter() - began
opening = len(count())
times, requests = [], []
for each in (number, number, number + 1):
    began = time.perf_counter()
    rows = lake.sql(f"SELECT id, title FROM t WHERE price = {each * 1000 + 7}").to_arrow().num_rows
    times.append(time.perf_counter() - began)
    requests.append(len(count()))
    assert rows, each
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"opened": opened, "ready": ready, "opening": opening, "times": times, "requests": requests,
    "memory": memory}), flush=True)
if not sys.stdin.readline():  # else the lake has changed
    sys.exit()
began = time.perf_counter()
while lake.sql("SELECT count(*) FROM t WHERE price = -5").rows() != [{"count(*)": 1}]:
    assert time.perf_counter() < began + 60
    time.sleep(0.05)
print(json.dumps({"seen": time.perf_counter() - began, "following": len(count()),
    "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)
"""


class Node:
    def __init__(self, cache: Path, number: int) -> None:
        arguments = [sys.executable, "-c", NODE, f"s3://{BUCKET}/lake", str(cache), str(number)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def follow(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        self.process.communicate()


def measure(url: str, directory: Path, files: int) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []

    def line(what: str, value: str) -> None:
        print(f"{what:60} {value}", flush=True)
        lines.append((what, value))

    started = time.perf_counter()
    lake = make(url, directory / "store", files)
    line("registry made", f"{time.perf_counter() - started:.0f} s")
    size = (directory / "store/registry.db").stat().st_size
    packs = sum(path.stat().st_size for path in (directory / "store/cards").iterdir())
    line("registry, and packs of cards", f"{size / 1e6:.0f} MB, {packs / 1e6:.0f} MB")
    started = time.perf_counter()
    lake.share()
    assert lake.publisher is not None
    manifest = lake.publisher.publish()
    line("published first, with all packs", f"{time.perf_counter() - started:.1f} s")
    line("checkpoint", f"{manifest.checkpoint.size / 1e6:.1f} MB")
    node = Node(directory / "a", files - REAL)
    for name, cache in (("empty disk", None), ("the same disk again", directory / "a")):
        first = node.first if cache is None else Node(cache, files - REAL)
        if not isinstance(first, dict):
            first.process.stdin.close()  # type: ignore[union-attr]
            first = first.first
        line(f"{name}: opened, first query answered", f"{first['opened']:.2f} s, {first['ready']:.2f} s")
        line(f"{name}: requests until then", str(first["opening"]))
        shown = ", ".join(f"{1000 * each:.0f} ms" for each in first["times"])
        line(f"{name}: a row, the same again, of another file", shown)
        line(f"{name}: requests for these", ", ".join(map(str, first["requests"])))
        line(f"{name}: memory", f"{first['memory']:.0f} MB")
    row = pa.table({"id": [1], "price": [-5], "title": ["new"]})
    batch = directory / "new.parquet"
    pq.write_table(row, batch)
    from needlepoint.tables.staged_file import StagedFile

    staging = directory / "stage"
    staging.mkdir()
    batch.rename(staging / "new.parquet")
    started = time.perf_counter()
    staged = [StagedFile(str(staging / "new.parquet"), "", 1, 1)]
    lake.publish("t", staged, staging)
    line("a batch of one file committed", f"{time.perf_counter() - started:.2f} s")
    started = time.perf_counter()
    lake.share()
    delta = lake.publisher.publish().deltas[-1]
    line("published, as a delta of", f"{time.perf_counter() - started:.2f} s, {delta.size / 1e3:.0f} kB")
    found = node.follow()
    line("seen by a node that follows (object_refresh=2) after", f"{found['seen']:.2f} s")
    line("requests for that", str(found["following"]))
    line("memory of that node in the end", f"{found['memory']:.0f} MB")
    node.end()
    lake.close()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds that the bucket waits before each answer")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.latency)
        return
    own = [sys.executable, __file__, "--serve", "--latency", str(chosen.latency)]
    server = subprocess.Popen(own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    os.environ |= {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "nodes",
        "AWS_SECRET_ACCESS_KEY": "nodes",
    }
    try:
        with tempfile.TemporaryDirectory() as directory:
            lines = measure(url, Path(directory), chosen.files)
    finally:
        server.communicate()
    title = f"A node over {chosen.files:,} files, {1000 * chosen.latency:.0f} ms for each request"
    report(title, ["what", "result"], lines)


if __name__ == "__main__":
    main()
