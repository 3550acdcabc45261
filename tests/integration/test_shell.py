"""The shell, with keys as a person presses them."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import needlepoint
from needlepoint import Lake
from needlepoint.cli.query.completion import Names, NamesCompleter
from needlepoint.cli.query.shell import Shell


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "item").mkdir()
    ids = range(50_000)
    pq.write_table(pa.table({"id": ids, "title": [f"item {id}" for id in ids]}), tmp_path / "item" / "0.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        lake.sql("CREATE VIEW few AS SELECT id FROM item WHERE id < 3")
        yield lake


def typed(lake: Lake, keys: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What the shell shows on stdout and stderr after these keys."""
    with create_pipe_input() as input:
        input.send_text(keys + "\\q\r")
        Shell(lake, PromptSession(input=input, output=DummyOutput())).run()
    return capsys.readouterr()


def test_statements(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    shown, errors = typed(lake, "SELECT title\rFROM item\rWHERE id = 7;\rSELECT nothing FROM item;\r\r", capsys)
    assert "item 7" in shown and "1 row\n" in shown and re.search(r"\d ms .*1 of 50,000", shown)
    assert errors.startswith("error: unknown column 'nothing'") and "Traceback" not in errors


def test_several_statements_in_a_line(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    shown, errors = typed(
        lake, "SELECT title FROM item WHERE id = 7; SELECT ';' AS a, count(*) AS n FROM few;\r", capsys
    )
    assert "item 7" in shown and re.search(r";\s+3\n", shown) and not errors


def test_a_statement_can_create_an_index(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    typed(lake, "CREATE INDEX ON item USING bloom (title);\r", capsys)
    assert "item_title_bloom" in str(lake.sql("SHOW INDEXES").rows())


def test_commands(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    shown, _ = typed(lake, "\\d\r\\d item\r\\?\r", capsys)
    assert re.search(r"item +table +50,000", shown) and re.search(r"few +view", shown)
    assert re.search(r"id +int64 +key", shown) and "\\explain QUERY" in shown
    shown, _ = typed(lake, "\\timing\r\\format json\rSELECT id FROM few;\r\\explain SELECT * FROM few\r", capsys)
    assert "timing is off." in shown and '[\n{"id": 0},\n{"id": 1},\n{"id": 2}\n]' in shown and "files" in shown
    shown, _ = typed(lake, "\\rows 2\rSELECT id FROM few;\r", capsys)
    assert "2 of 3 rows shown" in shown


@pytest.mark.parametrize("command", ["\\x", "\\format parquet", "\\rows many", "\\d nothing", "\\explain SELEC"])
def test_wrong_commands(lake: Lake, capsys: pytest.CaptureFixture[str], command: str) -> None:
    shown, errors = typed(lake, f"{command}\rSELECT 5 AS five;\r", capsys)
    assert errors.startswith("error: ") and "five" in shown


def test_ends_at_the_end_of_the_input(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    with create_pipe_input() as input:
        input.send_text("SELECT 5 AS five;\r\x04")
        Shell(lake, PromptSession(input=input, output=DummyOutput())).run()
    assert "five" in capsys.readouterr().out


def test_completion(lake: Lake) -> None:
    completer = NamesCompleter(Names(lake))

    def completed(text: str) -> list[str]:
        return [each.text for each in completer.get_completions(Document(text), CompleteEvent())]

    assert completed("SELECT tit") == ["title"]
    assert "item" in completed("SELECT * FROM it")
    assert completed("SELECT item.ti")[:1] == ["title"]
    assert "SELECT" in completed("sel") and "regexp_like" in completed("SELECT regexp_l")
    assert completed("\\ti") == ["\\timing"]
    assert completed("SELECT ") == []
    lake.sql('CREATE VIEW odd AS SELECT id AS "item id", title AS "Title" FROM item')
    completer = NamesCompleter(Names(lake))
    assert completed("SELECT ite") == ["item", '"item id"']
    assert completed("SELECT Ti")[:2] == ["title", '"Title"'] and completed('SELECT "ite') == ["item", '"item id"']
    assert completed("SELECT * FROM ite") == completed("\\d i") == completed("select 1 from odd join i") == ["item"]


@pytest.mark.long
def test_on_a_terminal_ctrl_c_cancels_the_query(lake: Lake, tmp_path: Path) -> None:
    """In a process of its own: a join of three tables goes on in the background."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "40", "XDG_STATE_HOME": str(tmp_path / "state")}
        os.execv(sys.executable, [sys.executable, "-m", "needlepoint", "--lake", str(lake.root), "sql"])
    try:
        seen = _until(terminal, "", "needle>")
        os.write(terminal, b"SELECT count(*) FROM item a, item b, item c WHERE a.id + b.id + c.id = -1;\r")
        time.sleep(1.5)
        os.write(terminal, b"\x03")
        seen = _until(terminal, seen, "cancelled after")
        os.write(terminal, b"SELECT id + 100 AS more FROM item WHERE id = 23;\r")
        seen = _until(terminal, seen, "123")
        os.write(terminal, b"\x04")
    finally:
        time.sleep(0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)
    history = (tmp_path / "state" / "needlepoint" / "sql_history").read_text()
    assert "id + 100" in history


def _until(terminal: int, seen: str, wanted: str) -> str:
    before, ends = len(seen), time.monotonic() + 60
    while wanted not in seen[before:]:
        assert time.monotonic() < ends, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 1 << 16).decode(errors="replace")
    return seen


# Other shells


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_other_shells_complete_commands(shell: str) -> None:
    def asked(what: str, **words: str) -> str:
        environment = {**os.environ, "_NEEDLE_COMPLETE": f"{shell}_{what}", **words}
        program = "import sys; sys.argv = ['needle']; from needlepoint.cli import main; main()"
        return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True).stdout

    assert f"_NEEDLE_COMPLETE={shell}_complete" in asked("source")
    assert "create-index" in asked(
        "complete", COMP_WORDS="needle create", COMP_CWORD="create" if shell == "fish" else "1"
    )
