"""The cost that publishing and indexing add to a Spark write, and the time until the index finds a micro-batch.

    make bench-write                 BENCH_ROWS=5000000 by default; the files are removed afterwards

    needlepoint       spark.write(…), published and indexed: product_id in RocksDB
    plain             df.write.partitionBy(…).parquet(…) with the same options: sorting, codec, pages, number of files
    Spark's defaults  the same without any option, and without sorting

All run in turns; medians, rows and files are compared. `needle indexer` runs beside the stream. The lag is
the time from the publishing of a batch until a lookup in it reads pages and scans nothing. Trust the ratios. Nothing
else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from quick import LAYOUT, PARTITIONS, report

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.spark import stage
from needlepoint.spark.products import products

STREAM_SCHEMA = "product_id bigint, upc string, title string, partner string"


def ours(session: Any, lake: needlepoint.Lake, rows: int) -> tuple[float, float]:
    """Seconds until the batch is published, and until it is indexed."""
    started = time.perf_counter()
    frame = products(session, rows, batch=0, batches=1)
    needle_spark.write(frame, lake, "product", partition_by=PARTITIONS, layout=LAYOUT, files_per_partition=1)
    published = time.perf_counter()
    for handled in lake.follow_events(once=True):
        assert not handled.problem, handled.problem
    return published - started, time.perf_counter() - started


def plain(session: Any, target: Path, rows: int, *, with_options: bool) -> float:
    """Write like `ours`: one task writes the rows of a partition, into one file."""
    started = time.perf_counter()
    frame = products(session, rows, batch=0, batches=1)
    writer = frame.repartition(*PARTITIONS)
    options: dict[str, Any] = {}
    if with_options:
        writer = writer.sortWithinPartitions(*PARTITIONS, *LAYOUT.sort_by)
        options = stage._options(frame, LAYOUT)
    writer.write.options(**options).partitionBy(*PARTITIONS).parquet(f"file://{target}")
    return time.perf_counter() - started


def one_round(session: Any, lake: needlepoint.Lake, root: Path, rows: int) -> tuple[dict[str, float], list[list[int]]]:
    """Seconds of each write; and the files, rows and bytes that each wrote."""
    location = Path(lake.registry.tables.get("product").location)
    before = _files(location)
    published, indexed = ours(session, lake, rows)
    taken = {"needlepoint": indexed, "until published": published}
    written = [_files(location) - before]
    for name, with_options in (("plain", True), ("Spark's defaults", False)):
        target = root / ("options" if with_options else "defaults")
        taken[name] = plain(session, target, rows, with_options=with_options)
        written.append(_files(target))
    return taken, [[len(files), _rows(files), sum(file.stat().st_size for file in files)] for files in written]


def measure_writing(session: Any, root: Path, rows: int, rounds: int) -> None:
    times: dict[str, list[float]] = {}
    with needlepoint.open(root / "lake") as lake:
        ours(session, lake, 1000)
        lake.create_index("product", "product_id")
        for number in range(rounds + 1):
            taken, written = one_round(session, lake, root / "plain", rows)
            shutil.rmtree(root / "plain")
            assert all(each[:2] == written[0][:2] for each in written), f"rows and files differ: {written}"
            if number:  # not the first round, which compiles
                for name, seconds in taken.items():
                    times.setdefault(name, []).append(seconds)
        (status,) = lake.status().tables
        assert status.indexed == status.files
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    sizes = dict(zip(("needlepoint", "plain", "Spark's defaults"), (each[2] for each in written), strict=True))
    table = [
        [
            name,
            f"{seconds:.2f}",
            f"{sizes[name] / 1e6:.0f}" if name in sizes else "",
            f"{medians['needlepoint'] / seconds:.2f}" if name in sizes else "",
        ]
        for name, seconds in medians.items()
    ]
    headers = ["write", "seconds", "MB", "needlepoint takes so many times as long"]
    report(f"Writing {rows:,} rows in {written[0][0]} files, {rounds} rounds", headers, table)


def measure_lag(session: Any, root: Path, batches: int, rows: int) -> None:
    source = root / "in"
    source.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with needlepoint.open(root / "lake", refresh=0) as lake:
        lags, cycles = [], []
        stream = session.readStream.schema(STREAM_SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
        query = needle_spark.stream(stream, lake, "feed", every="0 seconds", partition_by=["partner"])
        _offer(root, 0, rows)
        query.processAllAvailable()
        lake.create_index("feed", "product_id")
        published: list[float] = []
        publish = lake.publish

        def timed(*arguments: Any, **named: Any) -> Any:
            done = publish(*arguments, **named)
            published.append(time.perf_counter())
            return done

        lake.publish = timed  # type: ignore[method-assign]
        command = [
            sys.executable,
            "-c",
            "from needlepoint.cli import main; main()",
            "indexer",
            "--lake",
            str(lake.root),
        ]
        indexer = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            for number in range(1, batches + 2):
                offered = time.perf_counter()
                _offer(root, number, rows)
                while len(published) < number:
                    time.sleep(0.001)
                question = f"SELECT title FROM feed WHERE product_id = {number * rows}"
                while True:
                    found = lake.sql(question)
                    assert found.rows() == [{"title": f"title {number * rows}"}]
                    if found.report.tables[0].scanned_files == 0:
                        break
                    time.sleep(0.001)
                if number > 1:  # not the first batch, which starts the indexer
                    lags.append(time.perf_counter() - published[-1])
                    cycles.append(published[-1] - offered)
        finally:
            indexer.terminate()
            indexer.wait()
            query.stop()
    table = [
        ["a file arrives, its batch is published", *_shown(cycles)],
        ["published, found through the index", *_shown(lags)],
    ]
    report(
        f"A stream of {batches} micro-batches of {rows:,} rows, with an indexer", ["", "median ms", "worst ms"], table
    )


def _offer(root: Path, number: int, rows: int) -> None:
    hidden = root / "in" / f".{number}.json"
    with hidden.open("w") as file:
        for id in range(number * rows, (number + 1) * rows):
            row = {"product_id": id, "upc": f"U{id:09d}", "title": f"title {id}", "partner": "ABC"[id % 3]}
            file.write(json.dumps(row) + "\n")
    hidden.rename(root / "in" / f"{number}.json")


def _shown(seconds: list[float]) -> list[str]:
    return [f"{statistics.median(seconds) * 1000:.0f}", f"{max(seconds) * 1000:.0f}"]


def _files(directory: Path) -> set[Path]:
    return set(directory.rglob("*.parquet"))


def _rows(files: set[Path]) -> int:
    return int(ds.dataset([str(file) for file in files]).count_rows())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=int(os.environ.get("BENCH_ROWS", "5000000")))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=20, help="number of micro-batches in the stream")
    parser.add_argument("--batch-rows", type=int, default=10_000)
    parser.add_argument("--only", choices=["writing", "lag"])
    arguments = parser.parse_args()
    session = needle_spark.session(memory="4g")
    # Beside the lakes of the other benchmarks: temporary files might be in memory.
    Path("bench-lake").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="bench-lake") as root:
        if arguments.only != "lag":
            measure_writing(session, Path(root).resolve(), arguments.rows, arguments.rounds)
        if arguments.only != "writing":
            measure_lag(session, Path(root).resolve(), arguments.batches, arguments.batch_rows)
    session.stop()


if __name__ == "__main__":
    main()
