"""A cache of open indexes of single files, limited in bytes; the least recently used are evicted."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from needlepoint.errors import NeedlepointError, StoreError
from needlepoint.indexes import ClosableIndex, FileIndex, StoredPayload, UnpackedPayloads, payload_kind
from needlepoint.parquet import ByteCache
from needlepoint.query.cache.table_state import TableState
from needlepoint.stores import PackStore
from needlepoint.tables import File, Index, Place, Table

if TYPE_CHECKING:
    from needlepoint.indexes.text import WordIndex


class IndexCache:
    def __init__(
        self, packs: Callable[[Index], PackStore], unpacked: UnpackedPayloads, most_bytes: int, largest: int
    ) -> None:
        self._packs = packs
        self._unpacked = unpacked
        self._largest = largest
        self.open: ByteCache[FileIndex] = ByteCache(most_bytes)

    def get(self, table: Table, types: Mapping[str, pa.DataType], index: Index, file: File, place: Place) -> FileIndex:
        """Opened on first use; raises errors of the store, the file and the index kind."""
        key = (index.id, file.id, place.checksum)
        held = self.open.get(key)
        if held is not None:
            return held
        if place.size > self._largest:
            raise StoreError(
                f"index '{index.name}' has a payload of {place.size:,} bytes for {file.path}.",
                hint="Raise NEEDLE_PAYLOAD_BYTES to read it.",
            )
        from needlepoint.parquet.write import EmbeddedEntry

        entry = EmbeddedEntry(
            index.kind, index.columns, place.version, place.offset, place.length, place.codec, place.size,
            place.checksum, "",
        )  # fmt: skip
        if place.pack:
            packs = self._packs(index)
            opener = functools.partial(packs.open, place.pack)
            stored = StoredPayload(packs.where(place.pack), None, entry, self._unpacked, opener)
        else:
            stored = StoredPayload(f"{table.location}/{file.path}", file.identity, entry, self._unpacked)
        fields = [pa.field(name, types[name]) for name in index.columns]
        opened = payload_kind(index.kind).open(stored, fields, json.loads(index.options))
        self.open.put(key, opened, opened.memory)
        return opened

    def forget(self, files: Set[int]) -> None:
        """Close the indexes of files that are gone, by their ids."""
        for opened in self.open.discard(lambda key: key[1] in files):
            if isinstance(opened, ClosableIndex):
                opened.close()


def words_of(indexes: IndexCache, state: TableState, column: str, position: int) -> WordIndex | None:
    """The text index of a column for one file; None if there is no readable one."""
    file = state.snapshot.files[position]
    for index in state.snapshot.indexes:
        place = state.places(index).get(file.id or 0) if index.kind == "text" and index.column == column else None
        if place is None or index.id not in file.indexed:
            continue
        try:
            opened = indexes.get(state.snapshot.table, state.types, index, file, place)
        except (NeedlepointError, OSError):
            return None
        return cast("WordIndex", opened)
    return None
