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
from tests.cases import cases, long

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
        ("greatest(id, 3) < 5", 1, 100),
        ("greatest(id, later) < 5100", 1, 100),
        ("greatest(id, 3) > 9950", 1, 100),
        ("greatest(small, 3) = 7", 1, 100),
        ("least(id, 5000) = 7", 1, 100),
        ("least(later, 6000, NULL) IN (5001, 5003)", 1, 100),
        ("least(id, later, key) >= 9000", 1, 100),
        ("greatest(day, DATE '2023-05-01') > DATE '2024-01-01'", 1, 1_000),
        ("greatest(s, 'h') = 'jAm9000'", 1, 100),
        ("greatest(id, 20000) = 7", 0, 0),
        # by keys
        ("greatest(key, 3) = 7", 1, 1),
        ("least(key, 20000) IN (7, 9)", 2, 2),
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
            for right in rights[:: cases(1, 2)]:
                ask(extremes, f"{negated}({value} {operator} {right})")


@pytest.mark.parametrize("operator", ["=", ">", "<=", *long("<", ">=", "<>", "IS DISTINCT FROM")])
def test_the_greatest_and_the_least(extremes: Lake, operator: str) -> None:
    """NULL does not count, and NaN is greater than all numbers."""
    for value in ("greatest(i, 3)", "least(i, id - 3)", "least(i, NULL)", "greatest(i, id, 3)", "greatest(i + 1, 0)"):
        for right in (-(2**63) + 1, -1, 0, 3, 5, 2**63 - 1):
            ask(extremes, f"{value} {operator} {right}")
            ask(extremes, f"NOT ({value} {operator} {right})")
    for value in ("greatest(f, CAST('0.1' AS DOUBLE))", "least(f, CAST('-0.0' AS DOUBLE))"):
        for right in ("0", "-0.0", "0.1", "inf", "NaN"):
            ask(extremes, f"{value} {operator} CAST('{right}' AS DOUBLE)")


def test_years_and_days_in_a_zone(extremes: Lake) -> None:
    for value in ("extract(year FROM z)", "extract(epoch FROM z)"):
        for right in ("1969", "1970", "2024", "2100"):
            for operator in ("=", "<", ">="):
                ask(extremes, f"{value} {operator} {right}")
    for part, rights in (
        ("month", (1, 3, 12)),
        ("day", (1, 29, 31)),
        ("hour", (0, 1, 13)),
        ("quarter", (1, 4)),
        ("dow", (0, 4)),
    ):
        for right in rights:
            for operator in ("=", "<>", ">"):
                ask(extremes, f"extract({part} FROM z) {operator} {right}")
    ask(extremes, "CAST(z AS DATE) = '1970-01-01'")
    ask(extremes, "CAST(z AS DATE) <= '2100-03-31'")


@pytest.mark.long
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
                for part in ("day", "month", "dow", "hour"):
                    ask(lake, f"extract({part} FROM z) {operator} extract({part} FROM DATE '{day}')")
        assert ask(lake, "extract(day FROM z) = 30")[1].files.read < 24
        assert ask(lake, "CAST(z AS DATE) = '2024-03-31'")[1].files.read < 24


PARTS = {"month": 12, "quarter": 4, "day": 31, "dow": 7, "hour": 24, "minute": 60, "second": 60}


@pytest.fixture(scope="module")
def times(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, Path]]:
    """Each file has the times of some days, from some hour on; some are before 1970, and some before Christ."""
    root, day = tmp_path_factory.mktemp("times"), 86_400
    (root / "t").mkdir()
    for number in range(24):
        first = -62_300_000_000 + number if number == 7 else (number - 6) * 61 * day + number * 3_700
        seconds = np.sort(np.random.default_rng(number).integers(first, first + (1 + number % 5 * 12) * day // 2, 200))
        seconds[:2] = first, first + 1
        rows = pa.table(
            {"id": np.arange(200) + number * 200, "t": pa.array(seconds * 10**6 + 999_999, pa.timestamp("us")),
             "s": pa.array(seconds, pa.timestamp("s")), "d": pa.array((seconds // day).astype("datetime64[D]")),
             "u": pa.array(seconds * 10**3, pa.timestamp("ms", "UTC"))}
        )  # fmt: skip
        rows = rows.append_column("k", rows["t"]) if number else rows.append_column("k", pa.nulls(200, rows["t"].type))
        pq.write_table(
            rows, root / f"t/{number}.parquet", max_rows_per_page=50, write_page_index=True, write_batch_size=50
        )
    with needlepoint.open(root, access="pages") as lake:
        lake.create_table("t")
        lake.create_index("t", "k")
        yield lake, root


@pytest.mark.covering
@pytest.mark.parametrize("column", ["t", "d", "s", "u", "k"])
@pytest.mark.parametrize("part", PARTS)
def test_parts_of_times(times: tuple[Lake, Path], column: str, part: str) -> None:
    lake, root = times
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    ruled_out = 0
    for value in (0, 1, PARTS[part] // 2, PARTS[part] - 1, PARTS[part], -1)[:: cases(1, 2)]:
        for where in (f"= {value}", f"<> {value}", f"> {value}", f"IN ({value}, 2, 3, 5)", f"<= {value}"):
            where = f"extract({part} FROM {column}) {where}"
            found, report = ask(lake, where)
            ruled_out += report.files.total - report.files.read
            expected = duck.sql(
                f"SELECT id FROM read_parquet('{root}/t/*.parquet') WHERE {where} ORDER BY id"
            ).fetchall()
            assert found == [id for (id,) in expected], where
    assert ruled_out > cases(20, 10) or part in ("minute", "second") or (column == "d" and part == "hour")


def test_months_of_a_range_are_found_by_keys(times: tuple[Lake, Path]) -> None:
    lake, _ = times
    for where, files in (
        ("extract(year FROM k) = 1971 AND extract(month FROM k) = 3", 1),
        ("k >= '1969-01-01' AND k < '1971-06-01' AND extract(quarter FROM k) = 1", 4),
        ("k >= '1969-01-01' AND k < '1971-06-01' AND extract(month FROM k) IN (4, 5)", 3),
        ("k BETWEEN '1700-01-01' AND '2200-01-01' AND extract(month FROM k) = 3", 24),
        ("k >= '1971-01-01' AND k < '1970-01-01' AND extract(month FROM k) = 3", 0),
    ):
        found, report = ask(lake, where)
        assert report.files.read <= files, where
        assert bool(found) == bool(files)
    report = ask(lake, "extract(year FROM k) = 1971 AND extract(month FROM k) = 3")[1]
    assert any(use.used and "a range of k" in use.why for use in report.indexes)


def test_answers_are_those_of_duckdb(lake: Lake, root: Path) -> None:
    for where in (
        "id + 1 = 6", "10 - id > 3", "coalesce(id, 5) = 5", "(id, later) IN ((1, 5001), (7, 8))",
        "id = later - 5000 AND id < 3",
        "lower(s) = 'cam2005'", "left(s, 2) = 'ca' AND id < 2010", "extract(year FROM t) = 2017 AND id < 2100",
        "CASE WHEN id = 5 THEN 1 ELSE 0 END = 1", "(id > 5) IS NOT TRUE", "key = 5 OR other = 17", "key + 1 = 18",
    ):  # fmt: skip
        expected = duckdb.sql(f"SELECT id FROM read_parquet('{root}/t/*.parquet') WHERE {where}").fetchall()
        assert ask(lake, where)[0] == sorted(each for (each,) in expected)
