"""Payloads of one file for the index kinds of `indexes/`: taken from the file where it carries them, else built.

embedded index, declared as embedded    its place in the file is all there is to know
embedded index, declared as external    its bytes are copied into a pack, and no data page is read
no such index in the file               the columns are read and the payload is built

Anybody can put an index into a file, with a fingerprint and a checksum that fit, and leave rows out of it. So what a
file carries is taken only where it is believed: this lake put it there, or is told to trust all (`trust_embedded`).
Other payloads are built from the data like missing ones; where the file carries the very same bytes, it stays as it is.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import (
    FileChanged,
    NeedlepointError,
    NotIndexable,
    NotParquet,
    ObjectStoreError,
    PayloadDamaged,
)
from needlepoint.indexes.base import Built, Source
from needlepoint.indexes.kinds import kind
from needlepoint.objects import Identity, as_source, open_object
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.card.describe import Description, describe
from needlepoint.parquet.format import int96
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.write.embed import Payload, embed, place, remove
from needlepoint.parquet.write.embedded import Embedded, is_intact, read_payload
from needlepoint.stores.packs import PackWriter
from needlepoint.tables.model import ALL, Index, Place
from needlepoint.tables.schemas import scale, unit_of

BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class PayloadTask:
    """An index whose payloads are to be made. `options` is its JSON."""

    index_id: int
    kind: str
    fields: tuple[pa.Field, ...]
    options: str
    embed: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack that was written, to be taken into the store."""

    index_id: int
    path: str


@dataclass(slots=True)
class Packs:
    """The packs of one task, one for each external index that has something to keep."""

    scratch: Path
    writers: dict[int, PackWriter] = field(default_factory=dict)

    def add(self, task: PayloadTask, version: int, data: bytes) -> Place:
        writer = self.writers.get(task.index_id)
        if writer is None:
            writer = self.writers[task.index_id] = PackWriter(self.scratch)
        payload = Payload(task.kind, task.columns, version, data)
        (entry,), (stored,) = place([payload], writer.position, "")
        writer.add(stored)
        return _place(entry, writer.name)

    def close(self) -> tuple[Pack, ...]:
        for writer in self.writers.values():
            writer.close()
        return tuple(Pack(index_id, str(writer.path)) for index_id, writer in self.writers.items())


@dataclass(frozen=True, slots=True)
class Found:
    """Places and numbers of entries, by index; the description is another one when the file was written to. `own` are
    the checksums of payloads in the file that were made here, or that are the same as what was made.

    `refused` says which indexes cannot be made of this file. They have no place, and the file counts as indexed all the
    same: nothing is gained by trying again, and a query takes all its rows.
    """

    places: Mapping[int, Place]
    entries: Mapping[int, int]
    description: Description
    refused: Mapping[int, str]
    own: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PayloadFile:
    """One file to make payloads of. `believed` are the checksums of payloads in it that are taken; ALL is each."""

    path: str
    identity: Identity
    description: Description
    memory: int
    believed: frozenset[str] = frozenset()


