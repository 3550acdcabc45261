"""Reading a table with Spark through its indexes.

    everything            Spark's own Parquet reader over the table's files where it takes paths and types as we do, in
                          a bucket where the session has s3a
    a few rows            read here, before any task could begin
    anything in between   tasks of a Python data source, each with some files and the rows of them that matter

The condition is planned as SQL is, and evaluated by DataFusion on what was read, wherever that is: Spark's dialect has
other casts, other NaN and other LIKE, and would give other rows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from needlepoint.objects import is_url
from needlepoint.spark.data_source import NAME, register
from needlepoint.spark.s3a import has_s3a, spark_path
from needlepoint.spark.types import arrow_schema, conformed, is_read_alike, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

    from needlepoint.lake import Lake
    from needlepoint.query import ReadPlan
    from needlepoint.tables import Table

_PATTERN = re.compile(r"[\[\]{}*?\\]")  # the characters of Spark's glob patterns
# Spark decodes escapes byte by byte, so that `%C3%A9` is two letters, and decodes wrong escapes in its own way.
_UNESCAPED_ALIKE = re.compile(r"(?:[^%]|%[0-7][0-9A-Fa-f])+")


def read(
    spark: SparkSession,
    lake: Lake,
    table: str,
    where: str | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The rows of a table for which `where` is true, a condition as in `lake.sql` after WHERE; without it, all rows.

    The condition decides what is read, so prefer it to a `filter` of the DataFrame. Tasks read the files as they are
    now, or when the first task starts: a task fails with FileChanged when a file changed since, and `read` must be
    called again. Executors need the table's files, and nothing else.
    """
    plan = lake.plan_read(table, where, columns)
    schema = spark_schema(plan.schema)
    if where is None and _is_native(plan) and (not is_url(plan.table.location) or has_s3a(spark)):
        return _native(spark, lake, plan).select(*map(_quoted, schema.names))
    if plan.few:
        return _at_once(spark, lake, plan, schema)
    # A name for each lake, so that a DataFrame of another lake does not replace this one's source.
    name = f"{NAME}_{hashlib.blake2s(repr((str(lake.root), lake.settings)).encode(), digest_size=8).hexdigest()}"
    register(spark, lake, name)
    reader = spark.read.format(name).schema(schema).option("table", table).option("columns", json.dumps(schema.names))
    return (reader if where is None else reader.option("where", where)).load()


def _at_once(spark: SparkSession, lake: Lake, plan: ReadPlan, schema: StructType) -> DataFrame:
    """As a local relation of Spark's plan, whose size joins know."""
    found, arrow = lake.sql(plan.query).to_arrow(), arrow_schema(schema)
    # createDataFrame needs at least one batch, and would run a job for an empty list.
    batches = found.to_batches() or [pa.RecordBatch.from_pylist([], found.schema)]
    return spark.createDataFrame(pa.Table.from_batches([conformed(batch, arrow) for batch in batches], arrow), schema)


def _is_native(plan: ReadPlan) -> bool:
    """Whether Spark's own reader reads the same files, columns and values."""
    table = plan.table
    names = [name.lower() for name in table.schema.names]  # as Spark compares them
    return (
        table.format == "parquet"  # Spark takes partition values from paths
        and bool(plan.paths)
        and len(set(names)) == len(names)
        and all(is_read_alike(field.type) for field in table.schema)
        and not _PATTERN.search(table.location)
        and not any(map(_PATTERN.search, plan.paths))
        and _are_partitions_alike(table, {path.rpartition("/")[0] for path in plan.paths})
    )


def _are_partitions_alike(table: Table, directories: Collection[str]) -> bool:
    """Whether Spark parses the partition values of these directories in the same way. It ignores partitions above a
    directory that is not one, and refuses an empty value and an escaped number or date."""
    fields = [table.schema.field(name) for name in table.partitions]
    if not fields:
        return not any("=" in directory for directory in directories)
    return all(
        len(parts := directory.split("/")) == len(fields) and all(map(_is_partition_alike, parts, fields))
        for directory in directories
    )


def _is_partition_alike(part: str, field: pa.Field) -> bool:
    """
    >>> [_is_partition_alike(f"p={value}", pa.field("p", pa.string())) for value in ("a%20b", "\u00e9", "%C3%A9", "")]
    [True, True, False, False]
    """
    name, _, value = part.partition("=")
    return (
        _UNESCAPED_ALIKE.fullmatch(name) is not None
        and unquote(name) == field.name
        and _UNESCAPED_ALIKE.fullmatch(value) is not None
        and ("%" not in value or pa.types.is_string(field.type))
    )


def _native(spark: SparkSession, lake: Lake, plan: ReadPlan) -> DataFrame:
    """The files of the plan. Spark lists a directory much faster than it takes a thousand paths, but sees it as it is
    then: afterwards the listing is compared with the plan."""
    place = spark_path(plan.table.location)
    if plan.listable:
        # Files with other names do not belong to the table.
        listed = _reader(spark, plan).option("pathGlobFilter", "*.parquet").parquet(place)
        # In a bucket compare what it found: the session may be configured for another S3 than this process.
        remote = is_url(plan.table.location)
        if set(listed.inputFiles()) == {f"{place}/{path}" for path in plan.paths} if remote else is_current(lake, plan):
            return listed
    return _reader(spark, plan).option("basePath", place).parquet(*(f"{place}/{path}" for path in plan.paths))


def is_current(lake: Lake, plan: ReadPlan) -> bool:
    """Whether the table has exactly the files of the plan, as its directory is now."""
    lake.engine.snapshots.forget()
    now = lake.engine.snapshots.current(plan.table.name)
    return now.listable == plan.listable and tuple(file.path for file in now.files) == plan.paths


def _reader(spark: SparkSession, plan: ReadPlan) -> DataFrameReader:
    # A file that is replaced later must fail the read, whatever the session is configured to do.
    return spark.read.schema(spark_schema(plan.table.schema)).option("ignoreMissingFiles", "false")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
