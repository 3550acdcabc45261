"""A cache of file cards and zone maps, limited in bytes; the least recently used are evicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from needlepoint.indexes import ZoneMap
from needlepoint.parquet import ByteCache, CachedCard, CardCorrupt, FileCard
from needlepoint.stores import PackDamaged
from needlepoint.tables import File, scale, unit_of
from needlepoint.tables.registry import Registry

# Approximate overhead of the Python objects of a card, a column and a text.
CARD_BYTES, COLUMN_BYTES, TEXT_BYTES = 4000, 600, 60
# Cards that are read together.
CARDS_AT_ONCE = 256
# Of so many files it is kept why their cards cannot be read.
MOST_PROBLEMS = 10_000


class CardSource(Protocol):
    def cached(self, file: File) -> CachedCard | None:
        """None if the file has no card, or one that is unreadable or of another version of the file."""


class CardCache:
    def __init__(self, registry: Registry, most_bytes: int) -> None:
        self._registry = registry
        self.cards: ByteCache[CachedCard] = ByteCache(most_bytes)
        self.zones: ByteCache[ZoneMap] = ByteCache(most_bytes)
        self.problems: dict[int, str] = {}  # by file id: why its card or a zone map cannot be read

    def get(self, file: File) -> FileCard | None:
        """The card alone; see `cached`."""
        found = self.cached(file)
        return None if found is None else found.card

    def cached(self, file: File) -> CachedCard | None:
        if file.id is None or not file.has_card:
            return None
        held = self.cards.get(file.id)
        # A file keeps its id when an index is embedded in it.
        if held is not None and held.card.identity == file.identity:
            return held
        return self._opened(file, self._registry.cards.read_all([file.id]).get(file.id))

    def each(self, files: Sequence[File]) -> Iterator[CachedCard | None]:
        """The card of each file, as `cached` has it. Those that are not in memory are read together, some at a time."""
        for start in range(0, len(files), CARDS_AT_ONCE):
            some = files[start : start + CARDS_AT_ONCE]
            held = [self._held(file) for file in some]
            missing = [
                file.id
                for file, card in zip(some, held, strict=True)
                if card is None and file.id is not None and file.has_card
            ]
            stored = self._registry.cards.read_all(missing) if missing else {}
            for file, card in zip(some, held, strict=True):
                yield card or self._opened(file, stored.get(file.id or 0))

    def _held(self, file: File) -> CachedCard | None:
        if file.id is None or not file.has_card:
            return None
        held = self.cards.get(file.id)
        return held if held is not None and held.card.identity == file.identity else None

    def _opened(self, file: File, stored: bytes | PackDamaged | None) -> CachedCard | None:
        if stored is None or file.id is None:
            return None
        try:
            if isinstance(stored, PackDamaged):
                raise stored
            card = FileCard.from_bytes(stored)
        except (PackDamaged, CardCorrupt) as error:
            self._note(file.id, error)
            return None
        if card.identity != file.identity:
            return None
        # A card lacks the ctime, which a chmod changes.
        found = CachedCard(replace(card, identity=file.identity))
        self.cards.put(file.id, found, _card_bytes(card))
        return found

    def forget(self, files: Set[int]) -> None:
        """Drop what is kept of files that are gone, by their ids."""
        self.cards.discard(lambda key: key in files)
        self.zones.discard(lambda key: key[0] in files)
        for id in self.problems.keys() & files:
            self.problems.pop(id, None)

    def _note(self, file_id: int, error: Exception) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems[file_id] = str(error)

    def zone_maps(self, files: Sequence[File], column: str, type: pa.DataType) -> list[ZoneMap | None]:
        """The zone map of a column in each file, None if a file has none; one registry query for all missing ones,
        and one read where they are side by side.

        Bounds are ordinals of `type`, the column's type in the table.
        """
        unit = unit_of(type)
        found: dict[int, ZoneMap | None] = {}
        for file in files:
            if file.id is not None and file.has_card:
                found[file.id] = self.zones.get((file.id, column, unit))
        missing = [id for id, held in found.items() if held is None]
        if missing:
            for id, stored in self._registry.cards.zones(missing, column).items():
                factor = scale(stored.unit, type)
                if factor is None:
                    continue
                try:
                    if isinstance(stored.data, PackDamaged):
                        raise stored.data
                    zone_map = ZoneMap.from_bytes(stored.data).scaled(factor)
                except (PackDamaged, CardCorrupt) as error:
                    self._note(id, error)
                    continue
                found[id] = zone_map
                self.zones.put((id, column, unit), zone_map, _zone_map_bytes(zone_map))
        return [None if file.id is None else found.get(file.id) for file in files]


def _card_bytes(card: FileCard) -> int:
    """Bytes in memory; the stored card is compressed."""
    tables = (card.pages, card.chunks)
    arrays = [getattr(table, name) for table in tables for name in table.__dataclass_fields__]
    numbers = sum(int(array.nbytes) for array in (*arrays, card.row_group_rows, card.page_starts))
    return numbers + len(card.bounds) + len(card.leaves) * COLUMN_BYTES + CARD_BYTES


def _zone_map_bytes(zone_map: ZoneMap) -> int:
    sets = len(zone_map.pages.known) + len(zone_map.groups.known)
    text = TEXT_BYTES if zone_map.pages.low.dtype == object else 0
    return zone_map.page_rows.nbytes + zone_map.group_rows.nbytes + sets * (20 + 2 * text)


class SerializedCards:
    """Serialized cards by file path, for processes without a registry."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        self._stored = stored

    def cached(self, file: File) -> CachedCard | None:
        stored = self._stored.get(file.path)
        return None if stored is None else CachedCard(replace(FileCard.from_bytes(stored), identity=file.identity))
