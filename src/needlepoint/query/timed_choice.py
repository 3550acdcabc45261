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
# A way that was tried so often, in queries that were cancelled or failed, is not tried any more.
UNENDED = 3
# A run that makes a session of DataFusion and reads footers takes this much more, once.
START_SECONDS, MUCH_SLOWER = 0.2, 3.0
# The slower choice is tried again when the faster one took so many times its time, and then twice as many: it may have
# been tried when nothing was decoded yet, or beside other work. And what the faster one took is forgotten slowly.
FIRST_WAIT, FORGETTING = 10.0, 1.05


@dataclass(slots=True)
class _Tried:
    """How often a query ran with either choice, and the least seconds of late. `spent` is the time of the faster choice
    since the other was tried; `unended` counts the tries of the slower one that have no time."""

    first: bool
    runs: dict[bool, int] = field(default_factory=dict)
    seconds: dict[bool, float] = field(default_factory=dict)
    spent: float = 0.0
    wait: float = FIRST_WAIT
    unended: int = 0

    def next(self, worth_seconds: float) -> bool:
        """The best so far, or a try of another, unless its last tries have no time."""
        chosen, best = self._try(worth_seconds), self._best()
        if chosen is best or self.unended >= UNENDED:
            return best
        self.unended += 1
        return chosen

    def _try(self, worth_seconds: float) -> bool:
        """The first choice, the other, both again, then the faster. A try that is much slower is not repeated soon."""
        other, seconds = not self.first, self.seconds
        if self.first not in seconds:
            return self.first
        if other not in seconds:
            return other if seconds[self.first] >= worth_seconds else self.first
        if self.runs[self.first] < TRIES:
            return self.first
        near = seconds[other] <= MUCH_SLOWER * seconds[self.first] + START_SECONDS
        if self.runs[other] < TRIES and near:
            return other
        faster = self._best()
        return not faster if self.spent > self.wait * seconds[not faster] else faster

    def is_settled(self, worth_seconds: float) -> bool:
        """Whether the next run makes the same choice as this one, and probably many others."""
        if self.first not in self.seconds or self._try(worth_seconds) is not self._best():
            return False
        return len(self.seconds) == 2 or self.seconds[self.first] < worth_seconds

    def _best(self) -> bool:
        return self.seconds[True] <= self.seconds[False] if len(self.seconds) == 2 else self.first

    def note(self, chosen: bool, seconds: float) -> None:
        if chosen is not self._best():
            self.unended = 0
        if len(self.seconds) == 2 and chosen is self._best():
            self.spent += seconds
        elif self.spent:
            self.spent, self.wait = 0.0, 2 * self.wait
        self.seconds[chosen] = min(seconds, FORGETTING * self.seconds.get(chosen, seconds))
        self.runs[chosen] = self.runs.get(chosen, 0) + 1


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

    def is_settled(self, key: Hashable) -> bool:
        """Whether a query makes the choice that it will make in many runs."""
        with self._lock:
            tried = self._tried.get(hash(key))
            return tried is not None and tried.is_settled(self._worth_seconds)

    def note(self, key: Hashable, chosen: bool, seconds: float) -> None:
        with self._lock:
            tried = self._tried.pop(hash(key), None) or _Tried(chosen)
            tried.note(chosen, seconds)
            while len(self._tried) >= MOST_KEYS:
                self._tried.pop(next(iter(self._tried)))
            self._tried[hash(key)] = tried
