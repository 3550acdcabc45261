"""The shell: `needle sql` without a query, on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from needlepoint.cli.messages import one_line, say
from needlepoint.cli.query.completion import Names, NamesCompleter
from needlepoint.cli.query.show import FORMATS, show_table, write
from needlepoint.cli.screen import duration, fitted, funnel, grid, output
from needlepoint.errors import NeedlepointError, QueryCancelled, UsageError
from needlepoint.printable import count, size_text
from needlepoint.query import split

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from needlepoint.lake import Lake
    from needlepoint.query import Result

PROMPT, MORE = "needle> ", "      > "
HELP = r"""A statement ends with a semicolon. Tab completes names; Ctrl-C cancels a query, Ctrl-D leaves.

  \d              tables and views
  \d TABLE        columns and indexes of a table
  \explain QUERY  what a query would read, and why
  \timing         show or hide the time and what was read
  \format NAME    table, json, ndjson or csv
  \rows NUMBER    most rows that a table shows
  \q              leave"""


class Shell:
    """Reads statements and shows their results, until the end of the input."""

    def __init__(self, lake: Lake, session: PromptSession[str] | None = None, rows: int = 100) -> None:
        self._lake = lake
        self._names = Names(lake)
        self._session = session or PromptSession(history=_history(), auto_suggest=AutoSuggestFromHistory())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="needlepoint-shell")
        self._rows = rows
        self._format = "table"
        self._timing = True
        self._commands: dict[str, Callable[[str], None]] = {
            "d": self._describe,
            "explain": self._explain,
            "timing": self._toggle_timing,
            "format": self._choose_format,
            "rows": self._choose_rows,
            "?": lambda _: say(HELP),
            "h": lambda _: say(HELP),
        }

    def run(self) -> None:
        say(f"{self._lake.root}: {count(len(self._lake.tables()), 'table')}. \\? shows help, \\q leaves.")
        while True:
            try:
                text = self._session.prompt(
                    PROMPT,
                    multiline=True,
                    prompt_continuation=MORE,
                    key_bindings=_keys(),
                    completer=NamesCompleter(self._names),
                    complete_while_typing=False,
                ).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text in ("\\q", "exit", "quit", "exit;", "quit;"):
                return
            self._obey(text)

    def _obey(self, text: str) -> None:
        try:
            if text.startswith("\\"):
                name, _, rest = text[1:].partition(" ")
                if name not in self._commands:
                    raise UsageError(f"there is no command \\{name}.", hint="\\? lists them.")
                self._commands[name](rest.strip().rstrip(";"))
            elif text.strip("; \n"):
                for statement in split(text):
                    self._show(statement)
        except QueryCancelled as error:
            say(str(error), err=True)
        except NeedlepointError as error:
            say(f"error: {one_line(error)}", err=True)
        except KeyboardInterrupt:
            say("cancelled.", err=True)

    # Queries

    def _show(self, query: str) -> None:
        began = time.perf_counter()
        result = self._run(query)
        try:
            seconds = time.perf_counter() - began
            if self._format == "table":
                self._page(lambda console: show_table(result, self._rows, console))
            else:
                write(result, self._format, sys.stdout.buffer, self._rows)
                sys.stdout.buffer.flush()
            if self._timing:
                reads = "".join(f"  {funnel(table)}" for table in result.report.tables)
                output().print(duration(seconds) + reads, style="dim")
        finally:
            result.close()
        self._names.forget()

    def _run(self, query: str) -> Result:
        """In another thread: DataFusion does not notice an interrupt, but a query can be cancelled."""
        query_id = uuid.uuid4().hex[:12]
        found = self._thread.submit(self._lake.sql, query, query_id=query_id)
        try:
            return found.result()
        except KeyboardInterrupt:
            for running in self._lake.running():
                if running.id == query_id:
                    running.cancel()
            return found.result()

    def _page(self, show: Callable[[Console], object]) -> None:
        """What is higher than the screen goes through a pager."""
        console = output()
        if not console.is_terminal:
            show(console)
            return
        with console.capture() as captured:
            show(console)
        text = captured.get()
        if text.count("\n") < shutil.get_terminal_size().lines:
            sys.stdout.write(text)
        else:
            os.environ.setdefault("LESS", "-SRFX")
            click.echo_via_pager(text)

    # Commands

    def _describe(self, name: str) -> None:
        self._page(lambda console: console.print(fitted(self._described(console, name), console)))

    def _described(self, console: Console, name: str) -> Table:
        tables = self._lake.status().tables
        if not name:
            shown = grid(console, "name", "kind", "rows", "size", "files", right=("rows", "size", "files"))
            for table in tables:
                shown.add_row(table.name, "table", f"{table.rows:,}", size_text(table.bytes), f"{table.files:,}")
            for view in self._lake.engine.visible(None)[1]:
                shown.add_row(view, "view", "", "", "")
            return shown
        shown = grid(console, "column", "type", "indexes")
        indexes = [index for table in tables if table.name == name for index in table.indexes]
        for field in self._lake.table(name).schema:
            kinds = ", ".join(index.kind for index in indexes if field.name in index.column.split(", "))
            shown.add_row(field.name, str(field.type), kinds)
        return shown

    def _explain(self, query: str) -> None:
        say(str(self._lake.explain(query)))

    def _toggle_timing(self, _: str) -> None:
        self._timing = not self._timing
        say(f"timing is {'on' if self._timing else 'off'}.")

    def _choose_format(self, name: str) -> None:
        known = [each for each in FORMATS if each not in ("arrow", "parquet")]
        if name not in known:
            raise UsageError(f"there is no format '{name}' here.", hint=f"There is: {', '.join(known)}.")
        self._format = name

    def _choose_rows(self, number: str) -> None:
        if not number.isdecimal():
            raise UsageError(f"'{number}' is not a number of rows.", hint="For example \\rows 1000.")
        self._rows = int(number)


def _history() -> History:
    """The statements of earlier shells, which only their user can read; in memory where no file can be written."""
    place = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "needlepoint" / "sql_history"
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(place, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(place))


def _keys() -> KeyBindings:
    """Enter ends a statement that has its semicolon, a command, and an empty line."""
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        text = event.current_buffer.text.strip()
        if not text or text.endswith(";") or text.startswith("\\") or text.lower() in ("exit", "quit"):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    return keys
