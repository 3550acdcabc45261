"""What the caches have of one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from needlepoint.objects import Identity, OpenObject
from needlepoint.parquet.read.caches import LARGEST_KEPT_PAGE, Caches
from needlepoint.parquet.read.dictionaries import decode_dictionary
from needlepoint.parquet.read.page_plan import LeafPlan

ENTRY = 1024  # bytes of memory, roughly, that a kept dictionary takes besides its values


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
