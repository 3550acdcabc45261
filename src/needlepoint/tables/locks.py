"""File locks that serialize changes to a table.

    batch lock   one process at a time moves the files of a batch into place. A slow second process could move a file
                 again after a later batch removed and deleted it: its rows would be back. Recovery skips a batch whose
                 publisher is alive.
    shared       processes that embed indexes hold it from listing the files until they record the new versions. A file
                 that is embedded into after a batch removed it would be a new, unknown file: its rows would be back.
    exclusive    a batch that removes files holds it while it commits.
    claims       a directory that a process fills, for a batch or an index, belongs to it while it lives.

The locks of a process end with it and its workers.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from needlepoint import forks
from needlepoint.errors import StoreError
from needlepoint.tables.model import Table

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

LONGEST_WAIT, PAUSE = 10.0, 0.05  # seconds


class Locks(Protocol):
    """The locks that all processes of a lake share: files here, sessions of PostgreSQL in postgres_locks.py.

    A lock ends with its process. One that is lost before, as a session of PostgreSQL can be, may be taken by another
    process; a change of the registry under the lost one then raises LockLost, and changes nothing.
    """

    def claim(self, name: str) -> bool: ...
    def release(self, name: str) -> None: ...

    @contextmanager
    def claimed(self, name: str) -> Iterator[bool]:
        """`claim` and `release` around a block, which learns whether the directory is its own."""
        mine = self.claim(name)
        try:
            yield mine
        finally:
            if mine:
                self.release(name)

    def is_claimed(self, name: str) -> bool | None: ...
    def shared(self, table: Table) -> AbstractContextManager[tuple[int, ...]]: ...
    def exclusive(self, table: Table) -> AbstractContextManager[None]: ...
    def batch_lock(self, table: Table, batch: str, *, wait: bool) -> AbstractContextManager[bool]: ...
    def close(self) -> None: ...


class TableLocks(Locks):
    """The locks of one store, which all its processes share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._claims: dict[str, int] = {}
        self._process = os.getpid()

    def claim(self, name: str) -> bool:
        """Mark a directory of this name as in use until `release` or the end of this process. False when it is in
        use."""
        if fcntl is None:
            return True
        descriptor = self._claimed(self._path(name), wait=False)
        if descriptor is not None:
            self._claims[name] = descriptor
        return descriptor is not None

    def release(self, name: str) -> None:
        descriptor = self._claims.pop(name, None)
        if descriptor is not None:
            self._give_back(self._path(name), descriptor)

    def is_claimed(self, name: str) -> bool | None:
        """Whether a directory of this name is in use. None on a file system without locks."""
        if fcntl is None:
            return None
        if not _has_locks(self._directory):
            return None
        path = self._path(name)
        descriptor = self._claimed(path, wait=False)
        if descriptor is None:
            return True
        self._give_back(path, descriptor)
        return False

    def close(self) -> None:
        for name in list(self._claims):
            self.release(name)

    @contextmanager
    def shared(self, table: Table) -> Iterator[tuple[int, ...]]:
        """For embedding indexes: several processes at a time. Waits for a batch that is being committed, which takes a
        moment. The lock is held while any process has these descriptors open: pass them on to workers."""
        with self._opened(table) as descriptor:
            if descriptor is not None:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield () if descriptor is None else (descriptor,)

    @contextmanager
    def exclusive(self, table: Table) -> Iterator[None]:
        """For removing files: one process, and no shared locks; StoreError when these do not end."""
        with self._opened(table) as descriptor:
            ends = time.monotonic() + LONGEST_WAIT
            while descriptor is not None:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > ends:
                        raise still_embedding(table) from None
                    time.sleep(PAUSE)
                    continue
                except OSError:
                    pass
                break
            yield

    @contextmanager
    def batch_lock(self, table: Table, batch: str, *, wait: bool) -> Iterator[bool]:
        """For publishing a batch: one process. Yields whether it is this one; without `wait` it may be another."""
        if fcntl is None:
            yield True
            return
        path = self._path(f"{table.id}-{hashlib.sha256(batch.encode()).hexdigest()[:32]}")
        descriptor = self._claimed(path, wait)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                self._give_back(path, descriptor)

    def _path(self, name: str) -> Path:
        return self._directory / f"of-{name}"

    def _give_back(self, path: Path, descriptor: int) -> None:
        if os.getpid() != self._process:
            return  # a forked child has released it already, and the file belongs to the parent
        path.unlink(missing_ok=True)
        _close(descriptor)

    def _claimed(self, path: Path, wait: bool) -> int | None:
        self._directory.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(descriptor)
                return None
            except OSError:  # a file system without locks
                return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    forks.lock(descriptor)
                    return descriptor
            os.close(descriptor)  # the previous holder removed the file

    @contextmanager
    def _opened(self, table: Table) -> Iterator[int | None]:
        if fcntl is None:
            yield None
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._directory / str(table.id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        forks.lock(descriptor)
        try:
            yield descriptor
        finally:
            if os.getpid() == self._process:
                _close(descriptor)


def still_embedding(table: Table) -> StoreError:
    return StoreError(
        f"another process is embedding indexes into files of table '{table.name}'.",
        hint="The first sync after it ends replaces the files.",
    )


def _close(descriptor: int) -> None:
    forks.unlock(descriptor)
    os.close(descriptor)


@functools.cache
def _has_locks(directory: Path) -> bool:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
