from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest

from needlepoint.errors import UsageError
from needlepoint.spark import products as demo
from needlepoint.spark.products import partners, product_id_of, products

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_ids_are_unique_and_look_like_ids() -> None:
    ids = [product_id_of(row) for row in range(100_000)]
    assert len(set(ids)) == 100_000
    assert {len(str(one)) for one in ids} == {9}
    assert ids != sorted(ids)
    # The ids of the largest possible rows are unique too.
    assert len({*ids, *(product_id_of(2**31 - 1 - row) for row in range(1000))}) == 101_000


def test_the_seed_changes_the_ids() -> None:
    assert product_id_of(0, seed=1) != product_id_of(0, seed=2)


@pytest.mark.spark
def test_batches_make_up_the_whole(spark: SparkSession) -> None:
    parts = [row for batch in (0, 1) for row in products(spark, 999, batch=batch, batches=2).collect()]
    assert sorted(parts) == sorted(products(spark, 999, batch=0, batches=1).collect())
    assert sorted(row.product_id for row in parts) == sorted(product_id_of(row) for row in range(999))
    assert len({row.upc for row in parts}) == 999
    assert product_id_of(999) not in {row.product_id for row in parts}


@pytest.mark.spark
def test_columns(spark: SparkSession) -> None:
    frame = products(spark, 2000, batch=1, batches=2)
    assert dict(frame.dtypes) == {
        "product_id": "bigint",
        "upc": "string",
        "created_timestamp": "timestamp",
        "title": "string",
        "partner": "string",
        "year": "int",
        "month": "int",
    }
    rows = frame.collect()
    assert {row.partner for row in rows} == {row.partner for row in partners(spark).collect()}
    assert {(row.year, row.month) for row in rows} == {(2024, 11), (2024, 12), (2025, 1), (2025, 2)}
    assert {len(row.title.split()) for row in rows} == {2, 3, 4, 5, 6}
    words = {word for row in rows for word in row.title.split()}
    assert {"dairy", "cow", "goat", "ice", "cream"} <= words <= set(demo._WORDS)
    assert max(row.created_timestamp for row in rows) < datetime.datetime(2025, 3, 1, 1)


@pytest.mark.spark
def test_ids_of_the_last_possible_rows(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    rows = spark.range(2**31 - 100, 2**31).select("id", demo._product_id(F.col("id"), 7).alias("made")).collect()
    assert all(row.made == product_id_of(row.id) for row in rows)


@pytest.mark.spark
def test_refusals(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="up to 2,147,483,648"):
        products(spark, 2**31 + 1, batch=0, batches=1)
    with pytest.raises(UsageError, match="no batch 2 among 2"):
        products(spark, 10, batch=2, batches=2)
    assert products(spark, 0, batch=0, batches=1).count() == 0
