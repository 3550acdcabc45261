"""One version of a local file, held open: it stays readable when the file is replaced or deleted."""

from __future__ import annotations

import functools
import os

from needlepoint.objects.base import Identity
from needlepoint.objects.local import LocalFile

# On Linux these paths open the file of a descriptor again, even after it was unlinked. On other systems /dev/fd only
# duplicates the descriptor, so two readers share one position.
DESCRIPTORS = "/proc/self/fd"


class HeldFile(LocalFile):
    """Open until `close`. Its identity stays what it was when it was opened, unless its bytes are changed in place."""

    __slots__ = ("_opened_as",)

    def __init__(self, path: str) -> None:
        self._opened_as: Identity | None = None
        super().__init__(path)

    def current(self) -> Identity:
        """Unlinking changes the ctime but not the bytes: only size and modification time are compared."""
        now, then = super().current(), self._opened_as
        if then is None:
            self._opened_as = then = now
        return then if (now.size, now.mtime_ns) == (then.size, then.mtime_ns) else now

    def view(self) -> LocalFile:
        """A reader with counters of its own; closing it leaves the file open."""
        return _View(self)

    def reopenable(self) -> str | None:
        """A path that opens this version again in this process; None where the system has none."""
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
    """Whether a path of a descriptor opens the file again, with its own position, even after it was unlinked."""
    if not descriptors.startswith("/proc/"):
        return False
    try:
        with open(__file__, "rb") as known, open(f"{descriptors}/{known.fileno()}", "rb") as again:
            return os.path.samestat(os.fstat(known.fileno()), os.fstat(again.fileno()))
    except OSError:
        return False
