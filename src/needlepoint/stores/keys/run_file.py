"""A run as a file that any process writes, and the one that ingests it reads a portion at a time.

8 bytes   NPRUN\\x00\\x00\\x01
4 bytes   length of an entry, big-endian
4 bytes   length of the name
8 bytes   number of entries
8 bytes   XXH3-64 of the entries
name      UTF-8
entries   one after the other, ascending
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xxhash

from needlepoint.errors import StoreError
from needlepoint.stores.base import Entries

_MAGIC = b"NPRUN\x00\x00\x01"
_HEAD = struct.Struct(">8sIIQQ")


def write_run_file(path: Path, entries: Entries, name: str) -> None:
    data = np.ascontiguousarray(entries)
    text = name.encode()
    head = _HEAD.pack(_MAGIC, entries.shape[1], len(text), len(entries), xxhash.xxh3_64_intdigest(data.data))
    try:
        with path.open("wb") as file:
            file.write(head + text)
            file.write(data.data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"the run {path} cannot be written: {error}.", hint="Is there room on the disk?") from error


class RunFile:
    """A run that was written; StoreError when it is not whole."""

    def __init__(self, path: Path, width: int) -> None:
        self.path = path
        self._width = width
        try:
            with path.open("rb") as file:
                magic, found, length, self.count, self._checksum = _HEAD.unpack(file.read(_HEAD.size))
                self.name = file.read(length).decode()
            whole = path.stat().st_size == _HEAD.size + length + self.count * found
        except (OSError, struct.error, UnicodeDecodeError) as error:
            raise StoreError(f"the run {path} cannot be read: {error}.", hint="Sync builds it again.") from error
        self._start = _HEAD.size + length
        if magic != _MAGIC or found != width or not whole:
            raise StoreError(f"the file {path} is not a run of this index.", hint="Sync builds it again.")

    def ends(self) -> tuple[bytes, bytes]:
        """The first and the last entry of a run that is not empty."""
        with self.path.open("rb") as file:
            file.seek(self._start)
            first = file.read(self._width)
            file.seek(-self._width, os.SEEK_END)
            return first, file.read(self._width)

    def portions(self, entries: int) -> Iterator[Entries]:
        """All entries, as many at a time; StoreError at the end when they are not those that were written."""
        checksum = xxhash.xxh3_64()
        with self.path.open("rb") as file:
            file.seek(self._start)
            while data := file.read(entries * self._width):
                checksum.update(data)
                yield np.frombuffer(data, np.uint8).reshape(-1, self._width)
        if checksum.intdigest() != self._checksum:
            raise StoreError(f"the run {self.path} is damaged.", hint="Sync builds it again.")
