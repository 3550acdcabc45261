"""Fixtures that every suite may use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure(config: pytest.Config) -> None:
    # PySpark warns at every mapInArrow, where no pandas object is involved; here warnings are errors.
    config.addinivalue_line("filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests: starting it takes longer than most of them."""
    from needlepoint.spark.session import session

    active = session("needlepoint tests", cores=2, memory="1g")
    yield active
    active.stop()
