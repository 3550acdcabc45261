"""The pipeline: Spark writes, an event reaches the indexer, SQL finds the row."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.spark.products import product_id_of, products

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path):
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        yield lake


def test_spark_writes_an_event_is_indexed_and_sql_finds_the_row(lake, spark) -> None:
    for batch in range(2):
        frame = products(spark, 6000, batch=batch, batches=2)
        done = needle_spark.write(
            frame, lake, "product", batch=f"b{batch}", partition_by=["partner", "year", "month"], files_per_partition=1
        )
        assert done.state == "announced"
        if batch == 0:
            lake.create_index("product", "product_id", build=False)
    assert lake.status().waiting_events == 2
    list(lake.follow_events(once=True))
    files = str(lake.root / "product/**/*.parquet")
    con = duckdb.connect()
    con.execute(f"CREATE VIEW product AS SELECT * FROM read_parquet('{files}', hive_partitioning = true)")
    for row in (0, 17, 3001, 5999):
        query = f"SELECT upc, title, partner, year, month FROM product WHERE product_id = {product_id_of(row)}"
        result = lake.sql(query)
        assert [tuple(each.values()) for each in result.rows()] == con.execute(query).fetchall()
        (table,) = result.report.tables
        assert (table.page_read_files, table.scanned_files, table.rows.read) == (1, 0, 1)
    assert lake.sql(f"SELECT 1 FROM product WHERE product_id = {product_id_of(6000)}").rows() == []
    # The lake stays plain Parquet that Spark can read: no stale checksum files are left.
    assert spark.read.parquet(str(lake.root / "product")).count() == 6000
    assert list((lake.root / "product").rglob("*.crc")) == []
    path = next((lake.root / "product").rglob("*.parquet"))
    assert pq.read_metadata(path).row_group(0).column(0).has_offset_index


def test_spark_and_an_indexer_share_a_lake_from_two_machines(tmp_path: Path, spark, postgres_url: str) -> None:
    """They share the files, and PostgreSQL: each has a store of its own."""
    shared = {"registry": postgres_url, "queue": postgres_url, "refresh": 0}
    with (
        needlepoint.open(tmp_path / "lake", store=tmp_path / "driver", **shared) as driver,
        needlepoint.open(tmp_path / "lake", store=tmp_path / "indexer", **shared) as indexer,
    ):
        needle_spark.write(spark.range(0, 3000), driver, "numbers", batch="first")
        indexer.create_index("numbers", "id")
        needle_spark.write(spark.range(3000, 6000), driver, "numbers", batch="second")
        list(indexer.follow_events(once=True))
        for lake in (driver, indexer):
            result = lake.sql("SELECT id FROM numbers WHERE id IN (7, 2999, 3000, 5999, 6000) ORDER BY id")
            assert [row["id"] for row in result.rows()] == [7, 2999, 3000, 5999]
            assert result.report.tables[0].scanned_files == 0
        found = needle_spark.read(spark, driver, "numbers", "id >= 2998 AND id < 3002")
        assert sorted(row.id for row in found.collect()) == [2998, 2999, 3000, 3001]
        assert needle_spark.build(spark, driver, "numbers").indexed == 0


def test_a_batch_delivered_again_is_not_written_again(lake, spark) -> None:
    frame = spark.range(100)
    for _ in range(3):
        needle_spark.write(frame, lake, "numbers", batch="once")
    needle_spark.write(frame, lake, "numbers")
    needle_spark.write(frame, lake, "numbers")
    assert lake.sql("SELECT count(*) AS c FROM numbers").rows() == [{"c": 300}]


def test_two_jobs_appending_at_once_lose_nothing(lake, spark) -> None:
    needle_spark.write(spark.range(0, 1000), lake, "numbers")
    failures: list[BaseException] = []

    def job(number: int) -> None:
        try:
            for part in range(3):
                first = (1 + number * 3 + part) * 1000
                needle_spark.write(spark.range(first, first + 1000), lake, "numbers")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=job, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    rows = lake.sql("SELECT count(*) AS c, count(DISTINCT id) AS d, max(id) AS m FROM numbers").rows()
    assert rows == [{"c": 7000, "d": 7000, "m": 6999}]


def test_a_failing_job_leaves_nothing(lake, spark) -> None:
    needle_spark.write(spark.range(10), lake, "numbers", batch="good")
    bad = spark.range(10).selectExpr("raise_error('broken input') AS id")
    with pytest.raises(needlepoint.NeedlepointError, match="broken input"):
        needle_spark.write(bad, lake, "numbers", batch="bad")
    with pytest.raises(needlepoint.SchemaConflict):
        needle_spark.write(spark.range(10).selectExpr("CAST(id AS STRING) AS id"), lake, "numbers", batch="bad")
    with pytest.raises(needlepoint.UsageError, match="partitioned by nothing"):
        needle_spark.write(spark.range(10), lake, "numbers", partition_by=["id"])
    assert lake.sql("SELECT count(*) AS c FROM numbers").rows() == [{"c": 10}]
    assert list((lake.store / "stage" / "numbers").iterdir()) == []


def test_what_is_embedded_is_in_the_files_before_they_are_published(lake, spark) -> None:
    frame = products(spark, 3000, batch=0, batches=2)
    needle_spark.write(frame, lake, "product", partition_by=["partner"], files_per_partition=1)
    lake.create_index("product", "title", kind="distinct", embed=True, most_values=100_000)
    lake.create_index("product", "product_id", embed=True)
    needle_spark.write(products(spark, 3000, batch=1, batches=2), lake, "product", files_per_partition=1)
    new = [path for path in (lake.root / "product").rglob("*.parquet") if _kinds(path) == {"distinct", "key"}]
    assert len(new) == len(list((lake.root / "product").rglob("*.parquet")))
    before = {path: path.stat().st_mtime_ns for path in new}
    list(lake.follow_events(once=True))
    assert {path: path.stat().st_mtime_ns for path in new} == before  # the indexer had nothing to add
    assert lake.status().tables[0].indexed == len(new)
    assert spark.read.parquet(str(lake.root / "product")).count() == 3000
    title = lake.sql(f"SELECT title FROM product WHERE product_id = {product_id_of(2999)}").rows()[0]["title"]
    quoted = title.replace("'", "''")
    found = lake.sql(f"SELECT product_id FROM product WHERE title = '{quoted}'")
    assert product_id_of(2999) in [row["product_id"] for row in found.rows()]


def _kinds(path: Path) -> set[str]:
    indexes = json.loads(pq.read_metadata(path).metadata.get(b"needlepoint.indexes", b"[]"))
    return {index["kind"] for index in indexes}