def find_payloads(
    file: PayloadFile,
    lacking: frozenset[int],
    tasks: Sequence[PayloadTask],
    packs: Packs,
    more: Sequence[Payload],
) -> Found:
    """What the indexes that lack the file know of it, built where the file does not carry it. `more` is embedded too.

    Of the other tasks, which are of embedded indexes, the places are told again when the file was written to.
    """
    places: dict[int, Place] = {}
    entries: dict[int, int] = {}
    made: dict[int, Payload] = {}
    refused: dict[int, str] = {}
    own: set[str] = set()
    for task in (each for each in tasks if each.index_id in lacking):
        carried = _carried_by(file.description, task)
        taken = carried if carried is not None and believes(file.believed, carried) else None
        if taken is not None and task.embed and _is_sound(file, taken):
            places[task.index_id], entries[task.index_id] = _place(taken), _entries(taken)
            continue
        try:
            found = _copied(file, taken) if taken is not None else None
            built = found or _built(file, task, packs.scratch)
        except NotIndexable as error:
            refused[task.index_id] = f"{file.path}: {error}"
            entries[task.index_id] = 0
            continue
        entries[task.index_id] = built.entries
        if task.embed and carried is not None and holds(file.path, file.identity, carried, built.payload):
            places[task.index_id] = _place(carried)
            own.add(carried.checksum)
        elif task.embed:
            options = {**_declared(task), _ENTRIES: built.entries}
            made[task.index_id] = Payload(task.kind, task.columns, kind(task.kind).version, built.payload, options)
        else:
            places[task.index_id] = packs.add(task, kind(task.kind).version, built.payload)
    description = file.description
    if made or more:
        try:
            identity = embed(file.path, [*made.values(), *more], identity=file.identity)
        except (FileChanged, ObjectStoreError):
            raise
        except (NeedlepointError, OSError) as error:
            # A file that cannot be written to is indexed in every other way; what it lacks is tried again.
            refused |= dict.fromkeys(made or [0], f"{file.path}: nothing can be embedded: {error}")
            counts = {id: count for id, count in entries.items() if id not in made}
            return Found(places, counts, description, refused, frozenset(own))
        description = same_data(file.path, identity, file.description.fingerprint)
        put = {(each.kind, each.columns) for each in (*made.values(), *more)}
        own |= {each.checksum for each in description.embedded.entries if (each.kind, each.columns) in put}
        places |= carried_places(description, tasks, file.believed | own)
    return Found(places, entries, description, refused, frozenset(own))


def same_data(path: str, identity: Identity, fingerprint: str) -> Description:
    """A file that was changed here, described anew; FileChanged when it is another's by now."""
    description = describe(path, identity)
    if description.card.identity != identity or description.fingerprint != fingerprint:
        raise FileChanged(path, "was replaced while something was put into it", hint="Run sync again.")
    return description


def believes(believed: frozenset[str], entry: Embedded) -> bool:
    return ALL in believed or entry.checksum in believed


def holds(path: str, identity: Identity, entry: Embedded, data: bytes) -> bool:
    """Whether the file carries these very bytes: then they need not be put into it."""
    if entry.size != len(data):
        return False
    try:
        with open_object(path, identity) as opened:
            opened.check_unchanged(identity)
            return read_payload(opened, entry) == data
    except PayloadDamaged:
        return False


def carried_places(
    description: Description, tasks: Sequence[PayloadTask], believed: frozenset[str]
) -> dict[int, Place]:
    """Where the embedded ones of the indexes lie in a file, those that are believed."""
    found = {task.index_id: _carried_by(description, task) for task in tasks if task.embed}
    return {id: _place(entry) for id, entry in found.items() if entry is not None and believes(believed, entry)}


def strip_index(index: Index) -> Callable[[str, Identity], Identity]:
    """What takes an embedded index out of a file."""

    def which(entry: Embedded) -> bool:
        return (entry.kind, entry.columns) == (index.kind, index.columns)

    def strip(path: str, identity: Identity) -> Identity:
        try:
            return remove(path, which, identity=identity)
        except FileChanged:
            remove(path, which)  # a file that sync has not seen; it will be another one to it anyway
            return identity

    return strip


_ENTRIES = "entries"


def _declared(task: PayloadTask) -> dict[str, Any]:
    """What an embedded index was built by, which must be the same for it to be used."""
    return {"declared": json.loads(task.options), "types": [str(each.type) for each in task.fields]}


def _carried_by(description: Description, task: PayloadTask) -> Embedded | None:
    """The index in the file that is what the task would build."""
    found = description.embedded.find(task.kind, *task.columns)
    if found is None or {**found.options, **_declared(task)} != found.options:
        return None
    return found if found.version == kind(task.kind).version else None


def _entries(carried: Embedded) -> int:
    found = carried.options.get(_ENTRIES)
    return found if type(found) is int else 0


