"""The lake whose files are mutated: a table for each file layout, with every kind of index.

Each table has a file that stays as it is, and a file `bad.parquet` that is mutated; both have the same columns.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint
from needlepoint import Lake

ROWS = 240
WORDS = ["dairy", "cow", "fairy", "tale", "needle", "point", "lake", "page", "index", "zone", "bloom", "key"]


@dataclass(frozen=True)
class Base:
    """How the files of a table are written, and whether its indexes are embedded."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    embed: bool = False
    indexed: bool = True
    nested: bool = True
    by_duckdb: bool = False


_PAGES = {"write_page_index": True, "max_rows_per_page": 40, "row_group_size": 120}
BASES = (
    Base("plain", {**_PAGES, "use_dictionary": False, "compression": "none"}),
    Base("snappy", {**_PAGES, "bloom_filter_options": {"id": True, "code": True}}),
    Base("bare", {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 120, "max_rows_per_page": 40}),
    Base("delta", {"compression": "gzip", "use_dictionary": False, "row_group_size": 240,
                   "column_encoding": {"id": "DELTA_BINARY_PACKED", "code": "DELTA_BYTE_ARRAY",
                                       "title": "DELTA_LENGTH_BYTE_ARRAY", "price": "BYTE_STREAM_SPLIT"}},
         nested=False),
    Base("checked", {**_PAGES, "write_page_checksum": True, "compression": "lz4", "data_page_version": "2.0"}),
    Base("embedded", {**_PAGES, "use_dictionary": ["tag"]}, embed=True),
    Base("duckdb", by_duckdb=True, nested=False),
    Base("unindexed", {**_PAGES, "store_schema": False}, indexed=False),
)  # fmt: skip


@functools.cache
def rows(seed: int, nested: bool) -> pa.Table:
    chance = random.Random(seed)
    numbers = range(seed * 1000, seed * 1000 + ROWS)

    def some(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    columns: dict[str, Any] = {
        "id": pa.array(chance.sample(numbers, ROWS), pa.int64()),
        "code": [f"C{chance.randrange(10**9):09d}" for _ in numbers],
        "tag": [some(chance.choice(WORDS)) for _ in numbers],
        "title": [some(" ".join(chance.choices(WORDS, k=5))) for _ in numbers],
        "price": pa.array([some(chance.choice((0.5, -1.25, float("nan"), 0.0, 99.75))) for _ in numbers], pa.float64()),
        "small": pa.array([chance.randrange(50) for _ in numbers], pa.int32()),
        "good": [some(chance.random() < 0.5) for _ in numbers],
        "day": pa.array([some(chance.randrange(20000)) for _ in numbers], pa.date32()),
        "moment": pa.array([chance.randrange(10**15) for _ in numbers], pa.timestamp("us")),
        "amount": pa.array([Decimal(chance.randrange(10**6)) / 100 for _ in numbers], pa.decimal128(12, 2)),
    }
    if nested:
        columns["list"] = pa.array(
            [some([some(n) for n in range(chance.randrange(4))]) for _ in numbers], pa.list_(pa.int64())
        )
        columns["point"] = pa.array([some({"x": n, "y": some("y")}) for n in numbers])
        columns["map"] = pa.array([some([("a", n)]) for n in numbers], pa.map_(pa.string(), pa.int32()))
    return pa.table(columns)


def write(base: Base, path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = rows(seed, base.nested)
    if base.by_duckdb:
        with duckdb.connect() as database:
            database.register("rows", table)
            database.execute(f"COPY rows TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 120)")
        return
    pq.write_table(table, path, **base.options)


def make(root: Path) -> None:
    """Create the lake, with all files intact."""
    with needlepoint.open(root, history="off") as lake:
        for base in BASES:
            write(base, root / base.name / "good.parquet", 1)
            write(base, root / base.name / "bad.parquet", 2)
            lake.create_table(base.name, root / base.name)
            if base.indexed:
                _index(lake, base)
            else:
                lake.sync(base.name)


def _index(lake: Lake, base: Base) -> None:
    for column, kind in (
        ("id", "key"), ("code", "key"), ("tag", "distinct"), ("small", "distinct"), ("title", "text"),
        ("moment", "bloom"), ("code", "bloom"),
    ):  # fmt: skip
        name = f"{base.name}_{column}_{kind}"
        lake.create_index(base.name, column, kind=kind, embed=base.embed, name=name, build=False)
    lake.sync(base.name)
