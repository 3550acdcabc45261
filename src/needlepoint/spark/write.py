"""Batches into a table: stage with Spark's own writer, then publish all of it or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from needlepoint.errors import UsageError
from needlepoint.spark.finish import finish
from needlepoint.spark.stage import Layout, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from needlepoint.lake import Lake
    from needlepoint.tables.definitions import Batch
    from needlepoint.tables.staged import StagedFile

# The name under which Spark tells the jobs of a stream which one it is: the id in the metadata of its checkpoint.
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
) -> Batch:
    """Append a DataFrame to a table of the lake as one batch, and put its event on the queue.

    The table is made by its first batch, in the lake's directory of the same name. A batch id that was published
    before is not written again. Without `batch` every call is a batch of its own.
    """
    if batch is not None and (done := lake.finished(table, batch)):
        return done
    with _staged(df, lake, table, partition_by, layout, files_per_partition) as (files, staging):
        return lake.publish(table, files, staging, batch)


def batch_writer(
    lake: Lake,
    table: str,
    *,
    partition_by: Sequence[str] | None = None,
    layout: Layout | None = None,
    files_per_partition: int | None = 1,
) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`, where `stream` is not enough: `df.writeStream.foreachBatch(batch_writer(…))`.

    Spark can deliver a micro-batch again with the same number. The id that Spark keeps in the stream's checkpoint and
    the number together are the batch id: a stream that goes on writes each batch once, and one that begins anew, with
    another checkpoint, cannot be taken for it, though its numbers are the same. Empty batches are passed over.
    """

    def write_batch(df: DataFrame, number: int) -> None:
        batch = f"{_query_id(df)}/{number}"
        if lake.finished(table, batch):
            return
        # One action: asking first whether there are rows would compute the batch twice.
        with _staged(df, lake, table, partition_by, layout, files_per_partition) as (files, staging):
            if files:
                lake.publish(table, files, staging, batch)

    return write_batch


def partitions_of(lake: Lake, table: str, partition_by: Sequence[str] | None) -> tuple[str, ...]:
    """By what a table is partitioned, or will be. UsageError when it is by something else than asked for."""
    if table not in lake.registry.table_names():
        return tuple(partition_by or ())
    known = lake.registry.table(table).partitions
    if partition_by is not None and tuple(partition_by) != known:
        raise UsageError(
            f"table '{table}' is partitioned by {', '.join(known) or 'nothing'}, "
            f"not by {', '.join(partition_by) or 'nothing'}.",
            hint="Leave partition_by out: the table knows.",
        )
    return known


@contextlib.contextmanager
def _staged(
    df: DataFrame,
    lake: Lake,
    table: str,
    partition_by: Sequence[str] | None,
    layout: Layout | None,
    files_per_partition: int | None,
) -> Iterator[tuple[list[StagedFile], Path]]:
    """The files of a batch in a directory of their own, of which nothing stays unless it is being published."""
    partitions = partitions_of(lake, table, partition_by)
    layout = layout or Layout()
    # An indexed column is looked up by value: nearly unique, and read one page at a time.
    dictionary_off = dict.fromkeys((*layout.dictionary_off, *_looked_up(lake, table, df.columns)))
    layout = dataclasses.replace(layout, dictionary_off=tuple(dictionary_off))
    staging = lake.staging(table)
    try:
        files = stage(df, staging, partition_by=partitions, layout=layout, files_per_partition=files_per_partition)
        finisher = lake.finisher(table)
        if finisher is not None:
            files = finish(df.sparkSession, files, finisher)
        yield files, staging
    finally:
        if not lake.is_counted_on(table, staging):
            shutil.rmtree(staging, ignore_errors=True)


def _looked_up(lake: Lake, table: str, columns: Sequence[str]) -> list[str]:
    if table not in lake.registry.table_names():
        return []
    indexes = lake.registry.indexes(lake.registry.table(table))
    # Columns of few distinct values, which other kinds are for, are small with a dictionary.
    return [index.column for index in indexes if index.kind in ("key", "text") and index.column in columns]


def _query_id(df: DataFrame) -> str:
    found = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise UsageError(
            "a batch_writer is called by a stream, and here is none.",
            hint="Give it to foreachBatch, or write a single batch with spark.write(…, batch=…).",
        )
    return str(found)
