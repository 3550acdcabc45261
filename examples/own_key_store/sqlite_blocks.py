"""A key store of your own: the blocks of an index in a SQLite file. docs/stores.md says how its contract is tested.

A real one would be in a server that many machines reach. What it must do is the same: keep blocks of bytes, and publish
parts of them at once.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from needlepoint.stores.keys import FORMAT, BlockKeyStore
from needlepoint.stores.keys.space import Part, Published, SpaceState, StagedPart

TABLES = """
CREATE TABLE store (format INTEGER, key_bytes INTEGER, version TEXT);
CREATE TABLE runs (name TEXT PRIMARY KEY);
CREATE TABLE parts (id INTEGER PRIMARY KEY, blocks INTEGER, fences INTEGER, entries INTEGER, bytes INTEGER);
CREATE TABLE blocks (part INTEGER, number INTEGER, data BLOB, PRIMARY KEY (part, number));
"""


def open_store(directory: Path, key_bytes: int) -> BlockKeyStore:
    """The store of one index. The same directory is the same index, in any process."""
    return BlockKeyStore(SqliteSpace(directory / "index.db"), key_bytes)


class SqliteSpace:
    """The methods of `needlepoint.stores.keys.BlockSpace`."""

    def __init__(self, path: Path) -> None:
        self.shown = str(path)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """It sees one state, and what it changes is there at once, or not at all."""
        connection = sqlite3.connect(self.shown, timeout=60, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()  # which undoes what was not committed

    def create(self, key_bytes: int) -> None:
        with self._transaction() as connection:
            if not _is_there(connection):
                for statement in TABLES.strip().split("\n"):
                    connection.execute(statement)
                connection.execute("INSERT INTO store VALUES (?, ?, ?)", (FORMAT, key_bytes, secrets.token_hex(8)))

    def state(self) -> SpaceState | None:
        with self._transaction() as connection:
            if not _is_there(connection):
                return None
            format, key_bytes, version = connection.execute("SELECT * FROM store").fetchone()
            parts = tuple(Part(*row) for row in connection.execute("SELECT * FROM parts ORDER BY id"))
            (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
            return SpaceState(format, key_bytes, version, parts, runs)

    def missing(self, runs: Collection[str]) -> set[str]:
        with self._transaction() as connection:
            there = (
                {name for (name,) in connection.execute("SELECT name FROM runs")} if _is_there(connection) else set()
            )
            return set(runs) - there

    def stage(self, part: int) -> None:
        """A real store notes the time, and removes in `tidy` what nobody published for a day."""

    def put(self, part: int, numbers: Sequence[int], blocks: Sequence[bytes]) -> None:
        rows = [(part, number, block) for number, block in zip(numbers, blocks, strict=True)]
        with self._transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?)", rows)

    def publish(self, runs: Sequence[str], added: Sequence[StagedPart], removed: Sequence[Part]) -> Published:
        with self._transaction() as connection:
            if not _is_there(connection):
                return Published.GONE
            there = {id for (id,) in connection.execute("SELECT id FROM parts")}
            if removed and added and there.issuperset(each.part.id for each in added):
                return Published.DONE  # by a call whose answer was lost
            if not there.issuperset(part.id for part in removed):
                return Published.CHANGED
            known = {name for (name,) in connection.execute("SELECT name FROM runs")}
            new = [each.part for each in added if each.run not in known and each.part.id not in there]
            if any(_blocks(connection, part.id) != part.blocks + part.fences for part in new):
                return Published.LOST
            for part in new:
                row = (part.id, part.blocks, part.fences, part.entries, part.bytes)
                connection.execute("INSERT INTO parts VALUES (?, ?, ?, ?, ?)", row)
            for part in removed:
                _remove(connection, part)
            connection.executemany("INSERT OR IGNORE INTO runs VALUES (?)", [(run,) for run in runs])
            connection.execute("UPDATE store SET version = ?", (secrets.token_hex(8),))
            return Published.DONE

    def fetch(self, wanted: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], bytes]:
        found = {}
        with self._transaction() as connection:
            for part, numbers in wanted.items() if _is_there(connection) else ():
                for number in numbers:
                    query = "SELECT data FROM blocks WHERE part = ? AND number = ?"
                    for (data,) in connection.execute(query, (part, number)):
                        found[part, number] = data
        return found

    def discard(self, part: Part) -> None:
        with self._transaction() as connection:
            _remove(connection, part)

    def tidy(self) -> None:
        """See `stage`."""

    def destroy(self) -> None:
        Path(self.shown).unlink(missing_ok=True)


def _is_there(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'store'").fetchall())


def _blocks(connection: sqlite3.Connection, part: int) -> int:
    (found,) = connection.execute("SELECT count(*) FROM blocks WHERE part = ?", (part,)).fetchone()
    return int(found)


def _remove(connection: sqlite3.Connection, part: Part) -> None:
    connection.execute("DELETE FROM parts WHERE id = ?", (part.id,))
    connection.execute("DELETE FROM blocks WHERE part = ?", (part.id,))
