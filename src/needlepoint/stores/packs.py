"""Payloads of external indexes, in packs: files with the payloads of many data files one after the other.

A build writes a pack once, and it never changes. The registry knows where each payload is. A pack that nothing refers
to is swept.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from needlepoint.errors import StoreError

# A younger pack may be about to be committed.
UNCLAIMED_AGE = 24 * 3600.0


class PackWriter:
    """Writes one pack, with a unique name."""

    def __init__(self, directory: Path) -> None:
        self.name = f"{uuid.uuid4().hex}.pack"
        self.path = directory / self.name
        self._file = self.path.open("xb")

    @property
    def position(self) -> int:
        """Where the next payload begins."""
        return self._file.tell()

    def add(self, payload: bytes) -> None:
        self._file.write(payload)

    def close(self) -> None:
        """Make it durable."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class PackStore:
    """The packs of one index."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, name: str) -> Path:
        return self._directory / name

    def ingest(self, packs: Iterable[Path]) -> None:
        """Move packs here from where they were written, on the same file system."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            for pack in packs:
                pack.rename(self._directory / pack.name)
            descriptor = os.open(self._directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(
                f"{self._directory} cannot be written: {error}.", hint="Check permissions and room; then sync again."
            ) from error

    def missing(self, names: Iterable[str]) -> set[str]:
        """Which of these packs are missing."""
        return {name for name in names if not self.path(name).is_file()}

    def sweep(self, wanted: set[str], older_than: float = UNCLAIMED_AGE) -> int:
        """Remove the packs that are neither wanted nor new. Returns the bytes that were freed."""
        freed = 0
        for pack in self._directory.glob("*.pack"):
            with contextlib.suppress(FileNotFoundError):  # another process sweeps too
                found = pack.stat()
                if pack.name not in wanted and found.st_mtime <= time.time() - older_than:
                    pack.unlink()
                    freed += found.st_size
        return freed

    def destroy(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
