"""Values that can be pickled, each handled by a Spark task of its own."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from needlepoint.errors import FileChanged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Made = TypeVar("Made")


def spread(spark: SparkSession, function: Callable[[Item], Made], items: Sequence[Item]) -> list[Made | FileChanged]:
    """The function of each item, in order; FileChanged in the place of what could not be made because of it."""
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    if not items:
        return []

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for id, packed in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                try:
                    made: object = function(pickle.loads(packed))
                except FileChanged as error:
                    made = (error.path, error.message)
                    id = -1 - id
                yield pa.RecordBatch.from_arrays(
                    [pa.array([id], pa.int64()), pa.array([pickle.dumps(made)], pa.binary())], ["id", "made"]
                )

    rows = [(id, pickle.dumps(item)) for id, item in enumerate(items)]
    frame = spark.createDataFrame(rows, "id bigint, item binary").repartitionById(len(items), F.col("id").cast("int"))
    found: dict[int, Made | FileChanged] = {}
    for row in frame.mapInArrow(task, "id bigint, made binary").collect():
        value = pickle.loads(bytes(row.made))
        if row.id < 0:
            found[-1 - row.id] = FileChanged(value[0], "changed while it was read")
        else:
            found[row.id] = value
    return [found[id] for id in range(len(items))]
