from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.objects import identify
from needlepoint.objects.local import LocalFile
from needlepoint.parquet.card import array_container
from needlepoint.parquet.card.array_container import CardCorrupt
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.card.describe import LONGEST_BOUND, build_card
from needlepoint.parquet.format.footer import Statistics, read_footer
from needlepoint.parquet.read.page_reader import read_rows

Lake = Callable[[str], str]


def test_roundtrip(lake: Lake, any_file: str) -> None:
    card = build_card(lake(any_file))
    data = card.to_bytes()
    again = FileCard.from_bytes(data)
    assert again == card
    assert again.to_bytes() == data
    assert again.arrow_schema.equals(card.arrow_schema, check_metadata=True)
    for mine, theirs in ((again.pages, card.pages), (again.chunks, card.chunks)):
        for name in type(mine).__dataclass_fields__:
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
            assert getattr(mine, name).dtype == np.int64
    assert again.fields == card.fields and again.leaves == card.leaves
    assert card != build_card(lake("flat/default")) or any_file == "flat/default"


def test_what_a_card_says(lake: Lake, any_file: str) -> None:
    path = lake(any_file)
    card = build_card(path)
    metadata = pq.read_metadata(path)
    assert card.identity == identify(path)
    assert card.num_rows == metadata.num_rows
    assert card.arrow_schema.equals(pq.read_schema(path), check_metadata=True)
    assert card.row_group_rows.tolist()[-1] == metadata.num_rows
    assert [field.name for field in card.fields] == card.arrow_schema.names
    total = sum(
        metadata.row_group(group).column(leaf).total_compressed_size
        for group in range(metadata.num_row_groups)
        for leaf in range(metadata.num_columns)
    )
    assert int(card.chunks.size.sum()) == total
    with LocalFile(path) as file:
        footer = read_footer(file)
    for number, group in enumerate(footer.row_groups):
        for leaf, chunk in enumerate(group.columns):
            expected = chunk.statistics or Statistics()
            if expected.min_value is not None or expected.max_value is not None:
                expected = replace(expected, legacy_min=None, legacy_max=None)
            assert card.statistics(leaf, number) == expected
            index = card.chunk_index(leaf, number)
            pages = slice(card.page_starts[index], card.page_starts[index + 1])
            assert (card.pages.size[pages] > 0).all()
            if group.num_rows:
                assert card.pages.first_row[pages][0] == card.row_group_rows[number]
                last = card.pages.offset[pages][-1] + card.pages.size[pages][-1]
                assert last == chunk.end


def test_a_card_from_the_store_reads_rows(lake: Lake) -> None:
    path = lake("nested/tiny_pages")
    card = FileCard.from_bytes(build_card(path).to_bytes())
    found, _ = read_rows(path, card, ["id", "points"], np.array([7, 300]))
    assert found.equals(pq.read_table(path, columns=["id", "points"]).take([7, 300]))


def test_cards_are_small(tmp_path: Path) -> None:
    path = str(tmp_path / "pages.parquet")
    random = np.random.default_rng(0)
    table = pa.table({"a": random.permutation(100_000), "b": random.random(100_000)})
    pq.write_table(table, path, write_page_index=True, max_rows_per_page=100, use_dictionary=False)
    card = build_card(path)
    assert len(card.pages.offset) == 2000
    assert len(card.to_bytes()) < 8000


@settings(max_examples=cases(60), deadline=None)
@given(st.data())
def test_corrupt_cards_are_refused(lake: Lake, data: st.DataObject) -> None:
    good = build_card(lake("flat/row_groups")).to_bytes()
    position = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[position] ^= data.draw(st.integers(1, 255))
    # The checksum does not cover the stored length: a longer one is found when the payload is split.
    with pytest.raises(CardCorrupt):
        FileCard.from_bytes(bytes(bad))
    with pytest.raises(CardCorrupt):
        FileCard.from_bytes(good[:position])


def test_a_valid_container_with_the_wrong_contents() -> None:
    for header in ({}, {"size": 1}):
        with pytest.raises(CardCorrupt):
            FileCard.from_bytes(array_container.pack(header, [], []))
    with pytest.raises(CardCorrupt):
        FileCard.from_bytes(array_container.pack({}, [np.arange(3)] * 19, [b""] * 4))


@settings(max_examples=cases(60), deadline=None)
@given(
    st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), max_size=4),
    st.lists(st.binary(max_size=20), max_size=4),
)
def test_container_roundtrip(arrays: list[list[int]], blobs: list[bytes]) -> None:
    packed = array_container.pack({"a": 1}, [np.array(each, dtype=np.int64) for each in arrays], blobs)
    header, found_arrays, found_blobs = array_container.unpack(packed)
    assert header == {"a": 1}
    assert [each.tolist() for each in found_arrays] == arrays
    assert found_blobs == blobs


def test_long_bounds_are_dropped(tmp_path: Path) -> None:
    path = str(tmp_path / "long.parquet")
    pq.write_table(pa.table({"a": ["x" * (LONGEST_BOUND + 1), "y" * LONGEST_BOUND]}), path)
    statistics = build_card(path).statistics(0, 0)
    assert statistics.min_value is None


def test_an_offset_index_that_cannot_be_right_is_ignored(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    good = Path(lake("flat/rows_per_page")).read_bytes()
    with LocalFile(lake("flat/rows_per_page")) as file:
        chunk = read_footer(file).row_groups[0].columns[0]
    assert chunk.offset_index_offset and chunk.offset_index_length
    for replacement in (b"\0", b"\xff", b"\x05"):
        data = bytearray(good)
        place = slice(chunk.offset_index_offset, chunk.offset_index_offset + chunk.offset_index_length)
        data[place] = replacement * chunk.offset_index_length
        path.write_bytes(data)
        card = build_card(str(path))
        # The page headers give the same pages.
        assert card.page_starts[1] == 20
        found, _ = read_rows(str(path), card, ["id", "string"], np.array([123]))
        assert found.equals(pq.read_table(path, columns=["id", "string"]).take([123]))
