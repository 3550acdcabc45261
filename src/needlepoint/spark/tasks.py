"""Values and files handled in tasks of Spark: rewritten by maintenance, finished before readers see them, uploaded."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from needlepoint.errors import FileChanged
from needlepoint.maintenance import Finisher, attempt
from needlepoint.objects import concurrently, move
from needlepoint.spark.errors import translated
from needlepoint.tables import Mover, StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task costs a twentieth of a second to start; several files a task make up for it.
FILES_PER_TASK = 4

Item = TypeVar("Item")
Made = TypeVar("Made")


class SparkTasks:
    """A TaskRunner of maintenance: each item in a Spark task of its own. `doing` names the work in errors."""

    def __init__(self, session: SparkSession, doing: str) -> None:
        self._session = session
        self._doing = doing

    def __call__(self, function: Callable[[Item], Made], items: Sequence[Item]) -> list[Made | FileChanged]:
        if not items:
            return []
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for id, packed in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    made = pickle.dumps(attempt(function, pickle.loads(packed)))
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([id], pa.int64()), pa.array([made], pa.binary())], ["id", "made"]
                    )

        try:
            rows = [(id, pickle.dumps(item)) for id, item in enumerate(items)]
            frame = self._session.createDataFrame(rows, "id bigint, item binary")
            frame = frame.repartitionById(len(items), F.col("id").cast("int"))
            made = frame.mapInArrow(task, "id bigint, made binary").collect()
        except Exception as failure:
            raise translated(failure, self._doing) from failure
        found = {row.id: pickle.loads(bytes(row.made)) for row in made}
        return [found[id] for id in range(len(items))]


def finish(spark: SparkSession, staged: Sequence[StagedFile], finisher: Finisher) -> list[StagedFile]:
    """Embed indexes into the staged files; returns them with their new sizes."""
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
    """Moves files in tasks, several each. A task that runs again finds its moves done."""

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
