"""The composition root: a lake with its registry, queue, stores, indexer and engine put together."""

from __future__ import annotations

import functools
import itertools
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from needlepoint import forks
from needlepoint.advisor.advice import TableAdvice
from needlepoint.advisor.history import History
from needlepoint.errors import NotIndexable, SqlError, StoreError, UnknownName, UsageError
from needlepoint.indexer.event_consumer import EventResult, follow
from needlepoint.indexer.indexer import Indexer, SyncReport, no_progress
from needlepoint.indexer.payloads import strip_index
from needlepoint.indexer.plan import BuildRequest
from needlepoint.indexer.pools import Pool
from needlepoint.indexer.run import Progress
from needlepoint.indexes.index_stores import IndexStores
from needlepoint.indexes.stored import UnpackedPayloads
from needlepoint.lake import batch_writer, ddl
from needlepoint.lake.advising import advise_table
from needlepoint.lake.batch_writer import refuse_of_others, refuse_removing
from needlepoint.lake.garbage_collection import sweep, sweep_index_entries
from needlepoint.lake.status import CacheStatus, Status, SweepReport, table_status
from needlepoint.maintenance import delete
from needlepoint.maintenance.choose import Choice, Wish
from needlepoint.maintenance.delete import Deleted
from needlepoint.objects import is_nameable, is_url
from needlepoint.parquet.read.caches import ByteCache
from needlepoint.parquet.write.retrofit import RetrofitReport
from needlepoint.query.cache.index_cache import IndexCache
from needlepoint.query.engine import Engine
from needlepoint.query.get import get as get_rows
from needlepoint.query.report.explain import Report
from needlepoint.query.result import Result
from needlepoint.query.scan.scan_tasks import ReadPlan, plan_read
from needlepoint.query.sql.parameters import check_text
from needlepoint.query.sql.statements import CreateIndex, CreateView, DropIndex, DropView, Explain, ShowIndexes, parse
from needlepoint.query.sql.views import check_view
from needlepoint.query.verify import VerifyReport, verify
from needlepoint.queues.queue import LocalQueue, Queue
from needlepoint.settings import Settings
from needlepoint.stores.base import KeyStore
from needlepoint.stores.place import claim, store_directory
from needlepoint.tables import publishing
from needlepoint.tables.model import LONGEST_NAME, Batch, File, Index, Table, check_name
from needlepoint.tables.registry.registry import Registry
from needlepoint.tables.staged_file import StagedFile

_log = logging.getLogger("needlepoint")


class LakeTable:
    """One table of a lake, for lookups without SQL."""

    def __init__(self, lake: Lake, name: str) -> None:
        self._lake = lake
        self.name = name

    @property
    def schema(self) -> pa.Schema:
        return self._lake.registry.table(self.name).schema

    def get(
        self,
        keys: Mapping[str, Any] | None = None,
        /,
        *,
        columns: Sequence[str] | None = None,
        in_order: bool = False,
        **named: Any,
    ) -> Result:
        """Rows whose columns have these values: `get(product_id=384209819)`.

        A list, set, range or array means any of its values; a row comes once, however often its value is named.
        Keys can also be given as a mapping, for columns whose names are not Python names. `in_order` gives the rows in
        the order of the first key's values; else they come as they are found.
        """
        if not isinstance(keys, Mapping | None):
            raise UsageError(f"get({keys!r}) names no column.", hint="For example get(product_id=384209819).")
        return get_rows(self._lake.engine, self.name, {**(keys or {}), **named}, columns, in_order)


