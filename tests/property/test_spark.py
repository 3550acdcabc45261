"""The same promise over files that Spark wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from tests.property.generated import TableSpec, spark_sessions, tables
from tests.property.queries import queries
from tests.property.test_answers import make_indexes
from tests.property.worlds import world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_files_of_spark(spark: SparkSession) -> None:
    spark_sessions.append(spark)

    @settings(max_examples=settings().max_examples // 10)
    @given(tables(mixes=[("spark",), ("spark", "pyarrow")], most_files=3), st.data())
    def answers(spec: TableSpec, data: DataObject) -> None:
        with world(spec) as made:
            make_indexes(made, data)
            for _ in range(10):
                made.check(data.draw(queries(spec), label="query"))

    answers()
