"""The registry's database: transactions that raise a sequence number, so that readers see cheaply whether it changed.

SQLite and not RocksDB, because several processes write here (Spark drivers publish, indexers commit, people create
tables) and RocksDB admits one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from needlepoint.errors import StoreError
from needlepoint.stores import Database, PackStore
from needlepoint.tables.registry.card_upgrade import upgrades
from needlepoint.tables.registry.schema import FORMAT, STATEMENTS

# The registry remembers which files each of the last changes touched.
CHANGES_KEPT = 1000


class RegistryDatabase(Database):
    """An upgrade may write to the packs of cards."""

    def __init__(self, path: Path, cards: PackStore, *, read_only: bool = False) -> None:
        super().__init__(path, STATEMENTS, FORMAT, upgrades(cards), read_only=read_only)
        self.after_change: Callable[[], None] = _nothing
        if self.upgraded:
            with contextlib.suppress(StoreError):  # the disk is full, or another process reads: a later sweep does it
                self.checkpoint(whole=True)

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
        self.after_change()

    def between_changes(self) -> AbstractContextManager[sqlite3.Connection]:
        """For reading while no process is in the middle of a change."""
        return self.write()


def _nothing() -> None:
    """Nobody waits for changes."""
