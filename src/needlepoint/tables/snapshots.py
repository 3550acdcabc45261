"""What a query sees: one snapshot of a table's files.

The registry says which files belong and what is known of them; the directory says which are there now, or for a table
of others, its log. A file that differs from its entry, or has none, is there without an id, and is scanned. Files of a
batch that is on its way are not there yet.
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

# A listing that takes longer than this many seconds serves for ten times as long as it took, if not longer.
SLOW_LISTING, TIMES_AS_LONG = 0.2, 10

# Paths whose partition values every reader takes alike: nothing escaped, no NULL.
_SIMPLE, _NULL = re.compile(r"[\w.=/\0-]*", re.ASCII), "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`partitions` are the typed partition values of the files in each directory, or for a table of others in each of
    `groups`, by path. `listable` says that a reader that lists the directory by itself sees these files, no others, and
    reads their partition values as we do. `refined` are the columns that have a finer unit, or another type, than the
    registry knows of: key indexes of them have other keys. `version` is that of the log, where there is one. The paths
    in `unfinished` are of files that were passed over, since they have no footer, in `unnamed` of those that no reader
    has a name for."""

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
        """What files with the same partition values share."""
        return self.groups[file.path] if self.groups else _directory(file.path)

    def partition_values(self, file: File) -> Mapping[str, pa.Scalar]:
        return self.partitions[self.partition(file)]

    @property
    def unknown(self) -> int:
        """Files the registry does not know as they are now."""
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
    """The files of a table now; `complete` and `unnamed` as in Listing. `log` is what the log says, where there is
    one."""

    known: _RegistryState
    files: tuple[File, ...]
    complete: bool
    log: TableVersion | None
    unnamed: tuple[str, ...] = ()


@dataclass(slots=True)
class _CachedSnapshot:
    """A snapshot, the files it was made of, whether who lists them sees the same, what the log said then, and what the
    registry did, or says since with no difference to the table."""

    snapshot: Snapshot
    files: tuple[File, ...]
    listable: bool
    began: float
    fresh_until: float
    known: _RegistryState
    log: TableVersion | None


class Snapshots:
    """The newest snapshot of each table, kept until the registry or the directory can have changed.

    Listing an object store takes a tenth of a second for each thousand objects, and has a price: `object_refresh` says
    for how long a listing of one serves. Who changes objects and syncs is seen at once all the same, since the registry
    changed; objects replaced or deleted without are noticed when they are read. Who asks for one table waits for
    nobody who lists another.
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

    def _lock(self, name: str) -> threading.Lock:
        return self._locks.setdefault(name, threading.Lock())

    def _stands(self, name: str, held: _CachedSnapshot, sequence: int) -> bool:
        """Whether the registry has not changed, or only in what is not about the table."""
        if held.known.sequence == sequence:
            return True
        now = self._known[name] = self._load(name)
        if replace(now, sequence=held.known.sequence) != held.known or now.files is not held.known.files:
            return False
        held.known = now
        return True

    def _serves_for(self, location: str, took: float) -> float:
        """For how many seconds after it began a look at the files is as good as new. Of a table with very many files no
        more than a tenth of the time goes into listing them."""
        refresh = self._object_refresh if is_url(location) else self._refresh
        return max(refresh, TIMES_AS_LONG * took) if refresh and took > SLOW_LISTING else refresh

    def forget(self) -> None:
        """List again at the next question, however fresh the listing is, and one that is being made."""
        self._forgotten = time.monotonic()

    def look(self, name: str) -> CurrentFiles:
        """What belongs to a table now."""
        with self._lock(name):
            return self._look(name)

    def _renew(self, name: str) -> Snapshot:
        began = time.monotonic()
        seen = self._look(name)
        known, files, log = seen.known, seen.files, seen.log
        fresh_until = began + self._serves_for(known.table.location, time.monotonic() - began)
        listable = seen.complete and _are_simple([file.path for file in files], known.table.partitions)
        held = self._snapshots.get(name)
        same = held is not None and held.known.sequence == known.sequence and held.log is log
        same = same and held is not None and held.snapshot.unnamed == seen.unnamed
        if held is not None and same and (held.listable, held.files) == (listable, files):
            snapshot = held.snapshot  # the same object, so that what was prepared for it still serves
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
        """Files that sync has not seen can have other columns and wider types; a query sees them all the same. But for
        those that are not finished, whose paths are returned. A file that the registry knows was finished once: without
        a footer it is damaged. What a log names is finished, too."""
        table = registered.table
        unsettled = [file for file in files if file.id is None] if log is None else log.unsettled(files, table)
        unknown = {(file.path, file.identity) for file in unsettled}
        if not unknown and log is None:
            return table, frozenset()
        # A log says what is taken of a file.
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
            listing = list_files(known.table.location) if log is None else Listing(log.files, complete=False)
            before, known = known, self._newest(name)
            if not listing.files and known.files and _is_gone(known.table.location):
                raise StoreError(
                    f"{known.table.location}, the directory of table '{name}', is gone.",
                    hint="Is its disk mounted? Drop the table if it is no more.",
                )
            if not _same_table(before, known):
                continue  # another table has the name now
            # A log says all of one version; no batches come into its table.
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
    """Those of columns that the table has: a log can take some away."""
    columns = frozenset(table.data_columns)
    return tuple(index for index in indexes if columns.issuperset(index.columns))


def on_their_way(batches: Sequence[Batch], known: Collection[str]) -> tuple[frozenset[str], dict[str, Identity]]:
    """What lies in a table's location and is not of the table: paths of files that are on their way into it, and paths
    and identities of those that batches took out."""
    pending = {move.target for batch in batches if not batch.is_committed for move in batch.moves}
    removed = {each.path: each.identity for batch in batches if batch.is_committed for each in batch.removals}
    return frozenset(pending.difference(known)), removed


def _is_gone(location: str) -> bool:
    """An object store has no directories that could be gone, and a bucket that is cannot be listed."""
    return not is_url(location) and not Path(location).is_dir()


def _are_simple(paths: Sequence[str], columns: tuple[str, ...]) -> bool:
    """Whether every reader takes the partition values of paths as we do: their directories are just those, in order.

    >>> _are_simple(["year=2024/a.parquet"], ("year",)), _are_simple(["year=a b/a.parquet"], ("year",))
    (True, False)
    """
    for directory in {_directory(path) for path in paths}:
        if tuple(part.partition("=")[0] for part in directory.split("/") if directory) != columns:
            return False
    together = "\0".join(paths)  # which no path has
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
    """What a listing that was begun at `before` would say if all of it were of the moment `now`.

    Where the registry has another entry for a path than it had, the entry is the newer one, unless others changed the
    file besides. Paths without an entry, which are neither on their way in nor out, can be files of others; or of a
    batch, if it was taken out or abandoned during the listing. The registry forgets such a file after it is deleted,
    and its name is not given again: what is still there after `now` was read is not a batch's.
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
