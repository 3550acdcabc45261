"""Local files, read by range."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType

import xxhash

from needlepoint.objects.base import Identity, changed, too_short
from needlepoint.objects.ranges import LOCAL_GAP, coalesce, cut

# Files up to this size are recognized by a checksum of all bytes, read in pieces: 10 ms at most from the page cache.
MOST_SUMMED, PIECE = 64 << 20, 1 << 20


def identify_file(path: str) -> Identity:
    """The identity of the file now at `path`."""
    # Twice as fast as Path.stat, and this runs for every file of a table.
    return Identity.of(os.stat(path))  # noqa: PTH116


class LocalFile:
    """One open file. Counts `requests` and `bytes_requested`."""

    __slots__ = ("bytes_requested", "descriptor", "identity", "path", "requests")

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self.identity = self.current()
        self.requests = 0
        self.bytes_requested = 0

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    @property
    def size(self) -> int:
        return self.identity.size

    def current(self) -> Identity:
        """The identity of the open file now."""
        return Identity.of(os.fstat(self.descriptor))

    def check_unchanged(self, identity: Identity) -> None:
        """Raise FileChanged unless the open file still is the one `identity` describes.

        A file replaced by a rename is not noticed through an open descriptor, and need not be: the bytes read
        are those of the old file, all of them.
        """
        status = os.fstat(self.descriptor)
        current = Identity.of(status)
        if current == identity:
            return
        # Unlinking a file changes its ctime, not its content.
        unnamed = status.st_nlink == 0 and current.seems(identity)
        if not unnamed or self.identity != identity:
            raise changed(self.path, identity, current)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; NotParquet when the file ends before."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise too_short(self.path, self.size, offset, length)
        self.requests += 1
        self.bytes_requested += length
        data = os.pread(self.descriptor, length, offset)
        if len(data) == length:
            return data
        # One call returns at most 2 GiB, and less when a signal arrives.
        parts = [data]
        done = len(data)
        while done < length:
            data = os.pread(self.descriptor, length - done, offset + done)
            if not data:
                raise too_short(self.path, self.size, offset, length)
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def read_into(self, offsets: Sequence[int], targets: Sequence[memoryview]) -> None:
        """Fill each target with the bytes from its offset; NotParquet when the file ends before."""
        descriptor, size = self.descriptor, self.size
        for offset, target in zip(offsets, targets, strict=True):
            length = len(target)
            if offset < 0 or offset + length > size:
                raise too_short(self.path, size, offset, length)
            self.bytes_requested += length
            done = _read_into(descriptor, [target], offset)
            while done < length:  # one call returns at most 2 GiB, and less when a signal arrives
                more = _read_into(descriptor, [target[done:]], offset + done)
                if not more:
                    raise too_short(self.path, size, offset, length)
                done += more
        self.requests += len(offsets)

    def sample(self) -> str:
        """A checksum of the whole file; for a large file only its size, which identifies nothing."""
        if self.size > MOST_SUMMED:
            return str(self.size)
        checksum = xxhash.xxh3_64()
        for offset in range(0, self.size, PIECE):
            checksum.update(os.pread(self.descriptor, PIECE, offset))
        return checksum.hexdigest()

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each `(offset, length)`, in the order asked; neighbours are read together."""
        if len(ranges) == 1:
            return [self.read(*ranges[0])]
        return cut(ranges, coalesce(ranges, LOCAL_GAP), lambda block: self.read(block.start, block.end - block.start))


def _pread_into(descriptor: int, targets: list[memoryview], offset: int) -> int:
    """As `os.preadv`, of one target."""
    (target,) = targets
    data = os.pread(descriptor, len(target), offset)
    target[: len(data)] = data
    return len(data)


_read_into = getattr(os, "preadv", _pread_into)  # not on macOS
"""How many bytes were read; 0 at the end of the file."""
