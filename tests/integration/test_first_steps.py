"""What a new user tries, and the messages for what does not work."""

from __future__ import annotations

import datetime
import json
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import long
from tests.integration.test_cli import ROWS, console_script, lake, needle, refused, run, write_items
from tests.lakes import products, staged

import needlepoint
from needlepoint.cli.needle import _show
from needlepoint.errors import NotParquet, UsageError

__all__ = ["lake"]  # a fixture


def break_a_table(root: Path, how: str) -> None:
    """Between two good tables, each with a file that no sync knows."""
    with needlepoint.open(root) as lake:
        for name in ("aa", "bb", "cc"):
            write_items(root / name / "0.parquet", 0, 10)
            lake.create_table(name)
            write_items(root / name / "1.parquet", 10, 10)
    if how == "is gone":
        shutil.rmtree(root / "bb")
    else:
        write_items(root / "bb" / "p=1" / "0.parquet", 20, 10)


@pytest.mark.parametrize("how", ["is gone", "has a partition too many"])
def test_one_broken_table_stops_no_other(tmp_path: Path, how: str) -> None:
    break_a_table(tmp_path, how)
    shown = needle("status", lake=tmp_path)
    assert shown.exit_code == 0
    assert {"aa", "cc", "bb:"} <= set(shown.stdout.split())
    found = json.loads(needle("status", "--format", "json", lake=tmp_path).stdout)
    assert [bool(table["problem"]) for table in found["tables"]] == [False, True, False]
    synced = needle("sync", lake=tmp_path)
    assert synced.exit_code == 1
    assert "aa: 1 added" in synced.stdout and "cc: 1 added" in synced.stdout
    (line,) = synced.stderr.splitlines()
    assert line.startswith("error: table 'bb': ")
    verified = needle("verify", lake=tmp_path)
    assert (verified.exit_code, verified.stderr.count("\n")) == (1, 1)
    assert "aa: " in verified.stdout and "cc: " in verified.stdout
    for query in ("SHOW TABLES", "SELECT table_name FROM information_schema.tables", "DESCRIBE aa", "SHOW INDEXES"):
        assert needle("sql", query, lake=tmp_path).exit_code == 0, query
    refused(needle("sql", "SELECT count(*) FROM bb", lake=tmp_path), "bb")
    refused(needle("sync", "bb", lake=tmp_path), "bb")


# EXPLAIN


def test_explain_in_sql_gives_our_report(lake: Path) -> None:
    query = "SELECT title FROM item WHERE id = 1234"
    shown = needle("sql", f"EXPLAIN {query}", lake=lake).stdout
    assert shown == needle("explain", query, lake=lake).stdout
    assert "index item_id_key (key): used" in shown
    ran = needle("sql", f"EXPLAIN ANALYZE {query};", lake=lake).stdout
    assert "index item_id_key (key): used" in ran and "time: plan " in ran
    assert needle("explain", f"EXPLAIN {query}", lake=lake).stdout == shown


def test_explain_in_sql_is_rows_in_python_and_other_formats(lake: Path) -> None:
    query = "EXPLAIN SELECT title FROM item WHERE id = $a"
    with needlepoint.open(lake) as opened:
        result = opened.sql(query, {"a": 1234})
        assert result.to_arrow().column_names == ["plan"]
        assert "\n".join(row["plan"] for row in result.rows()) == str(result.report)
        assert not result.report.executed
        assert opened.sql(query.replace("EXPLAIN", "EXPLAIN ANALYZE"), {"a": 1234}).report.executed
    rows = json.loads(needle("sql", "--format", "json", "EXPLAIN SELECT 1", lake=lake).stdout)
    assert rows == [{"plan": "no table is read"}]


def test_explain_verbose_is_the_engine_s_own(lake: Path) -> None:
    assert "physical_plan" in needle("sql", "EXPLAIN VERBOSE SELECT title FROM item", lake=lake).stdout


