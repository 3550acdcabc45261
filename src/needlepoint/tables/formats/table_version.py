"""One version of a table's log: its files, and which columns of each file the table reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from needlepoint.errors import NotParquet, Unsupported
from needlepoint.objects import Identity
from needlepoint.tables.discovery import FileSchema, SchemaDiscovery
from needlepoint.tables.model import File, Table
from needlepoint.tables.schemas import differing, misordered, plain, plain_schema, respelled, unify, unit_of, wider

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class TableVersion:
    """`schema` ends with the partition columns. `groups` are the partitions of the files, by path, and `values` what
    the partition columns are in each. `ids` are Iceberg's field ids, by name (`outer.inner`), `mapping` is its name
    mapping for files without field ids, and `stored` are columns that must be in a file: the value of a missing one
    would be that of a partition."""

    format: str
    version: str
    files: Mapping[str, Identity]
    schema: pa.Schema
    partitions: tuple[str, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, pa.Scalar]] = field(default_factory=dict)
    ids: Mapping[str, int] | None = None
    mapping: Mapping[str, int] | None = None
    stored: frozenset[str] = frozenset()

    def taken(self, path: str, schema: pa.Schema) -> pa.Schema:
        """The columns of a file that the table reads. Unsupported where a name means another column."""
        if self.ids is not None:
            check_names(self.ids, path, schema, self.mapping)
        for name in self.stored.difference(schema.names):
            raise Unsupported(
                f"{path}: the table is partitioned by '{name}', which is not in the file and would be NULL here.",
                hint="Rewrite the files, or those that were added as they were: rewrite_data_files (Spark).",
            )
        columns = [name for name in self.schema.names if name in schema.names and name not in self.partitions]
        found = plain_schema(pa.schema([schema.field(name) for name in columns]))
        return pa.schema([pa.field(each.name, _as_logged(each, self.schema.field(each.name))) for each in found])

    def unsettled(self, files: Sequence[File], base: Table) -> list[File]:
        """The files whose schemas `discover` must read: those that are not in the registry, and all when the log
        changes the type of a column. Delta widens an integer to a decimal without a new file, and the bounds and keys
        in the registry are other numbers then."""
        changed = respelled(base.schema, self.discover({}, base).schema)
        return [file for file in files if changed or file.id is None]

    def discover(self, new: Mapping[str, FileSchema], base: Table | None = None) -> SchemaDiscovery:
        """The schema of the table in this version; `new` are the files that are unsettled.

        Where a file has a finer unit than the log says, the table has it too.
        """
        data = pa.schema([_known(each, base) for each in self.schema if each.name not in self.partitions])
        mixed = frozenset(data.names) & (base.mixed if base is not None else frozenset())
        unreadable = []
        for path, found in new.items():
            if isinstance(found, NotParquet):
                unreadable.append(found)
                continue
            mixed |= misordered(found)
            if not found.equals(data):
                unified = unify(data, "the log", found, path)
                mixed |= differing(data, unified) | differing(found, unified)
                data = unified
        fields = [*data, *(self.schema.field(name) for name in self.partitions)]
        return SchemaDiscovery(pa.schema(fields), self.partitions, tuple(unreadable), mixed)


class TableLog(Protocol):
    def current(self) -> TableVersion:
        """The newest version, as a whole: the same object as long as there is no newer one. Unsupported when it has a
        feature that is not implemented here."""


def _known(logged: pa.Field, base: Table | None) -> pa.Field:
    """A column with the finer unit that files are known to have."""
    known = base.schema.field(logged.name).type if base is not None and logged.name in base.schema.names else None
    if known is None or unit_of(known) is None or unit_of(logged.type) is None:
        return logged
    return pa.field(logged.name, wider(logged.type, known) or logged.type)


def _as_logged(stored: pa.Field, logged: pa.Field) -> pa.DataType:
    """INT96 has no zones, the log does. Writers choose the names of list and map items."""
    mine, theirs = stored.type, logged.type
    if pa.types.is_timestamp(mine) and pa.types.is_timestamp(theirs) and mine.tz is None:
        return pa.timestamp(mine.unit, theirs.tz)
    return theirs if pa.types.is_nested(theirs) and _fits(plain_deeply(mine), plain_deeply(theirs)) else mine


def _fits(mine: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether the types are equal, apart from fields that a struct lacks, which are NULL in it, and their order:
    readers find fields by name. DataFusion does not in maps."""
    if pa.types.is_list(mine) and pa.types.is_list(theirs):
        return _fits(mine.value_type, theirs.value_type)
    if not (pa.types.is_struct(mine) and pa.types.is_struct(theirs)):
        return bool(mine.equals(theirs))
    known = {each.name: each.type for each in theirs.fields}
    return all(each.name in known and _fits(each.type, known[each.name]) for each in mine.fields)


def plain_deeply(type: pa.DataType) -> pa.DataType:
    """As `plain`, inside of maps too."""
    if pa.types.is_map(type):
        return pa.map_(plain_deeply(type.key_type), plain_deeply(type.item_type))
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return pa.list_(plain_deeply(type.value_type))
    if pa.types.is_struct(type):
        return pa.struct([pa.field(each.name, plain_deeply(each.type)) for each in type.fields])
    return plain(type)


def field_ids(fields: Iterable[pa.Field], outer: str = "") -> Iterator[tuple[str, int | None]]:
    """The names of all columns, nested ones included, and their field ids."""
    for each in fields:
        name, type = f"{outer}{each.name}", each.type
        number = (each.metadata or {}).get(_FIELD_ID)
        yield name, None if number is None else int(number)
        inner: list[pa.Field] = []
        if pa.types.is_struct(type):
            inner = type.fields
        elif pa.types.is_list(type) or pa.types.is_large_list(type):
            inner = [type.value_field.with_name("element")]
        elif pa.types.is_map(type):
            inner = [type.key_field.with_name("key"), type.item_field.with_name("value")]
        yield from field_ids(inner, f"{name}.")


def check_names(
    ids: Mapping[str, int],
    path: str,
    schema: pa.Schema,
    mapping: Mapping[str, int] | None = None,
    *,
    demanded: bool = False,
) -> None:
    """Needlepoint finds columns in files by name; Unsupported where Iceberg, which uses field ids, finds other ones.

    Files without field ids get them from `mapping`, if there is one. With `demanded`, because columns were renamed,
    such files are refused.
    """
    names = {number: name for name, number in ids.items()}
    for name, number in field_ids(schema):
        if number is None and demanded:
            problem = f"column '{name}' has no field id, and columns of the table were renamed"
        elif number is None:
            now = name if mapping is None else names.get(mapping.get(name, -1))
            if now == name or (now is None and name not in ids):
                continue
            called = "none" if now is None else f"'{now}'"
            problem = f"column '{name}' of the file is {called} of the table by its name mapping"
        elif names.get(number, name) != name:
            problem = f"column '{name}' of the file is called '{names[number]}' in the table now"
        elif ids.get(name, number) != number:
            problem = f"column '{name}' of the file was dropped, and the table has another one of that name"
        else:
            continue
        raise Unsupported(
            f"{path}: {problem}, which is not read here.",
            hint="Rewrite the files with the names of now (rewrite_data_files, or an overwrite), then ask again.",
        )
