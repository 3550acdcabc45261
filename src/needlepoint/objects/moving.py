"""Move files and objects to their final place, and remove them.

A file is renamed, or copied where the place is on another file system. An object store cannot rename: a file is
uploaded, an object is copied inside the store, and each becomes visible when it is complete. A move can be repeated: a
missing source is fine when its target exists.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from pathlib import Path

from needlepoint.objects.base import Identity, is_url
from needlepoint.objects.local import identify_file
from needlepoint.objects.opening import identify


def move(source: str, target: str) -> None:
    """Move a file or object to `target`; an object cannot become a local file."""
    if is_url(target):
        _move_object(source, target)
    else:
        _move_file(Path(source), Path(target))


def remove(path: str, identity: Identity) -> None:
    """Remove a file or object, unless it is gone or of another version than `identity`."""
    try:
        if not identify(path).seems(identity):  # a chmod does not make it another file
            return
    except FileNotFoundError:
        return
    if is_url(path):
        from needlepoint.objects.remote.s3 import delete_objects

        delete_objects([path])
        return
    place = Path(path)
    place.with_name(f".{place.name}.crc").unlink(missing_ok=True)
    place.unlink(missing_ok=True)


def remove_directory(location: str) -> None:
    """Remove a directory with all that is in it, or all objects below a URL. Nothing there is fine."""
    if not is_url(location):
        shutil.rmtree(location, ignore_errors=True)
        return
    from needlepoint.objects.remote.s3 import delete_objects, list_objects

    delete_objects([f"{location}/{path}" for path, _ in list_objects(location)])


def last_touched(directory: Path) -> float | None:
    """When something in a directory, or it itself, was last written to; None when it is being removed."""
    try:
        return max(path.stat().st_mtime for path in (directory, *directory.rglob("*")))
    except FileNotFoundError:
        return None


def sync_file(path: str | Path) -> None:
    """Write a file or directory to disk, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_object(source: str, target: str) -> None:
    from needlepoint.objects.remote.s3 import copy_object, delete_objects, upload

    try:
        if is_url(source):
            copy_object(source, target)
        else:
            upload(source, target)
    except FileNotFoundError:
        identify(target)
        return
    if is_url(source):
        delete_objects([source])
    else:
        Path(source).unlink(missing_ok=True)


def _move_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        # Spark checks a file against the checksum beside it, if there is one: none may be left from before.
        target.with_name(f".{target.name}.crc").unlink()
    try:
        source.rename(target)
    except FileNotFoundError:
        identify_file(str(target))
    except OSError:
        partial = target.parent / f".{target.name}.{uuid.uuid4().hex}"
        try:
            shutil.copyfile(source, partial)
            sync_file(partial)
            partial.rename(target)
            sync_file(target.parent)  # before the source, the only other copy, is removed
        finally:
            partial.unlink(missing_ok=True)
        source.unlink(missing_ok=True)
