"""The registry's views: names and queries."""

from __future__ import annotations

from needlepoint.errors import UnknownName
from needlepoint.tables.model import check_name
from needlepoint.tables.registry.databases.database import RegistryDatabase
from needlepoint.tables.registry.tables import refuse_taken


class Views:
    def __init__(self, database: RegistryDatabase) -> None:
        self._database = database

    def all(self) -> list[tuple[str, str]]:
        """Names and queries, in the order of creation; a view can name a later one."""
        return [(name, query) for name, query in self._database.read("SELECT name, query FROM views ORDER BY id")]

    def create(self, name: str, query: str) -> None:
        check_name("a view", name)
        with self._database.change() as connection:
            refuse_taken(connection, name)
            connection.execute("INSERT INTO views (name, query) VALUES (?, ?)", (name, query))

    def drop(self, name: str) -> None:
        known = dict(self.all())
        if name not in known:
            raise UnknownName("view", name, known)
        with self._database.change() as connection:
            connection.execute("DELETE FROM views WHERE name = ?", (name,))
