"""What an open object is, and what tells one version of it from the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from needlepoint.errors import FileChanged, NotParquet


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """What tells one version of a file from the next: size and time, or where there is an ETag, size and ETag.

    An object store gives its times in whole seconds, and other ones in a listing than for the object itself.
    """

    size: int
    mtime_ns: int
    etag: str = ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity):
            return NotImplemented
        return (
            self.size == other.size and self.etag == other.etag and (self.mtime_ns == other.mtime_ns or self.etag != "")
        )

    def __hash__(self) -> int:
        return hash((self.size, self.etag or self.mtime_ns))


class OpenObject(Protocol):
    """One version of a file or object, open for reading. Counts what is asked of it: `requests` that went to the disk
    or the store for data, and `bytes_requested` with them."""

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

    def close(self) -> None:
        """Closing twice does no harm."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


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
        f"bytes {offset} to {offset + length} lie outside the file of {size} bytes",
        hint="The file is truncated or corrupt; write it again.",
    )
