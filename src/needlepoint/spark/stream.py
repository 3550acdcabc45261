"""Streams into a table: micro-batches, each published once, whatever happens to the driver.

    Spark     plans batch 7 in the checkpoint ─────────────────────────────────────────► notes that 7 is done
    here                                       ─► stage ─► publish as <query id>/7 ─► index

When a driver dies, the next one gets batch 7 again, and finds its state in the registry. The query id is in the
checkpoint's metadata: it is unique, and lives as long as the checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from needlepoint.errors import NeedlepointError, UsageError
from needlepoint.objects import is_url, sync_file
from needlepoint.spark.errors import translated
from needlepoint.spark.stage import check_columns
from needlepoint.spark.write import batch_writer, partitions_of
from needlepoint.tables import Layout, check_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from needlepoint.lake import Lake

_log = logging.getLogger("needlepoint")


def stream(
    df: DataFrame,
    lake: Lake,
    table: str,
    *,
    name: str | None = None,
    every: str = "6 minutes",
    available_now: bool = False,
    checkpoint: str | Path | None = None,
    partition_by: Sequence[str] | None = None,
    layout: Layout | None = None,
    files_per_partition: int | None = 1,
    staging: str | None = None,
    index: bool = False,
) -> StreamingQuery:
    """Append a streaming DataFrame to a table, a micro-batch `every` so often, and each of them once.

    With `available_now` the stream ends when all present data is written. With `index` the driver indexes what was
    published, otherwise `needle indexer` does. `name` distinguishes streams into one table. `checkpoint` records what
    the stream has read, by default in the lake's store: with the same one a stream continues, with another it starts
    over. `staging` is that of `write`.
    """
    name = check_name("a stream", name or table)
    if not df.isStreaming:
        raise UsageError("the DataFrame is not a stream.", hint="Make it with readStream, or use spark.write.")
    check_columns(df, partitions_of(lake, table, partition_by), layout or Layout())
    if any(query.name == name for query in df.sparkSession.streams.active):
        raise UsageError(f"a stream '{name}' is running.", hint="Stop it first, or give this one another name.")
    place = _located(checkpoint or lake.store / "streams" / check_name("a table", table) / name)
    write_batch = batch_writer(
        lake,
        table,
        partition_by=partition_by,
        layout=layout,
        files_per_partition=files_per_partition,
        staging=staging,
    )

    def publish(batch: DataFrame, number: int) -> None:
        _make_durable(place)
        write_batch(batch, number)
        if index:
            _index(lake, table)

    try:
        writer = df.writeStream.foreachBatch(publish).queryName(name)
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=every)
        return writer.option("checkpointLocation", place).start()
    except Exception as failure:
        raise translated(failure, f"starting stream '{name}'") from failure


def _located(checkpoint: str | Path) -> str:
    """With a scheme, because a cluster's default file system may be another one."""
    given = str(checkpoint)
    return given if is_url(given) else f"file://{Path(given.removeprefix('file:')).absolute()}"


def _make_durable(checkpoint: str) -> None:
    """Spark does not sync its plans to disk. If a power cut removed the plan of a published batch, Spark would plan
    another one under its number, which would count as published."""
    if not checkpoint.startswith("file://"):
        return
    root = Path(checkpoint.removeprefix("file://"))
    planned = [root / "offsets", root / "sources"]
    for path in (root, root / "metadata", *planned, *(path for each in planned for path in each.rglob("*"))):
        with contextlib.suppress(FileNotFoundError):  # Spark removes old files
            sync_file(path)


def _index(lake: Lake, table: str) -> None:
    """The rows are published: a failing index costs time, and does not stop the stream."""
    try:
        if table in lake.registry.tables.names():
            # By the registry first: an event that a dead driver had received stays invisible for a while.
            lake.indexer.catch_up(lake.registry.tables.get(table))
        problems = [handled.problem for handled in lake.follow_events(once=True) if handled.problem]
    except NeedlepointError as error:
        problems = [str(error)]
    for problem in dict.fromkeys(problems):
        _log.warning("%s", problem)
