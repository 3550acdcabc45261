"""The history records queries without their values, and the advice derived from it has the promised effect."""

from __future__ import annotations

import json
import logging
import math
import shlex
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.cases import long
from tests.lakes import product_lake, products, write

import needlepoint
from needlepoint.advisor import advice, history
from needlepoint.advisor.advice import Advice
from needlepoint.cli import main
from needlepoint.query.timed_choice import TimedChoice

FILES, ROWS = 8, 20_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ids and prices are shuffled over all files; each brand is in few pages, but bounds do not show that."""
    directory = tmp_path_factory.mktemp("files")
    ids = np.random.default_rng(0).permutation(FILES * ROWS)
    for number in range(FILES):
        part = ids[number * ROWS : (number + 1) * ROWS]
        table = pa.table(
            {
                "product_id": part,
                "upc": [f"U{each:09d}" for each in part],
                "brand": [brand(number, row) for row in range(ROWS)],
                "title": [f"title {each % 9973} dairy {each * 7919 % 100_000}" for each in part],
                "price": np.random.default_rng(number).random(ROWS) * 100,
            }
        )
        write(table, directory / f"p{number}.parquet", row_group_size=ROWS)
    return directory


@pytest.fixture
def lake(tmp_path: Path, files: Path) -> needlepoint.Lake:
    shutil.copytree(files, tmp_path / "product")
    opened = needlepoint.open(tmp_path, refresh=600)
    opened.create_table("product")
    opened.engine.accesses = TimedChoice(math.inf)  # only estimates choose
    return opened


def brand(file: int, row: int) -> str:
    return ("another", "zero", f"brand {(row // 400 * 37 + file * 13) % 101}")[row % 3]


def bytes_read(lake: needlepoint.Lake, queries: list[str]) -> float:
    """Bytes per query, on average."""
    return sum(lake.sql(query).report.tables[0].bytes.read for query in queries) / len(queries)


def first(found: needlepoint.Lake, what: str, naming: str) -> Advice:
    return next(each for each in found.advise("product").advice if each.what == what and naming in each.command)


# The history


def test_the_history_has_shapes_and_sums_and_no_values(lake: needlepoint.Lake) -> None:
    for number in (11, 12, 13):
        lake.sql(f"SELECT title FROM product WHERE upc = 'U00000{number:04d}' AND price > 12345.5")
    lake.sql("SELECT title FROM product WHERE product_id IN (4711, 4712, 4713)")
    lake.table("product").get(product_id=4711, columns=["title"])
    asked = {each.shape: each for each in lake.history.shapes(1)}
    both = asked["and", ("eq", "upc"), ("range", "price")]
    assert (both.times, both.columns, both.sums.compared) == (3, ("price", "title", "upc"), 3)
    many, one = asked["in", "product_id"], asked["eq", "product_id"]
    assert [(each.times, each.sums.matched, each.sums.compared) for each in (many, one)] == [(1, 3, 3), (1, 1, 1)]
    assert 0 < many.sums.bytes < 20_000_000
    lake.close()
    stored = b"".join(path.read_bytes() for path in lake.store.glob("history.db*"))
    assert b"product_id" in stored
    for value in (b"4711", b"U0000", b"12345"):
        assert value not in stored


def test_lookups_by_index_are_counted_with_the_index(lake: needlepoint.Lake) -> None:
    name = lake.create_index("product", "product_id")
    lake.create_index("product", "upc")
    for number in range(5):
        assert len(lake.sql(f"SELECT title FROM product WHERE product_id = {number}")) == 1
        lake.table("product").get(product_id=number)
    used = {each.index: each.times for each in lake.history.index_usage(1)}
    assert used == {name: 10, "product_upc_key": 0}
    by_key = [each for each in lake.history.shapes(1) if each.shape == ("eq", "product_id")]
    assert sum(each.sums.matched for each in by_key) == 10
    assert not any(each.sums.scans for each in by_key)


def test_what_a_scan_read_is_what_its_report_says(lake: needlepoint.Lake) -> None:
    queries = [f"SELECT count(*) FROM product WHERE price BETWEEN {n} AND {n + 1}" for n in range(10)]
    read = bytes_read(lake, queries)
    (asked,) = lake.history.shapes(1)
    assert asked.sums.scans == 10
    assert read / 1.1 < asked.sums.bytes / 10 < read * 1.1
    matched = lake.sql("SELECT count(*) AS n FROM product WHERE price < 10").rows()[0]["n"]
    assert 0.5 < asked.sums.matched / matched < 2


def test_rows_that_matched_are_counted_where_pages_hold_others_too(lake: needlepoint.Lake, tmp_path: Path) -> None:
    with needlepoint.open(tmp_path, access="pages") as paging:
        for number in range(10):
            paging.sql(f"SELECT count(*) FROM product WHERE price BETWEEN {number} AND {number + 1}")
        (asked,) = paging.history.shapes(1)
    matched = lake.sql("SELECT count(*) AS n FROM product WHERE price <= 10").rows()[0]["n"]
    assert asked.sums.scans < 10  # where bounds leave most rows, even this setting scans
    assert 0.9 * matched < asked.sums.matched < 1.1 * matched


def test_explaining_verifying_and_asking_without_history_leave_none(lake: needlepoint.Lake, tmp_path: Path) -> None:
    lake.create_index("product", "product_id")
    lake.explain("SELECT title FROM product WHERE product_id = 5")
    lake.verify("product", samples=3)
    with needlepoint.open(tmp_path, history="off") as silent:
        silent.sql("SELECT title FROM product WHERE product_id = 5")
    assert lake.history.shapes(1) == []
    with pytest.raises(needlepoint.UsageError, match="history="):
        needlepoint.open(tmp_path, history="perhaps")


def test_several_processes_add_up_and_old_days_and_rare_shapes_go(
    lake: needlepoint.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST_SHAPES", 2)
    query = "SELECT title FROM product WHERE product_id = 5"
    for _ in range(3):
        with needlepoint.open(tmp_path) as other:
            other.sql(query)
    assert [each.times for each in lake.history.shapes(1)] == [3]
    lake.close()
    with sqlite3.connect(tmp_path / ".needlepoint/history.db") as connection:
        connection.execute("UPDATE asked SET day = day - 31")
    connection.close()
    with needlepoint.open(tmp_path) as other:
        for columns in ("title", "title", "title", "upc", "upc", "price"):
            other.sql(query.replace("title", columns))
        assert sorted(each.times for each in other.history.shapes(1)) == [2, 3]


@pytest.mark.parametrize("harm", ["not a database", "a directory", "locked", "read-only"])
def test_a_history_that_cannot_be_kept_never_harms_a_query(
    lake: needlepoint.Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    path = tmp_path / ".needlepoint/history.db"
    query = "SELECT title FROM product WHERE product_id = 5"
    other = None
    if harm == "not a database":
        path.write_bytes(b"something else " * 1000)
    elif harm == "a directory":
        path.mkdir()
    elif harm == "locked":
        lake.sql(query)
        lake.history.flush()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
    else:
        path.touch()
        path.chmod(0o444)
        path.write_bytes(b"")  # root can write it anyway; then there is no warning
    with caplog.at_level(logging.WARNING, "needlepoint"):
        for _ in range(3):
            assert len(lake.sql(query)) == 1
            started = time.perf_counter()
            lake.history.flush()
            assert time.perf_counter() - started < 2
    assert len(caplog.records) == (0 if harm == "read-only" else 1)
    if other is not None:
        other.close()
    lake.close()


def test_sums_reach_the_database_while_the_lake_stays_open(
    lake: needlepoint.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "FLUSH_SECONDS", 0.05)
    threads = [
        threading.Thread(target=lambda: [lake.table("product").get(product_id=n) for n in range(20)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.06)
    lake.table("product").get(product_id=1)
    with sqlite3.connect(lake.store / "history.db") as connection:
        assert connection.execute("SELECT sum(times) FROM asked").fetchone() == (81,)
    connection.close()


@pytest.mark.long
def test_a_process_that_ends_without_closing_keeps_its_history(lake: needlepoint.Lake) -> None:
    lake.close()
    program = "import sys, needlepoint; needlepoint.open(sys.argv[1]).table('product').get(product_id=4711)"
    subprocess.run([sys.executable, "-c", program, str(lake.root)], check=True, timeout=60)
    with needlepoint.open(lake.root) as again:
        assert [each.shape for each in again.history.shapes(1)] == [("eq", "product_id")]


# Advice


def test_following_the_first_advice_gives_what_it_promises(lake: needlepoint.Lake) -> None:
    queries = [f"SELECT title, price FROM product WHERE upc = 'U{number * 7919:09d}'" for number in range(20)]
    before = bytes_read(lake, queries)
    best = lake.advise("product").advice[0]
    assert best.command == "needle create-index product upc"
    assert (best.what, best.asked, best.confidence) == ("index", 20, "high")
    assert best.bytes_now is not None
    assert best.bytes_after is not None
    assert before / 1.2 < best.bytes_now < before * 1.2
    lake.create_index("product", "upc")
    after = bytes_read(lake, queries)
    assert after / 3 < best.bytes_after < after * 3
    assert after < before / 50
    size = lake.status().tables[0].indexes[0].bytes
    foretold = float(best.costs.removeprefix("about ").split()[0]) * 1e6
    assert size / 1.5 < foretold < size * 1.5
    assert not any("upc" in each.command for each in lake.advise("product").advice)


@pytest.mark.parametrize(
    ("where", "column", "kind"),
    [
        ("brand = 'brand {}'", "brand", "distinct"),
        *long(("title LIKE '%y {}31%'", "title", "text")),
        ("text_match(title, 'title {}')", "title", "text"),
        *long(("price BETWEEN {0} AND {0}.02", "price", "key")),
        ("upc IN ('U00000{0:04d}', 'U00000{0:04d}') AND price > 1", "upc", "key"),
    ],
)
def test_the_kind_that_fits_the_question_keeps_its_promise(
    lake: needlepoint.Lake, where: str, column: str, kind: str
) -> None:
    queries = [f"SELECT title FROM product WHERE {where.format(number)}" for number in range(40, 60)]
    before = bytes_read(lake, queries)
    found = first(lake, "index", column)
    assert found.command.endswith(column if kind == "key" else f"{column} --kind {kind}")
    lake.create_index("product", column, kind)
    after = bytes_read(lake, queries)
    assert found.bytes_after is not None
    assert after < before / 2
    assert after / 3 < found.bytes_after < after * 3


def test_columns_asked_by_ranges_are_to_be_sorted(lake: needlepoint.Lake, tmp_path: Path) -> None:
    queries = [f"SELECT title FROM product WHERE price >= {n} AND price < {n + 2}" for n in range(20)]
    before = bytes_read(lake, queries)
    found = first(lake, "sort", "price")
    assert found.command == "needle compact product --sort-by price"
    assert "bounds of price leave 100% of the files" in found.why
    # Do by hand what compaction does.
    whole = lake.sql("SELECT * FROM product").to_arrow().sort_by("price")
    for number in range(FILES):
        write(whole.slice(number * ROWS, ROWS), tmp_path / "ordered" / f"{number}.parquet", row_group_size=ROWS)
    lake.create_table("ordered")
    after = bytes_read(lake, [query.replace("product", "ordered") for query in queries])
    assert found.bytes_after is not None
    assert after < before / 5
    assert after / 3 < found.bytes_after < after * 3


def test_two_columns_asked_by_ranges_are_to_be_z_ordered(lake: needlepoint.Lake) -> None:
    for number in range(20):
        lake.sql(f"SELECT title FROM product WHERE price BETWEEN {number} AND {number + 1}")
        lake.sql(f"SELECT title FROM product WHERE upc BETWEEN 'U{number * 1000:09d}' AND 'U{number * 1000 + 900:09d}'")
    assert {"needle compact product --zorder price,upc", "needle compact product --zorder upc,price"} & {
        each.command for each in lake.advise("product").advice
    }


def test_without_a_history_the_files_alone_are_gone_by(tmp_path: Path) -> None:
    for number in range(20):
        options = {"write_page_index": False, "max_rows_per_page": 1 << 20, "row_group_size": 1 << 20}
        write(products(number * 30_000, 30_000), tmp_path / "product" / f"{number}.parquet", **options)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product")
        lake.create_index("product", "upc")
        write(products(10**6, 100), tmp_path / "product/new.parquet")
        lake.engine.snapshots.forget()
        advised = lake.advise("product")
    assert advised.queries == 0
    assert {each.command for each in advised.advice} == {
        "needle compact product --target-size 128MB",
        "needle compact product --page-rows 250",
        "needle retrofit product --page-index",
        "needle sync product",
    }
    assert "21 files" in next(each.why for each in advised.advice if "target-size" in each.command)


def test_an_index_that_no_query_uses_is_to_be_dropped(lake: needlepoint.Lake) -> None:
    lake.create_index("product", "product_id")
    lake.create_index("product", "upc")
    lake.sql("SELECT title FROM product WHERE product_id = 5")
    lake.history.flush()
    assert not any(each.what == "drop" for each in lake.advise("product").advice)
    with sqlite3.connect(lake.store / "history.db") as connection:
        connection.execute("UPDATE used SET day = day - ?", (advice.UNUSED_DAYS,))
    connection.close()
    (drop,) = [each for each in lake.advise("product").advice if each.what == "drop"]
    assert drop.command == "needle drop-index product_upc_key"
    assert drop.costs.startswith("frees ")


def test_the_command_says_what_to_do_and_the_commands_it_names_exist(lake: needlepoint.Lake, tmp_path: Path) -> None:
    run = CliRunner()
    assert "no query is known yet" in run.invoke(main, ["advise", "product", "--lake", str(tmp_path)]).stdout
    for number in range(20):
        lake.sql(f"SELECT title, price FROM product WHERE upc = 'U{number * 7919:09d}'")
    lake.close()
    shown = run.invoke(main, ["advise", "product", "--lake", str(tmp_path)])
    assert shown.exit_code == 0
    assert "needle create-index product upc" in shown.stdout
    assert "upc = ? asked 20 times" in shown.stdout
    found = json.loads(run.invoke(main, ["advise", "product", "--json", "--lake", str(tmp_path)]).stdout)
    assert found["queries"] == 20
    command = shlex.split(found["advice"][0]["command"])
    assert run.invoke(main, [*command[1:], "--lake", str(tmp_path)]).exit_code == 0
    unknown = run.invoke(main, ["advise", "nothing", "--lake", str(tmp_path)])
    assert unknown.exit_code == 1


def test_commands_can_be_copied_whatever_the_names_are(tmp_path: Path) -> None:
    """Commands are quoted for a shell, to which a space, a quote or a semicolon has a meaning."""
    key, price = "item's id; true", "list price"
    ids = np.random.default_rng(0).permutation(FILES * ROWS)
    for number in range(FILES):
        part = ids[number * ROWS : (number + 1) * ROWS]
        table = pa.table({key: [f"U{each:09d}" for each in part], price: part * 0.5})
        write(table, tmp_path / "product" / f"p{number}.parquet", row_group_size=ROWS)
    with needlepoint.open(tmp_path, refresh=600) as lake:
        lake.create_table("product")
        for number in range(20):
            lake.sql(f"""SELECT * FROM product WHERE "{key}" = 'U{number * 7919:09d}'""")
            lake.sql(f"""SELECT * FROM product WHERE "{price}" BETWEEN {number} AND {number + 20}""")
        commands = [each.command for each in lake.advise("product").advice]
    made = next(shlex.split(command) for command in commands if "create-index" in command and "item" in command)
    assert made[:4] == ["needle", "create-index", "product", key]
    assert any(["--sort-by", price] == shlex.split(command)[3:5] for command in commands)
    assert CliRunner().invoke(main, [*made[1:], "--lake", str(tmp_path)]).exit_code == 0


def test_a_table_of_one_small_file_needs_nothing(tmp_path: Path) -> None:
    product_lake(tmp_path, files=1, rows=100)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product")
        for number in range(20):
            lake.sql(f"SELECT title FROM product WHERE product_id = {number}")
        assert lake.advise("product").advice == ()
