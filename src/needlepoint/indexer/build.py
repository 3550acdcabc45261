"""Files become artifacts: a card, bounds, for each key index sorted runs of entries, and payloads of other kinds.

A pure function of the files, run in worker processes. What it holds in memory is bounded by a setting: entries are
collected over row groups and files until the memory is used, sorted, and written as one run; then the next run begins.
"""

from __future__ import annotations

import errno
import functools
import itertools
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import FileChanged, NeedlepointError, NotParquet, PayloadDamaged, StoreError
from needlepoint.indexer.payloads import (
    Pack,
    Packs,
    PayloadFile,
    PayloadTask,
    believes,
    carried_places,
    find_payloads,
    holds,
    plain_array,
    same_data,
)
from needlepoint.indexer.range_merge import write_plain
from needlepoint.indexes.key import payload
from needlepoint.indexes.key.kind import encode, key_bytes
from needlepoint.indexes.key.payload import KeysAndRows
from needlepoint.indexes.parquet_bloom import filtered_columns
from needlepoint.indexes.zone_map import zone_maps
from needlepoint.objects import Identity, as_source, concurrently, identify, is_url, open_object
from needlepoint.parquet.card.describe import Description, describe
from needlepoint.parquet.format import int96
from needlepoint.parquet.write.embed import Payload
from needlepoint.parquet.write.embedded import Embedded, read_payload
from needlepoint.stores.rocksdb import RocksKeyStore
from needlepoint.tables.registry.registry import FileArtifact
from needlepoint.tables.schemas import plain, unit_of

BATCH_ROWS = 1 << 16
# An entry is held as collected, as sorted, and as its sort order at the same time.
COPIES_OF_AN_ENTRY = 4
# What Arrow and the interpreter need besides the entries.
BASE_MEMORY = 64 << 20
# Bytes of a column that are asked for at once. From an object store several requests, side by side, bring them.
READ_AHEAD, REMOTE_READ_AHEAD = 1 << 20, 16 << 20
# Cards of objects are read side by side, so many at a time: each is a wait for the store.
CARDS_AT_ONCE = 32
# Until somebody does something about it.
_FOR_GOOD = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}
)


