"""What lookups keep for the next one: decoded dictionaries and small pages, each up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

import pyarrow as pa

Value = TypeVar("Value")

# Pages up to this are kept: a hundred of them are worth less memory than one request is worth time.
LARGEST_KEPT_PAGE = 64 * 1024


class ByteCache(Generic[Value]):
    """The values used last, `limit` bytes of them at most, for any number of threads. Counts what happens to it.

    >>> cache: ByteCache[str] = ByteCache(10)
    >>> cache.put("a", "first", 5)
    >>> cache.put("b", "second", 6)
    >>> cache.get("a"), cache.get("b"), cache.bytes
    (None, 'second', 6)
    """

    __slots__ = ("_entries", "_lock", "bytes", "evictions", "hits", "limit", "misses")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = self.hits = self.misses = self.evictions = 0
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Value | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                self.misses += 1
                return None
            self._entries.move_to_end(key)
            self.hits += 1
            return found[0]

    def put(self, key: Hashable, value: Value, size: int) -> None:
        """Keep the value, which takes `size` bytes; one larger than the limit is not kept."""
        with self._lock:
            replaced = self._entries.pop(key, None)
            if replaced is not None:
                self.bytes -= replaced[1]
            if size > self.limit:
                return
            self._entries[key] = (value, size)
            self.bytes += size
            while self.bytes > self.limit:
                _, (_, freed) = self._entries.popitem(last=False)
                self.bytes -= freed
                self.evictions += 1

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.bytes = 0


@dataclass(frozen=True, slots=True)
class Caches:
    """Shared by all lookups of a process. Keys name a version of a file: what changed is never found again.

    `dictionaries` are decoded, by path, identity, leaf column and row group; `pages` are as in the file, by path,
    identity and offset. The system caches files better than we do: without `local_pages` only objects are kept.
    """

    dictionaries: ByteCache[pa.Array]
    pages: ByteCache[bytes]
    local_pages: bool = True

    @classmethod
    def of(cls, dictionary_bytes: int, page_bytes: int, local_pages: bool = True) -> Caches:
        """Empty caches of these limits."""
        return cls(ByteCache(dictionary_bytes), ByteCache(page_bytes), local_pages)
