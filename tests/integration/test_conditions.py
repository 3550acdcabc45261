"""Conditions on computed values rule out files and pages, and lose no row at the ends of types, in NaN and in NULL."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import long

import needlepoint
from needlepoint.lake import Lake
from needlepoint.query.report.explain import TableReport

FILES, ROWS = 10, 1_000


def rows_of(number: int) -> pa.Table:
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    chance = np.random.default_rng(number)
    days = [datetime.datetime(2015 + number, 1 + each % 12, 1 + each % 28, each % 24) for each in range(ROWS)]
    return pa.table(
        {
            "id": ids,
            "small": ids.astype(np.int32),
            "later": ids + 5_000,
            "key": chance.permutation(ROWS) * FILES + number,
            "other": chance.permutation(ROWS) * FILES + number,
            "f": ids * 0.5,
            "price": pa.array([decimal.Decimal(each).scaleb(-2) for each in ids.tolist()], pa.decimal128(10, 2)),
            "t": pa.array(days, pa.timestamp("us")),
            "day": pa.array([each.date() for each in days]),
            "s": [f"{chr(ord('a') + number)}{'Aa'[each % 2]}m{each:04}" for each in ids.tolist()],
            "yes": [number == 3] * ROWS,
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("conditions")
    (root / "t").mkdir()
    for number in range(FILES):
        pq.write_table(
            rows_of(number), root / f"t/{number}.parquet", max_rows_per_page=100, write_batch_size=100,
            use_dictionary=False, write_page_index=True,
        )  # fmt: skip
    with needlepoint.open(root) as lake:
        lake.create_table("t")
        lake.create_index("t", "key")
        lake.create_index("t", "other")
    return root


@pytest.fixture(scope="module")
def lake(root: Path) -> Iterator[Lake]:
    with needlepoint.open(root, access="pages") as opened:
        yield opened


def ask(lake: Lake, where: str) -> tuple[list[int], TableReport]:
    """The rows, which are those of a scan too."""
    query = f"SELECT id FROM t WHERE {where}"
    result = lake.sql(query)
    found = sorted(result.to_arrow()["id"].to_pylist())
    assert found == sorted(lake.engine.sql(query, use_indexes=False).to_arrow()["id"].to_pylist())
    (report,) = result.report.tables
    return found, report


@pytest.mark.parametrize(
    ("where", "files", "rows"),
    [
        ("id + 1 = 6", 1, 100),
        ("5 = id - 1", 1, 100),
        ("10 - id > 3", 1, 100),
        ("id * 2 = 10", 1, 100),
        ("id * 2 = 11", 0, 0),
        ("small * -2 < -19800", 1, 100),
        ("-id = -5", 1, 100),
        ("id / 100 = 12", 1, 200),
        ("id + 1 IN (5, 6, 7, 8, 9)", 1, 100),
        ("(id + 1) * 2 - 3 = 9", 1, 100),
        ("f + 1 = 6", 1, 100),
        ("round(f) = 7", 1, 100),
        ("price + 1.5 = 6.5", 1, 100),
        ("CAST(price AS DOUBLE) = 5", 1, 100),
        ("day + INTERVAL '1 day' = DATE '2016-01-02'", 1, 1_000),
        ("t - INTERVAL '1 month' < TIMESTAMP '2015-01-15'", 1, 1_000),
        ("coalesce(id, 0) = 5", 1, 100),
        ("coalesce(id, 5) = 5", 1, 100),
        ("nullif(id, 3) = 5", 1, 100),
        ("abs(id) = 5", 1, 100),
        ("(id, later) IN ((1, 5001), (1007, 6007), (5, 5))", 2, 200),
        ("id = later", 0, 0),
        ("id >= later", 0, 0),
        ("later <= small", 0, 0),
        ("extract(year FROM t) IN (2016, 2018, 2019, 2021, 2022)", 5, 5_000),
        ("extract(epoch FROM t) < 1450000000", 1, 1_000),
        ("lower(s) = 'cam2005'", 1, 1_000),
        ("upper(s) IN ('CAM2005', 'DAM3006')", 2, 2_000),
        ("s || 'x' = 'cam2005x'", 1, 1_000),
        ("left(s, 1) IN ('a', 'b')", 2, 2_000),
        ("left(s, 1) > 'i'", 2, 2_000),
        ("CAST(id AS VARCHAR) IN ('5', '6', '7', '8')", 1, 100),
        ("CAST(day AS VARCHAR) = '2016-01-01'", 1, 1_000),
        ("CAST(yes AS INT) = 1", 1, 1_000),
        ("CASE WHEN id = 5 THEN 1 ELSE 0 END > 0", 1, 100),
        ("CASE WHEN id = 5 THEN 1 WHEN id = 7 THEN 2 END IN (2, 3)", 1, 100),
        ("CASE id WHEN 5 THEN 'a' WHEN 7 THEN 'b' ELSE 'c' END = 'b'", 1, 100),
        ("(id = 5) IS NOT FALSE", 1, 100),
        ("(id > 5) IS NOT TRUE", 1, 100),
        ("id IS DISTINCT FROM 5 AND id < 10", 1, 100),
        # by keys
        ("key + 1 = 6", 1, 1),
        ("coalesce(key, 0) IN (5, 17)", 2, 2),
        ("key = 5 OR other = 17", 2, 2),
        ("key + 1 = 6 OR other * 2 = 34 OR CASE WHEN key = 8 THEN 1 ELSE 0 END = 1", 3, 3),
        ("(key, id) IN ((5, 1), (5, 2))", 0, 0),
        # not understood
        ("id % 10 = 3", 10, 10_000),
        ("id + later = 5002", 10, 10_000),
    ],
)
def test_computed_values_rule_out_files_and_pages(lake: Lake, where: str, files: int, rows: int) -> None:
    report = ask(lake, where)[1]
    assert (report.files.read, report.steps[-1].rows_after) == (files, rows)


@pytest.mark.parametrize("kind", ["distinct", "text"])
def test_texts_in_either_case_are_found_by_indexes(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t").mkdir()
    for number in range(4):
        names = [f"{'bBzZ'[each % 4]}erg {number if each == 77 else 9}" for each in range(2_000)]
        names[:4] = ["ſmall", "\u212aelvin", "İstanbul", "straße"]
        ids = range(number * 2_000, number * 2_000 + 2_000)
        pq.write_table(pa.table({"id": ids, "s": names}), tmp_path / f"t/{number}.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        lake.create_index("t", "s", kind)
        found, report = ask(lake, "lower(s) = 'berg 2'")
        assert (found, report.indexes[0].used) == ([4_077], True)
        assert ask(lake, "upper(s) = 'STRASSE'")[0] == ask(lake, "s = 'straße'")[0] != []
        assert ask(lake, "upper(s) = 'SMALL'")[0] == ask(lake, "s = 'ſmall'")[0] != []
        assert ask(lake, "lower(s) = 'kelvin'")[0] == ask(lake, "s LIKE '%elvin'")[0] != []
        assert ask(lake, "lower(s) = 'i̇stanbul'")[0] == ask(lake, "s LIKE '%stanbul'")[0] != []


INTEGERS = [-(2**63), -(2**63) + 1, -5, -1, 0, 1, 5, 2**62, 2**63 - 2, 2**63 - 1, None]
FLOATS = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 0.2, 1e308, 5e-324, None]


@pytest.fixture(scope="module")
def extremes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Each value is in a file of its own, with a NULL, and with bounds and indexes that name it."""
    root = tmp_path_factory.mktemp("extremes")
    (root / "t").mkdir()
    for number, (whole, real) in enumerate(zip(INTEGERS, FLOATS, strict=True)):
        rows = pa.table(
            {"id": [number], "i": pa.array([whole], pa.int64()), "f": pa.array([real], pa.float64()),
             "z": pa.array([None if whole is None else whole % 10**16], pa.timestamp("us", "Europe/Berlin"))}
        )  # fmt: skip
        pq.write_table(rows, root / f"t/{number}.parquet")
    with needlepoint.open(root, access="pages") as lake:
        lake.create_table("t")
        lake.create_index("t", "i")
        lake.create_index("t", "f")
        yield lake


