"""Columns become keys, and keys become entries: `key ‖ file id ‖ row number`, the id and the number in 4 bytes each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from needlepoint.indexes.base import ColumnSource, KeysAndRows
from needlepoint.indexes.key.encoding import Keys, encode, locate
from needlepoint.stores import Entries


def read_keys(source: ColumnSource) -> Iterator[KeysAndRows]:
    """Keys and row numbers of all values that are not NULL, a batch at a time."""
    first = 0
    for batch in source.batches():
        values = batch.column(0)
        rows = np.arange(first, first + len(values))
        first += len(values)
        if values.null_count:
            rows = rows[values.is_valid().to_numpy(zero_copy_only=False)]
            values = values.drop_null()
        if len(values):
            yield encode(values), rows


def entries_of(keys: Keys, rows: npt.NDArray[np.int64], file_id: int) -> Entries:
    width = keys.shape[1]
    entries = np.empty((len(rows), width + 8), np.uint8)
    entries[:, :width] = keys
    entries[:, width:] = locate(file_id, rows).astype(">u8").view(np.uint8).reshape(-1, 8)
    return entries


def sorted_by_key(parts: Sequence[Entries], width: int) -> Entries:
    """Entries in ascending order, given in ascending order of location: then a stable sort by key sorts them whole."""
    entries = np.concatenate(parts)
    words = _words(entries, width)
    order = np.argsort(words[0], kind="stable") if len(words) == 1 else np.lexsort(words[::-1])
    return entries[order]


def sorted_once(entries: Entries) -> Entries:
    """In ascending order, each once: a file that was read twice has the same entries in two runs."""
    words = _words(entries, entries.shape[1])
    order = np.lexsort(words[::-1])
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for word in words:
        same &= word[order[1:]] == word[order[:-1]]
    del words
    if same.any():
        order = order[np.concatenate([[True], ~same])]
    return entries[order]


def _words(entries: Entries, width: int) -> list[npt.NDArray[np.uint64]]:
    """The first `width` bytes of each entry as numbers of 8 bytes."""
    parts = (np.ascontiguousarray(entries[:, at : at + 8]) for at in range(0, width, 8))
    return [part.view(">u8").ravel().astype(np.uint64) for part in parts]
