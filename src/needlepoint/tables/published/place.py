"""The files or objects of a lake under `.needlepoint`: written once, read by any machine."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from needlepoint.errors import StoreError
from needlepoint.objects import (
    Identity,
    Version,
    concurrently,
    is_url,
    open_object,
    put_if_unchanged,
    read_if_changed,
    sync_file,
)
from needlepoint.stores import IN_LAKE
from needlepoint.tables.published.manifest import ManifestDamaged, RegistryManifest

MANIFEST = "registry/manifest.json"
_READ_AT_ONCE = 32 << 20

Item = TypeVar("Item")
Made = TypeVar("Made")


def is_refusal(error: Exception) -> bool:
    """Whether rights are missing, which is not tried again in vain with a warning each time."""
    causes = (error, error.__cause__)
    return any(isinstance(each, PermissionError) or getattr(each, "is_refused", False) for each in causes)


class PublishedPlace:
    """Names are relative to it, `/`-separated."""

    def __init__(self, root: Path | str) -> None:
        self.base = f"{root}/{IN_LAKE}"
        self.is_remote = is_url(self.base)

    def path(self, name: str) -> str:
        return f"{self.base}/{name}"

    def put(self, source: Path, name: str) -> None:
        """Copy a local file here; it is visible when it is complete. A name is never used for other bytes."""
        target = self.path(name)
        with self._errors(f"{target} cannot be written"):
            if self.is_remote:
                from needlepoint.objects.remote import upload

                upload(str(source), target)
                return
            place = Path(target)
            place.parent.mkdir(parents=True, exist_ok=True)
            beside = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
            try:
                shutil.copyfile(source, beside)
                sync_file(beside)
                beside.rename(place)
                sync_file(place.parent)
            finally:
                beside.unlink(missing_ok=True)

    def get(self, name: str, size: int, target: Path) -> None:
        """Copy one of this size to a local file. FileNotFoundError if there is none."""
        known = Identity(size, 0) if self.is_remote else None
        with open_object(self.path(name), known) as found, target.open("wb") as file:
            for start in range(0, found.size, _READ_AT_ONCE):
                file.write(found.read(start, min(_READ_AT_ONCE, found.size - start)))

    def manifest(self, known: Identity | None = None) -> Version | None:
        """The manifest; None if it is the `known` version. FileNotFoundError if there is none."""
        return read_if_changed(self.path(MANIFEST), known)

    def put_manifest(self, data: bytes, known: Identity | None) -> Identity | None:
        """Replace the `known` version, or create it; None if another is there."""
        target = self.path(MANIFEST)
        with self._errors(f"{target} cannot be written"):
            if not self.is_remote:
                Path(target).parent.mkdir(parents=True, exist_ok=True)
            return put_if_unchanged(target, data, known)

    def withdraw(self, registry: str) -> bool:
        """Remove the manifest, if it is that of this registry; whether it was. Readers that are open go on with the
        state that they have, and no reader can be opened."""
        try:
            found = self.manifest()
        except FileNotFoundError:
            return False
        assert found is not None
        try:
            published = RegistryManifest.from_bytes(self.path("registry"), found.data).registry
        except ManifestDamaged:
            published = registry
        if published == registry:
            self.remove([MANIFEST])
        return published == registry

    def listed(self, below: str) -> Iterator[tuple[str, Identity]]:
        """Names that begin with `below/`."""
        if self.is_remote:
            from needlepoint.objects.remote import list_objects

            for path, identity in list_objects(self.path(below)):
                yield f"{below}/{path}", identity
            return
        directory = Path(self.path(below))
        for found in directory.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if found.is_file():
                    yield f"{below}/{found.relative_to(directory)}", Identity.of(found.stat())

    def remove(self, names: Sequence[str]) -> None:
        """Missing ones are fine."""
        if self.is_remote:
            from needlepoint.objects.remote import delete_objects

            delete_objects([self.path(name) for name in names])
            return
        for name in names:
            Path(self.path(name)).unlink(missing_ok=True)

    def all(self, work: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
        """Work on items, at the same time if they are in an object store."""
        return concurrently(work, items) if self.is_remote and len(items) > 1 else [work(item) for item in items]

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(f"{what}: {error}.", hint="Check permissions and room.") from error
