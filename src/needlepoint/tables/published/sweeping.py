"""Which objects of a published registry nothing refers to any more.

A pack that the published state does not refer to any more is listed in the manifest first, with the time, and removed
by a sweep some time later: readers may still have an earlier state. Objects that no manifest ever named, which a
publisher that was killed left behind, are removed a day after they were written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from needlepoint.stores import UNCLAIMED_AGE
from needlepoint.tables.published.manifest import RegistryManifest, Retired
from needlepoint.tables.published.place import MANIFEST, PublishedPlace

# Readers of an earlier state find its packs for this many seconds.
PACK_GRACE = 3600.0


@dataclass(frozen=True, slots=True)
class Swept:
    """The objects to remove, with their sizes, once this manifest is in place."""

    manifest: RegistryManifest
    names: Mapping[str, int]


def choose(place: PublishedPlace, manifest: RegistryManifest, wanted: Set[str], *, packs: bool, now: bool) -> Swept:
    """What can be removed; without `packs` only checkpoints and deltas. With `now` no reader is waited for."""
    clock = time.time()
    known = {each.name: each.at for each in manifest.retired}
    removed: dict[str, int] = {}
    retired: list[Retired] = []
    for below in ("registry", *(("cards", "indexes") if packs else ())):
        for name, identity in place.listed(below):
            if name in wanted or name == MANIFEST or not name.endswith((".zst", ".pack")):
                continue
            unnamed = name not in known and below == "registry"
            at = identity.mtime_ns / 1e9 if unnamed else known.get(name, clock)
            age = UNCLAIMED_AGE if unnamed else PACK_GRACE
            if now or at <= clock - age:
                removed[name] = identity.size
            elif not unnamed:
                retired.append(Retired(name, at))
    return Swept(replace(manifest, retired=tuple(retired)), removed)
