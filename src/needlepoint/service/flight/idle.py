"""Streams whose clients read nothing for too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from needlepoint.errors import QueryCancelled
from needlepoint.service.logs import log_failure


class IdleStreams:
    """Gives up streams that wait for their client for more than `seconds`; 0 means none."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[object, tuple[float, Callable[[], None]]] = {}
        self._closed = threading.Event()
        if seconds:
            threading.Thread(target=self._watch, daemon=True, name="needlepoint-flight-idle").start()

    @contextmanager
    def waits(self, give_up: Callable[[], None]) -> Iterator[None]:
        """A stream waits for its client in this block. QueryCancelled if it was given up meanwhile."""
        key = object()
        self._waiting[key] = (time.monotonic() + self._seconds, give_up)
        try:
            yield
        finally:
            is_waiting = self._waiting.pop(key, None) is not None
        if not is_waiting:
            raise QueryCancelled(
                f"the client read nothing for {self._seconds:g} seconds.", hint="Read the rows without long pauses."
            )

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(min(1.0, self._seconds / 4)):
            now = time.monotonic()
            for key, (deadline, give_up) in list(self._waiting.items()):
                if deadline < now and self._waiting.pop(key, None) is not None:
                    try:
                        give_up()
                    except Exception as error:  # the others still wait
                        log_failure("", error)
