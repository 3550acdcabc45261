"""Events and directories in, complete indexes out.

`sync` makes the registry agree with a table's directory, `look` with single files of it; `event_consumer.py` handles
events. All end in `catch_up`, which builds what is missing for the files the registry lists, whatever added them: so a
lost, repeated or late event changes only the time at which a file becomes fast.

    plan.py ─► BuildPlan ─► run.py, in a pool ─► Artifact ─► commit.py
"""

from __future__ import annotations

import functools
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from needlepoint.errors import FileChanged, StoreError
from needlepoint.indexer.build import Artifact, Failure, describe_again, finish_file, may_pass
from needlepoint.indexer.commit import commit, repair, repair_cards
from needlepoint.indexer.plan import (
    BuildPlan,
    BuildRequest,
    file_tasks,
    index_tasks,
    plan_build,
    usable_indexes,
)
from needlepoint.indexer.pools import InlinePool, LocalPool, Pool, PoolTasks
from needlepoint.indexer.progress import Progress, no_progress
from needlepoint.indexer.run import BuildResult, run_build
from needlepoint.indexer.sorted_runs import RunMerger, alone
from needlepoint.indexes import IndexStores
from needlepoint.objects import Identity, concurrently, identify, is_url, last_touched
from needlepoint.parquet import describe
from needlepoint.settings import Settings
from needlepoint.tables import (
    File,
    SchemaDiscovery,
    Snapshots,
    Table,
    belongs,
    changed_files,
    discover_schema,
    on_their_way,
    read_schemas,
    those_there,
    unfinished_of,
)
from needlepoint.tables.formats import TableVersion, is_external
from needlepoint.tables.registry import KnownFiles, Registry

# How often files are looked at that change while they are indexed, and builds repeated whose index was replaced.
MOST_LOOKS = 3
# Scratch directories of killed builds are removed after so many seconds.
SCRATCH_AGE = 24 * 3600.0

