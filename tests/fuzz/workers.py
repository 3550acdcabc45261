"""A process that runs one part of the fuzzer after the other. If it dies, it is started again."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.tally import Tally

MOST_DEATHS = 10


class Worker:
    def __init__(
        self, context: Any, number: int, todo: list[tuple[str, float]], seed: int, scripts: Path | None, directory: Path
    ) -> None:
        self.context, self.todo, self.seed, self.scripts = context, list(todo), seed, scripts
        self.note = directory / f"note-{number}"
        self.until, self.deaths = 0.0, 0
        self._start()

    def _start(self) -> None:
        part, seconds = self.todo[0]
        self.until = self.until if self.until > time.monotonic() else time.monotonic() + seconds
        self.receiving, sending = self.context.Pipe(duplex=False)
        self.process = self.context.Process(
            target=work, args=(part, self.seed, self.until, self.scripts, self.note, sending)
        )
        self.process.start()
        sending.close()

    def step(self, tallies: dict[str, list[Tally]], died: list[str]) -> bool:
        """Collect a result; return whether there is more to do."""
        if not self.todo:
            return False
        part = self.todo[0][0]
        if self.receiving.poll():
            try:
                tallies.setdefault(part, []).append(self.receiving.recv())
            except EOFError:
                self.process.join()
                note = self.note.read_text() if self.note.exists() else ""
                died.append(f"{part}: a process ended with {self.process.exitcode} at {note[:2000]}")
                self.seed += 100_000
                self.deaths += 1
                if time.monotonic() < self.until - 5 and self.deaths < MOST_DEATHS:
                    self._start()
                    return True
            self.process.join()
            self.todo.pop(0)
            self.until = 0.0
            if self.todo:
                self._start()
        return bool(self.todo)


def work(part: str, seed: int, until: float, scripts: Path | None, note: Path, sending: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Panics of DataFusion are reported as findings, so do not print them.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    run: Callable[..., Tally] = import_module(f"tests.fuzz.{part}").run
    sending.send(run(seed, until, scripts, note) if part == "whole_queries" else run(seed, until))
    sending.close()


def _end_with_parent() -> None:
    """A fuzzer that is killed leaves no process behind."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
