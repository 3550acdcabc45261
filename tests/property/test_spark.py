"""The same property over files that Spark wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from tests.cases import cases
from tests.property.generated import TableSpec, spark_sessions, tables
from tests.property.predicates import predicates
from tests.property.queries import queries
from tests.property.test_answers import make_indexes
from tests.property.worlds import normalised, world

from needlepoint import spark as needle_spark
from needlepoint.query.sql.statements import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_files_of_spark(spark: SparkSession) -> None:
    spark_sessions.append(spark)

    @settings(max_examples=cases(100, 2))
    @given(tables(mixes=[("spark",), ("spark", "pyarrow")], most_files=3), st.data())
    def answers(spec: TableSpec, data: DataObject) -> None:
        with world(spec) as made:
            make_indexes(made, data)
            for _ in range(10):
                made.check(data.draw(queries(spec), label="query"))

    answers()


@pytest.mark.spark
def test_reads_by_spark(spark: SparkSession) -> None:
    """Through the indexes and through Spark's own reader, over files of all writers and types."""

    @settings(max_examples=cases(200, 3))
    @given(tables(), st.data())
    def reads(spec: TableSpec, data: DataObject) -> None:
        with world(spec) as made:
            make_indexes(made, data)
            # Spark has no nanoseconds.
            schema = made.lake.table("t").schema
            columns = [field.name for field in schema if field.type != pa.timestamp("ns")]
            chosen = ", ".join(map(quoted, columns))
            for where in (None, data.draw(predicates(spec), label="where").lake):
                found = needle_spark.read(spark, made.lake, "t", where, columns)
                expected = made.lake.sql(f"SELECT {chosen} FROM t WHERE {where or 'TRUE'}").to_arrow()
                assert normalised(found.toArrow(), False) == normalised(expected, False), where

    reads()
