"""A query node over 100,000 files and a billion keys, without their data: planning, memory and bottlenecks.

    python benchmarks/scale_simulation.py --files 100000 --keys 1e8

The registry is real: each file has a row, a card, bounds and zone maps, all cloned from one real file; cards and zone
maps are in packs of 2,000 files. The files are
sparse: they exist with correct sizes and times but without blocks, so listing them takes realistic time. The key index
is a real RocksDB filled with real runs of ascending keys. Queries are planned, not run. The lake is kept in --lake and
used again; a run with more keys adds the missing ones. 1e9 keys take about 12 GB and 15 minutes.

    python benchmarks/scale_simulation.py --files 117188 --part registry

makes only the registry of 30 TB, with the places of cards and zone maps of ten columns.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from quick import report

import needlepoint
from needlepoint.indexer.build import BuildTask, FileTask, build
from needlepoint.indexes.key.encoding import encode
from needlepoint.objects import Identity
from needlepoint.parquet.card.card import FileCard
from needlepoint.predicate import Bounds
from needlepoint.stores.base import IN_ITS_RANGE, KeyStore
from needlepoint.tables.model import File
from needlepoint.tables.registry import FileArtifact, Registry

ROWS_OF_THE_MODEL = 100_000  # in the real file that all are cloned from: 400 pages of each column
FILES_OF_A_DIRECTORY = 100
KEYS_OF_A_RUN = 10_000_000
ARTIFACTS_AT_ONCE = 2000


def make_files(root: Path, files: int) -> None:
    """Register `files` sparse files, with cards, bounds and zone maps of a real file."""
    if (root / "files.done").exists() and int((root / "files.done").read_text()) == files:
        return
    first = root / "t/day=0/0.parquet"
    first.parent.mkdir(parents=True)
    chance = np.random.default_rng(0)
    model = pa.table(
        {
            "id": chance.permutation(ROWS_OF_THE_MODEL),
            "price": np.arange(ROWS_OF_THE_MODEL),
            "title": [f"title {number:013}" for number in chance.integers(0, 10**12, ROWS_OF_THE_MODEL)],
        }
    )
    pq.write_table(
        model, first, max_rows_per_page=250, write_batch_size=250, use_dictionary=False, compression="zstd",
        write_page_index=True,
    )  # fmt: skip
    size = first.stat().st_size
    started = time.perf_counter()
    with needlepoint.open(root, history="off") as lake:
        lake.create_table("t")
        table = lake.registry.tables.get("t")
        (known,) = lake.registry.files.of(table)
        task = FileTask(known.id or 0, str(first), known.identity, frozenset())
        (artifact,) = build(BuildTask((task,), (), 1 << 28), root).files
        card = FileCard.from_bytes(artifact.card)
        identities = {known.path: known.identity}
        for number in range(1, files):
            path = root / f"t/day={number // FILES_OF_A_DIRECTORY}/{number}.parquet"
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as file:
                file.truncate(size)
            identities[str(path.relative_to(root / "t"))] = Identity(size, path.stat().st_mtime_ns)
        print(f"{files:,} sparse files made in {time.perf_counter() - started:.0f} s", flush=True)
        started = time.perf_counter()
        added = [File(path, identity) for path, identity in identities.items() if path != known.path]
        lake.registry.files.replace(table, added, [])
        index = lake.registry.indexes.get(lake.create_index("t", "id", build=False))
        lows = chance.integers(0, 10**12, files).tolist()
        every = lake.registry.files.of(table)
        for start in range(0, files, ARTIFACTS_AT_ONCE):
            artifacts = []
            for file, low in zip(every[start : start + ARTIFACTS_AT_ONCE], lows[start:], strict=False):
                number = int(Path(file.path).stem)
                bounds = {
                    "id": Bounds(0, 10**12, 0, ROWS_OF_THE_MODEL),  # unordered: only the index can find an id
                    "title": Bounds(b"title %013d" % low, b"title %013d" % (low + 10**8), 0, ROWS_OF_THE_MODEL),
                    "price": Bounds(number * 1000, number * 1000 + 999, 0, ROWS_OF_THE_MODEL),
                }
                stored = replace(card, identity=file.identity).to_bytes()
                entries = {index.id: ROWS_OF_THE_MODEL}
                artifacts.append(
                    replace(
                        artifact,
                        file_id=file.id,
                        was=file.identity,
                        identity=file.identity,
                        card=stored,
                        bounds=bounds,
                        entries=entries,
                    )
                )
            lake.registry.commit_artifacts(artifacts, [])
        print(f"registered in {time.perf_counter() - started:.0f} s", flush=True)
    (root / "files.done").write_text(str(files))


def make_keys(root: Path, files: int, keys: int) -> None:
    """Add keys 0, 1, 2, … in runs that do not overlap; each key points to a row of some file."""
    done = int((root / "keys.done").read_text()) if (root / "keys.done").exists() else 0
    if done >= keys:
        return
    print(f"{keys - done:,} keys to make", flush=True)
    started = time.perf_counter()
    with needlepoint.open(root, history="off") as lake:
        index = lake.registry.indexes.of(lake.registry.tables.get("t"))[0]
        store = lake.index_stores.entries(index)
        ids = np.array([file.id for file in lake.registry.files.of(lake.registry.tables.get("t"))], np.uint64)
        for start in range(done, keys, KEYS_OF_A_RUN):
            numbers = np.arange(start, min(keys, start + KEYS_OF_A_RUN), dtype=np.int64)
            entries = np.empty((len(numbers), 16), np.uint8)
            entries[:, :8] = encode(pa.array(numbers))
            owners = ids[(numbers * 2_654_435_761 % len(ids)).astype(np.int64)]
            rows = (numbers * 40_503 % ROWS_OF_THE_MODEL).astype(np.uint64)
            entries[:, 8:] = ((owners << np.uint64(32)) | rows).astype(">u8").view(np.uint8).reshape(-1, 8)
            run = root / f"run-{start}"
            name = f"run-{start}{IN_ITS_RANGE}{entries[-1].tobytes().hex()}"
            store.write_run(run, entries, name)
            store.ingest([run])
            lake.registry.commit_artifacts([], [(index.id, name)])
            (root / "keys.done").write_text(str(int(numbers[-1]) + 1))
            rate = (int(numbers[-1]) + 1 - done) / (time.perf_counter() - started)
            print(f"  {int(numbers[-1]) + 1:,} keys, {rate:,.0f} a second", flush=True)


def memory() -> float:
    """Current memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