# Tables by path, and SQL that writes


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM 'x/y/*.parquet'", ["'x/y/*.parquet' is a path", "`needle create-table NAME x/y`"]),
        ("SELECT * FROM 'x/y/year=*/*.parquet'", ["`needle create-table NAME x/y`"]),
        ('SELECT * FROM "x/a.parquet"', ["`needle create-table NAME x`"]),
        ("SELECT * FROM 'a b/c.parquet'", ["`needle create-table NAME 'a b'`"]),
        ("SELECT * FROM 's3://bucket/x/'", ["`needle create-table NAME s3://bucket/x`"]),
        ("SELECT * FROM 'feed.csv'", ["`needle ingest NAME feed.csv`"]),
        ("SELECT * FROM read_parquet('x/*.parquet')", ["`needle create-table NAME DIRECTORY`"]),
        ("SELECT * FROM main.item", ["unknown table 'main.item'", "write item"]),
        ("DELETE FROM item WHERE id = 5", ["`needle delete item --where CONDITION`"]),
        ("DROP TABLE item", ["`needle drop-table item`"]),
        ("INSERT INTO item VALUES (1)", ["`needle ingest item SOURCE`"]),
        ("UPDATE item SET id = 5", ["`needle delete item --where CONDITION`"]),
        ('SELECT "Title" FROM item', ["unknown column 'Title' at line 1, column 9. Its name is title."]),
    ],
)
def test_sql_that_is_not_for_here_says_what_is(lake: Path, query: str, words: list[str]) -> None:
    refused(needle("sql", query, lake=lake), *words)
    refused(needle("explain", query, lake=lake), *words)


# A file or a pattern instead of a directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for number in range(3):
        write_items(tmp_path / "data" / f"part-{number}.parquet", number * 10, 10)
    return tmp_path / "data"


def test_create_table_of_one_file_names_the_directory(data: Path, tmp_path: Path) -> None:
    file = data / "part-0.parquet"
    words = (f"{file} is one file", f"`needle create-table item {data}`")
    refused(needle("create-table", "item", str(file), lake=tmp_path / "lake"), *words)
    assert needle("create-table", "item", str(data), lake=tmp_path / "lake").exit_code == 0


@pytest.mark.parametrize("pattern", ["*.parquet", "part-?.parquet", "**/*.parquet"])
def test_create_table_of_a_pattern_that_means_the_directory(data: Path, tmp_path: Path, pattern: str) -> None:
    done = needle("create-table", "item", f"{data}/{pattern}", lake=tmp_path / "lake")
    assert done.stdout == "table item: 3 files, 30 rows\n"
    with needlepoint.open(tmp_path / "lake") as opened:
        assert opened.registry.tables.get("item").location == str(data)


def test_create_table_of_a_pattern_of_partitions(tmp_path: Path) -> None:
    for year in (2023, 2024):
        write_items(tmp_path / "data" / f"year={year}" / "a.parquet", year, 10)
    done = needle("create-table", "item", f"{tmp_path}/data/year=*/*.parquet", lake=tmp_path / "lake")
    assert done.stdout == "table item: 2 files, 20 rows, partitioned by year\n"


def test_create_table_of_some_files_of_a_directory(data: Path, tmp_path: Path) -> None:
    words = (f"2 of 3 Parquet files in {data}", f"`needle create-table item {data}` takes all")
    root = tmp_path / "lake"
    refused(needle("create-table", "item", f"{data}/part-[01].parquet", lake=root), *words)
    some = [str(data / f"part-{number}.parquet") for number in range(2)]
    refused(needle("create-table", "item", *some, lake=root), *words)
    refused(needle("create-table", "item", f"{data}/nope*.parquet", lake=root), "matches. Name the directory")
    refused(
        needle("create-table", "item", "s3://bucket/x/*.parquet", lake=root), "`needle create-table item s3://bucket/x`"
    )


def test_create_table_of_a_pattern_that_the_shell_expanded(data: Path, tmp_path: Path) -> None:
    every = sorted(map(str, data.iterdir()))
    assert needle("create-table", "item", *every, lake=tmp_path / "lake").stdout == "table item: 3 files, 30 rows\n"
    assert needle("create-table", "two", "one", "two", lake=tmp_path / "lake").exit_code == 2


