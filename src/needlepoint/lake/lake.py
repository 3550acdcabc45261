"""The composition root: a lake with its registry, queue, stores, indexer and engine put together."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pyarrow as pa

from needlepoint import forks
from needlepoint.advisor import History
from needlepoint.errors import NeedlepointError, StoreError, UsageError
from needlepoint.indexer import Progress, no_progress
from needlepoint.indexes import LEAF_FILES, IndexStores, LeafStores, UnpackedPayloads
from needlepoint.lake.locations import lake_root
from needlepoint.lake.node import cache_directory, is_shared, open_node, shared_packs
from needlepoint.lake.statements import explain_statement, run_statement
from needlepoint.maintenance import MaintainedTables
from needlepoint.parquet import ByteCache
from needlepoint.query import Engine, IndexCache, Limits, Result, RunningQuery
from needlepoint.queues import LocalQueue, Queue
from needlepoint.settings import Settings
from needlepoint.stores import PieceCache, check_owner, claim, read_only_error, store_directory
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    from needlepoint.advisor import TableAdvice
    from needlepoint.indexer import EventResult, Indexer, Pool, SyncReport
    from needlepoint.lake.batch_writer import BatchWriter
    from needlepoint.lake.calibrating import Calibration
    from needlepoint.lake.status import CacheStatus, Status, SweepReport
    from needlepoint.lake.upkeep.repair import Repair
    from needlepoint.lake.upkeep.store_copy import CopiedIndex
    from needlepoint.maintenance import MaintenanceContext
    from needlepoint.query import ReadPlan, Report, VerifyReport
    from needlepoint.tables import Batch, File, Mover, StagedFile
    from needlepoint.tables.published import Publisher, PublishState

_log = logging.getLogger("needlepoint")


class LakeTable:
    """One table of a lake, for lookups without SQL."""

    def __init__(self, lake: Lake, name: str) -> None:
        self._lake = lake
        self.name = name

    def __repr__(self) -> str:
        return f"LakeTable({self.name!r}, {self.schema.names})"

    @property
    def schema(self) -> pa.Schema:
        return self._lake.registry.tables.get(self.name).schema

    def get(
        self,
        keys: Mapping[str, Any] | None = None,
        /,
        *,
        columns: Sequence[str] | None = None,
        in_order: bool = False,
        limits: Limits | None = None,
        query_id: str = "",
        **named: Any,
    ) -> Result:
        """Rows whose columns have these values: `get(product_id=384209819)`.

        A list, set, range or array means any of its values; each row is returned once, even if its value is repeated.
        Keys can also be given as a mapping, for columns whose names are not Python names. `in_order` returns the rows
        in the order of the first key's values, otherwise they have no order. `limits` and `query_id` are as in `sql`.
        """
        from needlepoint.query import get_rows

        if not isinstance(keys, Mapping | None):
            raise UsageError(f"get({keys!r}) names no column.", hint="For example get(product_id=384209819).")
        engine, wanted = self._lake.engine, {**(keys or {}), **named}
        with engine.run(f"get {self.name} by {', '.join(map(str, wanted))}", limits, query_id) as running:
            return get_rows(engine, self.name, wanted, columns, in_order, running)


class Lake(MaintainedTables):
    """A root with tables, a directory or `s3://bucket/prefix`. Open one with `needlepoint.open`."""

    def __init__(
        self,
        root: str | Path,
        *,
        create: bool = True,
        read_only: bool = False,
        progress: Progress = no_progress,
        settings: Settings,
    ) -> None:
        forks.begin()
        self.root: Path | str = lake_root(root)
        self.store = store_directory(self.root, settings.store)
        # Another process that opens this lake may have another home directory.
        self.settings = settings = replace(settings, store=str(self.store))
        self.progress = progress
        self.read_only = read_only
        must_exist = read_only or not create
        # A reader without a store has a copy of the registry that is published in the lake.
        node = open_node(self.root, self.store, settings) if read_only else None
        if node is not None:
            self.store = node.follower.directory
        if must_exist and not settings.registry and not (self.store / "registry.db").exists():
            inside = self.store.parent == self.root
            raise UsageError(
                f"there is no lake in '{root}'." if inside else f"there is no store of '{root}' in {self.store}.",
                hint="`needle create-table` or `needle ingest` creates one; --lake or NEEDLE_LAKE says where it is.",
            )
        self._pieces: PieceCache | None = None
        # Where a lake that is open for reading only writes what it unpacks and holds.
        self._own = forks.OwnDirectory() if read_only else None
        work = self.store if self._own is None else Path(self._own.name)
        if node is None:
            if not read_only:
                claim(self.store, self.root, make=bool(settings.registry))  # no database will be there
            elif not settings.registry or self.store.exists():  # with the registry elsewhere, it may have no store yet
                check_owner(self.store, self.root)
            own = work if read_only else None
            if settings.registry and isinstance(self.root, str):
                self._pieces = PieceCache(cache_directory(self.root, settings.cache), settings.pack_bytes)
            self.registry = Registry(
                self.store, self.root, own=own, url=settings.registry, create=not must_exist, pieces=self._pieces
            )
            leaves = LeafStores.cached(self.root, work / "leaves", settings.pack_bytes)
            keys = settings.keys or (LEAF_FILES if settings.registry else "")  # machines share more than RocksDB does
            shared = None
            if self._pieces is not None:
                shared = shared_packs(str(self.root), work, self.registry, self._pieces)
            self.index_stores = IndexStores(
                self.store / "indexes", self.registry, settings.block_bytes, keys, leaves=leaves, shared=shared
            )
        else:
            self.registry, self.index_stores = node.registry, node.index_stores(settings)
        self.node = node
        self.queue = _queue(settings.queue, self.store, read_only)
        unpacked = work if node is None else node.cache
        self.unpacked = UnpackedPayloads(unpacked / "unpacked", settings.unpacked_bytes)
        file_indexes = IndexCache(self.index_stores.packs, self.unpacked, settings.index_bytes, settings.payload_bytes)
        self._scratch = scratch = work / "scratch"
        self.history = History(self.store, settings.history == "on" and not read_only, read_only=read_only)
        self.engine = Engine(self.registry, self.index_stores.entries, file_indexes, settings, self.history, scratch)
        self.publisher: Publisher | None = None
        if not read_only and is_shared(self.root, settings):
            from needlepoint.tables.published import Publisher

            self.publisher = Publisher(self.root, self.store, self.registry, takes_over=settings.shared == "on")
            self.registry.after_changes(self.publisher.changed)
            self.registry.make_known = self.publisher.make_known
        forks.own(self)

    @cached_property
    def indexer(self) -> Indexer:
        if self.read_only:
            return cast("Indexer", _ReadOnly())
        from needlepoint.indexer import Indexer

        return Indexer(self.registry, self.index_stores, self._scratch, self.settings, self.progress)

    @cached_property
    def writer(self) -> BatchWriter:
        if self.read_only:
            return cast("BatchWriter", _ReadOnly())
        from needlepoint.lake.batch_writer import BatchWriter

        return BatchWriter(self.root, self.store, self.registry, self.queue, self.indexer)

    def abandon(self) -> None:
        """Called in a forked child: see forks.py."""
        self.publisher, self.node = None, None
        parts = ("registry", "queue", "unpacked", "index_stores", "indexer", "history", "engine", "writer")
        for name in parts:
            forks.leak(self.__dict__.get(name))
            setattr(self, name, forks.AbandonedHandle())

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.publisher is not None:
            self.publisher.close()
        self.index_stores.close()
        self.history.close()
        self.queue.close()
        self.registry.close()
        if self._pieces is not None:
            self._pieces.close()
        if self.node is not None:
            self.node.close()
        if self._own is not None:
            self._own.remove()

    def __repr__(self) -> str:
        return f"Lake({str(self.root)!r})"

    def _maintenance(self) -> MaintenanceContext:
        return maintenance_context(self)

    # Tables

    def create_table(self, name: str, location: str | Path | None = None, *, format: str | None = None) -> LakeTable:
        """Create a table of the Parquet files in a directory or under `s3://bucket/prefix`; by default in the directory
        `name` of the lake.

        The log of a Delta or Iceberg table decides which files belong to it. `format` is `delta`, `iceberg`, or
        `parquet`, which takes every file of the location; without it, a log in the location decides.
        """
        from needlepoint.lake import ddl

        ddl.create_table(self, name, location, format)
        return LakeTable(self, name)

    def drop_table(self, name: str) -> None:
        """Forget a table and its indexes. Its files stay. Files that batches removed and that are kept for other
        readers are deleted, since without the table nothing would tell them from its own files."""
        from needlepoint.tables import finish_all

        table = self.registry.tables.get(name)
        try:
            finish_all(self.registry, self.queue, table)
            with self.registry.locks.exclusive(table):
                indexes = self.registry.indexes.of(table)
                self.registry.tables.drop(name)
        except StoreError as error:
            raise StoreError(
                f"table '{name}' is not dropped: {error.message}", hint="Wait or fix the cause, then drop it again."
            ) from error
        for index in indexes:
            self.index_stores.destroy(index.id)

    def table(self, name: str) -> LakeTable:
        self.registry.tables.get(name)
        return LakeTable(self, name)

    def tables(self) -> list[str]:
        return sorted(self.registry.tables.names())

    # Indexes

    def create_index(
        self,
        table: str,
        column: str | Sequence[str],
        kind: str = "key",
        *,
        embed: bool = False,
        name: str | None = None,
        build: bool = True,
        **options: Any,
    ) -> str:
        """Declare an index and build it for the present files; `build=False` leaves that to the next sync or event.

        With `embed`, its payloads are put into the data files, which other readers can still read. An interrupt leaves
        the index declared, with what was built; `build` or `sync` continues.
        docs/indexes.md lists the kinds and their options.
        """
        from needlepoint.lake import ddl
        from needlepoint.lake.calibrating import calibrate_after

        columns = (column,) if isinstance(column, str) else tuple(column)
        found = ddl.check_index(self, table, columns, kind, embed, options)
        chosen = name or ddl.free_index_name(self.registry, found, columns, kind)
        options = ddl.with_store(self, kind, options)
        index = self.registry.indexes.create(found, chosen, columns, kind, embed=embed, options=options)
        self.index_stores.create(index)
        if build:
            started = time.monotonic()
            for failure in (each for report in ddl.build_index(self, index.name) for each in report.failures):
                _log.warning("%s", failure.reason)
            calibrate_after(self, time.monotonic() - started)
        return index.name

    def build(self, table: str, index: str | None = None, *, pool: Pool | None = None) -> list[SyncReport]:
        """Sync a table and build what its indexes lack, or one of them: in processes of this machine, or in a pool.

        `needlepoint.spark.build` gives a pool of Spark tasks. A build that was killed continues where it was.
        """
        from needlepoint.indexer import BuildRequest
        from needlepoint.tables import recover

        found = self.registry.tables.get(table)
        self.registry.indexes.select(found, index)  # refuse an unknown name first
        recover(self.registry, self.queue, found)
        report = self.indexer.build(table, BuildRequest(index=index, pool=pool))
        self.index_stores.sweep()
        return [report]

    def rebuild(self, table: str, index: str | None = None, *, from_data: bool = False) -> list[SyncReport]:
        """Rebuild the indexes of a table, or one of them: from the indexes embedded in its files where there are any,
        without reading their data; or `from_data`, which also embeds them again. Damaged cards and zone maps are
        built again too."""
        from needlepoint.indexer import BuildRequest, SyncReport

        self.registry.cards.forget(self.registry.cards.check(self.registry.tables.get(table)))
        for each in self.registry.indexes.select(self.registry.tables.get(table), index):
            self.index_stores.replace_index(each)
        request = BuildRequest(from_data=True)
        built = self.indexer.catch_up(self.registry.tables.get(table), request).indexed if from_data else 0
        # What could not be built is tried once more, and reported then.
        return [SyncReport(table, indexed=built).then(report) for report in self.sync(table)]

    def drop_index(self, name: str, *, strip: bool = False) -> None:
        """Forget an index. Embedded payloads stay in the files, where they only take space; with `strip` they are
        removed."""
        from needlepoint.indexer import strip_index

        index = self.registry.indexes.get(name)
        table = self.registry.tables.of(index)
        if strip and index.embed:
            # Where this fails the index is still declared: drop it again, or sync builds it.
            self.index_stores.replace_index(index)
            self.indexer.rewrite(table, strip_index(index))
        self.index_stores.destroy(self.registry.indexes.drop(name).id)

    def verify(self, table: str, samples: int = 20, seed: int | None = None) -> VerifyReport:
        """Compare the answers of a table's indexes with those of a scan, for sampled values of each, and check the
        bytes of the indexes, of cards and of zone maps."""
        from needlepoint.lake.upkeep.repair import verify_table

        return verify_table(self, self.registry.tables.get(table), samples, seed)

    def verify_published(self) -> tuple[str, ...]:
        """What is wrong with the registry that this lake publishes for readers elsewhere; empty if it is not shared."""
        return () if self.publisher is None else tuple(self.publisher.check().values())

    def repair(self, table: str | None = None, *, dry_run: bool = False, samples: int = 20) -> list[Repair]:
        """Repair what `verify` finds in a table, or in all tables and the published registry: build indexes and cards
        again, finish batches, publish again. Data files are not written. With `dry_run` nothing is."""
        from needlepoint.lake.upkeep.repair import repair

        if self.read_only:
            raise read_only_error()
        return repair(self, table, dry_run=dry_run, samples=samples)

    def copy_store(self, source: str, target: str, index: str | None = None) -> list[CopiedIndex]:
        """Move the key indexes of one store, or one of them, to another, and compare them with scans. Stores are URLs,
        or `rocksdb` for the lake's own."""
        from needlepoint.lake.upkeep.store_copy import copy_store

        if self.read_only:
            raise read_only_error()
        return copy_store(self, source, target, index)

    def sweep(self, *, now: bool = False) -> SweepReport:
        """Remove what nothing refers to any more: entries of key indexes, packs of payloads and cards, unpacked text
        indexes, staging. With `now` also what is so new that another process may be about to refer to it."""
        from needlepoint.lake.upkeep.garbage_collection import sweep

        if self.read_only:
            raise read_only_error()
        return sweep(self, now=now)

    # Writing

    def sync(self, table: str | None = None) -> list[SyncReport]:
        """Bring registry and indexes up to date with the files of a table, or of all tables. If one of all cannot be
        synced, the others are, and its error is raised at the end."""
        from needlepoint.tables import recover

        tables = self.registry.tables.all() if table is None else [self.registry.tables.get(table)]
        reports: list[SyncReport] = []
        errors: list[NeedlepointError] = []
        for each in tables:
            try:
                recover(self.registry, self.queue, each)
                reports.append(self.indexer.sync(each.name))
            except NeedlepointError as error:
                errors.append(error)
        self.index_stores.sweep()
        if errors:
            raise errors[0]
        return reports

    def publish(
        self,
        table: str,
        staged: Sequence[StagedFile],
        staging: Path | str,
        batch: str | None = None,
        *,
        removed: Sequence[File] = (),
        keep: float = 0.0,
        mover: Mover | None = None,
    ) -> Batch:
        """Add files staged in a directory of `lake.writer.staging(table)` to a table, which the first batch creates.
        `BatchWriter.publish` explains the options."""
        return self.writer.publish(table, staged, staging, batch, removed=removed, keep=keep, mover=mover)

    def follow_events(self, *, once: bool = False) -> Iterator[EventResult]:
        """Index what the events on the queue name, as they come, or with `once` until there are none."""
        from needlepoint.indexer import follow

        if self.read_only:
            raise read_only_error()
        return follow(self.registry, self.queue, self.indexer, once=once)

    def share(self, *, whole: bool = False) -> PublishState:
        """Publish the registry in the lake now, for readers on other machines; with `whole` all of it once more, as
        after an object of it was damaged. Otherwise that happens by itself, a moment after each change."""
        if self.read_only:
            raise read_only_error()
        if self.publisher is None:
            raise UsageError("this lake does not publish its registry.", hint="Set NEEDLE_SHARED=on.")
        self.publisher.publish(whole=whole)
        return self.publisher.state()

    # Questions

    def sql(
        self,
        query: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        query_id: str = "",
    ) -> Result:
        """Run any query of DataFusion, with `$name` for parameters, or CREATE, DROP or SHOW for indexes and views.

        A query over its limits (by default those of the settings) raises LimitExceeded. `running` lists it by its
        `query_id`, and can cancel it. A result of more than 32 MB is read while it is consumed: see `Result.batches`.
        EXPLAIN and EXPLAIN ANALYZE return the lines of the report; EXPLAIN VERBOSE returns DataFusion's own plans.
        """
        return run_statement(self, query, parameters, limits, query_id)

    def running(self) -> list[RunningQuery]:
        """The queries that run in this process on this lake, the oldest first; `cancel` stops one."""
        return self.engine.running.all()

    def explain(
        self, query: str, parameters: Mapping[str, Any] | None = None, *, limits: Limits | None = None
    ) -> Report:
        """What a query would read and why, without reading it. Of the limits, only `tables` matter."""
        return explain_statement(self, query, parameters, limits)

    def plan_read(self, table: str, where: str | None = None, columns: Sequence[str] | None = None) -> ReadPlan:
        """Plan `SELECT columns FROM table WHERE where` for other processes to read, in parts that can be pickled. They
        need the data files, and nothing else of the lake."""
        from needlepoint.query import plan_read

        return plan_read(self.engine, table, where, columns)

    def advise(self, table: str) -> TableAdvice:
        """Which index, order or compaction would make the past queries of a table faster, and by how much. Reads cards,
        bounds, some rows of the queried columns, and the history of queries."""
        from needlepoint.lake.advising import advise_table

        return advise_table(self, table)

    def calibrate(self) -> Calibration:
        """Measure in about a second what reads cost on this machine. The cost model goes by it from now on, also in
        lakes that are opened later with the same store on a machine of this kind."""
        from needlepoint.lake.calibrating import calibrate

        return calibrate(self)

    def status(self) -> Status:
        """Tables, indexes, events and stores. A server that does not answer within seconds is named, and not waited
        for."""
        from needlepoint.lake.status import lake_status

        return lake_status(self)

    def caches(self) -> tuple[CacheStatus, ...]:
        """The caches of this process: cards, zone maps, decoded dictionaries, small pages and open indexes of files."""
        from needlepoint.lake.status import CacheStatus

        engine = self.engine
        held: dict[str, ByteCache[Any]] = {"cards": engine.cards.cards, "zone maps": engine.cards.zones,
                "dictionaries": engine.caches.dictionaries, "pages": engine.caches.pages,
                "open indexes": engine.file_indexes.open}  # fmt: skip
        return tuple(
            CacheStatus(name, len(c), c.bytes, c.limit, c.hits, c.misses, c.evictions) for name, c in held.items()
        )


