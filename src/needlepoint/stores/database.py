"""SQLite for many processes, with short transactions and durable commits."""

from __future__ import annotations

import os
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
    A `read_only` one can be on a file system that cannot be written.
    """

    def __init__(
        self,
        path: Path,
        statements: str,
        version: int,
        upgrades: Mapping[int, Upgrade] | None = None,
        *,
        durable: bool = True,
        read_only: bool = False,
        hint: str = _HINT,
    ) -> None:
        self.path = path
        self._hint = hint
        self._read_only = read_only
        self._unchanging: os.stat_result | None = None
        self._lock = threading.RLock()
        self._closed = False
        self.upgraded = False
        with self._errors():
            if read_only:
                self._open_to_read()
                self._check(version)
            else:
                self._open_to_write(60 if durable else 0.1)
                self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
                self._create(statements, version, upgrades or {})
        forks.own(self)

    def _open_to_write(self, patience: float) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(self.path, timeout=patience, isolation_level=None, check_same_thread=False)
        self._use_write_ahead_log()
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten

    def _open_to_read(self) -> None:
        """SQLite reads a write-ahead log only together with a file that it makes beside it, unless a writer has made
        it. Where that is impossible and there is no log, nobody else writes either: open the file as unchanging."""
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        self._unchanging = None
        self._connection = _connect(uri)
        try:
            self._version()
        except sqlite3.OperationalError:
            self._connection.close()
            log = self.path.with_name(f"{self.path.name}-wal")
            if not self.path.exists() or (log.exists() and log.stat().st_size):
                raise
            self._unchanging = self.path.stat()
            self._connection = _connect(f"{uri}&immutable=1")

    def _check(self, version: int) -> None:
        found = self._version()
        if found != version:
            raise StoreError(
                f"{self.path} has format {found}; this version of Needlepoint reads format {version}.",
                hint="Open it once for writing, with the newer of both versions: an older format is upgraded then.",
            )

    def _current(self) -> sqlite3.Connection:
        """The connection; a new one if a file that was opened as unchanging has changed."""
        if self._unchanging is not None and not _is_same(self._unchanging, self.path.stat()):
            self._connection.close()
            self._open_to_read()
        return self._connection

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
                self.upgraded = True
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
            return self._current().execute(query, parameters).fetchall()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        if self._read_only:
            raise read_only_error()
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
            self._current().execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    @property
    def is_in_transaction(self) -> bool:
        """Whether a thread has a snapshot, or writes."""
        return bool(self._connection.in_transaction)

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


def read_only_error() -> UsageError:
    return UsageError("the lake is open for reading only.", hint="Open it without read_only to change it.")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None, check_same_thread=False)


def _is_same(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether a file has not changed."""
    return (one.st_ino, one.st_size, one.st_mtime_ns) == (other.st_ino, other.st_size, other.st_mtime_ns)


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
