"""Every access path reads INT96 as microseconds: Spark's year 9999 does not fit in nanoseconds."""

from __future__ import annotations

import datetime
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lakes import as_format_5

import needlepoint
from needlepoint import NotParquet
from needlepoint.errors import SchemaConflict
from needlepoint.lake import Lake
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.read.page_reader import read_rows

ROWS = 300
MICROSECOND = datetime.timedelta(microseconds=1)
START = datetime.datetime(2024, 1, 1)
STAMPS: list[datetime.datetime | None] = [
    START + row * datetime.timedelta(hours=7, microseconds=3) for row in range(ROWS)
]
STAMPS[7] = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)
STAMPS[50] = datetime.datetime(1, 1, 1)
STAMPS[51] = datetime.datetime(1677, 9, 21)
STAMPS[100] = None
STAMPS[250] = datetime.datetime(2262, 4, 12)
WAYS = ["pages", "scan", "auto"]
KINDS = ["none", "key", "bloom", "distinct"]


def write(root: Path, name: str = "a.parquet", **options: object) -> None:
    (root / "t").mkdir(exist_ok=True)
    table = pa.table({"id": range(ROWS), "a": pa.array(STAMPS, pa.timestamp("us"))})
    pq.write_table(
        table, root / "t" / name, use_deprecated_int96_timestamps=True, max_rows_per_page=20, write_batch_size=20,
        row_group_size=100, write_page_index=True, **options,
    )  # fmt: skip


