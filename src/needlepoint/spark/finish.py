"""What is done to staged files in Spark tasks: what is to be embedded in them is, before anyone sees them; and they are
uploaded from wherever the tasks run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from needlepoint.objects import concurrently, move
from needlepoint.spark.failures import translated
from needlepoint.tables.publishing import Mover
from needlepoint.tables.staged_file import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task costs a twentieth of a second to begin; several files a task make up for it.
FILES_PER_TASK = 4

Finisher = Callable[[str], int]
"""Finishes the file at a path and returns its size; picklable, and run where the files can be reached."""


def finish(spark: SparkSession, staged: Sequence[StagedFile], finisher: Finisher) -> list[StagedFile]:
    """The staged files, finished, with the sizes they have then."""
    if not staged:
        return []

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            paths = batch.column(0).to_pylist()
            sizes = [finisher(path) for path in paths]
            yield pa.RecordBatch.from_arrays([pa.array(paths), pa.array(sizes, pa.int64())], ["path", "size"])

    tasks = -(-len(staged) // FILES_PER_TASK)
    paths = spark.createDataFrame([(file.path,) for file in staged], "path string").repartition(tasks)
    found = {row.path: row.size for row in paths.mapInArrow(task, "path string, size bigint").collect()}
    return [dataclasses.replace(file, size=found[file.path]) for file in staged]


def mover(spark: SparkSession) -> Mover:
    """Moves files in tasks, each some of them. A task that is run again finds done what was done."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            concurrently(lambda pair: move(*pair), zip(*(column.to_pylist() for column in batch.columns), strict=True))
        yield from ()

    def move_all(pairs: Sequence[tuple[str, str]]) -> None:
        if not pairs:
            return
        tasks = -(-len(pairs) // FILES_PER_TASK)
        frame = spark.createDataFrame(list(pairs), "source string, target string").repartition(tasks)
        try:
            frame.mapInArrow(task, "source string").collect()
        except Exception as failure:
            raise translated(failure, "moving files") from failure

    return move_all