@pytest.mark.parametrize("operator", ["=", ">", *long("<", "<=", ">=", "<>", "IS DISTINCT FROM")])
@pytest.mark.parametrize("negated", ["", *long("NOT ")])
def test_no_row_is_lost_at_the_ends_of_types(extremes: Lake, operator: str, negated: str) -> None:
    # Not -i: DataFusion prunes by it as if -(-2^63) did not overflow.
    whole = ["i + 1", "i - 1", "1 - i", "i * 2", "i * -3", "i / 2", "CAST(i AS DOUBLE) + CAST('0.5' AS DOUBLE)"]
    real = ["f + CAST('0.1' AS DOUBLE)", "-f", "f * CAST('1e10' AS DOUBLE)", "f / CAST('3' AS DOUBLE)", "floor(f)",
            "CAST('1e308' AS DOUBLE) + f", "nullif(f, CAST('5' AS DOUBLE))",
            "coalesce(f, CAST('0.1' AS DOUBLE))"]  # fmt: skip
    for left, rights in (
        (whole, [str(each) for each in (-(2**63) + 1, -10, -2, 0, 2, 10, 2**63 - 1)]),
        (
            real,
            [f"CAST('{each}' AS DOUBLE)" for each in ("0", "-0.0", "0.1", "0.30000000000000004", "inf", "-inf", "NaN")],
        ),
    ):
        for value in left:
            for right in rights:
                ask(extremes, f"{negated}({value} {operator} {right})")


