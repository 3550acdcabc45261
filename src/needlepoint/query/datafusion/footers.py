"""Which footers DataFusion may remember.

It knows a footer again by path, size and second of modification. A file that was replaced by one of the same size
within a second, or with its modification time kept, would be read with the footer of the old one: rows are lost, or
bytes are taken for what they are not. So the files that are scanned are noted, for all contexts of the process, and
those that were replaced in this way are scanned in contexts that remember nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from needlepoint.objects import Identity
from needlepoint.query.scan.scan_plan import ScanPlan

_scanned: dict[str, Identity] = {}
_replaced: set[str] = set()


def are_stale(scans: Iterable[ScanPlan]) -> bool:
    """Whether a footer that DataFusion can remember is not that of the file; to be asked before each scan."""
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
