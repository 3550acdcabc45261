"""The public API on a small lake of plain files."""

from __future__ import annotations

import gc
import math
import os
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lakes import product_lake, products, write

import needlepoint


@pytest.fixture
def lake(tmp_path: Path):
    product_lake(tmp_path / "lake")
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("product", tmp_path / "lake" / "product")
        lake.create_index("product", "product_id")
        yield lake


def one(report) -> needlepoint.query.report.explain.TableReport:  # type: ignore[name-defined]
    (table,) = report.tables
    return table


def test_a_point_lookup_reads_one_page_of_each_column(lake) -> None:
    result = lake.sql("SELECT title, upc, year FROM product WHERE product_id = 1234")
    assert result.rows() == [{"title": "title 70 dairy", "upc": "U000001234", "year": 2020}]
    table = one(result.report)
    assert (table.files.read, table.files.total) == (1, 4)
    assert (table.row_groups.read, table.row_groups.total) == (1, 8)
    assert (table.pages.read, table.pages.total) == (3, 320)
    assert (table.rows.read, table.rows.total) == (1, 8000)
    assert table.scanned_files == 0
    card_pages = pq.ParquetFile(lake.root / "product/year=2020/p0.parquet")
    assert 0 < table.bytes.read < card_pages.metadata.serialized_size + 12_000


def test_get_is_the_same_without_sql(lake) -> None:
    table = lake.table("product")
    assert table.get(product_id=1234, columns=["upc", "year"]).rows() == [{"upc": "U000001234", "year": 2020}]
    assert table.get(product_id=-1).rows() == []
    assert table.get(product_id=None).rows() == []
    assert {row["upc"] for row in table.get(product_id=[1, 7999, 8000]).rows()} == {"U000000001", "U000007999"}
    assert table.get({"product_id": 5}, year=2021).rows() == []
    assert len(table.get(title="title 5 dairy")) > 10  # no index: the same answer by a scan
    assert table.get(price=math.nan).rows() == []
    with pytest.raises(needlepoint.UsageError, match="not a value of column 'product_id'"):
        table.get(product_id="x")
    with pytest.raises(needlepoint.UnknownName, match="Did you mean 'product_id'"):
        table.get(product_idd=1)


def test_a_lookup_that_finds_nothing_reads_nothing(lake) -> None:
    for query in ("product_id = 123456789", "product_id IN (-5, 99999)", "product_id = 5 AND year = 2021"):
        result = lake.sql(f"SELECT * FROM product WHERE {query}")
        assert result.rows() == []
        assert one(result.report).bytes.read == 0


def test_results_come_in_every_form(lake) -> None:
    result = lake.sql("SELECT product_id, upc FROM product WHERE product_id = 3")
    assert result.to_arrow().schema == pa.schema([("product_id", pa.int64()), ("upc", pa.string())])
    assert result.to_pandas().upc.tolist() == ["U000000003"]
    assert result.to_polars()["upc"].to_list() == ["U000000003"]
    assert len(result) == 1


def test_parameters_are_values_not_text(lake) -> None:
    query = "SELECT product_id FROM product WHERE upc = $upc"
    assert lake.sql(query, {"upc": "U000000007"}).rows() == [{"product_id": 7}]
    assert lake.sql(query, {"upc": "' OR 1=1 --"}).rows() == []


