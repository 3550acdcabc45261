"""A cache of file cards and zone maps, limited in bytes; the least recently used are evicted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from needlepoint.indexes import ZoneMap
from needlepoint.parquet import ByteCache, CachedCard, CardCorrupt, FileCard
from needlepoint.stores import PackDamaged
from needlepoint.tables import File, scale, unit_of
from needlepoint.tables.registry import Registry, StoredZones

# Approximate overhead of the Python objects of a card, a column and a text.
CARD_BYTES, COLUMN_BYTES, TEXT_BYTES = 4000, 600, 60
# Files whose cards, or zone maps, are read together.
CARDS_AT_ONCE, ZONES_AT_ONCE = 256, 1024
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
        self._lost: dict[int, tuple[File, str]] = {}  # by file id: why its card or a zone map cannot be read

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
                raise stored.with_traceback(None)  # of an error that is raised more than once, it would grow
            card = FileCard.from_bytes(stored)
        except (PackDamaged, CardCorrupt) as error:
            self._note(file, error)
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
        for id in [id for id in list(self._lost) if id in files]:
            self._lost.pop(id, None)

    def problems(self, files: Iterable[File]) -> list[str]:
        """Why the cards or zone maps of some of the files cannot be read, as far as queries needed them."""
        if not self._lost:
            return []
        known = [(file, self._lost.get(file.id or 0)) for file in files]
        # A file that was described again is another object.
        return [found[1] for file, found in known if found is not None and found[0] is file]

    def _note(self, file: File, error: Exception) -> None:
        if len(self._lost) < MOST_PROBLEMS and file.id is not None:
            self._lost[file.id] = file, str(error)

    def zone_maps(self, files: Sequence[File], column: str, type: pa.DataType) -> list[ZoneMap | None]:
        """The zone map of a column in each file, None if a file has none; one registry query for all missing ones,
        and one read where they are side by side.

        Bounds are ordinals of `type`, the column's type in the table.
        """
        unit = unit_of(type)
        found: dict[int, ZoneMap | None] = {}
        missing: dict[int, File] = {}
        for file in files:
            if file.id is not None and file.has_card:
                found[file.id] = held = self.zones.get((file.id, column, unit))
                if held is None:
                    missing[file.id] = file
        ids = list(missing)
        for start in range(0, len(ids), ZONES_AT_ONCE):
            for id, stored in self._registry.cards.zones(ids[start : start + ZONES_AT_ONCE], column).items():
                zone_map = self._zone_map(missing[id], stored, type)
                if zone_map is not None:
                    found[id] = zone_map
                    self.zones.put((id, column, unit), zone_map, _zone_map_bytes(zone_map))
        return [None if file.id is None else found.get(file.id) for file in files]

    def _zone_map(self, file: File, stored: StoredZones, type: pa.DataType) -> ZoneMap | None:
        factor = scale(stored.unit, type)
        if factor is None:
            return None
        try:
            if isinstance(stored.data, PackDamaged):
                raise stored.data.with_traceback(None)
            return ZoneMap.from_bytes(stored.data).scaled(factor)
        except (PackDamaged, CardCorrupt) as error:
            self._note(file, error)
            return None


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
