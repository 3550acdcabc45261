"""Read pages of a leaf file, and check them: from a local file, or from an object with a cache before it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from needlepoint.errors import FileError
from needlepoint.objects import LOCAL_GAP, Identity, OpenObject, open_object
from needlepoint.parquet import CardCorrupt
from needlepoint.stores.base import IndexDamaged
from needlepoint.stores.leaf_files import directory as directories
from needlepoint.stores.leaf_files.cache import CachedBlocks, LeafCache
from needlepoint.stores.leaf_files.directory import COLUMNS, LeafDirectory, Numbers
from needlepoint.stores.leaf_files.keys import Columns, to_keys
from needlepoint.stores.leaf_files.leaf_writer import page_checksum
from needlepoint.stores.leaf_files.manifest import LeafFile
from needlepoint.stores.leaf_files.page_memory import KeptPages, PageMemory
from needlepoint.stores.leaf_files.pages import Bytes, PagesOfColumns
from needlepoint.stores.leaf_files.place import LeafPlace

_HINT = "Queries scan without it; `needle rebuild` builds it again."

FEW = 16  # ranges of a file that are read one by one

Ranges = Sequence[tuple[int, int]]


class LeafBytes(Protocol):
    """The bytes of one leaf file."""

    def read(self, ranges: Ranges, *, keep: bool) -> Sequence[Bytes]:
        """Of each `(offset, length)`; with `keep` they may be read again soon."""

    def forget(self, ranges: Ranges) -> bool:
        """Whether these bytes were kept from an earlier read, and will now be read anew."""


class LocalLeaf:
    """Closed when nothing refers to it: another thread may still read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._descriptor)

    def read(self, ranges: Ranges, *, keep: bool) -> Sequence[Bytes]:
        return _read_file(self._descriptor, ranges)

    def forget(self, ranges: Ranges) -> bool:
        return False


class RemoteLeaf:
    def __init__(self, url: str, leaf: LeafFile, directory: LeafDirectory, cache: LeafCache | None) -> None:
        self._object: OpenObject = open_object(url, Identity(leaf.size, 0))
        self._leaf = leaf
        self._starts = directory.blocks
        self._cache = cache

    def read(self, ranges: Ranges, *, keep: bool) -> Sequence[Bytes]:
        cached = self._cached() if keep else None
        if cached is None:
            return self._object.read_ranges(ranges)
        blocks = self._blocks(ranges)
        missing = blocks[cached.present[blocks] == 0]
        if len(missing):
            assert self._cache is not None
            starts, ends = self._starts[missing], self._starts[missing + 1]
            fetched = self._object.read_ranges(list(zip(starts.tolist(), (ends - starts).tolist(), strict=True)))
            for block, start, data in zip(missing.tolist(), starts.tolist(), fetched, strict=True):
                self._cache.keep(cached, block, start, data)
            if not cached.present[missing].all():  # the disk is full
                return self._object.read_ranges(ranges)
        return _read_file(cached.descriptor, ranges)

    def forget(self, ranges: Ranges) -> bool:
        cached = self._cached()
        if cached is None:
            return False
        blocks = [block for block in self._blocks(ranges).tolist() if cached.present[block]]
        for block in blocks:
            cached.forget(block)
        return bool(blocks)

    def _cached(self) -> CachedBlocks | None:
        if self._cache is None:
            return None
        return self._cache.blocks(self._leaf.name, self._leaf.size, len(self._starts) - 1)

    def _blocks(self, ranges: Ranges) -> Numbers:
        """The row groups that these ranges, each inside one, are in."""
        offsets = np.array([offset for offset, _ in ranges], np.int64)
        return np.unique(np.searchsorted(self._starts, offsets, side="right") - 1)


