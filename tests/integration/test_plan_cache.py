"""A query that runs again is planned once, and never with what has changed since."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import write

import needlepoint
from needlepoint import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    numbers = {"id": range(100), "f": [float(number % 10) for number in range(100)], "text": ["a"] * 100}
    write(pa.table(numbers), tmp_path / "item" / "a.parquet")
    with needlepoint.open(tmp_path / "lake") as opened:
        opened.create_table("item", tmp_path / "item")
        yield opened


def kept(lake: Lake) -> int:
    return len(lake.engine.planner.planned)


def test_a_query_is_planned_once(lake: Lake) -> None:
    query = "SELECT count(*) AS n FROM item WHERE id < 7 AND f >= 3"
    assert lake.sql(query).rows() == lake.sql(query).rows() == [{"n": 4}]
    assert (kept(lake), lake.engine.planner.planned.hits) == (1, 1)


def test_a_new_column_is_seen(lake: Lake, tmp_path: Path) -> None:
    query = "SELECT * FROM item ORDER BY id DESC LIMIT 1"
    assert "more" not in lake.sql(query).rows()[0]
    write(pa.table({"id": [500], "f": [1.0], "text": ["b"], "more": [True]}), tmp_path / "item" / "b.parquet")
    lake.sync()
    assert lake.sql(query).rows() == [{"id": 500, "f": 1.0, "text": "b", "more": True}]


def test_a_view_that_is_made_again_is_used(lake: Lake) -> None:
    query = "SELECT count(*) AS n FROM few"
    for most in (10, 20):
        lake.sql(f"CREATE VIEW few AS SELECT * FROM item WHERE id < {most}")
        assert lake.sql(query).rows() == [{"n": most}]
        lake.sql("DROP VIEW few")


@pytest.mark.parametrize("time", ["now()", "current_date", "CURRENT_TIMESTAMP", "today()", "current_time"])
def test_a_query_with_the_time_is_planned_anew(lake: Lake, time: str) -> None:
    lake.sql(f"SELECT id FROM item WHERE text < CAST({time} AS VARCHAR) LIMIT 1")
    assert kept(lake) == 0


def test_parameters_that_are_equal_are_not_the_same(lake: Lake) -> None:
    query = "SELECT $x AS x, count(*) AS n FROM item WHERE f = $x"
    values = (1, 1.0, True, Decimal("1"), Decimal("1.00"), 0.0, -0.0, datetime.date(1970, 1, 2))
    for value in values[:2] + values[3:7]:
        (row,) = lake.sql(query, {"x": value}).rows()
        assert (str(row["x"]), row["n"]) == (str(value), 10)
    assert kept(lake) == 6
    for value in values:
        (row,) = lake.sql("SELECT $x AS x FROM item LIMIT 1", {"x": value}).rows()
        assert (type(row["x"]), str(row["x"])) == (type(value), str(value))


def test_a_table_of_another_schema_with_the_same_name(lake: Lake, tmp_path: Path) -> None:
    query = "SELECT sum(id) AS n FROM item"
    assert lake.sql(query).rows() == [{"n": 4950}]
    lake.drop_table("item")
    write(pa.table({"id": pa.array([Decimal("1.50")])}), tmp_path / "other" / "a.parquet")
    lake.create_table("item", tmp_path / "other")
    assert lake.sql(query).rows() == [{"n": Decimal("1.50")}]