@dataclass(frozen=True, slots=True)
class FileTask:
    """One file to index; `indexes` are the ids of those that lack it, `believed` the checksums of payloads inside it
    that are taken (payloads.py)."""

    file_id: int
    path: str
    identity: Identity
    indexes: frozenset[int]
    believed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class IndexTask:
    """A key index. With `embed` its keys of each file are kept in the file too, from where it can be built again."""

    index_id: int
    column: str
    type: pa.DataType
    embed: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """Files that are read in one go, so that their entries share runs.

    With `to_merge` runs are plain sorted entries, which `ranges.py` merges; else a store can ingest them.
    """

    files: tuple[FileTask, ...]
    indexes: tuple[IndexTask, ...]
    payloads: tuple[PayloadTask, ...]
    scratch: str
    memory: int
    to_merge: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """With `index_id`, only that index could not be made of the file. What is `passing` may go well at another time."""

    path: str
    reason: str
    file_id: int | None = None
    index_id: int | None = None
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Sorted entries of one index in a file, to be ingested or merged; plain ones take so many bytes, with a checksum,
    since they may lie there for long."""

    index_id: int
    name: str
    path: str
    bytes: int = 0
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a task made. Nothing of it counts until it is committed. `entries` are those in the runs of files that are
    committed otherwise, by index and then by file."""

    files: tuple[FileArtifact, ...] = ()
    runs: tuple[Run, ...] = ()
    packs: tuple[Pack, ...] = ()
    failures: tuple[Failure, ...] = ()
    entries: Mapping[int, Mapping[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _RunWriter:
    """Collects the entries of one index and writes them in sorted runs of limited size."""

    task: IndexTask
    scratch: Path
    capacity: int
    to_merge: bool
    parts: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    held: int = 0
    runs: list[Run] = field(default_factory=list)

    def add(self, entries: npt.NDArray[np.uint8]) -> None:
        self.parts.append(entries)
        self.held += len(entries)
        if self.held >= self.capacity:
            self.flush()

    def flush(self) -> None:
        if self.held == 0:
            return
        name = uuid.uuid4().hex
        width = key_bytes(self.task.type)
        entries = _sorted(self.parts, width)
        checksum = ""
        if self.to_merge:
            path = self.scratch / f"{name}.run"
            checksum = write_plain(path, entries)
        else:
            path = self.scratch / f"{name}.sst"
            RocksKeyStore(self.scratch, width).write_run(path, entries, name)
        self.runs.append(Run(self.task.index_id, name, str(path), entries.nbytes, checksum))
        self.parts, self.held = [], 0


def build(task: Task) -> Artifact:
    """A file that cannot be indexed fails alone, with the reason."""
    scratch = Path(task.scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    writers = {
        index.index_id: _RunWriter(index, scratch, capacity(task.memory, task.indexes, index), task.to_merge)
        for index in task.indexes
    }
    packs = Packs(scratch)
    files: list[FileArtifact] = []
    failures: list[Failure] = []
    for file, description in _descriptions(task.files):
        try:
            artifact, refused = _index_file(file, description(), writers, task, packs)
            files.append(artifact)
            failures += refused
        except StoreError:
            raise  # the next file would fare no better
        except NeedlepointError as error:
            failures.append(Failure(file.path, str(error), file.file_id, passing=may_pass(error)))
        except OSError as error:
            failures.append(Failure(file.path, f"{file.path}: {error}", file.file_id, passing=may_pass(error)))
    for writer in writers.values():
        writer.flush()
    runs = tuple(itertools.chain.from_iterable(writer.runs for writer in writers.values()))
    return Artifact(tuple(files), runs, packs.close(), tuple(failures))


def may_pass(error: BaseException | None) -> bool:
    """Whether the file may be indexed at another time: it changed meanwhile, or the disk is full or does not answer.

    >>> may_pass(OSError(errno.ENOSPC, "no space")), may_pass(OSError("corrupt"))  # which is what pyarrow raises
    (True, False)
    """
    if isinstance(error, OSError):
        return error.errno is not None and error.errno not in _FOR_GOOD
    return isinstance(error, FileChanged) or (isinstance(error, NotParquet) and may_pass(error.__cause__))


def capacity(memory: int, indexes: Sequence[IndexTask], index: IndexTask) -> int:
    """How many entries of an index fit into its share of the memory."""
    entry = key_bytes(index.type) + 8
    return max(BATCH_ROWS, (memory - BASE_MEMORY) // (len(indexes) * entry * COPIES_OF_AN_ENTRY))


def _descriptions(files: Sequence[FileTask]) -> Iterator[tuple[FileTask, Callable[[], Description]]]:
    """Each file and what describes it, or raises why nothing can."""
    if not files or not is_url(files[0].path):
        for file in files:
            yield file, functools.partial(describe, file.path)
        return
    for start in range(0, len(files), CARDS_AT_ONCE):
        some = files[start : start + CARDS_AT_ONCE]
        yield from zip(some, concurrently(_promised, some), strict=True)


def _promised(file: FileTask) -> Callable[[], Description]:
    future: Future[Description] = Future()
    try:
        future.set_result(describe(file.path, file.identity))
    except (NeedlepointError, OSError) as error:
        future.set_exception(error)
    return future.result


def _index_file(
    file: FileTask, description: Description, writers: dict[int, _RunWriter], task: Task, packs: Packs
) -> tuple[FileArtifact, list[Failure]]:
    """The artifact, and which indexes could not be made of it alone."""
    card = description.card
    if card.identity != file.identity:
        raise FileChanged(file.path, "changed since it was listed", hint="Run sync again.")
    if card.num_rows >= 1 << 32:
        raise NotParquet(file.path, f"has {card.num_rows} rows, more than 2^32", hint="Split it into smaller files.")
    entries = {}
    kept: list[Payload] = []
    own: set[str] = set()
    for index_id in sorted(file.indexes & writers.keys()):
        writer = writers[index_id]
        entries[index_id] = 0
        if writer.task.column not in card.arrow_schema.names:
            continue  # an older file without this column: all its values are NULL
        carried = _carried_keys(file, description, writer.task)
        parts = []
        for keys, rows in _keys(file, writer.task) if carried is None else carried:
            writer.add(_entries(keys, rows, file.file_id))
            entries[index_id] += len(rows)
            if writer.task.embed and carried is None:
                parts.append((keys, rows))
        if writer.task.embed and carried is None:
            made = payload.payload(writer.task.column, writer.task.type, parts)
            there = _carried(description, writer.task)
            if there is not None and holds(file.path, file.identity, there, made.data):
                own.add(there.checksum)
            else:
                kept.append(made)
    payload_file = PayloadFile(file.path, file.identity, description, task.memory, file.believed)
    found = find_payloads(payload_file, file.indexes, task.payloads, packs, kept)
    # An object was read under the condition that it is this version.
    identity = found.description.card.identity
    if not identity.etag and identify(file.path) != identity:
        raise FileChanged(file.path, "changed while it was read", hint="Run sync again.")
    artifact = replace(
        _described(file.file_id, found.description),
        was=file.identity,
        entries={**entries, **found.entries},
        places=found.places,
        own=found.own | own,
    )
    return artifact, [Failure(file.path, why, index_id=index_id) for index_id, why in found.refused.items()]


def finish_file(keys: Sequence[IndexTask], payloads: Sequence[PayloadTask], memory: int, path: str) -> int:
    """Embed what is to be embedded into a file that nobody reads yet. Returns its size then.

    What cannot be made of it is left out: whoever indexes the file will say so.
    """
    description = describe(path)
    identity = description.card.identity
    file = FileTask(0, path, identity, frozenset())
    kept = [
        payload.payload(index.column, index.type, list(_keys(file, index)))
        for index in keys
        if index.column in description.card.arrow_schema.names
    ]
    with tempfile.TemporaryDirectory() as scratch:
        wanted = frozenset(each.index_id for each in payloads)
        payload_file = PayloadFile(path, identity, description, memory)
        return find_payloads(payload_file, wanted, payloads, Packs(Path(scratch)), kept).description.card.identity.size


def described_again(file: FileTask, identity: Identity, fingerprint: str, tasks: Sequence[PayloadTask]) -> FileArtifact:
    """Of a file that was changed and has the same rows: places of embedded payloads can be others now."""
    description = same_data(file.path, identity, fingerprint)
    places = carried_places(description, tasks, file.believed)
    return replace(_described(file.file_id, description), was=file.identity, places=places)


def _described(file_id: int, description: Description) -> FileArtifact:
    card, zones = description.card, zone_maps(description)
    units = {column: unit_of(plain(card.arrow_schema.field(column).type)) for column in zones}
    return FileArtifact(
        file_id=file_id,
        was=card.identity,
        identity=card.identity,
        rows=card.num_rows,
        row_groups=card.num_row_groups,
        pages=len(card.pages.offset),
        card=card.to_bytes(),
        bounds={column: zone.file_bounds() for column, zone in zones.items()},
        zones={column: zone.to_bytes() for column, zone in zones.items()},
        units={column: unit for column, unit in units.items() if unit is not None},
        blooms=filtered_columns(card),
        sample=description.sample,
    )


def _carried(description: Description, index: IndexTask) -> Embedded | None:
    found = description.embedded.find("key", index.column)
    return found if found is not None and payload.fits(found, index.type) else None


def _carried_keys(file: FileTask, description: Description, index: IndexTask) -> list[KeysAndRows] | None:
    """Keys and row numbers that the file itself carries, sparing its data pages; None when it does not."""
    found = _carried(description, index)
    if found is None or not believes(file.believed, found):
        return None
    try:
        with open_object(file.path, file.identity) as opened:
            opened.check_unchanged(file.identity)
            return payload.read(read_payload(opened, found), index.type, description.card.num_rows)
    except PayloadDamaged:
        return None


def _keys(file: FileTask, index: IndexTask) -> Iterator[KeysAndRows]:
    """Keys and row numbers of all values that are not NULL, a batch at a time."""
    first = 0
    read_ahead = REMOTE_READ_AHEAD if is_url(file.path) else READ_AHEAD
    try:
        source, unit = as_source(file.path, file.identity), int96.UNIT
        with pq.ParquetFile(
            source, pre_buffer=False, buffer_size=read_ahead, coerce_int96_timestamp_unit=unit
        ) as opened:
            int96.check(file.path, file.identity, opened.schema, [index.column])
            for batch in opened.iter_batches(BATCH_ROWS, columns=[index.column], use_threads=False):
                # By its name: pyarrow takes `a.b` for the field of a struct, too.
                values = plain_array(batch.column(index.column), index.type)
                rows = np.arange(first, first + len(values))
                first += len(values)
                if values.null_count:
                    rows = rows[values.is_valid().to_numpy(zero_copy_only=False)]
                    values = values.drop_null()
                if len(values):
                    yield encode(values), rows
    except (pa.ArrowException, OSError) as error:
        raise NotParquet(file.path, f"column '{index.column}' cannot be read: {error}") from error


def _entries(keys: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], file_id: int) -> npt.NDArray[np.uint8]:
    width = keys.shape[1]
    entries = np.empty((len(rows), width + 8), np.uint8)
    entries[:, :width] = keys
    locations = (np.uint64(file_id) << np.uint64(32)) | rows.astype(np.uint64)
    entries[:, width:] = locations.astype(">u8").view(np.uint8).reshape(-1, 8)
    return entries


def _sorted(parts: Sequence[npt.NDArray[np.uint8]], width: int) -> npt.NDArray[np.uint8]:
    entries = np.concatenate(parts)
    # Entries were collected in ascending order of location within a file and files come in ascending order of id, so
    # a stable sort by key is a sort of the whole entry.
    words = [np.ascontiguousarray(entries[:, at : at + 8]).view(">u8").ravel() for at in range(0, width, 8)]
    native = [word.astype(np.uint64) for word in words]
    order = np.argsort(native[0], kind="stable") if len(native) == 1 else np.lexsort(native[::-1])
    return entries[order]
