"""A table of 100,000 files: how long planning takes, and how long the first query takes.

    python benchmarks/many_files.py --files 100000

One small Parquet file is copied many times, and each copy gets its own bounds in the registry, as if every file had
other rows: planning uses bounds and reads nothing. Queries are planned, not run.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from quick import report

import needlepoint
from needlepoint.indexer.build import BuildTask, FileTask, build
from needlepoint.predicate import Bounds
from needlepoint.tables.listing import list_files
from needlepoint.tables.model import File

ROUNDS = 9
ROWS_OF_A_FILE = 1_000_000


def make(root: Path, files: int) -> None:
    first = root / "t/day=0/0.parquet"
    first.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2], "title": ["a", "b"], "price": [1, 2]}), first)
    data = first.read_bytes()
    with needlepoint.open(root) as lake:
        lake.create_table("t")
        for number in range(1, files):
            directory = root / f"t/day={number // 100}"
            directory.mkdir(exist_ok=True)
            (directory / f"{number}.parquet").write_bytes(data)
        table = lake.registry.tables.get("t")
        (known,) = lake.registry.files.of(table)
        added = [
            File(path, identity) for path, identity in list_files(table.location).files.items() if path != known.path
        ]
        lake.registry.files.replace(table, added, [])
        task = FileTask(known.id or 0, str(first), known.identity, frozenset())
        (artifact,) = build(BuildTask((task,), (), 1 << 28), root).files
        chance = np.random.default_rng(0)
        lows = chance.integers(0, 10**12, files)
        artifacts = []
        for file, low in zip(lake.registry.files.of(table), lows.tolist(), strict=True):
            number = int(Path(file.path).stem)
            bounds = {
                "id": Bounds(low, low + 10**8, 0, ROWS_OF_A_FILE),
                "title": Bounds(f"title {low:013}".encode(), f"title {low + 10**8:013}".encode(), 0, ROWS_OF_A_FILE),
                "price": Bounds(number * 1000, number * 1000 + 999, 0, ROWS_OF_A_FILE),
            }
            artifacts.append(replace(artifact, file_id=file.id, rows=ROWS_OF_A_FILE, bounds=bounds, zones={}))
        lake.registry.commit_artifacts(artifacts, [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    files = parser.parse_args().files
    queries = {
        "an id, between the bounds of few": "id = 500000000000",
        "10 ids": f"id IN ({', '.join(str(n * 10**11 + 7) for n in range(10))})",
        "1,000 ids": f"id IN ({', '.join(str(n * 10**9 + 7) for n in range(1000))})",
        "a partition": "day = 77",
        "a partition and an id": "day BETWEEN 70 AND 79 AND id < 100000000000",
        "a title": "title = 'title 0500000000000'",
        "a prefix": "title LIKE 'title 05000%'",
        "a range of a sorted column": "price BETWEEN 500000 AND 501000",
        "nothing": "id < 0",
    }
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        started = time.perf_counter()
        make(root, files)
        print(f"made in {time.perf_counter() - started:.0f} s")
        with needlepoint.open(root, refresh=3600) as lake:
            started = time.perf_counter()
            lake.explain("SELECT id FROM t WHERE id = -1")
            print(f"first query: {time.perf_counter() - started:.2f} s (lists the directory, loads files and bounds)")
            for title, where in queries.items():
                times = []
                lake.explain(f"SELECT price FROM t WHERE {where}")
                for _ in range(ROUNDS):
                    started = time.perf_counter()
                    planned = lake.explain(f"SELECT price FROM t WHERE {where}")
                    times.append(time.perf_counter() - started)
                kept = planned.tables[0].steps[1].files_after
                rows.append([title, f"{statistics.median(times) * 1000:.1f}", f"{kept:,}"])
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report(f"planning over {files:,} files", ["question", "ms", "files left by bounds"], rows)
    print(f"\npeak memory {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
