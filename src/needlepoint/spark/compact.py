"""Compaction in tasks of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

from needlepoint.maintenance import Compaction, run_here
from needlepoint.spark.tasks import SparkTasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from needlepoint.lake import Lake


class CompactionOptions(TypedDict, total=False):
    """The options of `Lake.compact`."""

    sort_by: Sequence[str]
    zorder: Sequence[str]
    target_size: int
    page_rows: int | None
    partition: Mapping[str, object] | None
    keep: float
    index: bool
    swap_bytes: int


def compact(spark: SparkSession | None, lake: Lake, table: str, **options: Unpack[CompactionOptions]) -> Compaction:
    """`lake.compact(table, …)`, which explains the options, in tasks of Spark.

    Executors need this package, the table's files and the lake's store. Without a session the work is done in this
    process.
    """
    runner = run_here if spark is None else SparkTasks(spark, f"compacting {table}")
    return lake.compact(table, runner=runner, **options)
