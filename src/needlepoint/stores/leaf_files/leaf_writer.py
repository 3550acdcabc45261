"""Write a leaf file: ascending entries as plain Parquet, with a directory of its pages.

    PAR1
    row groups of 8,192 entries: key, file, row; 512 in a page, 256 if keys have other than 8 bytes
    column indexes, offset indexes          for other readers
    directory                               for us: first keys, places and checksums of pages, perhaps a filter
    FileMetaData, with needlepoint.leaf = {"format": 2, "runs": […], "entries": …, "directory": […], …}

Numbers are DELTA_BINARY_PACKED, other keys DELTA_BYTE_ARRAY, and nothing is compressed: zstd takes 15 µs for each page,
three times as long as all else that a lookup does with it, and finds little in packed bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from needlepoint.errors import StoreError
from needlepoint.objects import open_object
from needlepoint.parquet.format import FileMetadata, decode_offset_index, filled, footer_edit, read_footer
from needlepoint.stores.leaf_files import directory as directories
from needlepoint.stores.leaf_files.directory import COLUMNS, LeafDirectory, Numbers, make_offsets
from needlepoint.stores.leaf_files.key_form import KeyForm
from needlepoint.stores.leaf_files.keys import (
    Columns,
    Keys,
    arrow_type,
    different,
    dtype,
    hashes,
    key_table,
    to_arrow,
    to_keys,
)
from needlepoint.stores.leaf_files.manifest import LeafFile

FORMAT = 2
WHOLE_KEYS = 1  # the format of a leaf that has all bits of its keys
META_KEY = b"needlepoint.leaf"
GROUP_ROWS = 8192
# A run that overlaps many others is mostly asked for keys that it does not have: a byte a key answers for 97 of 100.
# Large leaves have none. Fetching it would take longer than the page that it may spare.
MOST_FILTERED = 1 << 19
FILTER_BLOCK_KEYS = 32  # of a block of 32 bytes


def page_rows(width: int) -> int:
    """Entries of a page: it is decoded as a whole to find one, and each takes 60 bytes besides its entries."""
    return 512 if width == 8 else 256


class LeafWriter:
    """Takes ascending entries, some at a time, and writes row group by row group. `finish` completes the file."""

    def __init__(
        self, path: Path, form: KeyForm, bits: int = 0, runs: Sequence[str] = (), merged: Sequence[str] = ()
    ) -> None:
        """`bits` are those of LeafFile."""
        self.path = path
        self.entries = 0
        self._form, self._bits = form, bits
        self._width = width = form.page_width
        self._names = {"runs": list(runs), "merged": list(merged)}
        key = pa.field("key", arrow_type(width), nullable=False)
        halves = (pa.field(name, pa.uint32(), nullable=False) for name in ("file", "row"))
        self._schema = pa.schema([key, *halves])
        self._page_rows = page_rows(width)
        numbers = "DELTA_BINARY_PACKED"
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            version="2.6",
            compression="NONE",
            use_dictionary=False,
            column_encoding={"key": numbers if width == 8 else "DELTA_BYTE_ARRAY", "file": numbers, "row": numbers},
            write_statistics=["key"],
            write_page_index=True,
            max_rows_per_page=self._page_rows,
            write_batch_size=self._page_rows,
            store_schema=False,
        )
        self._held: list[Columns] = []
        self._held_rows = 0
        self._first_keys: list[Keys] = []
        self._continued: list[npt.NDArray[np.bool_]] = []
        self._last: Keys | None = None
        self._hashes: list[npt.NDArray[np.uint64]] = []

    def append(self, columns: Columns) -> None:
        """Entries behind all those before, with keys that are cut."""
        if not len(columns.keys):
            return
        self._held.append(Columns(self._form.to_pages(columns.keys), columns.locations))
        self._held_rows += len(columns.keys)
        if self._held_rows >= GROUP_ROWS:
            self._write(self._held_rows - self._held_rows % GROUP_ROWS)

    def abandon(self) -> None:
        """Leave nothing."""
        self._writer.close()
        self.path.unlink(missing_ok=True)

    def finish(self) -> LeafFile:
        """Complete the file; returns what a manifest says about it, under the file's own name."""
        self._write(self._held_rows)
        self._writer.close()
        with open_object(str(self.path)) as file:
            footer = read_footer(file)
        with self.path.open("r+b") as target:
            listed = self._directory(footer, target)
            data = directories.pack(listed)
            offset = target.seek(-8 - len(footer.raw), 2)
            first, last = map(self._plain, (listed.first_keys[:1], self._last_keys()))
            leaf = LeafFile(
                self.path.name, self.path.name, 0, self.entries, first, last, 0, (offset, len(data)),
                directories.checksum(data), self._bits,
            )  # fmt: skip
            target.write(data)
            target.write(footer_edit.tail(footer_edit.with_key(footer.raw, META_KEY, self._description(leaf))))
            target.truncate()
            return replace(leaf, size=target.tell())

    def _plain(self, keys: Keys) -> bytes:
        """A key as it is outside of pages."""
        return key_table(self._form.from_pages(keys), self._form.cut.width).tobytes()

    def _last_keys(self) -> Keys:
        """The last key; zeros if there is none."""
        return to_keys([b"\0" * self._width], self._width) if self._last is None else self._last

    def _description(self, leaf: LeafFile) -> bytes:
        told: dict[str, Any] = {"format": FORMAT if self._bits else WHOLE_KEYS, "key_bytes": self._form.cut.width}
        told |= {"entries": leaf.entries, **({"bits": self._bits} if self._bits else {})}
        told |= {"first": leaf.first.hex(), "last": leaf.last.hex(), "directory": leaf.directory}
        return json.dumps({**told, "checksum": leaf.checksum, **self._names}).encode()

    def _write(self, count: int) -> None:
        """Write so many of the entries that are held: whole row groups, or the last ones."""
        if not count:
            return
        keys = np.concatenate([each.keys for each in self._held])
        locations = np.concatenate([each.locations for each in self._held])
        self._held = [Columns(keys[count:], locations[count:])]
        self._held_rows -= count
        written = Columns(keys[:count], locations[:count])
        self._writer.write_table(to_arrow(written, self._schema, self._width), row_group_size=GROUP_ROWS)
        self._note(written.keys)

    def _note(self, keys: Keys) -> None:
        starts = np.arange(0, len(keys), self._page_rows)
        first = keys[starts]
        before = keys[starts - 1]
        continued = first == before
        continued[0] = self._last is not None and bool(self._last[0] == first[0])
        self._first_keys.append(first.copy())
        self._continued.append(continued)
        self._last = keys[-1:].copy()
        self.entries += len(keys)
        if self.entries <= MOST_FILTERED:
            self._hashes.append(hashes(different(keys), self._width))

    def _directory(self, footer: FileMetadata, file: BinaryIO) -> LeafDirectory:
        group_pages = GROUP_ROWS // self._page_rows
        found, sizes = _page_places(footer, file)
        offsets, blocks = make_offsets(sizes, group_pages)
        first = np.concatenate(self._first_keys) if self._first_keys else np.empty(0, dtype(self._width))
        if sizes.shape[1] != len(first) or not np.array_equal(found, offsets):
            raise StoreError(f"{self.path} has other pages than a leaf file.", hint="Use another version of pyarrow.")
        words = None
        if 0 < self.entries <= MOST_FILTERED:
            found_hashes = np.concatenate(self._hashes)
            words = filled(found_hashes, -(-len(found_hashes) // FILTER_BLOCK_KEYS))
        last = key_table(self._last_keys(), self._width).tobytes()
        continued = np.concatenate(self._continued) if self._continued else np.empty(0, np.bool_)
        return LeafDirectory(
            self._width, self.entries, self._page_rows, group_pages, first, last, continued, offsets, sizes,
            _page_checksums(file, offsets, sizes, blocks, group_pages), blocks, words, self._form.alphabets,
        )  # fmt: skip


def _page_places(footer: FileMetadata, file: BinaryIO) -> tuple[Numbers, Numbers]:
    """Offsets and sizes of pages, a line per column, from the offset indexes."""
    chunks = [chunk for group in footer.row_groups for chunk in group.columns]
    if not chunks:
        return np.empty((COLUMNS, 0), np.int64), np.empty((COLUMNS, 0), np.int64)
    start = min(chunk.offset_index_offset or 0 for chunk in chunks)
    file.seek(start)
    data = file.read()
    places: list[list[tuple[Numbers, Numbers]]] = [[], [], []]
    for number, chunk in enumerate(chunks):
        begin = (chunk.offset_index_offset or 0) - start
        index = decode_offset_index(data[begin : begin + (chunk.offset_index_length or 0)])
        places[number % COLUMNS].append((index.offset, index.compressed_page_size))
    offsets = np.stack([np.concatenate([offset for offset, _ in column]) for column in places])
    return offsets, np.stack([np.concatenate([size for _, size in column]) for column in places])


def _page_checksums(
    file: BinaryIO, offsets: Numbers, sizes: Numbers, blocks: Numbers, group_pages: int
) -> npt.NDArray[np.uint32]:
    found = np.zeros(offsets.shape, np.uint32)
    for group in range(len(blocks) - 1):
        start = int(blocks[group])
        file.seek(start)
        data = memoryview(file.read(int(blocks[group + 1]) - start))
        pages = slice(group * group_pages, (group + 1) * group_pages)
        places = np.stack((offsets[:, pages] - start, sizes[:, pages]), axis=-1)
        sums = page_checksums(data[at : at + size] for at, size in places.reshape(-1, 2).tolist())
        found[:, pages] = sums.reshape(COLUMNS, -1)
    return found


def page_checksums(pages: Iterable[bytes | memoryview]) -> npt.NDArray[np.uint32]:
    """Of pages with their headers: the lower 32 bits of XXH3."""
    return np.fromiter(map(xxhash.xxh3_64_intdigest, pages), np.uint64).astype(np.uint32)
