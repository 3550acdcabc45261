"""The processes of one service: each answers for all of them.

A process listens on a socket in a directory that only its user may enter. It is asked in lines of JSON about its
queries and metrics, and to cancel a query. Without a directory, there is only one process.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from needlepoint.lake import Lake
from needlepoint.service.metrics import Metrics, with_processes
from needlepoint.service.worker import Worker

LONGEST_PATH = 100  # of a socket's directory; the system's limit for a socket is 107 bytes
_PATIENCE = 2.0  # seconds for the answer of another process
_BACKLOG = 64


class Processes:
    """What all processes know, and what this one does. A process that does not answer in time is left out."""

    def __init__(self, lake: Lake, worker: Worker, metrics: Metrics, sockets: str | None) -> None:
        self._lake = lake
        self._worker = worker
        self._metrics = metrics
        self._directory = None if sockets is None else Path(sockets)
        self._closed = threading.Event()
        if self._directory is not None:
            self._own = self._directory / str(os.getpid())
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.bind(str(self._own))
            self._socket.listen(_BACKLOG)
            threading.Thread(target=self._listen, daemon=True, name="needlepoint-processes").start()

    def queries(self, user: str) -> list[dict[str, Any]]:
        """The running queries of a user, the oldest first."""
        found = [query for _, each in self._ask("queries", user=user) for query in each]
        return sorted(found, key=lambda query: -query["seconds"])

    def cancel(self, user: str, query_id: str) -> bool:
        """Whether such a query of this user runs, and is now cancelled."""
        return any(cancelled for _, cancelled in self._ask("cancel", user=user, query_id=query_id))

    def metrics(self) -> bytes:
        return self._metrics.text() if self._directory is None else with_processes(dict(self._ask("metrics")))

    def close(self) -> None:
        self._closed.set()
        if self._directory is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._own.unlink(missing_ok=True)

    def _ask(self, what: str, **given: str) -> Iterator[tuple[str, Any]]:
        """The id and the answer of each process, this one first."""
        question = {"what": what, **given}
        yield str(os.getpid()), self._answer(question)
        for other in [] if self._directory is None else sorted(self._directory.iterdir()):
            # A process that was killed leaves its socket, and one that ends does not answer.
            with suppress(OSError, ValueError):
                if other != self._own:
                    yield other.name, _answer_of(other, question)

    def _answer(self, question: dict[str, str]) -> Any:
        if question["what"] == "metrics":
            return self._metrics.text().decode()
        user = question["user"]
        if question["what"] == "cancel":
            query_id = question["query_id"]
            return self._worker.owner(query_id) == user and self._lake.engine.running.cancel(query_id)
        mine = [each for each in self._lake.running() if self._worker.owner(each.id) == user]
        return [{"query_id": each.id, "seconds": round(each.seconds, 3), "sql": each.query} for each in mine]

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed, or too many open files
                time.sleep(0.05)
                continue
            threading.Thread(target=self._reply, args=(connection,), daemon=True).start()

    def _reply(self, connection: socket.socket) -> None:
        connection.settimeout(_PATIENCE)
        with connection, connection.makefile("rb") as lines, suppress(OSError, ValueError):
            connection.sendall(_line(self._answer(json.loads(lines.readline()))))


def _answer_of(process: Path, question: dict[str, str]) -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE)
        connection.connect(str(process))
        connection.sendall(_line(question))
        with connection.makefile("rb") as lines:
            return json.loads(lines.readline())


def _line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"
