from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from needlepoint.objects import LocalFile
from needlepoint.parquet.footer import read_footer
from needlepoint.parquet.page_index import (
    OffsetIndex,
    decode_column_index,
    decode_offset_index,
    is_plausible,
)
from needlepoint.parquet.thrift import ThriftError, Writer


def test_both_indexes(tmp_path: Path) -> None:
    path = str(tmp_path / "file.parquet")
    values = pa.array([*range(10), *[None] * 10, *range(20, 25)], pa.int32())
    pq.write_table(
        pa.table({"a": values}), path, write_page_index=True, max_rows_per_page=10, write_batch_size=5,
        use_dictionary=False,
    )  # fmt: skip
    with LocalFile(path) as file:
        chunk = read_footer(file).row_groups[0].columns[0]
        assert chunk.offset_index_offset and chunk.offset_index_length
        assert chunk.column_index_offset and chunk.column_index_length
        offsets = decode_offset_index(file.read(chunk.offset_index_offset, chunk.offset_index_length))
        bounds = decode_column_index(file.read(chunk.column_index_offset, chunk.column_index_length))
    assert offsets.first_row_index.tolist() == [0, 10, 20]
    assert offsets.offset[0] == chunk.data_page_offset
    assert offsets.compressed_page_size.sum() == chunk.total_compressed_size
    assert bounds.null_pages.tolist() == [False, True, False]
    assert bounds.null_counts is not None and bounds.null_counts.tolist() == [0, 10, 0]
    assert [int.from_bytes(bounds.min_values[n], "little") for n in (0, 2)] == [0, 20]
    assert [int.from_bytes(bounds.max_values[n], "little") for n in (0, 2)] == [9, 24]
    assert bounds.boundary_order == 1


def index(offset: list[int], size: list[int], first_row: list[int]) -> OffsetIndex:
    return OffsetIndex(*(np.array(values, dtype=np.int64) for values in (offset, size, first_row)))


@pytest.mark.parametrize(
    ("offset", "size", "first_row", "plausible"),
    [
        ([10, 20], [10, 5], [0, 50], True),
        ([10, 25], [10, 5], [0, 50], True),
        ([], [], [], False),
        ([10, 20], [10, 5], [1, 50], False),
        ([10, 20], [10, 5], [0, 100], False),
        ([10, 20], [10, 5], [0, 0], False),
        ([10, 19], [10, 5], [0, 50], False),
        ([9, 20], [10, 5], [0, 50], False),
        ([10, 20], [10, 50], [0, 50], False),
        ([10, 20], [10, 0], [0, 50], False),
        ([10, 2**62], [10, 2**62], [0, 50], False),
        ([20, 10], [5, 10], [0, 50], False),
    ],
)
def test_plausible(offset: list[int], size: list[int], first_row: list[int], plausible: bool) -> None:
    assert is_plausible(index(offset, size, first_row), num_rows=100, start=10, end=30) is plausible


def test_lists_of_different_lengths() -> None:
    writer = Writer()
    writer.elements(1, 1, [b"\x01", b"\x02"])
    writer.binaries(2, [b"a", b"b"])
    writer.binaries(3, [b"a"])
    writer.integer32(4, 0)
    with pytest.raises(ThriftError, match="differ in length"):
        decode_column_index(writer.finish())


def test_an_empty_offset_index() -> None:
    assert len(decode_offset_index(b"\0").offset) == 0
