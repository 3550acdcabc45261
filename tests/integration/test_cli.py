"""`needle` as a person uses it: real processes or the real entry point, on real lakes."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from tests.cases import long

from needlepoint.cli import main
from needlepoint.cli.interrupts import LEAVES
from needlepoint.cli.needle import COMMANDS
from needlepoint.lake import Lake

ROWS = 3000


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with the table `item` of three files, indexed by `id`."""
    data = tmp_path / "data" / "item"
    for number in range(3):
        write_items(data / f"shop={number}" / "part.parquet", number * 1000, 1000)
    root = tmp_path / "lake"
    assert needle("create-table", "item", str(data), lake=root).exit_code == 0
    assert needle("create-index", "item", "id", lake=root).exit_code == 0
    return root


def write_items(path: Path, start: int, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = range(start, start + count)
    table = pa.table({"id": pa.array(numbers, pa.int64()), "title": [f"title {number}" for number in numbers]})
    pq.write_table(table, path, write_page_index=True, data_page_size=2000, use_dictionary=False)


def needle(*arguments: str, lake: Path | None = None, stdin: str | None = None) -> Result:
    """Run the entry point in this process, with separate stdout and stderr."""
    before = ["--lake", str(lake)] if lake is not None else []
    return CliRunner(env={"NEEDLE_LAKE": None}).invoke(main, [*before, *arguments], input=stdin)


def refused(result: Result, *words: str) -> None:
    """Exit code 1, nothing on stdout, one line on stderr with these words."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    for word in words:
        assert word in line


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own."""
    return subprocess.run([*console_script(), *arguments], capture_output=True, timeout=60, check=False, **options)


def console_script() -> list[str]:
    return [sys.executable, "-c", "import sys; sys.argv[0] = 'needle'; from needlepoint.cli import run; run()"]


# Help and start


@pytest.mark.parametrize("command", [*COMMANDS, "index build"])
def test_every_command_has_help_with_examples(command: str) -> None:
    shown = needle(*command.split(), "--help")
    assert shown.exit_code == 0
    assert f"needle {command}" in shown.stdout.split("Example", 1)[1]
    assert "--lake PLACE" in shown.stdout


def test_help_lists_all_commands_in_full() -> None:
    shown = needle("--help").stdout
    for command in COMMANDS:
        assert f"\n  {command} " in shown
    assert "..." not in shown.split("Commands:")[1]
    assert "NEEDLE_LAKE" in shown


def test_version() -> None:
    from needlepoint import __version__

    assert needle("--version").stdout == f"needle, version {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["sql", "--help"], ["ingest", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom needlepoint.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "heavy = {'pyarrow', 'datafusion', 'pyspark', 'numpy', 'pandas', 'rocksdict'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Tables and indexes


def test_create_table_and_index_say_what_they_made(tmp_path: Path) -> None:
    write_items(tmp_path / "data" / "year=2024" / "a.parquet", 0, 10)
    made = needle("create-table", "item", str(tmp_path / "data"), lake=tmp_path / "lake")
    assert made.stdout == "table item: 1 file, 10 rows, partitioned by year\n"
    indexed = needle("create-index", "item", "id", lake=tmp_path / "lake")
    assert indexed.stdout.startswith("index item_id_key: 10 entries of 1 file in ")


def test_create_table_of_the_directory_in_the_lake(tmp_path: Path) -> None:
    write_items(tmp_path / "lake" / "item" / "a.parquet", 0, 10)
    assert needle("create-table", "item", lake=tmp_path / "lake").exit_code == 0
    counted = needle("sql", "--format", "csv", "SELECT count(*) AS n FROM item", lake=tmp_path / "lake")
    assert counted.stdout == '"n"\n10\n'


def test_create_index_without_building(lake: Path) -> None:
    declared = needle("create-index", "item", "title", "--name", "by_title", "--no-build", lake=lake)
    assert declared.stdout == "index by_title is declared; `needle index build item` builds it\n"
    assert needle("sync", "item", lake=lake).stdout == "item: 0 added, 0 changed, 0 removed, 3 indexed\n"


def test_drop_index(lake: Path) -> None:
    assert needle("drop-index", "item_id_key", lake=lake).stdout == "index item_id_key is dropped\n"
    assert json.loads(needle("status", "--format", "json", lake=lake).stdout)["tables"][0]["indexes"] == []
    refused(needle("drop-index", "item_id_key", lake=lake), "unknown index 'item_id_key'")


def test_lake_is_chosen_before_after_or_by_the_environment(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = needle("--lake", str(lake), "status").stdout
    after = needle("status", "--lake", str(lake)).stdout
    chosen = CliRunner(env={"NEEDLE_LAKE": str(lake)}).invoke(main, ["status"]).stdout
    assert before == after == chosen
    elsewhere = CliRunner(env={"NEEDLE_LAKE": "/nonexistent"}).invoke(main, ["status", "--lake", str(lake)])
    assert elsewhere.stdout == before


# Sync


def test_sync_reports_what_changed(lake: Path, tmp_path: Path) -> None:
    data = tmp_path / "data" / "item"
    write_items(data / "shop=3" / "part.parquet", 3000, 10)
    write_items(data / "shop=0" / "part.parquet", 0, 5)
    (data / "shop=1" / "part.parquet").unlink()
    assert needle("sync", lake=lake).stdout == "item: 1 added, 1 changed, 1 removed, 2 indexed\n"
    assert needle("sync", lake=lake).stdout == "item: 0 added, 0 changed, 0 removed, 0 indexed\n"


@pytest.mark.parametrize("content", [b"hello, this is text\n", b"", "truncated"])
def test_sync_names_bad_files_and_indexes_the_others(
    lake: Path, tmp_path: Path, content: bytes | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEEDLE_UNFINISHED", "error")
    data = tmp_path / "data" / "item"
    good = (data / "shop=0" / "part.parquet").read_bytes()
    (data / "shop=0" / "bad.parquet").write_bytes(good[: len(good) // 2] if isinstance(content, str) else content)
    write_items(data / "shop=3" / "part.parquet", 3000, 10)
    done = needle("sync", lake=lake)
    assert done.exit_code == 1
    assert done.stdout == "item: 1 added, 0 changed, 0 removed, 1 indexed\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and "shop=0/bad.parquet" in line


def test_sync_names_files_that_are_not_finished(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "data/item/shop=0/new.parquet").write_bytes(b"PAR1")
    done = needle("sync", lake=lake)
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert first == "item: 0 added, 0 changed, 0 removed, 0 indexed"
    assert second.startswith("item: shop=0/new.parquet has no footer")
    assert "item: 1 file passed over; `needle sync` names them" in needle("status", lake=lake).stdout


def test_sync_of_an_empty_lake(tmp_path: Path) -> None:
    refused(needle("create-table", "item", str(tmp_path), lake=tmp_path / "lake"), "no Parquet files")
    assert needle("sync", lake=tmp_path / "lake").stdout.startswith("there are no tables yet")


# SQL


EVERY_TYPE = """
SELECT 1 AS i, 1.5::double AS f, 'NaN'::double AS nan, 1.50::decimal(10, 2) AS d, 'say "hé", x' AS s, NULL AS n,
       '' AS e, true AS b, X'00ff' AS h, date '2024-02-29' AS day, timestamp '2024-02-29T12:30:00.5' AS t,
       [1, 2] AS l, named_struct('x', 1, 'day', date '2024-01-01') AS st
"""


def test_json(lake: Path) -> None:
    (row,) = json.loads(needle("sql", "--format", "json", EVERY_TYPE, lake=lake).stdout)
    stamp = row.pop("t")
    assert stamp.startswith("2024-02-29T12:30:00.5")
    assert row == {
        "i": 1,
        "f": 1.5,
        "nan": None,
        "d": "1.50",
        "s": 'say "hé", x',
        "n": None,
        "e": "",
        "b": True,
        "h": "00ff",
        "day": "2024-02-29",
        "l": [1, 2],
        "st": {"x": 1, "day": "2024-01-01"},
    }


def test_json_of_no_and_of_many_rows(lake: Path) -> None:
    assert json.loads(needle("sql", "--format", "json", "SELECT * FROM item WHERE id < 0", lake=lake).stdout) == []
    rows = json.loads(needle("sql", "--format", "json", "SELECT * FROM item ORDER BY id", lake=lake).stdout)
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert rows[1700] == {"id": 1700, "title": "title 1700", "shop": 1}


def test_csv(lake: Path) -> None:
    shown = needle("sql", "--format", "csv", EVERY_TYPE, lake=lake).stdout
    (row,) = csv.DictReader(io.StringIO(shown))
    assert (row["i"], row["s"]) == ("1", 'say "hé", x')
    assert (row["d"], row["h"], row["day"], row["b"]) == ("1.50", "00ff", "2024-02-29", "true")
    assert json.loads(row["st"]) == {"x": 1, "day": "2024-01-01"}
    assert ',,"",true,' in shown  # NULL is empty, an empty text is ""


def test_arrow_and_parquet_on_stdout(lake: Path) -> None:
    query = "SELECT id, title FROM item WHERE id IN (5, 2500) ORDER BY id"
    expected = [{"id": 5, "title": "title 5"}, {"id": 2500, "title": "title 2500"}]
    arrow = needle("sql", "--format", "arrow", query, lake=lake)
    assert pa.ipc.open_stream(arrow.stdout_bytes).read_all().to_pylist() == expected
    parquet = needle("sql", "--format", "parquet", query, lake=lake)
    assert pq.read_table(pa.BufferReader(parquet.stdout_bytes)).to_pylist() == expected


@pytest.mark.parametrize("format", ["json", "csv", "arrow", "parquet"])
def test_output_tells_the_format_by_its_name(lake: Path, tmp_path: Path, format: str) -> None:
    file = tmp_path / f"answer.{format}"
    done = needle("sql", "--output", str(file), "SELECT id, title FROM item WHERE id = 7", lake=lake)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"1 row written to {file}\n")
    assert read_back(file) == [{"id": 7, "title": "title 7"}]


def read_back(file: Path) -> list[dict[str, Any]]:
    match file.suffix:
        case ".json":
            rows: list[dict[str, Any]] = json.loads(file.read_text())
        case ".csv":
            rows = [{**row, "id": int(row["id"])} for row in csv.DictReader(io.StringIO(file.read_text()))]
        case ".arrow":
            rows = pa.ipc.open_stream(file.read_bytes()).read_all().to_pylist()
        case _:
            rows = pq.read_table(file).to_pylist()
    return rows


def test_output_that_cannot_be_written(lake: Path, tmp_path: Path) -> None:
    refused(needle("sql", "--output", str(tmp_path / "no" / "a.csv"), "SELECT 1", lake=lake), "cannot be written")
    unclear = needle("sql", "--output", str(tmp_path / "answer.txt"), "SELECT 1", lake=lake)
    assert unclear.exit_code == 2 and "Use --format" in unclear.stderr


def test_table_shows_rows_and_says_when_it_cuts(lake: Path) -> None:
    shown = needle("sql", "SELECT id, title FROM item ORDER BY id", lake=lake).stdout.splitlines()
    assert shown[0].split() == ["id", "title"]
    assert len(shown) == 2 + 100 + 1
    assert shown[-1] == "100 of 3,000 rows shown; --rows shows more"
    few = needle("sql", "--rows", "5", "SELECT id FROM item WHERE id = 9", lake=lake).stdout.splitlines()
    assert few[2].strip() == "9" and few[-1] == "1 row"


def test_table_keeps_wide_values_and_escapes_control_characters(lake: Path) -> None:
    wide = "x" * 5000
    shown = needle("sql", f"SELECT '{wide}' AS wide, 'a\x1b[2Jb\nc [red]' AS odd, NULL AS nothing", lake=lake).stdout
    assert wide in shown
    assert r"a\x1b[2Jb\nc [red]" in shown
    assert "NULL" in shown


def test_several_statements(lake: Path) -> None:
    text = "CREATE VIEW two AS SELECT id FROM item WHERE id IN (3, 4); -- and then;\nSELECT count(*) AS n FROM two;\n"
    done = needle("sql", lake=lake, stdin=text)
    assert done.exit_code == 0 and "n\n" in done.stdout.replace(" ", "") and "2" in done.stdout.split()
    refused(needle("explain", "SELECT 1; SELECT 2", lake=lake), "several statements")
    both = needle("sql", "--format", "csv", "SELECT 1; SELECT 2", lake=lake)
    assert both.exit_code == 2 and "csv holds the rows of one statement" in both.stderr
    stopped = needle("sql", "SELECT nothing FROM item; SELECT 1 AS never", lake=lake)
    assert stopped.exit_code == 1 and "never" not in stopped.stdout


def test_query_from_stdin(lake: Path) -> None:
    done = needle("sql", "--format", "csv", "-", lake=lake, stdin="SELECT id\nFROM item WHERE id = 3\n")
    assert done.stdout == '"id"\n3\n'


def test_report_goes_to_stderr(lake: Path) -> None:
    done = needle("sql", "--format", "csv", "--report", "SELECT id FROM item WHERE id = 3", lake=lake)
    assert done.stdout == '"id"\n3\n'
    assert "index item_id_key (key): used" in done.stderr


def test_index_statements(lake: Path) -> None:
    assert needle("sql", "CREATE INDEX ON item USING key (title)", lake=lake).exit_code == 0
    rows = json.loads(needle("sql", "--format", "json", "SHOW INDEXES", lake=lake).stdout)
    assert {row["column"] for row in rows} == {"id", "title"}


def test_columns_of_one_name(lake: Path) -> None:
    query = "SELECT a.id, b.id FROM item a JOIN item b ON a.id = b.id WHERE a.id = 5"
    refused(needle("sql", "--format", "json", query, lake=lake), "named 'id'", "AS")
    assert "1 row" in needle("sql", query, lake=lake).stdout


# Explain and status


def test_explain_as_text_and_json(lake: Path) -> None:
    query = "SELECT title FROM item WHERE id = 1234"
    text = needle("explain", query, lake=lake).stdout
    assert "files      1 of 3" in text and "at most" in text and "index item_id_key (key): used" in text
    planned = json.loads(needle("explain", "--format", "json", query, lake=lake).stdout)
    assert planned["executed"] is False and planned["tables"][0]["files"] == {"read": 1, "total": 3}
    ran = json.loads(needle("explain", "--analyze", "--format", "json", query, lake=lake).stdout)
    assert ran["executed"] is True and ran["tables"][0]["rows"]["read"] == 1 and "read" in ran["seconds"]
    assert "time: plan" in needle("explain", "--analyze", "-", lake=lake, stdin=query).stdout


def test_status(lake: Path, tmp_path: Path) -> None:
    write_items(tmp_path / "data" / "item" / "shop=7" / "new.parquet", 7000, 10)
    shown = needle("status", lake=lake).stdout
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("item")] == ["item", "item_id_key"]
    assert "0 events waiting, 0 set aside" in shown
    assert "3,000 + ?" in shown
    status = json.loads(needle("status", "--format", "json", lake=lake).stdout)
    (table,) = status["tables"]
    assert (table["name"], table["files"], table["indexed"], table["unknown"]) == ("item", 4, 3, 1)
    assert table["indexes"][0]["entries"] == ROWS


def test_status_does_not_say_that_files_changed_through_another_table_have_no_rows(lake: Path, tmp_path: Path) -> None:
    assert needle("create-table", "other", str(tmp_path / "data" / "item"), lake=lake).exit_code == 0
    assert needle("create-index", "item", "title", "--embed", lake=lake).exit_code == 0
    (line,) = [line for line in needle("status", lake=lake).stdout.splitlines() if line.startswith("other")]
    assert line.split()[:3] == ["other", "3", "?"]
    assert needle("sync", "other", lake=lake).exit_code == 0
    (line,) = [line for line in needle("status", lake=lake).stdout.splitlines() if line.startswith("other")]
    assert line.split()[:3] == ["other", "3", "3,000"]


# Errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sql", "SELECT * FROM itm"], ["unknown table 'itm'", "Did you mean 'item'?"]),
        (["sql", "SELECT titel FROM item"], ["unknown column 'titel'", "Did you mean 'title'?"]),
        (["sql", "SELEC 1"], ["SELEC"]),
        (["sql", "DROP TABLE item"], ["needle drop-table item"]),
        (["explain", "SELECT * FROM itm"], ["Did you mean 'item'?"]),
        (["delete", "item", "--where", "id =", "--dry-run"], ["an expression, found: the end of the condition."]),
        (["sync", "itm"], ["Did you mean 'item'?"]),
        (["create-index", "itm", "id"], ["Did you mean 'item'?"]),
        (["create-index", "item", "idd"], ["unknown column 'idd'", "Did you mean 'id'?"]),
        (["create-index", "item", "id"], ["already"]),
        (["create-index", "item", "shop"], ["partition"]),
        (["create-index", "item", "id", "--kind", "blum"], ["unknown index kind", "bloom"]),
        (["create-table", "item", "."], ["no Parquet files"]),
        (["create-table", "It-em"], ["cannot name a table"]),
        (["create-table", "other", "/nonexistent/place"], ["/nonexistent/place"]),
    ],
)
def test_refusals_are_one_line(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    refused(needle(*arguments, lake=lake), *words)


def test_a_table_name_that_is_taken(lake: Path, tmp_path: Path) -> None:
    refused(needle("create-table", "item", str(tmp_path / "data" / "item"), lake=lake), "already")


def test_files_that_are_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.parquet").write_text("hello, this is text\n")
    refused(needle("create-table", "item", str(tmp_path / "data"), lake=tmp_path / "lake"), "a.parquet")


@pytest.mark.parametrize("arguments", [["status"], ["sync"], ["sql", "SELECT 1"], ["explain", "SELECT 1"], ["indexer"]])
def test_no_lake(tmp_path: Path, arguments: list[str]) -> None:
    refused(needle(*arguments, lake=tmp_path / "nope"), "there is no lake", "NEEDLE_LAKE")
    assert not (tmp_path / "nope").exists()


def test_a_lake_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    write_items(tmp_path / "data" / "a.parquet", 0, 10)
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        refused(needle("create-table", "item", str(tmp_path / "data"), lake=root), "registry.db")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sqll", "SELECT 1"],
        ["sql"],
        ["sql", ""],
        ["sql", "--format", "xml", "SELECT 1"],
        ["sql", "--nonsense", "SELECT 1"],
        ["create-index", "item"],
        ["demo", "--rows", "0"],
        ["demo", "--rows", "2", "--batches", "3"],
        ["ingest", "item"],
    ],
)
def test_wrong_usage(lake: Path, arguments: list[str]) -> None:
    done = needle(*arguments, lake=lake)
    assert done.exit_code == 2
    assert done.stdout == "" and done.stderr.startswith("Usage: needle")


def test_a_mistyped_command() -> None:
    assert "Did you mean 'create-index'?" in needle("create-indx", "item", "id").stderr


@pytest.mark.parametrize("place", ["before", "after"])
def test_traceback_only_with_debug(lake: Path, place: str) -> None:
    command = ("sql", "SELECT * FROM itm")
    assert "Traceback" not in needle(*command, lake=lake).stderr
    debugged = needle("--debug", *command, lake=lake) if place == "before" else needle(*command, "--debug", lake=lake)
    assert debugged.exit_code == 1
    assert "Traceback" in debugged.stderr
    assert debugged.stderr.splitlines()[-1].startswith("error: unknown table 'itm'")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_unexpected_error(lake: Path) -> None:
    command = [*console_script(), "--lake", str(lake), "sql", "--format", "csv", "SELECT id FROM item"]
    with open("/dev/full", "wb") as full:
        failed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        debugged = subprocess.run([*command, "--debug"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (failed.returncode, debugged.returncode) == (1, 1)
    assert failed.stderr == "internal error: OSError: [Errno 28] No space left on device; run with --debug\n"
    assert "Traceback" in debugged.stderr


# Processes, pipes and terminals


def test_exit_codes_of_a_process(lake: Path) -> None:
    assert run("--lake", str(lake), "status").returncode == 0
    refusal = run("--lake", str(lake), "sql", "SELECT * FROM itm")
    assert (refusal.returncode, refusal.stdout) == (1, b"") and b"Traceback" not in refusal.stderr
    assert run("nonsense").returncode == 2


@pytest.mark.parametrize("format", ["table", "arrow", *long("json", "csv", "parquet")])
def test_a_closed_pipe_is_quiet(lake: Path, format: str) -> None:
    query = "SELECT a.id, b.title FROM item a JOIN item b ON a.id % 100 = b.id"
    command = [*console_script(), "--lake", str(lake), "sql", "--rows", "3000", "--format", format, query]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@pytest.mark.long
def test_ctrl_c_ends_with_one_line(lake: Path) -> None:
    # A query that waits forever: its text comes from a pipe to which nothing is written.
    command = [*console_script(), "--lake", str(lake), "sql", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None and process.stderr.read() == b"interrupted: nothing was changed.\n"


@pytest.mark.long
def test_the_second_ctrl_c_ends_a_query(lake: Path) -> None:
    """DataFusion joins in batches, and does not stop in the middle of one."""
    query = "SELECT count(*) FROM item a, item b, item c, item d WHERE a.id + b.id < c.id + d.id"
    command = [*console_script(), "--lake", str(lake), "sql", query]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(3.0)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(3)
        assert process.wait(60) == 130
        assert process.stderr is not None and process.stderr.read() == b"interrupted: nothing was changed.\n"


def interrupt(*arguments: Any, **named: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("where", "arguments", "left"),
    [
        ("sql", ["sql", "SELECT 1"], "nothing was changed."),
        ("sql", ["sql", "CREATE INDEX ON item (title)"], "`needle status` lists the index if it is declared"),
        ("sql", ["sql", "CREATE VIEW v AS SELECT 1"], "entirely or not at all."),
        ("verify", ["verify"], "nothing was changed."),
        ("sync", ["sync"], "what was built is kept"),
        ("build", ["index", "build", "item"], "what was built is kept"),
        ("create_index", ["create-index", "item", "title"], "nothing was built"),
        ("compact", ["compact", "item", "--sort-by", "id", "--yes"], "finished steps stay"),
        ("delete", ["delete", "item", "--where", "id < 3", "--yes"], "finished steps stay"),
        ("create_table", ["create-table", "other"], "`needle sync` completes it"),
        ("sweep", ["sweep"], "nothing in use was removed"),
    ],
)
def test_an_interrupted_command_says_what_it_leaves(
    lake: Path, monkeypatch: pytest.MonkeyPatch, where: str, arguments: list[str], left: str
) -> None:
    monkeypatch.setattr(Lake, where, interrupt)
    result = needle(*arguments, lake=lake)
    assert result.exit_code == 130
    (line,) = result.stderr.splitlines()
    assert line.startswith("interrupted: ") and left in line


def test_an_interrupted_question_changes_nothing(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("needlepoint.cli.confirm.agreed", Mock(side_effect=click.Abort))
    result = needle("compact", "item", "--sort-by", "id", lake=lake)
    assert (result.exit_code, result.stderr) == (130, "interrupted: nothing was changed.\n")


def test_of_every_command_it_is_known_what_an_interrupt_leaves() -> None:
    assert LEAVES.keys() == COMMANDS.keys()


def test_verbose_shows_queries_without_values(tmp_path: Path) -> None:
    (tmp_path / "item").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "item" / "0.parquet")
    assert needle("create-table", "item", lake=tmp_path).exit_code == 0
    shown = needle("sql", "--verbose", "SELECT * FROM item WHERE id = 2", lake=tmp_path)
    assert re.search(r"^a query took [\d.]+ ms: SELECT \* FROM item WHERE id = \?$", shown.stderr, re.MULTILINE)
    assert needle("sql", "SELECT * FROM item WHERE id = 2", lake=tmp_path).stderr == ""


@pytest.mark.parametrize("columns", [80, pytest.param(40, marks=pytest.mark.long)])
def test_screens_are_legible_on_narrow_terminals(tmp_path: Path, columns: int) -> None:
    root = tmp_path / "lake"
    path = root / "product" / "partner=ACM" / "year=2024" / "month=11" / "0.parquet"
    path.parent.mkdir(parents=True)
    ids = pa.array(range(2000), pa.int64())
    pq.write_table(pa.table({"product_id": ids, "created_timestamp": ids.cast(pa.timestamp("us", "UTC"))}), path)
    assert needle("create-table", "product", lake=root).exit_code == 0
    assert needle("create-index", "product", "product_id", lake=root).exit_code == 0
    code, status = on_a_terminal("--lake", str(root), "status", columns=columns)
    assert code == 0 and "…" not in status
    for whole in ("product_product_id_key", "2,000", "partner, year, month"):
        assert whole in status
    code, advice = on_a_terminal("--lake", str(root), "advise", "product", columns=columns)
    assert code == 0 and "…" not in advice
    _, anatomy = on_a_terminal("inspect", str(path), columns=max(columns, 80))
    assert "created_timestamp " in anatomy and "product_id " in anatomy


def on_a_terminal(*arguments: str, columns: int = 100) -> tuple[int, str]:
    """Run with stdout and stderr on a terminal."""
    control, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen([*console_script(), *arguments], stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b"".join(_read_all(control))
    os.close(control)
    return process.wait(60), shown.decode()


def _read_all(descriptor: int) -> Iterator[bytes]:
    while select.select([descriptor], [], [], 60)[0]:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            return
        if not part:
            return
        yield part


def test_a_terminal_gets_the_time_and_the_funnel(lake: Path) -> None:
    code, shown = on_a_terminal("--lake", str(lake), "sql", "SELECT title FROM item WHERE id = 1234")
    assert code == 0
    assert "1 row" in shown and " ms" in shown and "files 1 of 3 -> " in shown


def test_a_terminal_cuts_wide_values_and_loses_no_column(lake: Path) -> None:
    columns = ", ".join(f"{number} AS column_number_{number}" for number in range(20))
    statements = f"SELECT '{'x' * 300}' AS wide, 12345678901 AS number; SELECT {columns}"
    code, shown = on_a_terminal("--lake", str(lake), "sql", statements)
    assert code == 0
    assert "x…" in shown and "12345678901" in shown
    assert all(f"column_number_{number}" in shown for number in range(20))


@pytest.mark.parametrize("format", ["arrow", *long("parquet")])
def test_a_terminal_gets_no_bytes(lake: Path, format: str) -> None:
    code, shown = on_a_terminal("--lake", str(lake), "sql", "--format", format, "SELECT 1")
    assert code == 2
    assert "--output FILE" in shown


def test_a_terminal_gets_a_progress_bar(lake: Path, tmp_path: Path) -> None:
    write_items(tmp_path / "data" / "item" / "shop=8" / "new.parquet", 8000, 10)
    code, shown = on_a_terminal("--lake", str(lake), "sync")
    assert code == 0
    assert "indexing" in shown and "1 added" in shown


# The indexer


def put(lake: Path, *bodies: str) -> None:
    import needlepoint

    with needlepoint.open(lake) as opened:
        for body in bodies:
            opened.queue.put(body)


def event(path: str, batch: str = "b1", table: str = "item") -> str:
    return json.dumps({"table": table, "batch": batch, "added": [path], "removed": []})


def test_indexer_once(lake: Path, tmp_path: Path) -> None:
    write_items(tmp_path / "data" / "item" / "shop=5" / "new.parquet", 5000, 10)
    put(lake, event("shop=5/new.parquet"))
    assert needle("indexer", "--once", lake=lake).stdout == "item, batch b1: 1 indexed\n"
    again = needle("indexer", "--once", lake=lake)
    assert (again.exit_code, again.output) == (0, "")


def test_indexer_once_fails_with_an_event_that_is_set_aside(lake: Path) -> None:
    put(lake, "no event at all", event("x.parquet", table="itm"))
    done = needle("indexer", "--once", lake=lake)
    assert done.exit_code == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("error: event 'no event at all': ")
    assert second.startswith("error: itm, batch b1: unknown table 'itm'")
    assert "2 set aside" in needle("status", lake=lake).stdout


@pytest.mark.long
@pytest.mark.parametrize("stop", [signal.SIGTERM, *long(signal.SIGINT)])
def test_indexer_follows_until_it_is_told_to_stop(lake: Path, tmp_path: Path, stop: signal.Signals) -> None:
    command = [*console_script(), "--lake", str(lake), "indexer"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for number in (5, 6):
            write_items(tmp_path / "data" / "item" / f"shop={number}" / "new.parquet", number * 1000, 10)
            put(lake, event(f"shop={number}/new.parquet", batch=f"b{number}"))
            assert process.stdout is not None
            assert process.stdout.readline() == f"item, batch b{number}: 1 indexed\n"
        process.send_signal(stop)
        assert process.wait(60) == 0
        assert process.stderr is not None and process.stderr.read() == ""


# Inspect


def test_inspect_shows_layout_columns_pages_and_advice(tmp_path: Path) -> None:
    path = tmp_path / "item.parquet"
    write_items(path, 0, 1000)
    shown = needle("inspect", str(path)).stdout
    assert "1,000 rows in 1 row group, 2 columns" in shown
    assert "written by parquet-cpp-arrow" in shown
    layout = {line.split("  ")[0]: line for line in shown.splitlines()}
    assert "█" in layout["data"] and layout["footer"].count("▒") + layout["footer"].count("█") >= 1
    assert "int64" in shown and "snappy" in shown
    assert "keys: ARROW:schema (" in shown
    assert shown.rstrip().endswith("advice: none, nothing here is in the way of lookups")
    pq.write_table(pa.table({"id": range(100_000)}), path)
    assert "- no page index: one row costs a whole column chunk" in needle("inspect", str(path)).stdout


def test_inspect_shows_the_pages_of_a_column(tmp_path: Path) -> None:
    path = tmp_path / "item.parquet"
    table = pa.table({"title": [f"title {number}" for number in range(1000)]})
    pq.write_table(table, path, write_page_index=True, max_rows_per_page=100, use_dictionary=False)
    shown = needle("inspect", str(path), "--column", "title").stdout.splitlines()
    pages = json.loads(needle("inspect", str(path), "--column", "title", "--json").stdout)["pages"]
    assert "column title: 10 data pages" in shown[0]
    assert len(shown) == 3 + len(pages)
    assert "title 0" in shown[3]
    assert (pages[0]["first_row"], pages[0]["min"], pages[0]["nulls"]) == (0, "title 0", 0)
    refused(needle("inspect", str(path), "--column", "titel"), "unknown column 'titel'", "Did you mean 'title'?")


def test_inspect_as_json(tmp_path: Path) -> None:
    path = tmp_path / "item.parquet"
    write_items(path, 0, 1000)
    found = json.loads(needle("inspect", str(path), "--json").stdout)
    assert (found["rows"], [column["name"] for column in found["columns"]]) == (1000, ["id", "title"])
    assert found["wasted"] == 0 and found["advice"] == []
    assert sum(found["bytes_by_kind"].values()) == found["size"] - 4


@pytest.mark.long
def test_inspect_of_many_columns_is_a_summary(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"c{number}": [number] for number in range(1000)}), path)
    few, all_of_them = needle("inspect", str(path)).stdout, needle("inspect", str(path), "--all").stdout
    assert "… and 960 smaller columns of " in few and len(few.splitlines()) < 110
    assert "c999 " in all_of_them and "smaller" not in all_of_them


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello, this is text", "not a Parquet file"),
        (b"", "too few"),
        (b"PAR1 but no more than that", "truncated"),
        (b"PARE" + b"\0" * 20 + b"PARE", "encrypted"),
        (None, "no such file"),
    ],
)
def test_inspect_refuses_with_a_reason(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "item.parquet"
    if content is not None:
        path.write_bytes(content)
    refused(needle("inspect", str(path)), str(path), words)


def test_inspect_prints_no_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "item.parquet"
    pq.write_table(pa.table({"a\x1b[2J": ["\x1b[31mred"]}), path, write_page_index=True)
    assert "\x1b" not in needle("inspect", str(path)).stdout
    assert "\x1b" not in needle("inspect", str(path), "--column", "a\x1b[2J").stdout


# Ingest


@pytest.mark.spark
def test_ingest_publishes_and_indexes(tmp_path: Path, spark: Any) -> None:
    root, source = tmp_path / "lake", tmp_path / "feed.csv"
    source.write_text("id,title,shop\n1,one,a\n2,two,b\n3,three,a\n")
    done = needle(
        *("ingest", "item", str(source), "--partition-by", "shop", "--files-per-partition", "1", "--batch", "b1"),
        lake=root,
    )
    assert done.exit_code == 0, done.output
    first, second = done.stdout.splitlines()
    assert first.startswith("item: 3 rows in 2 files published as batch b1 in ")
    assert second.startswith("indexed 2 files in ")
    again = needle("ingest", "item", str(source), "--batch", "b1", lake=root)
    assert again.stdout.startswith("item: batch b1 was published before, nothing is written\n")
    rows = json.loads(needle("sql", "--format", "json", "SELECT * FROM item ORDER BY id", lake=root).stdout)
    assert rows[1] == {"id": 2, "title": "two", "shop": "b"}
    assert len(rows) == 3


@pytest.mark.spark
def test_ingest_of_json_with_a_schema_and_no_index(tmp_path: Path, spark: Any) -> None:
    root, source = tmp_path / "lake", tmp_path / "feed.txt"
    source.write_text('{"id": 1, "code": "007"}\n')
    options = ("--source-format", "json", "--schema", "id BIGINT, code STRING", "--no-index")
    done = needle("ingest", "item", str(source), *options, lake=root)
    assert done.exit_code == 0 and "indexed" not in done.stdout
    assert "1 event waiting" in needle("status", lake=root).stdout
    assert needle("indexer", "--once", lake=root).stdout.endswith(": 1 indexed\n")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["no file or directory"]),
        (["--partition-by", "shopp"], ["Did you mean 'shop'?"]),
        (
            ["--schema", "id BIGIN"],
            ["'id BIGIN' is not a schema", 'Unsupported data type "BIGIN"', "product_id BIGINT"],
        ),
    ],
)
def test_ingest_refuses(tmp_path: Path, spark: Any, options: list[str], words: list[str]) -> None:
    source = tmp_path / "feed.csv"
    if options:
        source.write_text("id,shop\n1,a\n")
    refused(needle("ingest", "item", str(source), *options, lake=tmp_path / "lake"), *words)


