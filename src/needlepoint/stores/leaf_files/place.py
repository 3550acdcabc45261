"""Where a store of leaf files is: a directory, or the objects below a URL.

    <location>/manifest.ndjson       replaced by compare-and-swap
    <location>/leaves/<name>         never changed; names are unique

All writes of a store happen here, each of them atomic: `add`, `swap_manifest` and `remove`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from needlepoint.objects import (
    Identity,
    Version,
    is_url,
    put_if_unchanged,
    read_if_changed,
    remove_directory,
    sync_file,
)

MANIFEST = "manifest.ndjson"
LEAVES = "leaves"


class LeafPlace:
    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")
        self.is_remote = is_url(self.location)
        self.manifest = f"{self.location}/{MANIFEST}"

    def path(self, name: str) -> str:
        """The path or URL of a leaf file."""
        return f"{self.location}/{LEAVES}/{name}"

    def read_manifest(self, known: Identity | None = None) -> Version | None:
        """None if it is the known version; FileNotFoundError if there is none."""
        return read_if_changed(self.manifest, known)

    def swap_manifest(self, data: bytes, known: Identity | None) -> Identity | None:
        """Replace the known version, or create the first one for None; None if another writer was first."""
        if not self.is_remote:
            Path(self.location).mkdir(parents=True, exist_ok=True)
        return put_if_unchanged(self.manifest, data, known)

    def add(self, source: Path, name: str) -> None:
        """Copy a complete local file here. It is durable when this returns; the source stays."""
        target = self.path(name)
        if self.is_remote:
            from needlepoint.objects.remote import upload

            upload(str(source), target)
            return
        place = Path(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, place)
            sync_file(place)
        except OSError:  # another file system, or one without links
            partial = place.with_name(f".{name}.{uuid.uuid4().hex}")
            try:
                shutil.copyfile(source, partial)
                sync_file(partial)
                partial.rename(place)
            finally:
                partial.unlink(missing_ok=True)
        sync_file(place.parent)

    def remove(self, names: Iterable[str]) -> None:
        """Missing ones are fine."""
        if self.is_remote:
            from needlepoint.objects.remote import delete_objects

            delete_objects([self.path(name) for name in names])
            return
        for name in names:
            Path(self.path(name)).unlink(missing_ok=True)

    def listed(self) -> Iterator[tuple[str, float]]:
        """The leaf files that are there, named by a manifest or not, and when each was written, in seconds."""
        directory = f"{self.location}/{LEAVES}"
        if self.is_remote:
            for name, identity in self._objects():
                yield name, identity.mtime_ns / 1e9
            return
        with contextlib.suppress(FileNotFoundError), os.scandir(directory) as found:
            for entry in found:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    # A link keeps the time of the content, and sets that of the last change.
                    yield entry.name, max(status.st_mtime, status.st_ctime)

    def missing(self, sizes: dict[str, int]) -> list[str]:
        """Which of these leaf files, by name, are not there with this size. Objects are listed: a request for each
        thousand."""
        if self.is_remote:
            there = {name: identity.size for name, identity in self._objects()} if sizes else {}
            return [name for name, size in sizes.items() if there.get(name) != size]
        return [name for name, size in sizes.items() if not self._has(name, size)]

    def _objects(self) -> Iterator[tuple[str, Identity]]:
        from needlepoint.objects.remote import list_objects

        return list_objects(f"{self.location}/{LEAVES}")

    def _has(self, name: str, size: int) -> bool:
        try:
            return os.stat(self.path(name)).st_size == size  # noqa: PTH116
        except FileNotFoundError:
            return False

    def destroy(self) -> None:
        """The manifest first: a store without it is gone, not damaged."""
        if self.is_remote:
            from needlepoint.objects.remote import delete_objects

            delete_objects([self.manifest])
        else:
            Path(self.manifest).unlink(missing_ok=True)
        remove_directory(self.location)
