"""One version of a local file, held open: it stays readable when the file is replaced or deleted."""

from __future__ import annotations

import functools
import os

from needlepoint.objects.base import Identity
from needlepoint.objects.local import LocalFile

# On Linux each of these paths opens the file behind a descriptor once more, whatever became of its name. /dev/fd of
# other systems only duplicates the descriptor, so that two readers share, and move, one position.
DESCRIPTORS = "/proc/self/fd"


class HeldFile(LocalFile):
    """Open until `close`. Its identity stays what it was when it was opened, unless its bytes are changed in place."""

    __slots__ = ("_opened_as",)

    def __init__(self, path: str) -> None:
        self._opened_as: Identity | None = None
        super().__init__(path)

    def current(self) -> Identity:
        """Taking away its name is a change of the file, too, but not of its bytes: only these count here."""
        now, then = super().current(), self._opened_as
        if then is None:
            self._opened_as = then = now
        return then if (now.size, now.mtime_ns) == (then.size, then.mtime_ns) else now

    def view(self) -> LocalFile:
        """To read from: counts by itself, and leaves the file open when it is closed."""
        return _View(self)

    def reopenable(self) -> str | None:
        """A path by which others open this version in this process; None where the system has none."""
        return f"{DESCRIPTORS}/{self.descriptor}" if _can_reopen(DESCRIPTORS) else None


class _View(LocalFile):
    __slots__ = ("_held",)

    def __init__(self, held: HeldFile) -> None:
        self._held = held
        self.path = held.path
        self.descriptor = held.descriptor
        self.identity = held.identity
        self.requests = 0
        self.bytes_requested = 0

    def current(self) -> Identity:
        return self._held.current()

    def close(self) -> None:
        self.descriptor = -1


@functools.cache
def _can_reopen(descriptors: str) -> bool:
    """Whether paths of open files open them anew, with a position of their own, also after they lost their name."""
    if not descriptors.startswith("/proc/"):
        return False
    try:
        with open(__file__, "rb") as known, open(f"{descriptors}/{known.fileno()}", "rb") as again:
            return os.path.samestat(os.fstat(known.fileno()), os.fstat(again.fileno()))
    except OSError:
        return False