class Lake:
    """A root with tables, a directory or `s3://bucket/prefix`. Open one with `needlepoint.open`."""

    def __init__(
        self, root: str | Path, *, create: bool = True, progress: Progress = no_progress, settings: Settings
    ) -> None:
        forks.begin()
        self.root: Path | str = _root(root)
        self.store = store_directory(self.root, settings.store)
        # Another process that opens this lake may have another home.
        self.settings = settings = replace(settings, store=str(self.store))
        self.progress = progress
        if not create and not (self.store / "registry.db").exists():
            inside = self.store.parent == self.root
            raise UsageError(
                f"there is no lake in '{root}'." if inside else f"there is no store of '{root}' in {self.store}.",
                hint="`needle create-table` or `needle ingest` makes one; --lake or NEEDLE_LAKE says where it is.",
            )
        claim(self.store, self.root)
        self.registry = Registry(self.store, self.root)
        self.queue = _queue(settings.queue, self.store)
        self.index_stores = IndexStores(self.store / "indexes", self.registry)
        self.unpacked = UnpackedPayloads(self.store / "unpacked", settings.unpacked_bytes)
        file_indexes = IndexCache(self.index_stores.packs, self.unpacked, settings.index_bytes, settings.payload_bytes)
        scratch = self.store / "scratch"
        self.indexer = Indexer(self.registry, self.index_stores, scratch, settings, progress)
        self.history = History(self.store, settings.history == "on")
        self.engine = Engine(self.registry, self.index_stores.entries, file_indexes, settings, self.history)
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it: see forks.py."""
        parts = ("registry", "queue", "unpacked", "index_stores", "indexer", "history", "engine")
        for name in parts:
            forks.leak(getattr(self, name))
            setattr(self, name, forks.AbandonedHandle())

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.index_stores.close()
        self.history.close()
        self.queue.close()
        self.registry.close()

    def __repr__(self) -> str:
        return f"Lake({str(self.root)!r})"

    # Tables

    def create_table(self, name: str, location: str | Path | None = None, *, format: str | None = None) -> LakeTable:
        """Make a table of the Parquet files in a directory or under `s3://bucket/prefix`; by default in the directory
        `name` of the lake.

        In a Delta or Iceberg table its log decides which files belong. `format` says what it is: `delta`, `iceberg`, or
        `parquet`, which takes every file that lies there; without it, a log that is found does.
        """
        ddl.create_table(self, name, location, format)
        return LakeTable(self, name)

    def place(self, name: str, location: str | Path | None) -> str:
        if isinstance(location, str) and is_url(location):
            return _checked_url(location)
        place = f"{self.root}/{name}" if location is None else str(Path(location).expanduser().resolve())
        if not is_url(place) and not is_nameable(place.removeprefix("/")):
            raise UsageError(
                f"{place!r} has a control character, or is not UTF-8: not every reader has a name for it.",
                hint="Give the directory another name.",
            )
        return place

    def drop_table(self, name: str) -> None:
        """Forget a table and its indexes. Its files stay where they are; those that batches took out of it and that are
        kept for other readers are deleted, since nobody would know them from its own any more."""
        table = self.registry.table(name)
        try:
            publishing.finish_all(self.registry, self.queue, table)
            with self.registry.turns.of_remover(table):
                indexes = self.registry.indexes(table)
                self.registry.drop_table(name)
        except StoreError as error:
            raise StoreError(
                f"table '{name}' is not dropped: {error.message}", hint="When that is done or mended, drop it again."
            ) from error
        for index in indexes:
            self.index_stores.destroy(index.id)

    def table(self, name: str) -> LakeTable:
        self.registry.table(name)
        return LakeTable(self, name)

    def tables(self) -> list[str]:
        return sorted(self.registry.table_names())

    # Indexes

    def _free_name(self, table: Table, columns: tuple[str, ...], kind: str) -> str:
        """One that no index has; that of the same index, which is refused for it, if there is one."""
        taken = {index.name: index for index in self.registry.indexes()}
        for number in itertools.count(1):
            name = _index_name(table.name, "_".join(columns), kind, number)
            other = taken.get(name)
            if other is None or (other.table_id, other.columns, other.kind) == (table.id, columns, kind):
                break
        return name

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
        """Declare an index and build it for the files there are; `build=False` leaves it to the next sync or event.

        With `embed`, what it knows of a file is put into the file itself, which every other reader goes on reading.
        An interrupt leaves the index declared, with what was built; `build_index` or `sync` goes on.
        docs/indexes.md lists the kinds and their options.
        """
        columns = (column,) if isinstance(column, str) else tuple(column)
        found = ddl.check_index(self, table, columns, kind, embed, options)
        chosen = name or self._free_name(found, columns, kind)
        index = self.registry.create_index(found, chosen, columns, kind, embed=embed, options=options)
        self.index_stores.create(index)
        if build:
            for failure in (each for report in self.build_index(index.name) for each in report.failures):
                _log.warning("%s", failure.reason)
        return index.name

    def build_index(self, name: str) -> list[SyncReport]:
        """Build what an index lacks. One that cannot be made of some file is dropped, and NotIndexable says why; files
        that cannot be read are told in the reports."""
        index = self.registry.index(name)
        table = next(table for table in self.registry.tables() if table.id == index.table_id)
        reports = self.sync(table.name)
        index = self.registry.index(name)  # it may have begun anew
        failures = [each for report in reports for each in report.failures]
        for failure in failures:
            if failure.index_id == index.id:
                self.drop_index(name)
                raise NotIndexable(failure.reason)
        return reports

    def build(self, table: str, index: str | None = None, *, pool: Pool | None = None) -> list[SyncReport]:
        """Sync a table and build what its indexes lack, or one of them: in processes of this machine, or in a pool.

        `needlepoint.spark.build` does it in tasks of Spark. A build that was killed goes on where it was.
        """
        self.indexes_of(table, index)
        publishing.recover(self.registry, self.queue, self.registry.table(table))
        report = self.indexer.build(table, BuildRequest(index=index, pool=pool))
        self.index_stores.sweep()
        return [report]

    def rebuild(self, table: str, index: str | None = None, *, from_data: bool = False) -> list[SyncReport]:
        """Build the indexes of a table, or one of them, again: from the indexes embedded in its files where there are
        any, without reading their data; or `from_data`, which embeds them anew too."""
        for each in self.indexes_of(table, index):
            self.index_stores.replace_index(each)
        request = BuildRequest(from_data=True)
        built = self.indexer.catch_up(self.registry.table(table), request).indexed if from_data else 0
        # What could not be built is tried once more, and reported then.
        return [SyncReport(table, indexed=built).then(report) for report in self.sync(table)]

    def indexes_of(self, table: str, name: str | None = None) -> list[Index]:
        """The indexes of a table, or the one of this name; UnknownName if there is none."""
        known = self.registry.indexes(self.registry.table(table))
        if name is not None and name not in [each.name for each in known]:
            raise UnknownName("index", name, [each.name for each in known])
        return [each for each in known if name in (None, each.name)]

    def drop_index(self, name: str, *, strip: bool = False) -> None:
        """Forget an index. What it embedded stays in the files, which costs room and nothing else; with `strip` it is
        taken out of them."""
        index = self.registry.index(name)
        table = next(table for table in self.registry.tables() if table.id == index.table_id)
        if strip and index.embed:
            # Where this fails the index is still declared: drop it again, or sync builds it.
            self.index_stores.replace_index(index)
            self.indexer.rewrite(table, strip_index(index))
        self.index_stores.destroy(self.registry.drop_index(name).id)

    def verify(self, table: str, samples: int = 20, seed: int | None = None) -> VerifyReport:
        """Compare what the indexes of a table answer with what a scan answers, for sampled values of each."""
        return verify(self.engine, self.registry.table(table), samples, seed)

    def sweep(self, *, now: bool = False) -> SweepReport:
        """Remove what nothing refers to any more: entries of key indexes, packs of payloads, unpacked text indexes,
        staging. With `now` also what was made so lately that another process may be about to refer to it."""
        return sweep(self, now=now)

    def sweep_entries(self, table: str, worth: float = 0.0) -> int:
        """Take entries of files that are gone out of the key indexes of a table where they are more than this share.
        Returns how many that were."""
        indexes = self.registry.indexes(self.registry.table(table))
        return sum(sweep_index_entries(self, index, worth) for index in indexes)

    def key_store(self, index: Index) -> KeyStore:
        return self.index_stores.entries(index)

    # Writing

    def sync(self, table: str | None = None) -> list[SyncReport]:
        """Make registry and indexes agree with the files of a table, or of all tables."""
        names = self.tables() if table is None else [self.registry.table(table).name]
        for name in names:
            publishing.recover(self.registry, self.queue, self.registry.table(name))
        reports = [self.indexer.sync(name) for name in names]
        self.index_stores.sweep()
        return reports

    def retrofit(self, table: str, *, page_index: bool = True, bloom: Sequence[str] = ()) -> list[RetrofitReport]:
        """Add the format's own page indexes, and bloom filters of some columns, to the files of a table that lack them,
        and sync it. Files without one of the columns do without its filter."""
        return batch_writer.retrofit_table(self, table, page_index, bloom)

    def staging(self, table: str) -> Path:
        """A fresh directory for one batch; `publish` takes it from there, to wherever the table lies."""
        check_name("a table", table)
        refuse_of_others(self, table)
        try:
            publishing.sweep_staging(self.store, self.registry)
            place = publishing.staging_directory(self.store, table)
            self.registry.turns.claim(place.name)
            return place
        except OSError as error:
            raise StoreError(f"{self.store} cannot be written: {error}.", hint="Check its permissions.") from error

    def staging_url(self, table: str) -> str:
        """A fresh place for one batch in the bucket of a table, for writers that reach it and no directory in common;
        `publish` copies from there inside the store."""
        check_name("a table", table)
        refuse_of_others(self, table)
        location = self._location(table)
        if not is_url(location):
            raise UsageError(f"table '{table}' lies in {location}.", hint="Stage it in a directory: `staging`.")
        place = publishing.staging_prefix(location, table)
        self.registry.turns.claim(place.rpartition("/")[2])
        return place

    def _location(self, name: str) -> str:
        """Where a table lies, or will."""
        known = name in self.registry.table_names()
        return self.registry.table(name).location if known else self.place(name, None)

    def is_remote(self, table: str) -> bool:
        """Whether the files of a table lie, or will lie, in an object store."""
        return is_url(self._location(table))

    def finisher(self, table: str) -> Callable[[str], int] | None:
        """What embeds the table's indexes into a staged file and returns its size; None when there is nothing to embed.

        It can be pickled and run in other processes, on the file at the path it is given. Who publishes files that were
        not finished loses nothing: the indexer embeds what they lack.
        """
        if table not in self.registry.table_names():
            return None
        return self.indexer.finisher(self.registry.table(table))

    def publish(
        self,
        table: str,
        staged: Sequence[StagedFile],
        staging: Path | str,
        batch: str | None = None,
        *,
        removed: Sequence[File] = (),
        keep: float = 0.0,
        mover: publishing.Mover | None = None,
    ) -> Batch:
        """Add staged files to a table, which is made if there is none; one batch id is one batch, ever.

        Files `removed` leave the table in the same moment, and are deleted `keep` seconds later; TableChanged when one
        of them is not what it was any more. `mover` moves the files, or uploads them, elsewhere than in this process.
        """
        refuse_of_others(self, table)
        place = str(staging)
        found = batch_writer.table_for(self, table, staged, place)
        id = batch or uuid.uuid4().hex
        done = publishing.publish(
            self.registry, self.queue, found, id, staged, place, removed=removed, keep=keep, mover=mover
        )
        self.registry.turns.release(place.rpartition("/")[2])
        return done

    def delete(self, table: str, where: str, *, dry_run: bool = False) -> Deleted:
        """Delete the rows for which a condition is true, as `lake.sql` understands it after WHERE; where it is NULL
        they stay. With `dry_run` it is only told what would be deleted."""
        refuse_removing(self, table)
        return delete.delete(self, table, where, dry_run=dry_run)

    def delete_files(self, table: str, paths: Sequence[str], *, dry_run: bool = False) -> Deleted:
        """Delete whole files of a table, by their paths."""
        refuse_removing(self, table)
        return delete.delete_files(self, table, paths, dry_run=dry_run)

    def drop_partition(
        self, table: str, partition: Mapping[str, Any] | None = None, /, *, dry_run: bool = False, **named: Any
    ) -> Deleted:
        """Delete all files of a partition, or of all partitions with these values: `drop_partition("t", year=2023)`."""
        refuse_removing(self, table)
        return delete.drop_partition(self, table, {**(partition or {}), **named}, dry_run=dry_run)

    def expire(self, table: str, column: str, before: Any, *, dry_run: bool = False) -> Deleted:
        """Delete the rows whose column is less than a value: of a partition column whole files, unread."""
        refuse_removing(self, table)
        return delete.expire(self, table, column, before, dry_run=dry_run)

    def is_counted_on(self, table: str, staging: Path | str) -> bool:
        """Whether the registry counts on these staged files: then they are all there is of a batch."""
        return table in self.registry.table_names() and any(
            batch.staging == str(staging) for batch in self.registry.batches.unfinished(self.registry.table(table))
        )

    def choose_files(self, table: str, wish: Wish) -> Choice:
        """What a compaction would rewrite of a table, which is synced first."""
        return batch_writer.choose_files(self, table, wish)

    def index_files(self, table: str) -> None:
        """Build what the files that the registry knows lack; what cannot be built is for sync to tell."""
        self.indexer.catch_up(self.registry.table(table))

    def finished(self, table: str, batch: str) -> Batch | None:
        """The batch of this id if it was begun before, and finished now if its publisher died on the way; else None."""
        if table not in self.registry.table_names():
            return None
        found = self.registry.table(table)
        if self.registry.batches.get(found, batch) is None:
            return None
        publishing.recover(self.registry, self.queue, found, batch)
        return self.registry.batches.get(found, batch)

    def follow_events(self, *, once: bool = False) -> Iterator[EventResult]:
        """Index what the events on the queue name, as they come, or with `once` until there are none."""
        return follow(self.registry, self.queue, self.indexer, once=once)

    # Questions

    def sql(self, query: str, parameters: Mapping[str, Any] | None = None) -> Result:
        """Any query DataFusion runs, with `$name` for parameters; and CREATE / DROP INDEX or VIEW, SHOW INDEXES.

        EXPLAIN and EXPLAIN ANALYZE give the lines of the report; EXPLAIN VERBOSE gives DataFusion's own plans.
        """
        check_text(query)
        match parse(query):
            case CreateIndex(table, columns, kind, name, options):
                given = {key: value for key, value in options.items() if key != "embed"}
                if clash := given.keys() & {"self", "table", "column", "kind", "name", "build"}:
                    raise SqlError(f"'{min(clash)}' is no option of an index.", hint="docs/indexes.md lists them.")
                embed = options.get("embed", False)
                return _answer("index", [self.create_index(table, columns, kind, embed=embed, name=name, **given)])
            case DropIndex(name):
                self.drop_index(name)
                return _answer("dropped", [name])
            case ShowIndexes(table):
                return self._show_indexes(table)
            case CreateView(name, view):
                check_view(self.engine.explain, name, view)
                self.registry.create_view(name, view)
                return _answer("view", [name])
            case DropView(name):
                self.registry.drop_view(name)
                return _answer("dropped", [name])
            case Explain(explained, analyze):
                report = (
                    self.engine.sql(explained, parameters).report if analyze else self.explain(explained, parameters)
                )
                return Result(pa.table({"plan": pa.array(str(report).split("\n"), pa.string())}), report)
        return self.engine.sql(query, parameters)

    def explain(self, query: str, parameters: Mapping[str, Any] | None = None) -> Report:
        """What a query would read and why, without reading it."""
        check_text(query)
        match parse(query):
            case Explain(explained, analyze):
                return self.engine.sql(explained, parameters).report if analyze else self.explain(explained, parameters)
            case None:
                pass
            case _:
                raise SqlError("only a query can be explained.", hint="CREATE, DROP and SHOW read no rows.")
        return self.engine.explain(query, parameters)

    def plan_read(self, table: str, where: str | None = None, columns: Sequence[str] | None = None) -> ReadPlan:
        """Plan `SELECT columns FROM table WHERE where` for other processes to read, in parts that can be pickled. They
        need the files and nothing else of the lake."""
        return plan_read(self.engine, table, where, columns)

    def advise(self, table: str) -> TableAdvice:
        """Which index, order or compaction would make the queries that were asked of a table faster, and by how much.
        Reads cards, bounds, some rows of the columns that were asked, and the history of queries."""
        return advise_table(self, table)

    def is_current(self, plan: ReadPlan) -> bool:
        """Whether a table has the files it was planned for, as the directory is at this moment."""
        self.engine.snapshots.forget()
        now = self.engine.snapshots.current(plan.table.name)
        return now.listable == plan.listable and tuple(file.path for file in now.files) == plan.paths

    def opener(self) -> Callable[[], Lake]:
        """What opens this lake in another process that reaches its store, once in each; it can be pickled."""
        return functools.partial(_opened, str(self.root), self.settings)

    def lookup(
        self, table: str, keys: Mapping[str, Any], columns: Sequence[str] | None = None, in_order: bool = False
    ) -> Result:
        return get_rows(self.engine, table, keys, columns, in_order)

    def _show_indexes(self, table: str | None) -> Result:
        tables = self.status().tables if table is None else [table_status(self, self.registry.table(table))]
        rows = [index for found in tables for index in found.indexes]
        names = ("name", "table", "column", "kind", "embedded", "files", "entries", "bytes")
        columns = {name: [getattr(row, name) for row in rows] for name in names}
        types = [pa.string()] * 4 + [pa.bool_()] + [pa.int64()] * 3
        return Result(pa.table(columns, pa.schema(list(zip(names, types, strict=True)))), _nothing_read())

    def status(self) -> Status:
        tables = tuple(table_status(self, table) for table in self.registry.tables())
        queue = self.queue
        return Status(str(self.root), str(self.store), tables, queue.waiting(), queue.aside_count(), queue.approximate)

    def caches(self) -> tuple[CacheStatus, ...]:
        """The caches of this process: cards, zone maps, decoded dictionaries, small pages and open indexes of files."""
        engine = self.engine
        held: dict[str, ByteCache[Any]] = {"cards": engine.cards.cards, "zone maps": engine.cards.zones,
                "dictionaries": engine.caches.dictionaries, "pages": engine.caches.pages,
                "open indexes": engine.file_indexes.open}  # fmt: skip
        return tuple(
            CacheStatus(name, len(c), c.bytes, c.limit, c.hits, c.misses, c.evictions) for name, c in held.items()
        )


def _root(root: str | Path) -> Path | str:
    """A directory, or the URL of a place in a bucket."""
    return _checked_url(root) if isinstance(root, str) and is_url(root) else Path(root).expanduser().resolve()


def _checked_url(url: str) -> str:
    from needlepoint.objects.remote import checked_url

    return checked_url(url)


def _queue(url: str, store: Path) -> Queue:
    if not url:
        return LocalQueue(store)
    from needlepoint.queues.sqs import SqsQueue

    return SqsQueue(url)


@functools.cache
def _opened(root: str, settings: Settings) -> Lake:
    return Lake(root, create=False, settings=settings)


forks.reset(_opened.cache_clear)


def _index_name(table: str, column: str, kind: str, number: int) -> str:
    """What an index is called without a name of its own; with a number where others have the same.

    >>> _index_name("product", "Product Id", "key", 1), _index_name("product", "product.id", "key", 2)
    ('product_product_id_key', 'product_product_id_key_2')
    """
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in column.lower())
    end = f"_{number}" if number > 1 else ""
    return f"{table}_{plain}_{kind}"[: LONGEST_NAME - len(end)] + end


def _answer(column: str, values: list[str]) -> Result:
    return Result(pa.table({column: pa.array(values, pa.string())}), _nothing_read())


def _nothing_read() -> Report:
    return Report(list, executed=True)
