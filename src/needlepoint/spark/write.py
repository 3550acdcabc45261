"""Batches into a table: stage with Spark's own writer, then publish all of it or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from needlepoint.errors import StoreError, UsageError
from needlepoint.objects import is_url, remove_directory
from needlepoint.spark.finish import finish, mover
from needlepoint.spark.s3a import has_s3a, needs_s3a
from needlepoint.spark.stage import Layout, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from needlepoint.lake import Lake
    from needlepoint.tables.definitions import Batch


def write(
    df: DataFrame,
    lake: Lake,
    table: str,
    *,
    batch: str | None = None,
    partition_by: Sequence[str] | None = None,
    layout: Layout | None = None,
    files_per_partition: int | None = None,
    staging: str | None = None,
) -> Batch:
    """Append a DataFrame to a table of the lake as one batch, and put its event on the queue.

    The table is made by its first batch, in the lake's directory of the same name. A batch id that was published
    before is not written again. Without `batch` every call is a batch of its own.

    Of a table in an object store, the batch is staged in the lake's store, which all executors must reach, and uploaded
    from there (`staging="local"`); or written through s3a into the bucket and copied inside it (`staging="s3a"`, and
    the default on a cluster that has s3a).
    """
    known = {each.name: each for each in lake.registry.tables()}.get(table)
    if known is not None:
        if batch is not None and (done := lake.registry.batches.get(known, batch)) and done.state != "publishing":
            return done
        if partition_by is not None and tuple(partition_by) != known.partitions:
            raise UsageError(
                f"table '{table}' is partitioned by {', '.join(known.partitions) or 'nothing'}, "
                f"not by {', '.join(partition_by) or 'nothing'}.",
                hint="Leave partition_by out: the table knows.",
            )
        partition_by = known.partitions
        # Columns of few distinct values, which other kinds are for, are small with a dictionary.
        looked_up = [index for index in lake.registry.indexes(known) if index.kind in ("key", "text")]
        indexed = tuple(index.column for index in looked_up if index.column in df.columns)
    else:
        indexed = ()
    layout = layout or Layout()
    # An indexed column is looked up by value: nearly unique, and read one page at a time.
    layout = dataclasses.replace(layout, dictionary_off=tuple(dict.fromkeys((*layout.dictionary_off, *indexed))))
    spark = df.sparkSession
    place = _staging(spark, lake, table, staging)
    try:
        staged = stage(
            df, place, partition_by=partition_by or (), layout=layout, files_per_partition=files_per_partition
        )
        finisher = lake.finisher(table)
        if finisher is not None:
            staged = finish(spark, staged, finisher)
        # What lies in the bucket is copied by the bucket; uploads are for all machines there are.
        elsewhere = lake.is_remote(table) and not is_url(place) and not _is_local(spark)
        return lake.publish(table, staged, place, batch, mover=mover(spark) if elsewhere else None)
    except BaseException:
        with contextlib.suppress(StoreError):  # what stays is swept
            if not _begun(lake, table, place):
                remove_directory(place)
        raise


def _staging(spark: SparkSession, lake: Lake, table: str, chosen: str | None) -> str:
    if chosen not in (None, "local", "s3a"):
        raise UsageError(f"staging='{chosen}' is not possible.", hint="It is 'local' or 's3a'.")
    if chosen == "s3a" and not has_s3a(spark):
        raise needs_s3a(spark, "a batch is to be written through s3a")
    if chosen == "s3a" or (chosen is None and lake.is_remote(table) and not _is_local(spark) and has_s3a(spark)):
        return lake.staging_url(table)
    return str(lake.staging(table))


def _is_local(spark: SparkSession) -> bool:
    """Whether all tasks run on this machine."""
    return (spark.conf.get("spark.master", None) or "").partition("[")[0] == "local"


def _begun(lake: Lake, table: str, staging: str) -> bool:
    """Whether the registry counts on these staged files: then they are all there is of the batch."""
    return any(
        found.staging == staging
        for known in lake.registry.tables()
        if known.name == table
        for found in lake.registry.batches.unfinished(known)
    )


def batch_writer(
    lake: Lake,
    table: str,
    *,
    stream: str,
    partition_by: Sequence[str] | None = None,
    layout: Layout | None = None,
    files_per_partition: int | None = 1,
    staging: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`: `df.writeStream.foreachBatch(batch_writer(lake, "product", stream="feed"))`.

    Spark can deliver a micro-batch again with the same number; `stream` and the number together are the batch id, so
    it is written once. `stream` names the query for as long as its checkpoint lives. Empty batches are passed over.
    """

    def write_batch(df: DataFrame, number: int) -> None:
        if df.isEmpty():
            return
        write(
            df,
            lake,
            table,
            batch=f"{stream}/{number}",
            partition_by=partition_by,
            layout=layout,
            files_per_partition=files_per_partition,
            staging=staging,
        )

    return write_batch
