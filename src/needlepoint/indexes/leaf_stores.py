"""Key indexes in the lake itself: one directory of leaf files per index id, below the lake's root.

Any machine that reads the lake reads them; `keys = "lake:"`, or `WITH (store = 'lake:')`, puts new indexes there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from needlepoint.errors import NeedlepointError
from needlepoint.objects import is_url
from needlepoint.stores import BLOCK_BYTES, IN_LAKE

if TYPE_CHECKING:
    from needlepoint.stores.leaf_files import LeafCache, LeafKeyStore

LEAF_FILES = "lake:"
"""The store of an index that is in leaf files in the lake."""
_KEYS = "keys"
_log = logging.getLogger("needlepoint")
_ANY_WIDTH = 8  # of a store that is destroyed or swept, and never searched

# Of the keys of texts: their first 8 bytes, and 30 bits of the hash. Of a hundred million texts that begin alike, each
# tenth lookup reads a row too many. The bits are few enough that most keys are numbers of 64 bits
# (stores/leaf_files/key_form.py).
_KEY_BITS = {16: 94}


def leaf_key_bits(key_bytes: int) -> int:
    """How many bits of keys with so many bytes are kept in leaf files. A query evaluates its predicate again on rows
    that it reads, so those of another key do no harm."""
    return _KEY_BITS.get(key_bytes, 8 * key_bytes)


class LeafStores:
    """`root` is that of the lake; `cache` keeps parts of objects on the local disk. A `registry` is named by its
    identity: the ids of its indexes and files mean nothing to another one over the same lake."""

    def __init__(self, root: Path | str, cache: LeafCache | None = None) -> None:
        self._location = f"{str(root).rstrip('/')}/{IN_LAKE}/{_KEYS}"
        self._cache = cache

    @classmethod
    def cached(cls, root: Path | str, directory: Path, limit: int) -> LeafStores:
        """Those of a lake in a bucket keep up to `limit` bytes of what they read in the directory."""
        if not is_url(str(root)):
            return cls(root)
        from needlepoint.stores.leaf_files import LeafCache

        return cls(root, LeafCache(directory, limit))

    def store(self, registry: str, index_id: int, key_bytes: int, block_bytes: int = BLOCK_BYTES) -> LeafKeyStore:
        from needlepoint.stores.leaf_files import LeafKeyStore  # most lakes have none

        location, bits = f"{self._location}/{registry}/{index_id}", leaf_key_bits(key_bytes)
        return LeafKeyStore(location, key_bytes, self._cache, block_bytes, bits)

    def ids(self, registry: str) -> dict[int, float]:
        """The indexes that have something here, with the seconds since the last write to each."""
        return ages_below(f"{self._location}/{registry}")

    def destroy(self, registry: str, index_id: int) -> None:
        """Remove the store of an index; a sweep does it later if that fails now."""
        try:
            self.store(registry, index_id, _ANY_WIDTH).destroy()
        except NeedlepointError as error:
            _log.warning("index %d stays in the lake until a sweep: %s", index_id, error)

    def sweep(self, registry: str, index_id: int, key_bytes: int, grace: float) -> int:
        """Delete leaf files that no reader needs; see LeafKeyStore.sweep."""
        try:
            return self.store(registry, index_id, key_bytes).sweep(grace)
        except NeedlepointError:
            return 0  # a damaged store: queries name it


def ages_below(location: str) -> dict[int, float]:
    """The indexes that have a directory here, with the seconds since the last write to each."""
    now, newest = time.time(), dict[int, float]()
    try:
        for name, written in _written(location):
            if name.isdecimal():
                newest[int(name)] = max(written, newest.get(int(name), written))
    except (NeedlepointError, OSError) as error:
        _log.info("%s", error)
    return {index_id: now - written for index_id, written in newest.items()}


def _written(location: str) -> Iterator[tuple[str, float]]:
    """The first name below a location, and the time, of each file that is there."""
    if is_url(location):
        from needlepoint.objects.remote import list_objects

        for name, identity in list_objects(location):
            yield name.partition("/")[0], identity.mtime_ns / 1e9
        return
    for directory, _, names in os.walk(location):
        first = Path(directory).relative_to(location).parts[:1]
        for name in names if first else ():
            with contextlib.suppress(FileNotFoundError):  # a hidden file of a writer
                yield first[0], os.stat(Path(directory) / name).st_ctime  # noqa: PTH116
