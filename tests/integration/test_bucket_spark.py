"""Spark writes a lake at s3:// and reads it, with and without s3a."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from click.testing import CliRunner
from tests.buckets import Bucket, Server, aws_server
from tests.integration.test_bucket_lake import keys

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.cli.needle import main
from needlepoint.objects import identify
from needlepoint.spark.products import product_id_of, products
from needlepoint.spark.tasks import mover
from needlepoint.tables import publishing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROWS = 4000


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[Server]:
    """Workers of a session get the variables with which its JVM was started, and the ones set here."""
    with aws_server() as server:
        environment = spark.sparkContext.environment
        before = dict(environment)
        environment.update({name: value for name, value in os.environ.items() if name.startswith("AWS_")})
        yield server
        environment.clear()
        environment.update(before)


@pytest.fixture
def lake(bucket: Bucket, tmp_path: Path) -> Iterator[needlepoint.Lake]:
    with needlepoint.open(bucket.url("lake"), store=tmp_path / "store", object_refresh=0) as lake:
        yield lake


def write_products(lake: needlepoint.Lake, spark: SparkSession, batches: int = 2) -> None:
    for batch in range(batches):
        frame = products(spark, ROWS, batch=batch, batches=batches)
        needle_spark.write(frame, lake, "product", batch=f"b{batch}", partition_by=["year"], files_per_partition=1)
        if batch == 0:
            lake.create_index("product", "product_id", build=False)
            lake.create_index("product", "title", kind="text", embed=True, build=False)


def copied(bucket: Bucket, directory: Path) -> duckdb.DuckDBPyConnection:
    """Copy the bucket's table to disk, and open it with DuckDB to compare."""
    for key in keys(bucket, "lake/product/"):
        path = directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        bucket.client.download_file(bucket.name, key, str(path))
    connection = duckdb.connect()
    files = f"{directory}/lake/product/**/*.parquet"
    connection.execute(f"CREATE VIEW product AS SELECT * FROM read_parquet('{files}', hive_partitioning = true)")
    return connection


@pytest.mark.long
def test_spark_writes_an_event_is_indexed_and_sql_finds_the_row(
    lake: needlepoint.Lake, bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    write_products(lake, spark)
    assert [each.problem for each in lake.follow_events(once=True)] == ["", ""]
    assert list((lake.store / "stage/product").iterdir()) == []
    other = copied(bucket, tmp_path / "copy")
    questions = [f"product_id = {product_id_of(row)}" for row in (0, 17, 3001, 3999, 4000)]
    for where in (*questions, "title LIKE '%milk%'", "year = 2024 AND month < 6"):
        query = f"SELECT upc, title, partner FROM product WHERE {where} ORDER BY upc"
        result = lake.sql(query)
        assert [tuple(each.values()) for each in result.rows()] == other.execute(query).fetchall()
    found = lake.sql(f"SELECT upc FROM product WHERE {questions[1]}").report.tables[0]
    assert (found.page_read_files, found.scanned_files) == (1, 0)
    (status,) = lake.status().tables
    assert (status.indexed, status.unknown) == (status.files, 0)
    assert [(index.kind, index.files, index.embedded) for index in status.indexes] == [
        ("key", status.files, False),
        ("text", status.files, True),
    ]
    needle_spark.write(products(spark, 100, batch=0, batches=1), lake, "product", batch="b1")  # delivered again
    assert lake.sql("SELECT count(*) AS n FROM product").rows() == [{"n": ROWS}]


@pytest.mark.long
def test_spark_reads_by_page_by_scan_and_everything(
    lake: needlepoint.Lake, bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    write_products(lake, spark, 1)
    list(lake.follow_events(once=True))
    other = copied(bucket, tmp_path / "copy")
    few = f"product_id IN ({', '.join(str(product_id_of(row)) for row in range(5))})"
    many = f"product_id IN ({', '.join(str(product_id_of(row)) for row in range(0, ROWS, 3))})"
    for where in (few, many, "month < 6", "TRUE", None):
        names = ["upc", "title", "partner"]
        frame = needle_spark.read(spark, lake, "product", where, names)
        expected = other.execute(f"SELECT upc, title, partner FROM product WHERE {where or 'TRUE'}").fetchall()
        assert sorted(map(tuple, frame.collect())) == sorted(expected)
    needle_spark.register(spark, lake)
    reader = spark.read.format("needlepoint").option("table", "product").option("where", few)
    assert reader.load().count() == 5
    orders = spark.createDataFrame([(product_id_of(row),) for row in (3, 4, 99_999_999)], "product_id bigint")
    joined = needle_spark.lookup_join(orders, lake, "product", on="product_id", columns=["upc"], how="left")
    expected = dict(other.execute("SELECT product_id, upc FROM product").fetchall())
    assert {row.product_id: row.upc for row in joined.collect()} == {
        row.product_id: expected.get(row.product_id) for row in orders.collect()
    }


@pytest.mark.long
def test_uploads_in_tasks(lake: needlepoint.Lake, bucket: Bucket, spark: SparkSession, tmp_path: Path) -> None:
    pairs = []
    for number in range(9):
        (tmp_path / f"{number}").write_bytes(b"%d" % number)
        pairs.append((str(tmp_path / f"{number}"), bucket.url(f"x/{number}.parquet")))
    move_all = mover(spark)
    move_all(pairs)
    move_all(pairs)  # as when a task runs again
    assert len(keys(bucket, "x/")) == 9
    assert [identify(target).size for _, target in pairs] == [1] * 9
    with pytest.raises(needlepoint.NeedlepointError, match="moving files failed"):
        move_all([(str(tmp_path / "gone"), bucket.url("x/gone.parquet"))])


def test_a_batch_that_is_uploaded_in_tasks(
    lake: needlepoint.Lake, bucket: Bucket, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["needlepoint.spark.write"], "_is_local", lambda spark: False)
    monkeypatch.setattr(publishing, "_move_here", None)
    needle_spark.write(spark.range(1000).repartition(6), lake, "numbers", batch="one")
    assert lake.sql("SELECT count(*) AS n, sum(id) AS s FROM numbers").rows() == [{"n": 1000, "s": 499_500}]
    assert len(keys(bucket, "lake/numbers/")) == 6


def test_staging_that_is_not_possible(lake: needlepoint.Lake, bucket: Bucket, spark: SparkSession) -> None:
    with pytest.raises(needlepoint.UsageError, match=r"has no s3a\. .*hadoop-aws:3"):
        needle_spark.write(spark.range(10), lake, "numbers", staging="s3a")
    with pytest.raises(needlepoint.UsageError, match="'local' or 's3a'"):
        needle_spark.write(spark.range(10), lake, "numbers", staging="s3a://bucket")
    assert lake.tables() == keys(bucket) == []


def test_ingest_into_a_bucket(bucket: Bucket, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "feed.json").write_text("".join(f'{{"id": {n}, "title": "t{n}"}}\n' for n in range(100)))
    place = ["--lake", bucket.url("lake"), "--store", str(tmp_path / "store")]
    feed = ["ingest", "item", str(tmp_path / "feed.json"), "--batch", "one"]
    for said in ("100 rows in 1 file published as batch one", "was published before"):
        done = CliRunner().invoke(main, [*place, *feed, "--files-per-partition", "1"])
        assert done.exit_code == 0, done.output
        assert said in done.output
    asked = CliRunner().invoke(main, [*place, "sql", "--format", "csv", "SELECT title FROM item WHERE id = 42"])
    assert asked.output.split() == ['"title"', '"t42"']
    assert len(keys(bucket)) == 1
