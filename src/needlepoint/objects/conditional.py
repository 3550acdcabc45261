"""A small file or object that many writers replace, each on condition that it is still the version that they read.

    found = read_if_changed(path, known)                  None: it is still `known`
    made = put_if_unchanged(path, data, found.identity)   None: another writer was first; read again

A reader sees one version or the other, complete. An object is replaced by one PUT with `If-Match`, and created with
`If-None-Match: *`. A local file is replaced by a rename under a lock on the version that was read, and created by a
hard link, which fails if the name exists. A writer that is killed leaves a hidden file at most, and the system releases
its lock; the rename or link happened, or it did not.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from needlepoint.errors import FileChanged, FileError
from needlepoint.objects.base import Identity, is_url
from needlepoint.objects.local import LocalFile
from needlepoint.objects.moving import sync_file
from needlepoint.objects.replacing import SUFFIX, open_to_replace, replace


@dataclass(frozen=True, slots=True)
class Version:
    """The content of a file or object, and the identity of that version."""

    data: bytes
    identity: Identity


def read_if_changed(path: str, known: Identity | None) -> Version | None:
    """The current version; None if it is the `known` one. One request. FileNotFoundError if there is none."""
    if is_url(path):
        from needlepoint.objects.remote.s3 import get_if_changed

        found = get_if_changed(path, known)
        return None if found is None else Version(*found)
    if known is not None and Identity.of(os.stat(path)) == known:  # noqa: PTH116
        return None
    with LocalFile(path) as file:
        return Version(file.read(0, file.size), file.identity)


def put_if_unchanged(path: str, data: bytes, known: Identity | None) -> Identity | None:
    """Replace the `known` version, or create the file or object for None; returns the new identity.

    None if another version is there, or none where one was known: nothing was written. A PUT that was answered too late
    can be repeated by the driver and then be refused because of itself: read again before writing again.
    """
    if is_url(path):
        from needlepoint.objects.remote.s3 import put_on_condition

        return put_on_condition(path, data, known)
    if known is None:
        return _create(Path(path), data)
    try:
        with open_to_replace(path, known) as file:
            return replace(file, [data])
    except (FileChanged, FileNotFoundError):
        return None


def _create(place: Path, data: bytes) -> Identity | None:
    beside = place.with_name(f".{place.name}.{secrets.token_hex(8)}{SUFFIX}")
    try:
        try:
            beside.write_bytes(data)
            sync_file(beside)
            os.link(beside, place)
        finally:
            beside.unlink(missing_ok=True)
        sync_file(place.parent)
        return Identity.of(place.stat())
    except (FileExistsError, FileNotFoundError):
        # Whoever replaces the file removes hidden ones beside it: then it exists, too.
        if place.parent.is_dir():
            return None
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(
            str(place), f"it cannot be created: {reason}", hint="Check permissions and free space."
        ) from error
