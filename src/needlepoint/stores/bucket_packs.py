"""Packs in a bucket that several machines write, where their registry is in a server."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from needlepoint.errors import NeedlepointError
from needlepoint.stores.lake_packs import LakePacks
from needlepoint.stores.packs import UNCLAIMED_AGE, PackDamaged, PackPiece, PackStore, damaged_piece
from needlepoint.stores.piece_cache import PieceCache

_log = logging.getLogger("needlepoint")


class BucketPacks(LakePacks):
    """`place` is the URL, which is known when the registry is open. A pack is written in `scratch`, and in the bucket
    when it is complete."""

    def __init__(self, place: Callable[[], str], pieces: PieceCache, scratch: Path) -> None:
        super().__init__(place, pieces)
        self._scratch = PackStore(scratch)
        self._kept: dict[str, float] = {}

    def write(self, pieces: Iterable[bytes]) -> tuple[str, int]:
        name, size = self._scratch.write(pieces)
        self.ingest([self._scratch.path(name)])
        return name, size

    def take(self, other: PackStore, name: str) -> None:
        self._scratch.take(other, name)
        self.ingest([self._scratch.path(name)])

    def ingest(self, packs: Iterable[Path]) -> None:
        from needlepoint.objects.remote import upload

        for pack in packs:
            try:
                upload(str(pack), self.where(pack.name))
            finally:
                pack.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        from needlepoint.objects.remote import delete_objects

        delete_objects([self.where(name)])

    def destroy(self) -> None:
        """All packs; a sweep does it later if that fails now."""
        try:
            self.sweep(set(), -UNCLAIMED_AGE)
        except NeedlepointError as error:
            _log.warning("%s stays until a sweep: %s", self.where("").rstrip("/"), error)

    def read(self, name: str, pieces: Sequence[PackPiece], etag: str = "", size: int = 0) -> list[bytes | PackDamaged]:
        """A piece that lies beyond the `size` of the pack would be an error of the whole request: it is left out."""
        inside = [each for each in pieces if each.start >= 0 and (not size or each.start + each.length <= size)]
        found = iter(super().read(name, inside, etag, size) if inside else ())
        known = set(inside)
        return [next(found) if each in known else damaged_piece(self.where(name), each) for each in pieces]

    def sizes(self) -> dict[str, int]:
        return {name: size for name, (size, _) in self._listed().items()}

    def missing(self, names: Iterable[str]) -> set[str]:
        wanted = set(names)
        return wanted - self._listed().keys() if wanted else set()

    def keep(self, names: Iterable[str]) -> None:
        """Only for sweeps of this process: objects have no time that can be set. A reader whose pack a later one takes
        reads the file whole."""
        self._kept |= dict.fromkeys(names, time.time())

    def sweep(self, wanted: set[str], older_than: float = UNCLAIMED_AGE) -> int:
        from needlepoint.objects.remote import delete_objects

        before = time.time() - older_than
        there = self._listed().items()
        old = {
            name: size
            for name, (size, written) in there
            if name not in wanted and max(written, self._kept.get(name, 0.0)) <= before
        }
        delete_objects([self.where(name) for name in old])
        return sum(old.values())

    def _listed(self) -> dict[str, tuple[int, float]]:
        """The size of each pack, and when it was written."""
        from needlepoint.objects.remote import list_objects

        return {
            name: (identity.size, identity.mtime_ns / 1e9)
            for name, identity in list_objects(self.where("").rstrip("/"))
            if name.endswith(".pack")
        }
