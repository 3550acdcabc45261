"""The registry's files: their identities and bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from needlepoint.objects import Identity
from needlepoint.predicate import Bounds, Ordinal
from needlepoint.tables.model import File, Table
from needlepoint.tables.registry.batches import IDENTITY, insert_files, taken_out
from needlepoint.tables.registry.databases import database as registry_database
from needlepoint.tables.registry.databases.database import RegistryDatabase
from needlepoint.tables.registry.databases.dialects import ordinal_of_text
from needlepoint.tables.registry.many_rows import without_collections
from needlepoint.tables.schemas import PER_SECOND, scale


class Files:
    def __init__(self, database: RegistryDatabase) -> None:
        self._database = database

    def changed(self, table: Table, since: int) -> list[int] | None:
        """The ids of files that were added, changed or removed after a sequence number; None when too much happened
        since. A file whose path belongs to another file now may be missing."""
        if since < self._database.sequence() - registry_database.CHANGES_KEPT:
            return None
        query = "SELECT DISTINCT file_id FROM changes WHERE sequence > ? AND table_id = ?"
        return [id for (id,) in self._database.read(query, since, table.id)]

    def of(self, table: Table, ids: Sequence[int] | None = None) -> list[File]:
        """All files of a table in the order of their paths, or those with these ids."""
        dialect = self._database.dialect
        only = "" if ids is None else f"AND id {dialect.among}"
        query = f"""
            SELECT path, {IDENTITY}, id, rows, row_groups, pages, blooms, problem,
                   EXISTS (SELECT 1 FROM cards WHERE file_id = files.id),
                   (SELECT {dialect.index_ids} FROM indexed WHERE file_id = files.id)
            FROM files WHERE table_id = ? {only} ORDER BY path"""
        with without_collections():
            return self._files(self._database.read(query, table.id, *(() if ids is None else (dialect.ids(ids),))))

    @staticmethod
    def _files(found: list[tuple[Any, ...]]) -> list[File]:
        return [
            File(
                path=path,
                identity=Identity(size, mtime_ns, etag, ctime_ns, inode),
                id=id,
                rows=rows,
                row_groups=row_groups,
                pages=pages,
                has_card=bool(has_card),
                indexed=frozenset(int(index) for index in indexed.split(",")) if indexed else frozenset(),
                blooms=frozenset(json.loads(blooms)) if blooms else frozenset(),
                problem=problem,
            )
            for (
                path, size, mtime_ns, etag, ctime_ns, inode, id, rows, row_groups, pages, blooms, problem, has_card,
                indexed,
            ) in found
        ]  # fmt: skip

    def samples(self, ids: Sequence[int]) -> dict[int, str]:
        """Checksums of the contents of files, by id, where the registry has one (objects/base.py)."""
        dialect = self._database.dialect
        query = f"SELECT id, sample FROM files WHERE sample <> '' AND id {dialect.among}"
        return dict(self._database.read(query, dialect.ids(ids)))

    def recognise(self, files: Mapping[int, Identity], samples: Mapping[int, str] = MappingProxyType({})) -> None:
        """Record new identities of files, by id, whose content is unchanged, unless another change of them was recorded
        meanwhile; and samples of some."""
        with self._database.change() as connection:
            connection.executemany(
                """UPDATE files SET ctime_ns = ?, inode = ?, sample = CASE ? WHEN '' THEN sample ELSE ? END
                   WHERE id = ? AND size = ? AND mtime_ns = ? AND etag = ''""",
                [
                    (now.ctime_ns, now.inode, samples.get(id, ""), samples.get(id, ""), id, now.size, now.mtime_ns)
                    for id, now in files.items()
                ],
            )

    def paths(self, table: Table) -> list[str]:
        """The paths of all files of a table."""
        return [path for (path,) in self._database.read("SELECT path FROM files WHERE table_id = ?", table.id)]

    def bounds(self, table: Table, column: str, ids: Sequence[int] | None = None) -> list[tuple[int, Bounds]]:
        """The bounds of a column in each file that has any, or in those with these ids, by file id, in the unit of the
        given table."""
        query = "SELECT file_id, low, high, nulls, rows, nan, unit FROM bounds WHERE table_id = ? AND column_name = ?"
        dialect = self._database.dialect
        query += "" if ids is None else f" AND file_id {dialect.among}"
        asked = (table.id, column) if ids is None else (table.id, column, dialect.ids(ids))
        type = table.schema.field(column).type
        factors = {unit: scale(unit, type) for unit in (None, *PER_SECOND)}
        with without_collections():
            return [
                (id, Bounds(_ordinal_of(low, factor), _ordinal_of(high, factor), nulls, rows, bool(nan)))
                for id, low, high, nulls, rows, nan, unit in self._database.read(query, *asked)
                if (factor := factors[unit]) is not None
            ]

    def replace(self, table: Table, added: Sequence[File], removed: Sequence[int]) -> None:
        """In one change, remove files by id and add others under new ids, except those that a batch has removed since
        they were listed."""
        if not added and not removed:
            return
        with self._database.change() as connection:
            connection.executemany("DELETE FROM files WHERE id = ?", [(id,) for id in removed])
            out = taken_out(connection, table.id)
            insert_files(connection, table.id, [file for file in added if out.get(file.path) != file.identity])

    def note_problems(self, problems: Mapping[int, str]) -> None:
        """Record why files, by id, could not be indexed: queries scan them, and explain says why."""
        if problems:
            with self._database.change() as connection:
                connection.executemany(
                    "UPDATE files SET problem = ? WHERE id = ?", [(why, id) for id, why in problems.items()]
                )


def _ordinal_of(value: Ordinal | str | None, factor: int) -> Ordinal | None:
    plain = ordinal_of_text(value) if isinstance(value, str) else value
    return plain * factor if isinstance(plain, int) else plain
