"""Runs queries in threads, and refuses more than can wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from needlepoint.service.problems import RequestProblem

Answer = TypeVar("Answer")

RETRY_AFTER = 1  # seconds


class Worker:
    """A query takes one place from its beginning until its last row is sent."""

    def __init__(self, threads: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="needlepoint-query")
        self._places = threads + waiting
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """Queries that run or wait."""
        return self._taken

    def enter(self) -> None:
        with self._lock:
            if self._taken >= self._places:
                raise RequestProblem(
                    429,
                    "too many queries are waiting.",
                    hint="Try again in a moment.",
                    headers={"Retry-After": str(RETRY_AFTER)},
                )
            self._taken += 1

    def leave(self) -> None:
        with self._lock:
            self._taken -= 1

    async def run(self, function: Callable[[], Answer]) -> Answer:
        """Call a function in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def submit(self, function: Callable[[], Answer]) -> Future[Answer]:
        return self._threads.submit(function)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
