"""What a query sees: one snapshot of a table's files.

The registry says which files belong to the table and what is known of them; the directory, or the log of a Delta or
Iceberg table, says which exist now. A file that differs from its entry, or has none, has no id in the snapshot and is
scanned. Files of an unfinished batch are not in it yet. For a copy of a published registry nothing is listed: its state
is the snapshot.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from needlepoint.errors import StoreError
from needlepoint.objects import Identity, is_url
from needlepoint.tables import changed_files, partitions
from needlepoint.tables.discovery import FileSchema, discover_schema, read_schemas, unfinished_of
from needlepoint.tables.file_stat import those_there
from needlepoint.tables.formats.table_formats import is_external, open_log
from needlepoint.tables.formats.table_version import TableLog, TableVersion
from needlepoint.tables.listing import Listing, list_files
from needlepoint.tables.model import Batch, File, Index, Table
from needlepoint.tables.registry.known_files import KnownFiles
from needlepoint.tables.registry.registry import Registry
from needlepoint.tables.schemas import refined, respelled

# A listing that takes longer than this many seconds stays fresh for at least ten times as long as it took.
SLOW_LISTING, TIMES_AS_LONG = 0.2, 10

# Paths whose partition values all readers parse alike: nothing escaped, no NULL.
_SIMPLE, _NULL = re.compile(r"[\w.=/\0-]*", re.ASCII), "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`partitions` are the typed partition values of the files in each directory, or with a log in each of `groups`, by
    path. `listable` says that a reader that lists the directory itself sees exactly these files, and the same partition
    values. `refined` are the columns with a finer unit, or another type, than in the registry: their key indexes have
    other keys. `version` is that of the log, where there is one. Files without a footer (`unfinished`) and with paths
    that some readers cannot name (`unnamed`) are left out."""

    table: Table
    files: tuple[File, ...]
    indexes: tuple[Index, ...]
    sequence: int
    partitions: Mapping[str, Mapping[str, pa.Scalar]]
    listable: bool
    refined: frozenset[str] = frozenset()
    groups: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    unfinished: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()

    def partition(self, file: File) -> str:
        """The group of files with the same partition values as this one."""
        return self.groups[file.path] if self.groups else _directory(file.path)

    def partition_values(self, file: File) -> Mapping[str, pa.Scalar]:
        return self.partitions[self.partition(file)]

    @property
    def unknown(self) -> int:
        """How many files are not in the registry with their present identity."""
        return sum(file.id is None for file in self.files)


@dataclass(frozen=True, slots=True)
class _RegistryState:
    """The registry's part of a snapshot."""

    table: Table
    files: Mapping[str, File]
    indexes: tuple[Index, ...]
    pending: frozenset[str]
    removed: Mapping[str, Identity]
    sequence: int


@dataclass(frozen=True, slots=True)
class CurrentFiles:
    """The present files of a table; `complete` and `unnamed` as in Listing. `log` is the current version of its log,
    where there is one."""

    known: _RegistryState
    files: tuple[File, ...]
    complete: bool
    log: TableVersion | None
    unnamed: tuple[str, ...] = ()


@dataclass(slots=True)
class _CachedSnapshot:
    """A snapshot and what it was made of: files, the version of the log, and the state of the registry, which is
    replaced by later states that do not change the table."""

    snapshot: Snapshot
    files: tuple[File, ...]
    listable: bool
    began: float
    fresh_until: float
    known: _RegistryState
    log: TableVersion | None


