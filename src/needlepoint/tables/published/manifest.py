"""The manifest of a published registry: which objects are its checkpoint and its deltas.

    {"checksum": "…", "content": {"format": 1, "registry": "…", "schema": 7, "sequence": 120, "published_at": …,
     "checkpoint": {"name": …, "size": …, "checksum": …, "sequence": 90},
     "deltas": [{"name": …, "size": …, "checksum": …, "first": 90, "sequence": 118, "files": 40}, …],
     "retired": [{"name": …, "at": …}, …]}}

A delta has all rows of the files that changed after `first`, and the other tables whole. So it brings every state from
`first` on to its `sequence`, not only `first` itself, and one delta can replace several.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import xxhash

from needlepoint.errors import StoreError

FORMAT = 1


class ManifestDamaged(StoreError):
    """The manifest is not what was written."""


@dataclass(frozen=True, slots=True)
class RegistryCheckpoint:
    """An object with the whole registry."""

    name: str
    size: int
    checksum: str
    sequence: int


@dataclass(frozen=True, slots=True)
class RegistryDelta:
    """An object with the changes after `first` up to `sequence`; of so many `files`."""

    name: str
    size: int
    checksum: str
    first: int
    sequence: int
    files: int


@dataclass(frozen=True, slots=True)
class Retired:
    """An object that nothing refers to since a time: it is removed some time later."""

    name: str
    at: float


@dataclass(frozen=True, slots=True)
class RegistryManifest:
    """`registry` is the id of the registry, `schema` its format, and `sequence` the state that is published."""

    registry: str
    schema: int
    sequence: int
    published_at: float
    checkpoint: RegistryCheckpoint
    deltas: tuple[RegistryDelta, ...] = ()
    retired: tuple[Retired, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of the checkpoint and the deltas."""
        return self.checkpoint.size + sum(each.size for each in self.deltas)

    def names(self) -> frozenset[str]:
        """Of the objects that a reader of this manifest may fetch."""
        return frozenset([self.checkpoint.name, *(each.name for each in self.deltas)])

    def steps(self, state: int) -> tuple[RegistryDelta, ...] | None:
        """The deltas that bring a registry at this sequence number up to date; None if it needs the checkpoint.

        >>> old, new = RegistryDelta("d", 1, "", 80, 118, 4), RegistryDelta("e", 1, "", 118, 120, 1)
        >>> manifest = RegistryManifest("id", 7, 120, 0.0, RegistryCheckpoint("c", 9, "", 90), (old, new))
        >>> [[step.name for step in manifest.steps(state) or ()] for state in (80, 90, 118, 119, 120, 79)]
        [['d', 'e'], ['d', 'e'], ['e'], ['e'], [], []]
        """
        found: list[RegistryDelta] = []
        while state < self.sequence:
            usable = [each for each in self.deltas if each.first <= state < each.sequence]
            if not usable:
                return None
            best = max(usable, key=lambda each: (each.sequence, each.first))
            found.append(best)
            state = best.sequence
        return tuple(found) if state == self.sequence else None

    def to_bytes(self) -> bytes:
        content = {"format": FORMAT, **asdict(self)}
        return (json.dumps({"checksum": _checksum(content), "content": content}, indent=1) + "\n").encode()

    @classmethod
    def from_bytes(cls, where: str, data: bytes) -> RegistryManifest:
        """StoreError when it is of a later format, ManifestDamaged when it is not what was written."""
        try:
            found = json.loads(data)
            content, checksum = found["content"], found["checksum"]
            if checksum != _checksum(content):
                raise ValueError("the checksum differs")
            format = int(content.pop("format"))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ManifestDamaged(
                f"{where} is damaged: {error}.", hint="Open the lake for writing: it publishes the registry again."
            ) from None
        if format != FORMAT:
            raise StoreError(
                f"{where} has format {format}; this version of Needlepoint reads format {FORMAT}.",
                hint="Use a version of Needlepoint at least as new as the one that writes the lake.",
            )
        parts = {
            "checkpoint": RegistryCheckpoint(**content["checkpoint"]),
            "deltas": tuple(RegistryDelta(**each) for each in content["deltas"]),
            "retired": tuple(Retired(**each) for each in content["retired"]),
        }
        return cls(**content | parts)


def _checksum(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())
