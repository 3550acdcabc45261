"""How far a build is, also within a file: a task notes it in its directory, and the caller looks there.

Tasks of another machine cannot be seen; of those, only finished ones count.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[str, float, int], None]
"""Called with what is done, how much of it, and of how much. An integer of files is committed; between commits, a float
includes what is read of others. Calls come from two threads, one at a time."""

NAME = "progress"
INTERVAL = 0.25  # seconds


def no_progress(what: str, done: float, total: int) -> None:
    return


class TaskProgress:
    """The files of a task that are read, noted a few times a second."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._files = 0
        self._seen, self._rows = 0, 1
        self._noted = time.monotonic()

    def begin(self, rows: int) -> None:
        """A file, of which so many rows will be read, for all indexes together."""
        self._seen, self._rows = 0, max(1, rows)

    def saw(self, rows: int) -> None:
        self._seen += rows
        if time.monotonic() - self._noted > INTERVAL:
            self._noted = time.monotonic()
            with contextlib.suppress(OSError):  # a full disk is the problem of what is built
                self._path.write_text(f"{self._files + min(0.999, self._seen / self._rows):.3f}")

    def end(self) -> None:
        self._files += 1


def files_read(directory: Path) -> float:
    """How many files the running tasks have read, as far as they noted it."""
    return sum(map(_noted, directory.glob(f"*/{NAME}")))


def _noted(path: Path) -> float:
    with contextlib.suppress(OSError, ValueError):
        return float(path.read_text())
    return 0.0


@contextmanager
def repeatedly(function: Callable[[], None], seconds: float | None = None) -> Iterator[None]:
    """Within this block, call a function each time that so many seconds have passed, in another thread; as often as
    progress is noted, unless said."""
    ended = threading.Event()

    def call() -> None:
        while not ended.wait(INTERVAL if seconds is None else seconds):
            function()

    thread = threading.Thread(target=call, name="needlepoint-repeatedly", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
