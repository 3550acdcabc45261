"""Blocks in a relational database: what PostgreSQL and MySQL have in common.

    needlepoint_key_stores   one row per index
    needlepoint_key_runs     the runs that were published
    needlepoint_key_parts    with their states: staged, published, removed
    needlepoint_key_blocks   the blocks of all parts

One transaction publishes. Blocks are written before it, in transactions of their own, and nothing refers to them. A
part is known before its first block, so that what a killed writer left is found.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from needlepoint.stores.base import IndexDamaged
from needlepoint.stores.keys.connections import ConnectionPool
from needlepoint.stores.keys.space import (
    FORMAT,
    REMOVED_AGE,
    STAGED_AGE,
    Part,
    Published,
    ServerCalls,
    SpaceState,
    StagedPart,
)

STAGED, PUBLISHED, REMOVED = 0, 1, 2
_DELETED_AT_ONCE = 20_000  # blocks
_NAMES_AT_ONCE = 5_000

Answer = TypeVar("Answer")


class Dialect(Protocol):
    """What differs. A cursor's parameters are `%s` in both."""

    tables: tuple[str, ...]
    """Statements that create what is not there."""
    now: str
    """The server's time in seconds, as an expression."""
    insert_once: tuple[str, str]
    """What comes before and after an INSERT that leaves out rows which are there."""

    def is_missing_table(self, error: Exception) -> bool: ...

    def lock_tables(self, cursor: Any) -> None:
        """Let no other process create tables until the transaction ends."""
        ...

    def put(self, cursor: Any, part: int, numbers: Sequence[int], blocks: Sequence[bytes]) -> None: ...

    def fetch(self, cursor: Any, wanted: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], bytes]: ...