class Snapshots:
    """The newest snapshot of each table, kept until the registry or the directory can have changed.

    Listing an object store takes a tenth of a second for each thousand objects, and costs money: `object_refresh` says
    for how long a listing stays fresh. Changes that are synced are visible at once all the same, since the registry
    changed; objects replaced or deleted without a sync are noticed when they are read. There is one lock per table.
    """

    def __init__(
        self,
        registry: Registry,
        refresh: float,
        object_refresh: float = 0,
        files: KnownFiles | None = None,
        *,
        skip_unfinished: bool = False,
    ) -> None:
        self._skip_unfinished = skip_unfinished
        self._registry = registry
        self._files = files or KnownFiles(registry)
        self._refresh = refresh
        self._object_refresh = object_refresh
        self._known: dict[str, _RegistryState] = {}
        self._snapshots: dict[str, _CachedSnapshot] = {}
        self._logs: dict[int, tuple[float, TableLog]] = {}
        self._schemas: dict[int, dict[tuple[str, Identity], FileSchema]] = {}
        self._logged: dict[int, TableVersion | None] = {}
        self._locks: dict[str, threading.Lock] = {}  # by table, as everything above
        self._forgotten = float("-inf")

    def current(self, name: str) -> Snapshot:
        with self._lock(name):
            sequence = self._registry.sequence()
            held = self._snapshots.get(name)
            fresh = held is not None and held.began > self._forgotten and time.monotonic() < held.fresh_until
            if held is not None and fresh and self._stands(name, held, sequence):
                return held.snapshot
            return self._renew(name)

    def fresh(self, name: str) -> Snapshot | None:
        """The newest snapshot, if nothing must be listed or loaded for it."""
        held = self._snapshots.get(name)
        if held is None or held.began <= self._forgotten or time.monotonic() >= held.fresh_until:
            return None
        return held.snapshot if held.known.sequence == self._registry.sequence() else None

    def _lock(self, name: str) -> threading.Lock:
        return self._locks.setdefault(name, threading.Lock())

    def _stands(self, name: str, held: _CachedSnapshot, sequence: int) -> bool:
        """Whether the registry is unchanged, or its changes do not concern the table."""
        if held.known.sequence == sequence:
            return True
        now = self._known[name] = self._load(name)
        if replace(now, sequence=held.known.sequence) != held.known or now.files is not held.known.files:
            return False
        held.known = now
        return True

    def _serves_for(self, location: str, took: float, *, has_log: bool = False) -> float:
        """For how many seconds after it began a listing stays fresh. At most a tenth of the time is spent on listing a
        table with very many files."""
        if self._registry.is_followed and not has_log:
            return float("inf")  # the registry says which files there are
        refresh = self._object_refresh if is_url(location) else self._refresh
        return max(refresh, TIMES_AS_LONG * took) if refresh and took > SLOW_LISTING else refresh

    def forget(self) -> None:
        """List again at the next query, however fresh the last listing is, or one that is under way."""
        self._registry.renew()
        self._forgotten = time.monotonic()

    def look(self, name: str) -> CurrentFiles:
        """The files that belong to a table now."""
        with self._lock(name):
            return self._look(name)

    def _renew(self, name: str) -> Snapshot:
        began = time.monotonic()
        seen = self._look(name)
        known, files, log = seen.known, seen.files, seen.log
        fresh_until = began + self._serves_for(known.table.location, time.monotonic() - began, has_log=log is not None)
        listable = seen.complete and _are_simple([file.path for file in files], known.table.partitions)
        held = self._snapshots.get(name)
        same = held is not None and held.known.sequence == known.sequence and held.log is log
        same = same and held is not None and held.snapshot.unnamed == seen.unnamed
        if held is not None and same and (held.listable, held.files) == (listable, files):
            snapshot = held.snapshot  # the same object, so that what was prepared for it stays valid
        else:
            table, unfinished = self._with_unknown(known, files, log)
            there = tuple(file for file in files if file.path not in unfinished) if unfinished else files
            snapshot = Snapshot(
                table,
                there,
                _usable(known.indexes, table),
                known.sequence,
                _partitions(table, there) if log is None else log.values,
                listable and not unfinished,
                (refined if log is None else respelled)(known.table.schema, table.schema),
                {} if log is None else log.groups,
                "" if log is None else log.version,
                tuple(sorted(unfinished)),
                seen.unnamed,
            )
        self._snapshots[name] = _CachedSnapshot(snapshot, files, listable, began, fresh_until, known, log)
        return snapshot

    def _with_unknown(
        self, registered: _RegistryState, files: tuple[File, ...], log: TableVersion | None
    ) -> tuple[Table, frozenset[str]]:
        """The table with the columns and types of files that sync has not seen, and the paths of unfinished files,
        which are left out. A file in the registry was finished once: without a footer it is damaged. Files that a log
        names are finished too."""
        table = registered.table
        unsettled = [file for file in files if file.id is None] if log is None else log.unsettled(files, table)
        unknown = {(file.path, file.identity) for file in unsettled}
        if not unknown and log is None:
            return table, frozenset()
        # The log decides which columns of a file are read.
        known = self._schemas.get(table.id, {}) if self._logged.get(table.id) is log else {}
        fresh = [path for path, identity in unknown if (path, identity) not in known]
        found = read_schemas(table.location, fresh) if log is None else read_schemas(table.location, fresh, log.taken)
        known = {key: found[key[0]] if key[0] in found else known[key] for key in unknown}
        self._schemas[table.id], self._logged[table.id] = known, log
        schemas = {path: known[path, identity] for path, identity in sorted(unknown, key=str)}
        unfinished = frozenset[str]()
        if log is None:
            if self._skip_unfinished:
                unfinished = unfinished_of(schemas, registered.files)
            paths = [file.path for file in files if file.path not in unfinished]
            seen = discover_schema(table.location, schemas, paths, base=table)
        else:
            seen = log.discover(schemas, base=table)
        return replace(table, schema=seen.schema, partitions=seen.partitions, mixed=seen.mixed), unfinished

    def _look(self, name: str) -> CurrentFiles:
        known = self._newest(name)
        while True:
            log = self._log(known.table)
            if log is None and self._registry.is_followed:
                files = tuple(known.files[path] for path in sorted(known.files))
                return CurrentFiles(known, files, complete=False, log=None)
            listing = list_files(known.table.location) if log is None else Listing(log.files, complete=False)
            before, known = known, self._newest(name)
            if not listing.files and known.files and _is_gone(known.table.location):
                raise StoreError(
                    f"{known.table.location}, the directory of table '{name}', is gone.",
                    hint="Is its disk mounted? If it was deleted, drop the table.",
                )
            if not _same_table(before, known):
                continue  # the name belongs to another table now
            # A log describes one version completely, and no batches are published into its table.
            now = listing.files if known is before or log is not None else _caught_up(listing.files, before, known)
            files = _overlay(known, now)
            changed = {file.path: file.identity for file in files if file.id is None and file.path in known.files}
            if changed and changed_files.settle(self._registry, known.table, known.files, changed):
                before, known = known, self._newest(name)
                if not _same_table(before, known):
                    continue
                files = _overlay(known, now if log is not None else _caught_up(now, before, known))
            complete = listing.complete and [*listing.files] == [file.path for file in files]
            return CurrentFiles(known, files, complete, log, listing.unnamed)

    def _newest(self, name: str) -> _RegistryState:
        known = self._known.get(name)
        if known is None or known.sequence != self._registry.sequence():
            known = self._known[name] = self._load(name)
        return known

    def _log(self, table: Table) -> TableVersion | None:
        if not is_external(table.format):
            return None
        opened, log = self._logs.get(table.id, (float("-inf"), None))
        if log is None or opened <= self._forgotten:
            opened, log = self._logs[table.id] = time.monotonic(), open_log(table.format, table.location)
        return log.current()

    def _load(self, name: str) -> _RegistryState:
        with self._registry.snapshot():
            sequence = self._registry.sequence()
            table = self._registry.tables.get(name)
            files = self._files.of(table)
            batches = self._registry.batches.unfinished(table)
            indexes = tuple(self._registry.indexes.of(table))
        return _RegistryState(table, files, indexes, *on_their_way(batches, files.keys()), sequence)


