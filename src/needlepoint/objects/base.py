"""Open objects, and the identity of a version."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self

from needlepoint.errors import FileChanged, NotParquet

_UNREADABLE = re.compile("[\\x00-\\x1f\\x7f\\ud800-\\udfff]")


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """Identifies a version of a file: its size and times, or, where there is an ETag, size and ETag.

    An object store gives times in whole seconds, and a listing gives other times than the object itself.

    A tool that replaces a local file can keep its modification time (`rsync -t`, `cp -p`, `tar`), but cannot keep both
    the time of the last change, `ctime_ns`, and the inode. 0 means unknown, and an unknown number is not compared. Both
    can change while the content stays (chmod, a hard link, a restored backup): `seems` compares without them.
    """

    size: int
    mtime_ns: int
    etag: str = ""
    ctime_ns: int = 0
    inode: int = 0

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """Of a local file. SQLite keeps 63 bits of a number."""
        return cls(status.st_size, status.st_mtime_ns, "", status.st_ctime_ns, status.st_ino & (1 << 63) - 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity):
            return NotImplemented
        if self.etag or other.etag:
            return self.size == other.size and self.etag == other.etag
        return (
            self.size == other.size
            and self.mtime_ns == other.mtime_ns
            and (self.ctime_ns == other.ctime_ns or not self.ctime_ns or not other.ctime_ns)
            and (self.inode == other.inode or not self.inode or not other.inode)
        )

    def __hash__(self) -> int:
        return hash((self.size, self.etag or self.mtime_ns))

    def seems(self, other: Identity) -> bool:
        """Whether both can have the same content: sizes, ETags and modification times agree."""
        return (
            self.size == other.size and self.etag == other.etag and (self.mtime_ns == other.mtime_ns or self.etag != "")
        )

    def elsewhere(self) -> Identity:
        """As another machine may see it: some shared file systems number inodes per machine."""
        return replace(self, inode=0) if self.inode else self


class OpenObject(Protocol):
    """One version of a file or object, open for reading. Counts the `requests` to the disk or the store for data, and
    their `bytes_requested`."""

    path: str
    identity: Identity
    requests: int
    bytes_requested: int

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; NotParquet when the file ends before."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each `(offset, length)`, in the order asked; neighbours are read together."""

    def check_unchanged(self, identity: Identity) -> None:
        """Raise FileChanged unless all that was read until now is of the version `identity` describes."""

    def sample(self) -> str:
        """A checksum of a local file, to detect other content of the same size; empty for an object, which has an ETag.
        Not counted."""

    def close(self) -> None:
        """Closing twice does no harm."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def is_nameable(path: str) -> bool:
    """Whether all readers can open a path: it is UTF-8 without control characters, and no part is empty, `.` or `..`.

    >>> [is_nameable(path) for path in ("a/b.parquet", "a//b.parquet", "a/../b.parquet", "a\\nb.parquet")]
    [True, False, False, False]
    """
    return _UNREADABLE.search(path) is None and not any(part in ("", ".", "..") for part in path.split("/"))


def is_url(location: str) -> bool:
    """Whether a location is in an object store."""
    return "://" in location


def changed(path: str, planned: Identity, current: Identity | None = None) -> FileChanged:
    return FileChanged(
        path,
        f"the file changed: {current.size} bytes, planned for {planned.size}"
        if current is not None and current.size != planned.size
        else "the file was modified since it was planned for",
        hint="Run the query again; `sync` brings the indexes up to date.",
    )


def too_short(path: str, size: int, offset: int, length: int) -> NotParquet:
    return NotParquet(
        path,
        f"bytes {offset} to {offset + length} are outside the file of {size} bytes",
        hint="The file is truncated or corrupt; write it again.",
    )
