"""Pruning of files, row groups, pages and rows: bytes are counted, and no more are read than necessary."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import needlepoint
from needlepoint.cli.needle import main
from needlepoint.lake import Lake
from needlepoint.parquet import build_card
from needlepoint.query.report.explain import TableReport
from needlepoint.query.scan.costs import read_costs
from needlepoint.query.timed_choice import TimedChoice

ROWS, FILES, GROUP, PAGE = 20_000, 4, 5_000, 500
COLUMNS = ["sorted", "shuffled", "title", "price"]


def rows_of(number: int) -> pa.Table:
    chance = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "sorted": ids,
            "shuffled": chance.permutation(ids),
            "title": [f"title {each * 7919 % 99_991:06} of some length" for each in ids.tolist()],
            "price": chance.integers(0, 10_000, ROWS),
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pruning")
    (root / "t").mkdir()
    for number in range(FILES):
        pq.write_table(
            rows_of(number), root / f"t/{number}.parquet", row_group_size=GROUP, max_rows_per_page=PAGE,
            write_batch_size=PAGE, use_dictionary=False, write_page_index=True, compression="zstd",
        )  # fmt: skip
    with needlepoint.open(root) as lake:
        lake.create_table("t")
    return root


@pytest.fixture(scope="module")
def lake(root: Path) -> Iterator[Lake]:
    with needlepoint.open(root, access="pages") as opened:
        yield opened


def ask(lake: Lake, query: str) -> tuple[pa.Table, TableReport]:
    result = lake.sql(query)
    (report,) = result.report.tables
    return result.to_arrow(), report


def page_bytes(root: Path, number: int, columns: list[str], first: int, stop: int) -> int:
    """The bytes of the pages that hold these rows of a file."""
    card = build_card(str(root / f"t/{number}.parquet"))
    total = 0
    for name in columns:
        pages = card.leaf_pages(card.find(name).first_leaf)
        starts = card.pages.first_row[pages]
        stops = np.append(starts[1:], card.num_rows)
        total += int(card.pages.size[pages][(starts < stop) & (stops > first)].sum())
    return total


def test_one_row_of_a_sorted_column_reads_one_page_of_each_column(root: Path, lake: Lake) -> None:
    found, report = ask(lake, "SELECT * FROM t WHERE sorted = 47123")
    assert found.column("title").to_pylist() == [f"title {47123 * 7919 % 99_991:06} of some length"]
    assert (report.files.read, report.row_groups.read, report.pages.read) == (1, 1, len(COLUMNS))
    assert report.bytes.read == page_bytes(root, 2, COLUMNS, 7123, 7124)
    assert report.bytes.read < report.bytes.total / 150


def test_a_range_reads_exactly_its_pages(root: Path, lake: Lake) -> None:
    found, report = ask(lake, "SELECT sorted, price FROM t WHERE sorted >= 21100 AND sorted < 22400")
    assert found.num_rows == 1300
    # In both columns, rows 1100 to 2400 of the file are in the pages that begin at 1000, 1500 and 2000.
    assert report.pages.read == 2 * 3
    assert report.bytes.read == page_bytes(root, 1, ["sorted", "price"], 1100, 2400)


def test_a_range_over_row_groups_and_files(root: Path, lake: Lake) -> None:
    found, report = ask(lake, "SELECT sorted FROM t WHERE sorted BETWEEN 39999 AND 45000")
    assert found.num_rows == 5002
    assert (report.files.read, report.row_groups.read, report.pages.read) == (2, 3, 1 + 10 + 1)


def test_of_the_other_columns_only_pages_with_matching_rows_are_read(root: Path, lake: Lake) -> None:
    """Bounds of `price` rule out nothing, but few of its rows match. The title is read only for these."""
    found, report = ask(lake, "SELECT title FROM t WHERE price = 77 AND sorted < 20000")
    expected = np.flatnonzero(rows_of(0).column("price").to_numpy() == 77)
    assert found.num_rows == len(expected) > 0
    assert report.sifted_files == 1
    first = page_bytes(root, 0, ["sorted", "price"], 0, ROWS)
    rest = sum(page_bytes(root, 0, ["title"], page * PAGE, page * PAGE + 1) for page in {*(expected // PAGE).tolist()})
    assert report.bytes.read == first + rest
    assert rest < page_bytes(root, 0, ["title"], 0, ROWS) / 5


def test_nothing_is_read_where_nothing_can_match(lake: Lake) -> None:
    for where in ["sorted = -1", "sorted > 80000", "title LIKE 'x%'", "sorted IS NULL", "price < 0 OR price > 10000"]:
        found, report = ask(lake, f"SELECT * FROM t WHERE {where}")
        assert found.num_rows == report.bytes.read == report.files.read == 0, where


def test_columns_meet_in_the_rows_that_all_let_through(lake: Lake) -> None:
    found, report = ask(lake, "SELECT sorted FROM t WHERE sorted < 10 OR sorted > 79990")
    assert found.num_rows == 19
    assert report.rows.read <= 2 * PAGE


@pytest.mark.parametrize("way", ["pages", "scan", "auto"])
def test_every_way_gives_the_same_rows(root: Path, way: str) -> None:
    expected = {1: 1, 5_000: 5_000, 60_000: 60_000}
    with needlepoint.open(root, access=way) as lake:
        for count, rows in expected.items():
            found, report = ask(lake, f"SELECT * FROM t WHERE sorted < {count}")
            assert sorted(found.column("sorted").to_pylist()) == list(range(rows))
            assert way != "scan" or report.scanned_files == report.files.read


def test_the_gate_goes_by_its_costs(root: Path, tmp_path: Path) -> None:
    # Rows in four pages of one row group.
    query = "SELECT sum(price) FROM t WHERE sorted IN (25001, 26001, 27001, 28001)"
    free = dict.fromkeys(("file", "page", "request", "byte", "value", "scan", "scan_file", "scan_byte"), 0)
    costs = {
        "pages": {**free, "scan_file": 1},
        "scan": {**free, "page": 1},
        "row groups": {**free, "request": 1, "scan_file": 1e9},
    }
    answers = set()
    for way, given in costs.items():
        (tmp_path / "costs.json").write_text(json.dumps({"local": given}))
        with needlepoint.open(root, costs=str(tmp_path / "costs.json")) as lake:
            found, report = ask(lake, query)
        read_costs.cache_clear()
        answers.add(found.column(0).to_pylist()[0])
        ways = {"pages": report.page_read_files, "scan": report.scanned_files, "row groups": report.row_group_files}
        assert ways == {name: int(name == way) for name in ways}
    assert len(answers) == 1


BAD_COSTS = ["{}", "[1]", "no", '{"page": 1}', '{"local": {"pages": 1}}', '{"local": {"page": -1}}', '{"local": 5}']


@pytest.mark.parametrize("text", BAD_COSTS)
def test_costs_that_cannot_be_read_are_refused(root: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(needlepoint.UsageError, match="calibrate"):
        needlepoint.open(root, costs=str(tmp_path / "bad.json"))
    with pytest.raises(needlepoint.UsageError, match="No such file"):
        needlepoint.open(root, costs=str(tmp_path / "missing.json"))


# Explain


def test_explain_draws_the_access_plan(lake: Lake) -> None:
    text = str(lake.explain("SELECT * FROM t WHERE sorted BETWEEN 47100 AND 47300"))
    assert "2.parquet  ROWS, 500 of 20,000" in text
    assert "row group 1      ░░░░░░░░██░░░░░░░░░░  ROWS 7000-7500" in text
    assert "row groups 2-3   ░░░░░░░░░░░░░░░░░░░░  SKIP" in text
    assert "3 files SKIP" in text
    assert "by_page       1 -> 1 file, 5,000 -> 500 rows" in text


def test_explain_says_one_file_and_one_row(lake: Lake) -> None:
    for query in ("SELECT * FROM t WHERE sorted = 47100", "SELECT * FROM t WHERE sorted < 60000"):
        report = lake.sql(query).report
        assert " 1 file " in str(report)
        assert not re.search(r"\b1 (files|rows|requests|bytes)\b", str(report)), str(report)


def test_explain_analyze_adds_times_and_bytes_as_text_and_json(root: Path) -> None:
    query = "SELECT * FROM t WHERE sorted BETWEEN 47123 AND 47123"
    text = CliRunner().invoke(main, ["explain", "--lake", str(root), "--analyze", query])
    assert text.exit_code == 0
    assert "time: plan" in text.output
    shown = CliRunner().invoke(main, ["explain", "--lake", str(root), "--analyze", "--format", "json", query])
    report = json.loads(shown.output)
    assert set(report["seconds"]) == {"plan", "read", "run"}
    (table,) = report["tables"]
    assert table["pages"] == {"read": 4, "total": FILES * len(COLUMNS) * ROWS // PAGE}
    (file,) = table["plan"]
    assert [group["access"] for group in file["row_groups"]] == ["SKIP", "ROWS", "SKIP", "SKIP"]
    assert file["row_groups"][1]["ranges"] == [[7000, 7500]]


def test_explain_says_that_ranges_are_without_their_end(lake: Lake) -> None:
    assert "  access plan, ranges of rows without their end:\n" in str(lake.explain("SELECT * FROM t WHERE sorted = 7"))


def test_explain_tells_rows_read_by_page_from_rows_that_a_scan_hands_on(root: Path) -> None:
    query = "SELECT sorted FROM t WHERE sorted BETWEEN 47100 AND 47300"
    with needlepoint.open(root, access="pages") as lake:
        _, report = ask(lake, query)
        assert (report.rows.read, report.scanned_rows, report.scan_counted) == (PAGE, 0, False)
        assert "native scan, its filters" not in str(lake.sql(query).report)
    with needlepoint.open(root, access="scan") as lake:
        _, report = ask(lake, query)
        assert (report.rows.read, report.scanned_rows, report.scan_counted) == (201, 201, True)
        assert re.search(r"rows +201 of 80,000, 201 by native scan, its filters applied\n", str(lake.sql(query).report))
        # If the scan did not run, or was not counted for this table alone, all rows of the files are reported.
        (planned,) = lake.explain(query).tables
        assert (planned.scanned_rows, planned.scan_counted) == (ROWS, False)
        assert re.search(r"rows +20,000 of 80,000, 20,000 in files that are scanned\n", str(lake.explain(query)))


def test_an_index_asked_the_same_twice_is_shown_once(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": range(100), "x": range(100)}), tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        lake.create_index("t", "id", name="by_id")
        joined = lake.sql("SELECT l.x FROM t l JOIN t r ON l.id = r.id WHERE l.id = 7")
        assert str(joined.report).count("index by_id") == 1
        other = lake.sql("SELECT l.x FROM t l JOIN t r ON l.x = r.x WHERE l.id = 7 AND r.id IN (7, 8)")
        assert str(other.report).count("index by_id") == 2


def test_explain_says_why_a_file_is_read_whole(root: Path, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        pq.write_table(pa.table({"id": [2]}), tmp_path / "t/b.parquet")
        assert "1 new or changed; run sync to register them" in str(lake.explain("SELECT * FROM t"))


def test_explain_says_what_is_wrong_with_a_file_without_a_card(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"t/{name}.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        table = lake.registry.tables.get("t")
        with lake.registry.database.change() as connection:
            connection.execute("DELETE FROM cards")
        lake.registry.files.note_problems(
            {file.id: "its pages are encrypted" for file in lake.registry.files.of(table)}
        )
        found, _ = ask(lake, "SELECT id FROM t WHERE id = 1")
        assert found.num_rows == 2
        assert "read whole: 2 without a card: its pages are encrypted" in str(lake.explain("SELECT id FROM t"))


# Bloom filters


def test_bloom_filters_of_the_files_rule_out_row_groups(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(
        pa.table({"id": np.random.default_rng(5).permutation(40_000) * 2, "x": np.arange(40_000)}),
        tmp_path / "t/a.parquet", row_group_size=10_000, bloom_filter_options={"id": {"ndv": 10_000, "fpp": 0.0001}},
    )  # fmt: skip
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        found, report = ask(lake, "SELECT x FROM t WHERE id = 30001")  # odd: does not exist, but is within the bounds
        assert (found.num_rows, report.files.read) == (0, 0)
        assert report.bytes.read == report.filter_bytes < 1_000
        again = lake.sql("SELECT x FROM t WHERE id = 30001").report
        assert f", {again.tables[0].filter_bytes:,} of them for bloom filters" in str(again)
        found, report = ask(lake, "SELECT x FROM t WHERE id IN (30000)")
        assert found.num_rows == 1
        (step,) = [step for step in report.steps if step.step == "by_bloom"]
        assert (step.rows_before, step.rows_after) == (40_000, 10_000)
        assert any(use.kind == "bloom" and use.used for use in report.indexes)


# Batches


def test_rows_come_in_the_order_asked(root: Path) -> None:
    with needlepoint.open(root) as lake:
        if not lake.status().tables[0].indexes:
            lake.create_index("t", "shuffled")
        asked = np.random.default_rng(9).integers(0, ROWS * FILES, 3_000).tolist()
        table = lake.table("t")
        found = table.get(shuffled=asked, columns=["shuffled"], in_order=True).to_arrow().column(0).to_pylist()
        assert found == list(dict.fromkeys(asked))
        rows = table.get(shuffled=[7, -1, 3, None, 7], columns=["title"], in_order=True).to_arrow()
        both = table.get(shuffled=[7, 3], columns=["shuffled", "title"]).rows()
        assert rows.column("title").to_pylist() == [
            next(row["title"] for row in both if row["shuffled"] == key) for key in (7, 3)
        ]
        assert rows.column_names == ["title"]


def test_dictionaries_are_decoded_when_they_are_needed_again(tmp_path: Path) -> None:
    """Decoding them costs more than a scan. The second lookup in a file decodes them, the next ones find them."""
    chance = np.random.default_rng(5)
    (tmp_path / "t").mkdir()
    for file in range(3):
        numbers = chance.integers(0, 60_000, 120_000)
        texts = pa.array(chance.integers(0, 60_000, 120_000)).cast(pa.string())
        rows = pa.table({"k": numbers, "v": numbers * 31, "s": texts})
        pq.write_table(rows, tmp_path / f"t/{file}.parquet", row_group_size=60_000)
    (tmp_path / "costs.json").write_text('{"local": {"byte": 10e-9}}')  # of a machine that decodes slowly
    slowly = needlepoint.open(tmp_path, costs=str(tmp_path / "costs.json"))
    with slowly as lake, needlepoint.open(tmp_path, access="scan") as scanning:
        lake.create_table("t")
        lake.create_index("t", "k")
        lake.engine.accesses = TimedChoice(math.inf)  # only estimates choose
        scanned = []
        for number in range(16):
            query = f"SELECT k, v, s FROM t WHERE k = {number * 37} ORDER BY v, s"
            table, report = ask(lake, query)
            assert table.equals(scanning.sql(query).to_arrow())
            scanned.append(report.scanned_files)
        assert scanned[0] > 0 and scanned[-4:] == [0, 0, 0, 0], scanned
        assert lake.engine.caches.dictionaries.hits > 0


def test_dictionaries_without_room_are_not_decoded(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    (tmp_path / "t").mkdir()
    for file in range(3):
        numbers = chance.integers(0, 20_000, 120_000)
        pq.write_table(pa.table({"k": numbers, "v": numbers * 31}), tmp_path / f"t/{file}.parquet")
    (tmp_path / "costs.json").write_text('{"local": {"byte": 10e-9}}')  # of a machine that decodes slowly
    with needlepoint.open(tmp_path, dictionary_bytes=1 << 16, costs=str(tmp_path / "costs.json")) as lake:
        lake.create_table("t")
        lake.create_index("t", "k")
        lake.engine.accesses = TimedChoice(math.inf)  # only estimates choose
        for number in range(4):
            assert ask(lake, f"SELECT k, v FROM t WHERE k = {number * 37} ORDER BY v")[1].scanned_files == 3


@pytest.mark.parametrize("way", ["pages", "scan", "auto"])
def test_many_keys_by_get_and_by_sql(tmp_path: Path, way: str) -> None:
    (tmp_path / "t").mkdir()
    for number in range(FILES):
        table = rows_of(number).rename_columns(["sorted", "the Key", "title", "price"])
        pq.write_table(table, tmp_path / f"t/{number}.parquet", max_rows_per_page=PAGE, write_batch_size=PAGE,
                       use_dictionary=False, write_page_index=True)  # fmt: skip
    wanted = [*range(0, ROWS * FILES, 53), -1, ROWS * FILES, 2**62]
    query = f'SELECT title, price FROM t WHERE "the Key" IN ({", ".join(map(str, wanted))})'
    with needlepoint.open(tmp_path, access="scan") as lake:
        lake.create_table("t")
        lake.create_index("t", "the Key")
        expected = lake.sql(query).to_arrow().sort_by("title")
    assert expected.num_rows == len(wanted) - 3
    with needlepoint.open(tmp_path, access=way) as lake:
        found, report = ask(lake, query)
        assert found.sort_by("title").equals(expected)
        assert way != "pages" or (report.page_read_files, report.scanned_files) == (FILES, 0)
        for keys in (wanted, [*wanted, *wanted[:50]], [*wanted, 2**70, None, 7.5], np.array(wanted), pa.array(wanted)):
            result = lake.table("t").get(**{"the Key": keys}, columns=["title", "price"])
            assert result.to_arrow().sort_by("title").equals(expected)
            tables = result.report.tables
            assert way == "auto" or bool(tables[0].scanned_files) == (way == "scan")
        ordered = lake.table("t").get(**{"the Key": wanted[::-1]}, columns=["the Key"], in_order=True)
        assert ordered.to_arrow().column(0).to_pylist() == wanted[-4::-1]
