"""The registry's tables: their locations and schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from needlepoint.errors import NameTaken, TableChanged, UnknownName, UsageError
from needlepoint.objects import is_url
from needlepoint.tables.listing import share_files
from needlepoint.tables.model import Index, Table, check_name
from needlepoint.tables.registry.batches import Batches
from needlepoint.tables.registry.databases.database import RegistryDatabase
from needlepoint.tables.registry.databases.dialects import Dialect
from needlepoint.tables.registry.databases.transaction import RegistryTransaction
from needlepoint.tables.registry.index_generations import begin_generation
from needlepoint.tables.schemas import PER_SECOND, differing, refined, respelled, scale, too_far, unify

_TABLE = "id, name, location, schema, partitions, mixed, format"


class Tables:
    def __init__(self, database: RegistryDatabase, root: Path | str, batches: Batches) -> None:
        self._database = database
        self._root = root
        self._batches = batches

    def all(self) -> list[Table]:
        rows = self._database.read(f"SELECT {_TABLE} FROM tables ORDER BY name")
        return [self._table(row) for row in rows]

    def get(self, name: str) -> Table:
        found = self._database.read(f"SELECT {_TABLE} FROM tables WHERE name = ?", name)
        if not found:
            raise UnknownName("table", name, self.names())
        return self._table(found[0])

    def of(self, index: Index) -> Table:
        """The table of an index; UnknownName when both were dropped meanwhile."""
        found = self._database.read(f"SELECT {_TABLE} FROM tables WHERE id = ?", index.table_id)
        if not found:
            raise UnknownName("index", index.name, (), hint="Its table was just dropped.")
        return self._table(found[0])

    def names(self) -> list[str]:
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
        """An absolute location is stored as it is."""
        if is_url(stored):
            return stored
        if isinstance(self._root, str):
            return stored if Path(stored).is_absolute() else f"{self._root}/{stored}"
        return str(self._root / stored)

    def create(
        self,
        name: str,
        location: str,
        schema: pa.Schema,
        partitions: Sequence[str],
        mixed: frozenset[str] = frozenset(),
        format: str = "parquet",
    ) -> Table:
        check_name("a table", name)
        with self._database.change() as connection:
            refuse_taken(connection, name)
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
        return self.get(name)

    def refuse_shared(self, table_id: int) -> None:
        """UsageError when files of a table belong to another table too. A batch that replaces files changes one table:
        the other would see the old files, the new ones, both or neither."""
        tables = self.all()
        table = next(each for each in tables if each.id == table_id)
        for other in tables:
            if other is not table and share_files(other.location, table.location):
                raise UsageError(
                    f"files of table '{table.name}' also belong to table '{other.name}' in {other.location}: they can "
                    "be read and added to, but not replaced or deleted.",
                    hint=f"Drop table '{other.name}' (its files are kept), then retry.",
                )

    def _refuse_replaced(self, location: str) -> None:
        """UsageError when a new table would share files with one that has replaced files still to delete."""
        for other in self.all():
            if share_files(other.location, location) and any(each.removals for each in self._batches.unfinished(other)):
                raise UsageError(
                    f"table '{other.name}' has files in {other.location} that were replaced or are being replaced.",
                    hint="`needle sweep --now` deletes them; then create the table.",
                )

    def widen_schema(self, table: Table, schema: pa.Schema, mixed: frozenset[str] = frozenset()) -> Table:
        """Add columns and widen types; what other processes add meanwhile stays.

        A finer unit is refused when a file is known to have values that do not fit into it. Bounds stay as they are,
        since they have the units of the files. Keys have the table's unit: an index of the column starts a new
        generation, so that no process that knows the coarser unit asks it or commits entries to it.
        """
        with self._database.change() as connection:
            dialect = self._database.dialect
            query = "SELECT schema, mixed FROM tables WHERE id = ?"
            ((stored, known),) = connection.execute(query, (table.id,)).fetchall()
            before, new = (_data_columns(each, table) for each in (pa.ipc.read_schema(pa.py_buffer(stored)), schema))
            data = unify(before, "the table", new, "the new files")
            for column in sorted(refined(before, data)):
                _refuse_too_far(connection, dialect, table, data.field(column))
                _begin_generations(connection, dialect, table, column)
            merged = pa.schema([*data, *(schema.field(name) for name in table.partitions)])
            all_mixed = mixed.union(json.loads(known), differing(before, data))
            connection.execute(
                "UPDATE tables SET schema = ?, mixed = ? WHERE id = ?",
                (_schema_bytes(merged), json.dumps(sorted(all_mixed)), table.id),
            )
        return self.get(table.name)

    def follow_schema(
        self, table: Table, schema: pa.Schema, partitions: Sequence[str], mixed: frozenset[str] = frozenset()
    ) -> Table:
        """Give the table exactly the columns of its log. An index of a column that changed its type, disappeared or
        appeared starts a new generation, as when a unit becomes finer."""
        with self._database.change() as connection:
            dialect = self._database.dialect
            ((stored,),) = connection.execute("SELECT schema FROM tables WHERE id = ?", (table.id,)).fetchall()
            before = pa.ipc.read_schema(pa.py_buffer(stored))
            for column in sorted(respelled(before, schema)):
                _refuse_too_far(connection, dialect, table, schema.field(column))
                _begin_generations(connection, dialect, table, column)
            for column in set(before.names).symmetric_difference(schema.names):
                _begin_generations(connection, dialect, table, column)
            connection.execute(
                "UPDATE tables SET schema = ?, partitions = ?, mixed = ? WHERE id = ?",
                (_schema_bytes(schema), json.dumps(list(partitions)), json.dumps(sorted(mixed)), table.id),
            )
        return self.get(table.name)

    def drop(self, name: str) -> Table:
        """TableChanged while a batch is unfinished: without the table nothing would tell its files from others."""
        table = self.get(name)
        with self._database.change() as connection:
            for batch in self._batches.unfinished(table):
                raise TableChanged(f"batch '{batch.batch}' of table '{name}' is not finished.", hint="Drop it again.")
            connection.execute("DELETE FROM tables WHERE id = ?", (table.id,))
        return table


def refuse_taken(connection: RegistryTransaction, name: str) -> None:
    """NameTaken when a table or view has this name."""
    query = "SELECT 'table' FROM tables WHERE name = ? UNION ALL SELECT 'view' FROM views WHERE name = ?"
    for (what,) in connection.execute(query, (name, name)).fetchall():
        raise NameTaken(
            f"there is a {what} '{name}' already.",
            hint="Choose another name, or drop it: `needle drop-table`, or DROP VIEW.",
        )


def _data_columns(schema: pa.Schema, table: Table) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in table.partitions])


def _schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.remove_metadata().serialize())


def _refuse_too_far(connection: RegistryTransaction, dialect: Dialect, table: Table, column: pa.Field) -> None:
    """SchemaConflict where the bounds of a file are outside of what the type can hold."""
    low, high = dialect.as_number("low"), dialect.as_number("high")
    query = f"""SELECT path FROM bounds JOIN files ON files.id = file_id
                WHERE bounds.table_id = ? AND column_name = ? AND unit = ? AND ({low} < ? OR {high} > ?) LIMIT 1"""
    for unit in PER_SECOND:
        most = (2**63 - 1) // (scale(unit, column.type) or 1)
        found = connection.execute(query, (table.id, column.name, unit, -most, most)).fetchone()
        if found is not None:
            raise too_far(f"{table.location}/{found[0]}", column.name, column.type)


def _begin_generations(connection: RegistryTransaction, dialect: Dialect, table: Table, column: str) -> None:
    """Give the indexes of a column new ids and no entries."""
    query = "SELECT id, column_name, columns FROM indexes WHERE table_id = ? ORDER BY id"
    for id, only, several in connection.execute(query, (table.id,)).fetchall():
        if column in ([only] if several is None else json.loads(several)):
            begin_generation(connection, dialect, id)
