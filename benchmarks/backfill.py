"""Building the indexes of an existing lake: in processes on this machine, and in Spark tasks.

    make bench-backfill              BENCH_ROWS=20000000 by default; the lake is kept in bench-lake/

    processes     lake.build(table), as `needle index build`: runs are ingested as they are written, and overlap
    Spark         spark.build(session, lake, table), as `needle index build --on spark`: runs are merged into ranges

It reports rows per second and core, without the start of Spark; then lookups in the key index that each built. Both use
the same number of cores. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from quick import make_lake, report

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.indexes.key.encoding import encode
from needlepoint.spark.products import product_id_of
from needlepoint.stores.base import KeyStore

KINDS = {"keys": [("product_id", "key"), ("upc", "key")], "title, text": [("title", "text")]}
LOOKUPS = 2000


def timed(lake: needlepoint.Lake, kinds: list[tuple[str, str]], build: Callable[[], object]) -> float:
    for index in lake.registry.indexes.of(lake.registry.tables.get("product")):
        lake.drop_index(index.name)
    for column, kind in kinds:
        lake.create_index("product", column, kind, build=False)
    started = time.perf_counter()
    build()
    return time.perf_counter() - started


def lookups(lake: needlepoint.Lake, rows: int) -> list[str]:
    """Files of the index, and microseconds to look up one id in RocksDB: the first time, and again from its cache."""
    (index,) = [i for i in lake.registry.indexes.all() if i.column == "product_id"]
    store = lake.index_stores.entries(index)
    store.refresh(lake.registry.indexes.runs(index))
    ids = [product_id_of(number * 7919 % rows) for number in range(LOOKUPS)]
    keys = [bytes(key) for key in encode(pa.array(ids, pa.int64()))]
    runs = len(list((lake.store / "indexes" / str(index.id)).glob("*.sst")))
    return [str(runs), *(f"{_median_microseconds(store, keys):.0f}" for _ in range(2))]


def _median_microseconds(store: KeyStore, keys: list[bytes]) -> float:
    times = []
    for key in keys:
        started = time.perf_counter()
        found = store.find([key], 10)
        times.append(time.perf_counter() - started)
        assert found is not None and len(found) >= 1
    return statistics.median(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=int(os.environ.get("BENCH_ROWS", "20000000")))
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--lake", type=Path, default=Path("bench-lake"))
    arguments = parser.parse_args()
    rows, cores = arguments.rows, arguments.cores
    root = (arguments.lake / str(rows)).resolve()
    make_lake(root, rows)
    session = needle_spark.session(cores=cores, memory="2g")
    figures, asked = [], []
    with needlepoint.open(root, workers=cores) as lake:
        frame = session.range(2 * cores, numPartitions=2 * cores)
        frame.mapInArrow(lambda batches: batches, "id bigint").collect()  # start the workers
        ways = {
            "processes": lambda: lake.build("product"),
            "Spark": lambda: needle_spark.build(session, lake, "product"),
        }
        for title, kinds in KINDS.items():
            for way, build in ways.items():
                seconds = timed(lake, kinds, build)
                figures.append([title, way, f"{seconds:.1f}", f"{rows / seconds / cores:,.0f}"])
                if title == "keys":
                    asked.append([way, *lookups(lake, rows)])
    session.stop()
    report(f"building over {rows:,} rows with {cores} cores", ["indexes", "by", "s", "rows/s/core"], figures)
    report("one id asked for in RocksDB", ["built by", "files", "µs, first time", "µs, again"], asked)


if __name__ == "__main__":
    main()