class LeafReader:
    """One leaf file, open. `first` and `last` are its keys at both ends, each an array of one."""

    def __init__(
        self, place: LeafPlace, leaf: LeafFile, cache: LeafCache | None, memory: PageMemory | None = None
    ) -> None:
        self.leaf = leaf
        self.is_remote = place.is_remote
        self.first, self.last = (to_keys([end], len(end)) for end in (leaf.first, leaf.last))
        self._path = place.path(leaf.name)
        with _errors(self._path):
            self.directory, self._bytes = self._open(place, cache)
        self._memory = memory
        self._slots = memory.slots(self.directory) if memory is not None else None

    def _open(self, place: LeafPlace, cache: LeafCache | None) -> tuple[LeafDirectory, LeafBytes]:
        leaf = self.leaf
        if not place.is_remote:
            local = LocalLeaf(self._path)
            return self._checked(bytes(local.read([leaf.directory], keep=False)[0])), local
        data = cache.directory_of(leaf.name) if cache is not None else None
        if data is None or directories.checksum(data) != leaf.checksum:
            data = open_object(self._path, Identity(leaf.size, 0)).read(*leaf.directory)
            if cache is not None and directories.checksum(data) == leaf.checksum:
                cache.keep_directory(leaf.name, data)
        directory = self._checked(data)
        return directory, RemoteLeaf(self._path, leaf, directory, cache)

    def _checked(self, data: bytes) -> LeafDirectory:
        if directories.checksum(data) != self.leaf.checksum:
            raise CardCorrupt("the checksum of its directory does not match")
        return directories.unpack(data)

    def read(self, pages: Numbers, *, keep: bool = True) -> PagesOfColumns:
        """The bytes of these pages, ascending, of each column; IndexDamaged unless they are as they were written."""
        with _errors(self._path):
            offsets, sizes = self.directory.offsets[:, pages], self.directory.sizes[:, pages]
            sums = self.directory.checksums[:, pages].ravel().tolist()
            ranges = list(zip(offsets.ravel().tolist(), sizes.ravel().tolist(), strict=True))
            found = self._bytes.read(ranges, keep=keep)
            if list(map(page_checksum, found)) != sums:
                again = self._bytes.read(ranges, keep=keep) if self._bytes.forget(ranges) else []
                if list(map(page_checksum, again)) != sums:
                    raise CardCorrupt("the checksum of a page does not match")
                found = again
            count = len(pages)
            return [found[column * count : (column + 1) * count] for column in range(COLUMNS)]

    def kept(self, pages: Numbers) -> KeptPages | None:
        """What memory has of the entries of these pages."""
        if self._memory is None or self._slots is None:
            return None
        return self._memory.find(self._slots, self.directory, pages)

    def keep(self, pages: Numbers, columns: Columns) -> None:
        """Keep the entries of pages that were read."""
        if self._memory is not None and self._slots is not None and len(pages):
            self._memory.keep(self._slots, self.directory, pages, columns)


def _read_file(descriptor: int, ranges: Ranges) -> list[Bytes]:
    """Ranges that are near each other are read together."""
    pread = os.pread
    if len(ranges) < FEW:
        return [pread(descriptor, length, offset) for offset, length in ranges]
    table = np.array(ranges, np.int64)
    order = np.argsort(table[:, 0])
    starts = table[order, 0]
    ends = starts + table[order, 1]
    begins = np.append(True, starts[1:] - ends[:-1] > LOCAL_GAP)
    first = np.flatnonzero(begins)
    if len(first) > len(ranges) // 2:
        return [pread(descriptor, length, offset) for offset, length in ranges]
    places = starts[first]
    lengths = np.append(ends[first[1:] - 1], ends[-1]) - places
    reads = zip(lengths.tolist(), places.tolist(), strict=True)
    blocks = [memoryview(pread(descriptor, length, place)) for length, place in reads]
    block = np.empty(len(order), np.int64)
    block[order] = np.cumsum(begins) - 1
    inside = table[:, 0] - places[block]
    cuts = zip(block.tolist(), inside.tolist(), (inside + table[:, 1]).tolist(), strict=True)
    return [blocks[number][low:high] for number, low, high in cuts]


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """The border: a leaf file that is gone, cut or other than it was written is a damaged index."""
    try:
        yield
    except FileNotFoundError as error:
        raise IndexDamaged(f"the leaf file {path} is gone.", hint=_HINT) from error
    except (FileError, CardCorrupt) as error:
        raise IndexDamaged(f"the leaf file {path} is damaged: {error}.", hint=_HINT) from error
