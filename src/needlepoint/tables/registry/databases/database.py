"""The registry's database: transactions that raise a sequence number, so that readers see cheaply whether it changed.

SQLite or PostgreSQL and not RocksDB, because several processes write here (Spark drivers publish, indexers commit,
people create tables) and RocksDB admits one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from needlepoint.errors import StoreError
from needlepoint.objects import sync_file
from needlepoint.stores import Database, PackStore, lake_identity, set_lake_identity
from needlepoint.tables.registry.databases.card_upgrade import upgrades
from needlepoint.tables.registry.databases.dialects import SQLITE, Dialect
from needlepoint.tables.registry.databases.moved import closing_statements, moved_error, moved_mark
from needlepoint.tables.registry.databases.schema import FORMAT, STATEMENTS
from needlepoint.tables.registry.databases.transaction import RegistryTransaction

# The registry remembers which files each of the last changes touched.
CHANGES_KEPT = 1000
_ADOPTED = -1  # as the number of a registry: its identity came from another one, and is all in the file


class RegistryDatabase(Protocol):
    """What the registry needs of a database.

    `change` is one transaction that raises the sequence number: durable as a whole when it returns, or undone. One
    process changes at a time, so a later change has a greater number and sees all earlier ones. `read` sees what is
    committed, and inside a change what it wrote so far. All reads inside a `snapshot` see one state; threads take
    snapshots one after the other, and a nested one is that of the outer one. Errors of the driver are StoreErrors.
    """

    @property
    def dialect(self) -> Dialect: ...
    @property
    def format(self) -> int:
        """The version of how it is stored."""
        ...

    def read(self, query: str, *parameters: object) -> list[tuple[Any, ...]]: ...
    def sequence(self) -> int:
        """Rises with every change by any process."""
        ...

    def identity(self) -> str:
        """A random name that no other registry has, not even a later one of the same lake: ids of files and indexes
        mean something only together with it."""
        ...

    def adopt(self, transaction: RegistryTransaction, identity: str) -> None:
        """Take the identity of the registry that this one is a copy of."""
        ...

    def change(self) -> AbstractContextManager[RegistryTransaction]: ...
    def between_changes(self, *, even_moved: bool = False) -> AbstractContextManager[RegistryTransaction]:
        """For reading while no process is in the middle of a change; `even_moved`, also in a registry that was moved
        elsewhere."""
        ...

    def snapshot(self) -> AbstractContextManager[None]: ...
    def checkpoint(self, *, whole: bool = False) -> None:
        """Give back the room of what was deleted; with `whole`, leave none of its content in the database."""
        ...

    def describe(self) -> tuple[str, str, int]:
        """The kind of the database, its place without secrets, and its size in bytes, without a log of changes."""
        ...

    def close(self) -> None: ...


class SqliteRegistryDatabase(Database):
    """An upgrade may write to the packs of cards. One that was moved elsewhere is refused, unless it is opened
    `for_move`; then a new one is closed."""

    dialect = SQLITE
    format = FORMAT

    def __init__(self, path: Path, cards: PackStore, *, read_only: bool = False, for_move: bool = False) -> None:
        if for_move and not path.exists():
            _create_closed(path)
        super().__init__(path, STATEMENTS, FORMAT, upgrades(cards), read_only=read_only)
        if not for_move and (mark := moved_mark(self)):
            self.close()
            raise moved_error(str(path), mark)
        self.after_change: Callable[[], None] = _nothing
        if self.upgraded:
            with contextlib.suppress(StoreError):  # the disk is full, or another process reads: a later sweep does it
                self.checkpoint(whole=True)

    def sequence(self) -> int:
        try:
            return int(self.read("SELECT value FROM sequence")[0][0])
        except StoreError as error:
            self._refuse_moved(error)
            raise

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        try:
            with self.write() as connection:
                yield connection
                connection.execute("UPDATE sequence SET value = value + 1")
                connection.execute(
                    "DELETE FROM changes WHERE sequence <= (SELECT value - ? FROM sequence)", (CHANGES_KEPT,)
                )
        except StoreError as error:
            self._refuse_moved(error)
            raise
        self.after_change()

    def _refuse_moved(self, error: StoreError) -> None:
        """A better error if it is that the registry was moved while it was open."""
        if "no such table" in str(error.__cause__) and (mark := moved_mark(self)):
            raise moved_error(str(self.path), mark) from None

    def between_changes(self, *, even_moved: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        return self.write()

    def adopt(self, transaction: RegistryTransaction, identity: str) -> None:
        if self.identity() == identity:  # it comes back: what a file says cannot change in one commit with the rest
            return
        set_lake_identity(self.path.parent, identity)
        transaction.execute(f"PRAGMA application_id = {_ADOPTED}")

    def identity(self) -> str:
        ((number,),) = self.read("PRAGMA application_id")
        if not number:
            with self.write() as connection:
                ((number,),) = connection.execute("PRAGMA application_id").fetchall()
                if not number:
                    number = secrets.randbelow(2**31 - 1) + 1
                    connection.execute(f"PRAGMA application_id = {number}")
        if number == _ADOPTED:
            return lake_identity(str(self.path.parent))
        return f"{lake_identity(str(self.path.parent))}-{number:08x}"

    def describe(self) -> tuple[str, str, int]:
        with self._errors():
            return "sqlite", str(self.path), self.path.stat().st_size


def _create_closed(path: Path) -> None:
    """Make a registry that is closed, with a single step at the end: whenever this is killed, nobody finds an empty
    one. What is left then is below `scratch`, where `sweep --now` removes it."""
    scratch = path.parent / "scratch" / uuid.uuid4().hex
    try:
        statements = ";\n".join((STATEMENTS, *closing_statements(SQLITE)))
        Database(scratch / path.name, statements, FORMAT).close()
        sync_file(scratch / path.name)
        with contextlib.suppress(FileExistsError):
            os.link(scratch / path.name, path)
        sync_file(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be made: {error}.", hint="Check permissions and free space.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _nothing() -> None:
    """Nobody waits for changes."""
