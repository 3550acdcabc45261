"""A column becomes its distinct values and the pages of each.

Vectorised: a batch is encoded as a dictionary, whose values get numbers; numbers and pages of its rows become pairs,
each once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.errors import NotIndexable
from needlepoint.indexes.distinct.payload import DistinctPayload
from needlepoint.indexes.values import Family, ascending_once, is_nan
from needlepoint.parquet.format import Int64Array

# Pairs of a value and a page that are kept; with more, neighbouring pages count as one.
MOST_PLACES = 1 << 22
# NULL and NaN are numbered before the values that are found.
_NULL, _NAN, _FIRST = 0, 1, 2
_PAGE_BITS = 32
_PAGE = (1 << _PAGE_BITS) - 1


@dataclass(slots=True)
class ValueCollector:
    """Values and the pages they are on, batch after batch. `places` hold the number of a value in the upper half and
    that of a page, divided by 2 ** `shift`, in the lower."""

    column: str
    edges: Int64Array
    family: Family
    most_values: int
    most_bytes: int
    rows: int = 0
    shift: int = 0
    places: list[Int64Array] = field(default_factory=list)
    values: Any = None
    row_counts: Int64Array = field(default_factory=lambda: np.zeros(_FIRST, np.int64))

    def __post_init__(self) -> None:
        self.values = pa.array([], self.family.arrow)

    def add(self, column: pa.Array) -> None:
        rows = np.arange(self.rows, self.rows + len(column))
        self.rows += len(column)
        pages = np.searchsorted(self.edges[1:], rows, "right") >> self.shift
        encoded = column.dictionary_encode()
        numbers = np.append(self._numbers(encoded.dictionary), _NULL)
        which = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()
        of_rows = numbers[which]
        counts = np.bincount(of_rows, minlength=len(self.values) + _FIRST)
        counts[: len(self.row_counts)] += self.row_counts
        self.row_counts = counts
        self.places.append(ascending_once((of_rows << _PAGE_BITS) | pages))
        if sum(map(len, self.places)) > 2 * MOST_PLACES:
            self._merge()

    def _numbers(self, values: pa.Array) -> Int64Array:
        """The numbers of these values; those not seen before get new ones."""
        nan = is_nan(values)
        found = pc.index_in(values, value_set=self.values)
        new = values.filter(pc.and_(found.is_null(), pa.array(~nan)))
        if len(new):
            self.values = pa.concat_arrays([self.values, new])
            self._check()
            found = pc.index_in(values, value_set=self.values)
        numbers: Int64Array = np.where(nan, _NAN, pc.fill_null(found, 0).to_numpy().astype(np.int64) + _FIRST)
        return numbers

    def _check(self) -> None:
        where = f"in its first {self.rows:,} of {int(self.edges[-1]):,} rows"
        if len(self.values) > self.most_values:
            raise NotIndexable(
                f"column '{self.column}' has {len(self.values):,} distinct values {where}; {self.most_values:,} is the "
                "most a distinct index takes.",
                hint="A key or bloom index suits it better; most_values=… allows more.",
            )
        if self.values.nbytes > self.most_bytes:
            raise NotIndexable(
                f"the distinct values of column '{self.column}' have {self.values.nbytes:,} bytes {where}; "
                f"{self.most_bytes:,} is the most a distinct index takes.",
                hint='A key, bloom or text index suits it better; options={"most_bytes": …} allows more.',
            )

    def _merge(self) -> Int64Array:
        """Each place once, and not too many of them."""
        merged = ascending_once(np.concatenate([np.zeros(0, np.int64), *self.places]))
        while len(merged) > MOST_PLACES and int((merged & _PAGE).max()) > 0:
            self.shift += 1
            merged = ascending_once((merged & ~_PAGE) | ((merged & _PAGE) >> 1))
        self.places = [merged]
        return merged

    def payload(self, *, text: bool) -> DistinctPayload:
        if self.rows != int(self.edges[-1]):
            raise NotIndexable(f"{self.rows:,} rows were read of a file with {int(self.edges[-1]):,}.")
        merged = self._merge()
        edges = np.append(self.edges[:-1][:: 1 << self.shift], self.edges[-1])
        order = pc.sort_indices(self.values).to_numpy().astype(np.int64)
        ranks = np.empty(len(order) + _FIRST, np.int64)
        ranks[_NAN], ranks[_NULL] = len(order), len(order) + 1
        ranks[order + _FIRST] = np.arange(len(order))
        merged = np.sort((ranks[merged >> _PAGE_BITS] << _PAGE_BITS) | (merged & _PAGE))
        starts = np.searchsorted(merged, np.arange(len(ranks) + 1) << _PAGE_BITS).astype(np.int64)
        row_counts = np.concatenate((self.row_counts[order + _FIRST], self.row_counts[[_NAN, _NULL]]))
        return DistinctPayload.of(
            self.family,
            edges,
            self.values.take(pa.array(order)),
            starts,
            merged & _PAGE,
            text=text,
            row_counts=row_counts,
        )