def test_predicates_reach_every_scan(lake) -> None:
    """Both sides of joins, CTEs, subqueries, UNION arms and views are pruned, and answer as DuckDB does."""
    lake.sql("CREATE VIEW recent AS SELECT * FROM product WHERE year = 2021")
    lake.sql("CREATE VIEW two AS SELECT upc, product_id FROM recent WHERE product_id IN (2001, 2002)")
    files = str(lake.root / "product/*/*.parquet")
    con = duckdb.connect()
    con.execute(f"CREATE VIEW product AS SELECT * FROM read_parquet('{files}', hive_partitioning = true)")
    con.execute("CREATE VIEW recent AS SELECT * FROM product WHERE year = 2021")
    con.execute("CREATE VIEW two AS SELECT upc, product_id FROM recent WHERE product_id IN (2001, 2002)")
    queries = {
        "SELECT a.upc, b.upc FROM product a JOIN product b ON a.product_id = b.product_id WHERE a.product_id = 17": 0,
        "WITH x AS (SELECT * FROM product WHERE product_id = 9) SELECT x.upc FROM x": 0,
        "SELECT upc FROM product WHERE product_id = 1 UNION ALL SELECT upc FROM product WHERE product_id = 7001": 0,
        "SELECT upc FROM two ORDER BY product_id": 0,
        "SELECT (SELECT max(upc) FROM product WHERE product_id = 44) AS m": 4,
        "SELECT upc FROM product WHERE product_id = (SELECT min(product_id) + 5 FROM product)": 4,
        "SELECT count(*) AS c FROM product p WHERE EXISTS (SELECT 1 FROM product q WHERE q.product_id = p.product_id "
        "AND q.product_id < 3)": 4,
        "SELECT count(*) FILTER (WHERE product_id > (SELECT 5)) AS c FROM product WHERE product_id < 10": 1,
        "SELECT upc FROM product ORDER BY product_id DESC LIMIT 3": 4,
        "SELECT count(*) AS c FROM product WHERE FALSE": 0,
    }
    for query, scanned in queries.items():
        result = lake.sql(query)
        expected = con.execute(query).fetchall()
        assert sorted(tuple(row.values()) for row in result.rows()) == sorted(expected), query
        assert sum(table.scanned_files for table in result.report.tables) <= scanned, query


def test_new_changed_and_deleted_files_are_seen_before_any_sync(lake, tmp_path: Path) -> None:
    directory = lake.root / "product/year=2020"
    count = "SELECT count(*) AS c, max(product_id) AS m FROM product WHERE product_id >= 1990"

    def answer() -> tuple[int, int]:
        (row,) = lake.sql(count).rows()
        return row["c"], row["m"]

    before = answer()
    write(products(50_000, 10), directory / "new.parquet")
    assert answer() == (before[0] + 10, 50_009)
    assert lake.sql("SELECT upc FROM product WHERE product_id = 50003").rows() == [{"upc": "U000050003"}]
    write(products(60_000, 10), directory / "new.parquet")  # replaced in place
    assert lake.sql("SELECT upc FROM product WHERE product_id = 50003").rows() == []
    assert answer() == (before[0] + 10, 60_009)
    (report,) = lake.sync("product")
    assert (report.added, report.changed, report.removed, report.indexed) == (1, 0, 0, 1)
    write(products(70_000, 10), directory / "new.parquet")
    (report,) = lake.sync("product")
    assert (report.added, report.changed, report.removed) == (0, 1, 0)
    (directory / "new.parquet").unlink()
    assert answer() == before
    (report,) = lake.sync("product")
    assert (report.added, report.changed, report.removed) == (0, 0, 1)
    (report,) = lake.sync("product")
    assert (report.added, report.changed, report.removed, report.indexed) == (0, 0, 0, 0)


def test_a_file_replaced_between_plan_and_read_is_planned_again(lake, monkeypatch) -> None:
    from needlepoint.query import point_lookup

    path = lake.root / "product/year=2020/p0.parquet"
    original, calls = point_lookup.read_files, []

    def replace_first(*arguments):
        if not calls:
            calls.append(1)
            write(products(1_000_000, 10), path)
        return original(*arguments)

    monkeypatch.setattr(point_lookup, "read_files", replace_first)
    assert lake.sql("SELECT upc FROM product WHERE product_id = 1234").rows() == []
    assert calls == [1]


def test_columns_can_come_later_and_types_widen(tmp_path: Path) -> None:
    directory = tmp_path / "lake/t"
    write(pa.table({"id": pa.array([1, 2], pa.int32())}), directory / "a.parquet")
    lake = needlepoint.open(tmp_path / "lake", refresh=0)
    lake.create_table("t", directory)
    lake.create_index("t", "id")
    write(pa.table({"id": pa.array([3, 2**40], pa.int64()), "name": ["x", "y"]}), directory / "b.parquet")
    lake.sync("t")
    assert lake.sql("SELECT id, name FROM t WHERE id IN (2, 3) ORDER BY id").rows() == [
        {"id": 2, "name": None},
        {"id": 3, "name": "x"},
    ]
    lake.create_index("t", "name")
    assert lake.table("t").get(name="y").rows() == [{"id": 2**40, "name": "y"}]


