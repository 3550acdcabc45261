"""Schema and Hive partitions of a table, found in its files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import FileChanged, NotParquet, SchemaConflict, Unfinished
from needlepoint.objects import as_source, is_url
from needlepoint.parquet import build_card
from needlepoint.parquet.format import ensure_sound, int96
from needlepoint.tables import partitions
from needlepoint.tables.model import Table
from needlepoint.tables.schemas import differing, misordered, plain_schema, unify, with_misordered

FileSchema: TypeAlias = pa.Schema | NotParquet

TRIES_FOR_A_SCHEMA = 5


@dataclass(frozen=True, slots=True)
class SchemaDiscovery:
    """`schema` ends with the partition columns. `unreadable` files were left out of it. `mixed` as in Table."""

    schema: pa.Schema
    partitions: tuple[str, ...]
    unreadable: tuple[NotParquet, ...]
    mixed: frozenset[str]

    def adds_to(self, table: Table) -> bool:
        """Whether this has columns or types that the table lacks."""
        return not self.schema.equals(table.schema) or not self.mixed <= table.mixed


def discover_schema(
    location: str,
    new: Mapping[str, FileSchema],
    paths: Iterable[str],
    base: Table | None = None,
    *,
    shown: str = "",
) -> SchemaDiscovery:
    """The schema of the table `base` with the files `new` added; `paths` are all its files.

    SchemaConflict when the files cannot be one table. It calls the new files `shown`, if their names say nothing.
    """
    columns = partitions.discover(paths, location, None if base is None else base.schema)
    names = tuple(name for name, _ in columns)
    if base is not None and names != base.partitions:
        raise SchemaConflict(
            f"{location} is now partitioned by {', '.join(names) or 'nothing'}, "
            f"but table '{base.name}' by {', '.join(base.partitions) or 'nothing'}.",
            hint="Drop the table and create it again.",
        )
    schema = None if base is None else pa.schema([base.schema.field(name) for name in base.data_columns])
    first = "the table" if base is not None else ""
    mixed = frozenset[str]() if base is None else base.mixed
    unreadable = []
    for path, found in new.items():
        if isinstance(found, NotParquet):
            unreadable.append(found)
            continue
        mixed |= misordered(found)
        data = pa.schema([field for field in found if field.name not in names])
        if schema is None:
            schema, first = data, path
        elif not data.equals(schema):
            unified = unify(schema, first, data, shown or path)
            mixed |= differing(schema, unified) | differing(data, unified)
            schema = unified
    fields = [*(schema or pa.schema([])), *(pa.field(name, type) for name, type in columns)]
    return SchemaDiscovery(pa.schema(fields), names, tuple(unreadable), mixed)


def _all(path: str, schema: pa.Schema) -> pa.Schema:
    return plain_schema(schema)


def read_schemas(
    location: str, paths: Sequence[str], taken: Callable[[str, pa.Schema], pa.Schema] = _all
) -> dict[str, FileSchema]:
    """The schemas of files, read concurrently; for a file that is not Parquet, the error that says so. `taken` chooses
    the columns of a file that the table reads."""
    # Reading a local footer takes CPU time; requesting one from an object store is waiting.
    with ThreadPoolExecutor(32 if is_url(location) else 8) as pool:
        return dict(zip(paths, pool.map(lambda path: _schema(f"{location}/{path}", taken), paths), strict=True))


def _schema(path: str, taken: Callable[[str, pa.Schema], pa.Schema]) -> FileSchema:
    try:
        schema = _newest_schema(path)
    except NotParquet as error:
        return error
    except (pa.ArrowException, OSError) as error:
        return _why(path, error)
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    if repeated:
        return NotParquet(path, f"has more than one column named {', '.join(sorted(repeated))}")
    return taken(path, schema).with_metadata(schema.metadata)


def _newest_schema(path: str) -> pa.Schema:
    """Read an object again that is replaced while it is read."""
    for _ in range(TRIES_FOR_A_SCHEMA - 1):
        with contextlib.suppress(FileChanged):
            return _read_schema(path)
    return _read_schema(path)


def _read_schema(path: str) -> pa.Schema:
    ensure_sound(path)  # before pyarrow reads it
    metadata = pq.read_metadata(as_source(path))
    _refuse_intervals(path, metadata)
    schema = metadata.schema.to_arrow_schema()
    if "timestamp[ns" in str(schema):  # perhaps an INT96
        with pq.ParquetFile(as_source(path), coerce_int96_timestamp_unit=int96.UNIT) as file:
            schema = file.schema_arrow
    return with_misordered(schema, metadata)


def _refuse_intervals(path: str, metadata: pq.FileMetaData) -> None:
    """pyarrow reads an INTERVAL as 12 bytes, DataFusion as a type that pyarrow lacks: scans fail, page reads do not."""
    for at in range(metadata.num_columns):
        column = metadata.schema.column(at)
        if column.converted_type == "INTERVAL":
            raise NotParquet(
                path,
                f"column '{column.path}' is an INTERVAL, which is not supported",
                hint="Write it as a number, such as seconds, or leave it out.",
            )


def _why(path: str, error: Exception) -> NotParquet:
    """The reader of cards has clearer errors than pyarrow."""
    try:
        build_card(path)
    except NotParquet as clearer:
        return clearer
    except OSError as other:
        error = other
    found = NotParquet(path, f"cannot be read: {error}")
    found.__cause__ = error
    return found


def unfinished_of(schemas: Mapping[str, FileSchema], known: Container[str]) -> frozenset[str]:
    """The paths of files without a footer that are not in the registry: they may be left out."""
    return frozenset(path for path, found in schemas.items() if isinstance(found, Unfinished) and path not in known)


def discover_table(location: str, paths: Sequence[str], *, skip_unfinished: bool) -> SchemaDiscovery:
    """The schema of a new table. An unreadable file is an error; so is an unfinished one, unless they are to be skipped
    and there are others."""
    schemas = read_schemas(location, paths)
    finished = {path: found for path, found in schemas.items() if not isinstance(found, Unfinished)}
    schemas = finished if skip_unfinished and finished else schemas
    found = discover_schema(location, schemas, schemas)
    for error in found.unreadable:
        raise error
    return found