CLOCK = time.perf_counter


def timed(ask: Callable[[], object]) -> float:
    """Milliseconds of a call."""
    started = CLOCK()
    ask()
    return (CLOCK() - started) * 1000


def measure_planning(root: Path, files: int, keys: int) -> dict[str, float]:
    chance = np.random.default_rng(1)
    figures: dict[str, float] = {"memory of the libraries MiB": memory()}
    started = CLOCK()
    lake = needlepoint.open(root, refresh=3600, history="off")
    figures["open ms"] = (CLOCK() - started) * 1000
    figures["first plan ms"] = timed(lambda: lake.explain("SELECT price FROM t WHERE id = 1"))
    gc.collect()
    figures["memory after the first plan MiB"] = memory()
    questions = {
        "one id, by the key index": lambda: f"id = {chance.integers(keys)}",
        "IN (1,000), by the key index": lambda: f"id IN ({', '.join(map(str, chance.integers(0, keys, 1000)))})",
        "a price, of which files are sorted": lambda: f"price = {chance.integers(files) * 1000 + 7}",
        "a partition": lambda: f"day = {chance.integers(files // FILES_OF_A_DIRECTORY)}",
        "a title, by bounds": lambda: f"title = 'title {chance.integers(10**12):013}'",
    }
    rows = []
    for title, where in questions.items():
        first = timed(lambda where=where: lake.explain(f"SELECT price FROM t WHERE {where()}"))
        times = [timed(lambda where=where: lake.explain(f"SELECT price FROM t WHERE {where()}")) for _ in range(30)]
        left = lake.explain(f"SELECT price FROM t WHERE {where()}").tables[0].steps[2].files_after
        rows.append([title, f"{first:.1f}", f"{statistics.median(times):.2f}", f"{max(times):.1f}", f"{left:,}"])
        figures[f"plan {title} ms"] = statistics.median(times)
    report(
        f"planning over {files:,} files and {keys:,} keys, ms",
        ["question", "first", "median", "most", "files left"],
        rows,
    )
    figures["memory after all questions MiB"] = memory()
    snapshots = lake.engine.snapshots
    snapshots.forget()
    figures["list again ms"] = timed(lambda: snapshots.current("t"))
    figures["plan when the listing is stale ms"] = timed(
        lambda: (snapshots.forget(), lake.explain("SELECT price FROM t WHERE id = 2"))
    )
    lake.registry.views.create("v", "SELECT 1 AS one")
    figures["plan after another change of the registry ms"] = timed(
        lambda: lake.explain("SELECT price FROM t WHERE id = 3")
    )
    lake.registry.views.drop("v")
    lake.explain("SELECT price FROM t WHERE id = 3")
    with needlepoint.open(root, history="off") as writer:
        path = root / "t/day=0/new.parquet"
        pq.write_table(pa.table({"id": [-1], "price": [-1], "title": ["new"]}), path)
        figures["sync of one new file ms"] = timed(lambda: writer.sync("t"))
        figures["look at one file, as an event does ms"] = timed(
            lambda: writer.indexer.look("t", ["day=0/new.parquet"])
        )
        figures["plan after a file was added ms"] = timed(lambda: lake.explain("SELECT price FROM t WHERE id = 4"))
        path.unlink()
        writer.sync("t")
    lake.explain("SELECT price FROM t WHERE id = 4")
    gc.collect()
    figures["memory at the end MiB"] = memory()
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    figures["peak memory MiB"] = int(peak.split()[1]) / 1024
    lake.close()
    return figures


