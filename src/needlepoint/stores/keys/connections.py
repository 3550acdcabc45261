"""Connections to one database: each thread borrows one, and gives it back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from needlepoint import forks

MOST_IDLE = 8


class ConnectionPool:
    """A connection that was lent to something that failed is closed, not used again."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened them: see forks.py. To close one would end it for the parent too."""
        for connection in self._idle:
            forks.leak(connection)
        self._idle, self._lock = [], threading.Lock()

    @contextmanager
    def lent(self) -> Iterator[Any]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._connect()
        try:
            yield connection
        except BaseException:
            with suppress(Exception):
                connection.close()
            self._drop_idle()  # they were probably lost too
            raise
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(Exception):
                connection.close()

    def close(self) -> None:
        self._drop_idle()
