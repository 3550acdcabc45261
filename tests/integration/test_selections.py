"""Columns of rows that are all read by page: found without DataFusion, and compared with DuckDB."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.others import rows_in_utc

import needlepoint
from needlepoint.query import execution
from needlepoint.query.scan.table_provider import TableFrame

ROWS, FILES = 600, 4
WITHOUT = [
    "id >= 100 AND id < 130",
    "id BETWEEN 100 AND 130 AND k <> 3",
    "id > 590 OR id < 4 OR id = 77",
    "id IN (5, 6, 7, 1000) AND name IS NOT NULL",
    "ts >= TIMESTAMP '2024-01-02 00:00:00' AND ts < TIMESTAMP '2024-01-02 07:00:00'",
    "z < TIMESTAMPTZ '2024-01-01 05:00:00+02:00'",
    "day = DATE '2024-01-03' AND k IS NULL",
    "name > 'name 59' AND name < 'name 8'",
    "id < 50 AND (k = 1 OR k IS NULL) AND name IN ('name 1', 'name 2', 'name 3')",
    "id > 10 AND id < 5",
    "part = 1 AND id < 20",
    "id > 10000000000",
    "flag AND id < 30",
]
WITH = [  # floats, functions and patterns are DataFusion's
    "f > 0.5 AND id < 40",
    "id < 40 AND id % 3 = 1",
    "id < 200 AND name LIKE 'name 1%'",
    "id < 40 AND upper(name) = 'NAME 7'",
    "id < 40 AND k <> id",
    "id = 3.0",
    "price > 12.345 AND price <= 13.5",
]


class World:
    """The same rows in a lake that reads by page, and in DuckDB."""

    def __init__(self, root: Path) -> None:
        chance = Random(5)
        first = datetime.datetime(2024, 1, 1)
        hours = [first + datetime.timedelta(hours=number) for number in range(ROWS)]
        rows = pa.table(
            {
                "id": pa.array(range(ROWS), pa.int64()),
                "k": pa.array([chance.choice((None, 1, 2, 3)) for _ in range(ROWS)], pa.int16()),
                "name": [None if number % 11 == 0 else f"name {number % 90}" for number in range(ROWS)],
                "ts": pa.array(hours, pa.timestamp("us")),
                "z": pa.array(hours, pa.timestamp("ms", "UTC")),
                "day": [each.date() for each in hours],
                "price": pa.array(
                    [decimal.Decimal(chance.randrange(1000, 1500)).scaleb(-2) for _ in hours], pa.decimal128(9, 2)
                ),
                "flag": [chance.random() < 0.5 for _ in hours],
                "f": [chance.random() for _ in hours],
            }
        )
        for number in range(FILES):
            place = root / f"t/part={number % 2}/{number}.parquet"
            place.parent.mkdir(parents=True, exist_ok=True)
            part = rows.slice(number * ROWS // FILES, ROWS // FILES)
            pq.write_table(part, place, max_rows_per_page=20, write_batch_size=20, use_dictionary=False,
                           compression="zstd" if number else "snappy", write_page_index=True)  # fmt: skip
        self.duck = duckdb.connect()
        self.duck.execute("SET TimeZone = 'UTC'")
        self.duck.execute(
            f"CREATE VIEW t AS SELECT * FROM read_parquet('{root}/t/*/*.parquet', hive_partitioning=true)"
        )
        self.lake = needlepoint.open(root, access="pages")
        self.lake.create_table("t")
        for column in ("id", "ts", "name"):
            self.lake.create_index("t", column)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("selections"))
    with made.lake:
        yield made


@pytest.fixture
def by_datafusion(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that DataFusion read."""
    seen: list[str] = []
    original = execution.as_frame

    def noted(scan: Any, *arguments: Any) -> TableFrame:
        seen.append(scan.snapshot.table.name)
        return original(scan, *arguments)

    monkeypatch.setattr(execution, "as_frame", noted)
    return seen


def check(world: World, query: str, parameters: dict[str, Any] | None = None) -> None:
    found = world.lake.sql(query, parameters).to_arrow()
    expected = world.duck.sql(query, params=parameters).to_arrow_table()
    assert found.schema.names == expected.schema.names
    assert rows_in_utc(found) == rows_in_utc(expected)


@pytest.mark.parametrize("condition", WITHOUT)
def test_without_datafusion(world: World, by_datafusion: list[str], condition: str) -> None:
    check(world, f"SELECT name, id, k AS other, part FROM t WHERE {condition}")
    check(world, f"SELECT * FROM t WHERE {condition}")
    check(world, f"SELECT x.id FROM (SELECT id, k, name FROM t WHERE {condition}) AS x")
    assert not by_datafusion


@pytest.mark.parametrize("condition", WITH)
def test_with_datafusion(world: World, by_datafusion: list[str], condition: str) -> None:
    check(world, f"SELECT name, id, k AS other, part FROM t WHERE {condition}")
    assert by_datafusion


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id + 1 AS n FROM t WHERE id > 100 AND id < 105",
        "SELECT id, 5 AS five FROM t WHERE id > 100 AND id < 105",
        "SELECT DISTINCT k FROM t WHERE id < 105",
        "SELECT id FROM t WHERE id < 105 ORDER BY id DESC",
        "SELECT id FROM t WHERE id < 105 UNION SELECT k FROM t WHERE id > 500",
        "SELECT id FROM t WHERE id < (SELECT min(id) + 5 FROM t)",
        "SELECT id FROM (SELECT id FROM t WHERE id < 105 ORDER BY id LIMIT 9) WHERE id > 3",
        "SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.id < 5",
        "SELECT row_number() OVER (ORDER BY id) AS n FROM t WHERE id < 9",
    ],
)
def test_anything_else(world: World, query: str) -> None:
    check(world, query)


def test_parameters_names_and_limits(world: World, by_datafusion: list[str]) -> None:
    check(world, "SELECT id, name FROM t WHERE id >= $low AND id < $high", {"low": 10, "high": 25})
    check(world, 'SELECT id AS "Id", id AS again FROM t WHERE id > 3 AND id < 6')
    found = world.lake.sql("SELECT z, price FROM t WHERE id > 3 AND id < 6").to_arrow()
    assert found.schema.types == [pa.timestamp("ms", "UTC"), pa.decimal128(9, 2)]
    assert len(world.lake.sql("SELECT id FROM t WHERE id > 3 AND id < 60 LIMIT 7")) == 7
    report = world.lake.sql("SELECT id, name FROM t WHERE id > 3 AND id < 6").report
    assert (report.tables[0].rows.read, report.tables[0].scanned_files) == (4, 0)
