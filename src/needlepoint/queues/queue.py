"""Queues carry events from writers to indexers, at least once."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from needlepoint.queues.events import time_of
from needlepoint.stores import Database

FORMAT = 1
MOST_SHOWN = 1000
LONGEST_LEASE = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class Message:
    """A received message. `receipt` identifies the delivery, for queues that need more than the id."""

    id: str
    body: str
    attempts: int
    receipt: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be handled, with the reason."""

    id: str
    body: str
    reason: str


class Queue(Protocol):
    """`put` returns once the message is durable. A received message is invisible to others for the lease and is
    delivered again if it is neither acknowledged nor set aside by then; `release` ends the lease at once, and `renew`
    begins it again, unless it has ended and another has the message. Order is not strict.

    `receive` may wait a moment for messages; when it returns none, there are none that are visible. `waiting` counts
    leased messages too; counts of an `approximate` queue lag behind. `aside` shows a thousand messages at most.
    `shown` is its place, without secrets. `size`, in bytes, and `oldest`, the time at which the oldest event that
    waits was announced, in seconds since 1970, are None where they are not known.
    """

    approximate: bool

    @property
    def shown(self) -> str: ...
    def size(self) -> int | None: ...
    def oldest(self) -> float | None: ...

    def put(self, body: str) -> None: ...
    def receive(self, limit: int, lease: float) -> list[Message]: ...
    def acknowledge(self, message: Message) -> None: ...
    def set_aside(self, message: Message, reason: str) -> None: ...
    def release(self, message: Message) -> None: ...
    def renew(self, message: Message, lease: float) -> None: ...
    def waiting(self) -> int: ...
    def aside(self) -> list[DeadLetter]: ...
    def aside_count(self) -> int: ...
    def close(self) -> None: ...


_STATEMENTS = """
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, visible_at REAL NOT NULL DEFAULT 0, reason TEXT);
CREATE INDEX waiting ON messages (visible_at) WHERE reason IS NULL;
"""


_HINT = "Check permissions and free space. If it is damaged, remove it and run `needle sync`, which finds new files."


class LocalQueue:
    """The default queue: one SQLite database in the lake. Opened at first use: queries do not need it, and
    must not fail when it is damaged. A lease lasts an hour at most: one that ends later was taken while the clock was
    ahead, and counts as ended. Releasing a message or setting it aside is left to the one that has it now."""

    approximate = False

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self._path = directory / "queue.db"
        self._read_only = read_only
        self._lock = threading.Lock()
        self._opened: Database | None = None

    @property
    def _database(self) -> Database:
        with self._lock:
            if self._opened is None:
                self._opened = Database(self._path, _STATEMENTS, FORMAT, read_only=self._read_only, hint=_HINT)
            return self._opened

    @property
    def shown(self) -> str:
        return str(self._path)

    def size(self) -> int | None:
        return self._path.stat().st_size if self._path.exists() else 0

    def oldest(self) -> float | None:
        if self._read_only and not self._path.exists():
            return None
        found = self._database.read("SELECT body FROM messages WHERE reason IS NULL ORDER BY id LIMIT 1")
        return time_of(found[0][0]) if found else None

    def put(self, body: str) -> None:
        with self._database.write() as connection:
            connection.execute("INSERT INTO messages (body) VALUES (?)", (body,))

    def receive(self, limit: int, lease: float) -> list[Message]:
        now = time.time()
        with self._database.write() as connection:
            rows = connection.execute(
                """UPDATE messages SET attempts = attempts + 1, visible_at = ? WHERE id IN (
                       SELECT id FROM messages WHERE reason IS NULL AND (visible_at <= ? OR visible_at > ?)
                       ORDER BY id LIMIT ?)
                   RETURNING id, body, attempts""",
                (now + min(lease, LONGEST_LEASE), now, now + LONGEST_LEASE, limit),
            ).fetchall()
        return [Message(str(id), body, attempts) for id, body, attempts in sorted(rows)]

    def acknowledge(self, message: Message) -> None:
        with self._database.write() as connection:
            connection.execute("DELETE FROM messages WHERE id = ?", (message.id,))

    def set_aside(self, message: Message, reason: str) -> None:
        with self._database.write() as connection:
            query = "UPDATE messages SET reason = ? WHERE id = ? AND attempts = ?"
            connection.execute(query, (reason, message.id, message.attempts))

    def release(self, message: Message) -> None:
        with self._database.write() as connection:
            query = "UPDATE messages SET visible_at = 0 WHERE id = ? AND attempts = ?"
            connection.execute(query, (message.id, message.attempts))

    def renew(self, message: Message, lease: float) -> None:
        until = time.time() + min(lease, LONGEST_LEASE)
        query = "UPDATE messages SET visible_at = ? WHERE id = ? AND attempts = ?"
        with self._database.write() as connection:
            connection.execute(query, (until, message.id, message.attempts))

    def waiting(self) -> int:
        return self._count("reason IS NULL")

    def aside(self) -> list[DeadLetter]:
        query = "SELECT id, body, reason FROM messages WHERE reason IS NOT NULL ORDER BY id LIMIT ?"
        return [DeadLetter(str(id), body, reason) for id, body, reason in self._database.read(query, MOST_SHOWN)]

    def aside_count(self) -> int:
        return self._count("reason IS NOT NULL")

    def _count(self, condition: str) -> int:
        if self._read_only and not self._path.exists():
            return 0
        return int(self._database.read(f"SELECT count(*) FROM messages WHERE {condition}")[0][0])

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