def test_years_and_days_in_a_zone(extremes: Lake) -> None:
    for value in ("extract(year FROM z)", "extract(epoch FROM z)"):
        for right in ("1969", "1970", "2024", "2100"):
            for operator in ("=", "<", ">="):
                ask(extremes, f"{value} {operator} {right}")
    ask(extremes, "CAST(z AS DATE) = '1970-01-01'")
    ask(extremes, "CAST(z AS DATE) <= '2100-03-31'")


def test_the_day_of_a_changed_clock(tmp_path: Path) -> None:
    """A day in Berlin has 23 hours in March and 25 in October."""
    (tmp_path / "t").mkdir()
    start = int(datetime.datetime(2024, 3, 29, tzinfo=datetime.UTC).timestamp())
    hours = [start + 3_600 * each for each in range(96)] + [start + 3_600 * each for each in range(5_040, 5_160)]
    for number, chosen in enumerate(np.array_split(hours, 24)):
        times = pa.array(chosen * 1_000_000).cast(pa.timestamp("us", "Europe/Berlin"))
        pq.write_table(pa.table({"id": chosen, "z": times}), tmp_path / f"t/{number}.parquet")
    with needlepoint.open(tmp_path, access="pages") as lake:
        lake.create_table("t")
        for day in ("2024-03-30", "2024-03-31", "2024-04-01", "2024-10-26", "2024-10-27", "2024-10-28"):
            for operator in ("=", "<", ">="):
                ask(lake, f"CAST(z AS DATE) {operator} '{day}'")
                ask(lake, f"date_trunc('day', z) {operator} '{day}'")
        assert ask(lake, "CAST(z AS DATE) = '2024-03-31'")[1].files.read < 24


def test_answers_are_those_of_duckdb(lake: Lake, root: Path) -> None:
    for where in (
        "id + 1 = 6", "10 - id > 3", "coalesce(id, 5) = 5", "(id, later) IN ((1, 5001), (7, 8))",
        "id = later - 5000 AND id < 3",
        "lower(s) = 'cam2005'", "left(s, 2) = 'ca' AND id < 2010", "extract(year FROM t) = 2017 AND id < 2100",
        "CASE WHEN id = 5 THEN 1 ELSE 0 END = 1", "(id > 5) IS NOT TRUE", "key = 5 OR other = 17", "key + 1 = 18",
    ):  # fmt: skip
        expected = duckdb.sql(f"SELECT id FROM read_parquet('{root}/t/*.parquet') WHERE {where}").fetchall()
        assert ask(lake, where)[0] == sorted(each for (each,) in expected)
