"""The upgrade to format 7: cards and zone maps, which were in the database, move into packs.

The packs are durable before the transaction ends. One that is undone leaves packs that nothing refers to.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator, Mapping

from needlepoint.stores import PackStore, Upgrade, statements_of
from needlepoint.tables.registry import card_packs
from needlepoint.tables.registry.card_packs import CardContent, insert_card, insert_pack, write_packs
from needlepoint.tables.registry.databases.schema import CARD_ADDED, CARDS, UPGRADES

_ZONE_COLUMNS = ("zone_start", "zone_length", "zone_checksum")


def upgrades(packs: PackStore) -> Mapping[int, Upgrade]:
    """From each format to the next one."""
    return {**UPGRADES, 6: functools.partial(_move_cards, packs)}


def _move_cards(packs: PackStore, connection: sqlite3.Connection) -> None:
    """In format 6 each card was a row, and each zone map too."""
    # What is dropped here is gone for good with the VACUUM that follows; to overwrite it first would write it twice.
    connection.execute("PRAGMA secure_delete = OFF")
    try:
        connection.execute("DROP TRIGGER card_added")  # the files are as they were
        connection.execute("ALTER TABLE cards RENAME TO old_cards")
        for statement in statements_of(CARDS + ";"):
            connection.execute(statement)
        for column in _ZONE_COLUMNS:
            connection.execute(f"ALTER TABLE bounds ADD COLUMN {column} INTEGER")
        for ids in _groups(connection):
            _move(packs, connection, ids)
        connection.execute("DROP TABLE old_cards")
        connection.execute("DROP TABLE zones")
        connection.execute(CARD_ADDED)
    finally:
        connection.execute("PRAGMA secure_delete = ON")


def _groups(connection: sqlite3.Connection) -> Iterator[list[int]]:
    """Ids of files whose cards and zone maps fit into a pack, so that memory is bounded."""
    query = """SELECT file_id, length(card) + coalesce(
                   (SELECT sum(length(zones)) FROM zones WHERE zones.file_id = old_cards.file_id), 0)
               FROM old_cards ORDER BY file_id"""
    ids: list[int] = []
    held = 0
    for file_id, size in connection.execute(query).fetchall():
        if ids and held + size > card_packs.PACK_BYTES:
            yield ids
            ids, held = [], 0
        ids.append(file_id)
        held += size
    if ids:
        yield ids


def _move(packs: PackStore, connection: sqlite3.Connection, ids: list[int]) -> None:
    zones: dict[int, dict[str, bytes]] = {}
    span = (ids[0], ids[-1])
    known = "SELECT zones.file_id, zones.column_name, zones FROM zones WHERE zones.file_id BETWEEN ? AND ?"
    for file_id, column, stored in connection.execute(known, span):
        zones.setdefault(file_id, {})[column] = stored
    cards = connection.execute("SELECT file_id, card FROM old_cards WHERE file_id BETWEEN ? AND ?", span)
    contents = [CardContent(file_id, card, zones.get(file_id, {})) for file_id, card in cards]
    for pack in write_packs(packs, contents):
        pack_id = insert_pack(connection, pack)
        for placed in pack.files:
            insert_card(connection, pack_id, placed)
            connection.executemany(
                """UPDATE bounds SET zone_start = ?, zone_length = ?, zone_checksum = ?
                   WHERE table_id = (SELECT table_id FROM files WHERE id = ?) AND column_name = ? AND file_id = ?""",
                [
                    (piece.start, piece.length, piece.checksum, placed.file_id, column, placed.file_id)
                    for column, piece in placed.zones.items()
                ],
            )
