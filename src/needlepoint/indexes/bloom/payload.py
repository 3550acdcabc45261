"""The payload of a bloom index: the rows of each row group, the blocks of each filter, and the filters themselves.

Filters are stored column by column: for the file if it has several row groups, then for each of them. A number of
blocks of -1 means a filter that there was no memory to build: its answer is maybe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from needlepoint.indexes.payload import damaged, pack, unpack
from needlepoint.indexes.values import Family
from needlepoint.parquet.format import BLOCK, Int64Array

NAME = "bloom"
VERSION = 1
MOST_BLOCKS = (128 << 20) // BLOCK
UNKNOWN = -1


def to_bytes(
    columns: Sequence[str],
    families: Sequence[Family],
    edges: Int64Array,
    counts: Int64Array,
    words: npt.NDArray[np.uint32],
) -> bytes:
    header = {"columns": list(columns), "families": [family.to_dict() for family in families]}
    return pack(NAME, VERSION, header, [np.diff(edges), counts], [words.tobytes()])


@dataclass(frozen=True, slots=True, eq=False)
class BloomPayload:
    """`counts` are the blocks of each filter, by column (the last line is of all together) and by what it is of: the
    file, if it has several row groups, then each of those. `firsts` are where they begin in `words`."""

    columns: tuple[str, ...]
    families: tuple[Family, ...]
    edges: Int64Array
    counts: Int64Array
    firsts: Int64Array
    words: npt.NDArray[np.uint32]

    @classmethod
    def from_bytes(cls, data: bytes, columns: Sequence[str]) -> Self:
        """IndexDamaged when the bytes are something else, or of other columns."""
        header, arrays, blobs = unpack(NAME, (VERSION,), data)
        try:
            families = tuple(Family.from_dict(each) for each in header["families"])
            if header["columns"] != list(columns) or len(families) != len(columns):
                raise ValueError(f"it is of the columns {header['columns']}")
            sizes, counts = arrays
            (blob,) = blobs
            if (sizes < 0).any() or (counts < UNKNOWN).any() or (counts > MOST_BLOCKS).any():
                raise ValueError("a count that cannot be one")
            edges = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
            lines = len(columns) + (len(columns) > 1)
            counts = counts.reshape(lines, len(sizes) + (len(sizes) > 1))
            stored = np.maximum(counts, 0)
            firsts = (np.cumsum(stored) - stored.ravel()).reshape(counts.shape)
            words = np.frombuffer(blob, "<u4").reshape(-1, BLOCK // 4)
            if len(words) != stored.sum():
                raise ValueError(f"{len(words)} blocks where {stored.sum()} were announced")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(NAME, str(error)) from error
        return cls(tuple(columns), families, edges, counts, firsts, words)
