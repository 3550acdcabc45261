"""Batches of a running query, in bounded memory.

DataFusion's blocking calls cannot be stopped from another thread, its asynchronous ones can. So one event loop, in a
thread of its own, awaits the batches of all queries; the thread of a query waits for them here.

DataFusion itself merges the partitions of a query, and starts all of them at once. Awaiting them one by one would be in
order, but a partition of a hash join waits forever for another one that ended before it began: both report what their
build sides have, for the filter that the join makes for its other side.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Set

import datafusion
import pyarrow as pa

from needlepoint import forks
from needlepoint.errors import QueryCancelled
from needlepoint.query.datafusion.native_scan import without_views
from needlepoint.query.datafusion.session import more_threads
from needlepoint.query.row_stream import ROOM
from needlepoint.query.running import RunningQuery

# Seconds that the end of the process waits: for queries to end, and for threads of DataFusion to leave Python.
_LONGEST_END, _LONGEST_IN_PYTHON = 5.0, 1.0


class BatchStream:
    """`first` and `next` raise what DataFusion raises, and QueryCancelled or LimitExceeded. `close` ends the query."""

    def __init__(self, frame: datafusion.DataFrame, running: RunningQuery, room: int = ROOM) -> None:
        self._running = running
        self.limits = running.limits
        self.has_ended = False
        self._room = room
        self._waiting: deque[pa.RecordBatch] = deque()
        self._bytes = self._rows = 0
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._loop = _loop()
        self._has_room = asyncio.Event()
        self._is_pulling = True
        self._is_first = True
        running.on_cancel(self._wake)
        self._task = asyncio.run_coroutine_threadsafe(self._pull(frame.execute_stream()), self._loop)

    def first(self) -> list[pa.RecordBatch]:
        """All batches, or those of a larger result that arrived first."""
        with self._changed:
            self._wait(lambda: not self._is_pulling or self._bytes >= self._room)
            self._is_first = False
            self.has_ended = not self._is_pulling
            found = [*self._waiting]
            self._taken(len(found))
        return found

    def next(self) -> pa.RecordBatch | None:
        """The next batch; None at the end."""
        with self._changed:
            self._wait(lambda: not self._is_pulling or bool(self._waiting))
            if not self._waiting:
                self.has_ended = True
                return None
            batch = self._waiting[0]
            self._taken(1)
        return batch

    def close(self) -> None:
        """Stop what is still running. A thread that waits for a batch, or asks for another one, gets QueryCancelled."""
        self._task.cancel()
        with self._changed:
            self._failure = self._failure or _closed()
            self._waiting.clear()
            self._changed.notify_all()

    # In the thread of the query

    def _wait(self, ready: Callable[[], bool]) -> None:
        """With the lock: nothing changes between the end of it and what follows."""
        while self._failure is None and not ready():
            self._running.check()
            self._changed.wait(self._running.left())
        self._running.check()
        if self._failure is not None:
            raise self._failure

    def _taken(self, batches: int) -> None:
        was_full = self._bytes >= self._room
        for _ in range(batches):
            self._bytes -= self._waiting.popleft().nbytes
        if was_full and self._bytes < self._room:
            self._loop.call_soon_threadsafe(self._has_room.set)

    # In the event loop

    async def _pull(self, stream: datafusion.RecordBatchStream) -> None:
        try:
            async for found in stream:
                await self._put(_without_views(found.to_pyarrow()))
        except asyncio.CancelledError:
            # Not raised: a task that ends with an exception keeps the stream, and DataFusion goes on.
            self._failure = _closed()
        except BaseException as error:  # DataFusion panics, which is not an Exception
            self._failure = error
        finally:
            self._is_pulling = False
            self._wake()

    async def _put(self, batch: pa.RecordBatch) -> None:
        with self._changed:
            self._rows += batch.num_rows
            self.limits.check_rows(self._rows)
            self._waiting.append(batch)
            self._bytes += batch.nbytes
            # `first` waits for all batches: to wake its thread for each takes longer than a small batch.
            if not self._is_first or self._bytes >= self._room:
                self._changed.notify_all()
        while self._bytes >= self._room:
            self._has_room.clear()
            await self._has_room.wait()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _closed() -> QueryCancelled:
    return QueryCancelled("the result was closed before all of its rows were read.")


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with texts of its own. Views of a few rows refer to all texts of their pages: they would keep and count
    the bytes of whole files."""
    schema = without_views(batch.schema)
    return batch if schema == batch.schema else batch.cast(schema)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="needlepoint-batches", daemon=True)
    atexit.register(_end, loop, thread, _foreign_threads())
    thread.start()
    with more_threads():
        asyncio.run_coroutine_threadsafe(_start_threads(), loop).result()
    return loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, others: Set[int]) -> None:
    """End all queries, before Python ends. Later, a thread that has a lock keeps it for ever, and one of DataFusion
    that brought the last batch and is still in Python aborts the process. `others` are foreign threads of other
    libraries."""
    if not thread.is_alive():  # in a child of `fork`
        return
    _loop.cache_clear()
    with contextlib.suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(_LONGEST_END)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_LONGEST_END)
    deadline = time.monotonic() + _LONGEST_IN_PYTHON
    while _foreign_threads() - others and time.monotonic() < deadline:
        time.sleep(0.001)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _foreign_threads() -> set[int]:
    """Threads that Python did not start and that are in Python now, but this one."""
    own = {each.ident for each in threading.enumerate() if not isinstance(each, threading._DummyThread)}
    return sys._current_frames().keys() - own - {threading.get_ident()}


async def _start_threads() -> None:
    """Asynchronous calls have threads of their own, which start with the first."""
    async for _ in datafusion.SessionContext().sql("SELECT 1").execute_stream():
        pass


forks.reset(_loop.cache_clear)
