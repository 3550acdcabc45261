"""The composition root: a lake with its registry, queue, stores, indexer and engine put together."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from needlepoint.errors import NameTaken, NotIndexable, StoreError, UnknownName, UsageError
from needlepoint.indexer.follow import Handled, follow
from needlepoint.indexer.indexer import Indexer, Progress, SyncReport, no_progress
from needlepoint.indexes.key import key_bytes
from needlepoint.objects import is_url
from needlepoint.parquet.caches import ByteCache
from needlepoint.query.engine import Engine
from needlepoint.query.explain import Report
from needlepoint.query.lookup import Lookup
from needlepoint.query.result import Result
from needlepoint.query.statements import CreateIndex, CreateView, DropIndex, DropView, ShowIndexes, parse
from needlepoint.settings import Settings
from needlepoint.stores.base import KeyStore
from needlepoint.stores.rocksdb import RocksKeyStore
from needlepoint.tables import publishing
from needlepoint.tables.definitions import Batch, Index, Table, check_name
from needlepoint.tables.discovery import discover_schema, discover_table, read_schemas
from needlepoint.tables.listing import list_files
from needlepoint.tables.queue import LocalQueue
from needlepoint.tables.registry import Registry
from needlepoint.tables.staged import StagedFile

STORE = ".needlepoint"


@dataclass(frozen=True, slots=True)
class IndexStatus:
    name: str
    table: str
    column: str
    kind: str
    files: int
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableStatus:
    """`indexed` files have everything that is declared; `unknown` ones lie in the directory, not in the registry."""

    name: str
    location: str
    partitions: tuple[str, ...]
    files: int
    rows: int
    bytes: int
    indexed: int
    unknown: int
    indexes: tuple[IndexStatus, ...]


@dataclass(frozen=True, slots=True)
class Status:
    root: str
    tables: tuple[TableStatus, ...]
    waiting_events: int
    events_set_aside: int


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """What a cache of this process holds and was asked for."""

    name: str
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int
    evictions: int


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
        return self._lake.lookup(self.name, {**(keys or {}), **named}, columns, in_order)


class Lake:
    """A root with tables. Open one with `needlepoint.open`."""

    def __init__(
        self, root: str | Path, *, create: bool = True, progress: Progress = no_progress, settings: Settings
    ) -> None:
        if "://" in str(root):
            raise UsageError(f"'{root}' is not a directory.", hint="This version keeps lakes in local directories.")
        self.root = Path(root).expanduser().resolve()
        self.store = self.root / STORE
        self.settings = settings
        if not create and not (self.store / "registry.db").exists():
            raise UsageError(
                f"there is no lake in '{root}'.",
                hint="`needle create-table` or `needle ingest` makes one; --lake or NEEDLE_LAKE says where it is.",
            )
        self.registry = Registry(self.store, self.root)
        self.queue = LocalQueue(self.store)
        self._stores: dict[int, KeyStore] = {}
        self._lock = threading.Lock()
        self.indexer = Indexer(self.registry, self._key_store, self.store / "scratch", settings, progress)
        self.engine = Engine(self.registry, self._key_store, settings)
        self._lookup = Lookup(self.engine)

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for store in self._stores.values():
            store.close()
        self.queue.close()
        self.registry.close()

    def __repr__(self) -> str:
        return f"Lake({str(self.root)!r})"

    # Tables

    def create_table(self, name: str, location: str | Path | None = None) -> LakeTable:
        """Make a table of the Parquet files in a directory or under `s3://bucket/prefix`; by default in the directory
        `name` of the lake."""
        check_name("a table", name)
        place = self._place(name, location)
        paths = list(list_files(place).files)
        if not paths:
            there = is_url(place) or Path(place).is_dir()
            raise UsageError(
                f"{'there are no Parquet files in' if there else 'there is no directory'} {place}.",
                hint="Name the directory that holds them, or write some first with `needle ingest`.",
            )
        found = discover_table(place, paths)
        self.registry.create_table(name, place, found.schema, found.partitions, found.mixed)
        self.indexer.sync(name)
        return LakeTable(self, name)

    def _place(self, name: str, location: str | Path | None) -> str:
        if isinstance(location, str) and is_url(location):
            from needlepoint.objects.remote import checked_url

            return checked_url(location)
        return str(Path(location).expanduser().resolve() if location is not None else self.root / name)

    def drop_table(self, name: str) -> None:
        """Forget a table and its indexes. Its files stay where they are."""
        table = self.registry.table(name)
        indexes = self.registry.indexes(table)
        self.registry.drop_table(name)
        for index in indexes:
            self._destroy(index)

    def table(self, name: str) -> LakeTable:
        self.registry.table(name)
        return LakeTable(self, name)

    def tables(self) -> list[str]:
        return sorted(self.registry.table_names())

    # Indexes

    def create_index(
        self, table: str, column: str, kind: str = "key", *, name: str | None = None, build: bool = True
    ) -> str:
        """Declare an index and build it for the files there are; `build=False` leaves it to the next sync or event."""
        found = self.registry.table(table)
        field = found.field(column)
        if kind != "key":
            raise UnknownName("index kind", kind, ["key"])
        if column in found.partitions:
            raise NotIndexable(
                f"column '{column}' of table '{table}' is a partition column.",
                hint="Partitions are pruned without an index.",
            )
        key_bytes(field.type, column, table)
        index = self.registry.create_index(found, name or _index_name(table, column, kind), column, kind)
        self._key_store(index).ingest([])  # an index without entries is there, and empty
        if build:
            self.sync(table)
        return index.name

    def drop_index(self, name: str) -> None:
        self._destroy(self.registry.drop_index(name))

    def _destroy(self, index: Index) -> None:
        self._key_store_of(index, 8).destroy()
        self._stores.pop(index.id, None)

    def _sweep_indexes(self) -> None:
        """Indexes that began anew under another id leave their entries behind, and so does a drop that was killed."""
        # In this order: an index is in the registry before it has a directory.
        there = [int(path.name) for path in (self.store / "indexes").glob("*") if path.name.isdecimal()]
        known = {index.id for index in self.registry.indexes()}
        for id in there:
            if id not in known:
                self._destroy(Index(id, 0, "", "", ""))

    def _key_store(self, index: Index) -> KeyStore:
        with self._lock:
            if index.id not in self._stores:
                table = next((table for table in self.registry.tables() if table.id == index.table_id), None)
                if table is None:
                    raise UnknownName("index", index.name, [each.name for each in self.registry.indexes()])
                width = key_bytes(table.schema.field(index.column).type)
                self._stores[index.id] = self._key_store_of(index, width)
            return self._stores[index.id]

    def _key_store_of(self, index: Index, width: int) -> KeyStore:
        return self._stores.get(index.id) or RocksKeyStore(self.store / "indexes" / str(index.id), width)

    # Writing

    def sync(self, table: str | None = None) -> list[SyncReport]:
        """Make registry and indexes agree with the files of a table, or of all tables."""
        names = self.tables() if table is None else [self.registry.table(table).name]
        for name in names:
            publishing.recover(self.registry, self.queue, self.registry.table(name))
        reports = [self.indexer.sync(name) for name in names]
        self._sweep_indexes()
        return reports

    def staging(self, table: str) -> Path:
        """A fresh directory for one batch; `publish` takes it from there."""
        check_name("a table", table)
        self._refuse_remote(table)
        try:
            publishing.sweep_staging(self.store, self.registry)
            return publishing.staging_directory(self.store, table)
        except OSError as error:
            raise StoreError(f"{self.store} cannot be written: {error}.", hint="Check its permissions.") from error

    def publish(self, table: str, staged: Sequence[StagedFile], staging: Path, batch: str | None = None) -> Batch:
        """Add staged files to a table, which is made if there is none; one batch id is one batch, ever."""
        self._refuse_remote(table)
        found = self._table_for(table, staged, staging)
        return publishing.publish(self.registry, self.queue, found, batch or uuid.uuid4().hex, staged, staging)

    def _refuse_remote(self, name: str) -> None:
        if name in self.registry.table_names() and is_url(location := self.registry.table(name).location):
            raise UsageError(
                f"table '{name}' lies in {location}, where this version does not write.",
                hint="Write the files there by other means, then sync.",
            )

    def _table_for(self, name: str, staged: Sequence[StagedFile], staging: Path) -> Table:
        """The schema of the batch must fit the table before any of it is published."""
        paths = [str(Path(file.path).relative_to(staging)) for file in staged]
        if name not in self.registry.table_names():
            if not staged:
                raise UsageError(f"the first batch of table '{name}' is empty.", hint="It has no schema to go by.")
            found = discover_table(str(staging), paths)
            # Another first batch may be quicker: then this one is a second.
            with contextlib.suppress(NameTaken):
                place = str(self.root / name)
                return self.registry.create_table(name, place, found.schema, found.partitions, found.mixed)
        table = self.registry.table(name)
        if staged:
            known = [file.path for file in self.registry.files(table)]
            found = discover_schema(str(staging), read_schemas(str(staging), paths), [*known, *paths], base=table)
            if found.adds_to(table):
                table = self.registry.widen_schema(table, found.schema, found.mixed)
        return table

    def follow_events(self, *, once: bool = False) -> Iterator[Handled]:
        """Index what the events on the queue name, as they come, or with `once` until there are none."""
        return follow(self.registry, self.queue, self.indexer, once=once)

    # Questions

    def sql(self, query: str, parameters: Mapping[str, Any] | None = None) -> Result:
        """Any query DataFusion runs, with `$name` for parameters; and CREATE / DROP INDEX or VIEW, SHOW INDEXES."""
        match parse(query):
            case CreateIndex(table, column, kind, name):
                return _answer("index", [self.create_index(table, column, kind, name=name)])
            case DropIndex(name):
                self.drop_index(name)
                return _answer("dropped", [name])
            case ShowIndexes(table):
                return self._show_indexes(table)
            case CreateView(name, view):
                self.engine.explain(view)
                self.registry.create_view(name, view)
                return _answer("view", [name])
            case DropView(name):
                self.registry.drop_view(name)
                return _answer("dropped", [name])
        return self.engine.sql(query, parameters)

    def explain(self, query: str, parameters: Mapping[str, Any] | None = None) -> Report:
        """What a query would read and why, without reading it."""
        return self.engine.explain(query, parameters)

    def lookup(
        self, table: str, keys: Mapping[str, Any], columns: Sequence[str] | None = None, in_order: bool = False
    ) -> Result:
        return self._lookup.get(table, keys, columns, in_order)

    def _show_indexes(self, table: str | None) -> Result:
        tables = self.status().tables if table is None else [self._table_status(self.registry.table(table))]
        rows = [index for found in tables for index in found.indexes]
        names = ("name", "table", "column", "kind", "files", "entries", "bytes")
        columns = {name: [getattr(row, name) for row in rows] for name in names}
        types = [pa.string()] * 4 + [pa.int64()] * 3
        return Result(pa.table(columns, pa.schema(list(zip(names, types, strict=True)))), _nothing_read())

    def status(self) -> Status:
        tables = tuple(self._table_status(table) for table in self.registry.tables())
        return Status(str(self.root), tables, self.queue.waiting(), len(self.queue.aside()))

    def caches(self) -> tuple[CacheStatus, ...]:
        """The caches of this process: cards, zone maps, decoded dictionaries and small pages."""
        engine = self.engine
        held: dict[str, ByteCache[Any]] = {"cards": engine.cards.cards, "zone maps": engine.cards.zones,
                "dictionaries": engine.caches.dictionaries, "pages": engine.caches.pages}  # fmt: skip
        return tuple(
            CacheStatus(name, len(c), c.bytes, c.limit, c.hits, c.misses, c.evictions) for name, c in held.items()
        )

    def _table_status(self, table: Table) -> TableStatus:
        snapshot = self.engine.snapshots.current(table.name)
        wanted = {index.id for index in snapshot.indexes}
        indexes = tuple(
            IndexStatus(i.name, table.name, i.column, i.kind, *self.registry.entries(i), self._key_store(i).size())
            for i in snapshot.indexes
        )
        complete = sum(file.has_card and wanted <= file.indexed for file in snapshot.files)
        return TableStatus(
            table.name,
            table.location,
            table.partitions,
            len(snapshot.files),
            sum(file.rows or 0 for file in snapshot.files),
            sum(file.identity.size for file in snapshot.files),
            complete,
            snapshot.unknown,
            indexes,
        )


def _index_name(table: str, column: str, kind: str) -> str:
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in column.lower())
    return f"{table}_{plain}_{kind}"[:63]


def _answer(column: str, values: list[str]) -> Result:
    return Result(pa.table({column: pa.array(values, pa.string())}), _nothing_read())


def _nothing_read() -> Report:
    return Report(list, executed=True)
