"""Queries that differ in their values only are planned once, and answered as if each were planned: as by DuckDB."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import cases
from tests.others import rows_in_utc

import needlepoint
from needlepoint.query.datafusion.planner import Planner
from needlepoint.query.kept_plans import KeptPlans
from needlepoint.query.sql.comparisons import recognise

ROWS = 400
FIRST = datetime.datetime(2024, 1, 1)
UNITS = {"ts_ms": ("ms", None), "ts_us": ("us", None), "ts_ns": ("ns", None), "z": ("us", "UTC")}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[needlepoint.Lake]:
    root, chance = tmp_path_factory.mktemp("comparisons"), Random(3)
    times = [FIRST + datetime.timedelta(seconds=97 * number) for number in range(ROWS)]
    columns: dict[str, Any] = {
        "i8": pa.array([chance.randrange(-128, 128) for _ in times], pa.int8()),
        "u8": pa.array([chance.randrange(256) for _ in times], pa.uint8()),
        "i64": pa.array([None if chance.random() < 0.1 else chance.randrange(-50, 50) for _ in times], pa.int64()),
        "s": [chance.choice(("", "a", "B", "é", "ab", "zz", None)) for _ in times],
        "date": pa.array([each.date() for each in times]),
        "f": [chance.choice((0.0, -0.0, 1.5)) for _ in times],
        "price": pa.array([f"{chance.randrange(500) / 100:.2f}" for _ in times]).cast(pa.decimal128(9, 2)),
    }
    columns |= {name: pa.array(times, pa.timestamp("us")).cast(pa.timestamp(unit)) for name, (unit, _) in UNITS.items()}
    columns |= {name: columns[name].cast(pa.timestamp(unit, zone)) for name, (unit, zone) in UNITS.items() if zone}
    rows = pa.table(columns)
    for number in range(4):
        place = root / f"t/part={number % 2}/{number}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.slice(number * 100, 100), place, row_group_size=30)
    with needlepoint.open(root) as opened:
        opened.create_table("t")
        yield opened


@pytest.fixture(scope="module")
def duck(lake: needlepoint.Lake) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute("SET TimeZone = 'UTC'")
    made.register("rows", lake.sql("SELECT * FROM t").to_arrow())
    made.execute("CREATE TABLE t AS SELECT * FROM rows")
    return made


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that DataFusion planned."""
    seen: list[str] = []
    original = Planner._rewritten

    def noted(self: Planner, asked: Any) -> Any:
        seen.append(asked.query)
        return original(self, asked)

    monkeypatch.setattr(Planner, "_rewritten", noted)
    return seen


def value(chance: Random, column: str) -> str:
    if column in UNITS:
        moment = FIRST + datetime.timedelta(seconds=97 * chance.randrange(ROWS))
        moment += datetime.timedelta(milliseconds=chance.choice((0, 0, 250)))
        zone = chance.choice(("Z", "+09:00", "-03:30")) if UNITS[column][1] else ""
        return f"TIMESTAMP '{moment}{zone}'"
    if column == "s":
        return chance.choice(("'a'", "''", "'b'", "'é'", "'ab'", "'it is'"))
    if column == "date":
        return chance.choice(("'2024-01-01'", "DATE '2024-01-01'"))
    if column == "price":
        return chance.choice(("1", "2.5", "300"))
    return str(chance.choice((0, 1, -1, 5, 40, 100, 127, -128, 255, 256, 70_000, 10**17)))


def for_duck(query: str) -> str:
    """In DuckDB, a literal with a zone is a TIMESTAMPTZ, or its zone is ignored."""
    return re.sub(r"TIMESTAMP ('[^']*(?:Z|[+-]\d\d:\d\d)')", r"TIMESTAMPTZ \1", query)


def test_same_answers_as_duckdb(lake: needlepoint.Lake, duck: duckdb.DuckDBPyConnection, planned: list[str]) -> None:
    chance, names = Random(11), ["i8", "u8", "i64", "s", "date", "price", "part", "f", *UNITS]
    asked = 0
    for _ in range(cases(400)):
        conditions = []
        for _ in range(chance.choice((1, 1, 2, 2, 3))):
            column = chance.choice(names)
            if chance.random() < 0.2:
                conditions.append(f"{column} BETWEEN {value(chance, column)} AND {value(chance, column)}")
            else:
                operator = chance.choice(("<", "<=", ">", ">=", "=", "<>"))
                conditions.append(f"{column} {operator} {value(chance, column)}")
        query = f"SELECT i64, s, ts_us FROM t WHERE {' AND '.join(conditions)}"
        asked += 1
        try:
            expected = duck.sql(for_duck(query)).to_arrow_table()
        except duckdb.Error:
            continue
        assert rows_in_utc(lake.sql(query).to_arrow()) == rows_in_utc(expected), query
    assert len(planned) < asked


