"""How the registry is stored, and upgrades of older formats.

Bounds and zone maps are in the unit of their file (`unit`, NULL for columns without one): the table's can become finer.

Cards and zone maps are pieces of packs (cards.py). A row of `cards` says where the card of a file is, the row of a
column in `bounds` where its zone map is, in the same pack. A card may refer to no pack that is not in `card_packs`.

`changes` names the files that each change of the registry touched, so that a reader with an earlier state does not read
all files again, and so that only these are published (tables/published). Triggers fill it. The delete of an INSERT OR
REPLACE fires no trigger: files are deleted and inserted, and rows of other tables are replaced by rows of the same
file. A change of rows of a file that has no trigger touches the row in `files` too.

In PostgreSQL it is the same with other types: postgres_schema.py.
"""

from __future__ import annotations

import json
import sqlite3

import pyarrow as pa

from needlepoint.stores import statements_of
from needlepoint.tables.schemas import unit_of

FORMAT = 7

_PAYLOADS = """
CREATE TABLE payloads (
    file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    index_id INTEGER NOT NULL REFERENCES indexes ON DELETE CASCADE,
    pack TEXT NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
    codec TEXT NOT NULL, size INTEGER NOT NULL, checksum TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (index_id, file_id)) WITHOUT ROWID;
CREATE INDEX payloads_by_file ON payloads (file_id)
"""

# Payloads inside files that this lake's own writers put there, by their checksums; '' stands for all of a file.
_OWN = """
CREATE TABLE own (
    file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE, checksum TEXT NOT NULL,
    PRIMARY KEY (file_id, checksum)) WITHOUT ROWID
"""

# `etag` is empty for a pack on a disk. Numbers of packs are never used again.
CARDS = """
CREATE TABLE card_packs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL,
    etag TEXT NOT NULL DEFAULT '');
CREATE TABLE cards (
    file_id INTEGER PRIMARY KEY REFERENCES files ON DELETE CASCADE,
    pack_id INTEGER NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL, checksum INTEGER NOT NULL)
"""

CARD_ADDED = """
CREATE TRIGGER card_added AFTER INSERT ON cards BEGIN
    INSERT OR REPLACE INTO changes SELECT value + 1, table_id, id FROM sequence, files WHERE id = NEW.file_id; END
"""

CHANGES = f"""
CREATE TABLE changes (
    sequence INTEGER NOT NULL, table_id INTEGER NOT NULL, file_id INTEGER NOT NULL,
    PRIMARY KEY (sequence, table_id, file_id)) WITHOUT ROWID;
CREATE TRIGGER file_added AFTER INSERT ON files BEGIN
    INSERT OR REPLACE INTO changes SELECT value + 1, NEW.table_id, NEW.id FROM sequence; END;
CREATE TRIGGER file_changed AFTER UPDATE ON files BEGIN
    INSERT OR REPLACE INTO changes SELECT value + 1, NEW.table_id, NEW.id FROM sequence; END;
CREATE TRIGGER file_removed AFTER DELETE ON files BEGIN
    INSERT OR REPLACE INTO changes SELECT value + 1, OLD.table_id, OLD.id FROM sequence; END;
{CARD_ADDED.strip()};
CREATE TRIGGER file_indexed AFTER INSERT ON indexed BEGIN
    INSERT OR REPLACE INTO changes SELECT value + 1, table_id, id FROM sequence, files WHERE id = NEW.file_id; END;
CREATE TRIGGER file_forgotten AFTER DELETE ON indexed BEGIN
    INSERT OR REPLACE INTO changes SELECT value + 1, table_id, id FROM sequence, files WHERE id = OLD.file_id; END
"""

STATEMENTS = f"""
CREATE TABLE sequence (value INTEGER NOT NULL);
INSERT INTO sequence VALUES (1);
CREATE TABLE tables (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    location TEXT NOT NULL, schema BLOB NOT NULL, partitions TEXT NOT NULL, mixed TEXT NOT NULL DEFAULT '[]',
    format TEXT NOT NULL DEFAULT 'parquet');
CREATE TABLE views (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, query TEXT NOT NULL);
CREATE TABLE indexes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE,
    name TEXT NOT NULL UNIQUE, column_name TEXT NOT NULL, kind TEXT NOT NULL,
    columns TEXT, embed INTEGER NOT NULL DEFAULT 0, options TEXT NOT NULL DEFAULT '{{}}');
CREATE TABLE files (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE,
    path TEXT NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, etag TEXT NOT NULL,
    rows INTEGER, row_groups INTEGER, pages INTEGER, blooms TEXT, problem TEXT,
    ctime_ns INTEGER NOT NULL DEFAULT 0, inode INTEGER NOT NULL DEFAULT 0, sample TEXT NOT NULL DEFAULT '',
    UNIQUE (table_id, path));
{CARDS};
CREATE TABLE bounds (
    table_id INTEGER NOT NULL, column_name TEXT NOT NULL,
    file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    low, high, nulls INTEGER, rows INTEGER NOT NULL, nan INTEGER NOT NULL, unit TEXT,
    zone_start INTEGER, zone_length INTEGER, zone_checksum INTEGER,
    PRIMARY KEY (table_id, column_name, file_id)) WITHOUT ROWID;
CREATE INDEX bounds_by_file ON bounds (file_id);
CREATE TABLE indexed (
    file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    index_id INTEGER NOT NULL REFERENCES indexes ON DELETE CASCADE,
    entries INTEGER NOT NULL,
    PRIMARY KEY (file_id, index_id)) WITHOUT ROWID;
CREATE TABLE runs (
    index_id INTEGER NOT NULL REFERENCES indexes ON DELETE CASCADE, name TEXT NOT NULL,
    PRIMARY KEY (index_id, name)) WITHOUT ROWID;
CREATE TABLE batches (
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE,
    batch TEXT NOT NULL, state TEXT NOT NULL, staging TEXT NOT NULL, moves TEXT NOT NULL,
    removals TEXT NOT NULL DEFAULT '[]', keep_until REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (table_id, batch)) WITHOUT ROWID;
{_PAYLOADS};
{_OWN};
{CHANGES}
"""


