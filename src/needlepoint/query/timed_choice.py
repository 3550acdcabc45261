"""Of two ways to run a query, the one that took less time.

Where no estimate tells two ways apart well, a query that runs again tries both, and then keeps the faster:

>>> choice = TimedChoice(worth_seconds=0.02)
>>> for seconds in (0.9, 0.3, 0.5):  # the first run is often slower, because caches are empty
...     chosen = choice.choose("SELECT …", first=False)
...     choice.note("SELECT …", chosen, seconds)
>>> choice.choose("SELECT …", first=False)
True
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field

MOST_KEYS = 1000


@dataclass(slots=True)
class _Tried:
    """How often a query ran, and the least seconds with either choice."""

    first: bool
    runs: int = 0
    best: dict[bool, float] = field(default_factory=dict)

    def next(self, worth_seconds: float) -> bool:
        if len(self.best) == 2:
            return self.first if self.runs < 3 else self.best[True] <= self.best[False]
        is_slow = min(self.best.values(), default=0.0) >= worth_seconds
        return not self.first if is_slow and self.first in self.best else self.first


class TimedChoice:
    """The choices of one lake in this process, by a key for queries of the same form. Those that take less than
    `worth_seconds` are not worth a second try."""

    def __init__(self, worth_seconds: float) -> None:
        self._worth_seconds = worth_seconds
        self._tried: dict[int, _Tried] = {}
        self._lock = threading.Lock()

    def choose(self, key: Hashable, first: bool) -> bool:
        """The choice for a query; `first` if it did not run yet."""
        with self._lock:
            tried = self._tried.get(hash(key))
            return first if tried is None else tried.next(self._worth_seconds)

    def note(self, key: Hashable, chosen: bool, seconds: float) -> None:
        with self._lock:
            tried = self._tried.pop(hash(key), None) or _Tried(chosen)
            tried.best[chosen] = min(seconds, tried.best.get(chosen, seconds))
            tried.runs += 1
            while len(self._tried) >= MOST_KEYS:
                self._tried.pop(next(iter(self._tried)))
            self._tried[hash(key)] = tried
