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
    LimitExceeded,
    LockLost,
    NameTaken,
    NeedlepointError,
    NotIndexable,
    NotParquet,
    ObjectStoreError,
    QueryCancelled,
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
    from collections.abc import Callable
    from pathlib import Path
    from typing import Unpack

    from needlepoint.lake import Connection, Lake, Limits, MovedRegistry
    from needlepoint.settings import SettingOverrides, Settings

__version__ = "0.1.0"

# Of `connect`, as DB-API 2.0 requires.
apilevel, threadsafety, paramstyle = "2.0", 2, "qmark"

__all__ = [
    "open",
    "connect",
    "move_registry",
    "apilevel",
    "threadsafety",
    "paramstyle",
    "Lake",
    "Limits",
    "FileError",
    "LimitExceeded",
    "LockLost",
    "NameTaken",
    "NeedlepointError",
    "NotIndexable",
    "NotParquet",
    "ObjectStoreError",
    "QueryCancelled",
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
    settings: Settings | None = None,
    *,
    create: bool = True,
    read_only: bool = False,
    progress: Callable[[str, float, int], None] | None = None,
    **overrides: Unpack[SettingOverrides],
) -> Lake:
    """Open the lake in a directory or at `s3://bucket/prefix`.

    Settings come from environment variables, or are all in `settings`; single ones can be given by name, as
    `open("lake", workers=4)`. docs/settings.md explains them. `create=False` refuses a place that is not a lake yet.
    With `read_only` nothing is written to the lake or its store, which can be on a read-only file system.
    `progress` is called with what is done, how much of it (parts of files count), and of how much.
    """
    from needlepoint.indexer import no_progress
    from needlepoint.lake import Lake
    from needlepoint.settings import Settings

    chosen = Settings.from_environment(**overrides) if settings is None else settings.override(**overrides)
    return Lake(root, create=create, read_only=read_only, progress=progress or no_progress, settings=chosen)


def connect(root: str | Path, *, create: bool = False, **settings: Unpack[SettingOverrides]) -> Connection:
    """Connect to a lake by DB-API 2.0 (PEP 249): see needlepoint.lake.dbapi."""
    from needlepoint import lake

    return lake.connect(root, create=create, **settings)


def move_registry(root: str | Path, source: str, target: str, **settings: Unpack[SettingOverrides]) -> MovedRegistry:
    """Move the registry of a lake between `sqlite`, in the lake's store, and `postgresql://…`. It keeps all ids and its
    identity, so no index is built again. Afterwards the old one refuses to be opened."""
    from needlepoint import lake
    from needlepoint.settings import Settings

    return lake.move_registry(root, source, target, Settings.from_environment(**settings))


def __getattr__(name: str) -> Any:
    if name in ("Lake", "Limits"):
        from needlepoint import lake

        return getattr(lake, name)
    raise AttributeError(f"module 'needlepoint' has no attribute '{name}'")