def _same_table(before: _RegistryState, now: _RegistryState) -> bool:
    return (before.table.id, before.table.location) == (now.table.id, now.table.location)


def _usable(indexes: tuple[Index, ...], table: Table) -> tuple[Index, ...]:
    """The indexes whose columns the table has: a log can remove columns."""
    columns = frozenset(table.data_columns)
    return tuple(index for index in indexes if columns.issuperset(index.columns))


def on_their_way(batches: Sequence[Batch], known: Collection[str]) -> tuple[frozenset[str], dict[str, Identity]]:
    """Files in a table's location that do not belong to it: paths of files of unfinished batches, and paths and
    identities of files that batches removed."""
    pending = {move.target for batch in batches if not batch.is_committed for move in batch.moves}
    removed = {each.path: each.identity for batch in batches if batch.is_committed for each in batch.removals}
    return frozenset(pending.difference(known)), removed


def _is_gone(location: str) -> bool:
    """An object store has no directories, and a missing bucket cannot be listed."""
    return not is_url(location) and not Path(location).is_dir()


def _are_simple(paths: Sequence[str], columns: tuple[str, ...]) -> bool:
    """Whether all readers parse the partition values of paths alike: the directories are exactly these columns, in
    order.

    >>> _are_simple(["year=2024/a.parquet"], ("year",)), _are_simple(["year=a b/a.parquet"], ("year",))
    (True, False)
    """
    for directory in {_directory(path) for path in paths}:
        if tuple(part.partition("=")[0] for part in directory.split("/") if directory) != columns:
            return False
    together = "\0".join(paths)  # no path contains it
    return _NULL not in together and _SIMPLE.fullmatch(together) is not None


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


def _partitions(table: Table, files: tuple[File, ...]) -> dict[str, dict[str, pa.Scalar]]:
    fields = [table.schema.field(name) for name in table.partitions]
    return {
        directory: partitions.typed(f"{directory}/", fields, table.location)
        for directory in {_directory(file.path) for file in files}
    }


def _caught_up(listing: Mapping[str, Identity], before: _RegistryState, now: _RegistryState) -> dict[str, Identity]:
    """A listing that began at registry state `before`, brought to the state `now`.

    Where the entry of a path changed meanwhile, the entry is newer than the listing, unless another writer changed the
    file too. A path without an entry, which no unfinished batch adds or removes, belongs to another writer; or to a
    batch that was removed or abandoned during the listing. The registry forgets such a file after it is deleted, and
    never reuses its name: a file that still exists after `now` was read does not belong to a batch.
    """
    found = dict(listing)
    for path, file in now.files.items():
        was, listed = before.files.get(path), listing.get(path)
        if (listed is None and (was is None or was.id != file.id)) or (was is not None and was.identity == listed):
            found[path] = file.identity
    unknown = [
        path
        for path, identity in listing.items()
        if path not in now.files and path not in now.pending and now.removed.get(path) != identity
    ]
    there = those_there(now.table.location, unknown)
    for path in unknown:
        if path in there:
            found[path] = there[path]
        else:
            del found[path]
    return found


def _overlay(known: _RegistryState, listing: Mapping[str, Identity]) -> tuple[File, ...]:
    files = []
    for path, identity in listing.items():
        file = known.files.get(path)
        if file is not None and file.identity == identity:
            files.append(file)
        elif path not in known.pending and known.removed.get(path) != identity:
            files.append(File(path, identity))
    return tuple(files)
