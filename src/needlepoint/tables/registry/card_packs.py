"""Cards and zone maps as they are written: packs of many files each.

    cards of all files │ zone maps of the first column │ of the second │ …

So the zone maps of one column are read with one request, and so are the cards. A commit writes its packs before the
transaction that names them: what a killed one wrote is swept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from needlepoint.stores import PackPiece, PackStore
from needlepoint.tables.registry.databases.transaction import RegistryTransaction

# A pack has no more, unless the card and zone maps of a single file do.
PACK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class CardContent:
    """The card of a file, and its zone maps by column."""

    file_id: int
    card: bytes
    zones: Mapping[str, bytes]

    @property
    def size(self) -> int:
        return len(self.card) + sum(map(len, self.zones.values()))


@dataclass(frozen=True, slots=True)
class PlacedCard:
    """Where they are in a pack."""

    file_id: int
    card: PackPiece
    zones: Mapping[str, PackPiece]


@dataclass(frozen=True, slots=True)
class CardPack:
    name: str
    size: int
    files: tuple[PlacedCard, ...]


def write_packs(store: PackStore, contents: Iterable[CardContent]) -> list[CardPack]:
    """Durable packs with the cards and zone maps of these files."""
    return [_written(store, some) for some in _portions(contents)]


def _portions(contents: Iterable[CardContent]) -> Iterator[list[CardContent]]:
    held: list[CardContent] = []
    size = 0
    for each in contents:
        if held and size + each.size > PACK_BYTES:
            yield held
            held, size = [], 0
        held.append(each)
        size += each.size
    if held:
        yield held


@dataclass(slots=True)
class _Layout:
    """Places pieces one after the other."""

    pieces: list[bytes] = field(default_factory=list)
    end: int = 0

    def add(self, data: bytes) -> PackPiece:
        piece = PackPiece.of(self.end, data)
        self.pieces.append(data)
        self.end += len(data)
        return piece


def _written(store: PackStore, contents: Sequence[CardContent]) -> CardPack:
    layout = _Layout()
    cards = [layout.add(each.card) for each in contents]
    zones: list[dict[str, PackPiece]] = [{} for _ in contents]
    for column in dict.fromkeys(name for each in contents for name in each.zones):
        for each, places in zip(contents, zones, strict=True):
            if column in each.zones:
                places[column] = layout.add(each.zones[column])
    name, size = store.write(layout.pieces)
    placed = zip(contents, cards, zones, strict=True)
    return CardPack(name, size, tuple(PlacedCard(each.file_id, card, own) for each, card, own in placed))


def insert_pack(connection: RegistryTransaction, pack: CardPack) -> int:
    """Name a pack in the registry. Returns its number."""
    connection.execute("INSERT INTO card_packs (name, size) VALUES (?, ?)", (pack.name, pack.size))
    return int(connection.execute("SELECT id FROM card_packs WHERE name = ?", (pack.name,)).fetchall()[0][0])


def insert_card(connection: RegistryTransaction, pack_id: int, placed: PlacedCard) -> None:
    insert_cards(connection, [(pack_id, placed)])


def insert_cards(connection: RegistryTransaction, placed: Iterable[tuple[int, PlacedCard]]) -> None:
    """Record where cards are, by the numbers of their packs. The rows of `bounds` have the places of zone maps."""
    connection.executemany(
        """INSERT INTO cards VALUES (?, ?, ?, ?, ?) ON CONFLICT (file_id) DO UPDATE SET pack_id = excluded.pack_id,
           start = excluded.start, length = excluded.length, checksum = excluded.checksum""",
        [(each.file_id, pack_id, each.card.start, each.card.length, each.card.checksum) for pack_id, each in placed],
    )
