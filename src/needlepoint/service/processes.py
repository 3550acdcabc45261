"""The processes of one service: each answers for all of them.

A process listens on a socket in a directory that only its user may enter. It is asked in JSON about its queries and
metrics, and to cancel a query. Without a directory, there is only one process.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from needlepoint.lake import Lake
from needlepoint.service.metrics import Metrics, sum_of
from needlepoint.service.worker import Worker

_PATIENCE = 2.0  # seconds for the answer of another process


class Processes:
    def __init__(self, lake: Lake, worker: Worker, metrics: Metrics, sockets: str | None) -> None:
        self._lake = lake
        self._worker = worker
        self._metrics = metrics
        self._directory = None if sockets is None else Path(sockets)
        if self._directory is not None:
            self._own = self._directory / str(os.getpid())
            self._listener = Listener(str(self._own), "AF_UNIX")
            threading.Thread(target=self._listen, daemon=True, name="needlepoint-processes").start()

    def queries(self, user: str) -> list[dict[str, Any]]:
        """The running queries of a user."""
        return [query for each in self._ask("queries", user=user) for query in each]

    def cancel(self, user: str, query_id: str) -> bool:
        """Whether such a query of this user runs, and is now cancelled."""
        return any(list(self._ask("cancel", user=user, query_id=query_id)))

    def metrics(self) -> bytes:
        return sum_of(list(self._ask("metrics")))

    def close(self) -> None:
        if self._directory is not None:
            self._own.unlink(missing_ok=True)
            self._listener.close()

    def _ask(self, what: str, **given: str) -> Iterable[Any]:
        """The answer of each process, this one first."""
        yield self._answer({"what": what, **given})
        if self._directory is None:
            return
        for socket in sorted(self._directory.iterdir()):
            # A process that was killed leaves its socket, and one that ends does not answer.
            with suppress(OSError, EOFError, ValueError):
                if socket != self._own:
                    with Client(str(socket), "AF_UNIX") as connection:
                        connection.send_bytes(json.dumps({"what": what, **given}).encode())
                        if connection.poll(_PATIENCE):
                            yield json.loads(connection.recv_bytes())

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
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                if not self._own.exists():
                    return  # closed
                time.sleep(0.05)  # the other side went away, or there are too many open files
                continue
            threading.Thread(target=self._reply, args=(connection,), daemon=True).start()

    def _reply(self, connection: Connection) -> None:
        with connection, suppress(OSError, EOFError):
            connection.send_bytes(json.dumps(self._answer(json.loads(connection.recv_bytes()))).encode())
