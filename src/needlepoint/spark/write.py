"""Batches into a table: stage with Spark's own writer, then publish all of it or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from needlepoint.errors import StoreError, UsageError
from needlepoint.objects import is_url, remove_directory
from needlepoint.spark.s3a import has_s3a, needs_s3a
from needlepoint.spark.stage import stage
from needlepoint.spark.tasks import finish, mover
from needlepoint.tables import Layout, lookup_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from needlepoint.lake import Lake
    from needlepoint.tables import Batch, Mover, StagedFile

# The local property with the id of a stream, which is in the metadata of its checkpoint.
_QUERY_ID = "sql.streaming.queryId"


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

    The first batch creates the table, in the lake's directory of the same name. A batch id that was published before is
    not written again. Without `batch` every call is a batch of its own.

    The batch of a table in an object store is staged in the lake's store, which all executors must reach, and uploaded
    from there (`staging="local"`); or written through s3a into the bucket and copied inside it (`staging="s3a"`, and
    the default on a cluster that has s3a).
    """
    if batch is not None and (done := lake.writer.finished(table, batch)):
        return done
    place = _staging(df.sparkSession, lake, table, staging)
    with _staged(df, lake, table, place, partition_by, layout, files_per_partition) as files:
        return lake.writer.publish(table, files, place, batch, mover=_mover(df.sparkSession, lake, table, place))


def batch_writer(
    lake: Lake,
    table: str,
    *,
    partition_by: Sequence[str] | None = None,
    layout: Layout | None = None,
    files_per_partition: int | None = 1,
    staging: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`, where `stream` is not enough: `df.writeStream.foreachBatch(batch_writer(…))`.

    Spark can deliver a micro-batch again with the same number. The id in the stream's checkpoint and the number
    together are the batch id: a stream that is restarted writes each batch once, and a new stream with another
    checkpoint has other batch ids, though its numbers are the same. Empty batches are skipped.
    """

    def write_batch(df: DataFrame, number: int) -> None:
        batch = f"{_query_id(df)}/{number}"
        if lake.writer.finished(table, batch):
            return
        # One action: a check for rows first would compute the batch twice.
        place = _staging(df.sparkSession, lake, table, staging)
        with _staged(df, lake, table, place, partition_by, layout, files_per_partition) as files:
            if files:
                lake.writer.publish(table, files, place, batch, mover=_mover(df.sparkSession, lake, table, place))

    return write_batch


def partitions_of(lake: Lake, table: str, partition_by: Sequence[str] | None) -> tuple[str, ...]:
    """The partition columns of a table that exists or will. UsageError when the table has others than asked for."""
    if table not in lake.registry.tables.names():
        return tuple(partition_by or ())
    known = lake.registry.tables.get(table).partitions
    if partition_by is not None and tuple(partition_by) != known:
        raise UsageError(
            f"table '{table}' is partitioned by {', '.join(known) or 'nothing'}, "
            f"not by {', '.join(partition_by) or 'nothing'}.",
            hint="Leave partition_by out: the table has its own.",
        )
    return known


@contextlib.contextmanager
def _staged(
    df: DataFrame,
    lake: Lake,
    table: str,
    place: str,
    partition_by: Sequence[str] | None,
    layout: Layout | None,
    files_per_partition: int | None,
) -> Iterator[list[StagedFile]]:
    """The staged files of a batch; they are removed afterwards, unless a batch refers to them."""
    partitions = partitions_of(lake, table, partition_by)
    layout = layout or Layout()
    dictionary_off = dict.fromkeys((*layout.dictionary_off, *_looked_up(lake, table, df.columns)))
    layout = dataclasses.replace(layout, dictionary_off=tuple(dictionary_off))
    try:
        files = stage(df, place, partition_by=partitions, layout=layout, files_per_partition=files_per_partition)
        finisher = lake.writer.finisher(table)
        if finisher is not None:
            files = finish(df.sparkSession, files, finisher)
        yield files
    finally:
        with contextlib.suppress(StoreError):  # a sweep removes what stays
            if not lake.writer.is_pending(table, place):
                remove_directory(place)


def _staging(spark: SparkSession, lake: Lake, table: str, chosen: str | None) -> str:
    """The place for a batch: a directory, or in the bucket of the table."""
    if chosen not in (None, "local", "s3a"):
        raise UsageError(f"staging='{chosen}' is not possible.", hint="It is 'local' or 's3a'.")
    if chosen == "s3a" and not has_s3a(spark):
        raise needs_s3a(spark, "a batch is to be written through s3a")
    if chosen == "s3a" or (chosen is None and lake.writer.is_remote(table) and not _is_local(spark) and has_s3a(spark)):
        return lake.writer.staging_url(table)
    return str(lake.writer.staging(table))


def _mover(spark: SparkSession, lake: Lake, table: str, place: str) -> Mover | None:
    """Objects are copied inside the bucket; uploads run in tasks on all machines."""
    return mover(spark) if lake.writer.is_remote(table) and not is_url(place) and not _is_local(spark) else None


def _is_local(spark: SparkSession) -> bool:
    """Whether all tasks run on this machine."""
    return (spark.conf.get("spark.master", None) or "").partition("[")[0] == "local"


def _looked_up(lake: Lake, table: str, columns: Sequence[str]) -> list[str]:
    if table not in lake.registry.tables.names():
        return []
    known = lookup_columns(lake.registry.indexes.of(lake.registry.tables.get(table)))
    return [name for name in known if name in columns]


def _query_id(df: DataFrame) -> str:
    found = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise UsageError(
            "a batch_writer must be called by a stream.",
            hint="Give it to foreachBatch, or write a single batch with spark.write(…, batch=…).",
        )
    return str(found)
