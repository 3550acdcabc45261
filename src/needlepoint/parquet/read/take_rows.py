"""Rows of decoded columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from needlepoint.parquet.format.page_index import Int64Array


def take(column: pa.ChunkedArray[Any], positions: Int64Array) -> pa.ChunkedArray[Any]:
    """The values at ascending positions, chunk by chunk: joining the chunks first would copy all of them."""
    if column.num_chunks == 1:
        return pa.chunked_array([_take_chunk(column.chunk(0), positions)], type=column.type)
    chunks = column.chunks
    starts = np.cumsum([0, *map(len, chunks)])
    bounds = np.searchsorted(positions, starts)
    taken = [
        _take_chunk(chunk, positions[first:last] - start)
        for chunk, start, first, last in zip(chunks, starts, bounds, bounds[1:], strict=False)
        if first < last
    ]
    return pa.chunked_array(taken, type=column.type)


def _take_chunk(chunk: pa.Array[Any], positions: Int64Array) -> pa.Array[Any]:
    first, count = int(positions[0]), len(positions)
    if int(positions[-1]) - first + 1 != count:
        return _take_scattered(chunk, positions)
    part = chunk.slice(first, count)
    # A slice keeps the whole chunk alive: good for most of a chunk, not for one row of it. Concatenating
    # copies it, at a third of the cost of `take`.
    return part if 2 * count >= len(chunk) else pa.concat_arrays([part])


def _take_scattered(chunk: pa.Array[Any], positions: Int64Array) -> pa.Array[Any]:
    try:
        return chunk.take(pa.array(positions, type=pa.int64()))
    except pa.ArrowNotImplementedError:
        # pyarrow 26 cannot take from string views, alone or inside a struct; it can join slices of them.
        ends = [*(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)]
        starts = [0, *ends[:-1]]
        return pa.concat_arrays(
            [chunk.slice(int(positions[start]), end - start) for start, end in zip(starts, ends, strict=True)]
        )
