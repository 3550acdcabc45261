"""File cards and zone maps in memory, the most recently used ones up to a number of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from needlepoint.indexes.zone import ZoneMap
from needlepoint.parquet.card import FileCard
from needlepoint.parquet.card_format import CardCorrupt
from needlepoint.tables.definitions import File
from needlepoint.tables.registry import Registry

# A card in memory takes about this many times its stored size: its arrays are compressed in the store.
MEMORY_PER_BYTE = 6

_Key = int | tuple[int, str]


class Cards:
    def __init__(self, registry: Registry, most_bytes: int) -> None:
        self._registry = registry
        self._most_bytes = most_bytes
        self._held: OrderedDict[_Key, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    def get(self, file: File) -> FileCard | None:
        """None for a file without a card, or with one that cannot be read or is of another version of the file."""
        if file.id is None or not file.has_card:
            return None
        held: FileCard | None = self._find(file.id)
        if held is not None:
            return held
        stored = self._registry.card(file.id)
        if stored is None:
            return None
        try:
            card = FileCard.from_bytes(stored)
        except CardCorrupt:
            return None
        if card.identity != file.identity:
            return None
        self._keep(file.id, card, len(stored) * MEMORY_PER_BYTE)
        return card

    def zone_maps(self, files: Sequence[File], column: str) -> list[ZoneMap | None]:
        """The zone map of a column in each of the files, None where there is none; one question for all that lack."""
        found: dict[int, ZoneMap | None] = {}
        for file in files:
            if file.id is not None and file.has_card:
                found[file.id] = self._find((file.id, column))
        missing = [id for id, held in found.items() if held is None]
        if missing:
            for id, stored in self._registry.zones(missing, column).items():
                try:
                    zone_map = ZoneMap.from_bytes(stored)
                except CardCorrupt:
                    continue
                found[id] = zone_map
                self._keep((id, column), zone_map, len(stored) * MEMORY_PER_BYTE)
        return [None if file.id is None else found.get(file.id) for file in files]

    def _find(self, key: _Key) -> Any:
        with self._lock:
            held = self._held.get(key)
            if held is None:
                self.misses += 1
                return None
            self._held.move_to_end(key)
            self.hits += 1
            return held[0]

    def _keep(self, key: _Key, value: object, size: int) -> None:
        with self._lock:
            if key not in self._held:
                self._held[key] = (value, size)
                self._bytes += size
            while self._bytes > self._most_bytes and len(self._held) > 1:
                _, (_, freed) = self._held.popitem(last=False)
                self._bytes -= freed
