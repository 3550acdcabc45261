"""Replace an index with a new generation, under a new id: swept, with its live entries; or rebuilt, with none.

A process that holds the old id can neither read from the new generation nor write to it, so what the store of an id
must hold only grows. An id is reserved before anything is stored under it, and is never reused: whatever is in its
directory belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from needlepoint.tables.model import Index
from needlepoint.tables.registry.databases.database import RegistryDatabase
from needlepoint.tables.registry.databases.dialects import Dialect
from needlepoint.tables.registry.databases.transaction import RegistryTransaction

_DECLARED = "table_id, name, column_name, columns, kind, embed, options"


class IndexGenerations:
    def __init__(self, database: RegistryDatabase) -> None:
        self._database = database

    def reserve(self) -> int:
        """An id for an index that no other index has or gets."""
        with self._database.change() as connection:
            return _next_id(connection, self._database.dialect)

    def replace(
        self,
        index: Index,
        new_id: int,
        files: Collection[int],
        runs: Sequence[str],
        install: Callable[[], None],
        options: str | None = None,
    ) -> bool:
        """Continue the index as `new_id`, with these runs and the entries of those of these files that it still covers.
        `install` puts the entries in place, inside the transaction. `options` replace those it has. False when the
        index was dropped or replaced."""
        with self._database.change() as connection:
            query = "SELECT file_id, entries FROM indexed WHERE index_id = ?"
            covered = [row for row in connection.execute(query, (index.id,)).fetchall() if row[0] in files]
            if not begin_generation(connection, self._database.dialect, index.id, new_id, options):
                return False
            install()
            connection.executemany("INSERT INTO runs VALUES (?, ?)", [(new_id, run) for run in runs])
            connection.executemany(
                "INSERT INTO indexed VALUES (?, ?, ?)", [(file_id, new_id, entries) for file_id, entries in covered]
            )
        return True

    def current_ids(self) -> frozenset[int]:
        """The ids of all indexes while no change is under way: what a change installs is either known or not there."""
        with self._database.between_changes() as connection:
            return frozenset(id for (id,) in connection.execute("SELECT id FROM indexes").fetchall())


def begin_generation(
    connection: RegistryTransaction,
    dialect: Dialect,
    index_id: int,
    new_id: int | None = None,
    options: str | None = None,
) -> bool:
    """Declare an index again under a new id, by default the next, without its entries. False when there is no such
    index."""
    declared = connection.execute(f"SELECT {_DECLARED} FROM indexes WHERE id = ?", (index_id,)).fetchone()
    if declared is None:
        return False
    connection.execute("DELETE FROM indexes WHERE id = ?", (index_id,))
    marks = ", ".join("?" * (1 + len(declared)))
    if options is not None:
        declared = (*declared[:-1], options)
    id = _next_id(connection, dialect) if new_id is None else new_id
    connection.execute(f"INSERT INTO indexes (id, {_DECLARED}) VALUES ({marks})", (id, *declared))
    return True


def _next_id(connection: RegistryTransaction, dialect: Dialect) -> int:
    for statement in dialect.next_index_id:
        found = connection.execute(statement)
    return int(found.fetchall()[0][0])
