"""Who changes a table takes turns with others that do.

One process at a time brings the files of a batch to their place: were another one, that is slow, to bring one once more
after a later batch has taken it out and deleted it, its rows would be back. Who only recovers passes over a batch whose
publisher is at it.

Embedding an index gives a file another version with the same rows. Were that done to a file that a batch has just taken
out of the table, the new version would be a file nobody knows: its rows would be back. So whoever embeds, here or in
tasks elsewhere, has the turn of writers from before it learns which files there are until it has recorded what they
became; batches that take files out commit while there is no writer.

And directories that a process fills, for a batch or an index, are its own for as long as it lives, however old they
are.

A process that dies gives back what it had, when those have ended that it had do its work.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from needlepoint import forks
from needlepoint.errors import StoreError
from needlepoint.tables.model import Table

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

LONGEST_WAIT, PAUSE = 10.0, 0.05  # seconds


class TableLocks:
    """Of all processes that use a store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._claims: dict[str, int] = {}
        self._process = os.getpid()

    def claim(self, name: str) -> bool:
        """A directory of this name is in use until `release` or the end of this process. False when it was before."""
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

    @contextmanager
    def claimed(self, name: str) -> Iterator[bool]:
        mine = self.claim(name)
        try:
            yield mine
        finally:
            if mine:
                self.release(name)

    def is_claimed(self, name: str) -> bool | None:
        """Whether a directory of this name is in use. None where there are no locks to tell by."""
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
        """Several at a time. Waits for a batch that is being committed, which takes a moment. The turn lasts for as
        long as a process has these descriptors open: who has others do the work gives them along."""
        with self._opened(table) as descriptor:
            if descriptor is not None:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield () if descriptor is None else (descriptor,)

    @contextmanager
    def exclusive(self, table: Table) -> Iterator[None]:
        """One, and no writers; StoreError when they do not come to an end."""
        with self._opened(table) as descriptor:
            ends = time.monotonic() + LONGEST_WAIT
            while descriptor is not None:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > ends:
                        raise StoreError(
                            f"another process is embedding indexes into files of table '{table.name}'.",
                            hint="The files are exchanged by the first sync after that is done.",
                        ) from None
                    time.sleep(PAUSE)
                    continue
                except OSError:
                    pass
                break
            yield

    @contextmanager
    def batch_lock(self, table: Table, batch: str, *, wait: bool) -> Iterator[bool]:
        """One of a batch. Whether it is the caller now: without `wait` another one may be."""
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
            return  # a child has let go of it already, and the file is the parent's
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
            os.close(descriptor)  # who had it before removed the file

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
