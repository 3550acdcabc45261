"""Loading very many rows into memory without garbage collections.

A hundred thousand new objects start collection after collection, which look at all objects and find nothing: half the
time of loading the files of a table.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_loading = 0
_was_enabled = False


@contextmanager
def without_collections() -> Iterator[None]:
    """Collections wait until the last thread that loads rows is done."""
    global _loading, _was_enabled
    with _lock:
        if not _loading:
            _was_enabled = gc.isenabled()
            gc.disable()
        _loading += 1
    try:
        yield
    finally:
        with _lock:
            _loading -= 1
            if not _loading and _was_enabled:
                gc.enable()
