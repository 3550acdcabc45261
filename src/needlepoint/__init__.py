"""Needlepoint: millisecond point lookups on a plain Parquet lake.

    import needlepoint

    lake = needlepoint.open("lake")
    lake.create_table("product", "lake/product")
    lake.create_index("product", "product_id")
    lake.sql("SELECT title, upc FROM product WHERE product_id = 384209819").rows()

Nothing heavy is imported until a lake is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from needlepoint.errors import (
    FileError,
    NameTaken,
    NeedlepointError,
    NotIndexable,
    NotParquet,
    ObjectStoreError,
    QueueError,
    SchemaConflict,
    SparkError,
    SqlError,
    StoreError,
    TableChanged,
    Unfinished,
    UnknownName,
    Unsupported,
    UsageError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from needlepoint.lake import Lake

__version__ = "0.1.0"

__all__ = [
    "open",
    "Lake",
    "FileError",
    "NameTaken",
    "NeedlepointError",
    "NotIndexable",
    "NotParquet",
    "ObjectStoreError",
    "QueueError",
    "SchemaConflict",
    "SparkError",
    "SqlError",
    "StoreError",
    "TableChanged",
    "Unfinished",
    "UnknownName",
    "Unsupported",
    "UsageError",
]


def open(
    root: str | Path,
    *,
    create: bool = True,
    store: str | Path | None = None,
    queue: str | None = None,
    refresh: float | None = None,
    object_refresh: float | None = None,
    index_memory: int | None = None,
    workers: int | None = None,
    cache_bytes: int | None = None,
    dictionary_bytes: int | None = None,
    page_bytes: int | None = None,
    index_bytes: int | None = None,
    unpacked_bytes: int | None = None,
    range_limit: int | None = None,
    access: str | None = None,
    costs: str | None = None,
    history: str | None = None,
    trust_embedded: bool | None = None,
    unfinished: str | None = None,
    progress: Any = None,
) -> Lake:
    """Open the lake in a directory or at `s3://bucket/prefix`; docs/settings.md explains the settings.

    `create=False` refuses a place that is no lake yet. `progress` is called with what is done, how much of it
    and of how much.
    """
    from needlepoint.indexer.indexer import no_progress
    from needlepoint.lake import Lake
    from needlepoint.settings import Settings

    settings = Settings.from_environment(
        store=None if store is None else str(store),
        queue=queue,
        refresh=refresh,
        object_refresh=object_refresh,
        index_memory=index_memory,
        workers=workers,
        cache_bytes=cache_bytes,
        dictionary_bytes=dictionary_bytes,
        page_bytes=page_bytes,
        index_bytes=index_bytes,
        unpacked_bytes=unpacked_bytes,
        range_limit=range_limit,
        access=access,
        costs=costs,
        history=history,
        trust_embedded=trust_embedded,
        unfinished=unfinished,
    )
    return Lake(root, create=create, progress=progress or no_progress, settings=settings)


def __getattr__(name: str) -> Any:
    if name == "Lake":
        from needlepoint.lake import Lake

        return Lake
    raise AttributeError(f"module 'needlepoint' has no attribute '{name}'")
