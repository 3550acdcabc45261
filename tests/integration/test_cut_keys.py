"""Leaf files have 30 of 64 bits of the hash of a text: here none, or one or two, so that most texts share their keys.
Answers are those of DuckDB all the same, in the lake, after merges, sweeps and copies to other stores and back."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import cases, long

import needlepoint
from needlepoint.indexes import leaf_stores
from needlepoint.lake.upkeep import store_copy
from needlepoint.stores.leaf_files import leaf_writer, merge

QUERIES = (
    "SELECT count(*), sum(number) FROM item WHERE code = '{a}'",
    "SELECT number FROM item WHERE code IN ('{a}', '{b}', 'https://nowhere', '{a}x') ORDER BY number",
    "SELECT count(*), min(code), max(code) FROM item WHERE code NOT IN ('{a}', '{b}')",
    "SELECT count(*) FROM item WHERE code <> '{a}'",
    "SELECT count(*), sum(number) FROM item WHERE NOT (code = '{a}' OR code = '{b}')",
    "SELECT count(*) FROM item WHERE code >= '{a}' AND code <= '{b}'",
    "SELECT count(*), count(code) FROM item WHERE code > '{a}'",
    "SELECT count(*) FROM item WHERE code LIKE 'https://w%'",
    "SELECT count(*), sum(number) FROM item WHERE code LIKE 'AB-1%'",
    "SELECT min(code), max(code), count(DISTINCT code) FROM item",
    "SELECT DISTINCT code FROM item WHERE code IN ('{a}', '{b}') ORDER BY code",
    "SELECT code, number FROM item ORDER BY code NULLS LAST, number LIMIT 7",
    "SELECT code, number FROM item ORDER BY code DESC NULLS LAST, number LIMIT 7",
    "SELECT count(*) FROM wanted WHERE EXISTS (SELECT 1 FROM item WHERE code = '{a}x')",
    "SELECT count(*) FROM wanted WHERE EXISTS (SELECT 1 FROM item WHERE code = '{a}')",
    "SELECT count(*) FROM item WHERE EXISTS (SELECT 1 FROM wanted WHERE wanted.code = item.code)",
    "SELECT count(*) FROM item WHERE code NOT IN (SELECT code FROM wanted)",
    "SELECT count(*), sum(item.number) FROM item JOIN wanted ON item.code = wanted.code",
    "SELECT code, count(*) FROM item WHERE code IN ('{a}', '{b}') GROUP BY code ORDER BY code",
    "SELECT count(*) FROM item WHERE code IS NULL OR code = '{b}'",
)
PARTS = cases(1, 3)


def texts(chance: np.random.Generator, rows: int) -> list[str | None]:
    """Codes, addresses that begin alike, and some that make the alphabets of a leaf large."""
    made: list[str | None] = []
    for kind, number in zip(chance.integers(0, 20, rows).tolist(), chance.integers(0, 300, rows).tolist(), strict=True):
        if kind < 9:
            made.append(f"https://www.example.com/{number}")
        elif kind < 18:
            made.append(f"AB-{number * 3571 % 1_000_000:06d}")
        else:
            made.append([None, "", "https:/", "é" * (number % 7), "N/A", f"\t{number}"][number % 6])
    return made


def write(root: Path, number: int, rows: int = 600) -> None:
    chance = np.random.default_rng(number)
    table = pa.table({"code": pa.array(texts(chance, rows), pa.string()), "number": chance.integers(0, 10**6, rows)})
    for name in ("item", "wanted"):
        (root / name).mkdir(exist_ok=True)
        part = table if name == "item" else table.slice(0, 5).filter(pa.compute.is_valid(table.slice(0, 5)["code"]))
        pq.write_table(part, root / name / f"{number}.parquet", row_group_size=200, write_page_index=True)


def check(lake: needlepoint.Lake, root: Path, part: int = 0) -> None:
    """All queries, or by default a part of them."""
    asked = ("https://www.example.com/17", "AB-253541"), ("", "https://www.example.com/4"), ("AB-010713", "https:/")
    with duckdb.connect() as judge:
        for name in ("item", "wanted"):
            judge.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{root}/{name}/*.parquet')")
        for number, query in enumerate(QUERIES[part % PARTS :: PARTS]):
            a, b = asked[(number + part) % len(asked)]
            sql = query.format(a=a, b=b)
            expected = [tuple(row) for row in judge.execute(sql).fetchall()]
            assert [tuple(row.values()) for row in lake.sql(sql).rows()] == expected, sql
        for code in ("https://www.example.com/17", "AB-253541", "", "N/A", "https:/"):
            (expected,) = judge.execute("SELECT count(*) FROM item WHERE code = ?", [code]).fetchall()
            assert len(lake.sql(f"SELECT number FROM item WHERE code = '{code}'").rows()) == expected[0]
    assert "item_code_key (key): used" in str(lake.explain(QUERIES[0].format(a=asked[0][0], b="")))


@pytest.mark.parametrize("bits", [65, *long(64, 66, 70, 94, 96, 128)])
def test_texts_that_share_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    monkeypatch.setattr(leaf_stores, "_KEY_BITS", {16: bits})
    monkeypatch.setattr(leaf_writer, "page_rows", lambda width: 32)
    monkeypatch.setattr(leaf_writer, "GROUP_ROWS", 128)
    monkeypatch.setattr(merge, "FAN_OUT", 2)
    monkeypatch.setattr(store_copy, "SAMPLES", cases(20, 3))
    for number in range(2):
        write(tmp_path, number)
    with needlepoint.open(tmp_path, keys="lake:", access="pages", refresh=0) as lake:
        lake.create_table("item")
        lake.create_table("wanted")
        lake.create_index("item", "code")
        check(lake, tmp_path)
        for number in range(2, 4):  # each is a run, and they are merged
            write(tmp_path, number)
            lake.sync()
        check(lake, tmp_path, 1)
        (tmp_path / "item/1.parquet").unlink()
        lake.sync()
        assert lake.sweep(now=True).entries > 0
        check(lake, tmp_path, 2)
        for number, (source, target) in enumerate((("lake:", "rocksdb"), ("rocksdb", "lake:"))):
            (moved,) = lake.copy_store(source, target)
            assert moved.checks
            check(lake, tmp_path, number)


def test_a_file_that_changed_is_not_copied(tmp_path: Path) -> None:
    """Its entries are made from the data, which are others now: the next sync indexes it again."""
    for number in range(3):
        write(tmp_path, number)
    with needlepoint.open(tmp_path, keys="lake:", access="pages", refresh=0) as lake:
        lake.create_table("item")
        lake.create_table("wanted")
        lake.create_index("item", "code")
        write(tmp_path, 7)
        (tmp_path / "item/7.parquet").replace(tmp_path / "item/1.parquet")
        lake.copy_store("lake:", "rocksdb")
        check(lake, tmp_path)
        lake.sync()
        check(lake, tmp_path)


def test_an_index_of_a_previous_version_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leaf files have whole keys, and are copied or merged with others."""
    monkeypatch.setattr(store_copy, "SAMPLES", 3)
    for number in range(2):
        write(tmp_path, number)
    with monkeypatch.context() as patched, needlepoint.open(tmp_path, keys="lake:", refresh=0) as lake:
        patched.setattr(leaf_stores, "_KEY_BITS", {})
        lake.create_table("item")
        lake.create_table("wanted")
        lake.create_index("item", "code")
    with needlepoint.open(tmp_path, keys="lake:", access="pages", refresh=0) as lake:
        (path,) = tmp_path.glob(".needlepoint/keys/*/*/manifest.ndjson")
        assert b'"format": 1' in path.read_bytes()
        check(lake, tmp_path)
        write(tmp_path, 2)
        lake.sync()
        assert b'"format": 2' in path.read_bytes()
        check(lake, tmp_path, 1)
        (tmp_path / "item/0.parquet").unlink()
        lake.sync()
        assert lake.sweep(now=True).entries > 0
        check(lake, tmp_path, 2)
        lake.copy_store("lake:", "rocksdb")
        check(lake, tmp_path)


@pytest.mark.parametrize("server", long("redis_url", "postgres_url"))
def test_texts_are_copied_to_a_server_and_back(tmp_path: Path, server: str, request: pytest.FixtureRequest) -> None:
    url = str(request.getfixturevalue(server))
    for number in range(2):
        write(tmp_path, number)
    with needlepoint.open(tmp_path, keys=url, access="pages", refresh=0) as lake:
        lake.create_table("item")
        lake.create_table("wanted")
        lake.create_index("item", "code", store="lake:")
        for source, target in (("lake:", url), (url, "lake:")):
            (moved,) = lake.copy_store(source, target)
            assert moved.checks
            check(lake, tmp_path)
