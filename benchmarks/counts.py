"""Counts, extremes and groups beside DataFusion and DuckDB over the same files, in two layouts.

    make bench-counts                BENCH_ROWS=1000000 by default

All run the same queries in turns, and every answer is compared. `scan` is the lake without indexes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint

FILES, TENANTS, ROUNDS = 10, 1000, 9
LAYOUTS: dict[str, dict[str, Any]] = {
    "ours": {"write_page_index": True, "max_rows_per_page": 250, "compression": "zstd"},
    "pyarrow default": {},
}


def queries(rows: int) -> dict[str, str]:
    return {
        "count(*)": "SELECT count(*) FROM t",
        "count(*) of a tenant": "SELECT count(*) FROM t WHERE tenant = 'tenant-0007'",
        "count(*) by tenant": "SELECT tenant, count(*) FROM t GROUP BY tenant",
        "min and max of id": "SELECT min(id), max(id) FROM t",
        "count(*) of 1%, sorted": f"SELECT count(*) FROM t WHERE id > {rows * 99 // 100}",
        "count(*) of 88%, sorted": f"SELECT count(*) FROM t WHERE id > {rows * 12 // 100 + 7}",
        "count(*) of 1%, unsorted": "SELECT count(*) FROM t WHERE r < 10000000",
        "DISTINCT tenant": "SELECT DISTINCT tenant FROM t",
        "is there such a tenant": "SELECT count(*) > 0 FROM t WHERE tenant = 'tenant-0500'",
    }


def make(root: Path, rows: int, options: dict[str, Any]) -> needlepoint.Lake:
    """`id` ascends, `r` is in any order; key indexes on both, a distinct index on `tenant`."""
    (root / "t").mkdir(parents=True)
    random, each = np.random.default_rng(1), rows // FILES
    for file in range(FILES):
        tenants = pa.array([f"tenant-{number:04d}" for number in range(TENANTS)])
        table = pa.table(
            {
                "id": np.arange(file * each, (file + 1) * each),
                "r": random.integers(0, 1_000_000_000, each),
                "tenant": tenants.take(pa.array(random.integers(0, TENANTS, each))),
                "price": random.random(each),
            }
        )
        pq.write_table(table, root / "t" / f"{file}.parquet", **options)
    lake = needlepoint.open(root)
    lake.create_table("t")
    for column, kind in (("tenant", "distinct"), ("id", "key"), ("r", "key")):
        lake.create_index("t", column, kind)
    return lake


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def measure(ways: dict[str, Callable[[], pa.Table]]) -> dict[str, float]:
    """The median of each, in milliseconds."""
    answers = {name: rows_of(run()) for name, run in ways.items()}
    assert len({tuple(answer) for answer in answers.values()}) == 1, answers
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            started = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) * 1000 for name, times in taken.items()}


def compare(lake: needlepoint.Lake, place: str, rows: int) -> None:
    context, duck = datafusion.SessionContext(), duckdb.connect()
    context.register_parquet("t", f"{place}/t")
    duck.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet('{place}/t/*.parquet')")
    print("| query | lake.sql ms | scan ms | DataFusion ms | DuckDB ms | rows read |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, query in queries(rows).items():
        found = measure(
            {
                "lake": lambda query=query: lake.sql(query).to_arrow(),
                "scan": lambda query=query: lake.engine.sql(query, use_indexes=False).to_arrow(),
                "datafusion": lambda query=query: context.sql(query).to_arrow_table(),
                "duck": lambda query=query: duck.sql(query).to_arrow_table(),
            }
        )
        (report,) = lake.sql(query).report.tables
        times = " | ".join(f"{value:.1f}" for value in found.values())
        print(f"| {name} | {times} | {report.rows.read:,} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=int(os.environ.get("BENCH_ROWS", "1000000")))
    rows = parser.parse_args().rows
    for layout, options in LAYOUTS.items():
        with tempfile.TemporaryDirectory(prefix="needlepoint-counts-") as place:
            print(f"\n{rows:,} rows in {FILES} files, layout: {layout}\n")
            with make(Path(place), rows, options) as lake:
                compare(lake, place, rows)


if __name__ == "__main__":
    main()