class _ReadOnly:
    """Replaces the parts of a lake that write."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise read_only_error()


def _queue(url: str, store: Path, read_only: bool) -> Queue:
    if not url:
        return LocalQueue(store, read_only=read_only)
    if url.startswith(("postgresql://", "postgres://")):
        from needlepoint.queues.postgres import PostgresQueue

        return PostgresQueue(url, read_only=read_only)
    from needlepoint.queues.sqs import SqsQueue

    return SqsQueue(url)


def maintenance_context(lake: Lake) -> MaintenanceContext:
    """The parts of a lake that compaction and deletion use."""
    from needlepoint.lake.upkeep.garbage_collection import sweep_table_entries
    from needlepoint.maintenance import MaintenanceContext

    sweep_entries = functools.partial(sweep_table_entries, lake)
    return MaintenanceContext(
        lake.registry, lake.engine, lake.indexer, lake.writer, lake.sync, sweep_entries, lake.progress
    )


def lake_opener(lake: Lake) -> Callable[[], Lake]:
    """A function that opens a lake in another process that reaches its store, once per process; picklable."""
    return functools.partial(_opened, str(lake.root), lake.settings, lake.read_only)


@functools.cache
def _opened(root: str, settings: Settings, read_only: bool) -> Lake:
    return Lake(root, create=False, read_only=read_only, settings=settings)


forks.reset(_opened.cache_clear)