def measure_keys(root: Path, keys: int) -> dict[str, float]:
    chance = np.random.default_rng(2)
    with needlepoint.open(root, history="off") as lake:
        index = lake.registry.indexes.of(lake.registry.tables.get("t"))[0]
        store = lake.index_stores.entries(index)
        runs = lake.registry.indexes.runs(index)
        before = memory()
        figures = {"open the key index ms": timed(lambda: store.refresh(runs))}
        figures["memory of the open key index MiB"] = memory() - before
        for way in ("cold", "warm"):
            if way == "cold":
                forget(store)
            asked = [key.tobytes() for key in encode(pa.array(chance.integers(0, keys, 3000)))]
            if way == "warm":
                for key in asked:
                    store.find([key], 100)
            times = sorted(timed(lambda key=key: store.find([key], 100)) for key in asked)
            figures[f"key {way} p50 ms"], figures[f"key {way} p99 ms"] = times[1500], times[2970]
        figures["memory of the key index after 9,000 lookups MiB"] = memory() - before
    return figures


def forget(store: KeyStore) -> None:
    """Drop the index's files from the system's page cache; a new process has no cache of its own."""
    os.sync()
    for path in store._directory.glob("*"):  # type: ignore[attr-defined]
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sizes(root: Path, files: int, keys: int) -> dict[str, float]:
    with needlepoint.open(root, history="off") as lake:
        lake.registry.settle(whole=True)  # without the free pages of what was written over
        ask = lake.registry.database.read
        index = lake.registry.indexes.of(lake.registry.tables.get("t"))[0]
        registry = (lake.store / "registry.db").stat().st_size
        of_tables = ask("SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_master USING (name) GROUP BY 1")
        cards = ask("SELECT sum(length) FROM cards")[0][0]
        zones = ask("SELECT sum(zone_length) FROM bounds")[0][0]
        packs, packed = lake.registry.cards.size()
        key_index = lake.index_stores.entries(index).size()
    return {
        "registry MB": registry / 1e6,
        "registry bytes a file": registry / files,
        **{f"of it {table}, bytes a file": size / files for table, size in of_tables if size > files},
        "packs of cards": packs,
        "packs of cards MB": packed / 1e6,
        "of it cards MB": cards / 1e6,
        "of it zone maps MB": zones / 1e6,
        "key index MB": key_index / 1e6,
        "key index bytes a key": key_index / keys,
    }


