"""Batches of a running query, from all partitions at once, in bounded memory.

DataFusion's blocking calls cannot be stopped from another thread, its asynchronous ones can. So one event loop, in a
thread of its own, awaits the batches of all partitions of all queries; the thread of a query waits for them here.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import datafusion
import pyarrow as pa

from needlepoint import forks
from needlepoint.query.running import RunningQuery

# Bytes that wait to be read. A result up to this size is complete before anything of it is returned.
ROOM = 32 << 20


class BatchStream:
    """`first` and `next` raise what DataFusion raises, and QueryCancelled or LimitExceeded. `close` ends the query."""

    def __init__(self, frame: datafusion.DataFrame, running: RunningQuery, room: int = ROOM) -> None:
        self._running = running
        self.limits = running.limits
        self.has_ended = False
        self._room = room
        self._waiting: deque[tuple[int, pa.RecordBatch]] = deque()
        self._bytes = self._rows = 0
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._loop = _loop()
        self._has_room = asyncio.Event()
        streams = frame.execute_stream_partitioned()
        self._pulling = len(streams)
        running.on_cancel(self._wake)
        self._tasks = [self._start(self._pull(number, stream)) for number, stream in enumerate(streams)]

    def first(self) -> list[pa.RecordBatch]:
        """All batches, in the order of partitions; or those of a larger result that arrived first."""
        self._wait(lambda: not self._pulling or self._bytes >= self._room)
        with self._changed:
            self.has_ended = not self._pulling
            found = sorted(self._waiting, key=lambda each: each[0]) if self.has_ended else [*self._waiting]
            self._taken(len(found))
        return [batch for _, batch in found]

    def next(self) -> pa.RecordBatch | None:
        """The next batch; None at the end."""
        self._wait(lambda: not self._pulling or bool(self._waiting))
        with self._changed:
            if not self._waiting:
                self.has_ended = True
                return None
            batch = self._waiting[0][1]
            self._taken(1)
        return batch

    def close(self) -> None:
        """Stop what is still running."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        with self._changed:
            self._waiting.clear()

    # In the thread of the query

    def _wait(self, ready: Callable[[], bool]) -> None:
        with self._changed:
            while self._failure is None and not ready():
                self._running.check()
                self._changed.wait(self._running.left())
        self._running.check()
        if self._failure is not None:
            raise self._failure

    def _taken(self, batches: int) -> None:
        was_full = self._bytes >= self._room
        for _ in range(batches):
            self._bytes -= self._waiting.popleft()[1].nbytes
        if was_full and self._bytes < self._room:
            self._loop.call_soon_threadsafe(self._has_room.set)

    def _start(self, pulling: Coroutine[Any, Any, None]) -> Any:
        return asyncio.run_coroutine_threadsafe(pulling, self._loop)

    # In the event loop

    async def _pull(self, number: int, stream: Any) -> None:
        try:
            async for found in stream:
                await self._put(number, found.to_pyarrow())
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # DataFusion panics, which is not an Exception
            self._failure = self._failure or error
        finally:
            self._pulling -= 1
            self._wake()

    async def _put(self, number: int, batch: pa.RecordBatch) -> None:
        with self._changed:
            self._rows += batch.num_rows
            self.limits.check_rows(self._rows)
            self._waiting.append((number, batch))
            self._bytes += batch.nbytes
            self._changed.notify_all()
        while self._bytes >= self._room:
            self._has_room.clear()
            await self._has_room.wait()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="needlepoint-batches", daemon=True).start()
    return loop


forks.reset(_loop.cache_clear)
