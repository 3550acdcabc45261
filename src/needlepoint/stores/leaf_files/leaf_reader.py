"""Read pages of a leaf file, and check them: from a local file, or from an object with a cache before it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import NamedTuple, Protocol

import numpy as np

from needlepoint.errors import FileError
from needlepoint.objects import LOCAL_GAP, Identity, OpenObject, open_object
from needlepoint.parquet import CardCorrupt
from needlepoint.stores.base import IndexDamaged
from needlepoint.stores.leaf_files import directory as directories
from needlepoint.stores.leaf_files.cache import CachedBlocks, LeafCache
from needlepoint.stores.leaf_files.directory import COLUMNS, LeafDirectory, Numbers
from needlepoint.stores.leaf_files.key_form import KeyCut, KeyForm
from needlepoint.stores.leaf_files.keys import Columns, Keys, different, to_keys
from needlepoint.stores.leaf_files.leaf_writer import page_checksums
from needlepoint.stores.leaf_files.manifest import LeafFile
from needlepoint.stores.leaf_files.page_memory import PageMemory
from needlepoint.stores.leaf_files.pages import Bytes, PagesOfColumns, decode
from needlepoint.stores.leaf_files.place import LeafPlace

_HINT = "Queries scan without it; `needle repair` builds it again."

FEW = 16  # ranges of a file that are read one by one


class Ranges(NamedTuple):
    """Parts of a file."""

    offsets: Numbers
    lengths: Numbers

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.offsets.tolist(), self.lengths.tolist(), strict=True))


class LeafBytes(Protocol):
    """The bytes of one leaf file."""

    def read(self, ranges: Ranges, *, keep: bool) -> Sequence[Bytes]:
        """Of each range; with `keep` they may be read again soon."""

    def forget(self, ranges: Ranges) -> bool:
        """Whether these bytes were kept from an earlier read, and will now be read again."""


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
            return self._object.read_ranges(ranges.pairs())
        blocks = self._blocks(ranges)
        missing = blocks[cached.present[blocks] == 0]
        if len(missing):
            assert self._cache is not None
            starts, ends = self._starts[missing], self._starts[missing + 1]
            fetched = self._object.read_ranges(Ranges(starts, ends - starts).pairs())
            for block, start, data in zip(missing.tolist(), starts.tolist(), fetched, strict=True):
                self._cache.keep(cached, block, start, data)
            if not cached.present[missing].all():  # the disk is full
                return self._object.read_ranges(ranges.pairs())
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
        return different(np.sort(np.searchsorted(self._starts, ranges.offsets, side="right") - 1))


class LeafReader:
    """One leaf file, open. `first` and `last` are its keys at both ends, each an array of one; `form` is how its pages
    have them. `memory` keeps pages of it in its `slots`."""

    def __init__(self, place: LeafPlace, leaf: LeafFile, cache: LeafCache | None, memory: PageMemory) -> None:
        self.leaf = leaf
        self.is_remote = place.is_remote
        self.first, self.last = (to_keys([end], len(end)) for end in (leaf.first, leaf.last))
        self._path = place.path(leaf.name)
        with _errors(self._path):
            self.directory, self._bytes = self._open(place, cache)
        self.form = KeyForm(leaf.cut, self.directory.alphabets)
        self.memory, self.slots = memory, memory.slots(self.directory)

    def _open(self, place: LeafPlace, cache: LeafCache | None) -> tuple[LeafDirectory, LeafBytes]:
        leaf = self.leaf
        if not place.is_remote:
            local = LocalLeaf(self._path)
            offset, length = leaf.directory
            place_of_it = Ranges(np.array([offset]), np.array([length]))
            return self._checked(bytes(local.read(place_of_it, keep=False)[0])), local
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

    def first_keys(self, cut: KeyCut) -> Keys:
        """Those of its pages, cut."""
        return cut.of(self.form.from_pages(self.directory.first_keys), self.form.cut.width)

    def entries(self, pages: Numbers, cut: KeyCut, *, keep: bool = True) -> Columns:
        """All entries of these pages, with keys that are cut, in ascending order."""
        rows = int(self.directory.rows(pages).sum())
        keys, locations = decode(self.read(pages, keep=keep), rows, self.form.page_width)
        return cut.of_columns(Columns(self.form.from_pages(keys), locations), self.form.cut.width)

    def read(self, pages: Numbers, *, keep: bool = True) -> PagesOfColumns:
        """The bytes of these pages, ascending, of each column; IndexDamaged unless they are as they were written."""
        with _errors(self._path):
            directory = self.directory
            ranges = Ranges(directory.offsets[:, pages].ravel(), directory.sizes[:, pages].ravel())
            sums = directory.checksums[:, pages].ravel()
            found = self._bytes.read(ranges, keep=keep)
            if not np.array_equal(page_checksums(found), sums):
                again = self._bytes.read(ranges, keep=keep) if self._bytes.forget(ranges) else []
                if not np.array_equal(page_checksums(again), sums):
                    raise CardCorrupt("the checksum of a page does not match")
                found = again
            count = len(pages)
            return [found[column * count : (column + 1) * count] for column in range(COLUMNS)]


def _read_file(descriptor: int, ranges: Ranges) -> list[Bytes]:
    """Ranges that are near each other are read together, if many are."""
    offsets, lengths = ranges
    if len(offsets) < FEW:
        return _read_each(descriptor, ranges)
    order = np.argsort(offsets, kind="stable")
    starts = offsets[order]
    ends = starts + lengths[order]
    begins = np.append(True, starts[1:] - ends[:-1] > LOCAL_GAP)
    first = np.flatnonzero(begins)
    if len(first) > len(offsets) // 2:
        return _read_each(descriptor, ranges)
    places = starts[first]
    blocks = _read_each(descriptor, Ranges(places, np.append(ends[first[1:] - 1], ends[-1]) - places))
    views = [memoryview(block) for block in blocks]
    block = np.empty(len(order), np.int64)
    block[order] = np.cumsum(begins) - 1
    inside = offsets - places[block]
    cuts = zip(block.tolist(), inside.tolist(), (inside + lengths).tolist(), strict=True)
    return [views[number][low:high] for number, low, high in cuts]


def _read_each(descriptor: int, ranges: Ranges) -> list[Bytes]:
    # Not mapped into memory: a file that is cut while it is open, or a disk that fails, would end the process.
    return list(map(os.pread, repeat(descriptor), ranges.lengths.tolist(), ranges.offsets.tolist()))


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """The border: a leaf file that is gone, cut or other than it was written is a damaged index."""
    try:
        yield
    except FileNotFoundError as error:
        raise IndexDamaged(f"the leaf file {path} is gone.", hint=_HINT) from error
    except (FileError, CardCorrupt) as error:
        raise IndexDamaged(f"the leaf file {path} is damaged: {error}.", hint=_HINT) from error
