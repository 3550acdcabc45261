"""The tables of the registry's database, and how older ones become those of today.

A format that was ever released is upgraded when a registry is opened; its golden file is read for ever.
"""

from __future__ import annotations

FORMAT = 3

_SECOND = """
CREATE TABLE sequence (value INTEGER NOT NULL);
INSERT INTO sequence VALUES (1);
CREATE TABLE tables (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    location TEXT NOT NULL, schema BLOB NOT NULL, partitions TEXT NOT NULL);
CREATE TABLE views (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, query TEXT NOT NULL);
CREATE TABLE indexes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    table_id INTEGER NOT NULL REFERENCES tables ON DELETE CASCADE,
    name TEXT NOT NULL UNIQUE, column_name TEXT NOT NULL, kind TEXT NOT NULL);
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
    low, high, nulls INTEGER, rows INTEGER NOT NULL, nan INTEGER NOT NULL,
    PRIMARY KEY (table_id, column_name, file_id)) WITHOUT ROWID;
CREATE INDEX bounds_by_file ON bounds (file_id);
CREATE TABLE zones (
    file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    column_name TEXT NOT NULL, zones BLOB NOT NULL,
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
    PRIMARY KEY (table_id, batch)) WITHOUT ROWID;
"""

_THIRD = """
ALTER TABLE indexes ADD COLUMN columns TEXT;
ALTER TABLE indexes ADD COLUMN embed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE indexes ADD COLUMN options TEXT NOT NULL DEFAULT '{}';
CREATE TABLE payloads (
    file_id INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    index_id INTEGER NOT NULL REFERENCES indexes ON DELETE CASCADE,
    pack TEXT NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
    codec TEXT NOT NULL, size INTEGER NOT NULL, checksum TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (index_id, file_id)) WITHOUT ROWID;
CREATE INDEX payloads_by_file ON payloads (file_id)
"""

STATEMENTS = f"{_SECOND};{_THIRD}"
UPGRADES = {2: _THIRD}
