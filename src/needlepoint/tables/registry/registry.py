"""The registry: tables, their files, indexes and batches, in one SQLite database of the lake.

SQLite and not RocksDB, because several processes write here (Spark drivers publish, indexers commit, people
create tables) and RocksDB admits one. Every change is one transaction and raises `sequence`, so a reader knows
with one cheap question whether what it has in memory still holds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from needlepoint.errors import NameTaken, TableChanged, UnknownName, UsageError
from needlepoint.objects import Identity, is_url
from needlepoint.predicate import Bounds, Ordinal
from needlepoint.stores.database import Database
from needlepoint.tables.listing import share_files
from needlepoint.tables.locks import Turns
from needlepoint.tables.model import File, Index, Place, Table, check_name
from needlepoint.tables.registry.batches import IDENTITY, Batches, insert_files, taken_out
from needlepoint.tables.registry.index_generations import Renewals, go_on
from needlepoint.tables.registry.schema import FORMAT, STATEMENTS, UPGRADES
from needlepoint.tables.schemas import PER_SECOND, differing, refined, respelled, scale, too_far, unify

# Of so many changes the registry remembers which files they touched.
CHANGES_KEPT = 1000

_TABLE = "id, name, location, schema, partitions, mixed, format"


@dataclass(frozen=True, slots=True)
class FileArtifact:
    """What indexing found out about one file; committed as a whole. Bounds and zones are in the file's own units, so
    they stay right whatever becomes of the table. `places` are those of payloads, by index. `was` is what the file was
    when it was found, and `identity` what it is: another one when something was embedded in it. `own` are the checksums
    of payloads that are in it and that were made of its rows here. `sample` tells what it holds (objects/base.py)."""

    file_id: int
    was: Identity
    identity: Identity
    rows: int
    row_groups: int
    pages: int
    card: bytes
    bounds: Mapping[str, Bounds]
    zones: Mapping[str, bytes] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    blooms: tuple[str, ...] = ()
    entries: Mapping[int, int] = field(default_factory=dict)
    places: Mapping[int, Place] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    sample: str = ""

    def without_positions(self) -> FileArtifact:
        """What is right of every version of the file, since all have the same rows: nothing that lies in it."""
        within = {index_id for index_id, place in self.places.items() if not place.pack}
        return replace(
            self,
            entries={index_id: count for index_id, count in self.entries.items() if index_id not in within},
            places={index_id: place for index_id, place in self.places.items() if index_id not in within},
        )


class Registry:
    def __init__(self, directory: Path, root: Path | str) -> None:
        self._root = root
        self._database = Database(directory / "registry.db", STATEMENTS, FORMAT, UPGRADES)
        self.batches = Batches(self._database, self._change, self.refuse_shared)
        self.renewals = Renewals(self._database, self._change)
        self.turns = Turns(directory / "turns")

    def close(self) -> None:
        self.turns.close()
        self._database.close()

    def settle(self, *, whole: bool = False) -> None:
        """What was deleted is in none of its files any more; with `whole`, however long ago it was."""
        self._database.checkpoint(whole=whole)

    def sequence(self) -> int:
        """Rises with every change by any process."""
        return int(self._database.read("SELECT value FROM sequence")[0][0])

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._database.write() as connection:
            yield connection
            connection.execute("UPDATE sequence SET value = value + 1")
            connection.execute(
                "DELETE FROM changes WHERE sequence <= (SELECT value - ? FROM sequence)", (CHANGES_KEPT,)
            )

    # Tables and views

    def tables(self) -> list[Table]:
        rows = self._database.read(f"SELECT {_TABLE} FROM tables ORDER BY name")
        return [self._table(row) for row in rows]

    def table(self, name: str) -> Table:
        found = self._database.read(f"SELECT {_TABLE} FROM tables WHERE name = ?", name)
        if not found:
            raise UnknownName("table", name, self.table_names())
        return self._table(found[0])

    def table_names(self) -> list[str]:
        return [name for (name,) in self._database.read("SELECT name FROM tables")]

    def _table(self, row: tuple[int, str, str, bytes, str, str, str]) -> Table:
        id, name, location, schema, partitions, mixed, format = row
        columns = pa.ipc.read_schema(pa.py_buffer(schema))
        return Table(
            id,
            name,
            self._location(location),
            columns,
            tuple(json.loads(partitions)),
            frozenset(json.loads(mixed)),
            format,
        )

    def _stored_location(self, location: str) -> str:
        """Relative inside the lake, so that a lake can be moved as a whole."""
        if isinstance(self._root, str):
            return location.removeprefix(f"{self._root}/")
        if is_url(location):
            return location
        path = Path(location)
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def _location(self, stored: str) -> str:
        """What is absolute stays as it is."""
        if is_url(stored):
            return stored
        if isinstance(self._root, str):
            return stored if Path(stored).is_absolute() else f"{self._root}/{stored}"
        return str(self._root / stored)

    def create_table(
        self,
        name: str,
        location: str,
        schema: pa.Schema,
        partitions: Sequence[str],
        mixed: frozenset[str] = frozenset(),
        format: str = "parquet",
    ) -> Table:
        check_name("a table", name)
        with self._change() as connection:
            self._refuse_taken(connection, name)
            self._refuse_replaced(location)
            connection.execute(
                "INSERT INTO tables (name, location, schema, partitions, mixed, format) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    name,
                    self._stored_location(location),
                    _schema_bytes(schema),
                    json.dumps(list(partitions)),
                    json.dumps(sorted(mixed)),
                    format,
                ),
            )
        return self.table(name)

    def _refuse_taken(self, connection: sqlite3.Connection, name: str) -> None:
        query = "SELECT 'table' FROM tables WHERE name = ? UNION ALL SELECT 'view' FROM views WHERE name = ?"
        for (what,) in connection.execute(query, (name, name)).fetchall():
            raise NameTaken(
                f"there is a {what} '{name}' already.",
                hint="Choose another name, or drop it: `needle drop-table`, or DROP VIEW.",
            )

    def refuse_shared(self, table_id: int) -> None:
        """UsageError when files of a table are another's too. What batches take out of a table, and bring in its place,
        concerns that table alone: another would see the old files, the new ones, both or neither."""
        tables = self.tables()
        table = next(each for each in tables if each.id == table_id)
        for other in tables:
            if other is not table and share_files(other.location, table.location):
                raise UsageError(
                    f"files of table '{table.name}' are files of table '{other.name}' too, which lies in "
                    f"{other.location}: they can be read and added to, and neither replaced nor deleted.",
                    hint=f"Have one table of them: drop table '{other.name}', whose files stay, and do it again.",
                )

    def _refuse_replaced(self, location: str) -> None:
        """The other way round: a table to be, in whose place another has files that it took out, or is about to."""
        for other in self.tables():
            if share_files(other.location, location) and any(each.removals for each in self.batches.unfinished(other)):
                raise UsageError(
                    f"table '{other.name}' has files in {other.location} that were replaced, or are being replaced.",
                    hint="`needle sweep --now` deletes them; then create the table.",
                )

    def widen_schema(self, table: Table, schema: pa.Schema, mixed: frozenset[str] = frozenset()) -> Table:
        """The table has these columns too, and types at least as wide; whatever others add meanwhile stays.

        A finer unit is refused where a file is known to have values that it has no room for. Bounds stay as they are,
        since they have the files' units. Keys have the table's: an index of the column begins anew, under a new id, so
        that who knows the coarser unit never asks it, and who builds entries in it commits them to nothing.
        """
        with self._change() as connection:
            query = "SELECT schema, mixed FROM tables WHERE id = ?"
            stored, known = connection.execute(query, (table.id,)).fetchone()
            before, new = (_data_columns(each, table) for each in (pa.ipc.read_schema(pa.py_buffer(stored)), schema))
            data = unify(before, "the table", new, "the new files")
            for column in sorted(refined(before, data)):
                _refuse_too_far(connection, table, data.field(column))
                _begin_anew(connection, table, column)
            merged = pa.schema([*data, *(schema.field(name) for name in table.partitions)])
            all_mixed = mixed.union(json.loads(known), differing(before, data))
            connection.execute(
                "UPDATE tables SET schema = ?, mixed = ? WHERE id = ?",
                (_schema_bytes(merged), json.dumps(sorted(all_mixed)), table.id),
            )
        return self.table(table.name)

    def follow_schema(
        self, table: Table, schema: pa.Schema, partitions: Sequence[str], mixed: frozenset[str] = frozenset()
    ) -> Table:
        """The table has these columns and no others: its log says so. An index of a column that has another type now,
        or is no more, or was not there, begins anew, as where a unit becomes finer."""
        with self._change() as connection:
            query = "SELECT schema FROM tables WHERE id = ?"
            before = pa.ipc.read_schema(pa.py_buffer(connection.execute(query, (table.id,)).fetchone()[0]))
            for column in sorted(respelled(before, schema)):
                _refuse_too_far(connection, table, schema.field(column))
                _begin_anew(connection, table, column)
            for column in set(before.names).symmetric_difference(schema.names):
                _begin_anew(connection, table, column)
            connection.execute(
                "UPDATE tables SET schema = ?, partitions = ?, mixed = ? WHERE id = ?",
                (_schema_bytes(schema), json.dumps(list(partitions)), json.dumps(sorted(mixed)), table.id),
            )
        return self.table(table.name)

    def drop_table(self, name: str) -> Table:
        """TableChanged while a batch is not finished: nobody would know any more which files that lie there are of the
        table."""
        table = self.table(name)
        with self._change() as connection:
            for batch in self.batches.unfinished(table):
                raise TableChanged(f"batch '{batch.batch}' of table '{name}' is not finished.", hint="Drop it again.")
            connection.execute("DELETE FROM tables WHERE id = ?", (table.id,))
        return table

    def views(self) -> list[tuple[str, str]]:
        """Names and queries, in the order they were made, which says nothing of who names whom."""
        return [(name, query) for name, query in self._database.read("SELECT name, query FROM views ORDER BY id")]

    def create_view(self, name: str, query: str) -> None:
        check_name("a view", name)
        with self._change() as connection:
            self._refuse_taken(connection, name)
            connection.execute("INSERT INTO views (name, query) VALUES (?, ?)", (name, query))

    def drop_view(self, name: str) -> None:
        if name not in dict(self.views()):
            raise UnknownName("view", name, dict(self.views()))
        with self._change() as connection:
            connection.execute("DELETE FROM views WHERE name = ?", (name,))

    # Indexes

    def indexes(self, table: Table | None = None) -> list[Index]:
        columns = "SELECT id, table_id, name, column_name, columns, kind, embed, options FROM indexes"
        if table is None:
            return [_index(row) for row in self._database.read(f"{columns} ORDER BY name")]
        return [_index(row) for row in self._database.read(f"{columns} WHERE table_id = ? ORDER BY name", table.id)]

    def index(self, name: str) -> Index:
        known = {index.name: index for index in self.indexes()}
        if name not in known:
            raise UnknownName("index", name, known)
        return known[name]

    def create_index(
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
        with self._change() as connection:
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
        return self.index(name)

    def drop_index(self, name: str) -> Index:
        index = self.index(name)
        with self._change() as connection:
            connection.execute("DELETE FROM indexes WHERE id = ?", (index.id,))
        return index

    def entries(self, index: Index) -> tuple[int, int]:
        """Files and entries that an index covers."""
        query = "SELECT count(*), coalesce(sum(entries), 0) FROM indexed WHERE index_id = ?"
        files, entries = self._database.read(query, index.id)[0]
        return int(files), int(entries)

    # Files

    def changed(self, table: Table, since: int) -> list[int] | None:
        """The ids of files that were added, changed or removed after a sequence number; None when too much happened
        since. One whose path another file has now may be missing."""
        if since < self.sequence() - CHANGES_KEPT:
            return None
        query = "SELECT DISTINCT file_id FROM changes WHERE sequence > ? AND table_id = ?"
        return [id for (id,) in self._database.read(query, since, table.id)]

    def files(self, table: Table, ids: Sequence[int] | None = None) -> list[File]:
        """All files of a table by path, or those of these ids that it has."""
        only = "" if ids is None else "AND id IN (SELECT value FROM json_each(?))"
        query = f"""
            SELECT path, {IDENTITY}, id, rows, row_groups, pages, blooms, problem,
                   EXISTS (SELECT 1 FROM cards WHERE file_id = files.id),
                   (SELECT group_concat(index_id) FROM indexed WHERE file_id = files.id)
            FROM files WHERE table_id = ? {only} ORDER BY path"""
        found = self._database.read(query, table.id, *(() if ids is None else (json.dumps(list(ids)),)))
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
        """Of those files, by id, that have one."""
        query = "SELECT id, sample FROM files WHERE sample <> '' AND id IN (SELECT value FROM json_each(?))"
        return dict(self._database.read(query, json.dumps(list(ids))))

    def recognise(self, files: Mapping[int, Identity], samples: Mapping[int, str] = MappingProxyType({})) -> None:
        """Files, by id, have these identities now, and hold what they held; so far as nothing else was noted of them
        meanwhile. Some have a sample now."""
        with self._change() as connection:
            connection.executemany(
                """UPDATE files SET ctime_ns = ?, inode = ?, sample = CASE ? WHEN '' THEN sample ELSE ? END
                   WHERE id = ? AND size = ? AND mtime_ns = ? AND etag = ''""",
                [
                    (now.ctime_ns, now.inode, samples.get(id, ""), samples.get(id, ""), id, now.size, now.mtime_ns)
                    for id, now in files.items()
                ],
            )

    def paths(self, table: Table) -> list[str]:
        """Of all files of a table."""
        return [path for (path,) in self._database.read("SELECT path FROM files WHERE table_id = ?", table.id)]

    def card(self, file_id: int) -> bytes | None:
        found = self._database.read("SELECT card FROM cards WHERE file_id = ?", file_id)
        return found[0][0] if found else None

    def bounds(self, table: Table, column: str, ids: Sequence[int] | None = None) -> list[tuple[int, Bounds]]:
        """The bounds of a column in each file, or each of these, that has any, by file id, in the unit of the table as
        it is given."""
        query = "SELECT file_id, low, high, nulls, rows, nan, unit FROM bounds WHERE table_id = ? AND column_name = ?"
        query += "" if ids is None else " AND file_id IN (SELECT value FROM json_each(?))"
        asked = (table.id, column) if ids is None else (table.id, column, json.dumps(list(ids)))
        type = table.schema.field(column).type
        factors = {unit: scale(unit, type) for unit in (None, *PER_SECOND)}
        return [
            (id, Bounds(_ordinal_of(low, factor), _ordinal_of(high, factor), nulls, rows, bool(nan)))
            for id, low, high, nulls, rows, nan, unit in self._database.read(query, *asked)
            if (factor := factors[unit]) is not None
        ]

    def zones(self, file_ids: Sequence[int], column: str) -> dict[int, tuple[bytes, str | None]]:
        """The stored zone maps of a column, by file id, and their units."""
        query = """SELECT file_id, zones, unit FROM zones WHERE column_name = ?
                   AND file_id IN (SELECT value FROM json_each(?))"""
        found = self._database.read(query, column, json.dumps(list(file_ids)))
        return {id: (zones, unit) for id, zones, unit in found}

    def replace_files(self, table: Table, added: Sequence[File], removed: Sequence[int]) -> None:
        """One change: the ids of `removed` are gone, `added` are new generations with new ids, but for those that a
        batch has taken out since they were found."""
        if not added and not removed:
            return
        with self._change() as connection:
            connection.executemany("DELETE FROM files WHERE id = ?", [(id,) for id in removed])
            out = taken_out(connection, table.id)
            insert_files(connection, table.id, [file for file in added if out.get(file.path) != file.identity])

    def runs(self, index: Index) -> list[str]:
        """The names of all runs whose entries the index must hold; UnknownName where it is no more, which is not the
        same as an index without entries."""
        query = "SELECT runs.name FROM indexes LEFT JOIN runs ON index_id = id WHERE id = ?"
        found = self._database.read(query, index.id)
        if not found:
            raise UnknownName("index", index.name, (), hint="It was dropped, or began anew, this moment.")
        return [name for (name,) in found if name is not None]

    def places(self, index: Index) -> dict[int, Place]:
        """Where the payloads of an index lie, by file id."""
        query = "SELECT file_id, pack, offset, length, codec, size, checksum, version FROM payloads WHERE index_id = ?"
        return {file_id: Place(*row) for file_id, *row in self._database.read(query, index.id)}

    def embedded(self, file_ids: Sequence[int], *, own: bool = True) -> dict[int, frozenset[str]]:
        """Checksums of payloads inside files, by file id, that queries use, and with `own` those that this lake's
        writers put there. ALL stands for every one of the file."""
        query = (
            "SELECT file_id, checksum FROM payloads WHERE pack = '' AND file_id IN (SELECT value FROM json_each(?1))"
        )
        if own:
            query += " UNION SELECT file_id, checksum FROM own WHERE file_id IN (SELECT value FROM json_each(?1))"
        found: dict[int, set[str]] = {}
        for file_id, checksum in self._database.read(query, json.dumps(list(file_ids))):
            found.setdefault(file_id, set()).add(checksum)
        return {file_id: frozenset(checksums) for file_id, checksums in found.items()}

    def packs(self) -> set[tuple[int, str]]:
        """Indexes and names of all packs that hold a payload."""
        return set(self._database.read("SELECT DISTINCT index_id, pack FROM payloads WHERE pack <> ''"))

    def checksums(self) -> frozenset[str]:
        """Of all payloads."""
        return frozenset(checksum for (checksum,) in self._database.read("SELECT DISTINCT checksum FROM payloads"))

    def payload_bytes(self, index: Index) -> int:
        query = "SELECT coalesce(sum(length), 0) FROM payloads WHERE index_id = ?"
        return int(self._database.read(query, index.id)[0][0])

    def forget_payloads(self, index: Index, file_ids: Sequence[int]) -> None:
        """None of these files counts as indexed by this index any more."""
        pairs = [(index.id, id) for id in file_ids]
        with self._change() as connection:
            connection.executemany("DELETE FROM payloads WHERE index_id = ? AND file_id = ?", pairs)
            connection.executemany("DELETE FROM indexed WHERE index_id = ? AND file_id = ?", pairs)

    def commit_artifacts(
        self,
        artifacts: Sequence[FileArtifact],
        runs: Sequence[tuple[int, str]],
        entries: Mapping[int, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        """A file counts as indexed from here on; so do files that `entries` has, by index and then by file, and whose
        cards came before. Files that were replaced meanwhile are passed over, and indexes that are no more."""
        with self._change() as connection:
            connection.executemany(
                "INSERT INTO runs SELECT id, ? FROM indexes WHERE id = ?", [(name, index_id) for index_id, name in runs]
            )
            connection.executemany(
                "INSERT OR REPLACE INTO indexed SELECT files.id, indexes.id, ? FROM files, indexes "
                "WHERE files.id = ? AND indexes.id = ?",
                [(count, file, index) for index, files in entries.items() for file, count in files.items()],
            )
            for artifact in artifacts:
                query = f"SELECT {IDENTITY} FROM files WHERE id = ?"
                found = connection.execute(query, (artifact.file_id,)).fetchone()
                if found is None:
                    continue
                # Others may have embedded something, and described the file as it is since then.
                if Identity(*found) in (artifact.was, artifact.identity):
                    _describe(connection, artifact)
                    _cover(connection, artifact)
                else:
                    _cover(connection, artifact.without_positions())

    def note_problems(self, problems: Mapping[int, str]) -> None:
        """Why files, by id, could not be indexed; they are scanned, and explain says why."""
        if problems:
            with self._change() as connection:
                connection.executemany(
                    "UPDATE files SET problem = ? WHERE id = ?", [(why, id) for id, why in problems.items()]
                )

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._database.snapshot():
            yield


def _describe(connection: sqlite3.Connection, artifact: FileArtifact) -> None:
    identity = artifact.identity
    connection.execute(
        """UPDATE files SET size = ?, mtime_ns = ?, etag = ?, ctime_ns = ?, inode = ?, sample = ?, rows = ?,
           row_groups = ?, pages = ?, blooms = ?, problem = NULL WHERE id = ?""",
        (
            *astuple(identity),
            artifact.sample,
            artifact.rows,
            artifact.row_groups,
            artifact.pages,
            json.dumps(artifact.blooms) if artifact.blooms else None,
            artifact.file_id,
        ),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO bounds SELECT table_id, ?, id, ?, ?, ?, ?, ?, ? FROM files WHERE id = ?",
        [
            (column, *_bounds_row(known), artifact.units.get(column), artifact.file_id)
            for column, known in artifact.bounds.items()
        ],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO zones VALUES (?, ?, ?, ?)",
        [(artifact.file_id, column, zones, artifact.units.get(column)) for column, zones in artifact.zones.items()],
    )
    connection.execute("INSERT OR REPLACE INTO cards VALUES (?, ?)", (artifact.file_id, artifact.card))
    connection.executemany(
        "INSERT OR IGNORE INTO own VALUES (?, ?)", [(artifact.file_id, each) for each in artifact.own]
    )


def _cover(connection: sqlite3.Connection, artifact: FileArtifact) -> None:
    """By indexes; one that was dropped meanwhile has no row to refer to."""
    connection.executemany(
        "INSERT OR REPLACE INTO payloads SELECT ?, id, ?, ?, ?, ?, ?, ?, ? FROM indexes WHERE id = ?",
        [(artifact.file_id, *astuple(place), index_id) for index_id, place in artifact.places.items()],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO indexed SELECT ?, id, ? FROM indexes WHERE id = ?",
        [(artifact.file_id, entries, index_id) for index_id, entries in artifact.entries.items()],
    )


def _index(row: tuple[Any, ...]) -> Index:
    id, table_id, name, column, several, kind, embed, options = row
    columns = (column,) if several is None else tuple(json.loads(several))
    return Index(id, table_id, name, columns, kind, bool(embed), options)


def _data_columns(schema: pa.Schema, table: Table) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in table.partitions])


def _schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.remove_metadata().serialize())


def _bounds_row(known: Bounds) -> tuple[object, ...]:
    return _stored_ordinal(known.low), _stored_ordinal(known.high), known.nulls, known.rows, known.nan


def _stored_ordinal(value: Ordinal | None) -> Ordinal | str | None:
    """SQLite has integers of 64 bits; greater ones are kept as text."""
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _ordinal_of(value: Ordinal | str | None, factor: int) -> Ordinal | None:
    plain = int(value) if isinstance(value, str) else value
    return plain * factor if isinstance(plain, int) else plain


def _refuse_too_far(connection: sqlite3.Connection, table: Table, column: pa.Field) -> None:
    """SchemaConflict where the bounds of a file lie outside of what the type can hold."""
    query = """SELECT path FROM bounds JOIN files ON files.id = file_id
               WHERE bounds.table_id = ? AND column_name = ? AND unit = ? AND (low < ? OR high > ?) LIMIT 1"""
    for unit in PER_SECOND:
        most = (2**63 - 1) // (scale(unit, column.type) or 1)
        found = connection.execute(query, (table.id, column.name, unit, -most, most)).fetchone()
        if found is not None:
            raise too_far(f"{table.location}/{found[0]}", column.name, column.type)


def _begin_anew(connection: sqlite3.Connection, table: Table, column: str) -> None:
    """The indexes of a column have new ids, and no entries."""
    query = """SELECT id FROM indexes WHERE table_id = ?
               AND (columns IS NULL AND column_name = ? OR ? IN (SELECT value FROM json_each(columns)))"""
    for (id,) in connection.execute(query, (table.id, column, column)).fetchall():
        go_on(connection, id)
