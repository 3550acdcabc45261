"""A result as other libraries and notebooks take it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    rows = pa.table({"id": range(100), "title": [f"<b>&'\"{n}\x1b[2J" for n in range(100)], "none": pa.nulls(100)})
    (tmp_path / "t").mkdir()
    pq.write_table(rows, tmp_path / "t/a.parquet")
    lake = needlepoint.open(tmp_path)
    lake.create_table("t")
    lake.create_index("t", "id")
    return lake


class _Checked(HTMLParser):
    """Fails on tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_rows_are_iterated(lake: Lake) -> None:
    assert [row["id"] for row in lake.sql("SELECT id FROM t WHERE id < 3 ORDER BY id")] == [0, 1, 2]
    assert list(lake.table("t").get({"id": 7}, columns=["id"])) == [{"id": 7}]


def test_libraries_that_read_arrow(lake: Lake) -> None:
    result = lake.sql("SELECT id, title FROM t WHERE id >= 98 ORDER BY id")
    assert pa.table(result).column("id").to_pylist() == [98, 99]
    assert polars.DataFrame(result)["id"].to_list() == [98, 99]
    assert duckdb.sql("SELECT sum(id) FROM result").fetchall() == [(197,)]


def test_a_table_in_a_notebook_is_cut_and_escaped(lake: Lake) -> None:
    page = lake.sql("SELECT * FROM t ORDER BY id")._repr_html_()
    assert _Checked(page).tags.count("tr") == 21
    assert "100 rows, 20 shown" in page
    assert "<b>" not in page and "\x1b" not in page and "&lt;b&gt;" in page
    assert "<i>NULL</i>" in page
    wide = lake.sql("SELECT " + ", ".join(f"{n} AS c{n}" for n in range(50)))._repr_html_()
    assert _Checked(wide).tags.count("th") == 20
    assert "1 row; 30 more columns" in wide
    assert "…" in lake.sql("SELECT repeat('x', 1000) AS long")._repr_html_()
    assert "0 rows" in lake.sql("SELECT id FROM t WHERE id < 0")._repr_html_()


def test_a_report_in_a_notebook_is_a_picture(lake: Lake) -> None:
    for report in (lake.explain("SELECT title FROM t WHERE id = 5"), lake.table("t").get(id=5).report):
        page = report._repr_html_()
        tags = _Checked(page).tags
        assert tags.count("svg") == 2 and tags.count("rect") == 11
        assert re.search(r"rows</text>(<rect[^>]*/>){2}<text[^>]*>1 of 100</text>", page)
    assert "svg" not in _Checked(lake.explain("SELECT 1")._repr_html_()).tags
