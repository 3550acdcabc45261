"""Queries that run: what each may take, and how to stop one.

A query is registered while it runs, and while the rest of a large result waits to be read. It checks its limits between
its steps, for every few files that are read by page, and for every batch that DataFusion returns. So a query that is
stopped ends within moments; only a join that multiplies its inputs keeps DataFusion busy for some seconds after that.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from needlepoint.errors import LimitExceeded, QueryCancelled, UsageError
from needlepoint.printable import count, size_text
from needlepoint.query.sql.tokens import without_values

_log = logging.getLogger("needlepoint")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may take; 0 means no limit.

    seconds   of work; the time in which a large result waits to be read does not count
    rows      of the result
    memory    bytes that sorts, joins, groups and pages hold; sorts and groups spill to disk before
    tables    that it may read; None means all. A view over another table does not exist for it, like that table
    """

    seconds: float = 0.0
    rows: int = 0
    memory: int = 0
    tables: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if min(self.seconds, self.rows, self.memory) < 0:
            raise UsageError("a limit of a query is negative.", hint="0 means no limit.")

    def check_rows(self, rows: int) -> None:
        if 0 < self.rows < rows:
            raise LimitExceeded(
                f"the result has more than {count(self.rows, 'row')}.",
                hint="Add LIMIT or a condition, or allow more rows.",
            )

    def check_memory(self, found: int) -> None:
        if 0 < self.memory < found:
            raise self.out_of_memory()

    def out_of_memory(self) -> OutOfMemory:
        return OutOfMemory(
            f"the query needs more than {size_text(self.memory)} of memory.",
            hint="Select fewer columns or rows, or allow more memory.",
        )


class OutOfMemory(LimitExceeded):
    """DataFusion needs more memory than it may. In one partition it often needs less: the query is retried so."""


class RunningQuery:
    """A query that runs, or whose rows are being read. `cancel` stops it, from any thread."""

    def __init__(self, id: str, query: str, limits: Limits) -> None:
        self.id = id
        self.query = query
        self.limits = limits
        self.started = time.time()
        self.is_kept = False  # by a result that is not read to its end
        self.is_noted = True  # in the history of queries
        self._began = time.monotonic()
        self._idle = 0.0  # seconds
        self._cancelled = False
        self._wake: Callable[[], None] | None = None

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def cancel(self) -> None:
        """End the query: the thread that runs it gets a QueryCancelled."""
        self._cancelled = True
        wake = self._wake
        if wake is not None:
            wake()

    def check(self) -> None:
        """Raise if the query is cancelled or ran for too long."""
        if self._cancelled:
            raise QueryCancelled(f"the query was cancelled after {self.seconds:.1f} seconds.")
        if self.left() == 0:
            raise LimitExceeded(
                f"the query ran for more than {self.limits.seconds:g} seconds.",
                hint="Add a condition or an index, or allow more time.",
            )

    def left(self) -> float | None:
        """The seconds that it may still work; None without a limit."""
        if not self.limits.seconds:
            return None
        return max(0.0, self.limits.seconds - (self.seconds - self._idle))

    def on_cancel(self, wake: Callable[[], None]) -> None:
        """Call this when the query is cancelled: for a thread that waits."""
        self._wake = wake

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time in this block does not count as work: its rows wait to be read."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._idle += time.monotonic() - began

    def __repr__(self) -> str:
        return f"RunningQuery({self.id!r}, {self.seconds:.1f} seconds: {' '.join(self.query.split())[:80]})"


class RunningQueries:
    """The queries of one lake in this process. Those that take `slow` seconds or more are warned of in the log, others
    are in it for `--verbose`; both without their values."""

    def __init__(self, slow: float = 0.0) -> None:
        self._slow = slow
        self._running: dict[str, RunningQuery] = {}
        self._lock = threading.Lock()

    def begin(self, query: str, limits: Limits, id: str = "") -> RunningQuery:
        running = RunningQuery(id or uuid.uuid4().hex[:12], query, limits)
        with self._lock:
            if running.id in self._running:
                raise UsageError(f"a query with the id '{running.id}' is running.", hint="Choose another id, or none.")
            self._running[running.id] = running
        return running

    def end(self, running: RunningQuery) -> None:
        with self._lock:
            self._running.pop(running.id, None)
        if 0 < self._slow <= running.seconds:
            _log.warning("a query took %.1f seconds: %s", running.seconds, without_values(running.query))
        elif _log.isEnabledFor(logging.INFO):
            _log.info("a query took %.1f ms: %s", running.seconds * 1000, without_values(running.query))

    def cancel(self, id: str) -> bool:
        """Whether there was such a query to cancel."""
        with self._lock:
            found = self._running.get(id)
        if found is not None:
            found.cancel()
        return found is not None

    def all(self) -> list[RunningQuery]:
        """The oldest first."""
        with self._lock:
            return list(self._running.values())
