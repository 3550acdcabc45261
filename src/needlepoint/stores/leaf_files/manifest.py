"""The manifest: which leaf files are the store, and which runs are in them. It is replaced as a whole, atomically.

One JSON object a line, so that any engine can read it; the last line is a checksum of the bytes before it:

    {"store": "needlepoint leaf files", "format": 2, "key_bytes": 8, "sequence": 7, "id": "…"}
    {"leaf": "0f….parquet", "group": "0f….parquet", "level": 2, "entries": 900000, "first": "…", "last": "…", "size": …, "directory": [o, n], "checksum": "…"}
    {"leaf": …, "bits": 94}
    {"removed": "e1….parquet", "at": 1790000000}
    {"runs": ["…", "…"]}
    {"checksum": "…"}

Format 1 has no leaves with `bits`, and is written where there are none: versions that know only it can read it.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from needlepoint.errors import StoreError
from needlepoint.stores.base import IndexDamaged
from needlepoint.stores.leaf_files.directory import checksum
from needlepoint.stores.leaf_files.key_form import KeyCut

STORE = "needlepoint leaf files"
FORMAT = 2
WHOLE_KEYS = 1  # the format of manifests whose leaves have all bits of their keys
Line = dict[str, Any]
# From a format to the next one; each takes and returns the lines of a manifest without its checksum.
UPGRADES: Mapping[int, Callable[[list[Line]], list[Line]]] = {WHOLE_KEYS: lambda lines: lines}

_HINT = "Queries scan without it; `needle repair` builds it again."


@dataclass(frozen=True, slots=True)
class LeafFile:
    """One leaf file: `first` and `last` are keys, `directory` is the offset and length of its directory, and `checksum`
    the directory's, which in turn has those of all pages. Leaves of one `group` come from one merge: their entries
    follow each other. It has the first `bits` bits of keys, in so many bytes; 0 are all."""

    name: str
    group: str
    level: int
    entries: int
    first: bytes
    last: bytes
    size: int
    directory: tuple[int, int]
    checksum: str
    bits: int = 0

    @property
    def cut(self) -> KeyCut:
        return KeyCut(self.bits or 8 * len(self.first))


@dataclass(frozen=True, slots=True)
class RemovedLeaf:
    """A leaf file that was merged into others at a time, in seconds since 1970."""

    name: str
    at: float


@dataclass(frozen=True, slots=True)
class LeafManifest:
    """`sequence` grows with each version, so that no two versions of a store are equal. `id` is the store's."""

    key_bytes: int
    sequence: int
    id: str
    leaves: tuple[LeafFile, ...] = ()
    removed: tuple[RemovedLeaf, ...] = ()
    runs: frozenset[str] = frozenset()

    def with_added(self, leaves: Iterable[LeafFile], runs: Iterable[str]) -> LeafManifest:
        """With further leaves and runs; itself if it has them already, as after a commit of unknown outcome."""
        added = tuple(leaf for leaf in leaves if not self._had(leaf))
        names = self.runs.union(runs)
        if not added and names == self.runs and self.sequence:
            return self
        return self._next(leaves=self.leaves + added, runs=names)

    def with_merged(self, inputs: Iterable[LeafFile], outputs: Iterable[LeafFile], now: float) -> LeafManifest | None:
        """With leaves in the place of those that they were merged from; itself if it has them already, as after a
        commit of unknown outcome; None if one of those that they were merged from is no longer here."""
        outputs = tuple(outputs)
        if outputs and all(map(self._had, outputs)):
            return self
        names = {leaf.name for leaf in inputs}
        kept = tuple(leaf for leaf in self.leaves if leaf.name not in names)
        if len(kept) + len(names) != len(self.leaves):
            return None
        removed = self.removed + tuple(RemovedLeaf(name, now) for name in sorted(names))
        return self._next(leaves=kept + outputs, removed=removed)

    def without_removed(self, names: Iterable[str]) -> LeafManifest:
        """Without the memory of leaf files that are deleted."""
        gone = set(names)
        return self._next(removed=tuple(each for each in self.removed if each.name not in gone))

    def _had(self, leaf: LeafFile) -> bool:
        """Whether the leaf is here, or was, and others have merged it since."""
        return any(leaf.name == each.name for each in self.leaves) or any(
            leaf.name == each.name for each in self.removed
        )

    def _next(self, **changes: Any) -> LeafManifest:
        return replace(self, sequence=self.sequence + 1, **changes)


def encode(manifest: LeafManifest) -> bytes:
    format = FORMAT if any(leaf.bits for leaf in manifest.leaves) else WHOLE_KEYS
    head = {"store": STORE, "format": format, "key_bytes": manifest.key_bytes, "sequence": manifest.sequence,
            "id": manifest.id}  # fmt: skip
    lines: list[Line] = [head, *map(_leaf_line, manifest.leaves)]
    lines += [{"removed": each.name, "at": each.at} for each in manifest.removed]
    lines.append({"runs": sorted(manifest.runs)})
    return sealed(lines)


def sealed(lines: Iterable[Line]) -> bytes:
    """The lines with their checksum behind them."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return body + json.dumps({"checksum": checksum(body)}).encode() + b"\n"


def _leaf_line(leaf: LeafFile) -> Line:
    return {"leaf": leaf.name, "group": leaf.group, "level": leaf.level, "entries": leaf.entries,
            "first": leaf.first.hex(), "last": leaf.last.hex(), "size": leaf.size, "directory": leaf.directory,
            "checksum": leaf.checksum, **({"bits": leaf.bits} if leaf.bits else {})}  # fmt: skip


def decode(data: bytes, where: str) -> LeafManifest:
    """IndexDamaged if a byte is not as written, StoreError for a format of a newer version."""
    try:
        lines = _lines(data)
        found = int(lines[0]["format"]) if lines[0]["store"] == STORE else 0
        if found > FORMAT:
            raise StoreError(
                f"{where} has format {found}; this version of Needlepoint reads format {FORMAT}.",
                hint="Use the version of Needlepoint that wrote it, or a newer one.",
            )
        while found in UPGRADES:
            lines = UPGRADES[found](lines)
            found += 1
        if found != FORMAT:
            raise ValueError(f"a manifest of format {found}")
        return _manifest(lines)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise IndexDamaged(f"{where} is damaged: {error}.", hint=_HINT) from error


def _lines(data: bytes) -> list[Line]:
    body, _, last = data.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    if not data.endswith(b"}\n") or json.loads(last) != {"checksum": checksum(body)}:
        raise ValueError("its checksum does not match")
    return [json.loads(line) for line in body.splitlines()]


def _manifest(lines: list[Line]) -> LeafManifest:
    head = lines[0]
    leaves = tuple(
        LeafFile(
            line["leaf"], line["group"], line["level"], line["entries"], bytes.fromhex(line["first"]),
            bytes.fromhex(line["last"]), line["size"], (line["directory"][0], line["directory"][1]), line["checksum"],
            line.get("bits", 0),
        )
        for line in lines
        if "leaf" in line
    )  # fmt: skip
    removed = tuple(RemovedLeaf(line["removed"], line["at"]) for line in lines if "removed" in line)
    runs = frozenset(name for line in lines if "runs" in line for name in line["runs"])
    return LeafManifest(head["key_bytes"], head["sequence"], head["id"], leaves, removed, runs)
