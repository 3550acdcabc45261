"""A Python data source over a lake: planned in a process of the driver, read in tasks.

The reader takes its condition as an option and implements no `pushFilters`: PySpark 4.3 stores the partitions of a
`load()` once, and a second filter on the same DataFrame would replace the first (tests/integration/test_spark_read.py
shows it).
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from needlepoint.errors import UsageError
from needlepoint.spark.types import arrow_schema, conformed, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from needlepoint.lake import Lake
    from needlepoint.query import ScanTask

NAME = "needlepoint"
_OPTIONS = ("table", "where", "columns")

_registered: weakref.WeakKeyDictionary[SparkSession, set[str]] = weakref.WeakKeyDictionary()


def register(spark: SparkSession, lake: Lake, name: str = NAME) -> None:
    """Make `spark.read.format("needlepoint").option("table", …).option("where", …).load()` read from this lake.

    `where` is a condition as in `lake.sql`; `columns` are names with commas between them, or a JSON list. Each lake
    needs a name of its own.
    """
    from needlepoint.lake import lake_opener

    known = _registered.setdefault(spark, set())
    if name == NAME or name not in known:
        spark.dataSource.register(_source(name, lake_opener(lake)))
        known.add(name)


def _source(name: str, opener: Callable[[], Lake]) -> type[Any]:
    """The class is made here, and not on import, since its base class is PySpark's. Spark pickles it whole."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class LakeReader(DataSourceReader):
        def __init__(self, options: dict[str, str], schema: StructType) -> None:
            self._options = options
            self._names = list(schema.names)
            self._schema = arrow_schema(schema)

        def partitions(self) -> list[Any]:
            table, where, _ = _checked(self._options)
            return [InputPartition(part) for part in opener().plan_read(table, where, self._names).parts]

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            part: ScanTask | None = partition.value  # Spark passes a partition of None where there is none
            for batch in part.batches() if part is not None else ():
                yield conformed(batch, self._schema)

    class LakeSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return spark_schema(opener().plan_read(*_checked(self.options)).schema)

        def reader(self, schema: StructType) -> LakeReader:
            return LakeReader(dict(self.options), schema)

    return LakeSource


def _checked(options: Mapping[str, str]) -> tuple[str, str | None, list[str] | None]:
    """Table, condition and columns. Spark ignores the case of option names."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in _OPTIONS:
            raise UsageError(f"unknown option '{name}'.", hint=f"There is: {', '.join(_OPTIONS)}.")
    if "table" not in given:
        raise UsageError("the option table is missing.", hint='Give .option("table", …).')
    return given["table"], given.get("where"), _names(given.get("columns"))


def _names(columns: str | None) -> list[str] | None:
    if columns is None:
        return None
    if columns.lstrip().startswith("["):
        try:
            return [str(name) for name in json.loads(columns)]
        except ValueError:
            raise UsageError(f"columns are {columns}.", hint='For example: upc, title, or ["upc", "title"].') from None
    return [name.strip() for name in columns.split(",")]
