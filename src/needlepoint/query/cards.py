"""File cards in memory, the most recently used ones up to a number of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict

from needlepoint.parquet.card import FileCard
from needlepoint.parquet.card_format import CardCorrupt
from needlepoint.tables.definitions import File
from needlepoint.tables.registry import Registry

# A card in memory takes about this many times its stored size: its arrays are compressed in the store.
MEMORY_PER_BYTE = 6


class Cards:
    def __init__(self, registry: Registry, most_bytes: int) -> None:
        self._registry = registry
        self._most_bytes = most_bytes
        self._held: OrderedDict[int, tuple[FileCard, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    def get(self, file: File) -> FileCard | None:
        """None for a file without a card, or with one that cannot be read or is of another version of the file."""
        if file.id is None or not file.has_card:
            return None
        with self._lock:
            held = self._held.get(file.id)
            if held is not None:
                self._held.move_to_end(file.id)
                self.hits += 1
                return held[0]
            self.misses += 1
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

    def _keep(self, id: int, card: FileCard, size: int) -> None:
        with self._lock:
            if id not in self._held:
                self._held[id] = (card, size)
                self._bytes += size
            while self._bytes > self._most_bytes and len(self._held) > 1:
                _, (_, freed) = self._held.popitem(last=False)
                self._bytes -= freed