@pytest.mark.spark
def test_ingest_names_the_source_that_does_not_fit(tmp_path: Path, spark: Any) -> None:
    """And not a file that Spark wrote of it."""
    first, source = tmp_path / "first.csv", tmp_path / "feed.csv"
    first.write_text("id,price\n1,2.5\n")
    source.write_text("id,price\n2,cheap\n")
    assert needle("ingest", "item", str(first), lake=tmp_path / "lake").exit_code == 0
    done = needle("ingest", "item", str(source), lake=tmp_path / "lake")
    why = "column 'price' is double in the table but string in the batch."
    refused(done, f"{source} does not fit table 'item': {why}", "--schema")
    assert "part-" not in done.stderr
    done = needle("ingest", "item", str(source), "--schema", "id INT, price DOUBLE", lake=tmp_path / "lake")
    refused(done, f'{source} cannot be read: For input string: "cheap"')
    source.write_text("id,colour\n3,red\n")
    done = needle("ingest", "item", str(source), lake=tmp_path / "lake")
    assert "item: new columns colour, which are NULL in all rows before" in done.stdout.splitlines()


def test_values_inside_lists_and_structs() -> None:
    from needlepoint.row_formats import json_value

    nested = {"a": [b"\x00", float("inf"), {"b": None}]}
    assert json_value(nested) == {"a": ["00", None, {"b": None}]}
    assert base64.b16decode(json_value(b"\xff"), casefold=True) == b"\xff"


def test_tokens_are_created_listed_and_revoked(tmp_path: Path, lake: Path) -> None:
    file = ["--tokens", str(tmp_path / "tokens.json")]
    made = needle("token", "create", "shop", "--tables", "item,itm", "--expires", "90d", *file, lake=lake)
    assert made.exit_code == 0 and made.stdout.startswith("needle_")
    assert made.stderr == "note: unknown table 'itm'. Did you mean 'item'?\n"
    assert made.stdout.strip() not in (tmp_path / "tokens.json").read_text()
    assert needle("token", "create", "all", *file, lake=tmp_path / "later").stderr == ""
    listed = needle("token", "list", *file).stdout
    assert re.search(r"shop  item, itm  expires \d{4}-", listed) and "all  all tables  never expires" in listed
    refused(needle("token", "create", "shop", *file), "there is a token 'shop'")
    assert needle("token", "revoke", "shop", *file).stderr == "revoked shop\n"
    refused(needle("token", "revoke", "shop", *file), "unknown token 'shop'")
