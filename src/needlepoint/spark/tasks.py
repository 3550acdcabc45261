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


def spread(
    spark: SparkSession | None, function: Callable[[Item], Made], items: Sequence[Item]
) -> list[Made | FileChanged]:
    """The function of each item, in order; FileChanged in the place of what could not be made because of it.
    Without a session, here and one after the other."""
    if spark is None or not items:
        return [_made(function, item) for item in items]
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for id, packed in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                made = pickle.dumps(_made(function, pickle.loads(packed)))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([id], pa.int64()), pa.array([made], pa.binary())], ["id", "made"]
                )

    rows = [(id, pickle.dumps(item)) for id, item in enumerate(items)]
    frame = spark.createDataFrame(rows, "id bigint, item binary").repartitionById(len(items), F.col("id").cast("int"))
    found = {
        row.id: pickle.loads(bytes(row.made)) for row in frame.mapInArrow(task, "id bigint, made binary").collect()
    }
    return [found[id] for id in range(len(items))]


def _made(function: Callable[[Item], Made], item: Item) -> Made | FileChanged:
    try:
        return function(item)
    except FileChanged as error:
        return error
