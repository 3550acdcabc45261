"""Key indexes in the lake itself: one directory of leaf files per index id, below the lake's root.

Any machine that reads the lake reads them; `keys = "lake:"`, or `WITH (store = 'lake:')`, puts new indexes there.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from needlepoint.errors import NeedlepointError
from needlepoint.objects import is_url
from needlepoint.stores import IN_LAKE
from needlepoint.stores.leaf_files import LeafCache, LeafKeyStore

LEAF_FILES = "lake:"
"""The store of an index that is in leaf files in the lake."""
_KEYS = "keys"
_ANY_WIDTH = 8  # of a store that is destroyed or swept, and never searched


class LeafStores:
    """`root` is that of the lake; `cache` keeps parts of objects on the local disk. `place` is what the lake has for
    all machines."""

    def __init__(self, root: Path | str, cache: LeafCache | None = None) -> None:
        self.place = f"{str(root).rstrip('/')}/{IN_LAKE}"
        self._location = f"{self.place}/{_KEYS}"
        self._cache = cache

    @classmethod
    def cached(cls, root: Path | str, directory: Path, limit: int) -> LeafStores:
        """Those of a lake in a bucket keep up to `limit` bytes of what they read in the directory."""
        return cls(root, LeafCache(directory, limit) if is_url(str(root)) else None)

    def store(self, index_id: int, key_bytes: int) -> LeafKeyStore:
        return LeafKeyStore(f"{self._location}/{index_id}", key_bytes, self._cache)

    def ids(self) -> dict[int, float]:
        """The indexes that have something here, with the seconds since the last write to each."""
        now, newest = time.time(), dict[int, float]()
        for index_id, written in self._written():
            newest[index_id] = max(written, newest.get(index_id, written))
        return {index_id: now - written for index_id, written in newest.items()}

    def _written(self) -> list[tuple[int, float]]:
        """An index and a time for each file that is there."""
        if is_url(self._location):
            from needlepoint.objects.remote import list_objects

            found = (
                (name.partition("/")[0], identity.mtime_ns / 1e9) for name, identity in list_objects(self._location)
            )
            return [(int(name), written) for name, written in found if name.isdecimal()]
        places = [place for place in Path(self._location).glob("*") if place.name.isdecimal()]
        return [(int(place.name), _last_change(place)) for place in places]

    def destroy(self, index_id: int) -> None:
        self.store(index_id, _ANY_WIDTH).destroy()

    def sweep(self, index_id: int, key_bytes: int, grace: float) -> int:
        """Delete leaf files that no reader needs; see LeafKeyStore.sweep."""
        try:
            return self.store(index_id, key_bytes).sweep(grace)
        except NeedlepointError:
            return 0  # a damaged store: queries name it


def _last_change(place: Path) -> float:
    times = [place.stat().st_mtime]
    for directory, _, names in os.walk(place):
        times += [os.stat(Path(directory) / name).st_ctime for name in names]  # noqa: PTH116
    return max(times)
