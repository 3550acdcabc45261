from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.objects.local import LocalFile
from needlepoint.parquet.format import page_index, thrift
from needlepoint.parquet.format.footer import read_footer
from needlepoint.parquet.format.page_index import (
    ColumnIndex,
    OffsetIndex,
    decode_column_index,
    decode_offset_index,
    is_plausible,
)
from needlepoint.parquet.format.thrift import I64, Struct, ThriftError, Writer


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


INT64 = st.integers(-(2**63), 2**63 - 1)
LOCATIONS = st.lists(st.tuples(INT64, st.integers(-(2**31), 2**31 - 1), INT64), min_size=14, max_size=80)


def encoded_locations(locations: list[tuple[int, int, int]], more: bool) -> bytes:
    structs = []
    for offset, size, row in locations:
        writer = Writer()
        writer.integer64(1, offset)
        writer.integer32(2, size)
        writer.integer64(3, row)
        structs.append(writer.finish())
    writer = Writer()
    writer.structs(1, structs)
    if more:
        writer.integers(2, list(range(len(locations))), I64)  # unencoded_byte_array_data_bytes
    return writer.finish()


def slowly(data: bytes) -> list[list[int]] | str:
    """The offset index as a general Thrift reader decodes it."""
    try:
        pages = thrift.parse(data).structs(1)
        getters = ((1, Struct.integer64), (2, Struct.integer32), (3, Struct.integer64))
        return [[integer(page, field) for page in pages] for field, integer in getters]
    except ThriftError:
        return "refused"


def quickly(data: bytes) -> list[list[int]] | str:
    try:
        found = decode_offset_index(data)
    except ThriftError:
        return "refused"
    return [found.offset.tolist(), found.compressed_page_size.tolist(), found.first_row_index.tolist()]


@settings(max_examples=cases(150), deadline=None)
@given(LOCATIONS, st.booleans())
def test_many_pages(locations: list[tuple[int, int, int]], more: bool) -> None:
    data = encoded_locations(locations, more)
    assert quickly(data) == [list(column) for column in zip(*locations, strict=True)]
    assert (page_index._regular_locations(data) is not None) == (len(locations) >= 16)


@settings(max_examples=cases(300), deadline=None)
@given(LOCATIONS, st.booleans(), st.data())
def test_many_pages_with_flipped_bytes(locations: list[tuple[int, int, int]], more: bool, draw: st.DataObject) -> None:
    data = bytearray(encoded_locations(locations, more))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    data = data[: draw.draw(st.integers(len(data) // 2, len(data)))]
    assert quickly(bytes(data)) == slowly(bytes(data))


@settings(max_examples=cases(100), deadline=None)
@given(st.integers(1, 120), st.sampled_from([0, 1, 8, 127, 128, None]), st.booleans(), st.randoms())
def test_many_bounds(count: int, width: int | None, nulls: bool, random: object) -> None:
    def value() -> bytes:
        return random.randbytes(random.randrange(200) if width is None else width)  # type: ignore[attr-defined]

    index = ColumnIndex(
        null_pages=np.array([random.random() < 0.3 for _ in range(count)]),  # type: ignore[attr-defined]
        min_values=tuple(value() for _ in range(count)),
        max_values=tuple(value() for _ in range(count)),
        boundary_order=1,
        null_counts=np.array([random.randrange(2**40) for _ in range(count)]) if nulls else None,  # type: ignore[attr-defined]
    )
    writer = Writer()
    writer.elements(1, 1, [b"\x01" if each else b"\x02" for each in index.null_pages])
    writer.binaries(2, list(index.min_values))
    writer.binaries(3, list(index.max_values))
    writer.integer32(4, 1)
    if index.null_counts is not None:
        writer.integers(5, index.null_counts.tolist(), I64)
    data = writer.finish()
    found = decode_column_index(data)
    assert found.null_pages.tolist() == index.null_pages.tolist()
    assert (found.min_values, found.max_values) == (index.min_values, index.max_values)
    assert (found.null_counts is None) == (index.null_counts is None)
    if found.null_counts is not None and index.null_counts is not None:
        assert found.null_counts.tolist() == index.null_counts.tolist()
    for end in range(0, len(data), max(1, len(data) // 20)):
        with pytest.raises(ThriftError):
            decode_column_index(data[:end])