def test_a_directory_named_like_a_file_is_a_directory(tmp_path: Path) -> None:
    write_items(tmp_path / "item.parquet" / "a[1].parquet", 0, 10)
    assert needle("create-table", "item", str(tmp_path / "item.parquet"), lake=tmp_path / "lake").exit_code == 0


# Confirmation before something is deleted


def rows(root: Path) -> int:
    return int(
        json.loads(needle("sql", "--format", "json", "SELECT count(*) AS n FROM item", lake=root).stdout)[0]["n"]
    )


def test_delete_without_a_terminal_says_so(lake: Path) -> None:
    command = ("delete", "item", "--where", "id = 5")
    done = needle(*command, lake=lake)
    assert done.exit_code == 1 and "1 row" in done.stdout
    assert done.stderr.startswith("error: there is no terminal to ask on") and "--yes" in done.stderr
    process = run("--lake", str(lake), *command, stdin=subprocess.DEVNULL)
    assert process.returncode == 1 and b"--yes" in process.stderr
    assert rows(lake) == ROWS
    assert needle(*command, lake=lake, stdin="n\n").exit_code == 1
    assert rows(lake) == ROWS
    assert needle(*command, lake=lake, stdin="y\n").exit_code == 0
    assert rows(lake) == ROWS - 1


def test_compact_asks_before_it_replaces_files_of_others(lake: Path, tmp_path: Path) -> None:
    write_items(tmp_path / "data" / "item" / "shop=0" / "more.parquet", 3000, 10)
    files = sorted((tmp_path / "data").rglob("*.parquet"))
    done = needle("compact", "item", lake=lake)
    assert done.exit_code == 1 and "--yes" in done.stderr
    assert "2 files not written by Needlepoint would be deleted afterwards: shop=0/more.parquet" in done.stdout
    assert needle("compact", "item", lake=lake, stdin="no\n").exit_code == 1
    assert sorted((tmp_path / "data").rglob("*.parquet")) == files
    assert needle("compact", "item", lake=lake, stdin="y\n").exit_code == 0
    assert len(list((tmp_path / "data").rglob("*.parquet"))) == 3
    assert rows(lake) == ROWS + 10


def test_compact_does_not_ask_about_its_own_files(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with needlepoint.open(root) as opened:
        for number in range(3):
            staging = opened.writer.staging("item")
            opened.publish("item", staged(staging, {"a.parquet": products(number * 10, 10)}), staging)
    assert needle("compact", "item", lake=root).stdout.startswith("item: 3 files became 1")
    assert rows(root) == 30


# Indexes


@pytest.mark.parametrize("option", [(), ("--from-data",)])
def test_rebuild_says_how_much_it_built(lake: Path, option: tuple[str, ...]) -> None:
    assert needle("rebuild", "item", *option, lake=lake).stdout.startswith("item: 3 files indexed again in ")
    assert needle("verify", lake=lake).exit_code == 0


@pytest.mark.long
def test_verify_says_once_what_one_index_lacks(lake: Path) -> None:
    """The registry says that two indexes cover all files, but they have no entries."""
    assert needle("create-index", "item", "title", "--no-build", lake=lake).exit_code == 0
    assert needle("drop-index", "item_id_key", lake=lake).exit_code == 0
    assert needle("create-index", "item", "id", "--name", "other", "--no-build", lake=lake).exit_code == 0
    with sqlite3.connect(lake / ".needlepoint" / "registry.db") as connection:
        connection.execute("INSERT INTO indexed SELECT files.id, indexes.id, 1000 FROM files, indexes")
        connection.execute("UPDATE sequence SET value = value + 1")
    connection.close()
    done = needle("verify", lake=lake)
    assert done.exit_code == 1 and "40 questions to 2 indexes" in done.stdout
    first, second, hint = done.stderr.splitlines()
    assert first.startswith(
        "error: index item_title_key (key): 20 of 20 answers differ from a scan's: 0 rows for title = "
    )
    assert second.startswith("error: index other (key): 20 of 20 answers differ") and "a scan finds 1" in second
    assert "`needle repair item`" in hint
    assert len(json.loads(needle("verify", "--format", "json", lake=lake).stdout)[0]["checks"]) == 40
    assert needle("rebuild", "item", "--from-data", lake=lake).exit_code == 0
    assert needle("verify", lake=lake).exit_code == 0


# Files that are written


@pytest.mark.long
@pytest.mark.parametrize("format", ["csv", *long("json", "arrow", "parquet")])
def test_output_that_does_not_fit_leaves_nothing(lake: Path, tmp_path: Path, format: str) -> None:
    """A limit on the file size simulates a full disk."""
    directory = tmp_path / "out"
    directory.mkdir()
    target = directory / f"x.{format}"
    query = (
        "SELECT id, sha512(title || repeat('x', id)) AS h FROM item"
        + " UNION ALL SELECT id, sha512(title) FROM item" * 8
    )
    command = ("--lake", str(lake), "sql", "--output", str(target), query)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    for content in (None, b"what was there"):
        if content is not None:
            target.write_bytes(content)
        failed = run(*command, preexec_fn=limit)
        assert failed.returncode == 1 and b"cannot be written: File too large" in failed.stderr, failed.stderr
        assert [path.name for path in directory.iterdir()] == ([] if content is None else [target.name])
        assert content is None or target.read_bytes() == content
    target.chmod(0o640)
    assert run(*command).returncode == 0
    assert target.stat().st_size > 400_000 and target.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in directory.iterdir()] == [target.name]


