"""Which footers DataFusion may cache.

Its cache key is path, size and modification second. If a file is replaced by one of the same size within a second, or
with the same modification time, DataFusion would read it with the old footer: rows are lost, or bytes misread. So this
module records the scanned files for all contexts of the process. Files that were replaced in this way are scanned in
contexts without a footer cache.

The record has a limit. Beyond it, all is forgotten and a new generation begins, with new contexts (`session.Contexts`),
which have no cached footers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from needlepoint import forks
from needlepoint.objects import Identity
from needlepoint.query.scan.scan_plan import ScanPlan

# Some 50 MB. DataFusion caches 50 MB of footers for each context, which are fewer files.
MOST_FILES = 100_000


_scanned: dict[str, Identity] = {}
_replaced: set[str] = set()
_generation = 0
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class FooterUse:
    """Whether DataFusion may have a cached footer of an older version; and the generation of contexts to use if not."""

    stale: bool
    generation: int


def record(scans: Iterable[ScanPlan]) -> FooterUse:
    """Call this before each scan of files whose footers may be cached."""
    global _generation
    with _lock:
        if len(_scanned) > MOST_FILES:
            _scanned.clear()
            _replaced.clear()
            _generation += 1
        # All of them, since this records them.
        stale = [_is_stale(scan.path(file), file.identity) for scan in scans for file in scan.scanned]
        return FooterUse(any(stale), _generation)


def _is_stale(path: str, now: Identity) -> bool:
    before = _scanned.setdefault(path, now)
    if before is not now and before != now:
        _scanned[path] = now
        if before.size == now.size and before.mtime_ns // 10**9 == now.mtime_ns // 10**9:
            _replaced.add(path)
    return path in _replaced


def _renew_lock() -> None:
    """Another thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


forks.reset(_renew_lock)
