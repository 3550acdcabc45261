"""The order of rows in files: by columns one after the other, or by all of them at once along a Z-order curve.

    sorted by a, b    a range of `a` is in few pages; a range of `b` in as many as there are values of `a`
    z-ordered         a range of `a` and a range of `b` are each in few pages, and in more than if sorted by it alone

A Z value interleaves the bits of ranks. The rank of a value is the number of cuts that are not greater; cuts are
quantiles of a sample, so that each rank has about as many rows, whatever the type and the distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

LAYOUT = b"needlepoint.layout"
"""The footer key with the sort columns of a file and the id of its rewrite, as JSON."""

RANK_BITS = 10
SAMPLE_ROWS = 20_000

_STORED = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
    pa.float16(): pa.float32(),
}


@dataclass(frozen=True, slots=True)
class RowOrder:
    """`cuts` are those of each column, for a Z-order; without them they are taken from the rows to sort."""

    columns: tuple[str, ...]
    zorder: bool = False
    cuts: tuple[pa.Array, ...] = ()

    def keys(self, table: pa.Table) -> pa.Table:
        """The keys by which rows are sorted."""
        plain = pa.table({str(at): _plain(table.column(name)) for at, name in enumerate(self.columns)})
        if not self.zorder:
            return plain
        cuts = self.cuts or cuts_of(plain)
        values = interleaved([scaled_ranks(plain.column(at), cut) for at, cut in enumerate(cuts)])
        # Rows of one cell are sorted too.
        return plain.add_column(0, "z", pa.array(values))

    def rows(self, table: pa.Table) -> Numbers:
        """The numbers of the rows in order."""
        keys = self.keys(table)
        found = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
        return np.asarray(found.to_numpy(), np.int64)


def is_sortable(type: pa.DataType) -> bool:
    try:
        values = _plain(pa.chunked_array([], type))
        if pa.types.is_nested(values.type):
            return False  # Arrow sorts structs only alone
        keys = [("a", "ascending"), ("b", "ascending")]
        pc.sort_indices(pa.table({"a": values, "b": values}), sort_keys=keys)
    except (pa.ArrowException, TypeError):
        return False
    return True


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    type = values.type
    if isinstance(type, pa.BaseExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], type.storage_type)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(_STORED.get(values.type, values.type))


def sampled(keys: pa.Table, most: int = SAMPLE_ROWS, seed: int = 0) -> pa.Table:
    """A uniform sample of at most so many rows."""
    if keys.num_rows <= most:
        return keys
    picked = np.random.default_rng(seed).choice(keys.num_rows, most, replace=False)
    return keys.take(pa.array(np.sort(picked)))


def cuts_of(sample: pa.Table) -> tuple[pa.Array, ...]:
    """For each column of the keys up to 1,023 quantiles of the sample."""
    rows = sampled(sample)
    found = []
    for name in rows.column_names:
        order = pc.sort_indices(rows.select([name]), sort_keys=[(name, "ascending")])
        at = np.unique(np.linspace(0, max(rows.num_rows - 1, 0), (1 << RANK_BITS) + 1).astype(np.int64)[1:-1])
        values = rows.column(name).take(order.take(pa.array(at))) if rows.num_rows else rows.column(name)
        found.append(pc.unique(values.drop_null()))
    return tuple(found)


def boundaries(sample: pa.Table, parts: int) -> pa.Table:
    """Rows of sorted keys that cut them into parts of about the same size.

    >>> boundaries(pa.table({"a": [5, 1, 4, 2, 3, 6]}), 3).to_pydict()
    {'a': [3, 5]}
    """
    order = pc.sort_indices(sample, sort_keys=[(name, "ascending") for name in sample.column_names])
    at = np.arange(1, parts) * sample.num_rows // parts
    return sample.take(order.take(pa.array(at)))


def ranks(keys: pa.Table, cuts: pa.Table) -> Numbers:
    """How many of the cuts are not greater than each row of the keys.

    >>> ranks(pa.table({"a": [3, 1, 7, None]}), pa.table({"a": [3, 5]})).tolist()
    [1, 0, 2, 2]
    """
    count = cuts.num_rows
    both = pa.concat_tables([cuts.select(keys.column_names).cast(keys.schema), keys])
    # A cut sorts before the rows that are equal to it.
    both = both.append_column("is row", pa.array(np.arange(both.num_rows) >= count))
    order = np.asarray(
        pc.sort_indices(both, sort_keys=[(name, "ascending") for name in both.column_names]).to_numpy(), np.int64
    )
    is_cut = order < count
    found = np.empty(keys.num_rows, np.int64)
    found[order[~is_cut] - count] = np.cumsum(is_cut)[~is_cut]
    return found


def scaled_ranks(values: pa.ChunkedArray, cuts: pa.Array) -> Numbers:
    """Ranks that use all their bits: a column of few values counts as much as one of many."""
    found = ranks(pa.table({"a": values}), pa.table({"a": cuts}))
    return found * ((1 << RANK_BITS) - 1) // max(len(cuts), 1)


def interleaved(ranks: Sequence[Numbers]) -> npt.NDArray[np.uint64]:
    """The interleaved bits of several ranks, highest first.

    >>> [f"{value:04b}" for value in interleaved([np.array([0b11, 0b00]), np.array([0b00, 0b11])])]
    ['1010', '0101']
    """
    bits = min(RANK_BITS, 64 // max(len(ranks), 1))
    found = np.zeros(len(ranks[0]), np.uint64)
    for bit in reversed(range(RANK_BITS - bits, RANK_BITS)):
        for rank in ranks:
            found = (found << np.uint64(1)) | ((rank.astype(np.uint64) >> np.uint64(bit)) & np.uint64(1))
    return found
