"""How the registry is stored, and what makes of an older format the present one.

Bounds and zones are in the unit of their file (`unit`, NULL for columns without one): the table's can become finer.
"""

from __future__ import annotations

import sqlite3

import pyarrow as pa

from needlepoint.tables.schemas import unit_of

FORMAT = 4

_PAYLOADS = """
CREATE TABLE payloads (
    file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    index_id INTEGER NOT NULL REFERENCES indexes ON DELETE CASCADE,
    pack TEXT NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
    codec TEXT NOT NULL, size INTEGER NOT NULL, checksum TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (index_id, file_id)) WITHOUT ROWID;
CREATE INDEX payloads_by_file ON payloads (file_id)
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
    UNIQUE (table_id, path));
CREATE TABLE cards (
    file_id INTEGER PRIMARY KEY REFERENCES files ON DELETE CASCADE, card BLOB NOT NULL);
CREATE TABLE bounds (
    table_id INTEGER NOT NULL, column_name TEXT NOT NULL,
    file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    low, high, nulls INTEGER, rows INTEGER NOT NULL, nan INTEGER NOT NULL, unit TEXT,
    PRIMARY KEY (table_id, column_name, file_id)) WITHOUT ROWID;
CREATE INDEX bounds_by_file ON bounds (file_id);
CREATE TABLE zones (
    file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    column_name TEXT NOT NULL, zones BLOB NOT NULL, unit TEXT,
    PRIMARY KEY (file_id, column_name));
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
{_PAYLOADS}
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


UPGRADES = {2: _add_kinds_and_units, 3: _add_removals}
