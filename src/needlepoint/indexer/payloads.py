"""Payloads of one file: taken from the file where it carries them, else built.

embedded index, declared as embedded    its place in the file is all there is to know
embedded index, declared as external    its bytes are copied into a pack, and no data page is read
no such index in the file               the columns are read and the payload is built

Anyone can put an index into a file, with a matching fingerprint and checksum, and leave rows out of it. So an embedded
payload is used only if it is trusted: this lake embedded it, or the setting `trust_embedded` trusts all. Other payloads
are built from the data; if the file carries equal bytes already, it is not written to.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from needlepoint.errors import FileChanged, NeedlepointError, NotIndexable, ObjectStoreError
from needlepoint.indexer.file_source import FileSource, trusts
from needlepoint.indexes import ColumnSource, IndexPayload, entry_kind, is_current, keeps_entries, kind
from needlepoint.objects import Identity
from needlepoint.parquet import FileDescription, describe
from needlepoint.parquet.write import EmbeddedEntry, Payload, embed, place, remove
from needlepoint.stores import PackWriter
from needlepoint.tables import Index, Place


@dataclass(frozen=True, slots=True)
class IndexTask:
    """An index to build. `options` is the JSON of those that its kind knows, `run_format` what its store ingests."""

    index_id: int
    kind: str
    fields: tuple[pa.Field, ...]
    options: str
    embed: bool
    run_format: str = "sst"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)

    @property
    def keeps_entries(self) -> bool:
        return keeps_entries(self.kind)

    @property
    def key_bytes(self) -> int:
        return entry_kind(self.kind).key_bytes(self.fields)

    def source(self, file: FileSource, scratch: Path) -> ColumnSource:
        return file.columns(self.fields, json.loads(self.options), scratch)

    def payload(self, built: IndexPayload) -> Payload:
        """What is embedded in a file."""
        counts = {} if self.keeps_entries else {_ENTRIES: built.entries}
        return Payload(
            self.kind, self.columns, kind(self.kind).version, built.payload, {**self.declaration(), **counts}
        )

    def declaration(self) -> dict[str, Any]:
        """What an embedded index was built by, which must be equal for it to be used."""
        if self.keeps_entries:
            return entry_kind(self.kind).declaration(self.fields)
        return {"declared": json.loads(self.options), "types": [str(each.type) for each in self.fields]}

    def embedded(self, description: FileDescription) -> EmbeddedEntry | None:
        """The index in the file that is what this task would build."""
        found = description.embedded.find(self.kind, *self.columns)
        if found is None or {**found.options, **self.declaration()} != found.options:
            return None
        return found if is_current(self.kind, found.version) else None


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack that was written, to be moved into the store."""

    index_id: int
    path: str


@dataclass(slots=True)
class PackFiles:
    """The packs of one task, one for each external index that has payloads."""

    scratch: Path
    writers: dict[int, PackWriter] = field(default_factory=dict)

    def add(self, task: IndexTask, data: bytes) -> Place:
        writer = self.writers.get(task.index_id)
        if writer is None:
            writer = self.writers[task.index_id] = PackWriter(self.scratch)
        payload = Payload(task.kind, task.columns, kind(task.kind).version, data)
        (entry,), (stored,) = place([payload], writer.position, "")
        writer.add(stored)
        return _place(entry, writer.name)

    def close(self) -> tuple[PackFile, ...]:
        for writer in self.writers.values():
            writer.close()
        return tuple(PackFile(index_id, str(writer.path)) for index_id, writer in self.writers.items())


@dataclass(frozen=True, slots=True)
class FilePayloads:
    """Places and numbers of entries, by index; the description is a new one when the file was written to. `own` are
    the checksums of embedded payloads that were built here, or are equal to what was built.

    `refused` gives the indexes that cannot be built for this file. They have no place, and the file counts as indexed:
    another try would fail too, and a query takes all rows of the file.
    """

    places: Mapping[int, Place]
    entries: Mapping[int, int]
    description: FileDescription
    refused: Mapping[int, str]
    own: frozenset[str] = frozenset()


