"""The rows that are wanted of a file, and what reading them took."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from needlepoint.objects import OpenObject, open_object
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.read.page_plan import CachedCard


@dataclass(frozen=True, slots=True)
class ReadStats:
    """What a read cost."""

    bytes_read: int
    requests: int
    pages: int
    row_groups: int
    cached_bytes: int = 0  # that were not read, because a cache had them
    reasons: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)  # why whole row groups were read

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        return self.bytes_read, self.requests, self.pages, self.row_groups, self.cached_bytes


NOTHING_READ = ReadStats(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of one file, by numbers that count from 0, ascend and do not repeat; `cached` describes the file.
    `held` opens a version that stays readable when the path is replaced."""

    path: str
    cached: CachedCard
    rows: Int64Array
    held: Callable[[], OpenObject] | None = None

    def open(self) -> OpenObject:
        return open_object(self.path, self.cached.card.identity) if self.held is None else self.held()

    @contextmanager
    def reading(self) -> Iterator[OpenObject]:
        """FileChanged unless the file is that of the card until the end."""
        identity = self.cached.card.identity
        with self.open() as opened:
            if opened.identity != identity:
                opened.check_unchanged(identity)
            yield opened
            opened.check_unchanged(identity)