def test_output_into_a_device_or_through_a_link(lake: Path, tmp_path: Path) -> None:
    command = ("sql", "SELECT id FROM item", "--format", "csv", "--output")
    assert needle(*command, "/dev/null", lake=lake).exit_code == 0
    assert Path("/dev/null").is_char_device()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    assert needle(*command, str(tmp_path / "link.csv"), lake=lake).exit_code == 0
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "real.csv").read_text().count("\n") == ROWS + 1


# Interrupts


@pytest.mark.long
def test_an_interrupted_create_index_says_what_it_leaves(lake: Path) -> None:
    command = [*console_script(), "--lake", str(lake), "create-index", "item", "title", "--kind", "distinct", "--embed"]
    with needlepoint.open(lake) as opened:
        # Embedding waits for the lock of a process that removes files from the table.
        with opened.registry.locks.exclusive(opened.registry.tables.get("item")):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while len(opened.registry.indexes.all()) < 2 and process.poll() is None:
                time.sleep(0.05)
            time.sleep(1.0)
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.send_signal(signal.SIGINT)  # the first may come while a library is being imported
            out, problems = process.communicate(timeout=60)
        assert (process.returncode, out) == (130, "")
        (line,) = problems.splitlines()
        assert line.startswith("interrupted: index item_title_distinct is declared, and has 0 of 3 files;")
        assert "`needle index build item`" in line and "`needle drop-index item_title_distinct`" in line
    assert needle("index", "build", "item", lake=lake).stdout.startswith("item: 3 files indexed in ")
    assert needle("drop-index", "item_title_distinct", lake=lake).exit_code == 0


# In Python


def test_a_closed_lake_says_so(lake: Path) -> None:
    opened = needlepoint.open(lake)
    table = opened.table("item")
    assert len(opened.sql("SELECT id FROM item WHERE id = 7")) == len(table.get(id=7)) == 1
    opened.close()
    opened.close()
    asked: list[Callable[[], object]] = [
        lambda: opened.sql("SELECT id FROM item WHERE id = 7"),
        lambda: opened.sql("SELECT count(*) FROM item"),
        lambda: opened.explain("SELECT 1 FROM item"),
        lambda: table.get(id=7),
        lambda: opened.table("item"),
        lambda: opened.tables(),
        lambda: opened.sync(),
        lambda: opened.status(),
        lambda: opened.create_index("item", "title"),
        lambda: opened.delete("item", "id = 7"),
        lambda: opened.writer.staging("item"),
        lambda: list(opened.follow_events(once=True)),
        lambda: opened.advise("item"),
        lambda: opened.verify("item"),
        lambda: opened.sweep(),
    ]
    for ask in asked:
        with pytest.raises(UsageError, match=r"is closed\. Open it again with needlepoint\.open\."):
            ask()
    with needlepoint.open(lake) as again:
        assert len(again.sql("SELECT id FROM item WHERE id = 7")) == 1