@pytest.fixture(params=[True, False], ids=["dictionary", "plain"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write(tmp_path, use_dictionary=request.param, store_schema=request.param)
    return tmp_path


@pytest.fixture(params=WAYS)
def lake(request: pytest.FixtureRequest, root: Path) -> Iterator[Lake]:
    with needlepoint.open(root, access=request.param) as opened:
        opened.create_table("t")
        yield opened


def literal(stamp: object) -> str:
    """With a cast: DataFusion reads a bare text as nanoseconds."""
    return f"arrow_cast('{stamp}', 'Timestamp(Microsecond, None)')"


def ids(lake: Lake, where: str) -> list[int]:
    return sorted(lake.sql(f"SELECT id FROM t WHERE {where}").to_arrow().column("id").to_pylist())


@pytest.mark.covering
@pytest.mark.parametrize("kind", KINDS)
def test_every_way_finds_every_time(lake: Lake, kind: str) -> None:
    if kind != "none":
        lake.create_index("t", "a", kind=kind)
    found = lake.sql("SELECT id, a FROM t").to_arrow()
    assert found.schema.field("a").type == pa.timestamp("us")
    assert dict(zip(found["id"].to_pylist(), found["a"].to_pylist(), strict=True)) == dict(enumerate(STAMPS))
    known = [(row, stamp) for row, stamp in enumerate(STAMPS) if stamp is not None]
    for row in (0, 7, 50, 51, 120, 250):
        assert ids(lake, f"a = {literal(STAMPS[row])}") == [row]
        assert lake.sql(f"SELECT a FROM t WHERE id = {row}").rows() == [{"a": STAMPS[row]}]
        assert lake.table("t").get(a=STAMPS[row], columns="id").rows() == [{"id": row}]
    for year in ("1000", "1900", "2024-03-01", "2100", "9999-12-31"):
        date = datetime.datetime.fromisoformat(year if "-" in year else f"{year}-01-01")
        for sign, keep in (("<", datetime.datetime.__lt__), (">=", datetime.datetime.__ge__)):
            assert ids(lake, f"a {sign} {literal(date)}") == [row for row, stamp in known if keep(stamp, date)]
    assert ids(lake, "a IS NULL") == [100]
    assert lake.sql("SELECT max(a) AS high, min(a) AS low FROM t").rows() == [{"high": STAMPS[7], "low": STAMPS[50]}]


def test_kept_dictionaries_and_many_rows(root: Path) -> None:
    with needlepoint.open(root, access="pages") as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        for _ in range(3):
            assert lake.table("t").get(id=7, columns="a").rows() == [{"a": STAMPS[7]}]
            assert lake.table("t").get(id=100, columns="a").rows() == [{"a": None}]
            found = lake.sql(f"SELECT id, a FROM t WHERE id IN ({', '.join(map(str, range(0, ROWS, 3)))})").to_arrow()
            assert {i: STAMPS[i] for i in range(0, ROWS, 3)} == dict(zip(*found.to_pydict().values(), strict=True))


@pytest.mark.covering
def test_parts_are_alike(lake: Lake) -> None:
    parts = lake.plan_read("t", "a > '2100-01-01'", ["id", "a"]).parts
    assert sorted(number for part in parts for batch in part.batches() for number in batch["id"].to_pylist()) == [
        7,
        250,
    ]


def test_what_is_finer_than_a_microsecond_is_cut_off_everywhere(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    path = tmp_path / "t" / "a.parquet"
    stamps = pa.array([1_999, -1, 1_704_067_200_000_000_999], pa.timestamp("ns"))
    pq.write_table(pa.table({"id": [0, 1, 2], "a": stamps}), path, use_deprecated_int96_timestamps=True)
    expected = [1, -1, 1_704_067_200_000_000]
    assert duckdb.sql(f"SELECT epoch_us(a) FROM '{path}' ORDER BY id").fetchall() == [(each,) for each in expected]
    for way in WAYS:
        with needlepoint.open(tmp_path, access=way) as lake:
            if way == WAYS[0]:
                lake.create_table("t")
            found = lake.sql("SELECT a FROM t ORDER BY id").to_arrow().column("a")
            assert found.cast(pa.int64()).to_pylist() == expected


def test_a_nested_one(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    stamp = STAMPS[7]
    table = pa.table({"id": [0], "a": pa.array([[stamp]], pa.list_(pa.timestamp("us")))})
    pq.write_table(table, tmp_path / "t" / "a.parquet", use_deprecated_int96_timestamps=True)
    for way in WAYS:
        with needlepoint.open(tmp_path, access=way) as lake:
            if way == WAYS[0]:
                lake.create_table("t")
            assert lake.sql("SELECT a FROM t WHERE id = 0").rows() == [{"a": [stamp]}]


def test_beside_nanoseconds_it_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    finer = pa.table({"id": [0], "a": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(finer, tmp_path / "t" / "b.parquet")
    for way in WAYS:
        with needlepoint.open(tmp_path, access=way) as lake:
            if way == WAYS[0]:
                lake.create_table("t")
            with pytest.raises(SchemaConflict, match=r"column 'a' of .*a\.parquet has values beyond"):
                lake.sql("SELECT a FROM t WHERE id = 7")


def test_rewriting_keeps_every_digit_or_refuses(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "u").mkdir()
    stamps = pa.array([1_999, 5, 7], pa.timestamp("ns"))
    pq.write_table(
        pa.table({"id": [0, 1, 2], "a": stamps}), tmp_path / "u" / "a.parquet", use_deprecated_int96_timestamps=True
    )
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        with pytest.raises(NotParquet, match=r"a\.parquet: column 'a' has INT96 timestamps beyond what ns hold"):
            lake.delete("t", where="id = 3")
        assert len(ids(lake, "TRUE")) == ROWS
        assert ids(lake, f"a > {literal('9000-01-01')}") == [7]
        lake.create_table("u")
        lake.delete("u", where="a = '1970-01-01 00:00:00' AND id = 1")
        (left,) = (tmp_path / "u").glob("*.parquet")
        assert pq.read_table(left).column("a").cast(pa.int64()).to_pylist() == [1_999, 7]


def overflowing(path: Path) -> None:
    """A file as Spark writes the year 290000: days and nanoseconds overflow, and wrap around."""
    write(path.parent.parent, use_dictionary=False, compression="none")
    data = path.read_bytes()
    eighth = struct.pack("<qi", 86_399_999_999_000, 5_373_484)
    assert data.count(eighth) == 1
    path.write_bytes(data.replace(eighth, struct.pack("<qI", -32_509_551_616_000, 4_189_105_064)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_year_290000(tmp_path: Path, kind: str) -> None:
    overflowing(tmp_path / "t" / "a.parquet")
    for way in WAYS:
        with needlepoint.open(tmp_path, access=way) as lake:
            if way == WAYS[0]:
                lake.create_table("t")
                if kind != "none":
                    lake.create_index("t", "a", kind=kind)  # cannot be built for the file, which is scanned
            found = lake.sql(f"SELECT id, a FROM t WHERE a > {literal('9000-01-01')}").to_arrow()
            assert found["id"].to_pylist() == [7]
            assert found["a"].cast(pa.int64()).to_pylist() == [9_089_380_393_200_000_000]


@pytest.mark.parametrize("kind", ["none", "key"])
def test_a_table_that_took_it_for_nanoseconds(tmp_path: Path, kind: str) -> None:
    """As in registries up to format 5: values that fit are found, and the rest is refused."""
    (tmp_path / "t").mkdir()
    stamps = [datetime.datetime(2024, 1, 1) + row * MICROSECOND for row in range(100)]
    path = tmp_path / "t" / "a.parquet"
    pq.write_table(pa.table({"id": range(100), "a": pa.array(stamps, pa.timestamp("us"))}), path,
                   use_deprecated_int96_timestamps=True, store_schema=False)  # fmt: skip
    finer = tmp_path / "t" / "b.parquet"
    pq.write_table(pa.table({"id": [100], "a": pa.array([None], pa.timestamp("ns"))}), finer)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        if kind != "none":
            lake.create_index("t", "a", kind=kind)
    finer.unlink()
    with sqlite3.connect(tmp_path / ".needlepoint" / "registry.db") as connection:
        connection.execute("UPDATE tables SET mixed = '[]'")
        as_format_5(connection)
    connection.close()
    for way in WAYS:
        with needlepoint.open(tmp_path, access=way) as lake:
            assert lake.registry.tables.get("t").mixed == {"a"}
            assert lake.sql("SELECT a FROM t").to_arrow().schema.field("a").type == pa.timestamp("ns")
            assert ids(lake, "a = '2024-01-01T00:00:00.000007'") == [7]
            assert ids(lake, "a < '2024-01-01T00:00:00.000001001'") == [0, 1]
    write(tmp_path)
    for way in WAYS:
        with (
            needlepoint.open(tmp_path, access=way, refresh=0) as lake,
            pytest.raises(SchemaConflict, match=r"'a' of .*a\.parquet"),
        ):
            lake.sql("SELECT a FROM t WHERE id = 7")


def test_a_zone_in_the_schema_of_arrow(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    stamps = pa.array(STAMPS, pa.timestamp("us", "UTC"))
    path = tmp_path / "t" / "a.parquet"
    pq.write_table(pa.table({"id": range(ROWS), "a": stamps}), path, use_deprecated_int96_timestamps=True)
    card = build_card(str(path))
    found, stats = read_rows(str(path), card, ["a"], np.arange(ROWS))
    assert not stats.reasons
    assert found.column("a").cast(pa.int64()).to_pylist() == stamps.cast(pa.int64()).to_pylist()