@pytest.mark.parametrize(
    ("condition", "others", "is_planned_once"),
    [
        ("i64 > 5", ["i64 > 7", "i64 > -3", "i64   >   5"], True),
        ("i64 >= 5 AND s < 'b'", ["i64 >= 5 AND s < 'a'", "I64 >= 0 and S < ''"], True),
        ("i8 BETWEEN 1 AND 5", ["i8 BETWEEN -128 AND 127", "i8 BETWEEN 5 AND 1"], True),
        ("ts_us < TIMESTAMP '2024-01-01 05:00:00'", ["ts_us < TIMESTAMP '2024-01-01 05:00:00.250'"], True),
        ("ts_ns < TIMESTAMP '2024-01-01 05:00:00'", ["ts_ns < TIMESTAMP '2024-01-01 05:00:00.250'"], True),
        ("z < TIMESTAMP '2024-01-01 05:00:00Z'", ["z < TIMESTAMP '2024-01-01 05:00:00+09:00'"], True),
        ("z < TIMESTAMP '2024-01-01 05:00:00Z'", ["z < TIMESTAMP '2024-01-01 05:00:00'"], False),
        ("ts_ms < TIMESTAMP '2024-01-01 05:00:00'", ["ts_ms < TIMESTAMP '2024-01-01 05:00:00.0005'"], False),
        ("i8 < 100", ["i8 < 200", "i8 < -200"], False),
        ("u8 >= 1", ["u8 >= -1"], False),
        ("f < 1", ["f < 2"], False),
        ("price < 1", ["price < 2"], False),
    ],
)
def test_planned_once(
    lake: needlepoint.Lake,
    duck: duckdb.DuckDBPyConnection,
    planned: list[str],
    condition: str,
    others: list[str],
    is_planned_once: bool,
) -> None:
    lake.engine.queries.planner.planned.clear()
    lake.engine.queries.plans.kept = KeptPlans()  # of the tests before
    lake.sql(f"SELECT i64, z, u8 FROM t WHERE {condition}").to_arrow()
    assert len(planned) == 1
    for other in others:
        query = f"SELECT i64, z, u8 FROM t WHERE {other}"
        assert rows_in_utc(lake.sql(query).to_arrow()) == rows_in_utc(duck.sql(for_duck(query)).to_arrow_table())
    assert (len(planned) == 1) == is_planned_once


def test_names_that_are_values(tmp_path: Path) -> None:
    """A shape is not the text of a query, even if it looks like one."""
    (tmp_path / "t").mkdir()
    table = pa.table({"id": range(9), "number": [4] * 9})
    pq.write_table(table, tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        assert len(lake.sql("SELECT id FROM t WHERE id >= 7")) == 2
        assert len(lake.sql("SELECT id FROM t WHERE id >= number")) == 5
        assert len(lake.sql("SELECT id FROM t WHERE id >= 6")) == 3
        with pytest.raises(needlepoint.NeedlepointError):
            lake.sql("SELECT nothing FROM t WHERE id >= 7")
        with pytest.raises(needlepoint.NeedlepointError):
            lake.sql("SELECT id FROM other WHERE id >= 7")


def test_a_table_that_changes(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": range(9)}), tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        assert len(lake.sql("SELECT * FROM t WHERE id >= 7")) == 2
        pq.write_table(pa.table({"id": range(20), "more": range(20)}), tmp_path / "t/b.parquet")
        lake.sync("t")
        found = lake.sql("SELECT * FROM t WHERE id >= 8").to_arrow()
        assert found.num_rows == 13
        assert found.schema.names == lake.table("t").schema.names


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t",
        "SELECT id FROM t WHERE id < 5 OR id > 7",
        "SELECT id FROM t WHERE NOT id < 5",
        "SELECT id FROM t WHERE id < 5 LIMIT 3",
        "SELECT id FROM t WHERE id < 5.0",
        "SELECT id FROM t WHERE id < - 5",
        "SELECT id FROM t WHERE 'a' < s",
        "SELECT id FROM t WHERE s < 'it''s'",
        "SELECT id FROM t WHERE s < e'a'",
        "SELECT DISTINCT id FROM t WHERE id < 5 -- comment",
        'SELECT id FROM t WHERE "id" < 5',
        "SELECT id FROM t WHERE id < 5 AND",
        "SELECT id FROM t WHERE " + " AND ".join(["id < 5"] * 9),
    ],
)
def test_other_queries(query: str) -> None:
    assert recognise(query) is None
