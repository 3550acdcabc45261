"""Unusual but valid files: wide, narrow, oddly named, mixed."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import long
from tests.unit.parquet.conftest import flat_table, nested_table
from tests.unit.parquet.reading import check_subsets, numbers, same

from needlepoint.errors import NotParquet
from needlepoint.objects.local import LocalFile
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.format.footer import max_levels, read_footer
from needlepoint.parquet.read import page_decoder
from needlepoint.parquet.read.page_reader import read_rows


@pytest.mark.long
@pytest.mark.parametrize("index", [True, *long(False)])
def test_ten_thousand_columns(tmp_path: Path, index: bool) -> None:
    path = str(tmp_path / "wide.parquet")
    table = pa.table({f"column {n}": np.arange(3) + n for n in range(10_000)})
    pq.write_table(table, path, write_page_index=index)
    started = time.process_time()
    card = build_card(path)
    # It takes about a second; much more would mean work that is quadratic in the number of columns.
    assert time.process_time() - started < 6
    found, _ = read_rows(path, card, ["column 9999", "column 5000"], numbers(1))
    assert found.to_pylist() == [{"column 9999": 10_000, "column 5000": 5001}]
    found, _ = read_rows(path, card, table.column_names, numbers(0, 2))
    assert found.equals(table.take([0, 2]))


@pytest.mark.parametrize("make", [flat_table, nested_table])
@pytest.mark.parametrize("index", [True, False])
def test_one_row(tmp_path: Path, make: object, index: bool) -> None:
    path = str(tmp_path / "one.parquet")
    pq.write_table(make(1), path, write_page_index=index)  # type: ignore[operator]
    check_subsets(path)


def test_names_with_dots(tmp_path: Path) -> None:
    path = str(tmp_path / "dots.parquet")
    point = pa.array([{"b": 1, "b.c": 2}, {"b": 3, "b.c": 4}])
    table = pa.table({"a.b": [1, 2], "a": point, "": [5, 6], "a.": ["x", "y"], "é\n": [7, 8]})
    pq.write_table(table, path)
    found, _ = read_rows(path, build_card(path), ["a.b", "a", "", "a.", "é\n"], numbers(1))
    assert found.equals(table.take([1]))


def test_names_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "twice.parquet")
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["x", "y"]), pa.array([3.5, 4.5])], names=["a", "a", "b"])
    pq.write_table(table, path)
    card = FileCard.from_bytes(build_card(path).to_bytes())
    # The first column of the name, as `select` in most engines; the others are read as usual.
    found, _ = read_rows(path, card, ["b", "a"], numbers(1))
    assert found.to_pylist() == [{"b": 4.5, "a": 2}]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_encodings_that_change_within_a_column(tmp_path: Path, version: str) -> None:
    """The writer abandons a dictionary in the middle of a chunk, and row groups differ."""
    path = str(tmp_path / "mixed.parquet")
    random = np.random.default_rng(6)
    texts = [f"common {n % 3}" if n < 800 else random.bytes(6).hex() for n in range(3000)]
    table = pa.table({"text": texts, "number": [n % 7 if n < 900 else n * 977 for n in range(3000)]})
    pq.write_table(
        table, path, dictionary_pagesize_limit=1000, data_page_size=500, write_batch_size=50, row_group_size=1100,
        data_page_version=version,
    )  # fmt: skip
    metadata = pq.read_metadata(path)
    assert "PLAIN" in metadata.row_group(1).column(0).encodings
    check_subsets(path)


def test_levels(tmp_path: Path) -> None:
    path = str(tmp_path / "nested.parquet")
    pq.write_table(nested_table(5), path)
    with LocalFile(path) as file:
        schema = read_footer(file).schema
    found = pq.read_metadata(path).schema
    columns = [found.column(number) for number in range(len(found.names))]
    expected = [(column.max_repetition_level, column.max_definition_level) for column in columns]
    assert list(max_levels(schema)) == expected


def test_what_is_not_understood_by_page_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "whole.parquet")
    table = pa.concat_tables([flat_table(500)] * 2)
    pq.write_table(table, path, row_group_size=300)
    card = build_card(path)

    def refuse(*_: object, **__: object) -> bytes:
        raise pa.ArrowInvalid("not understood")

    monkeypatch.setattr(page_decoder, "assemble", refuse)
    for rows in (numbers(7), numbers(299, 300, 950), np.arange(0, 1000, 3)):
        columns = ["string", "id", "dictionary", "uuid", "string_view"]
        found, stats = read_rows(path, card, columns, rows)
        assert same(found, pq.read_table(path, columns=columns), rows)
        assert stats.row_groups >= 1 and stats.bytes_read > 0
    # A file that pyarrow cannot read either is refused, with the first reason.
    data = bytearray(Path(path).read_bytes())
    data[4:200] = bytes(196)
    Path(path).write_bytes(data)
    with pytest.raises(NotParquet, match="not understood"):
        read_rows(path, build_card(path), ["id"], numbers(0))
