"""Events and directories in, a complete index out.

`sync` makes the registry agree with a table's directory, `look` with single files of it; `event_consumer.py` does what
events say. All end in `catch_up`, which builds what is missing for the files the registry lists, whoever put them
there: so a lost, repeated or late event changes nothing but the time at which a file becomes fast.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from needlepoint.errors import FileChanged, StoreError, UnknownName, UsageError
from needlepoint.indexer.backfill import Backfill, group
from needlepoint.indexer.build import (
    Artifact,
    Failure,
    FileTask,
    IndexTask,
    Task,
    build,
    capacity,
    described_again,
    finish_file,
    may_pass,
)
from needlepoint.indexer.payloads import PayloadTask
from needlepoint.indexer.pools import LocalPool, Pool, call_in_process, in_threads
from needlepoint.indexes.kinds import kind
from needlepoint.objects import Identity, concurrently, identify, is_url, last_touched
from needlepoint.parquet.card.describe import describe
from needlepoint.settings import Settings
from needlepoint.stores.base import IndexDamaged, KeyStore
from needlepoint.stores.packs import PackStore
from needlepoint.tables import changed_files
from needlepoint.tables.discovery import Discovered, discover_schema, read_schemas, unfinished_of
from needlepoint.tables.file_stat import those_there
from needlepoint.tables.formats.table_formats import is_of_others
from needlepoint.tables.formats.table_version import Logged
from needlepoint.tables.listing import belongs
from needlepoint.tables.model import ALL, File, Index, Table
from needlepoint.tables.registry.known_files import KnownFiles
from needlepoint.tables.registry.registry import Registry
from needlepoint.tables.snapshots import Snapshots, on_their_way

# Below this many rows starting worker processes takes longer than the work.
ROWS_WORTH_PROCESSES = 2_000_000
CARDS_PER_TASK = 64
# How often files are looked at that change while they are indexed, and indexes that begin anew while they are built.
MOST_LOOKS = 3

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and of how much."""


def no_progress(what: str, done: int, total: int) -> None:
    return


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where a large build runs, and of which index if not of all; without a pool, here, as every small one does."""

    pool: Pool | None = None
    index: str | None = None


HERE = Elsewhere()


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync or an event changed. Of `refused` files the store did not tell what they are: ask again later. Of
    `unfinished` ones, by path, nothing is known yet: they have no footer. No reader has a name for `unnamed` ones."""

    table: str
    added: int = 0
    changed: int = 0
    removed: int = 0
    indexed: int = 0
    failures: tuple[Failure, ...] = ()
    refused: tuple[Failure, ...] = ()
    unfinished: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()

    def then(self, later: SyncReport) -> SyncReport:
        """Both together."""
        return SyncReport(
            self.table,
            self.added + later.added,
            self.changed + later.changed,
            self.removed + later.removed,
            self.indexed + later.indexed,
            self.failures + later.failures,
            self.refused + later.refused,
            tuple(dict.fromkeys(self.unfinished + later.unfinished)),
            tuple(dict.fromkeys(self.unnamed + later.unnamed)),
        )


