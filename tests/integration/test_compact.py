"""Compaction: new files with the same rows replace the old ones while queries run."""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import get_type_hints

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.cases import cases, long
from tests.lakes import product_lake, products, write

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.cli import main
from needlepoint.errors import FileChanged
from needlepoint.parquet.card.describe import describe
from needlepoint.spark.compact import CompactionOptions

module = importlib.import_module("needlepoint.maintenance.compact")

QUESTION = "SELECT count(*) AS n, sum(product_id) AS s, count(DISTINCT upc) AS u FROM product"


@pytest.fixture
def lake(tmp_path: Path):
    product_lake(tmp_path, files=8, rows=500)
    with needlepoint.open(tmp_path, refresh=0) as opened:
        opened.create_table("product")
        opened.create_index("product", "product_id")
        yield opened


def files(lake) -> list[Path]:
    return sorted((lake.root / "product").rglob("*.parquet"))


def everything(root: Path) -> Counter:
    """All rows of all files, as DuckDB reads them."""
    found = duckdb.sql(
        f"SELECT * FROM read_parquet('{root}/**/*.parquet', hive_partitioning = true, union_by_name = true)"
    )
    return Counter(map(repr, found.fetchall()))


def ranges(lake, column: str) -> list[tuple[int, int]]:
    return sorted((min(values), max(values)) for values in (pq.read_table(p)[column].to_pylist() for p in files(lake)))


