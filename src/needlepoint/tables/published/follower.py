"""Following: a copy of a published registry on this machine, kept up to date while it is read.

    <cache>/objects/…            checkpoints and deltas as they are in the lake, checked each time they are used
    <cache>/processes/<id>/      registry.db, the copy of one process; it is removed when the process ends

The cache can be removed at any time: a process goes on with the files that it has open, and fetches what is missing.
After `refresh` seconds the next query asks whether the manifest is still the same one, and fetches the deltas that are
new. A query that is under way keeps the state that it has.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from needlepoint import forks
from needlepoint.errors import FileError, NeedlepointError, StoreError
from needlepoint.objects import Identity
from needlepoint.tables.locks import TableLocks
from needlepoint.tables.published import copies
from needlepoint.tables.published.manifest import RegistryCheckpoint, RegistryDelta, RegistryManifest
from needlepoint.tables.published.place import PublishedPlace
from needlepoint.tables.published.store_state import identity_of
from needlepoint.tables.registry.databases.schema import FORMAT

# What other processes may be about to use stays in the cache.
JUST_USED = 3600.0
# An object that the manifest names can be removed when a new manifest is in place: it is read again.
TRIES = 5

_HINT = "Where the lake is written, `needle share --whole` publishes it again."

_log = logging.getLogger("needlepoint")


class Follower:
    """`directory` has the copy, `registry.db`, which may be opened for reading only. FileNotFoundError when nothing is
    published in the lake."""

    def __init__(self, root: Path | str, cache: Path, refresh: float) -> None:
        self.place = PublishedPlace(root)
        self._cache = cache
        self._refresh = refresh
        self._lock = threading.Lock()
        self._identity: Identity | None = None
        self._replaced = ""
        self.problem = ""
        self.manifest = self._fetched_manifest()
        try:
            self.directory = self._own_directory()
            self._build()
        except OSError as error:
            raise StoreError(f"{cache} cannot be used: {error}.", hint="Check permissions and room.") from error
        self._checked = time.monotonic()
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it, see forks.py."""
        forks.leak(self._connection)
        forks.leak(self._stack)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._stack.close()

    def sequence(self) -> int:
        """Of the copy."""
        return copies.sequence_of(self._connection)

    def registry_identity(self) -> str:
        """The id by which key stores know the registry."""
        return identity_of(self.manifest.registry)

    def follow(self, *, at_once: bool = False) -> None:
        """Bring the copy up to date, if that was not done in the last `refresh` seconds, or with `at_once`. Threads
        that come meanwhile go on with the state that there is. If the lake cannot be reached the state stays, and a
        warning says so."""
        if self._replaced:
            raise StoreError(self._replaced, hint="Open the lake again.")
        if not at_once and time.monotonic() < self._checked + self._refresh:
            return
        if not self._lock.acquire(blocking=at_once):
            return
        try:
            self._catch_up()
            self.problem = ""
        except (NeedlepointError, OSError) as error:
            if self._replaced:
                raise
            if self.problem != str(error):
                _log.warning("the lake is read as it was before, since its registry cannot be read: %s", error)
            self.problem = str(error)
        finally:
            self._checked = time.monotonic()
            self._lock.release()

    def _catch_up(self) -> None:
        for attempt in range(TRIES):
            found = self.place.manifest(self._identity)
            if found is not None:
                manifest = self._read(found.data)
                if manifest.registry != self.manifest.registry:
                    self._replaced = f"another registry is published in {self.place.base} since the lake was opened."
                    raise StoreError(self._replaced, hint="Open the lake again.")
                self.manifest, self._identity = manifest, found.identity
            try:
                self._apply()
                return
            except FileNotFoundError:
                self._identity = None
                if attempt == TRIES - 1:
                    raise
                time.sleep(0.1 * attempt)

    def _apply(self) -> None:
        steps = self.manifest.steps(self.sequence())
        if steps is None:
            with self._unpacked([self.manifest.checkpoint]) as (checkpoint,):
                if self.sequence() < self.manifest.checkpoint.sequence:
                    copies.load_checkpoint(self._connection, checkpoint)
            steps = self.manifest.steps(self.sequence())
        if steps is None:
            raise _inconsistent(self.place)
        if steps:
            with self._unpacked(steps) as deltas:
                copies.apply_deltas(self._connection, deltas)
            self._sweep_objects()

    def _build(self) -> None:
        """The first copy: a checkpoint and the deltas behind it."""
        for attempt in range(TRIES):
            try:
                self._build_from(self.manifest)
                return
            except FileNotFoundError:
                if attempt == TRIES - 1:
                    raise StoreError(
                        f"objects of the registry in {self.place.base} are missing.",
                        hint=_HINT,
                    ) from None
                time.sleep(0.1 * attempt)
                self.manifest = self._fetched_manifest()

    def _build_from(self, manifest: RegistryManifest) -> None:
        steps = manifest.steps(manifest.checkpoint.sequence)
        if steps is None:
            raise _inconsistent(self.place)
        path = self.directory / "registry.db"
        with self._unpacked([manifest.checkpoint, *steps]) as (checkpoint, *deltas):
            shutil.move(checkpoint, path)
            connection = self._stack.enter_context(copies.opened(path))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")  # a copy is not opened again
            connection.execute("UPDATE sequence SET value = value")  # opens all files: the cache may be removed
            copies.apply_deltas(connection, deltas)
        self._connection: sqlite3.Connection = connection
        self._sweep_objects()

    def _fetched_manifest(self) -> RegistryManifest:
        found = self.place.manifest()
        assert found is not None
        self._identity = found.identity
        return self._read(found.data)

    def _read(self, data: bytes) -> RegistryManifest:
        manifest = RegistryManifest.from_bytes(self.place.path("registry"), data)
        if manifest.schema != FORMAT:
            raise StoreError(
                f"the registry published in {self.place.base} has format {manifest.schema}; this version of "
                f"Needlepoint reads format {FORMAT}.",
                hint="Use the same version here as where the lake is written.",
            )
        return manifest

    def _own_directory(self) -> Path:
        """One that no other process uses; those of processes that were killed are removed."""
        parent = self._cache / "processes"
        locks = TableLocks(self._cache / "turns")
        self._stack = ExitStack()
        self._stack.callback(locks.close)
        directory = parent / uuid.uuid4().hex
        locks.claim(directory.name)
        directory.mkdir(parents=True)
        self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
        for other in parent.iterdir():
            if locks.is_claimed(other.name) is False:
                shutil.rmtree(other, ignore_errors=True)
        return directory

    def _unpacked(self, objects: Sequence[RegistryCheckpoint | RegistryDelta]) -> _Unpacked:
        return _Unpacked(self.directory, self.place.all(self._fetched, objects))

    def _fetched(self, wanted: RegistryCheckpoint | RegistryDelta) -> Path:
        """The object in the cache; fetched if it is not there as it was written. FileNotFoundError if it is gone."""
        held = self._cache / "objects" / wanted.name.rpartition("/")[2]
        if copies.is_intact(held, wanted.size, wanted.checksum):
            with suppress(OSError):
                held.touch()
            return held
        held.parent.mkdir(parents=True, exist_ok=True)
        beside = held.with_name(f".{held.name}.{uuid.uuid4().hex}")
        try:
            with suppress(FileError):  # it has another size
                self.place.get(wanted.name, wanted.size, beside)
            if not copies.is_intact(beside, wanted.size, wanted.checksum):
                raise StoreError(f"{self.place.path(wanted.name)} is damaged.", hint=_HINT)
            beside.replace(held)
        finally:
            beside.unlink(missing_ok=True)
        return held

    def _sweep_objects(self) -> None:
        """Remove what the manifest does not name from the cache, some time after it was used."""
        named = {name.rpartition("/")[2] for name in self.manifest.names()}
        with suppress(OSError):
            for held in (self._cache / "objects").iterdir():
                if held.name not in named and held.stat().st_mtime < time.time() - JUST_USED:
                    held.unlink(missing_ok=True)


class _Unpacked:
    """Objects of the cache, unpacked while this is entered."""

    def __init__(self, directory: Path, objects: list[Path]) -> None:
        self._directory = directory
        self._objects = objects
        self._made: list[Path] = []

    def __enter__(self) -> list[Path]:
        self._directory.mkdir(parents=True, exist_ok=True)  # someone may have removed the cache
        for packed in self._objects:
            target = self._directory / f"{uuid.uuid4().hex}.db"
            self._made.append(target)
            copies.unpack(packed, target)
        return self._made

    def __exit__(self, *error: object) -> None:
        for path in self._made:
            path.unlink(missing_ok=True)


def _inconsistent(place: PublishedPlace) -> StoreError:
    return StoreError(
        f"the checkpoint and the deltas in {place.path('registry')} do not belong together.",
        hint=_HINT,
    )
