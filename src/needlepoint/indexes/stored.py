"""Payloads in packs and files, and the directories that some of them are unpacked into."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from needlepoint.errors import NotParquet, PayloadDamaged, StoreError
from needlepoint.objects import Identity, OpenObject, open_object
from needlepoint.parquet.write import EmbeddedEntry, read_payload
from needlepoint.stores import IndexDamaged

# What was just used is not swept: another process may be about to open it.
JUST_USED = 60.0
# A sweep looks at every directory, so it waits until this share of the limit was added.
SHARE_BETWEEN_SWEEPS = 0.05
# Sizes and checksums of the unpacked files: a directory that differs is unpacked again.
MANIFEST = ".manifest"
# How often a directory is made again that other processes move or sweep.
MOST_TRIES = 10
_READ_AT_ONCE = 1 << 20


class UnpackedPayloads:
    """Payloads unpacked on disk, by content: processes that share the directory unpack each only once.

    Past `limit` bytes the least recently used are removed. A process keeps the files that it has open.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._added = limit  # since the last sweep of this process; others may have filled the cache
        self._lock = threading.Lock()

    def get(self, checksum: str, make: Callable[[Path], None]) -> Path:
        """The directory of this content; `make` fills it if it is missing or a byte of it has changed. The check reads
        all files, so call it once and keep them open."""
        place = self._directory / checksum
        with self._lock:
            try:
                for _ in range(MOST_TRIES):
                    if _is_whole(place) and _touched(place):
                        break
                    self._discard(place)
                    if self._make(place, make):
                        break
                else:
                    raise OSError(f"{place} is changed by other processes again and again")
            except OSError as error:
                raise StoreError(
                    f"{self._directory} cannot be written: {error}.", hint="Check its permissions and room."
                ) from error
            if self._added > self._limit * SHARE_BETWEEN_SWEEPS:
                self.sweep()
        return place

    def _discard(self, place: Path) -> None:
        """Remove a damaged directory. Another process may do the same at the same time."""
        aside = self._directory / f".{uuid.uuid4().hex}"
        with contextlib.suppress(FileNotFoundError):
            place.rename(aside)
            if aside.is_dir():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                aside.unlink()

    def _make(self, place: Path, make: Callable[[Path], None]) -> bool:
        """False when another process made it first, or swept it before it was complete."""
        beside = self._directory / f".{uuid.uuid4().hex}"
        beside.mkdir(parents=True)
        try:
            make(beside)
            listed = _listed(beside)
            (beside / MANIFEST).write_text(json.dumps(listed))
            beside.rename(place)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST) or not beside.is_dir():
                return False
            raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        self._added += sum(size for size, _ in listed.values())
        return True

    def sweep(self, wanted: frozenset[str] | None = None, just_used: float = JUST_USED) -> int:
        """Remove what is beyond the limit, what killed processes left and, with `wanted`, all contents that it does not
        name. Returns the bytes that were freed."""
        self._added = freed = 0
        found = []
        for place in self._directory.iterdir() if self._directory.is_dir() else ():
            try:
                used, size = place.stat().st_mtime, sum(path.stat().st_size for path in place.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue  # another process sweeps too; or it is not a payload
            found.append((used, size, place))
        held, now = sum(size for _, size, _ in found), time.time()
        for used, size, place in sorted(found):
            if place.name.startswith("."):
                goes = used < now - 3600  # a younger one is being made by another process
            else:
                goes = held > self._limit or (wanted is not None and place.name not in wanted)
                goes = goes and used <= now - just_used
            if goes:
                shutil.rmtree(place, ignore_errors=True)
                held, freed = held - size, freed + size
        return freed


def _touched(place: Path) -> bool:
    """Record the time of use; False when the directory was just swept."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    return True


def _listed(place: Path) -> dict[str, tuple[int, str]]:
    # Opening an index makes hidden files beside it, for locks.
    found = sorted(path for path in place.iterdir() if not path.name.startswith("."))
    return {path.name: (path.stat().st_size, _checksum(path)) for path in found}


def _checksum(path: Path) -> str:
    found = xxhash.xxh3_64()
    with path.open("rb") as file:
        while data := file.read(_READ_AT_ONCE):
            found.update(data)
    return found.hexdigest()


def _is_whole(place: Path) -> bool:
    """Whether the files have the bytes that were unpacked: tantivy trusts every offset in them. After a power cut,
    files may be incomplete."""
    try:
        listed = json.loads((place / MANIFEST).read_text())
        sizes = {path.name: path.stat().st_size for path in place.iterdir() if not path.name.startswith(".")}
        if {name: size for name, (size, _) in listed.items()} != sizes:
            return False  # without reading them
        return all(_checksum(place / name) == checksum for name, (_, checksum) in listed.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """A payload in a pack, or, with the file's `identity`, embedded in a Parquet file. `opened` opens the pack, if that
    takes more than its path."""

    path: str
    identity: Identity | None
    entry: EmbeddedEntry
    cache: UnpackedPayloads
    opened: Callable[[], OpenObject] | None = None

    @property
    def checksum(self) -> str:
        return self.entry.checksum

    @property
    def size(self) -> int:
        return self.entry.size

    def read(self) -> bytes:
        with open_object(self.path, self.identity) if self.opened is None else self.opened() as file:
            if self.identity is not None:
                file.check_unchanged(self.identity)
            try:
                return read_payload(file, self.entry)
            except (PayloadDamaged, NotParquet) as error:
                raise IndexDamaged(
                    f"the {self.entry.kind} index in {self.path} is damaged.",
                    hint="`needle repair` builds it again.",
                ) from error

    def directory(self, unpack: Callable[[bytes, Path], None]) -> Path:
        return self.cache.get(self.checksum, lambda place: unpack(self.read(), place))
