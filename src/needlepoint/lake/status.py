"""What `status` and `caches` report of a lake, as frozen values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from needlepoint.errors import NeedlepointError
from needlepoint.indexer import count_entries
from needlepoint.indexes import store_of
from needlepoint.lake.store_status import StoreStatus, answers, no_answer, silent_stores, store_statuses
from needlepoint.queues import Queue
from needlepoint.tables import Index, Table
from needlepoint.tables.published import PublishState
from needlepoint.tables.registry import Registry

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """`bytes` are those on disk or in a server; of an embedded index, those inside the files. `dead` entries of a key
    index belong to deleted files. `store` is the server that holds a key index, if it is not in the lake's store;
    `problem` says why the index cannot be used now."""

    name: str
    table: str
    column: str
    kind: str
    embedded: bool
    files: int
    entries: int
    bytes: int
    dead: int = 0
    store: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """`indexed` files have everything that is declared; `unknown` ones are in the directory and not in the registry, or
    not as they are now; `rows` does not count theirs. `format` says what decides which files belong, and `version` is
    that of the log, if there is one. `passed_over` are files that no query reads: they have no footer yet, or some
    readers cannot name them. Files `without_card` are scanned. `problem` says why the files of the table are
    unknown."""

    name: str
    location: str
    partitions: tuple[str, ...]
    files: int
    rows: int
    bytes: int
    indexed: int
    unknown: int
    indexes: tuple[IndexStatus, ...]
    format: str = "parquet"
    version: str = ""
    passed_over: int = 0
    problem: str = ""
    without_card: int = 0


@dataclass(frozen=True, slots=True)
class RegistryStatus:
    """Where the registry is, without secrets: `kind` is `sqlite` or `postgresql`. `sequence` counts its changes, and
    asking for it took `seconds`. `format` is the version of how it is stored."""

    kind: str
    place: str
    bytes: int
    sequence: int
    seconds: float
    format: int


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Where the queue is, without secrets. `bytes` and `oldest_seconds`, the age of the oldest event that waits, are
    None where they are not known; `problem` says why the queue cannot be asked."""

    place: str
    waiting: int = 0
    aside: int = 0
    bytes: int | None = None
    oldest_seconds: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """`stores` are all places in which the lake keeps something. `approximate_events`: the queue counts its events
    approximately, and with a delay. `card_bytes` are those of the packs with cards and zone maps that the registry
    names. `published` says how far readers without the store are behind, if the lake is shared; of such a reader, why
    it is behind."""

    root: str
    store: str
    registry: RegistryStatus
    tables: tuple[TableStatus, ...]
    waiting_events: int
    events_set_aside: int
    approximate_events: bool
    card_packs: int = 0
    card_bytes: int = 0
    published: PublishState | None = None
    stores: tuple[StoreStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """The contents and the use of a cache of this process."""

    name: str
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int
    evictions: int


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Freed bytes, what killed writers left behind (staging, unfinished copies), and entries of deleted files in key
    indexes."""

    pack_bytes: int
    unpacked_bytes: int
    staging: int
    entries: int = 0


def registry_status(registry: Registry) -> RegistryStatus:
    kind, place, size = registry.database.describe()
    started = time.perf_counter()
    sequence = registry.sequence()
    return RegistryStatus(kind, place, size, sequence, time.perf_counter() - started, registry.database.format)


def lake_status(lake: Lake) -> Status:
    silent = silent_stores(lake)
    tables = tuple(table_status(lake, table, silent) for table in lake.registry.tables.all())
    queue, registry, published = queue_status(lake.queue), registry_status(lake.registry), publish_state(lake)
    events = (queue.waiting, queue.aside, lake.queue.approximate)
    cards = lake.registry.cards.size()
    stores = store_statuses(lake, registry, tables, queue, published)
    return Status(str(lake.root), str(lake.store), registry, tables, *events, *cards, published, stores)


def queue_status(queue: Queue) -> QueueStatus:
    def ask() -> QueueStatus:
        since = queue.oldest()
        age = None if since is None else max(0.0, time.time() - since)
        return QueueStatus(queue.shown, queue.waiting(), queue.aside_count(), queue.size(), age)

    found = answers({queue.shown: ask})[queue.shown]
    if isinstance(found, QueueStatus):
        return found
    return QueueStatus(queue.shown, problem=no_answer("the queue") if found is None else str(found))


def publish_state(lake: Lake) -> PublishState | None:
    """What is published of the registry, and what this lake has; None if it is not shared."""
    if lake.publisher is not None:
        return lake.publisher.state()
    if lake.node is None:
        return None
    follower = lake.node.follower
    manifest = follower.manifest
    return PublishState(manifest.sequence, lake.registry.sequence(), manifest.published_at, follower.problem)


def table_status(lake: Lake, table: Table, silent: Mapping[str, str] = MappingProxyType({})) -> TableStatus:
    """`silent` are servers with keys that are not asked, and why."""
    format = table.format.partition("=")[0]
    try:
        snapshot = lake.engine.snapshots.current(table.name)
    except NeedlepointError as error:
        declared = [index for index in lake.registry.indexes.all() if index.table_id == table.id]
        indexes, problem = _index_status(lake, table, declared, silent), str(error)
        return TableStatus(
            table.name, table.location, table.partitions, 0, 0, 0, 0, 0, indexes, format, problem=problem
        )
    wanted = {index.id for index in snapshot.indexes}
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
        _index_status(lake, table, snapshot.indexes, silent),
        format,
        snapshot.version,
        len(snapshot.unfinished) + len(snapshot.unnamed),
        without_card=sum(not file.has_card for file in snapshot.files),
    )


def _index_status(
    lake: Lake, table: Table, indexes: Sequence[Index], silent: Mapping[str, str]
) -> tuple[IndexStatus, ...]:
    return tuple(_one_index(lake, table, index, silent.get(store_of(index), "")) for index in indexes)


def _one_index(lake: Lake, table: Table, index: Index, silence: str) -> IndexStatus:
    stores = lake.index_stores
    problem = silence or stores.problem(index)
    return IndexStatus(
        index.name,
        table.name,
        index.shown_columns,
        index.kind,
        index.embed,
        *lake.registry.indexes.coverage(index),
        0 if problem and store_of(index) else stores.size(index),
        0 if problem else count_entries(lake.registry, stores, index).dead,
        store_of(index),
        problem,
    )
