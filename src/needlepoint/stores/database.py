"""SQLite for many processes, with short transactions and durable commits."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from needlepoint import forks
from needlepoint.errors import StoreError, UsageError

Upgrade = Callable[[sqlite3.Connection], None]

_HINT = "Check that its directory exists, is writable, has room, and that the file is intact."


class Database:
    """One connection, shared by the threads of a process behind a lock.

    `write` is one transaction: all of it is durable when it returns, or nothing happened. `upgrades` maps a format to
    the function that upgrades it to the next one. A database that is not `durable` may lose commits, and never waits.
    """

    def __init__(
        self,
        path: Path,
        statements: str,
        version: int,
        upgrades: Mapping[int, Upgrade] | None = None,
        *,
        durable: bool = True,
        hint: str = _HINT,
    ) -> None:
        self.path = path
        self._hint = hint
        self._lock = threading.RLock()
        self._closed = False
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, timeout=60 if durable else 0.1, isolation_level=None, check_same_thread=False
            )
            self._use_write_ahead_log()
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
            self._create(statements, version, upgrades or {})
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it, see forks.py. A thread of the parent may have held the lock."""
        forks.leak(self._connection)
        self._connection = cast(sqlite3.Connection, forks.AbandonedHandle())
        self._lock = threading.RLock()

    def _use_write_ahead_log(self) -> None:
        # SQLite does not wait here while another process opens the same new database.
        for attempt in range(50):
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == 49:
                    raise
                time.sleep(0.05)

    def _create(self, statements: str, version: int, upgrades: Mapping[int, Upgrade]) -> None:
        if self._version() == version:
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            found = self._version()  # another process may have made it while this one waited
            while found in upgrades:
                upgrades[found](self._connection)
                found += 1
                self._connection.execute(f"PRAGMA user_version = {found}")
            if found not in (0, version):
                raise StoreError(
                    f"{self.path} has format {found}; this version of Needlepoint reads format {version}.",
                    hint="Use the version of Needlepoint that wrote it, or remove .needlepoint and sync again.",
                )
            if found == 0:
                for statement in statements_of(statements):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {version}")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The border: what SQLite and the file system raise becomes a StoreError."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if self._closed:
                raise UsageError(
                    f"the lake of {self.path.parent} is closed.", hint="Open it again with needlepoint.open."
                ) from None
            raise StoreError(
                f"the store {self.path} cannot be used: {error}.",
                hint=self._hint,
            ) from error

    def read(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self._lock, self._errors():
            return self._connection.execute(query, parameters).fetchall()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads inside see one state; a nested snapshot is that of the outer one."""
        with self._lock, self._errors():
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def checkpoint(self, *, whole: bool = False) -> None:
        """Move the write-ahead log into the database, as far as open readers allow. With `whole` the database is
        rewritten first, without content that was deleted before deletion overwrote it."""
        with self._lock, self._errors():
            if whole:
                self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()


def is_damaged(error: StoreError) -> bool:
    """Whether the file is not a database, or a corrupt one."""
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:  # of the module, not of SQLite
        return isinstance(cause, sqlite3.Error) and "decode" in str(cause)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def statements_of(text: str) -> Iterator[str]:
    """Split a text into statements; those inside a trigger belong to it.

    >>> list(statements_of("SELECT 1; CREATE TRIGGER a AFTER INSERT ON b BEGIN DELETE FROM c; END; "))
    ['SELECT 1;', 'CREATE TRIGGER a AFTER INSERT ON b BEGIN DELETE FROM c; END;']
    """
    begun = ""
    for part in text.split(";"):
        begun += f"{part};"
        if begun.strip(" \n;") and sqlite3.complete_statement(begun):
            yield begun.strip()
            begun = ""
