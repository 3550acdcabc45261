"""Nothing in a file, a name or an error can control the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result
from tests.integration.test_cli import needle, on_a_terminal
from tests.lakes import write

from needlepoint.printable import json_safe, printable

# C0, C1, DEL, line separators, direction marks.
HOSTILE = "\x1b[31m\x07\x9b2J\x7f\x85\u2028\u2029\u202e\u2066\u200f\u061c"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
COLUMN = f"c{HOSTILE}"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    root = tmp_path / "lake\x1b[2J"
    for number in range(2):
        table = pa.table({"id": range(number * 50, number * 50 + 50), COLUMN: [f"{HOSTILE}{n}" for n in range(50)]})
        write(table, tmp_path / "item" / f"p\u202eq={number}" / "a.parquet")
    shown(needle("create-table", "item", str(tmp_path / "item"), lake=root))
    shown(needle("create-index", "item", COLUMN, lake=root))
    return root


def shown(result: Result, code: int = 0) -> str:
    assert result.exit_code == code, result.output
    both = f"{result.stdout}{result.stderr}"
    assert not UNSAFE.search(both), ascii(both)
    return both


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["sql", "SELECT * FROM item LIMIT 3"],
        ["sql", "--report", "SELECT * FROM item WHERE id = 7"],
        ["sql", "--format", "json", "SELECT * FROM item LIMIT 3"],
        ["sql", "SHOW INDEXES"],
        ["explain", f"SELECT * FROM item WHERE \"{COLUMN}\" = '{HOSTILE}7'"],
        ["explain", "--format", "json", "SELECT * FROM item"],
        ["sql", "EXPLAIN SELECT * FROM item"],
        ["verify"],
        ["advise", "item"],
        ["rebuild", "item"],
        ["delete", "item", "--where", "id < 3", "--dry-run"],
        ["sync"],
    ],
)
def test_commands_show_escapes(lake: Path, arguments: list[str]) -> None:
    assert shown(needle(*arguments, lake=lake))


@pytest.mark.parametrize("option", [[], ["--column", COLUMN], ["--json"]])
def test_inspect_shows_escapes(lake: Path, tmp_path: Path, option: list[str]) -> None:
    assert "\\" in shown(needle("inspect", str(tmp_path / "item" / "p\u202eq=0" / "a.parquet"), *option))


@pytest.mark.parametrize(
    "arguments",
    [
        ["sql", f"SELECT {HOSTILE} FROM item"],
        ["sql", f'SELECT "x{HOSTILE}" FROM item'],
        ["sql", f'SELECT * FROM "x{HOSTILE}"'],
        ["sql", f"SELECT CAST('{HOSTILE}' AS INT)"],
        ["create-index", "item", f"x{HOSTILE}"],
        ["create-table", "other", f"/nonexistent/{HOSTILE}"],
        ["sync", f"x{HOSTILE}"],
    ],
)
def test_errors_show_escapes(lake: Path, arguments: list[str]) -> None:
    for debug in ([], ["--debug"]):
        assert "error: " in shown(needle(*arguments, *debug, lake=lake), 1)


def test_a_file_that_is_bad_is_named_with_escapes(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "item" / "p\u202eq=0" / "b\x9b2J.parquet").write_text("no Parquet at all")
    assert "b\\x9b2J.parquet" in shown(needle("sync", lake=lake), 1)


def test_json_keeps_what_it_escapes(lake: Path) -> None:
    out = needle("sql", "--format", "json", "SELECT * FROM item WHERE id = 7", lake=lake).stdout
    assert json.loads(out)[0][COLUMN] == f"{HOSTILE}7"
    assert json.loads(json_safe(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE


def test_csv_is_as_it_is_in_a_pipe_and_escaped_on_a_terminal(lake: Path) -> None:
    arguments = ("sql", "--format", "csv", "SELECT * FROM item WHERE id = 7")
    assert HOSTILE in needle(*arguments, lake=lake).stdout
    code, text = on_a_terminal("--lake", str(lake), *arguments)
    assert code == 0 and not UNSAFE.search(text.replace("\r\n", "\n")), ascii(text)
    assert text.count("\n") == 2


def test_letters_of_all_scripts_stay() -> None:
    text = "Zoë 東京 עברית عربى 👩‍👩‍👧 é"
    assert printable(text) == text
