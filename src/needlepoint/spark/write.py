"""Batches into a table: stage with Spark's own writer, then publish all of it or nothing."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from needlepoint.errors import UsageError
from needlepoint.spark.finish import finish
from needlepoint.spark.stage import Layout, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
) -> Batch:
    """Append a DataFrame to a table of the lake as one batch, and put its event on the queue.

    The table is made by its first batch, in the lake's directory of the same name. A batch id that was published
    before is not written again. Without `batch` every call is a batch of its own.
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
    staging = lake.staging(table)
    try:
        staged = stage(
            df, staging, partition_by=partition_by or (), layout=layout, files_per_partition=files_per_partition
        )
        finisher = lake.finisher(table)
        if finisher is not None:
            staged = finish(df.sparkSession, staged, finisher)
        return lake.publish(table, staged, staging, batch)
    except BaseException:
        if not lake.is_counted_on(table, staging):
            shutil.rmtree(staging, ignore_errors=True)
        raise


def batch_writer(
    lake: Lake,
    table: str,
    *,
    stream: str,
    partition_by: Sequence[str] | None = None,
    layout: Layout | None = None,
    files_per_partition: int | None = 1,
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
        )

    return write_batch