def test_an_index_that_is_gone_or_broken_costs_time_only(lake) -> None:
    query = "SELECT upc FROM product WHERE product_id = 4321"
    expected = [{"upc": "U000004321"}]
    directory = next((lake.store / "indexes").iterdir())
    for file in directory.glob("*.sst"):
        file.write_bytes(b"garbage" * 100)
    with needlepoint.open(lake.root) as again:
        result = again.sql(query)
        assert result.rows() == expected
        assert "cannot be read" in str(result.report)
    shutil.rmtree(directory)
    with needlepoint.open(lake.root) as again:
        assert again.sql(query).rows() == expected
        again.drop_index("product_product_id_key")
        again.create_index("product", "product_id")
        result = again.sql(query)
        assert result.rows() == expected
        assert one(result.report).indexes[0].used


def test_nan_rows_are_found_with_and_without_an_index(tmp_path: Path) -> None:
    """DataFusion alone prunes them away, by statistics that exclude NaN."""
    directory = tmp_path / "lake/t"
    write(pa.table({"id": range(10), "f": [0.5] * 9 + [math.nan]}), directory / "a.parquet")
    write(pa.table({"id": range(10, 20), "f": [float(n) for n in range(10)]}), directory / "b.parquet")
    lake = needlepoint.open(tmp_path / "lake")
    lake.create_table("t", directory)
    queries = ("f > 8.5", "NOT f < 8.5", "f <> 0.5 AND id < 10", "f = 'NaN'", "f + 0 > 8.5", "f >= 9")
    answers = [lake.sql(f"SELECT id FROM t WHERE {query} ORDER BY id").rows() for query in queries]
    assert [[row["id"] for row in rows] for rows in answers] == [[9, 19], [9, 19], [9], [9], [9, 19], [9, 19]]
    lake.create_index("t", "f")
    again = [lake.sql(f"SELECT id FROM t WHERE {query} ORDER BY id").rows() for query in queries]
    assert again == answers
    assert lake.table("t").get(f=math.nan, columns=["id"]).rows() == [{"id": 9}]


def test_many_partitions_in_one_aggregate(tmp_path: Path) -> None:
    for number in range(40):
        write(products(number * 10, 10), tmp_path / f"lake/t/part={number}/a.parquet")
    lake = needlepoint.open(tmp_path / "lake")
    lake.create_table("t")
    rows = lake.sql("SELECT part, count(*) AS c, min(product_id) AS m FROM t GROUP BY part ORDER BY part").rows()
    assert rows == [{"part": number, "c": 10, "m": number * 10} for number in range(40)]
    rows = lake.sql("SELECT part, count(*) AS c FROM t WHERE part > 35 GROUP BY part ORDER BY part").rows()
    assert [row["part"] for row in rows] == [36, 37, 38, 39]


def test_partition_types_are_worked_out_again(tmp_path: Path) -> None:
    write(products(0, 10), tmp_path / "lake/t/part=1/a.parquet")
    lake = needlepoint.open(tmp_path / "lake", refresh=0)
    lake.create_table("t")
    write(products(10, 10), tmp_path / "lake/t/part=x/a.parquet")
    query = "SELECT part, count(*) AS c FROM t GROUP BY part ORDER BY part"
    assert lake.sql(query).rows() == [{"part": "1", "c": 10}, {"part": "x", "c": 10}]
    lake.sync()
    assert lake.sql(query).rows() == [{"part": "1", "c": 10}, {"part": "x", "c": 10}]


def test_names_with_capital_letters(tmp_path: Path) -> None:
    write(pa.table({"Product Id": [1, 2], "UPC": ["a", "b"]}), tmp_path / "lake/t/a.parquet")
    lake = needlepoint.open(tmp_path / "lake")
    lake.create_table("t")
    lake.create_index("t", "Product Id")
    assert lake.sql('SELECT "UPC" FROM t WHERE "Product Id" = 2').rows() == [{"UPC": "b"}]
    assert lake.table("t").get({"Product Id": 1}).rows() == [{"Product Id": 1, "UPC": "a"}]
    with pytest.raises(needlepoint.SqlError, match='double quotes: "UPC"'):
        lake.sql("SELECT upc FROM t")


