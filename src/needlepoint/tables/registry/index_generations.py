"""Indexes that go on under a new id: swept, with what still counts; or begun anew, with nothing.

Who holds the old id, and asks or fills it, can neither read from the new nor write to it; so what the store of an id
must hold only grows. The id is given out before anything is kept under it, and never a second time: whatever lies in
its directory is nobody else's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from needlepoint.stores.database import Database
from needlepoint.tables.model import Index

_DECLARED = "table_id, name, column_name, columns, kind, embed, options"


@dataclass(frozen=True, slots=True)
class Packed:
    """The payload of one file as it lies in a pack."""

    file_id: int
    offset: int
    length: int


class Renewals:
    def __init__(self, database: Database, change: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> None:
        self._database = database
        self._change = change

    def new_id(self) -> int:
        """An id for an index that no other has or gets."""
        with self._change() as connection:
            connection.execute("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'indexes'")
            return int(connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'indexes'").fetchone()[0])

    def entries(self, index: Index) -> dict[int, int]:
        """The number of entries that an index has of each file, by its id."""
        query = "SELECT file_id, entries FROM indexed WHERE index_id = ?"
        return dict(self._database.read(query, index.id))

    def renew(
        self,
        index: Index,
        new_id: int,
        files: Collection[int],
        runs: Sequence[str],
        arrive: Callable[[], None],
    ) -> bool:
        """The index goes on as `new_id`, with these runs and the entries of these files, those of them that it still
        covers. `arrive` puts them in place, within the transaction. False when there is no such index any more: it was
        dropped, or goes on under another id already."""
        with self._change() as connection:
            query = "SELECT file_id, entries FROM indexed WHERE index_id = ?"
            covered = [row for row in connection.execute(query, (index.id,)).fetchall() if row[0] in files]
            if not go_on(connection, index.id, new_id):
                return False
            arrive()
            connection.executemany("INSERT INTO runs VALUES (?, ?)", [(new_id, run) for run in runs])
            connection.executemany(
                "INSERT INTO indexed VALUES (?, ?, ?)", [(file_id, new_id, entries) for file_id, entries in covered]
            )
        return True

    def known_ids(self) -> frozenset[int]:
        """Of all indexes, when no change is on its way: what arrives in one is either known or not there."""
        with self._database.write() as connection:
            return frozenset(id for (id,) in connection.execute("SELECT id FROM indexes").fetchall())

    def packed(self) -> dict[tuple[int, str], list[Packed]]:
        """What lies in each pack and is still of use, by index and name of the pack."""
        found: dict[tuple[int, str], list[Packed]] = {}
        query = "SELECT index_id, pack, file_id, offset, length FROM payloads WHERE pack <> '' ORDER BY offset"
        for index_id, pack, *place in self._database.read(query):
            found.setdefault((index_id, pack), []).append(Packed(*place))
        return found

    def repack(self, index_id: int, old: str, new: str, moved: Sequence[tuple[Packed, int]]) -> None:
        """Payloads lie in another pack now, each at another offset; those that went away meanwhile do not."""
        with self._change() as connection:
            connection.executemany(
                """UPDATE payloads SET pack = ?, offset = ?
                   WHERE index_id = ? AND file_id = ? AND pack = ? AND offset = ?""",
                [(new, offset, index_id, each.file_id, old, each.offset) for each, offset in moved],
            )
            # Who holds the places reads them again when a file changed.
            connection.executemany("UPDATE files SET rows = rows WHERE id = ?", [(each.file_id,) for each, _ in moved])


def go_on(connection: sqlite3.Connection, index_id: int, new_id: int | None = None) -> bool:
    """What is declared of an index goes on under a new id, by default the next, and nothing else of it. False when
    there is no such index."""
    declared = connection.execute(f"SELECT {_DECLARED} FROM indexes WHERE id = ?", (index_id,)).fetchone()
    if declared is None:
        return False
    connection.execute("DELETE FROM indexes WHERE id = ?", (index_id,))
    marks = ", ".join("?" * (1 + len(declared)))
    connection.execute(f"INSERT INTO indexes (id, {_DECLARED}) VALUES ({marks})", (new_id, *declared))
    return True
