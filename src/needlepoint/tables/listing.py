"""The present Parquet files of a location: a directory, or a prefix of an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from needlepoint.errors import StoreError
from needlepoint.objects import Identity, is_nameable, is_url

DELTA_LOG, ICEBERG_LOG, METADATA = "_delta_log", "metadata", (".metadata.json", ".metadata.json.gz")


@dataclass(frozen=True, slots=True)
class Listing:
    """`complete` when no Parquet file was left out, so that a reader that takes every file sees the same. `logs` are
    the paths of logs of Delta and Iceberg tables, to which not every file there belongs. `unnamed` are Parquet files
    with paths that some readers cannot name: they are left out."""

    files: Mapping[str, Identity]
    complete: bool
    logs: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()


def list_files(location: str) -> Listing:
    """Paths relative to `location`, `/`-separated, with their identity.

    Names that begin with `_` or `.` are private to writers (`_temporary`, `_SUCCESS`, `.part-0.crc`), as in Spark.
    """
    if is_url(location):
        return _list_objects(location)
    files: dict[str, Identity] = {}
    logs: list[str] = []
    unnamed: list[str] = []
    try:
        complete = _walk(location, "", files, logs, unnamed)
    except FileNotFoundError:
        complete = True
    except OSError as error:
        raise StoreError(f"{location} cannot be listed: {error}.", hint="Check its permissions.") from error
    return Listing(files, complete and not unnamed, tuple(logs), tuple(unnamed))


def _list_objects(location: str) -> Listing:
    from needlepoint.objects.remote import list_objects

    files: dict[str, Identity] = {}
    complete = True
    logs = []
    passed_over: list[str] = []
    for path, identity in list_objects(location, passed_over):
        if belongs(path):
            files[path] = identity
        elif path.endswith(".parquet"):
            complete = False
        if is_of_log(path):
            logs.append(path)
    unnamed = tuple(path for path in passed_over if path.endswith(".parquet"))
    return Listing(files, complete and not passed_over, tuple(logs), unnamed)


def is_of_log(path: str) -> bool:
    """Whether a file is part of the log of a Delta table, or metadata of an Iceberg table.

    >>> [is_of_log(path) for path in ("t/_delta_log/00000.json", "metadata/v1.metadata.json", "metadata/a.parquet")]
    [True, True, False]
    """
    directory = path.rpartition("/")[0].rpartition("/")[2]
    return directory == DELTA_LOG or (directory == ICEBERG_LOG and path.endswith(METADATA))


def belongs(path: str) -> bool:
    """Whether an object at this path, relative to a table's location, is one of its files.

    >>> [belongs(path) for path in ("year=2024/a.parquet", "_SUCCESS", "_temporary/a.parquet", "a//b.parquet")]
    [True, False, False, False]
    """
    if not path.endswith(".parquet"):
        return False
    return is_nameable(path) and not any(part.startswith(("_", ".")) for part in path.split("/"))


def share_files(one: str, other: str) -> bool:
    """Whether a file can belong to both locations: they are equal, or one is inside the other.

    >>> [share_files("s3://b/product", other) for other in ("s3://b/product/year=2024", "s3://b", "s3://b/products")]
    [True, True, False]
    >>> share_files("s3://b/product", "s3://b/product/_old")
    False
    """
    shorter, longer = sorted((_real(one), _real(other)), key=len)
    inner = longer.removeprefix(shorter)
    return inner == "" or (inner.startswith("/") and longer.startswith(shorter) and belongs(f"{inner[1:]}/a.parquet"))


def _real(location: str) -> str:
    return (location if is_url(location) else os.path.realpath(location)).rstrip("/")


def _walk(directory: str, prefix: str, files: dict[str, Identity], logs: list[str], unnamed: list[str]) -> bool:
    complete = True
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            private = entry.name.startswith(("_", "."))
            if entry.is_dir(follow_symlinks=False):
                if entry.name == DELTA_LOG:
                    logs.append(f"{prefix}{entry.name}/")
                try:
                    complete &= not private and _walk(entry.path, f"{prefix}{entry.name}/", files, logs, unnamed)
                except FileNotFoundError:
                    continue  # the directory was removed while listing
            elif entry.name.endswith(".parquet"):
                complete &= not private
                if not private and is_nameable(f"{prefix}{entry.name}"):
                    _add(entry, prefix, files)
                elif not private:
                    unnamed.append(f"{prefix}{entry.name}")
            elif entry.name.endswith(METADATA) and is_of_log(f"{prefix}{entry.name}"):
                logs.append(f"{prefix}{entry.name}")
            elif entry.is_symlink():
                complete = False  # perhaps a directory, which other readers may follow
    return complete


def _add(entry: os.DirEntry[str], prefix: str, files: dict[str, Identity]) -> None:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return  # deleted while listing
    files[f"{prefix}{entry.name}"] = Identity.of(status)