@pytest.mark.spark
def test_spark_merges_sorts_and_embeds(lake, spark) -> None:
    lake.create_index("product", "title", kind="text", embed=True)
    before, answer = everything(lake.root / "product"), lake.sql(QUESTION).rows()
    done = needle_spark.compact(spark, lake, "product")
    assert (done.files, done.new_files, done.rows, done.swaps, done.left) == (8, 2, 4000, 1, ())
    assert everything(lake.root / "product") == before
    done = needle_spark.compact(spark, lake, "product", sort_by=["upc"], target_size=done.new_bytes // 6)
    assert done.new_files > 2
    assert everything(lake.root / "product") == before
    assert lake.sql(QUESTION).rows() == answer
    for path in files(lake):
        described = describe(str(path))
        assert described.card.largest_page() <= 250
        assert [entry.kind for entry in described.embedded.entries] == ["text"]
    result = lake.sql("SELECT upc FROM product WHERE product_id = 3011")
    assert result.rows() == [{"upc": "U000003011"}]
    assert result.report.tables[0].scanned_files == 0
    assert list((lake.store / "stage" / "product").iterdir()) == []


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_what_was_planned_or_fails(lake, spark) -> None:
    """If old files are kept, Spark reads them. If not, it fails. It never returns fewer rows."""
    planned = needle_spark.read(spark, lake, "product", where="price >= 0")
    native = needle_spark.read(spark, lake, "product")
    lake.compact("product", keep=3600)
    assert native.count() == 4000
    assert planned.count() == 4000
    assert needle_spark.read(spark, lake, "product").count() == 4000
    native = needle_spark.read(spark, lake, "product")
    lake.compact("product", sort_by=["upc"])
    with pytest.raises(Exception, match=r"(?i)not exist|FILE_NOT_EXIST|cannot be read"):
        native.agg({"price": "sum"}).collect()
    assert needle_spark.read(spark, lake, "product", where="price >= 0").count() == 4000


def test_small_files_are_packed_and_large_ones_stay(lake) -> None:
    large = write(products(100_000, 20_000), lake.root / "product/year=2020/large.parquet")
    target = large.stat().st_size
    before = everything(lake.root / "product")
    kept = large.stat().st_mtime_ns
    done = lake.compact("product", target_size=target)
    assert (done.files, done.new_files) == (8, 2)
    assert large.stat().st_mtime_ns == kept
    assert everything(lake.root / "product") == before
    assert lake.compact("product", target_size=target) == module.Compaction()
    # A single small file is left alone.
    write(products(200_000, 10), lake.root / "product/year=2030/small.parquet")
    assert lake.compact("product", target_size=target).files == 0


def test_sorted_files_have_ranges_of_their_own_and_are_left_alone_then(lake) -> None:
    before = everything(lake.root / "product")
    size = sum(path.stat().st_size for path in files(lake))
    done = lake.compact("product", sort_by=["product_id"], target_size=size // 8)
    assert done.new_files >= 6
    assert everything(lake.root / "product") == before
    for year in (2020, 2021):
        assert all(one[1] < next[0] for one, next in itertools.pairwise(_ranges_of(lake, year)))
    assert lake.compact("product", sort_by=["product_id"], target_size=size // 8).files == 0
    # A partition is compacted again for another order or for new files.
    write(products(10_000, 10), lake.root / "product/year=2020/new.parquet")
    done = lake.compact("product", sort_by=["product_id"], target_size=size)
    assert (done.new_files, done.rows) == (1, 2010)
    assert lake.compact("product", sort_by=["upc"], partition={"year": 2021}).rows == 2000


def _ranges_of(lake, year: int) -> list[tuple[int, int]]:
    tables = [pq.read_table(path)["product_id"].to_pylist() for path in files(lake) if f"year={year}" in str(path)]
    for ids in tables:
        assert ids == sorted(ids)
    return sorted((ids[0], ids[-1]) for ids in tables)


def test_pages_that_are_too_large_are_made_smaller(tmp_path: Path) -> None:
    path = write(products(0, 5000), tmp_path / "product/a.parquet", max_rows_per_page=20_000, row_group_size=5000)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        assert describe(str(path)).card.largest_page() > 1000
        assert lake.compact("product", page_rows=100).files == 1
        (new,) = files(lake)
        assert describe(str(new)).card.largest_page() == 100
        assert lake.compact("product", page_rows=100).files == 0


def test_compaction_needs_no_spark(lake, monkeypatch) -> None:
    """`lake.compact` and `spark.compact` take the same options, and the first never starts Spark."""
    own = inspect.signature(lake.compact).parameters
    assert [*own] == ["table", *get_type_hints(CompactionOptions), "runner"]
    monkeypatch.setitem(sys.modules, "pyspark", None)
    answer = lake.sql(QUESTION).rows()
    done = lake.compact("product", zorder=["price", "upc"], partition={"year": 2020}, index=False)
    assert (done.files, done.new_files, done.swaps, done.left) == (4, 1, 1, ())
    assert needle_spark.compact(None, lake, "product", sort_by=["upc"]).files == 5
    assert lake.sql(QUESTION).rows() == answer


def test_many_small_swaps_and_what_a_crash_leaves(lake, monkeypatch) -> None:
    before = everything(lake.root / "product")
    swaps = []
    original = module.swap

    def dies(*arguments, **options):
        if len(swaps) == 1:
            raise KeyboardInterrupt
        swaps.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(module, "swap", dies)
    with pytest.raises(KeyboardInterrupt):
        lake.compact("product", swap_bytes=1)
    monkeypatch.undo()
    assert everything(lake.root / "product") == before
    assert len(files(lake)) == 5
    done = lake.compact("product", swap_bytes=1)
    assert (done.files, done.new_files) == (4, 1)
    assert everything(lake.root / "product") == before


def test_files_that_change_meanwhile_are_left_for_the_next_time(lake, monkeypatch) -> None:
    original = module._Rewrite.run
    changed = files(lake)[0]

    def late(self, groups):
        found = original(self, groups)
        write(products(0, 20), changed)
        return found

    monkeypatch.setattr(module._Rewrite, "run", late)
    done = lake.compact("product")
    assert (done.files, len(done.left)) == (0, 8)
    monkeypatch.undo()
    assert lake.sql("SELECT count(*) AS n FROM product").rows() == [{"n": 3520}]
    assert lake.compact("product").files == 8
    assert lake.sql("SELECT count(*) AS n FROM product").rows() == [{"n": 3520}]


def test_files_of_other_schemas_stay_apart(tmp_path: Path) -> None:
    """Nothing is cast: a wider integer, another unit and another set of columns each get files of their own."""
    tables = [
        pa.table({"id": pa.array([1, 2], pa.int32()), "t": pa.array([1, 2], pa.timestamp("us"))}),
        pa.table({"id": pa.array([3, None], pa.int64()), "t": pa.array([1, 2], pa.timestamp("ns"))}),
        pa.table({"id": pa.array([5], pa.int64())}),
    ]
    for number, table in enumerate(tables * 2):
        write(table, tmp_path / f"t/{number}.parquet")
    write(pa.table({"id": [9], "t": pa.array([5000], pa.timestamp("ns"))}), tmp_path / "t/old.parquet",
          use_deprecated_int96_timestamps=True)  # fmt: skip
    write(pa.table({"id": [9], "t": pa.array([5000], pa.timestamp("ns"))}), tmp_path / "t/older.parquet",
          use_deprecated_int96_timestamps=True)  # fmt: skip
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        before = lake.sql("SELECT id, t FROM t ORDER BY id, t").to_arrow()
        done = lake.compact("t")
        assert (done.files, done.new_files) == (8, 4)
        assert lake.sql("SELECT id, t FROM t ORDER BY id, t").to_arrow().equals(before)
        drawn = {str(pq.ParquetFile(path).schema).split("\n", 2)[2] for path in (tmp_path / "t").glob("*.parquet")}
        assert sum("int96" in each for each in drawn) == 1
        assert len(drawn) == 4


def test_what_cannot_be_written_alike_is_left(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for name in "ab":
        duckdb.sql(f"COPY (SELECT n, TIMETZ '01:00:00+01' AS i FROM range(10) t(n)) TO '{tmp_path}/t/{name}.parquet'")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        done = lake.compact("t")
        assert done.files == 0
        assert [path for path, why in done.left if "Time" in why] == ["a.parquet", "b.parquet"]


def test_what_cannot_be_sorted_by_is_refused(lake) -> None:
    for column, why in (("year", "partition column"), ("nothing", "unknown column")):
        with pytest.raises(needlepoint.UsageError, match=why):
            lake.compact("product", sort_by=[column])
    with pytest.raises(needlepoint.UsageError, match="two orders"):
        lake.compact("product", sort_by=["upc"], zorder=["upc"])
    with pytest.raises(needlepoint.UsageError, match="not a value"):
        lake.compact("product", partition={"year": "x"})


@pytest.mark.parametrize("keep", [0.0, *long(3600.0)])
def test_queries_are_exact_while_files_are_swapped(lake, keep: float) -> None:
    expected = lake.sql(QUESTION).rows()
    stop, wrong, asked = threading.Event(), [], []

    def ask() -> None:
        with needlepoint.open(lake.root) as other:
            table = other.table("product")
            while not stop.is_set():
                if other.sql(QUESTION).rows() != expected:
                    wrong.append("sql")
                if len(table.get(product_id=[7, 3999]).rows()) != 2:
                    wrong.append("get")
                if other.sql("SELECT upc FROM product WHERE product_id = 1234").rows() != [{"upc": "U000001234"}]:
                    wrong.append("lookup")
                if len(other.sql("SELECT a.upc FROM product a JOIN product b USING (product_id)").rows()) != 4000:
                    wrong.append("join")
                asked.append(1)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for turn in range(cases(6, 4)):
            order = {"sort_by": ["upc"]} if turn % 2 else {"zorder": ["price", "product_id"]}
            lake.compact("product", target_size=20_000 + turn, keep=keep, **order)
    finally:
        stop.set()
        thread.join()
    assert wrong == []
    assert len(asked) > 2


def test_parts_of_a_read_fail_when_their_files_are_gone(lake) -> None:
    plan = lake.plan_read("product", "price >= 0")
    by_key = lake.plan_read("product", "product_id = 7")
    lake.compact("product")
    for each in (plan, by_key):
        with pytest.raises(FileChanged, match="Read the table again"):
            [batch for part in each.parts for batch in part.batches()]


@pytest.mark.long
def test_many_partitions_are_listed_by_datafusion_and_never_twice(tmp_path: Path) -> None:
    """With more partitions than a query names one by one, DataFusion lists the directory while files are swapped."""
    for number in range(cases(40, 20)):
        for half in "ab":
            write(
                products(number * 20 + (10 if half == "b" else 0), 10),
                tmp_path / f"product/day={number}/{half}.parquet",
            )
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        query = "SELECT count(*) AS n, sum(day) AS d, sum(product_id) AS s FROM product"
        expected = lake.sql(query).rows()
        stop, wrong = threading.Event(), []

        def ask() -> None:
            with needlepoint.open(lake.root) as other:
                while not stop.is_set():
                    if (found := other.sql(query).rows()) != expected:
                        wrong.append(found)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            for turn in range(3):
                lake.compact("product", sort_by=[("upc", "product_id", "price")[turn]], swap_bytes=20_000, keep=60)
        finally:
            stop.set()
            thread.join()
        assert wrong == []


def test_z_order_reads_fewer_pages_than_a_sort_by_one_column(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    table = pa.table({"a": random.random(40_000), "b": random.random(40_000), "n": range(40_000)})
    write(table, tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path, refresh=0, access="pages") as lake:
        lake.create_table("t")
        query = "SELECT n FROM t WHERE a BETWEEN 0.4 AND 0.6 AND b BETWEEN 0.7 AND 0.72"
        expected = sorted(row["n"] for row in lake.sql(query).rows())
        pages = {}
        for name, order in {"sorted": {"sort_by": ["a"]}, "z": {"zorder": ["a", "b"]}}.items():
            lake.compact("t", page_rows=250, **order)
            result = lake.sql(query)
            assert sorted(row["n"] for row in result.rows()) == expected
            pages[name] = result.report.tables[0].pages.read
        assert pages["z"] * 2 < pages["sorted"]


def test_dead_entries_are_swept(lake) -> None:
    (before,) = lake.status().tables[0].indexes
    assert (before.entries, before.dead) == (4000, 0)
    lake.compact("product", partition={"year": 2020}, index=False)
    (status,) = lake.status().tables[0].indexes
    assert (status.files, status.entries, status.dead) == (4, 2000, 2000)
    lake.writer.index_files("product")
    assert lake.status().tables[0].indexes[0].dead == 2000
    with needlepoint.open(lake.root, refresh=0) as other:
        assert len(other.sql("SELECT upc FROM product WHERE product_id IN (3, 700)").rows()) == 2
        assert lake.sweep().entries == 2000
        result = other.sql("SELECT upc FROM product WHERE product_id IN (3, 700)")
        assert (len(result.rows()), result.report.tables[0].scanned_files) == (2, 0)
    (status,) = lake.status().tables[0].indexes
    assert (status.files, status.entries, status.dead) == (5, 4000, 0)
    assert lake.sweep().entries == 0
    assert len(list((lake.store / "indexes").iterdir())) == 1
    assert lake.verify("product").differences == ()
    assert not list((lake.store / "scratch").iterdir())


@pytest.mark.long
def test_lookups_are_exact_while_indexes_are_swept(lake) -> None:
    stop, wrong, scanned, asked = threading.Event(), [], [], []

    def ask() -> None:
        with needlepoint.open(lake.root) as other:
            while not stop.is_set():
                result = other.sql("SELECT upc FROM product WHERE product_id IN (7, 3999)")
                if len(result.rows()) != 2:
                    wrong.append(result.rows())
                asked.append(result.report.tables[0].scanned_files)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for turn in range(8):
            lake.compact("product", sort_by=["upc"], partition={"year": 2020 + turn % 2}, target_size=9_000 + turn)
            write(products(50_000 + turn, 1), lake.root / f"product/year={2020 + turn % 2}/{turn}.parquet")
            lake.sweep()
    finally:
        stop.set()
        thread.join()
    assert (wrong, scanned) == ([], [])
    assert len(asked) > 5


def test_the_command(lake, monkeypatch) -> None:
    monkeypatch.setattr("needlepoint.spark.session", None)  # small compactions do not start Spark

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["--lake", str(lake.root), *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    assert "8 files of 2 partitions" in run("compact", "product", "--dry-run")
    assert "8 files became 2" in run("compact", "product", "--target-size", "1MB", "--yes")
    assert "nothing to do" in run("compact", "product")
    assert "1 row (1 file rewritten, 0 removed) would be" in run(
        "delete", "product", "--where", "product_id = 7", "--dry-run"
    )
    assert "1 row (1 file rewritten, 0 removed) deleted" in run(
        "delete", "product", "--where", "product_id = 7", "--yes"
    )
    assert "3,999 + 6,000 dead" in (status := run("status"))
    assert "0 events waiting" in status
    assert "dead entries" in run("sweep", "--now")
    assert "1,999 rows (0 files rewritten, 1 removed)" in run("drop-partition", "product", "year=2020", "--yes")
    assert "2,000 rows" in run("expire", "product", "--by", "year", "--before", "2022", "--dry-run")
    (path,) = [file.path for file in lake.registry.files.of(lake.registry.tables.get("product"))]
    assert "1 removed) deleted" in run("delete-files", "product", path, "--yes")
    assert lake.sql("SELECT count(*) AS n FROM product").rows() == [{"n": 0}]
