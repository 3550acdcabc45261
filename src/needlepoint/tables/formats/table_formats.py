"""External table formats: a log in the location of a table decides which files belong to it.

    Delta     orders/_delta_log/00000000000000000007.json       delta.py
    Iceberg   orders/metadata/00007-….metadata.json             iceberg.py

The log also has the columns, their types and, for Delta, the partition values. A feature of a log that Needlepoint does
not implement is refused when a table is created, at a sync and at every query: it would read deleted rows or renamed
columns wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from needlepoint.errors import StoreError, UsageError
from needlepoint.objects import is_url
from needlepoint.tables.formats.table_version import TableLog
from needlepoint.tables.listing import DELTA_LOG, ICEBERG_LOG, METADATA, Listing, is_of_log

FORMATS = ("parquet", "delta", "iceberg")
_LOGS = {"delta": DELTA_LOG, "iceberg": ICEBERG_LOG}


def open_log(format: str, location: str) -> TableLog:
    """The log of a table. `iceberg=00007-….metadata.json` is the format of a table that stays at this version."""
    kind, _, pinned = format.partition("=")
    package = "deltalake" if kind == "delta" else "pyiceberg"
    try:
        if kind == "delta":
            from needlepoint.tables.formats.delta import DeltaLog

            return DeltaLog(location)
        from needlepoint.tables.formats.iceberg import IcebergLog

        return IcebergLog(location, pinned)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise UsageError(
            f"{location} is {described_format(kind)}; reading it takes {package}, which is not installed.",
            hint=f"Install it: pip install 'needlepoint[{kind}]'.",
        ) from None


def is_external(format: str) -> bool:
    """Whether a log decides which files belong to a table."""
    return format != "parquet"


def tells_of_change(format: str, path: str) -> bool:
    """Whether an object at this path below a table's location is part of its log."""
    return path.startswith(f"{_LOGS[format.partition('=')[0]]}/")


def decide(location: str, format: str | None) -> tuple[str, str]:
    """The format of the table in a location, and the location without the name of a metadata file.

    Without a given format, a log in the location decides. Inside a Delta or Iceberg table not every file belongs to
    it, so such a location is a Parquet table only when `format` says so.
    """
    if format is not None and format not in FORMATS:
        raise UsageError(f"'{format}' is not a table format.", hint=f"There are: {', '.join(FORMATS)}.")
    directory, _, name = location.rpartition("/")
    if name.endswith(METADATA) and format != "parquet":
        if directory.rpartition("/")[2] != _LOGS["iceberg"]:
            raise UsageError(f"{location} is not in the metadata directory of an Iceberg table.")
        return f"iceberg={name}", directory.rpartition("/")[0]
    if format is not None:
        return format, location
    found = _found_in(location)
    if len(found) > 1:
        raise UsageError(f"{location} is a Delta table and an Iceberg table.", hint="Say format='delta' or 'iceberg'.")
    if found:
        return found[0], location
    for above in _above(location):
        for kind in _found_in(above):
            raise _not_all(kind, location, f"is inside {above}", above)
    return "parquet", location


def check_plain(location: str, listing: Listing) -> None:
    """UsageError when a directory below is a Delta or Iceberg table: not every file there belongs to it."""
    for path in listing.logs:
        name = DELTA_LOG if f"{DELTA_LOG}/" in path else ICEBERG_LOG
        other = f"{location}/{path}".rpartition(f"/{name}/")[0]
        raise _not_all("delta" if name == DELTA_LOG else "iceberg", location, f"holds {other}", other)


def _not_all(kind: str, location: str, where: str, other: str) -> UsageError:
    return UsageError(
        f"{location} {where}, {described_format(kind)}: not every file there belongs to it.",
        hint=f"Create a table of {other}; format='parquet' takes all files, including removed ones.",
    )


def described_format(format: str) -> str:
    """
    >>> described_format("iceberg=00007-a.metadata.json")
    'an Iceberg table'
    """
    return "a Delta table" if format == "delta" else "an Iceberg table"


def _above(location: str) -> list[str]:
    if not is_url(location):
        return [str(parent).rstrip("/") for parent in Path(location).parents]
    scheme, _, path = location.partition("://")
    parts = path.split("/")
    return [f"{scheme}://{'/'.join(parts[:count])}" for count in range(len(parts) - 1, 0, -1)]


def _found_in(location: str) -> list[str]:
    return [kind for kind, name in _LOGS.items() if any(map(is_of_log, _paths(f"{location}/{name}")))]


def _paths(directory: str) -> Iterator[str]:
    """The paths in a directory; none where it cannot be listed, since reading the table reports that."""
    with contextlib.suppress(OSError, StoreError):
        if is_url(directory):
            from needlepoint.objects.remote import list_objects

            yield from (f"{directory}/{path}" for path, _ in list_objects(directory))
        else:
            yield from (str(path) for path in Path(directory).iterdir())
