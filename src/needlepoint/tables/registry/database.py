"""The registry's database: transactions that raise a sequence number, so that readers see cheaply whether it changed.

SQLite and not RocksDB, because several processes write here (Spark drivers publish, indexers commit, people create
tables) and RocksDB admits one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from needlepoint.stores import Database
from needlepoint.tables.registry.schema import FORMAT, STATEMENTS, UPGRADES

# The registry remembers which files each of the last changes touched.
CHANGES_KEPT = 1000


class RegistryDatabase(Database):
    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        super().__init__(path, STATEMENTS, FORMAT, UPGRADES, read_only=read_only)

    def sequence(self) -> int:
        """Rises with every change by any process."""
        return int(self.read("SELECT value FROM sequence")[0][0])

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction that raises the sequence number: durable as a whole when it returns, or undone."""
        with self.write() as connection:
            yield connection
            connection.execute("UPDATE sequence SET value = value + 1")
            connection.execute(
                "DELETE FROM changes WHERE sequence <= (SELECT value - ? FROM sequence)", (CHANGES_KEPT,)
            )

    def between_changes(self) -> AbstractContextManager[sqlite3.Connection]:
        """For reading while no process is in the middle of a change."""
        return self.write()