def _is_sound(file: PayloadFile, carried: Embedded) -> bool:
    with open_object(file.path, file.identity) as opened:
        opened.check_unchanged(file.identity)
        return is_intact(opened, carried)


def _copied(file: PayloadFile, carried: Embedded) -> Built | None:
    """What the file carries; None when its bytes are damaged."""
    try:
        with open_object(file.path, file.identity) as opened:
            opened.check_unchanged(file.identity)
            return Built(read_payload(opened, carried), _entries(carried))
    except PayloadDamaged:
        return None


def _built(file: PayloadFile, task: PayloadTask, scratch: Path) -> Built:
    # What a kind still writes there goes with the scratch directory itself.
    with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as directory:
        try:
            return kind(task.kind).build(_source(file, task, Path(directory)))
        except (NeedlepointError, OSError, MemoryError):
            raise
        except Exception as error:  # whatever a kind of another package does
            raise NotIndexable(f"a {task.kind} index fails: {type(error).__name__}: {error}.") from error


def _place(entry: Embedded, pack: str = "") -> Place:
    return Place(pack, entry.offset, entry.length, entry.codec, entry.size, entry.checksum, entry.version)


def _source(file: PayloadFile, task: PayloadTask, scratch: Path) -> Source:
    card = file.description.card
    return Source(
        fields=task.fields,
        options=json.loads(task.options),
        rows=card.num_rows,
        row_group_rows=card.row_group_rows,
        page_rows={name: _page_rows(card, name) for name in task.columns},
        batches=lambda: _batches(file, task.fields),
        memory=file.memory,
        scratch=scratch,
    )


def _page_rows(card: FileCard, column: str) -> Int64Array:
    """The first rows of a column's pages, counted through the file, and the number of rows at the end."""
    if not card.has(column):
        return np.array([0, card.num_rows], np.int64)
    leaf = card.find(column).first_leaf
    return np.unique(np.append(card.pages.first_row[card.leaf_pages(leaf)], card.num_rows))


def _batches(file: PayloadFile, fields: tuple[pa.Field, ...]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema(fields)
    card = file.description.card
    present = [each.name for each in fields if card.has(each.name)]
    if not present:
        for start in range(0, card.num_rows, BATCH_ROWS):
            count = min(BATCH_ROWS, card.num_rows - start)
            yield pa.RecordBatch.from_arrays([pa.nulls(count, each.type) for each in fields], schema=schema)
        return
    try:
        source, unit = as_source(file.path, file.identity), int96.UNIT
        with pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20, coerce_int96_timestamp_unit=unit) as opened:
            int96.check(file.path, file.identity, opened.schema, present)
            for batch in opened.iter_batches(BATCH_ROWS, columns=present, use_threads=False):
                arrays = [
                    plain_array(batch.column(each.name), each.type)
                    if each.name in present
                    else pa.nulls(batch.num_rows, each.type)
                    for each in fields
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowException, OSError) as error:
        names = ", ".join(itertools.islice(present, 5))
        raise NotParquet(file.path, f"columns {names} cannot be read: {error}") from error


def plain_array(values: pa.Array, type: pa.DataType) -> pa.Array:
    """Of the table's type, whatever the file calls it."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if values.type.equals(type):
        return values
    try:
        return values.cast(type)
    except pa.ArrowInvalid:
        factor = scale(unit_of(values.type), type)
        if factor is None or factor == 1:
            raise
        return _clamped(values, factor).cast(type)


def _clamped(values: pa.Array, factor: int) -> pa.Array:
    """In a finer unit, those that it has no room for as the last there are: that costs reading a row too many."""
    numbers, most = values.cast(pa.int64()).fill_null(0).to_numpy(), (2**63 - 1) // factor
    scaled = np.clip(numbers, -most, most) * factor
    scaled[numbers > most], scaled[numbers < -most] = 2**63 - 1, -(2**63)
    return pa.array(scaled, mask=values.is_null().to_numpy(zero_copy_only=False))