class SqlServer:
    """A database, with its connections."""

    def __init__(self, calls: ServerCalls, pool: ConnectionPool, dialect: Dialect, error: type[Exception]) -> None:
        self.shown = calls.shown
        self.dialect = dialect
        self._calls = calls
        self._pool = pool
        self._error = error

    def space(self, lake: str, index_id: int) -> SqlSpace:
        return SqlSpace(self, lake, index_id)

    def ids(self, lake: str) -> dict[int, float]:
        query = f"""SELECT s.index_id, {self.dialect.now} - GREATEST(s.made, COALESCE(max(p.made), 0))
               FROM needlepoint_key_stores s
               LEFT JOIN needlepoint_key_parts p ON p.lake = s.lake AND p.index_id = s.index_id
               WHERE s.lake = %s GROUP BY s.index_id, s.made"""
        return {int(id): float(age) for id, age in self.read(query, lake)}

    def close(self) -> None:
        self._pool.close()

    def read(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a query; none if there are no tables."""

        def ask() -> list[tuple[Any, ...]]:
            with self._pool.lent() as connection, connection.cursor() as cursor:
                try:
                    cursor.execute(query, parameters)
                    return list(cursor.fetchall())
                except self._error as error:
                    if self.dialect.is_missing_table(error):
                        return []
                    raise

        return self._calls(ask)

    def fetch(self, wanted: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], bytes]:
        def ask() -> dict[tuple[int, int], bytes]:
            with self._pool.lent() as connection, connection.cursor() as cursor:
                try:
                    return self.dialect.fetch(cursor, wanted)
                except self._error as error:
                    if self.dialect.is_missing_table(error):
                        return {}
                    raise

        return self._calls(ask)

    def write(self, change: Callable[[Any], Answer]) -> Answer:
        """Run a function of a cursor in one transaction. It is tried again when the connection is lost, also after it
        may have been committed."""

        def ask() -> Answer:
            with self._pool.lent() as connection, _transaction(connection), connection.cursor() as cursor:
                try:
                    return change(cursor)
                except self._error as error:
                    if self.dialect.is_missing_table(error):
                        raise IndexDamaged(
                            f"a table of the key store {self.shown} is gone.", hint="Sync makes it again."
                        ) from None
                    raise

        return self._calls(ask, writes=True)

    def execute(self, statement: str, *parameters: Any) -> None:
        self.write(lambda cursor: cursor.execute(statement, parameters))

    def create_tables(self) -> None:
        def create(cursor: Any) -> None:
            self.dialect.lock_tables(cursor)
            for statement in self.dialect.tables:
                cursor.execute(statement)

        self.write(create)


@contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    """Connections commit each statement, but for those in here."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


class SqlSpace:
    """The store of one index."""

    def __init__(self, server: SqlServer, lake: str, index_id: int) -> None:
        self._server = server
        self._dialect = server.dialect
        self._own = (lake, index_id)
        self.shown = f"{server.shown} (index {index_id} of lake {lake})"

    def create(self, key_bytes: int) -> None:
        if self.state() is not None:
            return
        self._server.create_tables()
        before, after = self._dialect.insert_once
        made = f"({self._dialect.now})"
        statement = f"{before} INTO needlepoint_key_stores VALUES (%s, %s, %s, %s, %s, {made}) {after}"
        values = (*self._own, FORMAT, key_bytes, secrets.token_hex(8))
        self._server.execute(statement, *values)

    def state(self) -> SpaceState | None:
        rows = self._server.read(
            f"""SELECT s.format, s.key_bytes, s.version,
                 (SELECT count(*) FROM needlepoint_key_runs r WHERE r.lake = s.lake AND r.index_id = s.index_id),
                 p.id, p.blocks, p.fences, p.entries, p.bytes
               FROM needlepoint_key_stores s LEFT JOIN needlepoint_key_parts p
                 ON p.lake = s.lake AND p.index_id = s.index_id AND p.state = {PUBLISHED}
               WHERE s.lake = %s AND s.index_id = %s ORDER BY p.id""",
            *self._own,
        )
        if not rows:
            return None
        format, key_bytes, version, runs = rows[0][:4]
        parts = tuple(Part(*row[4:]) for row in rows if row[4] is not None)
        return SpaceState(format, key_bytes, version, parts, runs)

    def missing(self, runs: Collection[str]) -> set[str]:
        left, names = set(runs), list(runs)
        for start in range(0, len(names), _NAMES_AT_ONCE):
            some = names[start : start + _NAMES_AT_ONCE]
            marks = ", ".join(["%s"] * len(some))
            query = f"SELECT name FROM needlepoint_key_runs WHERE lake = %s AND index_id = %s AND name IN ({marks})"
            left -= {name for (name,) in self._server.read(query, *self._own, *some)}
        return left

    def stage(self, part: int) -> None:
        before, after = self._dialect.insert_once
        values = f"(%s, %s, %s, {STAGED}, 0, 0, 0, 0, ({self._dialect.now}))"
        statement = f"{before} INTO needlepoint_key_parts VALUES {values} {after}"
        self._server.execute(statement, part, *self._own)

    def put(self, part: int, numbers: Sequence[int], blocks: Sequence[bytes]) -> None:
        self._server.write(lambda cursor: self._dialect.put(cursor, part, numbers, blocks))

    def publish(self, runs: Sequence[str], added: Sequence[StagedPart], removed: Sequence[Part]) -> Published:
        try:
            return self._server.write(lambda cursor: self._publish(cursor, runs, added, removed))
        except _Lost:
            return Published.LOST

    def _publish(
        self, cursor: Any, runs: Sequence[str], added: Sequence[StagedPart], removed: Sequence[Part]
    ) -> Published:
        own = "lake = %s AND index_id = %s"
        cursor.execute(f"SELECT version FROM needlepoint_key_stores WHERE {own} FOR UPDATE", self._own)
        if cursor.fetchone() is None:
            return Published.GONE
        states = self._states(cursor, [*(each.part.id for each in added), *(part.id for part in removed)])
        if removed and added and all(states.get(each.part.id) == PUBLISHED for each in added):
            return Published.DONE  # by an earlier try, whose outcome was not known
        if any(states.get(part.id) != PUBLISHED for part in removed):
            return Published.CHANGED
        new = {run for run in runs if self._add_run(cursor, run)}
        for each in added:
            if (each.run is not None and each.run not in new) or states.get(each.part.id) == PUBLISHED:
                continue  # it was published before
            if states.get(each.part.id) != STAGED:
                raise _Lost
            self._add_part(cursor, each.part)
        for part in removed:
            cursor.execute(
                f"UPDATE needlepoint_key_parts SET state = {REMOVED}, made = ({self._dialect.now}) WHERE id = %s",
                (part.id,),
            )
        if new or added or removed:
            values = (secrets.token_hex(8), *self._own)
            cursor.execute(f"UPDATE needlepoint_key_stores SET version = %s WHERE {own}", values)
        return Published.DONE

    def _states(self, cursor: Any, parts: Sequence[int]) -> dict[int, int]:
        if not parts:
            return {}
        marks = ", ".join(["%s"] * len(parts))
        cursor.execute(f"SELECT id, state FROM needlepoint_key_parts WHERE id IN ({marks}) FOR UPDATE", tuple(parts))
        return {int(id): int(state) for id, state in cursor.fetchall()}

    def _add_run(self, cursor: Any, run: str) -> bool:
        before, after = self._dialect.insert_once
        cursor.execute(f"{before} INTO needlepoint_key_runs VALUES (%s, %s, %s) {after}", (*self._own, run))
        return bool(cursor.rowcount == 1)

    def _add_part(self, cursor: Any, part: Part) -> None:
        cursor.execute("SELECT count(*) FROM needlepoint_key_blocks WHERE part = %s", (part.id,))
        if int(cursor.fetchone()[0]) != part.blocks + part.fences:
            raise _Lost
        cursor.execute(
            f"""UPDATE needlepoint_key_parts SET state = {PUBLISHED}, blocks = %s, fences = %s, entries = %s, bytes = %s
               WHERE id = %s""",
            (part.blocks, part.fences, part.entries, part.bytes, part.id),
        )

    def fetch(self, wanted: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], bytes]:
        return self._server.fetch(wanted)

    def discard(self, part: Part) -> None:
        self._delete_part(part.id)

    def tidy(self) -> None:
        query = f"""SELECT id FROM needlepoint_key_parts WHERE lake = %s
               AND (state = {REMOVED} AND made < ({self._dialect.now}) - {REMOVED_AGE}
                 OR state = {STAGED} AND made < ({self._dialect.now}) - {STAGED_AGE})"""
        for (part,) in self._server.read(query, self._own[0]):
            self._delete_part(part)

    def destroy(self) -> None:
        if not self._server.read("SELECT 1 FROM needlepoint_key_parts LIMIT 1") and self.state() is None:
            return
        own = "lake = %s AND index_id = %s"

        def forget(cursor: Any) -> None:
            cursor.execute(f"DELETE FROM needlepoint_key_stores WHERE {own}", self._own)
            cursor.execute(f"DELETE FROM needlepoint_key_runs WHERE {own}", self._own)
            cursor.execute(f"UPDATE needlepoint_key_parts SET state = {REMOVED}, made = 0 WHERE {own}", self._own)

        self._server.write(forget)
        for (part,) in self._server.read(f"SELECT id FROM needlepoint_key_parts WHERE {own}", *self._own):
            self._delete_part(part)

    def _delete_part(self, part: int) -> None:
        """Some blocks at a time, and the row that names them last."""
        bounds = "SELECT min(number), max(number) FROM needlepoint_key_blocks WHERE part = %s"
        for first, last in self._server.read(bounds, part):
            for start in range(first, last + 1, _DELETED_AT_ONCE) if first is not None else ():
                statement = "DELETE FROM needlepoint_key_blocks WHERE part = %s AND number >= %s AND number < %s"
                self._server.execute(statement, part, start, start + _DELETED_AT_ONCE)
        self._server.execute(f"DELETE FROM needlepoint_key_parts WHERE id = %s AND state <> {PUBLISHED}", part)


class _Lost(Exception):
    """Staged blocks are not there; the transaction is rolled back."""
