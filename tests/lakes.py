"""Small lakes for tests."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint import Lake
from needlepoint.tables.staged_file import StagedFile

# A join of about four seconds on any number of cores: long enough to be cancelled. DataFusion does not notice that in
# the middle of such a join, which goes on in the background and slows other tests down. So it must have an end.
CORES = os.cpu_count() or 1
FEW = f"(SELECT id FROM product WHERE id < {2 * CORES})"
LONG_JOIN = f"SELECT count(*) FROM product a, product b, {FEW} c WHERE a.id + b.id + c.id = -1"  # of 40,000 rows


def products(first: int, count: int, *, seed: int = 0) -> pa.Table:
    """Products with ids `first` to `first + count`, shuffled."""
    random = np.random.default_rng([seed, first])
    ids = random.permutation(np.arange(first, first + count))
    return pa.table(
        {
            "product_id": ids,
            "upc": [f"U{number:09d}" for number in ids],
            "title": [f"title {number % 97} dairy" for number in ids],
            "price": np.round(random.random(count) * 100, 2),
        }
    )


def write(table: pa.Table, path: Path, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {"write_page_index": True, "max_rows_per_page": 100, "use_dictionary": False, "row_group_size": 1000}
    pq.write_table(table, path, **{**settings, **options})
    return path


def product_lake(root: Path, *, files: int = 4, rows: int = 2000) -> Path:
    """`root/product`, partitioned by year, with ids 0..files*rows."""
    for number in range(files):
        write(products(number * rows, rows), root / "product" / f"year={2020 + number % 2}" / f"p{number}.parquet")
    return root / "product"


def staged(staging: Path, tables: dict[str, pa.Table]) -> list[StagedFile]:
    """Write files into a staging directory, as a writer does; keys are paths relative to it."""
    found = []
    for name, table in tables.items():
        path = write(table, staging / name)
        relative = str(Path(name).parent)
        found.append(StagedFile(str(path), "" if relative == "." else relative, path.stat().st_size, table.num_rows))
    return found


def removals(lake: Lake, table: str) -> list[Callable[[], object]]:
    """Every way to remove files from a table of products."""
    return [
        lambda: lake.delete(table, "TRUE"),
        lambda: lake.delete_files(table, ["year=2020/p0.parquet"]),
        lambda: lake.drop_partition(table, year=2020),
        lambda: lake.expire(table, "product_id", 2022),
        lambda: lake.compact(table),
    ]


def as_format_5(connection: sqlite3.Connection) -> None:
    """Turn a registry into one of format 5: remove what that format did not have."""
    for column in ("ctime_ns", "inode", "sample"):
        connection.execute(f"ALTER TABLE files DROP COLUMN {column}")
    connection.execute("DROP TABLE own")
    connection.execute("PRAGMA user_version = 5")
