"""The error for a damaged page names the file, however the page is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fuzz import mutations
from tests.fuzz.thrift_places import encoded, places
from tests.integration.test_cli import needle
from tests.lakes import write

import needlepoint
from needlepoint import Lake
from needlepoint.errors import NotParquet


def three_files(tmp_path: Path) -> Path:
    """Write three files; return the path of the second."""
    for number in range(3):
        rows = range(number * 1000, number * 1000 + 1000)
        table = pa.table({"id": rows, "title": [f"title {row * 7919 % 1000}" for row in rows]})
        write(table, tmp_path / "item" / f"p{number}.parquet", compression="zstd")
    return tmp_path / "item" / "p1.parquet"


def damage(path: Path, how: str, *, keep_time: bool) -> None:
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    chunk = pq.read_metadata(path).row_group(0).column(1)
    data = bytearray(path.read_bytes())
    if how == "header":
        data[chunk.data_page_offset : chunk.data_page_offset + 20] = b"\xff" * 20
    else:
        middle = chunk.data_page_offset + chunk.total_compressed_size // 2
        for place in range(middle, middle + 200):
            data[place] ^= 0xA5
    path.write_bytes(data)
    if keep_time:
        os.utime(path, ns=times)


WAYS: dict[str, Callable[[Lake], object]] = {
    "page": lambda lake: [lake.sql(f"SELECT title FROM item WHERE id = {id}") for id in range(1000, 2000, 25)],
    "get": lambda lake: lake.table("item").get(id=range(1000, 2000, 25)),
    "scan": lambda lake: lake.sql("SELECT count(DISTINCT title) FROM item"),
    "filter": lambda lake: lake.sql("SELECT count(*) FROM item WHERE title > 'title 5'"),
    "order": lambda lake: lake.sql("SELECT * FROM item ORDER BY title LIMIT 3"),
    "parts": lambda lake: [
        list(part.batches()) for part in lake.plan_read("item", "title > 'title 5'", ["id", "title"]).parts
    ],
    "delete": lambda lake: lake.delete("item", "title > 'title 5'"),
    "compact": lambda lake: lake.compact("item"),
}


@pytest.mark.covering
@pytest.mark.parametrize("keep_time", [True, False])
@pytest.mark.parametrize("how", ["header", "bytes"])
@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_page_is_told_with_its_file(tmp_path: Path, way: str, how: str, keep_time: bool) -> None:
    path = three_files(tmp_path)
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        lake.create_table("item", tmp_path / "item")
        lake.create_index("item", "id")
        damage(path, how, keep_time=keep_time)
        with pytest.raises(NotParquet) as caught:
            WAYS[way](lake)
        assert str(path) in str(caught.value)
        # Other columns and files still answer.
        assert lake.sql("SELECT count(*) AS n, max(id) AS m FROM item").rows() == [{"n": 3000, "m": 2999}]
        assert lake.sql("SELECT title FROM item WHERE id = 5").rows() == [{"title": f"title {5 * 7919 % 1000}"}]


def test_a_page_that_claims_one_value_more(tmp_path: Path) -> None:
    """Rows of the pages after it would be shifted. DataPageHeader { 1: num_values }."""
    path = tmp_path / "item" / "a.parquet"
    path.parent.mkdir()
    table = pa.table({"id": range(120), "good": [row % 3 == 0 if row % 7 else None for row in range(120)]})
    pq.write_table(table, path, max_rows_per_page=40, write_page_index=True, compression="zstd", use_dictionary=False)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        data = path.read_bytes()
        second = mutations._headers(data, mutations._chunks(data)[1])[1]
        count = next(place for place in places(data, second)[0] if place.path == (5, 1))
        path.write_bytes(data[: count.start] + encoded(41) + data[count.end :])
        lake.sync()
        with pytest.raises(NotParquet, match=r"a\.parquet: column good claims 120 values, its pages have 121"):
            lake.sql("SELECT good FROM item WHERE id IN (41, 81)").to_arrow()


def test_create_index_tells_of_the_file_once(tmp_path: Path) -> None:
    path = three_files(tmp_path)
    root = tmp_path / "lake"
    assert needle("create-table", "item", str(tmp_path / "item"), lake=root).exit_code == 0
    damage(path, "header", keep_time=True)
    done = needle("create-index", "item", "title", lake=root)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {path}: column 'title' cannot be read: ")
    assert done.stdout.startswith("index item_title_key: 2,000 entries of 2 files")
