"""Which objects of a published registry are gone, or are not what was published."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from needlepoint.errors import FileError
from needlepoint.tables.published import copies
from needlepoint.tables.published.manifest import ManifestDamaged, RegistryManifest
from needlepoint.tables.published.place import MANIFEST, PublishedPlace


def damaged_objects(
    place: PublishedPlace,
    registry: str,
    sequence: int,
    packs: Collection[str],
    store: Path,
    only: Collection[str] | None = None,
) -> dict[str, str]:
    """What is wrong, by name. `registry` is the one that was published, now at this sequence number; `packs` are those
    that it refers to, which the store has too. The objects of another registry are not looked at, nor those outside
    `only`, if there is that."""
    try:
        found = place.manifest()
        assert found is not None
        manifest = RegistryManifest.from_bytes(place.path("registry"), found.data)
    except FileNotFoundError:
        return {MANIFEST: f"{place.path(MANIFEST)} is gone."}
    except ManifestDamaged as error:
        return {MANIFEST: error.message}
    if manifest.registry != registry:
        return {}
    checkpoint, deltas = manifest.checkpoint, manifest.deltas
    expected = {checkpoint.name: (checkpoint.size, checkpoint.checksum)}
    expected |= {each.name: (each.size, each.checksum) for each in deltas}
    if only is not None:
        expected = {name: expected[name] for name in expected if name in only}
        packs = [name for name in packs if name in only]
    with tempfile.TemporaryDirectory() as scratch:
        fetched = Path(scratch) / "fetched"
        damaged = {name: problem for name in expected if (problem := _problem(place, name, *expected[name], fetched))}
        there = {name for below in ("cards", "indexes") for name, _ in place.listed(below)} if packs else set()
        for name in sorted(packs):
            # What is not published yet is not there.
            if (store / name).exists() and (name in there or manifest.sequence == sequence):
                size, checksum = copies.checksum_of(store / name)
                if problem := _problem(place, name, size, checksum, fetched):
                    damaged[name] = problem
    return damaged


def _problem(place: PublishedPlace, name: str, size: int, checksum: str, fetched: Path) -> str:
    fetched.unlink(missing_ok=True)
    try:
        with suppress(FileError):  # it has another size
            place.get(name, size, fetched)
    except FileNotFoundError:
        return f"{place.path(name)} is gone."
    return "" if copies.is_intact(fetched, size, checksum) else f"{place.path(name)} is damaged."
