"""Small lakes for tests."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def write_titles(path: Path, first: int, rows: int = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = np.arange(first, first + rows)
    pq.write_table(pa.table({"id": ids, "title": [f"title {n}" for n in ids]}), path)


def publish_titles(lake: Lake, batch: str, first: int, **more: Any) -> None:
    """One file with ids from `first`, into the table `t`."""
    staging = lake.writer.staging("t")
    path = Path(staging) / f"part-{first}.parquet"
    write_titles(path, first)
    lake.publish("t", [StagedFile(str(path), "", path.stat().st_size, 100)], staging, batch, **more)


def removals(lake: Lake, table: str) -> list[Callable[[], object]]:
    """Every way to remove files from a table of products."""
    return [
        lambda: lake.delete(table, "TRUE"),
        lambda: lake.delete_files(table, ["year=2020/p0.parquet"]),
        lambda: lake.drop_partition(table, year=2020),
        lambda: lake.expire(table, "product_id", 2022),
        lambda: lake.compact(table),
    ]


def as_format_6(connection: sqlite3.Connection) -> None:
    """Turn a registry into one of format 6: cards and zone maps are in the database, not in packs."""
    packs = Path(connection.execute("PRAGMA database_list").fetchone()[2]).parent / "cards"

    def piece(name: str, start: int, length: int) -> bytes:
        return (packs / name).read_bytes()[start : start + length]

    cards = connection.execute("SELECT file_id, name, start, length FROM cards JOIN card_packs ON id = pack_id")
    stored = [(file_id, piece(*place)) for file_id, *place in cards.fetchall()]
    query = """SELECT bounds.file_id, column_name, unit, name, zone_start, zone_length FROM bounds
               JOIN cards ON cards.file_id = bounds.file_id JOIN card_packs ON id = pack_id
               WHERE zone_start IS NOT NULL"""
    zones = [(id, column, piece(*place), unit) for id, column, unit, *place in connection.execute(query).fetchall()]
    for statement in (
        "DROP TRIGGER card_added",
        "DROP TABLE cards",
        "DROP TABLE card_packs",
        "CREATE TABLE cards (file_id INTEGER PRIMARY KEY REFERENCES files ON DELETE CASCADE, card BLOB NOT NULL)",
        """CREATE TABLE zones (file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE, column_name TEXT NOT NULL,
           zones BLOB NOT NULL, unit TEXT, PRIMARY KEY (file_id, column_name))""",
        *(f"ALTER TABLE bounds DROP COLUMN zone_{name}" for name in ("start", "length", "checksum")),
    ):
        connection.execute(statement)
    connection.executemany("INSERT INTO cards VALUES (?, ?)", stored)
    connection.executemany("INSERT INTO zones VALUES (?, ?, ?, ?)", zones)
    connection.execute("""CREATE TRIGGER card_added AFTER INSERT ON cards BEGIN INSERT OR REPLACE INTO changes
        SELECT value + 1, table_id, id FROM sequence, files WHERE id = NEW.file_id; END""")
    connection.execute("PRAGMA user_version = 6")
    connection.commit()
    shutil.rmtree(packs, ignore_errors=True)


def as_format_5(connection: sqlite3.Connection) -> None:
    """Turn a registry into one of format 5: remove what that format did not have."""
    as_format_6(connection)
    for column in ("ctime_ns", "inode", "sample"):
        connection.execute(f"ALTER TABLE files DROP COLUMN {column}")
    connection.execute("DROP TABLE own")
    connection.execute("PRAGMA user_version = 5")
