"""The two streams of a command: answers go to stdout, progress and problems to stderr.

Boxes, colours and bars are for terminals. Anywhere else the same words come as plain lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from needlepoint.printable import printable_lines, size_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from needlepoint.query import TableReport

# Rich cuts lines at the width of the console; a file has none.
WIDTH_OF_A_FILE = 1 << 30


def output() -> Console:
    """A console on stdout. Emoji, markup and highlighting are off: data is printed as it is."""
    return _console(sys.stdout.isatty(), stderr=False)


def errors() -> Console:
    return _console(sys.stderr.isatty(), stderr=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # again what is being handled: `needle` answers it as for every other format

    def render_str(self, text: str, **options: Any) -> Text:
        """Every plain text, printed alone or in a table, comes through here."""
        return super().render_str(printable_lines(text), **options)


def _console(terminal: bool, *, stderr: bool) -> Console:
    return _Console(
        stderr=stderr,
        width=None if terminal else WIDTH_OF_A_FILE,
        soft_wrap=not terminal,
        highlight=False,
        markup=False,
        emoji=False,
    )


def grid(console: Console, *headers: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table; the columns named in `right` are aligned right."""
    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold" if console.is_terminal else "",
        pad_edge=console.is_terminal,
        show_edge=False,
    )
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left", no_wrap=True, overflow="ellipsis")
    return table


def fitted(table: Table, console: Console) -> Table:
    """The table if the screen is wide enough; else with less space between columns; else each value on its own line."""
    if not is_too_wide(table, console):
        return table
    close = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for column in table.columns:
        close.add_column(column.header, justify=column.justify, no_wrap=True)
    columns = [[*column.cells] for column in table.columns]
    for row in zip(*columns, strict=True):
        close.add_row(*row)
    if not is_too_wide(close, console):
        return close
    lines = Table.grid("", "", padding=(0, 2))
    for number, row in enumerate(zip(*columns, strict=True)):
        if number:
            lines.add_row()
        for column, value in zip(table.columns, row, strict=True):
            shown = Text(printable_lines(value), overflow="fold") if isinstance(value, str) else value
            lines.add_row(Text(str(column.header), style="bold"), shown)
    return lines


def is_too_wide(table: Table, console: Console) -> bool:
    """Whether a terminal would cut something."""
    width = Measurement.get(console, console.options.update(max_width=WIDTH_OF_A_FILE), table).maximum
    return console.is_terminal and width > console.width


class ProgressBar:
    """A progress bar on stderr that appears with the first report and goes when the work is done."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, what: str, done: float, total: int) -> None:
        if not self._terminal:
            return
        if done >= total:
            self.stop()
            return
        progress = self._progress or self._start()
        if self._task is None:
            self._task = progress.add_task(what, total=total)
        progress.update(self._task, description=what, completed=done, total=total)

    def _start(self) -> Progress:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        of_all = (BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        columns = (TextColumn("{task.description}"), *of_all)
        self._progress = Progress(*columns, console=errors(), transient=True)
        self._progress.start()
        return self._progress

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._task = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on stderr, for work that cannot say how far it is."""
    console = errors()
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def duration(seconds: float) -> str:
    """
    >>> duration(0.00213), duration(0.0461), duration(12.34)
    ('2.13 ms', '46.1 ms', '12.3 s')
    """
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.3g} ms"


def funnel(table: TableReport) -> str:
    """What was read of a table, on one line."""
    levels = [("files", table.files), ("row groups", table.row_groups), ("pages", table.pages), ("rows", table.rows)]
    if table.scanned_files:  # a native scan prunes row groups and pages inside DataFusion and does not tell
        levels = [levels[0], levels[3]]
    steps = " -> ".join(f"{name} {level}" for name, level in levels)
    total = f" of {size_text(table.bytes.total)}" if table.bytes.total is not None else ""
    return f"{table.table}: {steps}; read {size_text(table.bytes.read)}{total}"
