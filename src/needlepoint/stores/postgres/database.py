"""Tables in one schema of a PostgreSQL database, for many processes on many machines."""

from __future__ import annotations

import functools
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from needlepoint import forks
from needlepoint.errors import StoreError, UsageError
from needlepoint.stores.database import read_only_error
from needlepoint.stores.postgres.address import PostgresAddress
from needlepoint.stores.postgres.errors import is_lost, postgres_error
from needlepoint.stores.postgres.link import PostgresConnection, PostgresLink

PATIENCE = 30.0  # seconds to find out whether a commit happened whose answer was lost
_PAUSE = 0.2

_FORMATS = "CREATE TABLE IF NOT EXISTS formats (part TEXT PRIMARY KEY, version INTEGER NOT NULL)"
_OTHER_VERSION = "Use the version of Needlepoint that wrote it: a newer one upgrades it when it opens it for writing."


class PostgresTransaction:
    """What runs in one transaction. Queries have `?` for parameters."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def execute(self, query: str, parameters: Sequence[object] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._connection.execute(_translated(query), parameters)

    def executemany(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        if given := list(rows):
            self._connection.cursor().executemany(_translated(query), given)


PostgresUpgrade = Callable[[PostgresTransaction], None]


class _Current(threading.local):
    """The transaction or snapshot that a thread is in."""

    connection: PostgresConnection | None = None


class PostgresDatabase:
    """One connection for writing and one for reading, each shared by the threads of a process behind a lock.

    `write` is one transaction: all of it is durable when it returns, or nothing happened. If the connection is lost
    during the commit, the server is asked what became of it. Reads of a thread that writes see what it wrote; others
    see what is committed. `part` names what is stored: parts of one schema have their own formats. `upgrades` maps a
    format to the function that upgrades it to the next one. With `create` a part that is not there is made.
    """

    # Begins a change. Whoever has it executed is alone until the end of its transaction.
    _first = "SELECT txid_current()"

    def __init__(
        self,
        address: PostgresAddress,
        part: str,
        statements: Sequence[str],
        version: int,
        upgrades: Mapping[int, PostgresUpgrade] | None = None,
        *,
        create: bool = True,
        read_only: bool = False,
    ) -> None:
        self.address = address
        self._part = part
        self._read_only = read_only
        self._closed = False
        self._reading = PostgresLink(address, read_only=True)
        self._writing = PostgresLink(address, read_only=read_only)
        self._read_lock = threading.RLock()
        self._write_lock = threading.RLock()
        self._current = _Current()
        with self.errors():
            found = self._reading.ask(self._version)
            if found != version:
                self._create(statements, version, upgrades or {}, found, create and not read_only)
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it, see forks.py. A thread of the parent may have held a lock."""
        self._read_lock, self._write_lock = threading.RLock(), threading.RLock()
        self._current = _Current()

    def close(self) -> None:
        with self._read_lock, self._write_lock:
            self._closed = True
            self._reading.drop()
            self._writing.drop()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """The border: what the driver raises becomes a StoreError."""
        if self._closed:
            raise UsageError(f"the lake of {self.address.shown} is closed.", hint="Open it again.")
        try:
            yield
        except psycopg.Error as error:
            # Not chained: the text of the driver may contain parts of the URL.
            raise postgres_error(error, self._part, self.address.shown) from None

    # Formats

    def _version(self, connection: PostgresConnection) -> int:
        """0 when the part is not there."""
        place = f"{self.address.schema}.formats"
        if connection.execute("SELECT to_regclass(%s)", (place,)).fetchall() == [(None,)]:
            return 0
        found = connection.execute("SELECT version FROM formats WHERE part = %s", (self._part,)).fetchall()
        return int(found[0][0]) if found else 0

    def _create(
        self,
        statements: Sequence[str],
        version: int,
        upgrades: Mapping[int, PostgresUpgrade],
        found: int,
        may_write: bool,
    ) -> None:
        if found not in (0, *upgrades):
            raise self._wrong_format(found, version)
        if not may_write:
            if found and self._read_only:
                raise self._wrong_format(found, version)
            if not found:
                raise UsageError(
                    f"there is no {self._part} in {self.address.shown}.",
                    hint="`needle create-table` or `needle ingest` creates one; check the URL and its ?schema=….",
                )
        connection = self._writing.connection()
        with connection.transaction():
            # One process at a time; the others find it done.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (advisory_key(self.address.schema, "formats"),))
            # Also IF NOT EXISTS would need the right to create one.
            if connection.execute("SELECT to_regnamespace(%s)", (self.address.schema,)).fetchall() == [(None,)]:
                connection.execute(f'CREATE SCHEMA "{self.address.schema}"'.encode())
            connection.execute(_FORMATS)
            found = self._version(connection)
            transaction = PostgresTransaction(connection)
            while found in upgrades:
                upgrades[found](transaction)
                found += 1
            if found not in (0, version):
                raise self._wrong_format(found, version)
            if found == 0:
                for statement in statements:
                    connection.execute(statement.encode())
            connection.execute(
                "INSERT INTO formats VALUES (%s, %s) ON CONFLICT (part) DO UPDATE SET version = excluded.version",
                (self._part, version),
            )

    def _wrong_format(self, found: int, version: int) -> StoreError:
        return StoreError(
            f"the {self._part} in {self.address.shown} has format {found}; this version of Needlepoint reads format "
            f"{version}.",
            hint=_OTHER_VERSION,
        )

    # Reading

    def read(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        text = _translated(query)
        current = self._current.connection
        if current is not None:
            with self.errors():
                return current.execute(text, parameters).fetchall()
        with self._read_lock, self.errors():
            return self._reading.ask(lambda connection: connection.execute(text, parameters).fetchall())

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads inside see one state; a nested snapshot is that of the outer one."""
        if self._current.connection is not None:
            yield
            return
        with self._read_lock:
            with self.errors():
                connection = self._reading.ask(_begin_snapshot)
            self._current.connection = connection
            try:
                yield
            finally:
                self._current.connection = None
                self._undo(self._reading, connection)

    # Writing

    @contextmanager
    def write(self, first: str | None = None) -> Iterator[PostgresTransaction]:
        """One transaction. `first` is its first statement, and returns the transaction's id."""
        if self._read_only:
            raise read_only_error()
        if self._current.connection is not None:
            raise StoreError("a change cannot begin inside a snapshot or another change.")
        with self._write_lock:
            with self.errors():
                begun = functools.partial(_begin_change, first=first or self._first)
                begun_change = self._writing.ask(begun)
            if begun_change is None:
                raise self._absent()
            connection, id = begun_change
            self._current.connection = connection
            try:
                with self.errors():
                    yield PostgresTransaction(connection)
            except BaseException:
                self._undo(self._writing, connection)
                raise
            finally:
                self._current.connection = None
            self._commit(connection, id)

    def _absent(self) -> StoreError:
        """Why the first statement of a change found no row."""
        return StoreError(f"the {self._part} in {self.address.shown} cannot be changed.", hint="Restore it.")

    def _undo(self, link: PostgresLink, connection: PostgresConnection) -> None:
        try:
            connection.execute("ROLLBACK", prepare=False)
        except psycopg.Error:
            link.drop()

    def _commit(self, connection: PostgresConnection, id: int) -> None:
        process = connection.info.backend_pid
        with self.errors():
            try:
                done = connection.execute("COMMIT", prepare=False).statusmessage
            except psycopg.Error as error:
                if not is_lost(error):
                    self._undo(self._writing, connection)
                    raise
                self._writing.drop()
                done = "COMMIT" if self._became_durable(id, process) else "ROLLBACK"
            except BaseException:
                self._writing.drop()
                raise
        if done != "COMMIT":
            raise StoreError(
                f"the {self._part} in {self.address.shown} was not changed: the connection was lost.",
                hint="Nothing happened. Retry.",
            )

    def _became_durable(self, id: int, process: int) -> bool:
        """What became of a transaction whose commit was not answered. One that the server still has open never got
        the commit, or is about to finish: it is ended, so that the outcome cannot change any more."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with suppress(psycopg.Error):
                connection = self._writing.connection()
                ((status,),) = connection.execute("SELECT txid_status(%s)", (id,)).fetchall()
                if status in ("committed", "aborted"):
                    return bool(status == "committed")
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid = %s AND backend_xid::text = (%s %% 4294967296)::text",
                    (process, id),
                )
                time.sleep(_PAUSE)
                continue
            self._writing.drop()
            time.sleep(_PAUSE)
        raise StoreError(
            f"the connection to {self.address.shown} was lost while the {self._part} was changed, and the server does "
            "not say whether the change happened.",
            hint="Retry when the server answers: what happened is not done twice.",
        )


def advisory_key(schema: str, name: str) -> int:
    """The number of an advisory lock: PostgreSQL has one space of them for a whole database."""
    return int.from_bytes(hashlib.sha256(f"{schema}\0{name}".encode()).digest()[:8], "big", signed=True)


def _begin_snapshot(connection: PostgresConnection) -> PostgresConnection:
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", prepare=False)
    return connection


def _begin_change(connection: PostgresConnection, first: str) -> tuple[PostgresConnection, int] | None:
    """None if the first statement finds no row."""
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED", prepare=False)
    try:
        found = connection.execute(first.encode()).fetchall()
        if not found:
            connection.execute("ROLLBACK", prepare=False)
            return None
    except BaseException:  # also an interrupt: the next change must not be part of this one
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK", prepare=False)
        raise
    return connection, int(found[0][0])


@functools.cache
def _translated(query: str) -> bytes:
    """
    >>> _translated("SELECT name FROM runs WHERE name LIKE 'a%' AND index_id = ?")
    b"SELECT name FROM runs WHERE name LIKE 'a%%' AND index_id = %s"
    """
    return query.replace("%", "%%").replace("?", "%s").encode()