EVERYTHING = BuildRequest()


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync or an event changed. The store refused to describe `refused` files: try again later. `unfinished`
    files, by path, have no footer yet. Not every reader can name `unnamed` files."""

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
        """The sum of both."""
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
        stores: IndexStores,
        scratch: Path,
        settings: Settings,
        progress: Progress = no_progress,
    ) -> None:
        self._registry = registry
        self._files = KnownFiles(registry)
        self._stores = stores
        self._scratch = scratch
        self._settings = settings
        self._progress = progress

    def sync(self, name: str, request: BuildRequest = EVERYTHING) -> SyncReport:
        """Make the registry agree with the directory, or with the table's log, then build what indexes lack."""
        table = self._registry.tables.get(name)
        known = self._files.of(table)
        seen = Snapshots(self._registry, refresh=0, files=self._files).look(name)
        changed_files.note_unsampled(self._registry, table, known.values())
        paths = {file.path for file in seen.files}
        gone = [file for path, file in known.items() if path not in paths]
        fresh = [file for file in seen.files if file.id is None]
        report = self._take_in(table, known, fresh, gone, log=seen.log, request=request)
        return replace(report, unnamed=seen.unnamed)

    def build(self, name: str, request: BuildRequest) -> SyncReport:
        """Sync for large work. Files that changed since they were listed are listed again, also those in which a task
        embedded something before it died and Spark ran it again."""
        report = SyncReport(name)
        for number in range(1, MOST_LOOKS + 1):
            seen = self.sync(name, request)
            table = self._registry.tables.get(name)
            known = {f"{table.location}/{file.path}": file.identity for file in self._registry.files.of(table)}
            failed = {each.path: _identity(each.path) for each in seen.failures if each.path in known}
            changed = {path for path, now in failed.items() if now != known[path] and number < MOST_LOOKS}
            failures = tuple(each for each in seen.failures if each.path not in changed)
            report = report.then(replace(seen, failures=failures))
            if not changed:
                break
        return report

    def look(self, name: str, paths: Iterable[str]) -> SyncReport:
        """Sync the files at these paths, without listing others.

        A file that is replaced or removed while it is indexed is looked at again. Of an external table format the log
        is read, since it decides which files belong to the table.
        """
        if is_external(self._registry.tables.get(name).format):
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
        """The report, and the paths of files that changed meanwhile."""
        table = self._registry.tables.get(name)
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
            report = self._take_in(table, known, fresh, gone, request=BuildRequest(frozenset(found)))
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
        log: TableVersion | None = None,
        request: BuildRequest = EVERYTHING,
    ) -> SyncReport:
        """Record files that are new or changed, forget those that are gone, and build what indexes lack."""
        changed = [file for file in fresh if file.path in known]
        kept = known.keys() - {file.path for file in (*gone, *fresh)}
        unfinished = frozenset[str]()
        if log is None:
            table, unreadable, unfinished = self._adapt_schema(table, fresh, kept, known)
        else:
            table, unreadable = self._follow_log(table, [*fresh, *(known[path] for path in kept)], log)
        fresh = [file for file in fresh if file.path not in unreadable and file.path not in unfinished]
        # A file that can no longer be read stays known: a query must not take it for a new, unfinished file.
        removed = [known[file.path].id for file in changed if file.path not in unreadable] + [file.id for file in gone]
        self._registry.files.replace(table, fresh, [id for id in removed if id is not None])
        built = self.catch_up(table, request)
        new = sum(file.path not in known for file in fresh)
        named = {each.path for each in unreadable.values()}
        failed = (*unreadable.values(), *(each for each in built.failures if each.path not in named))
        counts = (new, len(fresh) - new, len(gone), built.indexed)
        return SyncReport(table.name, *counts, failed, unfinished=tuple(sorted(unfinished)))

    def _adapt_schema(
        self, table: Table, fresh: Sequence[File], kept: Collection[str], known: Container[str]
    ) -> tuple[Table, dict[str, Failure], frozenset[str]]:
        """Add new columns and wider types of new files; a conflict is refused before anything is recorded.

        Files that are not Parquet stay out of the registry, so every query that needs them fails with the reason.
        Unfinished files stay out too; queries skip them if the setting says so, and their paths are returned.
        """
        if not fresh:
            return table, {}, frozenset()
        schemas = read_schemas(table.location, [file.path for file in fresh])
        unfinished = unfinished_of(schemas, known) if self._settings.unfinished == "skip" else frozenset[str]()
        schemas = {path: found for path, found in schemas.items() if path not in unfinished}
        found = discover_schema(table.location, schemas, [*kept, *schemas], base=table)
        if found.adds_to(table):
            table = self._registry.tables.widen_schema(table, found.schema, found.mixed)
        return table, _left_out(table, found), unfinished

    def _follow_log(self, table: Table, files: Sequence[File], log: TableVersion) -> tuple[Table, dict[str, Failure]]:
        """The log decides which columns there are; files can only be refused."""
        schemas = read_schemas(table.location, [file.path for file in log.unsettled(files, table)], log.taken)
        found = log.discover(schemas, base=table)
        if found.adds_to(table) or found.partitions != table.partitions:
            table = self._registry.tables.follow_schema(table, found.schema, found.partitions, found.mixed)
        return table, _left_out(table, found)

    def finisher(self, table: Table) -> Callable[[str], int] | None:
        """A function that embeds the table's indexes in the file at a path; None when there is nothing to embed."""
        embedded = [index for index in self._registry.indexes.of(table) if index.embed]
        if not embedded:
            return None
        return functools.partial(finish_file, index_tasks(table, embedded), self._settings.index_memory)

    def catch_up(self, table: Table, request: BuildRequest = EVERYTHING) -> BuildResult:
        """Build and commit what is missing for the files that the registry lists."""
        result = BuildResult()
        for look in range(1, MOST_LOOKS + 1):
            plan = self._plan(table, request)
            result = result.then(BuildResult(failures=plan.unusable))
            if not plan.files:
                break
            if look < MOST_LOOKS and self._recognise(table, plan.lacking):
                continue
            result = result.then(self._run(plan, request.pool))
            if look == MOST_LOOKS or not self._is_replaced(plan):
                break
            # The new generation lacks what was made for the old one.
            request = BuildRequest(index=request.index, pool=request.pool)
        return result

    def _plan(self, table: Table, request: BuildRequest) -> BuildPlan:
        repair_cards(self._registry)
        for index in usable_indexes(table, self._registry.indexes.of(table))[0]:
            repair(self._registry, self._stores, index)
        trust = self._settings.trust_embedded
        return plan_build(self._registry, self._files, table.name, request, trust_embedded=trust)

    def _run(self, plan: BuildPlan, pool: Pool | None) -> BuildResult:
        with self._write_lock(plan) as (plan, descriptors):
            if not plan.files:
                return BuildResult()
            if pool is not None:
                return self._run_in_pool(plan, pool)
            with self._scratch_directory() as directory:
                tasks = plan.tasks(plan.files, plan.local_limits(self._settings), self._settings.index_memory)
                inline = plan.is_small(tasks) or self._settings.processes <= 1
                local = InlinePool() if inline else LocalPool(self._settings.processes, descriptors)
                return run_build(tasks, local, directory, self._committer(plan, local, directory), self._progress)

    def _run_in_pool(self, plan: BuildPlan, pool: Pool) -> BuildResult:
        """What is sorted is kept until all of it is merged: a build that is killed resumes."""
        plan = replace(plan, files=tuple(replace(file, identity=file.identity.elsewhere()) for file in plan.files))
        directory, memory = self._scratch / f"backfill-{plan.table.id}", self._settings.index_memory
        local, committer = LocalPool(self._settings.processes), self._committer(plan, pool, directory)
        with alone(self._registry.locks, directory):
            merger = RunMerger(directory, plan.entry_tasks(), pool, local, memory, committer, self._progress)
            left = merger.resume(plan.files)
            limits = plan.pool_limits(self._settings, left, pool.cores())
            tasks = plan.tasks(left, limits, memory, to_merge=True)
            return run_build(tasks, pool, directory, committer, self._progress, merger)

    def _committer(self, plan: BuildPlan, pool: Pool, directory: Path) -> Callable[[Artifact], None]:
        """Stores merge in the pool that builds."""
        return functools.partial(commit, self._registry, self._stores, plan.indexes, PoolTasks(pool, directory))

    def _is_replaced(self, plan: BuildPlan) -> bool:
        """Whether an index has another generation than was planned for."""
        current = {index.name: index.id for index in self._registry.indexes.of(plan.table)}
        return any(current.get(index.name, index.id) != index.id for index in plan.indexes)

    def _recognise(self, table: Table, files: Sequence[File]) -> bool:
        """Whether some of the files had other times than were known, and the same content."""
        if is_url(table.location):
            return False
        known = {file.path: file for file in files}
        return changed_files.settle(self._registry, table, known, those_there(table.location, [*known]))

    @contextmanager
    def _write_lock(self, plan: BuildPlan) -> Iterator[tuple[BuildPlan, tuple[int, ...]]]:
        """What can be built now, and the descriptors that hold the lock. A build that embeds needs the lock, and the
        files that are still of the table once it has it."""
        if not plan.embeds:
            yield plan, ()
            return
        with self._registry.locks.shared(plan.table) as descriptors:
            there = {file.id for file in self._files.of(plan.table).values()}
            yield replace(plan, files=tuple(file for file in plan.files if file.file_id in there)), descriptors

    def rewrite(self, table: Table, change: Callable[[str, Identity], Identity]) -> None:
        """Change files of a table without changing their rows: they stay indexed.

        `change` takes the path and identity of a file, and returns its new identity.
        """
        indexes = index_tasks(table, [each for each in self._registry.indexes.of(table) if each.embed])
        with self._registry.locks.shared(table):
            known = self._registry.files.of(table)
            if self._recognise(table, known):
                known = self._registry.files.of(table)
            trust = self._settings.trust_embedded
            files = file_tasks(self._registry, table, known, frozenset(), trust_embedded=trust)
            self._progress("rewriting", 0, len(files))
            for done, file in enumerate(files, 1):
                try:
                    before = describe(file.path, file.identity)
                    identity = change(file.path, file.identity)
                    if identity != file.identity and before.card.identity == file.identity:
                        again = describe_again(file, identity, before.fingerprint, indexes)
                        self._registry.commit_artifacts([again], [])
                except (FileChanged, FileNotFoundError):
                    continue  # the next sync sees what it is now
                self._progress("rewriting", done, len(files))

    @contextmanager
    def _scratch_directory(self) -> Iterator[Path]:
        """On the store's file system, so that runs are moved and not copied. Removes what killed builds left."""
        self._sweep_scratch()
        scratch = self._scratch / uuid.uuid4().hex
        try:
            scratch.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{scratch} cannot be created: {error}.", hint="Is the store writable?") from error
        with self._registry.locks.claimed(scratch.name):
            try:
                yield scratch
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    def _sweep_scratch(self) -> None:
        for left in self._scratch.glob("*"):
            touched = last_touched(left)
            old = touched is not None and touched < time.time() - SCRATCH_AGE
            if old and not self._registry.locks.is_claimed(left.name):
                shutil.rmtree(left, ignore_errors=True)


def _identities(table: Table, paths: Collection[str]) -> tuple[dict[str, Identity | None], tuple[Failure, ...]]:
    """What is at paths of a table now, None for nothing; and where the store refuses to say."""
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


def _left_out(table: Table, found: SchemaDiscovery) -> dict[str, Failure]:
    prefix = f"{table.location}/"
    return {e.path.removeprefix(prefix): Failure(e.path, str(e), passing=may_pass(e)) for e in found.unreadable}