_KINDS = """
ALTER TABLE indexes ADD COLUMN columns TEXT;
ALTER TABLE indexes ADD COLUMN embed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE indexes ADD COLUMN options TEXT NOT NULL DEFAULT '{}'
"""


def _add_kinds_and_units(connection: sqlite3.Connection) -> None:
    """Format 2 had key indexes only, and no units: all files of a table had the table's."""
    for statement in f"{_KINDS};{_PAYLOADS}".split(";"):
        connection.execute(statement)
    connection.execute("ALTER TABLE tables ADD COLUMN mixed TEXT NOT NULL DEFAULT '[]'")
    for table in ("bounds", "zones"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN unit TEXT")
    for id, schema in connection.execute("SELECT id, schema FROM tables").fetchall():
        for column in pa.ipc.read_schema(pa.py_buffer(schema)):
            known = (unit_of(column.type), column.name, id)
            if known[0] is not None:
                connection.execute("UPDATE bounds SET unit = ? WHERE column_name = ? AND table_id = ?", known)
                connection.execute(
                    """UPDATE zones SET unit = ? WHERE column_name = ?
                       AND file_id IN (SELECT id FROM files WHERE table_id = ?)""",
                    known,
                )


def _add_removals(connection: sqlite3.Connection) -> None:
    """In format 3 batches only added files, and all tables were plain Parquet."""
    connection.execute("ALTER TABLE tables ADD COLUMN format TEXT NOT NULL DEFAULT 'parquet'")
    connection.execute("ALTER TABLE batches ADD COLUMN removals TEXT NOT NULL DEFAULT '[]'")
    connection.execute("ALTER TABLE batches ADD COLUMN keep_until REAL NOT NULL DEFAULT 0")


def _add_changes(connection: sqlite3.Connection) -> None:
    """In format 4 a reader that saw a change read everything again."""
    for statement in statements_of(CHANGES):
        connection.execute(statement)


def _to_six(connection: sqlite3.Connection) -> None:
    """Which embedded payloads are trusted, how files are recognised, and the unit of an INT96."""
    _add_own(connection)
    _add_samples(connection)
    _mark_nanoseconds(connection)


def _add_own(connection: sqlite3.Connection) -> None:
    """In format 5 all embedded payloads were trusted. Which of them the lake made is not known: those in use stay in
    use, and rebuilds read the data."""
    connection.execute(_OWN)


def _add_samples(connection: sqlite3.Connection) -> None:
    """In format 5 a file was identified by its size and modification time. A sync records the rest."""
    for column in ("ctime_ns INTEGER NOT NULL DEFAULT 0", "inode INTEGER NOT NULL DEFAULT 0"):
        connection.execute(f"ALTER TABLE files ADD COLUMN {column}")
    connection.execute("ALTER TABLE files ADD COLUMN sample TEXT NOT NULL DEFAULT ''")


def _mark_nanoseconds(connection: sqlite3.Connection) -> None:
    """Up to format 5 an INT96 was nanoseconds, now it is microseconds: tables in nanoseconds may have files of both."""
    for id, schema, mixed in connection.execute("SELECT id, schema, mixed FROM tables").fetchall():
        columns = pa.ipc.read_schema(pa.py_buffer(schema))
        finest = {each.name for each in columns if pa.types.is_timestamp(each.type) and each.type.unit == "ns"}
        names = json.dumps(sorted(finest.union(json.loads(mixed))))
        connection.execute("UPDATE tables SET mixed = ? WHERE id = ?", (names, id))


# To format 7, which has cards in packs, upgrades card_upgrade.py.
UPGRADES = {2: _add_kinds_and_units, 3: _add_removals, 4: _add_changes, 5: _to_six}
