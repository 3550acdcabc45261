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


class Place:
    """A query has one from its beginning until its last row is sent. Leaving it again does nothing."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self.is_left = False
        self._lock = threading.Lock()

    def leave(self) -> None:
        with self._lock:
            was_left, self.is_left = self.is_left, True
        if not was_left:
            self._leave()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Worker:
    def __init__(self, threads: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="needlepoint-query")
        self._places = threads + waiting
        self._taken = 0
        self._owners: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """Queries that run or wait."""
        return self._taken

    def enter(self, query_id: str = "", user: str = "") -> Place:
        """Take a place, for a query of this user if it has an id. Nobody can take the id of a query that runs, not even
        to become the owner of it."""
        with self._lock:
            if query_id in self._owners:
                raise RequestProblem(
                    409, f"a query with the id '{query_id}' is running.", hint="Choose another id, or none."
                )
            if self._taken >= self._places:
                raise RequestProblem(
                    429,
                    "too many queries are waiting.",
                    hint="Try again in a moment.",
                    headers={"Retry-After": str(RETRY_AFTER)},
                )
            self._taken += 1
            if query_id:
                self._owners[query_id] = user
        return Place(lambda: self._leave(query_id))

    def _leave(self, query_id: str) -> None:
        with self._lock:
            self._taken -= 1
            self._owners.pop(query_id, None)

    def owner(self, query_id: str) -> str | None:
        """Who runs a query; None if it does not run."""
        return self._owners.get(query_id)

    async def run(self, function: Callable[[], Answer]) -> Answer:
        """Call a function in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def submit(self, function: Callable[[], Answer]) -> Future[Answer]:
        return self._threads.submit(function)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
