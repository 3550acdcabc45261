"""Files become artifacts: a card, bounds, sorted runs of entries for key indexes, and payloads for other kinds.

A pure function of the files, run in any pool. A setting bounds its memory: entries are collected over row groups and
files until the memory is used, sorted, and written as one run; then the next run begins.
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

from needlepoint.errors import FileChanged, NeedlepointError, NotParquet, PayloadDamaged, StoreError
from needlepoint.indexer.file_source import BATCH_ROWS, FileSource
from needlepoint.indexer.payloads import (
    IndexTask,
    PackFile,
    PackFiles,
    embedded_places,
    find_payloads,
    same_data,
)
from needlepoint.indexer.progress import TaskProgress
from needlepoint.indexer.range_merge import write_plain
from needlepoint.indexes import KeysAndRows, entry_kind, filtered_columns, kind, write_run, zone_maps
from needlepoint.indexes.key import entries_of, sorted_by_key
from needlepoint.objects import Identity, concurrently, identify, is_url
from needlepoint.parquet import FileDescription, describe
from needlepoint.parquet.write import Payload
from needlepoint.stores import Entries
from needlepoint.tables import plain, unit_of
from needlepoint.tables.registry import FileArtifact

# An entry is held as collected, as sorted, and as its sort order at the same time.
COPIES_OF_AN_ENTRY = 4
# What Arrow and the interpreter need besides the entries.
BASE_MEMORY = 64 << 20
# Cards of objects are read side by side, so many at a time: each is a wait for the store.
CARDS_AT_ONCE = 32
# Errors that stay until an operator fixes their cause.
_PERMANENT = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}
)


@dataclass(frozen=True, slots=True)
class FileTask:
    """One file to index. `indexes` are the ids of those that lack it, `trusted` the checksums of embedded payloads that
    are used as they are (payloads.py)."""

    file_id: int
    path: str
    identity: Identity
    indexes: frozenset[int]
    trusted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BuildTask:
    """Files that are read together, so that their entries share runs.

    With `to_merge` runs are plain sorted entries, which `range_merge.py` merges; else a store can ingest them.
    """

    files: tuple[FileTask, ...]
    indexes: tuple[IndexTask, ...]
    memory: int
    to_merge: bool = False

    @property
    def entry_indexes(self) -> tuple[IndexTask, ...]:
        return tuple(each for each in self.indexes if each.keeps_entries)

    @property
    def payload_indexes(self) -> tuple[IndexTask, ...]:
        return tuple(each for each in self.indexes if not each.keeps_entries)


@dataclass(frozen=True, slots=True)
class Failure:
    """With `index_id`, only that index could not be built for the file. A `passing` failure may not occur again."""

    path: str
    reason: str
    file_id: int | None = None
    index_id: int | None = None
    passing: bool = False


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Sorted entries of one index in a file, to be ingested or merged. A plain run has its bytes and a checksum, since
    it may wait for long."""

    index_id: int
    name: str
    path: str
    bytes: int = 0
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a task made. It has no effect until it is committed. `entries` are the numbers of entries, by index and
    then by file, in the runs of files that are committed already."""

    files: tuple[FileArtifact, ...] = ()
    runs: tuple[EntryRun, ...] = ()
    packs: tuple[PackFile, ...] = ()
    failures: tuple[Failure, ...] = ()
    entries: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    def moved(self, directory: Path) -> Artifact:
        """The artifact with its files in another directory."""
        return replace(
            self,
            runs=tuple(replace(run, path=str(directory / Path(run.path).name)) for run in self.runs),
            packs=tuple(replace(pack, path=str(directory / Path(pack.path).name)) for pack in self.packs),
        )

    @property
    def finished_files(self) -> int:
        """Files that need no other try in this build."""
        return len(self.files) + sum(each.index_id is None for each in self.failures)


@dataclass(slots=True)
class _RunWriter:
    """Collects the entries of one index and writes them in sorted runs of limited size."""

    task: IndexTask
    directory: Path
    capacity: int
    to_merge: bool
    parts: list[Entries] = field(default_factory=list)
    held: int = 0
    runs: list[EntryRun] = field(default_factory=list)

    def add(self, entries: Entries) -> None:
        self.parts.append(entries)
        self.held += len(entries)
        if self.held >= self.capacity:
            self.flush()

    def flush(self) -> None:
        if self.held == 0:
            return
        name = uuid.uuid4().hex
        width = self.task.key_bytes
        entries = sorted_by_key(self.parts, width)
        checksum = ""
        if self.to_merge:
            path = self.directory / f"{name}.run"
            checksum = write_plain(path, entries)
        else:
            path = self.directory / f"{name}.sst"
            write_run(path, entries, name, width, self.task.run_format)
        self.runs.append(EntryRun(self.task.index_id, name, str(path), entries.nbytes, checksum))
        self.parts, self.held = [], 0


def build(task: BuildTask, directory: Path) -> Artifact:
    """Index the files of a task; runs and packs are written to the directory. A file that cannot be indexed fails
    alone, with the reason."""
    keyed = task.entry_indexes
    writers = [_RunWriter(index, directory, capacity(task.memory, keyed, index), task.to_merge) for index in keyed]
    packs, progress = PackFiles(directory), TaskProgress(directory)
    files: list[FileArtifact] = []
    failures: list[Failure] = []
    for file, description in _descriptions(task.files):
        try:
            artifact, refused = _index_file(file, description(), writers, task, packs, progress)
            files.append(artifact)
            failures += refused
        except StoreError:
            raise  # the next file would fail too
        except NeedlepointError as error:
            failures.append(Failure(file.path, str(error), file.file_id, passing=may_pass(error)))
        except OSError as error:
            failures.append(Failure(file.path, f"{file.path}: {error}", file.file_id, passing=may_pass(error)))
        progress.end()
    for writer in writers:
        writer.flush()
    runs = tuple(itertools.chain.from_iterable(writer.runs for writer in writers))
    return Artifact(tuple(files), runs, packs.close(), tuple(failures))


def may_pass(error: BaseException | None) -> bool:
    """Whether the file may be indexed at another time: it changed meanwhile, or the disk is full or does not answer.

    >>> may_pass(OSError(errno.ENOSPC, "no space")), may_pass(OSError("corrupt"))  # which is what pyarrow raises
    (True, False)
    """
    if isinstance(error, OSError):
        return error.errno is not None and error.errno not in _PERMANENT
    return isinstance(error, FileChanged) or (isinstance(error, NotParquet) and may_pass(error.__cause__))


def capacity(memory: int, indexes: Sequence[IndexTask], index: IndexTask) -> int:
    """How many entries of an index fit into its share of the memory."""
    entry = index.key_bytes + 8
    return max(BATCH_ROWS, (memory - BASE_MEMORY) // (len(indexes) * entry * COPIES_OF_AN_ENTRY))


def _descriptions(files: Sequence[FileTask]) -> Iterator[tuple[FileTask, Callable[[], FileDescription]]]:
    """Each file, and a function that describes it or raises the reason why it cannot."""
    if not files or not is_url(files[0].path):
        for file in files:
            yield file, functools.partial(describe, file.path)
        return
    for start in range(0, len(files), CARDS_AT_ONCE):
        some = files[start : start + CARDS_AT_ONCE]
        yield from zip(some, concurrently(_promised, some), strict=True)


def _promised(file: FileTask) -> Callable[[], FileDescription]:
    future: Future[FileDescription] = Future()
    try:
        future.set_result(describe(file.path, file.identity))
    except (NeedlepointError, OSError) as error:
        future.set_exception(error)
    return future.result


def _index_file(
    file: FileTask,
    description: FileDescription,
    writers: Sequence[_RunWriter],
    task: BuildTask,
    packs: PackFiles,
    progress: TaskProgress,
) -> tuple[FileArtifact, list[Failure]]:
    """The artifact, and which indexes could not be built for this file."""
    card = description.card
    if card.identity != file.identity:
        raise FileChanged(file.path, "changed since it was listed", hint="Run sync again.")
    if card.num_rows >= 1 << 32:
        raise NotParquet(file.path, f"has {card.num_rows} rows, more than 2^32", hint="Split it into smaller files.")
    progress.begin(card.num_rows * len(file.indexes))
    source = FileSource(file.path, file.identity, description, task.memory, file.trusted, progress.saw)
    entries = {}
    to_embed: list[Payload] = []
    own: set[str] = set()
    wanted = [each for each in writers if each.task.index_id in file.indexes]
    for writer in sorted(wanted, key=lambda each: each.task.index_id):
        added = _add_entries(source, file.file_id, writer)
        entries[writer.task.index_id] = added.entries
        to_embed += added.to_embed
        own |= added.own
    found = find_payloads(source, file.indexes, task.payload_indexes, packs, to_embed)
    # Every read of an object was on the condition that it is this version.
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


@dataclass(frozen=True, slots=True)
class _FileEntries:
    """What one file added to an index: how many entries, what is still to be embedded in the file, and the checksums
    of payloads in it that are equal to what was built."""

    entries: int = 0
    to_embed: tuple[Payload, ...] = ()
    own: frozenset[str] = frozenset()


def _add_entries(file: FileSource, file_id: int, writer: _RunWriter) -> _FileEntries:
    task = writer.task
    if not all(map(file.description.card.has, task.columns)):
        return _FileEntries()  # an older file without this column: all its values are NULL
    carried = _carried_keys(file, task)
    keep = task.embed and carried is None
    kept: list[KeysAndRows] = []
    count = 0
    for keys, rows in _keys(file, task, writer.directory) if carried is None else carried:
        writer.add(entries_of(keys, rows, file_id))
        count += len(rows)
        if keep:
            kept.append((keys, rows))
    if not keep:
        return _FileEntries(count)
    built = entry_kind(task.kind).pack(task.fields, kept)
    there = task.embedded(file.description)
    if there is not None and file.holds(there, built.payload):
        return _FileEntries(count, own=frozenset({there.checksum}))
    return _FileEntries(count, to_embed=(task.payload(built),))


def _keys(file: FileSource, task: IndexTask, scratch: Path) -> Iterator[KeysAndRows]:
    return entry_kind(task.kind).keys(task.source(file, scratch))


def _carried_keys(file: FileSource, task: IndexTask) -> Sequence[KeysAndRows] | None:
    """Keys and row numbers that the file itself carries, without reading data pages; None when it does not."""
    found = task.embedded(file.description)
    data = None if found is None or not file.trusts(found) else file.payload(found)
    if data is None:
        return None
    try:
        return entry_kind(task.kind).unpack(data, task.fields, file.description.card.num_rows)
    except PayloadDamaged:
        return None


def finish_file(indexes: Sequence[IndexTask], memory: int, path: str) -> int:
    """Embed indexes in a file that no reader knows yet. Returns its new size.

    What cannot be built is left out: the indexer will report it.
    """
    description = describe(path)
    file = FileSource(path, description.card.identity, description, memory)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:  # as in payloads.py
        scratch = Path(directory)
        keyed = [each for each in indexes if each.keeps_entries and all(map(description.card.has, each.columns))]
        keys = [each.payload(kind(each.kind).build(each.source(file, scratch))) for each in keyed]
        others = [each for each in indexes if not each.keeps_entries]
        wanted = frozenset(each.index_id for each in others)
        return find_payloads(file, wanted, others, PackFiles(scratch), keys).description.card.identity.size


def describe_again(file: FileTask, identity: Identity, fingerprint: str, indexes: Sequence[IndexTask]) -> FileArtifact:
    """Of a file that was written to and has the same rows: places of embedded payloads may have moved."""
    description = same_data(file.path, identity, fingerprint)
    places = embedded_places(description, [each for each in indexes if not each.keeps_entries], file.trusted)
    return replace(_described(file.file_id, description), was=file.identity, places=places)


def _described(file_id: int, description: FileDescription) -> FileArtifact:
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
