"""What `status` and `caches` tell of a lake, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """`bytes` are those on disk; of an embedded index, those inside the files. `dead` entries of a key index are
    about files that are gone."""

    name: str
    table: str
    column: str
    kind: str
    embedded: bool
    files: int
    entries: int
    bytes: int
    dead: int = 0


@dataclass(frozen=True, slots=True)
class TableStatus:
    """`indexed` files have everything that is declared; `unknown` ones lie in the directory, not in the registry.
    `format` says who decides which files belong, and `version` is that of the log where one does."""

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


@dataclass(frozen=True, slots=True)
class Status:
    """`approximate_events`: the queue counts its events roughly, and a while later."""

    root: str
    store: str
    tables: tuple[TableStatus, ...]
    waiting_events: int
    events_set_aside: int
    approximate_events: bool


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


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Bytes that are free again, staging directories that are gone, and entries that key indexes had of files that
    are."""

    pack_bytes: int
    unpacked_bytes: int
    staging: int
    entries: int = 0
