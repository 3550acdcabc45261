"""Packs: files with the payloads of many data files one after the other, or with their cards and zone maps.

A pack is written once, and it never changes. The registry knows where each payload is. A pack that nothing refers to is
swept.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from needlepoint.errors import FileError, ObjectStoreError, StoreError
from needlepoint.objects import Identity, OpenObject, open_object, sync_file

# A younger pack may be about to be committed.
UNCLAIMED_AGE = 24 * 3600.0
_COPIED_AT_ONCE = 8 << 20


@dataclass(frozen=True, slots=True)
class PackPiece:
    """Some bytes of a pack, with their checksum."""

    start: int
    length: int
    checksum: int

    @classmethod
    def of(cls, start: int, data: bytes) -> PackPiece:
        """XXH3 of 64 bits, as a signed number: databases have no others."""
        return cls(start, len(data), int.from_bytes(xxhash.xxh3_64_digest(data), "big", signed=True))


class PackDamaged(StoreError):
    """A pack is missing, or bytes of it are not those that were written."""


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
    """The packs of one index, or those with the cards."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, name: str) -> Path:
        return self._directory / name

    def write(self, pieces: Iterable[bytes]) -> tuple[str, int]:
        """Write a pack of these bytes, one after the other. Returns its name and size. It is durable, and has no effect
        until the registry names it."""
        try:
            if not self._directory.is_dir():
                self._directory.mkdir(parents=True, exist_ok=True)
                _sync_directory(self._directory.parent)
            writer = PackWriter(self._directory)
            try:
                for piece in pieces:
                    writer.add(piece)
                size = writer.position
                writer.close()
                _sync_directory(self._directory)
            except BaseException:
                writer.path.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self._unwritable(error) from error
        return writer.name, size

    def take(self, other: PackStore, name: str) -> None:
        """Copy a pack of another store. It is there when it is complete, and durable. FileNotFoundError if the other
        lacks it."""
        target = self.path(name)
        beside = target.with_name(f".{name}.{uuid.uuid4().hex}")
        try:
            with open_object(other.where(name)) as pack:
                target.parent.mkdir(parents=True, exist_ok=True)
                with beside.open("wb") as file:
                    for start in range(0, pack.size, _COPIED_AT_ONCE):
                        file.write(pack.read(start, min(_COPIED_AT_ONCE, pack.size - start)))
            sync_file(beside)
            beside.rename(target)
            sync_file(target.parent)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            beside.unlink(missing_ok=True)

    def where(self, name: str) -> str:
        """The path or URL of a pack."""
        return str(self.path(name))

    def open(self, name: str) -> OpenObject:
        """For reading a payload. FileNotFoundError if the pack is gone."""
        return open_object(self.where(name))

    def read(self, name: str, pieces: Sequence[PackPiece], etag: str = "", size: int = 0) -> list[bytes | PackDamaged]:
        """The bytes of pieces, neighbours read together; an error in the place of those that are not as written. With
        an ETag, an object is not asked for its size first."""
        where, known = self.where(name), Identity(size, 0, etag) if etag else None
        try:
            with open_object(where, known) as pack:
                fit = [each.start >= 0 and each.start + each.length <= pack.size for each in pieces]
                wanted = [(each.start, each.length) for each, fits in zip(pieces, fit, strict=True) if fits]
                found = iter(pack.read_ranges(wanted) if wanted else ())
                read = [next(found) if fits else b"" for fits in fit]
        except FileNotFoundError:
            return [PackDamaged(f"{where} is missing.", hint="`needle sync` builds it again.")] * len(pieces)
        except (FileError, ObjectStoreError, OSError) as error:
            return [PackDamaged(f"{where} cannot be read: {error}")] * len(pieces)
        return checked(where, pieces, read)

    def sizes(self) -> dict[str, int]:
        """The bytes of each pack, by name."""
        sizes: dict[str, int] = {}
        try:
            for pack in self._directory.iterdir():
                if pack.suffix == ".pack":
                    with contextlib.suppress(FileNotFoundError):  # another process sweeps
                        sizes[pack.name] = pack.stat().st_size
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(
                f"{self._directory} cannot be read: {error}.", hint="Check its permissions, then retry."
            ) from error
        return sizes

    def keep(self, names: Iterable[str]) -> None:
        """Let a sweep take these packs for new ones: queries that began before may still read them."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self.path(name))

    def ingest(self, packs: Iterable[Path]) -> None:
        """Move packs here from where they were written, on the same file system."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            for pack in packs:
                pack.rename(self._directory / pack.name)
            _sync_directory(self._directory)
        except OSError as error:
            raise self._unwritable(error) from error

    def remove(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self._directory} cannot be written: {error}.", hint="Check permissions and room; then sync again."
        )

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


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checked(where: str, pieces: Sequence[PackPiece], read: Iterable[bytes]) -> list[bytes | PackDamaged]:
    """The bytes of pieces, an error in the place of those that are not as written."""
    return [
        data if PackPiece.of(each.start, data) == each else damaged_piece(where, each)
        for each, data in zip(pieces, read, strict=True)
    ]


def damaged_piece(where: str, piece: PackPiece) -> PackDamaged:
    return PackDamaged(
        f"bytes {piece.start:,} to {piece.start + piece.length:,} of {where} are damaged.",
        hint="`needle rebuild` builds them again.",
    )
