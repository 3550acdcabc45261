"""What lookups keep for the next one: decoded dictionaries and small pages, each up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar

import pyarrow as pa

from needlepoint.objects import Identity, OpenObject
from needlepoint.parquet.read.dictionaries import decode_dictionary
from needlepoint.parquet.read.page_plan import LeafPlan

Value = TypeVar("Value")

# Pages up to this are kept: a hundred of them are worth less memory than one request is worth time.
LARGEST_KEPT_PAGE = 64 * 1024
ENTRY = 1024  # bytes of memory, roughly, that a kept dictionary takes besides its values


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

    def __contains__(self, key: Hashable) -> bool:
        """Whether it is kept; this is not a use of it."""
        return key in self._entries

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

    def discard(self, unwanted: Callable[[Any], bool]) -> list[Value]:
        """Drop the values with such keys, and return them."""
        with self._lock:
            dropped = [self._entries.pop(key) for key in [key for key in self._entries if unwanted(key)]]
            self.bytes -= sum(size for _, size in dropped)
        return [value for value, _ in dropped]

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

    def forget(self, paths: Set[str]) -> None:
        """Drop what is kept of files that are gone."""
        for each in (self.dictionaries, self.pages):
            each.discard(lambda key: key[0] in paths)


@dataclass(frozen=True, slots=True)
class FileCache:
    """The cached parts of one version of a file, for a lookup of `num_rows` rows."""

    caches: Caches
    path: str
    identity: Identity
    num_rows: int

    def entries(self, leaf: LeafPlan, row_group: int) -> pa.Array | None:
        """The decoded dictionary of the chunk, if it was kept."""
        return self.caches.dictionaries.get((self.path, self.identity, leaf.leaf, row_group))

    def decode(self, leaf: LeafPlan, row_group: int, page: bytes) -> pa.Array:
        """The dictionary page decoded, and kept for the next lookup."""
        frame, optional = leaf.alone()
        entries = decode_dictionary(frame, leaf.chunk(row_group).head, page, optional)
        key = (self.path, self.identity, leaf.leaf, row_group)
        self.caches.dictionaries.put(key, entries, entries.get_total_buffer_size() + ENTRY)
        return entries

    def read(self, file: OpenObject, ranges: Sequence[tuple[int, int]]) -> tuple[list[bytes], int]:
        """The bytes of each range, from the cache or the file, and how many came from the cache.

        Of an object at least one range is read each time, to verify that its version is still the same.
        """
        if not (self.identity.etag or self.caches.local_pages):
            return file.read_ranges(ranges), 0
        pages, path, identity = self.caches.pages, self.path, self.identity
        blocks: list[bytes] = []
        missing: list[int] = []
        cached = 0
        for number, (offset, length) in enumerate(ranges):
            found = pages.get((path, identity, offset)) if length <= LARGEST_KEPT_PAGE else None
            # Neighbouring pages are one range: the same offset may have been read with more of them, or fewer.
            if found is None or len(found) != length:
                missing.append(number)
                blocks.append(b"")
            else:
                blocks.append(found)
                cached += length
        if self.identity.etag and not missing:
            smallest = min(range(len(ranges)), key=lambda number: ranges[number][1])
            missing.append(smallest)
            cached -= ranges[smallest][1]
        if missing:
            wanted = [ranges[number] for number in missing]
            for number, (offset, length), data in zip(missing, wanted, file.read_ranges(wanted), strict=True):
                blocks[number] = data
                if length <= LARGEST_KEPT_PAGE:
                    pages.put((path, identity, offset), data, length)
        return blocks, cached