def find_payloads(
    file: FileSource,
    lacking: frozenset[int],
    tasks: Sequence[IndexTask],
    packs: PackFiles,
    more: Sequence[Payload],
) -> FilePayloads:
    """Payloads for the indexes that lack the file, built where the file does not carry them. `more` is embedded too.

    The other tasks are of embedded indexes: if the file is written to, their places are returned again.
    """
    places: dict[int, Place] = {}
    entries: dict[int, int] = {}
    made: dict[int, Payload] = {}
    refused: dict[int, str] = {}
    own: set[str] = set()
    for task in (each for each in tasks if each.index_id in lacking):
        carried = task.embedded(file.description)
        trusted = carried if carried is not None and file.trusts(carried) else None
        if trusted is not None and task.embed and file.is_sound(trusted):
            places[task.index_id], entries[task.index_id] = _place(trusted), _entries(trusted)
            continue
        try:
            copied = None if trusted is None else _copied(file, trusted)
            built = copied or _built(file, task, packs.scratch)
        except NotIndexable as error:
            refused[task.index_id] = f"{file.path}: {error}"
            entries[task.index_id] = 0
            continue
        entries[task.index_id] = built.entries
        if task.embed and carried is not None and file.holds(carried, built.payload):
            places[task.index_id] = _place(carried)
            own.add(carried.checksum)
        elif task.embed:
            made[task.index_id] = task.payload(built)
        else:
            places[task.index_id] = packs.add(task, built.payload)
    found = FilePayloads(places, entries, file.description, refused, frozenset(own))
    return _embed(file, tasks, found, made, more) if made or more else found


def _embed(
    file: FileSource,
    tasks: Sequence[IndexTask],
    found: FilePayloads,
    made: Mapping[int, Payload],
    more: Sequence[Payload],
) -> FilePayloads:
    """Embed payloads, those of `made` by index; all embedded payloads have new places then."""
    try:
        identity = embed(file.path, [*made.values(), *more], identity=file.identity)
    except (FileChanged, ObjectStoreError):
        raise
    except (NeedlepointError, OSError) as error:
        # A file that cannot be written to is indexed in every other way; what it lacks is tried again.
        why = dict.fromkeys(made or [0], f"{file.path}: nothing can be embedded: {error}")
        counts = {id: count for id, count in found.entries.items() if id not in made}
        return replace(found, entries=counts, refused={**found.refused, **why})
    description = same_data(file.path, identity, file.description.fingerprint)
    put = {(each.kind, each.columns) for each in (*made.values(), *more)}
    own = found.own | {each.checksum for each in description.embedded.entries if (each.kind, each.columns) in put}
    places = {**found.places, **embedded_places(description, tasks, file.trusted | own)}
    return replace(found, places=places, description=description, own=own)


def same_data(path: str, identity: Identity, fingerprint: str) -> FileDescription:
    """Describe a file again that was written to; FileChanged when it was replaced since."""
    description = describe(path, identity)
    if description.card.identity != identity or description.fingerprint != fingerprint:
        raise FileChanged(path, "was replaced while an index was embedded in it", hint="Run sync again.")
    return description


def embedded_places(
    description: FileDescription, tasks: Sequence[IndexTask], trusted: frozenset[str]
) -> dict[int, Place]:
    """Where the trusted payloads of embedded indexes are in a file."""
    found = {task.index_id: task.embedded(description) for task in tasks if task.embed}
    return {id: _place(entry) for id, entry in found.items() if entry is not None and trusts(trusted, entry)}


def strip_index(index: Index) -> Callable[[str, Identity], Identity]:
    """What removes an embedded index from a file."""

    def which(entry: EmbeddedEntry) -> bool:
        return (entry.kind, entry.columns) == (index.kind, index.columns)

    def strip(path: str, identity: Identity) -> Identity:
        try:
            return remove(path, which, identity=identity)
        except FileChanged:
            remove(path, which)  # sync has not seen this version of the file, and will see the next one
            return identity

    return strip


_ENTRIES = "entries"


def _entries(carried: EmbeddedEntry) -> int:
    found = carried.options.get(_ENTRIES)
    return found if type(found) is int else 0


def _copied(file: FileSource, carried: EmbeddedEntry) -> IndexPayload | None:
    """What the file carries; None when its bytes are damaged."""
    data = file.payload(carried)
    return None if data is None else IndexPayload(data, _entries(carried))


def _built(file: FileSource, task: IndexTask, scratch: Path) -> IndexPayload:
    # A kind may still write there when it returns: the scratch directory of the build is removed later.
    with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as directory:
        try:
            return kind(task.kind).build(task.source(file, Path(directory)))
        except (NeedlepointError, OSError, MemoryError):
            raise
        except Exception as error:  # a kind of another package can raise anything
            raise NotIndexable(f"a {task.kind} index fails: {type(error).__name__}: {error}.") from error


def _place(entry: EmbeddedEntry, pack: str = "") -> Place:
    return Place(pack, entry.offset, entry.length, entry.codec, entry.size, entry.checksum, entry.version)
