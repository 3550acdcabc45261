"""Read pages of a leaf file, and check them: from a local file, or from an object with a cache before it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Protocol

import numpy as np

from needlepoint.errors import FileError
from needlepoint.objects import Identity, OpenObject, open_object
from needlepoint.parquet import CardCorrupt
from needlepoint.stores.base import IndexDamaged
from needlepoint.stores.leaf_files import directory as directories
from needlepoint.stores.leaf_files.cache import CachedBlocks, LeafCache
from needlepoint.stores.leaf_files.directory import COLUMNS, LeafDirectory, Numbers
from needlepoint.stores.leaf_files.leaf_writer import page_checksum
from needlepoint.stores.leaf_files.manifest import LeafFile
from needlepoint.stores.leaf_files.place import LeafPlace

_HINT = "Queries scan without it; `needle rebuild` builds it again."

Ranges = Sequence[tuple[int, int]]


class LeafBytes(Protocol):
    """The bytes of one leaf file."""

    def read(self, ranges: Ranges, *, keep: bool) -> list[bytes]:
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

    def read(self, ranges: Ranges, *, keep: bool) -> list[bytes]:
        pread, descriptor = os.pread, self._descriptor
        return [pread(descriptor, length, offset) for offset, length in ranges]

    def forget(self, ranges: Ranges) -> bool:
        return False


class RemoteLeaf:
    def __init__(self, url: str, leaf: LeafFile, directory: LeafDirectory, cache: LeafCache | None) -> None:
        self._object: OpenObject = open_object(url, Identity(leaf.size, 0))
        self._leaf = leaf
        self._starts = directory.blocks
        self._cache = cache

    def read(self, ranges: Ranges, *, keep: bool) -> list[bytes]:
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
        pread, descriptor = os.pread, cached.descriptor
        return [pread(descriptor, length, offset) for offset, length in ranges]

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
    """One leaf file, open."""

    def __init__(self, place: LeafPlace, leaf: LeafFile, cache: LeafCache | None) -> None:
        self.leaf = leaf
        self.is_remote = place.is_remote
        self._path = place.path(leaf.name)
        with _errors(self._path):
            self.directory, self._bytes = self._open(place, cache)

    def _open(self, place: LeafPlace, cache: LeafCache | None) -> tuple[LeafDirectory, LeafBytes]:
        leaf = self.leaf
        if not place.is_remote:
            local = LocalLeaf(self._path)
            return self._checked(local.read([leaf.directory], keep=False)[0]), local
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

    def read(self, pages: Numbers, *, keep: bool = True) -> list[list[bytes]]:
        """The bytes of these pages, ascending, of each column; IndexDamaged unless they are as they were written."""
        directory = self.directory
        with _errors(self._path):
            # Consecutive pages of a column in a row group follow each other: one read.
            first = np.flatnonzero(
                (np.diff(pages, prepend=-2) != 1) | (pages % directory.group_pages == 0)
            )  # fmt: skip
            offsets, sizes = directory.offsets[:, pages], directory.sizes[:, pages]
            lengths = np.add.reduceat(sizes, first, axis=1)
            ranges = list(zip(offsets[:, first].ravel().tolist(), lengths.ravel().tolist(), strict=True))
            found = self._cut(self._bytes.read(ranges, keep=keep), first, sizes)
            if not self._are_intact(found, pages):
                if not self._bytes.forget(ranges):
                    raise CardCorrupt("the checksum of a page does not match")
                found = self._cut(self._bytes.read(ranges, keep=keep), first, sizes)
                if not self._are_intact(found, pages):
                    raise CardCorrupt("the checksum of a page does not match")
            return found

    def _cut(self, parts: list[bytes], first: Numbers, sizes: Numbers) -> list[list[bytes]]:
        """Pages out of parts that each have one or more of them."""
        runs, pages = len(first), sizes.shape[1]
        columns = [parts[column * runs : (column + 1) * runs] for column in range(COLUMNS)]
        if runs == pages:
            return columns
        bounds = [*first.tolist(), pages]
        cut: list[list[bytes]] = []
        for column, part_list in zip(sizes, columns, strict=True):
            ends = np.cumsum(column)
            starts = (ends - column).tolist()
            stops = ends.tolist()
            cut.append(
                [
                    part[starts[page] - starts[low] : stops[page] - starts[low]]
                    for part, (low, high) in zip(part_list, pairwise(bounds), strict=True)
                    for page in range(low, high)
                ]
            )
        return cut

    def _are_intact(self, pages: list[list[bytes]], numbers: Numbers) -> bool:
        sums = np.array([[page_checksum(page) for page in column] for column in pages], np.uint32)
        return bool(np.array_equal(sums, self.directory.checksums[:, numbers]))


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """The border: a leaf file that is gone, cut or other than it was written is a damaged index."""
    try:
        yield
    except FileNotFoundError as error:
        raise IndexDamaged(f"the leaf file {path} is gone.", hint=_HINT) from error
    except (FileError, CardCorrupt) as error:
        raise IndexDamaged(f"the leaf file {path} is damaged: {error}.", hint=_HINT) from error