class Indexer:
    def __init__(
        self,
        registry: Registry,
        stores: Callable[[Index], KeyStore],
        packs: Callable[[Index], PackStore],
        scratch: Path,
        settings: Settings,
        progress: Progress = no_progress,
    ) -> None:
        self._registry = registry
        self._files = KnownFiles(registry)
        self._stores = stores
        self._packs = packs
        self._scratch = scratch
        self._settings = settings
        self._progress = progress

    def sync(self, name: str, elsewhere: Elsewhere = HERE) -> SyncReport:
        """Make the registry agree with the directory, or with the table's log, then index what lacks it."""
        table = self._registry.table(name)
        known = self._files.of(table)
        seen = Snapshots(self._registry, refresh=0, files=self._files).look(name)
        changed_files.note_unsampled(self._registry, table, known.values())
        paths = {file.path for file in seen.files}
        gone = [file for path, file in known.items() if path not in paths]
        fresh = [file for file in seen.files if file.id is None]
        report = self._take_in(table, known, fresh, gone, log=seen.log, elsewhere=elsewhere)
        return replace(report, unnamed=seen.unnamed)

    def build(self, name: str, elsewhere: Elsewhere) -> SyncReport:
        """What sync does, for large work. Files that changed since they were listed are listed again: those too that
        a task embedded something in and then died, for Spark to run it again."""
        report = SyncReport(name)
        for number in range(1, MOST_LOOKS + 1):
            seen = self.sync(name, elsewhere)
            table = self._registry.table(name)
            known = {f"{table.location}/{file.path}": file.identity for file in self._registry.files(table)}
            failed = {each.path: _identity(each.path) for each in seen.failures if each.path in known}
            changed = {path for path, now in failed.items() if now != known[path] and number < MOST_LOOKS}
            failures = tuple(each for each in seen.failures if each.path not in changed)
            report = report.then(replace(seen, failures=failures))
            if not changed:
                break
        return report

    def look(self, name: str, paths: Iterable[str]) -> SyncReport:
        """What sync does, for the files at these paths: each is asked what it is now, and nothing is listed.

        A file that is replaced or removed while it is indexed is looked at again. Of a table of others the log is read:
        files say nothing of what belongs to it.
        """
        if is_of_others(self._registry.table(name).format):
            return self.sync(name)
        report = SyncReport(name)
        left = {path for path in paths if belongs(path)}
        for number in range(1, MOST_LOOKS + 1):
            seen, left = self._look_once(name, left, last=number == MOST_LOOKS)
            report = report.then(seen)
            if not left:
                break
        return report

    def _look_once(self, name: str, paths: Collection[str], *, last: bool) -> tuple[SyncReport, set[str]]:
        """What was done, and the paths where something changed meanwhile."""
        table = self._registry.table(name)
        with self._registry.snapshot():
            known = self._files.of(table)
            pending, removed = on_their_way(self._registry.batches.unfinished(table), known.keys())
        found, refused = _identities(table, set(paths) - pending)
        if changed_files.settle(self._registry, table, known, found):
            with self._registry.snapshot():
                known = self._files.of(table)
                _, removed = on_their_way(self._registry.batches.unfinished(table), known.keys())
        gone = [known[path] for path, identity in found.items() if identity is None and path in known]
        fresh = [
            File(path, identity)
            for path, identity in found.items()
            if identity is not None
            and (path not in known or known[path].identity != identity)
            and removed.get(path) != identity
        ]
        prefix = f"{table.location}/"
        try:
            report = self._take_in(table, known, fresh, gone, frozenset(found))
        except FileChanged as error:  # while its schema was read; nothing was recorded
            busy = tuple(Failure(prefix + path, str(error)) for path in found) if last else ()
            return SyncReport(name, refused=(*refused, *busy)), set(found)
        failed = {each.path.removeprefix(prefix) for each in report.failures}
        now, _ = _identities(table, failed & found.keys())
        changed = {path for path, identity in now.items() if identity != found[path] and not last}
        failures = tuple(each for each in report.failures if each.path.removeprefix(prefix) not in changed)
        return replace(report, failures=failures, refused=refused), changed

    def _take_in(
        self,
        table: Table,
        known: Mapping[str, File],
        fresh: Sequence[File],
        gone: Sequence[File],
        only: frozenset[str] | None = None,
        log: Logged | None = None,
        elsewhere: Elsewhere = HERE,
    ) -> SyncReport:
        """Record files that are new or have changed, forget those that are gone, and index what lacks it."""
        changed = [file for file in fresh if file.path in known]
        kept = known.keys() - {file.path for file in (*gone, *fresh)}
        unfinished = frozenset[str]()
        if log is None:
            table, unreadable, unfinished = self._adapt_schema(table, fresh, kept, known)
        else:
            table, unreadable = self._follow_log(table, [*fresh, *(known[path] for path in kept)], log)
        fresh = [file for file in fresh if file.path not in unreadable and file.path not in unfinished]
        # One that cannot be read any more stays known, as what it was: a query must not take it for a new file, which
        # somebody is still writing.
        removed = [known[file.path].id for file in changed if file.path not in unreadable] + [file.id for file in gone]
        self._registry.replace_files(table, fresh, [id for id in removed if id is not None])
        indexed, failures = self.catch_up(table, only, elsewhere=elsewhere)
        new = sum(file.path not in known for file in fresh)
        named = {each.path for each in unreadable.values()}
        failed = (*unreadable.values(), *(each for each in failures if each.path not in named))
        counts = (new, len(fresh) - new, len(gone), indexed)
        return SyncReport(table.name, *counts, failed, unfinished=tuple(sorted(unfinished)))

    def _adapt_schema(
        self, table: Table, fresh: Sequence[File], kept: Collection[str], known: Container[str]
    ) -> tuple[Table, dict[str, Failure], frozenset[str]]:
        """New files can bring new columns and wider types; a conflict is refused before anything is recorded.

        Files that are not Parquet stay out of the registry, so every query that needs them says so. So do files that
        are not finished; queries pass over them if the setting says so, and their paths are returned.
        """
        if not fresh:
            return table, {}, frozenset()
        schemas = read_schemas(table.location, [file.path for file in fresh])
        unfinished = unfinished_of(schemas, known) if self._settings.unfinished == "skip" else frozenset[str]()
        schemas = {path: found for path, found in schemas.items() if path not in unfinished}
        found = discover_schema(table.location, schemas, [*kept, *schemas], base=table)
        if found.adds_to(table):
            table = self._registry.widen_schema(table, found.schema, found.mixed)
        return table, _left_out(table, found), unfinished

    def _follow_log(self, table: Table, files: Sequence[File], log: Logged) -> tuple[Table, dict[str, Failure]]:
        """The log says which columns there are; files can only be refused."""
        schemas = read_schemas(table.location, [file.path for file in log.unsettled(files, table)], log.taken)
        found = log.discover(schemas, base=table)
        if found.adds_to(table) or found.partitions != table.partitions:
            table = self._registry.follow_schema(table, found.schema, found.partitions, found.mixed)
        return table, _left_out(table, found)

    def finisher(self, table: Table) -> Callable[[str], int] | None:
        """What embeds the table's indexes into a file at a path; None when there is nothing to embed."""
        embedded = [index for index in self._registry.indexes(table) if index.embed]
        if not embedded:
            return None
        keys = tuple(_index_task(table, index) for index in embedded if index.kind == "key")
        payloads = _payload_tasks(table, [index for index in embedded if index.kind != "key"])
        return functools.partial(finish_file, keys, payloads, self._settings.index_memory)

    def catch_up(
        self,
        table: Table,
        only: frozenset[str] | None = None,
        *,
        from_data: bool = False,
        elsewhere: Elsewhere = HERE,
        looks: int = MOST_LOOKS,
    ) -> tuple[int, tuple[Failure, ...]]:
        """Build and commit what is missing for the listed files. Returns how many files, and what failed.

        `only` are the paths of those that matter now; an index that has no file yet takes all it can get. With
        `from_data` indexes that the files carry are not taken for what is missing.
        """
        for index in _usable(table, self._registry.indexes(table))[0]:
            self._mend(index)
        with self._registry.snapshot():
            # An index and the type of its keys belong together: a unit that becomes finer makes another index.
            table = self._registry.table(table.name)
            indexes, unusable = _usable(table, self._registry.indexes(table))
            files = list(self._files.of(table).values())
        wanted = frozenset(index.id for index in indexes if elsewhere.index in (None, index.name))
        empty = wanted.difference(*(file.indexed for file in files))
        lacking = [
            file
            for file in files
            if file.id is not None
            and (not file.has_card or not wanted <= file.indexed)
            and (only is None or file.path in only or empty)
        ]
        if not lacking:
            return 0, unusable
        if looks > 1 and self._recognise(table, lacking):
            return self.catch_up(table, only, from_data=from_data, elsewhere=elsewhere, looks=looks - 1)
        missing = self._file_tasks(table, lacking, wanted, from_data=from_data)
        # Files of one run come in the order of their ids, which makes its entries ascend.
        missing.sort(key=lambda file: file.file_id)
        rows = {file.id: file.rows for file in files}
        by_id = {index.id: index for index in indexes}
        with self._turn(table, indexes, missing) as (left, turn):
            indexed, failures = 0, tuple[Failure, ...]()
            if left and elsewhere.pool is not None:
                indexed, failures = self._backfill(elsewhere.pool, table, by_id, left, rows)
            elif left:
                with self._scratch_directory() as scratch:
                    tasks = [*self._tasks(table, indexes, left, rows, scratch)]
                    indexed, failures = self._run(tasks, by_id, sum(r or 0 for r in rows.values()), turn)
        failures = (*unusable, *failures)
        now = {index.name: index.id for index in self._registry.indexes(table)}
        if looks == 1 or all(now.get(index.name, index.id) == index.id for index in indexes):
            return indexed, failures
        # One goes on under another id since, and lacks what was made of it here.
        more, other_failures = self.catch_up(table, elsewhere=elsewhere, looks=looks - 1)
        return indexed + more, tuple(dict.fromkeys((*failures, *other_failures)))

    def _file_tasks(
        self, table: Table, files: Sequence[File], wanted: frozenset[int], *, from_data: bool = False
    ) -> list[FileTask]:
        """What is to be done of each file, and what of the payloads inside it is believed: with `from_data` only those
        that are in use, which are of indexes that lack nothing."""
        believed = self._registry.embedded([file.id for file in files if file.id is not None], own=not from_data)
        trusted = frozenset({ALL}) if self._settings.trust_embedded and not from_data else frozenset[str]()
        return [
            FileTask(
                file.id,
                f"{table.location}/{file.path}",
                file.identity,
                wanted - file.indexed,
                trusted | believed.get(file.id, frozenset()),
            )
            for file in files
            if file.id is not None
        ]

    def _recognise(self, table: Table, files: Sequence[File]) -> bool:
        """Whether some of the files had other times than were known, and the same content."""
        if is_url(table.location):
            return False
        known = {file.path: file for file in files}
        return changed_files.settle(self._registry, table, known, those_there(table.location, [*known]))

    @contextmanager
    def _turn(
        self, table: Table, indexes: Sequence[Index], missing: Sequence[FileTask]
    ) -> Iterator[tuple[Sequence[FileTask], tuple[int, ...]]]:
        """What can be built now, and what whoever builds it has open. Where something will be embedded, these are the
        files that are still of the table, and the turn of who embeds."""
        embedded = frozenset(index.id for index in indexes if index.embed)
        if not any(file.indexes & embedded for file in missing):
            yield missing, ()
            return
        with self._registry.turns.of_writer(table) as turn:
            there = {file.id for file in self._files.of(table).values()}
            yield [file for file in missing if file.file_id in there], turn

    def _backfill(
        self,
        pool: Pool,
        table: Table,
        indexes: dict[int, Index],
        missing: Sequence[FileTask],
        rows: Mapping[int | None, int | None],
    ) -> tuple[int, tuple[Failure, ...]]:
        missing = [replace(file, identity=file.identity.elsewhere()) for file in missing]
        keys, payloads = _parts(table, [*indexes.values()], missing)
        memory = self._settings.index_memory
        most_rows = min((capacity(memory, keys, key) for key in keys), default=1 << 60)
        work = Backfill(
            pool=pool,
            local=LocalPool(self._settings.processes),
            turns=self._registry.turns,
            commit=lambda artifact: self._commit(artifact, indexes),
            progress=self._progress,
            memory=memory,
        )
        return work.run(
            self._scratch / f"backfill-{table.id}",
            missing,
            keys,
            lambda left: [
                Task(files, keys, payloads, "", memory) for files in group(left, rows, most_rows, pool.cores())
            ],
        )

    def _mend(self, index: Index) -> None:
        if index.kind != "key":
            self._mend_payloads(index)
            return
        try:
            self._stores(index).refresh(self._registry.runs(index))
        except UnknownName:
            return  # dropped meanwhile
        except IndexDamaged:
            self.begin_anew(index)

    def _mend_payloads(self, index: Index) -> None:
        """Payloads whose pack is lost, or that another version wrote, are made again."""
        places = self._registry.places(index)
        lost = self._packs(index).missing({place.pack for place in places.values() if place.pack})
        version = kind(index.kind).version
        stale = [id for id, place in places.items() if place.pack in lost or place.version != version]
        if stale:
            self._registry.forget_payloads(index, stale)

    def begin_anew(self, index: Index) -> None:
        """An index that lost entries goes on without any, under a new id: who asks or fills the old one meanwhile gets
        nothing from it and leaves nothing in the new. Until it is built again, queries scan."""
        new_id = self._registry.renewals.new_id()
        if index.kind != "key":
            if self._registry.renewals.renew(index, new_id, (), (), lambda: None):
                self._packs(index).destroy()
            return
        old, new = self._stores(index), self._stores(replace(index, id=new_id))
        # An index without entries is there, and empty.
        if self._registry.renewals.renew(index, new_id, (), (), lambda: new.ingest([])):
            old.destroy()

    def rewrite(self, table: Table, change: Callable[[str, Identity], Identity]) -> None:
        """Change files of a table in a way that leaves their rows as they are: what was indexed stays so.

        `change` is given path and identity of a file, and returns its identity afterwards.
        """
        embedded = [each for each in self._registry.indexes(table) if each.embed]
        tasks = _payload_tasks(table, [each for each in embedded if each.kind != "key"])
        with self._registry.turns.of_writer(table):
            known = self._registry.files(table)
            if self._recognise(table, known):
                known = self._registry.files(table)
            files = self._file_tasks(table, known, frozenset())
            self._progress("rewriting", 0, len(files))
            for done, file in enumerate(files, 1):
                try:
                    before = describe(file.path, file.identity)
                    identity = change(file.path, file.identity)
                    if identity != file.identity and before.card.identity == file.identity:
                        again = described_again(file, identity, before.fingerprint, tasks)
                        self._registry.commit_artifacts([again], [])
                except (FileChanged, FileNotFoundError):
                    continue  # the next sync sees what it is now
                self._progress("rewriting", done, len(files))

    def _tasks(
        self,
        table: Table,
        indexes: Sequence[Index],
        missing: Sequence[FileTask],
        rows: dict[int | None, int | None],
        scratch: Path,
    ) -> Iterator[Task]:
        """Neighbouring files together, as many as fill one run: fewer runs make faster lookups."""
        index_tasks, payload_tasks = _parts(table, indexes, missing)
        memory = self._settings.index_memory
        most_rows = min((capacity(memory, index_tasks, index) for index in index_tasks), default=1 << 60)
        wanted = sum(rows.get(file.file_id) or 0 for file in missing)
        if wanted >= ROWS_WORTH_PROCESSES:
            most_rows = min(most_rows, -(-wanted // self._settings.processes))
        group: list[FileTask] = []
        held = number = 0
        for file in missing:
            size = rows.get(file.file_id) or 0
            if group and (held + size > most_rows or len(group) >= (CARDS_PER_TASK if not index_tasks else 4096)):
                yield Task(tuple(group), index_tasks, payload_tasks, str(scratch / str(number)), memory)
                group, held, number = [], 0, number + 1
            group.append(file)
            held += size
        yield Task(tuple(group), index_tasks, payload_tasks, str(scratch / str(number)), memory)

    def _run(
        self, tasks: Sequence[Task], indexes: dict[int, Index], rows: int, descriptors: tuple[int, ...]
    ) -> tuple[int, tuple[Failure, ...]]:
        total = sum(len(task.files) for task in tasks)
        done, indexed, failures = 0, 0, list[Failure]()
        self._progress("indexing", 0, total)
        for artifact in self._artifacts(tasks, rows, descriptors):
            self._commit(artifact, indexes)
            indexed += len(artifact.files)
            done += len(artifact.files) + sum(each.index_id is None for each in artifact.failures)
            failures += artifact.failures
            self._progress("indexing", done, total)
        return indexed, tuple(failures)

    def _artifacts(self, tasks: Sequence[Task], rows: int, descriptors: tuple[int, ...]) -> Iterator[Artifact]:
        processes = min(self._settings.processes, len(tasks))
        if processes <= 1 or rows < ROWS_WORTH_PROCESSES:
            yield from map(build, tasks)
            return
        calls = [functools.partial(_built_in_process, task, descriptors) for task in tasks]
        yield from in_threads(calls, processes)

    def _commit(self, artifact: Artifact, indexes: dict[int, Index]) -> None:
        """Entries first: they are invisible until the registry says that the file is indexed. It says nothing of an
        index that is no more, or began anew: what was made of it is for nobody."""
        there = {index.id for index in self._registry.indexes()}
        for index_id, index in indexes.items():
            if index_id not in there:
                continue
            packs = [Path(pack.path) for pack in artifact.packs if pack.index_id == index_id]
            if packs:
                self._packs(index).ingest(packs)
            runs = [Path(run.path) for run in artifact.runs if run.index_id == index_id]
            try:
                if runs:
                    self._stores(index).ingest(runs)
            except IndexDamaged:
                self.begin_anew(index)
        made = [(run.index_id, run.name) for run in artifact.runs]
        self._registry.commit_artifacts(artifact.files, made, artifact.entries)
        problems = {each.file_id: each.reason for each in artifact.failures if each.file_id is not None}
        self._registry.note_problems(problems)

    @contextmanager
    def _scratch_directory(self) -> Iterator[Path]:
        """On the store's file system, so that runs are moved and not copied. Leftovers of killed builds go."""
        self._sweep_scratch()
        scratch = self._scratch / uuid.uuid4().hex
        try:
            scratch.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{scratch} cannot be made: {error}.", hint="Is the store writable?") from error
        with self._registry.turns.claimed(scratch.name):
            try:
                yield scratch
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    def _sweep_scratch(self, older_than: float = 24 * 3600.0) -> None:
        for left in self._scratch.glob("*"):
            touched = last_touched(left)
            old = touched is not None and touched < time.time() - older_than
            if old and not self._registry.turns.is_claimed(left.name):
                shutil.rmtree(left, ignore_errors=True)


def _identities(table: Table, paths: Collection[str]) -> tuple[dict[str, Identity | None], tuple[Failure, ...]]:
    """What lies at paths of a table now, None for nothing; and where the store refuses to say."""
    found: dict[str, Identity | None] = {}
    refused: list[Failure] = []
    ordered = sorted(paths)
    for path, now in zip(ordered, concurrently(_identity, [f"{table.location}/{p}" for p in ordered]), strict=True):
        if isinstance(now, StoreError):
            refused.append(Failure(f"{table.location}/{path}", str(now)))
        else:
            found[path] = now
    return found, tuple(refused)


def _identity(path: str) -> Identity | StoreError | None:
    try:
        return identify(path)
    except FileNotFoundError:
        return None
    except StoreError as error:
        return error


def _left_out(table: Table, found: Discovered) -> dict[str, Failure]:
    prefix = f"{table.location}/"
    return {e.path.removeprefix(prefix): Failure(e.path, str(e), passing=may_pass(e)) for e in found.unreadable}


def _usable(table: Table, indexes: Sequence[Index]) -> tuple[list[Index], tuple[Failure, ...]]:
    """Without indexes of kinds that are not installed here, and of columns that a log took away; and why."""
    found = {}
    for index in indexes:
        for column in index.columns:
            if column not in table.data_columns:
                why = f"index {index.name}: the table has no column '{column}' any more. DROP INDEX removes it."
                found[index.id] = Failure(table.location, why, index_id=index.id)
        if index.kind != "key":
            try:
                kind(index.kind)
            except UsageError as error:
                found[index.id] = Failure(table.location, f"index {index.name}: {error}", index_id=index.id)
    return [index for index in indexes if index.id not in found], tuple(found.values())


def _built_in_process(task: Task, descriptors: tuple[int, ...], running: set[subprocess.Popen[bytes]]) -> Artifact:
    return call_in_process(running, build, task, descriptors=descriptors)


def _parts(
    table: Table, indexes: Sequence[Index], missing: Sequence[FileTask]
) -> tuple[tuple[IndexTask, ...], tuple[PayloadTask, ...]]:
    """Key indexes, and others, that tasks must know of to make what is missing."""
    lacking = frozenset[int]().union(*(file.indexes for file in missing))
    keys = tuple(_index_task(table, i) for i in indexes if i.id in lacking and i.kind == "key")
    others = [i for i in indexes if i.kind != "key"]
    # What one embeds moves what others have embedded.
    return keys, _payload_tasks(table, [i for i in others if i.id in lacking or i.embed])


def _index_task(table: Table, index: Index) -> IndexTask:
    return IndexTask(index.id, index.column, table.schema.field(index.column).type, index.embed)


def _payload_tasks(table: Table, indexes: Sequence[Index]) -> tuple[PayloadTask, ...]:
    return tuple(
        PayloadTask(i.id, i.kind, tuple(table.schema.field(name) for name in i.columns), i.options, i.embed)
        for i in indexes
    )
