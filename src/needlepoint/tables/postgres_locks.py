"""Locks of tables in PostgreSQL: those of locks.py for processes on several machines.

A lock is an advisory lock of one session of the process. The server releases it when the process ends, its machine
goes away or the connection is lost. In the last case the process still works and another one may take the lock: then
the changes of the first are refused (`fenced` in registry/databases/postgres.py).

Each lock is also held as a file, as in locks.py: for workers that outlive their parent on this machine, and for
directories that this process fills while the server is away.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg

from needlepoint import forks
from needlepoint.stores.postgres import PostgresConnection, PostgresLink, advisory_key
from needlepoint.tables.locks import LONGEST_WAIT, PAUSE, Locks, TableLocks, still_embedding
from needlepoint.tables.model import Table
from needlepoint.tables.registry.databases.postgres import PostgresRegistryDatabase

# An advisory lock of 64 bits, as pg_locks shows it.
_IS_HELD = """SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND classid::bigint = (%s::bigint >> 32) & 4294967295 AND objid::bigint = %s::bigint & 4294967295)"""


@dataclass(slots=True)
class _Hold:
    """A lock that this process holds: a session takes an advisory lock again without asking."""

    shared: bool
    count: int = 0


class PostgresLocks(Locks):
    def __init__(self, database: PostgresRegistryDatabase, local: TableLocks) -> None:
        self._database = database
        self._local = local
        self._session = PostgresLink(database.address)
        self._opened = 0
        self._guard = threading.Lock()
        self._holds: dict[str, _Hold] = {}
        self._claims: dict[str, _Hold] = {}
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it, see forks.py."""
        self._guard = threading.Lock()
        self._holds, self._claims = {}, {}

    def close(self) -> None:
        self._local.close()
        with self._guard:
            self._holds.clear()
            self._claims.clear()
            if self._session.is_open:  # the server notices the end of a session a moment later
                with suppress(psycopg.Error):
                    self._session.connection().execute("SELECT pg_advisory_unlock_all()")
            self._session.drop()

    # Directories

    def claim(self, name: str) -> bool:
        """Mark a directory of this name as in use until `release` or the end of this process. False when it is in
        use."""
        if not self._local.claim(name):
            return False
        hold = self._take(_claim(name), shared=False)
        if hold is None:
            self._local.release(name)
            return False
        self._claims[name] = hold
        return True

    def release(self, name: str) -> None:
        self._local.release(name)
        hold = self._claims.pop(name, None)
        if hold is not None:
            self._give_back(_claim(name), hold)

    def is_claimed(self, name: str) -> bool | None:
        """Whether a directory of this name is in use, on any machine."""
        if self._local.is_claimed(name):
            return True
        key = self._key(_claim(name))
        with self._database.errors(), self._guard:
            found = self._session.ask(lambda connection: connection.execute(_IS_HELD, (key, key)).fetchall())
        return bool(found[0][0])

    # Tables

    @contextmanager
    def shared(self, table: Table) -> Iterator[tuple[int, ...]]:
        """As of locks.py; the descriptors are those of the lock on this machine."""
        name = _table(table)
        with self._local.shared(table) as descriptors:
            while (hold := self._take(name, shared=True)) is None:
                time.sleep(PAUSE)
            try:
                with self._database.fenced(name, shared=True):
                    yield descriptors
            finally:
                self._give_back(name, hold)

    @contextmanager
    def exclusive(self, table: Table) -> Iterator[None]:
        """For removing files: one process, and no shared locks; StoreError when these do not end."""
        name = _table(table)
        ends = time.monotonic() + LONGEST_WAIT
        with self._local.exclusive(table):
            while (hold := self._take(name, shared=False)) is None:
                if time.monotonic() > ends:
                    raise still_embedding(table)
                time.sleep(PAUSE)
            try:
                with self._database.fenced(name):
                    yield
            finally:
                self._give_back(name, hold)

    @contextmanager
    def batch_lock(self, table: Table, batch: str, *, wait: bool) -> Iterator[bool]:
        """For publishing a batch: one process. Yields whether it is this one; without `wait` it may be another."""
        name = f"batch {table.id} {hashlib.sha256(batch.encode()).hexdigest()[:32]}"
        with self._local.batch_lock(table, batch, wait=wait) as mine:
            hold = self._take(name, shared=False) if mine else None
            while mine and wait and hold is None:
                time.sleep(PAUSE)
                hold = self._take(name, shared=False)
            if hold is None:
                yield False
                return
            try:
                with self._database.fenced(name, forget=True):
                    yield True
            finally:
                self._give_back(name, hold)

    # The session

    def _take(self, name: str, *, shared: bool) -> _Hold | None:
        """None when another has it."""
        with self._database.errors(), self._guard:
            return self._session.ask(lambda connection: self._take_in(connection, name, shared))

    def _take_in(self, connection: PostgresConnection, name: str, shared: bool) -> _Hold | None:
        if self._session.opened != self._opened:  # another session: the locks of the one before are lost
            self._holds.clear()
            self._opened = self._session.opened
        held = self._holds.get(name)
        if held is not None and not (shared and held.shared):
            return None
        if held is None:
            function = "pg_try_advisory_lock_shared" if shared else "pg_try_advisory_lock"
            found = connection.execute(f"SELECT {function}(%s)".encode(), (self._key(name),)).fetchall()
            if found != [(True,)]:
                return None
            held = self._holds[name] = _Hold(shared)
        held.count += 1
        return held

    def _give_back(self, name: str, hold: _Hold) -> None:
        """Also after the session was lost, when there is nothing to give back, and another may have it."""
        with self._guard:
            hold.count -= 1
            if hold.count or self._holds.get(name) is not hold:
                return
            del self._holds[name]
            function = "pg_advisory_unlock_shared" if hold.shared else "pg_advisory_unlock"
            if self._session.is_open and self._session.opened == self._opened:
                try:
                    self._session.connection().execute(f"SELECT {function}(%s)".encode(), (self._key(name),))
                except psycopg.Error:
                    self._session.drop()

    def _key(self, name: str) -> int:
        return advisory_key(self._database.address.schema, name)


def _claim(name: str) -> str:
    return f"claim {name}"


def _table(table: Table) -> str:
    return f"table {table.id}"