def test_threads_share_a_lake(lake) -> None:
    wrong: list[int] = []

    def is_wrong(number: int) -> bool:
        found = lake.sql(f"SELECT product_id FROM product WHERE product_id = {number}").rows()
        got = lake.table("product").get(product_id=number, columns=["upc"]).rows()
        return (found, got) != ([{"product_id": number}], [{"upc": f"U{number:09d}"}])

    def ask(first: int) -> None:
        wrong.extend(filter(is_wrong, range(first, first + 60)))

    threads = [threading.Thread(target=ask, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_lake_can_be_moved(lake, tmp_path: Path) -> None:
    lake.close()
    (tmp_path / "lake").rename(tmp_path / "moved")
    with needlepoint.open(tmp_path / "moved") as moved:
        result = moved.sql("SELECT upc FROM product WHERE product_id = 77")
        assert result.rows() == [{"upc": "U000000077"}]
        assert one(result.report).page_read_files == 1


def test_indexes_in_sql(lake) -> None:
    assert lake.sql("CREATE INDEX by_upc ON product USING key (upc)").rows() == [{"index": "by_upc"}]
    rows = lake.sql("SHOW INDEXES FROM product").rows()
    assert [(row["name"], row["column"], row["files"], row["entries"]) for row in rows] == [
        ("by_upc", "upc", 4, 8000),
        ("product_product_id_key", "product_id", 4, 8000),
    ]
    assert one(lake.sql("SELECT title FROM product WHERE upc = 'U000000009'").report).indexes[0].used
    lake.sql("DROP INDEX by_upc")
    assert len(lake.sql("SHOW INDEXES").rows()) == 1
    assert not (lake.store / "indexes" / "2").exists()


def test_status_counts(lake) -> None:
    write(products(90_000, 5), lake.root / "product/year=2020/new.parquet")
    status = lake.status()
    (table,) = status.tables
    assert (table.files, table.indexed, table.unknown, table.rows) == (5, 4, 1, 8000)
    assert status.waiting_events == 0
    assert table.indexes[0].entries == 8000


def test_explain_reads_nothing_and_says_why(lake) -> None:
    report = lake.explain("SELECT upc FROM product WHERE product_id = 5 AND price > 3")
    assert "index product_product_id_key (key): used" in str(report)
    table = one(report)
    assert table.pages.read == 3
    assert report.to_dict()["tables"][0]["files"] == {"read": 1, "total": 4}
    text = str(lake.explain("SELECT upc FROM product WHERE product_id > 5"))
    assert "a scan is faster" in text or "range" in text
    assert "not in the predicate" in str(lake.explain("SELECT upc FROM product WHERE price = 3"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_root_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(needlepoint.StoreError, match="cannot be used"):
        needlepoint.open(tmp_path / "lake")


def test_a_table_whose_directory_is_gone_says_so(lake) -> None:
    (lake.root / "product").rename(lake.root / "elsewhere")
    for ask in (lambda: lake.sql("SELECT count(*) FROM product"), lake.sync):
        with pytest.raises(needlepoint.StoreError, match="is gone"):
            ask()
    (lake.root / "elsewhere").rename(lake.root / "product")
    assert lake.sql("SELECT count(*) AS c FROM product").rows() == [{"c": 8000}]


def test_a_directory_that_vanishes_while_listing_takes_only_its_own_files(lake, monkeypatch) -> None:
    from needlepoint.tables import listing

    original = listing.os.scandir

    def scandir(path: str):
        if path.endswith("year=2020"):
            raise FileNotFoundError(path)
        return original(path)

    monkeypatch.setattr(listing.os, "scandir", scandir)
    assert lake.sql("SELECT count(*) AS c FROM product").rows() == [{"c": 4000}]


def test_a_file_deleted_while_it_is_to_be_scanned_is_planned_again(lake, monkeypatch) -> None:
    from needlepoint.query.execution import Execution

    original, calls = Execution._read, []

    def delete_first(*arguments):
        original(*arguments)
        if not calls:
            calls.append(1)
            (lake.root / "product/year=2020/p0.parquet").unlink()

    monkeypatch.setattr(Execution, "_read", delete_first)
    assert lake.sql("SELECT count(upc) AS c FROM product").rows() == [{"c": 6000}]


def test_directories_that_are_no_partitions_among_many(tmp_path: Path) -> None:
    for number in range(20):
        write(products(number * 10, 10), tmp_path / f"lake/t/part={number}/sub/a.parquet")
    lake = needlepoint.open(tmp_path / "lake")
    lake.create_table("t")
    assert lake.sql("SELECT count(part) AS c, sum(part) AS s FROM t").rows() == [{"c": 200, "s": 1900}]


def test_many_partitions_under_steady_writing(tmp_path: Path, monkeypatch) -> None:
    from needlepoint.query.execution import Execution

    for number in range(20):
        write(products(number * 10, 10), tmp_path / f"lake/t/part={number}/a.parquet")
    lake = needlepoint.open(tmp_path / "lake", refresh=0)
    lake.create_table("t")
    original, calls = Execution._read, []

    def add(*arguments):
        original(*arguments)
        calls.append(1)
        write(products(len(calls) * 1000, 1), tmp_path / f"lake/t/part=0/new{len(calls)}.parquet")

    monkeypatch.setattr(Execution, "_read", add)
    assert lake.sql("SELECT count(part) AS c FROM t").rows() in [[{"c": 200}], [{"c": 201}], [{"c": 202}]]


def test_get_with_several_keys_leaves_nulls_out(tmp_path: Path) -> None:
    write(pa.table({"id": [6, 7], "b": pa.array([5, None], pa.int64())}), tmp_path / "lake/t/a.parquet")
    lake = needlepoint.open(tmp_path / "lake")
    lake.create_table("t")
    lake.create_index("t", "id")
    assert lake.table("t").get(id=[6, 7], b=5).rows() == [{"id": 6, "b": 5}]


def test_the_catalog_can_be_asked(lake) -> None:
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = 'product' AND data_type = 'Int64'"
    assert {row["column_name"] for row in lake.sql(query).rows()} == {"product_id", "year"}
    assert len(lake.sql("SHOW COLUMNS FROM product").rows()) == 5


def test_a_view_whose_table_is_gone_breaks_no_other_query(lake, tmp_path: Path) -> None:
    write(pa.table({"x": [1]}), tmp_path / "lake/other/a.parquet")
    lake.create_table("other")
    lake.sql("CREATE VIEW va AS SELECT * FROM other")
    lake.sql("CREATE VIEW vb AS SELECT upc FROM product")
    lake.drop_table("other")
    assert len(lake.sql("SELECT * FROM vb WHERE upc = 'U000000001'").rows()) == 1


def test_an_index_that_another_process_rebuilt_is_used(lake) -> None:
    query = "SELECT upc FROM product WHERE product_id = 4321"
    lake.sql(query)
    with needlepoint.open(lake.root) as other:
        index = other.registry.indexes.all()[0]
        other.index_stores.replace_index(index)
        other.sync()
    result = lake.sql(query)
    assert result.rows() == [{"upc": "U000004321"}]
    assert one(result.report).page_read_files == 1


@pytest.mark.long
def test_a_replaced_generation_is_closed_after_its_last_reader(lake) -> None:
    """An open one keeps its descriptors, and the disk space that a sweep frees."""
    (index,) = lake.registry.indexes.all()
    before = weakref.ref(lake.index_stores.entries(index))
    assert len(lake.table("product").get(product_id=4321)) == 1
    assert before() is not None
    lake.rebuild("product")
    lake.sweep(now=True)
    assert len(lake.table("product").get(product_id=4321)) == 1
    gc.collect()
    assert before() is None


def test_import_loads_nothing_heavy() -> None:
    program = "import sys, needlepoint; print(sorted(m for m in sys.modules if m.split('.')[0] in sys.argv[1:]))"
    heavy = ["pyarrow", "numpy", "pyspark", "datafusion", "rocksdict", "tantivy", "redis", "pandas", "polars", "rich"]
    heavy.append("obstore")
    done = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_durations_are_compared_with_intervals(tmp_path: Path) -> None:
    taken = pa.array([1, 5, None], pa.int64()).cast(pa.duration("s"))
    write(pa.table({"id": [1, 2, 3], "taken": taken}), tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        assert lake.sql("SELECT id FROM t WHERE taken < INTERVAL '2 seconds'").rows() == [{"id": 1}]
        assert lake.sql("SELECT id FROM t WHERE taken = INTERVAL '5 seconds'").rows() == [{"id": 2}]
