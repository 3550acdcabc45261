"""How new files of a table are laid out, so that single pages can be found and read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from needlepoint.tables.model import Index

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Layout:
    """How files are written. A lookup reads whole pages, so pages are small; that does not slow a scan down.

    `dictionary_off` names columns whose values hardly repeat: their dictionary is as large as the data, and every
    lookup would have to read it first. `bloom` names columns that get Parquet's own bloom filters. `sort_by` orders the
    rows of each file: a range of the first of these columns is then in few pages. A nested column is named by its
    path, `address.city`.
    """

    page_rows: int = 250
    page_bytes: int = 64 * KIB
    row_group_bytes: int = 128 * MIB
    compression: str = "zstd"
    dictionary_off: tuple[str, ...] = ()
    bloom: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    max_records_per_file: int = 0  # 0: no limit


def lookup_columns(indexes: Iterable[Index]) -> tuple[str, ...]:
    """Indexed columns that are nearly unique and read one page at a time: they are written without a dictionary.
    Columns of few distinct values, which other kinds of indexes are for, are small with one."""
    return tuple(dict.fromkeys(index.column for index in indexes if index.kind in ("key", "text")))
