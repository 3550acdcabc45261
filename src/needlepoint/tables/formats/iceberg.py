"""The metadata of an Iceberg table, read by pyiceberg: the only importer of it.

    metadata/v7.metadata.json                 a version of a table without a catalog: the highest number is current
    metadata/00007-<uuid>.metadata.json       a version of a table with a catalog, which knows the current one
    metadata/v7.gz.metadata.json              either of them, compressed
    metadata/version-hint.text                names the current one

For a table with a catalog the highest number is taken, which is right unless a commit failed half-way. A failed commit
leaves two files of one number, or a number that is older than others: such a table is refused.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import StaticTable

from needlepoint.errors import NotParquet, StoreError, Unsupported
from needlepoint.objects import Identity, as_source, identify, is_url, open_object
from needlepoint.parquet.format import ensure_sound
from needlepoint.tables.file_stat import identities
from needlepoint.tables.formats.table_version import TableVersion, check_names, field_ids
from needlepoint.tables.schemas import plain_schema

_HINT = "version-hint.text"
_NAME = re.compile(r"(?:v(?P<plain>\d+)|(?P<number>\d+)-.+)(?:\.gz)?\.metadata\.json(?P<early>\.gz)?")
# A file on a disk is visible before it is complete.
_ATTEMPTS, _PAUSE = 10, 0.05
_REWRITE = "rewrite_data_files (Spark), or an overwrite, writes these files without them."


class IcebergLog:
    def __init__(self, location: str, pinned: str = "") -> None:
        self._location = location
        self._pinned = pinned
        self._current: tuple[str, Identity] | None = None
        self._held: TableVersion | None = None
        self._forget()

    def _forget(self) -> None:
        self._held = None
        self._manifests: dict[str, tuple[str, ...]] = {}
        self._checked: set[tuple[str, Hashable]] = set()

    def current(self) -> TableVersion:
        name, identity = self._newest()
        if self._held is None or (name, identity) != self._current:
            if self._current is not None and name == self._current[0]:
                self._forget()  # a table that was created again has this version too, and nothing else of the old one
            self._held, self._current = self._load(name, identity)
        return self._held

    def _newest(self) -> tuple[str, Identity]:
        if self._pinned:
            try:
                return self._pinned, identify(self._path(self._pinned))
            except FileNotFoundError:
                raise self._gone(self._pinned) from None
        found = self._listed()
        name = self._hinted(found) or self._highest(found)
        if name not in found:
            raise self._gone(name)
        return name, found[name]

    def _hinted(self, found: dict[str, Identity]) -> str:
        """The metadata file that the hint names, or "" where the hint is a number: it can be out of date, but a file of
        that number must exist."""
        hint = self._hint() if _HINT in found else ""
        if hint and _named(hint, found) is None:
            found |= self._listed()  # its commit can be newer than the listing
        if hint and _named(hint, found) is None:
            raise StoreError(
                f"{_HINT} of the Iceberg table {self._location} names {hint}, and there is no metadata file of it, or "
                "one whose name is not known here.",
                hint="Is it whole? Name the metadata file instead of the directory.",
            )
        return "" if hint.isdigit() else _named(hint, found) or ""

    def _highest(self, found: Mapping[str, Identity]) -> str:
        matches = _matches(found)
        plain = {int(match["plain"]): match[0] for match in matches if match["plain"]}
        numbers = [(int(match["number"]), match[0]) for match in matches if match["number"]]
        if plain and not numbers:
            return plain[max(plain)]
        if not numbers:
            raise StoreError(f"{self._location} is not an Iceberg table.", hint="Is it mounted? Else drop it.")
        number, newest = max(numbers)
        others = [name for each, name in numbers if name != newest and each == number]
        others += [name for _, name in numbers if found[name].mtime_ns > found[newest].mtime_ns] + list(plain.values())
        if others:
            raise Unsupported(
                f"which version of the Iceberg table {self._location} is the current one only its catalog knows: "
                f"{newest} or {others[0]}.",
                hint="Name the metadata file instead of the directory.",
            )
        return newest

    def _listed(self) -> dict[str, Identity]:
        """The files in the metadata directory."""
        directory = f"{self._location}/metadata"
        if is_url(directory):
            from needlepoint.objects.remote import list_objects

            return dict(list_objects(directory))
        found = {}
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # renamed meanwhile, as commits do
                        found[entry.name] = Identity.of(entry.stat())
        except OSError as error:
            raise self._unreadable(directory, error) from None
        return found

    def _hint(self) -> str:
        with open_object(path := self._path(_HINT)) as file:
            return file.read(0, identify(path).size).decode().strip()

    def _path(self, name: str) -> str:
        return f"{self._location}/metadata/{name}"

    def _load(self, name: str, identity: Identity) -> tuple[TableVersion, tuple[str, Identity]]:
        while True:
            logged = self._logged(name)
            if logged is not None:
                return logged, (name, identity)
            # A file that the metadata names is missing: a newer version may have removed it meanwhile.
            newest = self._newest()
            if newest == (name, identity):
                raise StoreError(
                    f"the metadata of {self._location} names files in {name} that are missing.",
                    hint="Were snapshots expired, or files removed by hand?",
                )
            name, identity = newest

    def _logged(self, name: str) -> TableVersion | None:
        """None when a file is missing."""
        table = self._open(name)
        metadata = table.metadata
        if _plain_path(metadata.location) != self._location and not self._is_same_place(metadata.location):
            raise self._unsupported(f"its metadata says that it is in {metadata.location}", "Use it there.")
        schema = metadata.schema()
        for number in schema.field_ids:
            if schema.find_field(number).initial_default is not None:
                raise self._unsupported(f"column '{schema.find_column_name(number)}' has an initial default", "")
        try:
            arrow = schema.as_arrow()
        except (TypeError, ValueError, NotImplementedError, pa.ArrowException):
            raise self._unsupported("a column has a type that Arrow lacks", "") from None
        paths = self._paths(table)
        held = {} if self._held is None else self._held.files
        files = identities(self._location, paths, held)
        if files is None:
            return None
        ids = {each: number for each, number in field_ids(arrow) if number is not None}
        mapping, renamed = self._mapping(metadata), _had_other_names(metadata)
        if renamed or mapping not in (None, ids):
            self._check_files(ids, mapping, renamed, files)
        stored = _identity_partitions(metadata)
        return TableVersion(
            "iceberg", _version(name), files, plain_schema(arrow), ids=ids, mapping=mapping, stored=stored
        )

    def _mapping(self, metadata: Any) -> dict[str, int] | None:
        try:
            found = metadata.name_mapping()
        except ValueError:
            raise self._unsupported("its schema.name-mapping.default is not a name mapping", "") from None
        return None if found is None else dict(_mapped(found))

    def _open(self, name: str) -> Any:
        path = self._path(name)
        if (match := _NAME.fullmatch(name)) and match["early"]:
            raise self._unsupported(
                f"its metadata {name} is compressed as early versions of Iceberg did it",
                "The next commit of a newer one writes it as .gz.metadata.json.",
            )
        for attempt in range(_ATTEMPTS):
            try:
                return StaticTable.from_metadata(path, _properties(self._location))
            except (ValueError, ValidationError):  # it is incomplete
                time.sleep(_PAUSE if attempt < _ATTEMPTS - 1 else 0)
            except FileNotFoundError:
                raise self._gone(name) from None
            except OSError as error:
                raise self._unreadable(path, error) from None
        raise StoreError(f"{path} is not Iceberg metadata.", hint="Is it whole, and of version 1, 2 or 3?")

    def _paths(self, table: Any) -> list[str]:
        """The files of the current snapshot."""
        snapshot = table.metadata.current_snapshot()
        if snapshot is None:
            return []
        found: dict[str, tuple[str, ...]] = {}
        try:
            for each in snapshot.manifests(table.io):
                known = self._manifests.get(each.manifest_path)  # they never change
                found[each.manifest_path] = tuple(self._entries(each, table.io)) if known is None else known
        except (OSError, ValueError) as error:
            raise self._unreadable(self._location, error) from None
        self._manifests = found
        return sorted({path for paths in found.values() for path in paths})

    def _entries(self, manifest: Any, io: Any) -> Iterator[str]:
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            file = entry.data_file
            if manifest.content == ManifestContent.DELETES or file.content != DataFileContent.DATA:
                equality = file.content == DataFileContent.EQUALITY_DELETES
                kind = "equality deletes" if equality else "positional deletes or deletion vectors"
                raise self._unsupported(f"rows of its files are deleted by {kind}", _REWRITE)
            if file.file_format != FileFormat.PARQUET:
                raise self._unsupported(f"{file.file_path} is no Parquet file", "")
            yield self._relative(file.file_path)

    def _relative(self, path: str) -> str:
        plain = _plain_path(path)
        if not plain.startswith(f"{self._location}/") and not is_url(plain):
            plain = os.path.realpath(plain)
        if not plain.startswith(f"{self._location}/"):
            raise self._unsupported(f"{path} is outside of it", "")
        if not plain.endswith(".parquet"):
            raise self._unsupported(f"the name of {path} does not end in .parquet", "")
        return plain[len(self._location) + 1 :]

    def _is_same_place(self, location: str) -> bool:
        return not is_url(self._location) and os.path.realpath(_plain_path(location)) == self._location

    def _check_files(
        self, ids: Mapping[str, int], mapping: Mapping[str, int] | None, renamed: bool, files: Mapping[str, Identity]
    ) -> None:
        """Columns were renamed or created again, or files without field ids have other names for them: the footer of a
        file shows whether that concerns it."""
        now = (frozenset(ids.items()), frozenset((mapping or {}).items()), mapping is None, renamed)
        left = [path for path in files if (path, now) not in self._checked]
        with ThreadPoolExecutor(32 if is_url(self._location) else 8) as pool:
            for path, schema in zip(left, pool.map(self._schema_of, left), strict=True):
                if schema is not None:
                    check_names(ids, f"{self._location}/{path}", schema, mapping, demanded=renamed)
        self._checked |= {(path, now) for path in left}

    def _schema_of(self, path: str) -> pa.Schema | None:
        """None for a file that is not Parquet; reading it says so."""
        try:
            ensure_sound(f"{self._location}/{path}")
            return pq.read_schema(as_source(f"{self._location}/{path}"))
        except (OSError, pa.ArrowException, NotParquet):
            return None

    def _gone(self, name: str) -> StoreError:
        return StoreError(f"the metadata {self._path(name)} is gone.", hint="Is it mounted? Else drop the table.")

    def _unreadable(self, path: str, error: Exception) -> StoreError:
        why = "" if is_url(self._location) else f": {error}"  # a driver's text can hold secrets
        return StoreError(f"the metadata {path} cannot be read{why}.", hint="Is it whole, and are there permissions?")

    def _unsupported(self, problem: str, hint: str) -> Unsupported:
        return Unsupported(f"the Iceberg table {self._location}: {problem}, and would be read wrong here.", hint=hint)


def _matches(names: Iterable[str]) -> list[re.Match[str]]:
    """Metadata files. Of two that differ only in compression, the plain one is last: it counts."""
    found = [match for match in map(_NAME.fullmatch, names) if match is not None]
    return sorted(found, key=lambda match: -len(match[0]))


def _named(hint: str, found: Iterable[str]) -> str | None:
    """The metadata file that a hint names, by its name, the beginning of it, or a number."""
    if hint.isdigit():
        return next((m[0] for m in _matches(found) if int(m["plain"] or m["number"]) == int(hint)), None)
    return next((name for name in (hint, f"{hint}.metadata.json", f"{hint}.gz.metadata.json") if name in found), None)


def _mapped(fields: Iterable[Any], outer: str = "") -> Iterator[tuple[str, int]]:
    """The names of columns, nested ones included, in files without field ids, and the ids that they get."""
    for each in fields:
        for name in each.names:
            if each.field_id is not None:
                yield f"{outer}{name}", each.field_id
            yield from _mapped(each.fields, f"{outer}{name}.")


def _had_other_names(metadata: Any) -> bool:
    """Whether, by the metadata, a file can have a column under another name than the table.

    Schemas that no snapshot refers to can be removed while files with them remain: then the numbers of the schemas have
    a gap. Metadata of version 1 may never have listed them.
    """
    numbers = sorted(schema.schema_id for schema in metadata.schemas)
    if metadata.format_version == 1 or numbers != list(range(len(numbers))):
        return True
    pairs = {(number, schema.find_column_name(number)) for schema in metadata.schemas for number in schema.field_ids}
    return len(pairs) != len({number for number, _ in pairs}) or len(pairs) != len({name for _, name in pairs})


def _identity_partitions(metadata: Any) -> frozenset[str]:
    """Columns whose values may be only in the paths of imported files."""
    schema = metadata.schema()
    sources = {
        each.source_id for spec in metadata.partition_specs for each in spec.fields if str(each.transform) == "identity"
    }
    return frozenset(each.name for each in schema.fields if each.field_id in sources)


def _plain_path(location: str) -> str:
    """
    >>> _plain_path("file:///data/orders/"), _plain_path("s3a://bucket/orders")
    ('/data/orders', 's3://bucket/orders')
    """
    plain = re.sub(r"^file:(//)?(?=/)", "", location.rstrip("/"))
    return re.sub(r"^s3[an]://", "s3://", plain)


def _version(name: str) -> str:
    match = _NAME.fullmatch(name)
    return str(int(match["plain"] or match["number"])) if match else name.removesuffix(".metadata.json")


def _properties(location: str) -> dict[str, str]:
    if not is_url(location):
        return {}
    from needlepoint.objects.remote import endpoint

    address, _ = endpoint()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    found = {"s3.endpoint": address, "s3.region": region}
    return {name: value for name, value in found.items() if value}
