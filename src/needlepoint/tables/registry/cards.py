"""The registry's cards and zone maps: the database says where they are, and packs hold them (card_packs.py).

A file whose card is missing or damaged is treated as one without a card: queries scan it, and a build makes it again.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from needlepoint.stores import PackDamaged, PackPiece, PackStore
from needlepoint.tables.model import Table
from needlepoint.tables.registry.card_packs import CardContent, CardPack, PlacedCard, insert_pack, write_packs
from needlepoint.tables.registry.databases.database import RegistryDatabase


@dataclass(frozen=True, slots=True)
class PackUse:
    """A pack that the registry names, and how many of its bytes are in use."""

    id: int
    name: str
    size: int
    live: int


@dataclass(frozen=True, slots=True)
class StoredZones:
    """A zone map as it is stored, or why it cannot be read; in the unit of its file."""

    data: bytes | PackDamaged
    unit: str | None


class Cards:
    def __init__(self, database: RegistryDatabase, packs: PackStore) -> None:
        self._database = database
        self._listed, self._ids = database.dialect.among, database.dialect.ids
        self.packs = packs

    def read(self, file_id: int) -> bytes | None:
        """The card of a file, None when it has none. PackDamaged when it is not what was written."""
        found = self.read_all([file_id]).get(file_id)
        return None if found is None else _sound(found)

    def read_all(self, file_ids: Sequence[int]) -> dict[int, bytes | PackDamaged]:
        """The cards of files that have one, by id; one request for those that are side by side."""
        alone = len(file_ids) == 1
        query = f"""SELECT file_id, NULL, name, etag, size, start, length, checksum FROM cards
                    JOIN card_packs ON card_packs.id = pack_id WHERE file_id {"= ?" if alone else self._listed}"""
        asked = file_ids[0] if alone else self._ids(file_ids)
        return {id: stored.data for id, stored in self._read(query, asked).items()}

    def zones(self, file_ids: Sequence[int], column: str) -> dict[int, StoredZones]:
        """The zone maps of a column in files of one table that have any, likewise."""
        if not file_ids:
            return {}
        return self._read(
            f"""SELECT bounds.file_id, unit, name, etag, size, zone_start, zone_length, zone_checksum
                FROM bounds JOIN cards ON cards.file_id = bounds.file_id JOIN card_packs ON card_packs.id = pack_id
                WHERE table_id = (SELECT table_id FROM files WHERE id = ?) AND column_name = ?
                AND bounds.file_id {self._listed} AND zone_start IS NOT NULL""",
            file_ids[0],
            column,
            self._ids(file_ids),
        )

    def _read(self, query: str, *parameters: object) -> dict[int, StoredZones]:
        found = self._read_once(query, *parameters)
        if any(isinstance(stored.data, PackDamaged) for stored in found.values()):
            found = self._read_once(query, *parameters)  # a sweep may have moved them
        return found

    def _read_once(self, query: str, *parameters: object) -> dict[int, StoredZones]:
        asked: dict[tuple[str, str, int], list[tuple[int, str | None, PackPiece]]] = {}
        for id, unit, name, etag, size, *piece in self._database.read(query, *parameters):
            asked.setdefault((name, etag, size), []).append((id, unit, PackPiece(*piece)))
        found: dict[int, StoredZones] = {}
        for (name, etag, size), wanted in asked.items():
            read = self.packs.read(name, [piece for _, _, piece in wanted], etag, size)
            found |= {id: StoredZones(data, unit) for (id, unit, _), data in zip(wanted, read, strict=True)}
        return found

    def write(self, contents: Sequence[CardContent]) -> tuple[list[CardPack], set[int]]:
        """Write packs with the cards that the registry does not have, and return them with the ids of the files whose
        cards it has: indexing a file once more describes it as before."""
        if not contents:
            return [], set()
        known = self.placed([each.file_id for each in contents])
        kept = {each.file_id for each in contents if _is_equal(each, known.get(each.file_id))}
        return write_packs(self.packs, [each for each in contents if each.file_id not in kept]), kept

    def placed(self, file_ids: Sequence[int]) -> dict[int, PlacedCard]:
        """Where the cards and zone maps of files are, each in its pack."""
        listed = self._ids(file_ids)
        zones: dict[int, dict[str, PackPiece]] = {}
        query = f"""SELECT file_id, column_name, zone_start, zone_length, zone_checksum FROM bounds
                    WHERE file_id {self._listed} AND zone_start IS NOT NULL"""
        with self._database.snapshot():
            for id, column, *piece in self._database.read(query, listed):
                zones.setdefault(id, {})[column] = PackPiece(*piece)
            cards = self._database.read(
                f"SELECT file_id, start, length, checksum FROM cards WHERE file_id {self._listed}", listed
            )
        return {id: PlacedCard(id, PackPiece(*piece), zones.get(id, {})) for id, *piece in cards}

    def uses(self) -> list[PackUse]:
        """All packs that the registry names, and what is in use of each."""
        live: dict[int, int] = {}
        queries = (
            "SELECT pack_id, sum(length) FROM cards GROUP BY pack_id",
            """SELECT pack_id, sum(zone_length) FROM bounds JOIN cards ON cards.file_id = bounds.file_id
               GROUP BY pack_id""",
        )
        with self._database.snapshot():
            for query in queries:
                for pack_id, size in self._database.read(query):
                    live[pack_id] = live.get(pack_id, 0) + int(size or 0)
            named = self._database.read("SELECT id, name, size FROM card_packs")
        return [PackUse(id, name, size, live.get(id, 0)) for id, name, size in named]

    def size(self) -> tuple[int, int]:
        """How many packs the registry names, and their bytes."""
        packs, size = self._database.read("SELECT count(*), coalesce(sum(size), 0) FROM card_packs")[0]
        return int(packs), int(size)

    def files_of(self, pack_ids: Collection[int]) -> list[int]:
        """The files whose cards are in these packs, in the order in which their pieces are."""
        query = f"SELECT file_id FROM cards WHERE pack_id {self._listed} ORDER BY pack_id, start"
        return [id for (id,) in self._database.read(query, self._ids(pack_ids))]

    def contents(self, file_ids: Sequence[int]) -> tuple[list[CardContent], dict[int, str]]:
        """The cards and zone maps of files, and by id why those of other files cannot be read."""
        placed = self.placed(file_ids)
        names = self._pack_names(file_ids)
        found, damaged = [], {}
        for name in dict.fromkeys(names.values()):
            own = [placed[id] for id in file_ids if names.get(id) == name and id in placed]
            data = iter(self.packs.read(name, [piece for each in own for piece in (each.card, *each.zones.values())]))
            for each in own:
                parts = list(itertools.islice(data, 1 + len(each.zones)))
                try:
                    card, *zones = map(_sound, parts)
                    found.append(CardContent(each.file_id, card, dict(zip(each.zones, zones, strict=True))))
                except PackDamaged as error:
                    damaged[each.file_id] = str(error)
        return found, damaged

    def _pack_names(self, file_ids: Sequence[int]) -> dict[int, str]:
        query = f"SELECT file_id, name FROM cards JOIN card_packs ON id = pack_id WHERE file_id {self._listed}"
        return dict(self._database.read(query, self._ids(file_ids)))

    def check(self, table: Table) -> dict[int, str]:
        """Read all cards and zone maps of a table. Returns why some cannot be used, by file id."""
        query = """SELECT file_id FROM cards JOIN files ON files.id = file_id
                   WHERE table_id = ? ORDER BY pack_id, start"""
        ids = [id for (id,) in self._database.read(query, table.id)]
        damaged: dict[int, str] = {}
        for start in range(0, len(ids), _CHECKED_AT_ONCE):
            damaged |= self.contents(ids[start : start + _CHECKED_AT_ONCE])[1]
        return damaged

    def lost(self) -> dict[int, str]:
        """Packs that are gone or have another size, by number, and what is wrong. No pack is read."""
        # In this order: a pack is there before the registry names it.
        named = self._database.read("SELECT id, name, size FROM card_packs WHERE etag = ''")
        sizes = self.packs.sizes() if named else {}
        return {
            id: f"{self.packs.where(name)} " + ("is missing" if name not in sizes else f"has not {size:,} bytes")
            for id, name, size in named
            if sizes.get(name) != size
        }

    def forget(self, problems: Mapping[int, str]) -> None:
        """Count these files, by id, as files without a card, until a build makes it again; and say why."""
        if problems:
            with self._database.change() as connection:
                connection.executemany("DELETE FROM cards WHERE file_id = ?", [(id,) for id in problems])
                connection.executemany(
                    "UPDATE files SET problem = ? WHERE id = ?", [(why, id) for id, why in problems.items()]
                )

    def forget_packs(self, problems: Mapping[int, str]) -> None:
        """The same for all files whose cards are in these packs."""
        if problems:
            with self._database.change() as connection:
                for id, why in problems.items():
                    connection.execute(
                        "UPDATE files SET problem = ? WHERE id IN (SELECT file_id FROM cards WHERE pack_id = ?)",
                        (why, id),
                    )
                    connection.execute("DELETE FROM cards WHERE pack_id = ?", (id,))
                    connection.execute("DELETE FROM card_packs WHERE id = ?", (id,))

    def copy(self, old: Collection[int], contents: Sequence[CardContent]) -> None:
        """Put cards and zone maps from `old` packs into new ones, unless a file has others meanwhile."""
        packs = write_packs(self.packs, contents)
        listed = self._ids(old)
        with self._database.change() as connection:
            for pack in packs:
                pack_id = insert_pack(connection, pack)
                for placed in pack.files:
                    moved = connection.execute(
                        f"UPDATE cards SET pack_id = ?, start = ? WHERE file_id = ? AND pack_id {self._listed}",
                        (pack_id, placed.card.start, placed.file_id, listed),
                    )
                    if moved.rowcount == 1:
                        connection.executemany(
                            """UPDATE bounds SET zone_start = ? WHERE file_id = ? AND column_name = ?
                               AND table_id = (SELECT table_id FROM files WHERE id = ?)""",
                            [
                                (piece.start, placed.file_id, column, placed.file_id)
                                for column, piece in placed.zones.items()
                            ],
                        )
                        # Copies of the registry read it again.
                        connection.execute("UPDATE files SET rows = rows WHERE id = ?", (placed.file_id,))

    def drop_unused(self) -> list[str]:
        """Forget the packs without a card in use. Returns their names."""
        unused = "FROM card_packs WHERE id NOT IN (SELECT pack_id FROM cards)"
        if not self._database.read(f"SELECT id {unused} LIMIT 1"):
            return []
        with self._database.change() as connection:
            names = [name for (name,) in connection.execute(f"SELECT name {unused}").fetchall()]
            connection.execute(f"DELETE {unused}")
        return names

    def names(self) -> set[str]:
        """Of all packs that the registry names."""
        return {name for (name,) in self._database.read("SELECT name FROM card_packs")}


# Files whose pieces are in memory at a time.
_CHECKED_AT_ONCE = 64


def _sound(data: bytes | PackDamaged) -> bytes:
    if isinstance(data, PackDamaged):
        raise data.with_traceback(None)  # of an error that is raised more than once, it would grow
    return data


def _is_equal(content: CardContent, known: PlacedCard | None) -> bool:
    """Whether what is stored has these bytes, by length and checksum."""

    def same(data: bytes, piece: PackPiece | None) -> bool:
        return piece is not None and PackPiece.of(piece.start, data) == piece

    return (
        known is not None
        and same(content.card, known.card)
        and content.zones.keys() == known.zones.keys()
        and all(same(zones, known.zones[column]) for column, zones in content.zones.items())
    )