def measure_registry(root: Path, files: int) -> dict[str, float]:
    """The registry alone, of as many files with ten columns: paths as Spark makes them, and bounds of numbers, times
    and texts. Cards and zone maps are a few bytes here, so their lengths take some 30 bytes less than real ones."""
    directory = root / f"registry-{files}"
    shutil.rmtree(directory, ignore_errors=True)
    chance = np.random.default_rng(2)
    types = {**dict.fromkeys("abcd", pa.int64()), **dict.fromkeys("ef", pa.float64()), "g": pa.timestamp("us")}
    columns = {f"column_{name}": type for name, type in {**types, **dict.fromkeys("hij", pa.string())}.items()}
    registry = Registry(directory, directory)
    table = registry.tables.create("t", str(directory / "t"), pa.schema(list(columns.items())), ())
    added = [
        File(
            f"partner=P{number % 50:03}/month={number // 50 % 120:03}/part-{number:05}-"
            f"{uuid.UUID(bytes=chance.bytes(16))}.c000.zstd.parquet",
            Identity(256_000_000 + number, 1_700_000_000_000_000_000 + number, "", 1_700_000_000_000_000_000, number),
        )
        for number in range(files)
    ]
    registry.files.replace(table, added, [])
    index = registry.indexes.create(table, "keys", ("column_a",), "key")
    for start in range(0, files, ARTIFACTS_AT_ONCE):
        artifacts = []
        for file in registry.files.of(table, range(start + 1, min(files, start + ARTIFACTS_AT_ONCE) + 1)):
            lows = chance.integers(0, 2**60, len(columns)).tolist()
            bounds = {
                name: Bounds(
                    *(
                        (b"title %015d" % (low % 10**15), b"title %015d" % (low % 10**15 + 1))
                        if type == pa.string()
                        else (low / 7, low / 3)
                        if type == pa.float64()
                        else (low, low + 10**6)
                    ),
                    0,
                    1_700_000,
                )
                for (name, type), low in zip(columns.items(), lows, strict=True)
            }
            zones = {name: b"%d" % low for name, low in zip(columns, lows, strict=True)}
            artifacts.append(
                FileArtifact(
                    file.id or 0,
                    file.identity,
                    file.identity,
                    1_700_000,
                    20,
                    68_000,
                    b"%d" % lows[0],
                    bounds,
                    zones,
                    {"column_g": "us"},
                    entries={index.id: 1_700_000},
                    sample="0123456789abcdef",
                )
            )
        registry.commit_artifacts(artifacts, [])
    registry.settle(whole=True)
    size = (directory / "registry.db").stat().st_size
    registry.close()
    return {"registry of ten columns MB": size / 1e6, "registry of ten columns, bytes a file": size / files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=lambda text: int(float(text)), default=100_000)
    parser.add_argument("--keys", type=lambda text: int(float(text)), default=100_000_000)
    parser.add_argument("--lake", type=Path, default=Path("bench-lake/simulation"))
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--part", choices=["planning", "keys", "registry"], help="run only this part, in this process")
    parser.add_argument("--cpu", action="store_true", help="measure CPU time of this thread, for a busy machine")
    arguments = parser.parse_args()
    if arguments.cpu:
        global CLOCK
        CLOCK = time.thread_time
    root, files, keys = arguments.lake.resolve(), arguments.files, arguments.keys
    if arguments.part is not None:
        parts = {
            "planning": lambda: measure_planning(root, files, keys),
            "keys": lambda: measure_keys(root, keys),
            "registry": lambda: measure_registry(root, files),
        }
        found = parts[arguments.part]()
        print(json.dumps(found), file=sys.stderr)
        return
    root.mkdir(parents=True, exist_ok=True)
    make_files(root, files)
    make_keys(root, files, keys)
    figures = sizes(root, files, keys)
    for part in ("planning", "keys", "registry"):
        # In a separate process, so that its memory is that of a query node.
        done = subprocess.run(
            [sys.executable, *sys.argv, "--part", part], stderr=subprocess.PIPE, text=True, check=True
        )
        figures |= json.loads(done.stderr.splitlines()[-1])
    report("figures", ["what", "value"], [[name, f"{value:,.2f}"] for name, value in figures.items()])
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
