"""The payload of a distinct index: the rows of each page, the number of pages of each value, the gaps between those,
the values: numbers as differences, binaries as lengths and bytes; and how many rows have each value. Version 1 has no
numbers of rows.

With `compat="datafusion"` the list of values as DataFusion's example reads it comes before the payload
(parquet/write/value_list.py), where the file's footer then points at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.errors import NotIndexable
from needlepoint.indexes.payload import damaged, pack, unpack
from needlepoint.indexes.values import Family, joined_binaries
from needlepoint.parquet.format import Int64Array
from needlepoint.parquet.write import value_list

NAME = "distinct"
VERSION = 2
_WITHOUT_COUNTS = 1


@dataclass(frozen=True, slots=True, eq=False)
class DistinctPayload:
    """`starts` are where the pages of each value begin in `pages`; NaN and NULL come after all values. `edges` are
    the first row of each page and the number of rows; `text` says that the values are strings. `row_counts` are the
    rows of each value, in the order of `starts`; None if they are not known."""

    family: Family
    edges: Int64Array
    values: pa.Array
    starts: Int64Array
    pages: npt.NDArray[np.unsignedinteger[Any]]
    text: bool
    row_counts: Int64Array | None = None

    @classmethod
    def of(
        cls,
        family: Family,
        edges: Int64Array,
        values: pa.Array,
        starts: Int64Array,
        pages: Int64Array,
        *,
        text: bool,
        row_counts: Int64Array | None = None,
    ) -> Self:
        narrow = pages.astype(np.min_scalar_type(max(0, len(edges) - 2)))
        is_text = text and family.form == "binary" and _are_texts(values)
        return cls(family, edges, values, starts, narrow, is_text, row_counts)

    def to_bytes(self) -> bytes:
        if self.row_counts is None:
            raise ValueError("the rows of each value are not known")
        counts = np.diff(self.starts)
        pages = self.pages.astype(np.int64)
        gaps = np.diff(pages, prepend=np.int64(0))
        firsts = self.starts[:-1][counts > 0]
        gaps[firsts] = pages[firsts]
        if self.family.is_binary:
            numbers, blobs = pc.binary_length(self.values).to_numpy(), [b"".join(self.values.to_pylist())]
        else:
            # Differences that leave 64 bits come back into them the same way.
            numbers, blobs = np.diff(self.values.to_numpy().view(np.int64), prepend=np.int64(0)), []
        arrays = [np.diff(self.edges), counts, gaps, numbers, self.row_counts]
        return pack(NAME, VERSION, self.family.to_dict(), arrays, blobs)

    @classmethod
    def from_bytes(cls, data: bytes, *, text: bool) -> Self:
        """What `to_bytes` wrote; IndexDamaged when the bytes are something else."""
        if data.startswith(value_list.MAGIC):
            try:
                _, data = value_list.decode_values(data)
            except ValueError as error:
                raise damaged(NAME, str(error)) from error
        header, arrays, blobs = unpack(NAME, (VERSION, _WITHOUT_COUNTS), data)
        try:
            family = Family.from_dict(header)
            sizes, counts, gaps, numbers, *rest = arrays
            row_counts = None if header["version"] == _WITHOUT_COUNTS else rest[0]
            edges, starts = _sums(sizes), _sums(counts)
            if starts[-1] != len(gaps) or (counts > len(gaps)).any():
                raise ValueError(f"{len(gaps)} places where {starts[-1]} were announced")
            sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(gaps)))
            pages = sums[1:] - np.repeat(sums[starts[:-1]], counts)
            if len(pages) and (pages.min() < 0 or pages.max() >= len(sizes)):
                raise ValueError("a page that does not exist")
            values = _values(family, numbers, blobs)
            if len(counts) != len(values) + 2:
                raise ValueError(f"{len(values)} values, and pages of {len(counts)}")
            _check_rows(row_counts, counts, int(edges[-1]))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise damaged(NAME, str(error)) from error
        return cls.of(family, edges, values, starts, pages, text=text, row_counts=row_counts)

    def texts(self) -> list[str]:
        """The values as strings."""
        if not self.text:
            raise NotIndexable("the values are not strings.")
        found: list[str] = self.values.cast(pa.large_string()).to_pylist()
        return found

    def value_list(self, column: str) -> bytes:
        """The list of values for DataFusion, which comes before the payload."""
        try:
            return value_list.encode_values(self.texts())
        except ValueError as error:
            raise NotIndexable(
                f"column '{column}' holds {str(error)[:40]!r}: a list for DataFusion has a value in each line, so none "
                "may have a newline or end in a carriage return.",
                hint="Leave out compat.",
            ) from error


def _are_texts(values: pa.Array) -> bool:
    """Whether all values are UTF-8: Parquet files can hold strings that are not."""
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _sums(counts: Int64Array) -> Int64Array:
    """Zero, and the sum after each count; ValueError for counts that are negative or too large."""
    if (counts < 0).any() or (counts >= 1 << 31).any():
        raise ValueError("a count below zero, or a very large one")
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))


def _check_rows(row_counts: Int64Array | None, pages: Int64Array, rows: int) -> None:
    """ValueError unless each row of the file has one value, and each value has a row on a page."""
    if row_counts is None:
        return
    if len(row_counts) != len(pages) or int(_sums(row_counts)[-1]) != rows:
        raise ValueError(f"{len(row_counts)} values do not have {rows} rows")
    if ((row_counts > 0) != (pages > 0)).any():
        raise ValueError("a value without rows or without pages")


def _values(family: Family, numbers: Int64Array, blobs: Sequence[bytes]) -> pa.Array:
    if family.is_binary:
        (blob,) = blobs
        return joined_binaries(numbers, blob)
    restored = np.cumsum(numbers)
    return pa.array(restored.view(np.float64) if family.form == "float" else restored, family.arrow)
