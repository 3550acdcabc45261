"""The registry's batches: files on their way into a table, and out of it.

A batch adds files, and can remove others in the same commit: that is how files are rewritten. No two batches remove the
same file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace

from needlepoint.errors import StoreError, TableChanged
from needlepoint.objects import Identity
from needlepoint.tables.model import ALL, Batch, File, Move, Removal, Table
from needlepoint.tables.registry.databases.database import RegistryDatabase
from needlepoint.tables.registry.databases.transaction import RegistryTransaction

IDENTITY = "size, mtime_ns, etag, ctime_ns, inode"  # the columns of an Identity, in its order
_COLUMNS = "table_id, batch, state, staging, moves, removals, keep_until"
_HINT = "Nothing was changed. Retry."


class Batches:
    def __init__(self, database: RegistryDatabase, refuse_shared: Callable[[int], None]) -> None:
        self._database = database
        self._refuse_shared = refuse_shared

    def get(self, table: Table, batch: str) -> Batch | None:
        found = self._database.read(f"SELECT {_COLUMNS} FROM batches WHERE table_id = ? AND batch = ?", table.id, batch)
        return _batch(found[0]) if found else None

    def unfinished(self, table: Table) -> list[Batch]:
        query = f"SELECT {_COLUMNS} FROM batches WHERE table_id = ? AND state <> 'announced'"
        return [_batch(row) for row in self._database.read(query, table.id)]

    def begin(self, batch: Batch) -> bool:
        """Record that these moves and removals will happen. False when the batch id is taken: then nothing changed.

        TableChanged when a file to remove is not in the table any more, or another batch removes it; UsageError when it
        may belong to another table too.
        """
        with self._database.change() as connection:
            cursor = connection.execute(
                "INSERT INTO batches VALUES (?, ?, 'publishing', ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    batch.table_id,
                    batch.batch,
                    batch.staging,
                    _moves_text(batch.moves),
                    _removals_text(batch.removals),
                    batch.keep_until,
                ),
            )
            if cursor.rowcount == 1 and batch.removals:
                self._refuse_shared(batch.table_id)
                self._refuse_claimed(connection, batch)
            return cursor.rowcount == 1

    def _refuse_claimed(self, connection: RegistryTransaction, batch: Batch) -> None:
        _current(connection, batch)
        query = f"SELECT {_COLUMNS} FROM batches WHERE table_id = ? AND state = 'publishing' AND batch <> ?"
        others = [_batch(row) for row in connection.execute(query, (batch.table_id, batch.batch)).fetchall()]
        claimed = {each.file_id: other.batch for other in others for each in other.removals}
        for each in batch.removals:
            if each.file_id in claimed:
                raise TableChanged(f"{each.path} is being replaced by batch '{claimed[each.file_id]}'.", hint=_HINT)

    def commit(self, batch: Batch, files: Sequence[File]) -> bool:
        """Put all files of the batch into the table, and remove those that it replaces. False when that was done
        before: then nothing changed.

        TableChanged when a file to remove is not in the table any more: then the batch can only be abandoned.
        """
        with self._database.change() as connection:
            cursor = connection.execute(
                "UPDATE batches SET state = 'published' "
                "WHERE table_id = ? AND batch = ? AND staging = ? AND state = 'publishing'",
                (batch.table_id, batch.batch, batch.staging),
            )
            if cursor.rowcount == 1:
                insert_files(connection, batch.table_id, files)
                connection.executemany(
                    "INSERT INTO own SELECT id, ? FROM files WHERE table_id = ? AND path = ? ON CONFLICT DO NOTHING",
                    [(ALL, batch.table_id, move.target) for move in batch.moves if move.own],
                )
                removals = _current(connection, batch)
                connection.executemany("DELETE FROM files WHERE id = ?", [(each.file_id,) for each in removals])
                connection.execute(
                    "UPDATE batches SET removals = ? WHERE table_id = ? AND batch = ?",
                    (_removals_text(removals), batch.table_id, batch.batch),
                )
            return cursor.rowcount == 1

    def announced(self, batch: Batch) -> Batch:
        """Record that its event is on the queue. Returns the batch in its new state."""
        now = replace(batch, state="removing") if batch.removals else replace(batch, state="announced", moves=())
        with self._database.change() as connection:
            connection.execute(
                "UPDATE batches SET state = ?, moves = ? WHERE table_id = ? AND batch = ?",
                (now.state, "[]", batch.table_id, batch.batch),
            )
        return now

    def removed(self, batch: Batch) -> None:
        """Record that the files it removed from the table are deleted."""
        with self._database.change() as connection:
            connection.execute(
                "UPDATE batches SET state = 'announced', removals = '[]' WHERE table_id = ? AND batch = ?",
                (batch.table_id, batch.batch),
            )

    def abandon(self, batch: Batch) -> bool:
        """Record that it will not happen. False when it was committed or forgotten: then nothing changed."""
        with self._database.change() as connection:
            cursor = connection.execute(
                "UPDATE batches SET state = 'abandoned' WHERE table_id = ? AND batch = ? AND staging = ? "
                "AND state IN ('publishing', 'abandoned')",
                (batch.table_id, batch.batch, batch.staging),
            )
            return cursor.rowcount == 1

    def forget(self, batch: Batch) -> None:
        """Delete an abandoned batch."""
        with self._database.change() as connection:
            connection.execute(
                "DELETE FROM batches WHERE table_id = ? AND batch = ? AND staging = ? AND state = 'abandoned'",
                (batch.table_id, batch.batch, batch.staging),
            )


def insert_files(connection: RegistryTransaction, table_id: int, files: Sequence[File]) -> None:
    # A path that sync found first, mid-publish, is the same file: the batch's entry replaces it. Not by OR REPLACE,
    # which fires no trigger: copies of the registry would keep the old entry.
    connection.executemany("DELETE FROM files WHERE table_id = ? AND path = ?", [(table_id, f.path) for f in files])
    connection.executemany(
        f"INSERT INTO files (table_id, path, rows, {IDENTITY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(table_id, file.path, file.rows, *astuple(file.identity)) for file in files],
    )
    (last,) = connection.execute("SELECT max(id) FROM files").fetchone() or (None,)
    if (last or 0) >= 1 << 32:
        raise StoreError("the registry has used all 2^32 file ids.", hint="Rebuild it: remove .needlepoint.")


def taken_out(connection: RegistryTransaction, table_id: int) -> dict[str, Identity]:
    """Files that batches removed from a table and that may not be deleted yet."""
    query = f"SELECT {_COLUMNS} FROM batches WHERE table_id = ? AND state IN ('published', 'removing')"
    found = [_batch(row) for row in connection.execute(query, (table_id,)).fetchall()]
    return {each.path: each.identity for batch in found for each in batch.removals}


def _current(connection: RegistryTransaction, batch: Batch) -> tuple[Removal, ...]:
    """The removals with the present identities of their files: embedding an index changes the identity, not the rows
    and the id. TableChanged when a file is not in the table any more."""
    found = []
    for each in batch.removals:
        query = f"SELECT {IDENTITY} FROM files WHERE id = ? AND table_id = ?"
        row = connection.execute(query, (each.file_id, batch.table_id)).fetchone()
        if row is None:
            raise TableChanged(f"{each.path} changed or disappeared while it was being replaced.", hint=_HINT)
        found.append(replace(each, identity=Identity(*row)))
    return tuple(found)


def _moves_text(moves: Sequence[Move]) -> str:
    return json.dumps([[move.source, move.target, move.rows, move.own] for move in moves])


def _removals_text(removals: Sequence[Removal]) -> str:
    # Without what a chmod changes: it must not bring a removed file back.
    return json.dumps([[r.file_id, r.path, r.identity.size, r.identity.mtime_ns, r.identity.etag] for r in removals])


def _batch(row: tuple[int, str, str, str, str, str, float]) -> Batch:
    table_id, batch, state, staging, moves, removals, keep_until = row
    return Batch(
        table_id,
        batch,
        state,
        staging,
        tuple(Move(*move) for move in json.loads(moves)),
        tuple(Removal(id, path, Identity(*identity)) for id, path, *identity in json.loads(removals)),
        keep_until,
    )
