"""The log of a Delta table, read by deltalake: the only importer of it.

A version is one commit, `_delta_log/<version>.json`, on top of the earlier ones; these files never change. So there is
no newer version while the next commit does not exist and the present one is unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from needlepoint.errors import StoreError, Unsupported, UsageError
from needlepoint.objects import Identity, identify, is_url
from needlepoint.tables.file_stat import identities
from needlepoint.tables.formats.table_version import TableVersion
from needlepoint.tables.schemas import plain_schema

# Reader features that deltalake, which reads the log, or this module implements.
_KNOWN_FEATURES = {
    "columnMapping",  # where it changes no name
    "deletionVectors",  # where no file has one
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


class DeltaLog:
    def __init__(self, location: str) -> None:
        self._location = location
        if "%" in location:
            # deltalake would decode it and read another directory.
            raise UsageError(f"{location} has a % in its name, which deltalake cannot read.", hint="Rename it.")
        self._held: TableVersion | None = None
        self._commit: Identity | None = None

    def current(self) -> TableVersion:
        if self._held is None or self._is_outdated(int(self._held.version)):
            loaded, self._commit = self._load()
            self._held = self._held if loaded == self._held else loaded
        return self._held

    def _is_outdated(self, version: int) -> bool:
        """A missing commit, removed as old or because the table was created again, proves nothing: load."""
        if self._commit is None or self._identity(version) != self._commit:
            return True
        return self._identity(version + 1) is not None

    def _identity(self, version: int) -> Identity | None:
        try:
            return identify(f"{self._location}/_delta_log/{version:020}.json")
        except FileNotFoundError:
            return None

    def _load(self) -> tuple[TableVersion, Identity | None]:
        while True:
            table = self._open()
            version = table.version()
            commit = self._identity(version)
            try:
                logged = self._logged(table)
            except DeltaError as error:
                raise self._unreadable(error) from None
            if logged is not None:
                return logged, commit
            # A file that the log names is missing: a newer version may have removed it meanwhile.
            if self._open().version() == version:
                raise StoreError(
                    f"the log of {self._location} names files in version {version} that are missing.",
                    hint="Was the table vacuumed by hand? FSCK REPAIR TABLE, or deltalake's `repair`, takes them out.",
                )

    def _open(self) -> Any:
        try:
            return deltalake.DeltaTable(self._location, storage_options=_storage(self._location))
        except TableNotFoundError:
            raise StoreError(f"{self._location} is not a Delta table.", hint="Is it mounted? Else drop it.") from None
        except DeltaError as error:
            if "not supported" in str(error) or "catalog-managed" in str(error):
                why = "" if is_url(self._location) else f" ({_first_line(error)})"  # as in _unreadable
                raise self._unsupported(f"deltalake does not read it{why}", "") from None
            raise self._unreadable(error) from None
        except OSError as error:
            raise self._unreadable(error) from None

    def _logged(self, table: Any) -> TableVersion | None:
        """None when a file is missing."""
        self._check_features(table)
        metadata = table.metadata()
        self._check_names(table, metadata.configuration)
        partitions = tuple(metadata.partition_columns)
        adds = pa.table(table.get_add_actions())
        paths = [self._checked(path) for path in adds.column("path").to_pylist()]
        held = {} if self._held is None else self._held.files
        files = identities(self._location, paths, held)
        if files is None:
            return None
        schema = self._schema(table, partitions)
        groups, values = _partition_values(paths, adds, schema, partitions)
        return TableVersion("delta", str(table.version()), files, schema, partitions, groups, values)

    def _schema(self, table: Any, partitions: tuple[str, ...]) -> pa.Schema:
        try:
            found = plain_schema(pa.schema(table.schema().to_arrow()))
        except (DeltaError, ValueError, pa.ArrowException) as error:
            raise self._unsupported(f"a column has a type that Arrow lacks ({_first_line(error)})", "") from None
        for name in partitions:
            if pa.types.is_binary(found.field(name).type):
                raise self._unsupported(f"it is partitioned by '{name}', which is binary", "")
        data = [field for field in found if field.name not in partitions]
        return pa.schema([*data, *(found.field(name) for name in partitions)])

    def _check_features(self, table: Any) -> None:
        protocol = table.protocol()
        if protocol.min_reader_version > 3:
            raise self._unsupported(f"it asks for version {protocol.min_reader_version} of readers", "")
        features = protocol.reader_features or []
        for name in sorted(set(features) - _KNOWN_FEATURES):
            raise self._unsupported(f"it uses {name}", f"ALTER TABLE … DROP FEATURE {name} takes it out, where it can.")
        if "deletionVectors" in features and self._has_deletion_vectors(table):
            raise self._unsupported(
                "rows of its files are deleted by deletion vectors",
                "REORG TABLE … APPLY (PURGE) rewrites these files; delta.enableDeletionVectors = false keeps it so.",
            )

    def _has_deletion_vectors(self, table: Any) -> bool:
        try:
            return any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()))
        except (DeltaError, OSError, pa.ArrowException):
            return True  # an unreadable one counts

    def _check_names(self, table: Any, configuration: Mapping[str, str]) -> None:
        """Files can have other names for the columns than the table."""
        mode = configuration.get("delta.columnMapping.mode", "none")
        if mode == "none":
            return
        schema = json.loads(table.schema().to_json())
        renamed = next(_renamed(schema), None) if mode == "name" else mode
        if renamed is not None:
            raise self._unsupported(
                f"its files have other names for columns (column mapping by {mode})",
                "Rewrite it with delta.columnMapping.mode = none.",
            )

    def _checked(self, logged: str) -> str:
        """The log has URL-encoded paths; absolute ones belong to other tables."""
        path = unquote(logged)
        if path.startswith("/") or is_url(path) or ".." in path.split("/"):
            raise self._unsupported(f"{path} is outside of it, as after a shallow clone", "Make a deep clone.")
        if not path.endswith(".parquet"):
            raise self._unsupported(f"the name of {path} does not end in .parquet", "")
        return path

    def _unreadable(self, error: Exception) -> StoreError:
        why = "" if is_url(self._location) else f": {_first_line(error)}"  # a driver's text can hold secrets
        return StoreError(
            f"the log of {self._location} cannot be read{why}.", hint="Is it whole, and readable for you?"
        )

    def _unsupported(self, problem: str, hint: str) -> Unsupported:
        return Unsupported(f"the Delta table {self._location}: {problem}, and would be read wrong here.", hint=hint)


def _storage(location: str) -> dict[str, str] | None:
    if not is_url(location):
        return None
    from needlepoint.objects.remote import endpoint

    address, allow_http = endpoint()
    found = {"AWS_ALLOW_HTTP": str(allow_http).lower()}
    return found | {"AWS_ENDPOINT_URL": address} if address else found


def _renamed(type: Any) -> Any:
    """Names of columns, nested ones included, that have another name in the files."""
    if not isinstance(type, dict):
        return
    for field in type.get("fields", ()):
        if field.get("metadata", {}).get(_PHYSICAL_NAME, field["name"]) != field["name"]:
            yield field["name"]
        yield from _renamed(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _renamed(type.get(part))


def _partition_values(
    paths: list[str], adds: pa.Table, schema: pa.Schema, partitions: tuple[str, ...]
) -> tuple[dict[str, str], dict[str, dict[str, pa.Scalar]]]:
    """Groups of files by path, and the values of each group."""
    if not partitions:
        return {}, {}
    found = adds.column("partition").combine_chunks()
    columns = [found.field(name).cast(schema.field(name).type) for name in partitions]
    groups: dict[str, str] = {}
    values: dict[str, dict[str, pa.Scalar]] = {}
    for number, path in enumerate(paths):
        scalars = [column[number] for column in columns]
        group = repr([str(scalar) if scalar.is_valid else None for scalar in scalars])
        groups[path] = group
        if group not in values:
            values[group] = dict(zip(partitions, scalars, strict=True))
    return groups, values


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
