"""The distinct index: every value that a column of a file holds, and the pages that hold it (search.py).

A column with few values in files with many pages gains most; one with many is refused, as its index would be as large
as the column. Built vectorised: a batch is encoded as a dictionary, whose values get numbers; numbers and pages of its
rows become pairs, each once.

With `compat="datafusion"` the list of values as DataFusion's example reads it stands before the payload
(parquet/write/value_list.py), where the file's footer then points at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.errors import NotIndexable, UsageError
from needlepoint.indexes.base import Built, FileIndex, Options, Source, Stored
from needlepoint.indexes.distinct.search import NAME, VERSION, DistinctIndex
from needlepoint.indexes.payload import damaged
from needlepoint.indexes.values import Family, ascending_once, is_nan, require_family, stored_values
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.write import value_list
from needlepoint.tables.schemas import plain

MOST_VALUES = 10_000
MOST_VALUE_BYTES = 16 << 20
# Pairs of a value and a page that are kept; with more, neighbouring pages count as one.
MOST_PLACES = 1 << 22


class DistinctKind:
    """Options: `most_values` and `most_bytes` allow longer lists, `compat="datafusion"` writes one for DataFusion."""

    name = NAME
    version = VERSION

    def check(self, table: str, fields: Sequence[pa.Field], options: Options) -> None:
        if len(fields) != 1:
            raise UsageError(f"a distinct index has one column, not {len(fields)}.", hint="Create one for each column.")
        (column,) = fields
        require_family(self.name, table, column)
        _limits(options)
        if _compatible(options) and not _is_text(column):
            raise NotIndexable(
                f"column '{column.name}' is {column.type}, and a list for DataFusion holds strings.",
                hint="Leave compat away.",
            )

    def build(self, source: Source) -> Built:
        (column,) = source.fields
        family = require_family(self.name, "", column)
        edges = source.page_rows.get(column.name, source.row_group_rows)
        collected = _Collector(column.name, edges, family, *_limits(source.options))
        for batch in source.batches():
            collected.add(stored_values(batch.column(0)))
        index = collected.index(text=_is_text(column))
        payload = index.to_bytes()
        if _compatible(source.options):
            payload = _value_list(index, column.name) + payload
        return Built(payload, len(index.values))

    def open(self, stored: Stored, fields: Sequence[pa.Field], options: Options) -> FileIndex:
        data = stored.read()
        if data.startswith(value_list.MAGIC):
            try:
                _, data = value_list.decode_values(data)
            except ValueError as error:
                raise damaged(self.name, str(error)) from error
        return DistinctIndex.from_bytes(data, text=_is_text(fields[0]))


def _value_list(index: DistinctIndex, column: str) -> bytes:
    try:
        return value_list.encode_values(index.texts())
    except ValueError as error:
        raise NotIndexable(
            f"column '{column}' holds {str(error)[:40]!r}: a list for DataFusion has a value in each line, so none may "
            "have a newline or end in a carriage return.",
            hint="Leave compat away.",
        ) from error


def _is_text(column: pa.Field) -> bool:
    return bool(pa.types.is_string(plain(column.type)))


def _limits(options: Options) -> tuple[int, int]:
    known = {"most_values": MOST_VALUES, "most_bytes": MOST_VALUE_BYTES, "compat": None}
    for name, value in options.items():
        if name not in known:
            raise UsageError(f"a distinct index has no option '{name}'.", hint=f"It has: {', '.join(known)}.")
        if name != "compat" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise UsageError(f"{name}={value!r} is no number of at least 1.")
    return options.get("most_values", MOST_VALUES), options.get("most_bytes", MOST_VALUE_BYTES)


def _compatible(options: Options) -> bool:
    compat = options.get("compat")
    if compat not in (None, "datafusion"):
        raise UsageError(f"compat={compat!r} is not known.", hint="It can be 'datafusion'.")
    return compat is not None


# NULL and NaN are numbered before the values that are found.
_NULL, _NAN, _FIRST = 0, 1, 2
_PAGE_BITS = 32
_PAGE = (1 << _PAGE_BITS) - 1


@dataclass(slots=True)
class _Collector:
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

    def __post_init__(self) -> None:
        self.values = pa.array([], self.family.arrow)

    def add(self, column: pa.Array) -> None:
        rows = np.arange(self.rows, self.rows + len(column))
        self.rows += len(column)
        pages = np.searchsorted(self.edges[1:], rows, "right") >> self.shift
        encoded = column.dictionary_encode()
        numbers = np.append(self._numbers(encoded.dictionary), _NULL)
        which = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()
        self.places.append(ascending_once((numbers[which] << _PAGE_BITS) | pages))
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

    def index(self, *, text: bool) -> DistinctIndex:
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
        return DistinctIndex.of(
            self.family, edges, self.values.take(pa.array(order)), starts, merged & _PAGE, text=text
        )
