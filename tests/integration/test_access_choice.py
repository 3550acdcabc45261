"""Where estimates do not settle it, the times of earlier queries choose between pages and scans."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint import Lake
from needlepoint.query.scan import access_choice
from needlepoint.query.scan.scan_plan import ScanPlan
from needlepoint.query.timed_choice import TimedChoice

ROWS = 100_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    chance = np.random.default_rng(1)
    rows = {"id": chance.permutation(ROWS), "x": chance.integers(0, 1 << 60, ROWS)}
    (tmp_path / "t").mkdir()
    for number in range(4):
        part = pa.table({name: values[number::4] for name, values in rows.items()})
        pq.write_table(part, tmp_path / f"t/{number}.parquet", 
                       write_page_index=True, max_rows_per_page=1000, use_dictionary=False)  # fmt: skip
    lake = needlepoint.open(tmp_path, refresh=600)
    lake.create_table("t")
    lake.create_index("t", "id")
    return lake


def _query(count: int) -> str:
    return f"SELECT id, x FROM t WHERE id >= 5000 AND id < {5000 + count} ORDER BY id"


def _scan(lake: Lake, query: str) -> ScanPlan:
    return lake.engine.queries.plans.first(query, None).scans["t"]


@pytest.mark.parametrize("by_pages", [True, False])
def test_the_faster_is_chosen(lake: Lake, by_pages: bool) -> None:
    query = next(_query(count) for count in range(20, 3000, 20) if _scan(lake, _query(count)).undecided)
    expected = lake.engine.sql(query, use_indexes=False).rows()
    undecided = _scan(lake, query).undecided
    assert undecided is not None
    for chosen in (undecided.by_pages, not undecided.by_pages) * 2:
        lake.engine.accesses.note(undecided.key, chosen, 0.1 if chosen == by_pages else 0.2)
    assert bool(_scan(lake, query).scanned) == (not by_pages)
    assert lake.sql(query).rows() == expected


def test_queries_note_their_times(lake: Lake) -> None:
    query = next(_query(count) for count in range(20, 3000, 20) if _scan(lake, _query(count)).undecided)
    used = []
    for _ in range(2):
        used.append(bool(_scan(lake, query).scanned))
        lake.sql(query)
    assert used[0] != used[1]


def test_what_estimates_settle_is_not_tried(lake: Lake) -> None:
    assert _scan(lake, "SELECT id, x FROM t WHERE id = 7").undecided is None
    assert _scan(lake, "SELECT id, x FROM t WHERE id >= 0").undecided is None


def test_few_rows_of_several_files_ask_the_index_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    query, asked = "SELECT x FROM t WHERE id IN (5, 77, 4321, 90000, 12345)", []
    expected = sorted(row["x"] for row in lake.engine.sql(query, use_indexes=False).rows())
    store = lake.engine.key_store(lake.registry.indexes.get("t_id_key"), lake.engine.state("t").snapshot)
    find = type(store).find
    monkeypatch.setattr(type(store), "find", lambda self, *given: asked.append(1) or find(self, *given))
    found = lake.sql(query)
    assert sorted(row["x"] for row in found.rows()) == expected
    assert len(asked) == 1
    assert "0 by native scan" in str(found.report)


def test_long_lists_are_looked_up(lake: Lake) -> None:
    query = f"SELECT x FROM t WHERE id IN ({', '.join(map(str, range(0, ROWS, 100)))})"
    expected = sorted(row["x"] for row in lake.engine.sql(query, use_indexes=False).rows())
    for _ in range(3):  # by pages, by scan, and the faster of both
        assert sorted(row["x"] for row in lake.sql(query).rows()) == expected


def test_neighbours_are_not_read_twice(tmp_path: Path) -> None:
    """Of a sorted column, bounds leave pages whose rows all match, but for the ends."""
    rows = 40_000
    texts = {f"text{number}": [f"{number} {each:020}" for each in range(rows)] for number in range(4)}
    (tmp_path / "t").mkdir()
    pq.write_table(
        pa.table({"sorted": np.arange(rows), **texts}), tmp_path / "t/a.parquet",
        write_page_index=True, max_rows_per_page=100, write_batch_size=100, use_dictionary=False, compression="zstd",
    )  # fmt: skip
    with needlepoint.open(tmp_path, access="pages") as lake:
        lake.create_table("t")
        found = lake.sql("SELECT * FROM t WHERE sorted >= 700 AND sorted < 2650")
        assert (len(found), found.report.tables[0].sifted_files) == (1950, 0)


def test_no_index_is_asked_for_rows_that_a_scan_finds_soon(tmp_path: Path) -> None:
    """Any ten rows with a frequent word are among the first thousand."""
    (tmp_path / "t").mkdir()
    for number in range(4):
        texts = [f"{'often' if row % 3 else 'seldom'} {'once' if row == 77 else ''} {row}" for row in range(20_000)]
        pq.write_table(pa.table({"text": texts}), tmp_path / f"t/{number}.parquet", write_page_index=True)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        lake.create_index("t", "text", kind="text")
        for word, limit, used in (("often", " LIMIT 10", False), ("once", " LIMIT 10", True), ("once", "", True)):
            found = lake.sql(f"SELECT text FROM t WHERE text_match(text, '{word}'){limit}")
            assert len(found) == (10 if word == "often" else 4)
            assert all(word in row["text"] for row in found.rows())
            assert found.report.tables[0].indexes[0].used is used


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.id, x FROM t JOIN wanted w ON t.id = w.id ORDER BY t.id",
        "SELECT id, x FROM t WHERE id IN (SELECT id FROM wanted) ORDER BY id",
        "SELECT id, x FROM t ORDER BY id DESC LIMIT 30",
        "SELECT id, x FROM t WHERE x % 2 = 0 ORDER BY id LIMIT 30",
    ],
)
def test_both_ways_are_timed_where_a_scan_reads_all_rows(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Rows that a join or a LIMIT names are not looked up then, but the scan is what was tried."""
    (tmp_path / "wanted").mkdir()
    pq.write_table(pa.table({"id": np.arange(0, ROWS, 4000)}), tmp_path / "wanted/a.parquet")
    lake.create_table("wanted")
    for name, value in (("WORTH_SECONDS", 0.0), ("LITTLE_SECONDS", 0.0), ("NEAR", 1e9)):
        monkeypatch.setattr(access_choice, name, value)
    monkeypatch.setattr(lake.engine, "accesses", TimedChoice(0.0))
    expected = lake.engine.sql(query, use_indexes=False).rows()
    noted, note = [], lake.engine.accesses.note
    monkeypatch.setattr(
        lake.engine.accesses, "note", lambda key, way, _: noted.append(way) or note(key, way, 0.1 + way)
    )
    for _ in range(6):
        assert lake.sql(query).rows() == expected
    assert noted == [True, False, True, False, False, False]
