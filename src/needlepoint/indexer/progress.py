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
"""Called with what is done, how much of it, and of how much. A whole number of files is committed; between commits, the
number includes what is read of others, and comes from another thread."""

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
            self._path.write_text(f"{self._files + min(1.0, self._seen / self._rows):.3f}")

    def end(self) -> None:
        self._files += 1


@contextmanager
def watched(directory: Path, report: Callable[[float], None]) -> Iterator[None]:
    """Within this block, report how many files the running tasks have read, if there is something to report."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL):
            if found := sum(map(_noted, directory.glob(f"*/{NAME}"))):
                report(found)

    thread = threading.Thread(target=watch, name="needlepoint-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _noted(path: Path) -> float:
    with contextlib.suppress(OSError, ValueError):
        return float(path.read_text())
    return 0.0
