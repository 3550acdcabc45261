"""Parts of leaf files that are objects, kept on the local disk up to a number of bytes.

One sparse file per leaf holds its row groups at their places, and behind the end a byte for each that is there. One
more holds the directory. Readers compare checksums of what they read: a lost, torn or foreign file costs a request.
The cache can be deleted at any time, and many processes can share one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from needlepoint import forks

SUFFIX_BLOCKS, SUFFIX_DIRECTORY = ".blocks", ".directory"
OPEN_FILES = 64
TOUCHED = 30.0  # seconds after which a use is noted again
LEFT = 0.75  # of the limit, after files were removed


class CachedBlocks:
    """The cached row groups of one leaf. Closed when nothing refers to it."""

    __slots__ = ("__weakref__", "descriptor", "path", "present", "size", "touched")

    def __init__(self, path: Path, size: int, blocks: int) -> None:
        self.path, self.size = path, size
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        self.touched = time.monotonic()
        found = os.pread(self.descriptor, blocks, size).ljust(blocks, b"\0")
        self.present: npt.NDArray[np.uint8] = np.frombuffer(bytearray(found), np.uint8)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self.descriptor)

    def put(self, block: int, offset: int, data: bytes) -> None:
        os.pwrite(self.descriptor, data, offset)
        os.pwrite(self.descriptor, b"\1", self.size + block)
        self.present[block] = 1

    def forget(self, block: int) -> None:
        os.pwrite(self.descriptor, b"\0", self.size + block)
        self.present[block] = 0


class LeafCache:
    """`limit` is in bytes of disk. Of what is too much, the files that were not used for longest are removed."""

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory, self.limit = directory, limit
        self._lock = threading.Lock()
        self._open: OrderedDict[str, CachedBlocks] = OrderedDict()
        self._added = limit  # since the last look at the disk: at first, look
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it: see forks.py."""
        self._lock = threading.Lock()

    def blocks(self, name: str, size: int, count: int) -> CachedBlocks | None:
        """The cached row groups of a leaf file of that size; None if the disk does not allow it."""
        with self._lock:
            found = self._open.get(name)
            if found is None or not self._is_current(found):
                try:
                    self.directory.mkdir(parents=True, exist_ok=True)
                    found = CachedBlocks(self.directory / f"{name}{SUFFIX_BLOCKS}", size, count)
                except OSError:
                    return None
                self._open[name] = found
                while len(self._open) > OPEN_FILES:
                    self._open.popitem(last=False)
            self._open.move_to_end(name)
            return found

    def _is_current(self, found: CachedBlocks) -> bool:
        """Whether the file is not removed; looked at now and then, which also notes its use."""
        now = time.monotonic()
        if now - found.touched > TOUCHED:
            found.touched = now
            try:
                os.utime(found.path)
                return os.path.samestat(found.path.stat(), os.fstat(found.descriptor))
            except OSError:
                return False
        return True

    def keep(self, cached: CachedBlocks, block: int, offset: int, data: bytes) -> None:
        """Keep a row group, if the disk allows it."""
        with contextlib.suppress(OSError):
            cached.put(block, offset, data)
        self._note(len(data))

    def directory_of(self, name: str) -> bytes | None:
        """The bytes of a leaf's directory, to be checked."""
        try:
            return (self.directory / f"{name}{SUFFIX_DIRECTORY}").read_bytes()
        except OSError:
            return None

    def keep_directory(self, name: str, data: bytes) -> None:
        place = self.directory / f"{name}{SUFFIX_DIRECTORY}"
        beside = place.with_name(f".{place.name}.{os.getpid()}.{threading.get_ident()}")
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(data)
            beside.replace(place)
        self._note(len(data))

    def forget(self, name: str) -> None:
        """Of a leaf file that is gone."""
        with self._lock:
            self._open.pop(name, None)
        for suffix in (SUFFIX_BLOCKS, SUFFIX_DIRECTORY):
            with contextlib.suppress(OSError):
                (self.directory / f"{name}{suffix}").unlink()

    def size(self) -> int:
        """Bytes of disk that it takes."""
        return sum(used for _, used, _ in self._files())

    def _note(self, size: int) -> None:
        """Look at the disk after each sixteenth of the limit, and remove what is too much."""
        with self._lock:
            self._added += size
            if self._added <= self.limit // 16:
                return
            self._added = 0
            files = sorted(self._files())
            total = sum(used for _, used, _ in files)
            if total <= self.limit * 15 // 16:
                return
            for _, used, path in files:
                if total <= self.limit * LEFT:
                    break
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= used
                self._open.pop(path.name.removesuffix(SUFFIX_BLOCKS), None)

    def _files(self) -> list[tuple[float, int, Path]]:
        """When each was last used, the bytes it takes, and its path."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    used = getattr(status, "st_blocks", -(-status.st_size // 512)) * 512
                    found.append((status.st_mtime, used, Path(entry.path)))
        return found
