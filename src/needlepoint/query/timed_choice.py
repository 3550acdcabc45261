"""Of two ways to run a query, the one that took less time.

Where no estimate tells two ways apart well, a query that runs again tries both, and then keeps the faster:

>>> choice = TimedChoice(worth_seconds=0.02)
>>> for seconds in (0.9, 0.4, 0.5, 0.3):  # the first run of each is often slower, because caches are empty
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
TRIES = 2
# A run that makes a session of DataFusion and reads footers takes this much more, once.
START_SECONDS, MUCH_SLOWER = 0.2, 3.0
# Other work on the machine may slow down two tries: a choice that is slower by less than this factor gets others, fewer
# and fewer of them.
CLOSE = 2.0


@dataclass(slots=True)
class _Tried:
    """How often a query ran with either choice, and the least seconds."""

    first: bool
    runs: dict[bool, int] = field(default_factory=dict)
    best: dict[bool, float] = field(default_factory=dict)

    def next(self, worth_seconds: float) -> bool:
        """The first choice, the other, both again, then the faster. A try that is much slower is not repeated."""
        other = not self.first
        if self.first not in self.best:
            return self.first
        if other not in self.best:
            return other if self.best[self.first] >= worth_seconds else self.first
        if self.runs[self.first] < TRIES:
            return self.first
        near = self.best[other] <= MUCH_SLOWER * self.best[self.first] + START_SECONDS
        if self.runs[other] < TRIES and near:
            return other
        faster = self.best[True] <= self.best[False]
        return not faster if self._is_doubtful(faster) else faster

    def _is_doubtful(self, faster: bool) -> bool:
        """Whether to try the slower choice again: after 8, 16, 32 … runs of the faster."""
        slower = not faster
        is_close = self.best[slower] <= CLOSE * self.best[faster]
        return is_close and self.runs[faster].bit_length() > self.runs[slower] + 1


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
            tried.runs[chosen] = tried.runs.get(chosen, 0) + 1
            while len(self._tried) >= MOST_KEYS:
                self._tried.pop(next(iter(self._tried)))
            self._tried[hash(key)] = tried
