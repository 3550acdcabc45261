"""The directory of a leaf file: the first key, the place and a checksum of each page.

It lies behind the page indexes of the leaf, before the footer, as a container of arrays (parquet/card/array_container).
A reader fetches it once, and then finds and checks any page without the footer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from needlepoint.parquet import CardCorrupt, array_container
from needlepoint.parquet.format import block_numbers, contains
from needlepoint.stores.leaf_files.key_form import Alphabets, pack_alphabets, unpack_alphabets
from needlepoint.stores.leaf_files.keys import Keys, hashes

Numbers = npt.NDArray[np.int64]

COLUMNS = 3  # key, file, row
FIRST_BYTE = 4  # behind the magic of Parquet


@dataclass(frozen=True, slots=True, eq=False)
class LeafDirectory:
    """`first_keys` of the pages; a page is `continued` if it begins with the key that the page before ends with.

    Pages of all three columns have the same rows: `page_rows` each, `group_pages` in a row group, fewer in the last.
    `offsets`, `sizes` and `checksums` have a line per column. `blocks` are the bytes of row groups, with the end.
    By `alphabets`, if there are any, keys are numbers of 8 bytes (key_form.py).
    """

    width: int
    entries: int
    page_rows: int
    group_pages: int
    first_keys: Keys
    last_key: bytes
    continued: npt.NDArray[np.bool_]
    offsets: Numbers
    sizes: Numbers
    checksums: npt.NDArray[np.uint32]
    blocks: Numbers
    filter: npt.NDArray[np.uint32] | None
    alphabets: Alphabets | None = None

    @property
    def pages(self) -> int:
        return len(self.first_keys)

    @property
    def memory(self) -> int:
        """Bytes that it takes."""
        arrays = (self.first_keys, self.continued, self.offsets, self.sizes, self.checksums, self.blocks)
        return 500 + sum(array.nbytes for array in arrays) + (0 if self.filter is None else self.filter.nbytes)

    def rows(self, pages: Numbers) -> Numbers:
        """How many entries each of these pages has."""
        return np.minimum(self.page_rows, self.entries - pages * self.page_rows)

    def admits(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Which of the keys can be in the leaf, by its filter."""
        if self.filter is None:
            return np.ones(len(keys), np.bool_)
        found = hashes(keys, self.width)
        numbers = block_numbers(found, np.array([len(self.filter)], np.uint64))[0]
        return contains(self.filter[numbers], found)

    def spans(self, low: Keys, high: Keys) -> tuple[Numbers, Numbers]:
        """The first page, and the one behind the last, that can have entries of each range `low` to `high`, both
        inclusive. A range before the first key is empty."""
        start = np.searchsorted(self.first_keys, low, side="left")
        inside = np.minimum(start, self.pages - 1)
        begins = (self.first_keys[inside] == low) & (start < self.pages) & ~self.continued[inside]
        end = np.searchsorted(self.first_keys, high, side="right")
        return np.maximum(np.where(begins, start, start - 1), 0), end


def make_offsets(sizes: Numbers, group_pages: int) -> tuple[Numbers, Numbers]:
    """Where pages begin, and where row groups begin and the last one ends: the columns of a row group follow each
    other, and nothing is between them.

    >>> offsets, blocks = make_offsets(np.array([[10, 10, 5], [2, 2, 2], [3, 3, 3]]), group_pages=2)
    >>> offsets.tolist(), blocks.tolist()
    ([[4, 14, 34], [24, 26, 39], [28, 31, 41]], [4, 34, 44])
    """
    pages = sizes.shape[1]
    groups = -(-pages // group_pages)
    padded = np.zeros((COLUMNS, groups * group_pages), np.int64)
    padded[:, :pages] = sizes
    in_order = padded.reshape(COLUMNS, groups, group_pages).transpose(1, 0, 2)
    ends = FIRST_BYTE + np.cumsum(in_order.ravel()).reshape(in_order.shape)
    starts = (ends - in_order).transpose(1, 0, 2).reshape(COLUMNS, -1)[:, :pages]
    return np.ascontiguousarray(starts), np.append(FIRST_BYTE, ends[:, -1, -1]).astype(np.int64)


def pack(directory: LeafDirectory) -> bytes:
    header: dict[str, Any] = {
        "width": directory.width, "entries": directory.entries, "page_rows": directory.page_rows,
        "group_pages": directory.group_pages, "last": directory.last_key.hex(),
    }  # fmt: skip
    if directory.alphabets is not None:
        header |= {"alphabets": pack_alphabets(directory.alphabets), "behind": directory.alphabets.behind}
    first, blobs = [], [b"", b""]
    if directory.width == 8:
        first.append(np.diff(directory.first_keys, prepend=np.int64(0)))  # modulo 2^64
    else:
        blobs[0] = directory.first_keys.tobytes()
    if directory.filter is not None:
        blobs[1] = directory.filter.tobytes()
    numbers = [
        directory.continued.astype(np.int64), directory.sizes.ravel(), directory.checksums.ravel().astype(np.int64)
    ]  # fmt: skip
    return array_container.pack(header, [*numbers, *first], blobs)


def unpack(data: bytes) -> LeafDirectory:
    """CardCorrupt if these bytes are no directory."""
    header, arrays, blobs = array_container.unpack(data)
    try:
        width, entries, last = int(header["width"]), int(header["entries"]), bytes.fromhex(header["last"])
        group_pages, page_rows = int(header["group_pages"]), int(header["page_rows"])
        continued, sizes, checksums = arrays[:3]
        first = np.cumsum(arrays[3]) if width == 8 else np.frombuffer(blobs[0], f"S{width}")
        pages = -(-entries // page_rows)
        offsets, blocks = make_offsets(sizes.reshape(COLUMNS, pages), group_pages)
        if not len(first) == len(continued) == pages or checksums.size != COLUMNS * pages or len(last) != width:
            raise CardCorrupt("the arrays of a directory differ in length")
        words = np.frombuffer(blobs[1], np.uint32).reshape(-1, 8) if blobs[1] else None
        lines = header.get("alphabets")
        alphabets = None if lines is None else unpack_alphabets(lines, int(header["behind"]))
    except (KeyError, ValueError, TypeError, IndexError, ZeroDivisionError) as error:
        raise CardCorrupt(f"the directory cannot be read: {error}") from error
    return LeafDirectory(
        width, entries, page_rows, group_pages, first, last, continued.astype(np.bool_), offsets,
        sizes.reshape(COLUMNS, pages), checksums.reshape(COLUMNS, pages).astype(np.uint32), blocks, words,
        alphabets,
    )  # fmt: skip


def checksum(data: bytes) -> str:
    """Of a directory or a manifest."""
    return xxhash.xxh3_128_hexdigest(data)