# Memory


def test_a_limit_that_may_abort_the_process_is_told_before(lake: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    limited = run("--lake", str(lake), "status", preexec_fn=limit)
    assert b"warning: address space is limited to 1,024 MiB (ulimit -v)" in limited.stderr
    assert "warning" not in needle("status", lake=lake).stderr


def test_too_little_memory_is_an_error_and_no_accident(capsys: pytest.CaptureFixture[str]) -> None:
    _show(MemoryError("Unable to allocate 24.4 MiB"), debug=False)
    assert capsys.readouterr().err.startswith("error: there is not enough memory: Unable to allocate 24.4 MiB.")


def test_a_naive_datetime_is_in_the_zone_of_its_column(tmp_path: Path) -> None:
    stamps = [datetime.datetime(2024, 3, 30, hour) for hour in (17, 18)]  # in UTC
    (tmp_path / "z").mkdir()
    pq.write_table(
        pa.table({"id": [1, 2], "ts": pa.array(stamps, pa.timestamp("us", "Europe/Berlin"))}), tmp_path / "z/a.parquet"
    )
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("z")
        for indexed in (False, True):
            if indexed:
                lake.create_index("z", "ts")
            by_sql = lake.sql("SELECT id FROM z WHERE ts = $ts", {"ts": stamps[1]}).rows()
            assert by_sql == lake.table("z").get(ts=stamps[1], columns=["id"]).rows() == [{"id": 1}]


def test_datetimes_that_a_column_cannot_have(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    stamps = pa.array([1, 0], pa.timestamp("ns", "Europe/Berlin"))
    (tmp_path / "z").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "ts": stamps}), tmp_path / "z/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("z")
        table = lake.table("z")
        assert table.get(ts=pd.Timestamp("1970-01-01 01:00:00.000000001"), columns=["id"]).rows() == [{"id": 1}]
        assert table.get(ts=pd.NaT).rows() == []
        for value in (datetime.datetime.min, datetime.datetime(2024, 10, 27, 2, 30)):  # this local time occurs twice
            with pytest.raises(UsageError, match="is not a value of column 'ts'"):
                table.get(ts=value)


def test_intervals_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    duckdb.sql(f"COPY (SELECT i, INTERVAL (i) DAY AS iv FROM range(9) r(i)) TO '{tmp_path}/t/a.parquet'")
    with needlepoint.open(tmp_path) as lake, pytest.raises(NotParquet, match="column 'iv' is an INTERVAL"):
        lake.create_table("t")


def test_get_without_a_column(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        with pytest.raises(UsageError, match="names no column"):
            lake.table("t").get(13)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ('SELECT * FROM t WHERE status = "new"', "Write a string in single quotes: 'new'"),
        ("SELECT nope.x FROM t", "unknown table or alias 'nope' at line 1, column 8. There is: t"),
        ("SELECT t.x FROM t", "unknown column 'x' at line 1, column 10. There is: id, status"),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", "after DROP VIEW name, if it exists"),
    ],
)
def test_names_that_are_not_there(tmp_path: Path, query: str, said: str) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": [1], "status": ["new"]}), tmp_path / "t/a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        with pytest.raises(UsageError) as caught:
            lake.sql(query)
        assert said in str(caught.value)


def test_a_file_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("print()")
    with needlepoint.open(tmp_path) as lake, pytest.raises(UsageError, match="is one file"):
        lake.create_table("job", tmp_path / "job.py")
