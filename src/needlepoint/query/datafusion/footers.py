"""Which footers DataFusion may cache.

Its cache key is path, size and modification second. If a file is replaced by one of the same size within a second, or
with the same modification time, DataFusion would read it with the old footer: rows are lost, or bytes misread. So this
module records the scanned files for all contexts of the process. Files that were replaced in this way are scanned in
contexts without a footer cache.
"""

from __future__ import annotations

from collections.abc import Iterable

from needlepoint.objects import Identity
from needlepoint.query.scan.scan_plan import ScanPlan

_scanned: dict[str, Identity] = {}
_replaced: set[str] = set()


def are_stale(scans: Iterable[ScanPlan]) -> bool:
    """Whether DataFusion may have a cached footer of an older version; call this before each scan."""
    stale = False
    for scan in scans:
        for file in () if scan.remote else scan.scanned:
            path, now = scan.path(file), file.identity
            before = _scanned.setdefault(path, now)
            if before is not now and before != now:
                _scanned[path] = now
                if before.size == now.size and before.mtime_ns // 10**9 == now.mtime_ns // 10**9:
                    _replaced.add(path)
            stale = stale or path in _replaced
    return stale
