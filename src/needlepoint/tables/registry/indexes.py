"""The registry's indexes: what is declared, and which files and runs each has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from needlepoint.errors import NameTaken, UnknownName
from needlepoint.tables.model import Index, Table, check_name
from needlepoint.tables.registry.databases.database import RegistryDatabase

_INDEX = "SELECT id, table_id, name, column_name, columns, kind, embed, options FROM indexes"


class Indexes:
    def __init__(self, database: RegistryDatabase) -> None:
        self._database = database

    def all(self) -> list[Index]:
        return [_index(row) for row in self._database.read(f"{_INDEX} ORDER BY name")]

    def of(self, table: Table) -> list[Index]:
        return [_index(row) for row in self._database.read(f"{_INDEX} WHERE table_id = ? ORDER BY name", table.id)]

    def select(self, table: Table, name: str | None = None) -> list[Index]:
        """The indexes of a table, or the one of this name; UnknownName if it has none of that name."""
        known = self.of(table)
        if name is not None and name not in [each.name for each in known]:
            raise UnknownName("index", name, [each.name for each in known])
        return [each for each in known if name in (None, each.name)]

    def get(self, name: str) -> Index:
        known = {index.name: index for index in self.all()}
        if name not in known:
            raise UnknownName("index", name, known)
        return known[name]

    def create(
        self,
        table: Table,
        name: str,
        columns: Sequence[str],
        kind: str,
        *,
        embed: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Index:
        check_name("an index", name)
        several = json.dumps(list(columns)) if len(columns) > 1 else None
        shown = several or columns[0]
        with self._database.change() as connection:
            clash = "SELECT name FROM indexes WHERE name = ? OR (table_id = ? AND column_name = ? AND kind = ?)"
            for (taken,) in connection.execute(clash, (name, table.id, shown, kind)).fetchall():
                raise NameTaken(
                    f"there is an index '{taken}' already.",
                    hint=f"DROP INDEX {taken} removes it; sync fills it.",
                )
            connection.execute(
                """INSERT INTO indexes (table_id, name, column_name, columns, kind, embed, options)
                   VALUES (?, ?, ?, ?, ?, ?, ?)""",
                (table.id, name, shown, several, kind, embed, json.dumps(dict(options or {}), sort_keys=True)),
            )
        return self.get(name)

    def drop(self, name: str) -> Index:
        index = self.get(name)
        with self._database.change() as connection:
            connection.execute("DELETE FROM indexes WHERE id = ?", (index.id,))
        return index

    def coverage(self, index: Index) -> tuple[int, int]:
        """How many files and entries an index covers."""
        query = "SELECT count(*), coalesce(sum(entries), 0) FROM indexed WHERE index_id = ?"
        files, entries = self._database.read(query, index.id)[0]
        return int(files), int(entries)

    def entries(self, index: Index) -> dict[int, int]:
        """How many entries an index has of each file, by file id."""
        return dict(self._database.read("SELECT file_id, entries FROM indexed WHERE index_id = ?", index.id))

    def runs(self, index: Index) -> list[str]:
        """The names of all runs whose entries the index must hold; UnknownName when it does not exist any more, which
        is not the same as an index without entries."""
        query = "SELECT runs.name FROM indexes LEFT JOIN runs ON index_id = id WHERE id = ?"
        found = self._database.read(query, index.id)
        if not found:
            raise UnknownName("index", index.name, (), hint="It was just dropped or rebuilt.")
        return [name for (name,) in found if name is not None]


def _index(row: tuple[Any, ...]) -> Index:
    id, table_id, name, column, several, kind, embed, options = row
    columns = (column,) if several is None else tuple(json.loads(several))
    return Index(id, table_id, name, columns, kind, bool(embed), options)
