"""Pieces of objects that never change, kept on disk up to a limit; processes share them.

The directory can be removed at any time. What cannot be read or written is fetched again: a cache causes no error.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import xxhash

from needlepoint import forks
from needlepoint.errors import StoreError
from needlepoint.stores.database import Database, is_damaged

FORMAT = 1
# A larger piece is not kept.
LARGEST = 64 << 20
# The time of use is recorded only after so many seconds, so that a read seldom writes.
USED_EVERY = 600.0
# Past the limit, the pieces used least recently are removed until this share is left. A sweep waits until a part of the
# limit was added.
KEPT_SHARE, SHARE_BETWEEN_SWEEPS = 0.8, 0.1

_STATEMENTS = """
CREATE TABLE pieces (
    object TEXT NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL, used REAL NOT NULL, checksum TEXT NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (object, start, length));
CREATE INDEX pieces_by_use ON pieces (used, length)
"""


class PieceCache:
    def __init__(self, directory: Path, limit: int) -> None:
        self._path = directory / "pieces.db"
        self._limit = limit
        self._added = limit  # others may have filled it
        self._lock = threading.Lock()
        self._opened: Database | None = None
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it, see forks.py."""
        self._opened, self._lock = None, threading.Lock()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def get(self, object: str, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
        """The pieces of an object that are here, by `(start, length)`."""
        found: dict[tuple[int, int], bytes] = {}

        def look(database: Database) -> None:
            old: list[tuple[float, str, int, int]] = []
            now = time.time()
            for start, length in places:
                query = "SELECT data, checksum, used FROM pieces WHERE object = ? AND start = ? AND length = ?"
                for data, checksum, used in database.read(query, object, start, length):
                    if isinstance(data, bytes) and len(data) == length and xxhash.xxh3_64_hexdigest(data) == checksum:
                        found[start, length] = data
                        if used < now - USED_EVERY or used > now:
                            old.append((now, object, start, length))
            if old:
                with database.write() as connection:
                    connection.executemany(
                        "UPDATE pieces SET used = ? WHERE object = ? AND start = ? AND length = ?", old
                    )

        if self._limit:
            self._with_database(look)
        return found

    def put(self, object: str, pieces: dict[tuple[int, int], bytes]) -> None:
        kept = {place: data for place, data in pieces.items() if len(data) <= min(LARGEST, self._limit // 4)}
        if not kept:
            return

        def keep(database: Database) -> None:
            now = time.time()
            with database.write() as connection:
                connection.executemany(
                    "INSERT OR REPLACE INTO pieces VALUES (?, ?, ?, ?, ?, ?)",
                    [
                        (object, start, length, now, xxhash.xxh3_64_hexdigest(data), data)
                        for (start, length), data in kept.items()
                    ],
                )
                self._added += sum(map(len, kept.values()))
                if self._added > self._limit * SHARE_BETWEEN_SWEEPS:
                    self._sweep(connection)

        self._with_database(keep)

    def drop(self, object: str, places: Sequence[tuple[int, int]]) -> None:
        """Forget pieces of an object."""

        def forget(database: Database) -> None:
            with database.write() as connection:
                connection.executemany(
                    "DELETE FROM pieces WHERE object = ? AND start = ? AND length = ?",
                    [(object, *place) for place in places],
                )

        self._with_database(forget)

    def _sweep(self, connection: sqlite3.Connection) -> None:
        self._added = 0
        held = int(connection.execute("SELECT coalesce(sum(length), 0) FROM pieces").fetchone()[0])
        if held <= self._limit:
            return
        for used, length in connection.execute("SELECT used, length FROM pieces ORDER BY used").fetchall():
            if held <= self._limit * KEPT_SHARE:
                return
            held -= length
            connection.execute(
                "DELETE FROM pieces WHERE rowid = (SELECT rowid FROM pieces WHERE used = ? AND length = ? LIMIT 1)",
                (used, length),
            )

    def _with_database(self, work: Callable[[Database], None]) -> None:
        """A damaged cache is removed; whatever else fails leaves it as it is."""
        with contextlib.suppress(StoreError):
            with self._lock:
                database = self._opened
                if database is None:
                    database = self._opened = self._open()
            try:
                work(database)
            except StoreError as error:
                if is_damaged(error):
                    with self._lock:
                        self._opened = None
                    database.close()
                    self._remove()

    def _open(self) -> Database:
        try:
            return Database(self._path, _STATEMENTS, FORMAT, durable=False)
        except StoreError:
            self._remove()
            return Database(self._path, _STATEMENTS, FORMAT, durable=False)

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()
