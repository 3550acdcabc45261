"""The Parquet files that lie in a directory now."""

from __future__ import annotations

import os
from collections.abc import Iterator

from needlepoint.errors import StoreError
from needlepoint.objects import Identity


def list_files(location: str) -> dict[str, Identity]:
    """Paths relative to `location`, `/`-separated, with their identity.

    Names that begin with `_` or `.` are private to writers (`_temporary`, `_SUCCESS`, `.part-0.crc`), as in Spark.
    """
    try:
        return dict(_walk(location, ""))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{location} cannot be listed: {error}.", hint="Check its permissions.") from error


def _walk(directory: str, prefix: str) -> Iterator[tuple[str, Identity]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith(("_", ".")):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{prefix}{entry.name}/")
            elif entry.name.endswith(".parquet"):
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # deleted while listing
                yield f"{prefix}{entry.name}", Identity(status.st_size, status.st_mtime_ns)
