"""What slows lookups in a Parquet file down, and how Spark and pyarrow write it better."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from needlepoint.printable import size_text

if TYPE_CHECKING:
    from needlepoint.parquet.inspect.anatomy import Anatomy, ColumnAnatomy

# A lookup reads and decodes whole pages: 64 KiB take a fraction of a millisecond, 1 MiB takes several.
LARGE_PAGE = 128 * 1024
# Below this the header of a page and its entry in the page index weigh as much as its values.
TINY_PAGE, MANY_PAGES = 512, 1000
# A dictionary is read whole for one value.
LARGE_DICTIONARY, DICTIONARY_SHARE = 32 * 1024, 0.4
TINY_ROW_GROUP, MANY_ROW_GROUPS = 1 << 20, 8
# Less than this is not worth advice.
LITTLE = 64 * 1024
WASTED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class LayoutAdvice:
    """One possible improvement. `columns` are the affected ones, the largest first; empty: the whole file."""

    problem: str
    remedy: str
    columns: tuple[str, ...] = ()


def advise(anatomy: Anatomy) -> tuple[LayoutAdvice, ...]:
    """All that applies, the gravest first."""
    found = (rule(anatomy) for rule in RULES)
    return tuple(each for each in found if each is not None)


def no_page_index(anatomy: Anatomy) -> LayoutAdvice | None:
    # Chunks smaller than a page are one page, index or not.
    columns = _largest(c for c in anatomy.columns if c.page_index < c.chunks and c.compressed > LITTLE)
    if not columns:
        return None
    chunk = max(column.compressed // column.chunks for column in columns)
    return LayoutAdvice(
        f"no page index: one row costs a whole column chunk, {size_text(chunk)} at worst",
        "`needle retrofit FILE --page-index` adds it. pyarrow: write_page_index=True. "
        "Spark 3.2 and later writes it always.",
        _names(columns),
    )


def large_pages(anatomy: Anatomy) -> LayoutAdvice | None:
    columns = _largest(c for c in anatomy.columns if c.pages and c.pages.median_bytes > LARGE_PAGE)
    if not columns:
        return None
    pages = [column.pages for column in columns if column.pages]
    rows = max(page.median_rows or 0 for page in pages)
    of_rows = f" of {rows:,} rows" if rows else ""
    return LayoutAdvice(
        f"large pages: one row costs a page of {size_text(max(page.median_bytes for page in pages))}{of_rows}",
        "Spark: option parquet.page.size=65536, parquet.page.row.count.limit=1000 or so. "
        "pyarrow: data_page_size=65536, max_rows_per_page=1000 or so.",
        _names(columns),
    )


def useless_dictionary(anatomy: Anatomy) -> LayoutAdvice | None:
    columns = _largest(c for c in anatomy.columns if _dictionary_is_useless(c))
    if not columns:
        return None
    size = max(column.dictionary_bytes // column.dictionary_chunks for column in columns)
    given_up = sum(column.plain_after_dictionary > 0 for column in columns)
    also = f"; {given_up} of them gave it up for PLAIN midway" if given_up else ""
    return LayoutAdvice(
        f"useless dictionary: one value costs a dictionary of {size_text(size)}, and it saves little{also}",
        "Spark: option parquet.enable.dictionary#COLUMN=false. pyarrow: use_dictionary=[the other columns].",
        _names(columns),
    )


def _dictionary_is_useless(column: ColumnAnatomy) -> bool:
    if column.dictionary_bytes <= LARGE_DICTIONARY * column.dictionary_chunks:
        return False
    return column.plain_after_dictionary > 0 or column.dictionary_bytes > DICTIONARY_SHARE * column.compressed


def no_statistics(anatomy: Anatomy) -> LayoutAdvice | None:
    # INT96 has no order; what is nested has no rows to rule out.
    columns = [c for c in anatomy.columns if c.statistics < c.chunks and not c.nested and c.physical_type != "INT96"]
    if not columns or not anatomy.rows:
        return None
    return LayoutAdvice(
        "no minimum and maximum: no row group can be ruled out by them",
        "pyarrow: write_statistics=True. Spark and DuckDB write them always.",
        _names(_largest(columns)),
    )


def tiny_row_groups(anatomy: Anatomy) -> LayoutAdvice | None:
    groups = anatomy.row_groups
    if len(groups) < MANY_ROW_GROUPS:
        return None
    median = statistics.median(group.uncompressed for group in groups)
    if median >= TINY_ROW_GROUP:
        return None
    rows = int(statistics.median(group.rows for group in groups))
    return LayoutAdvice(
        f"tiny row groups: {len(groups):,} of {rows:,} rows, {size_text(median)}; "
        "the footer grows and nothing compresses well",
        "pyarrow: write larger tables at a time, row_group_size=1000000 or so. Spark: fewer, larger tasks.",
    )


def not_compressed(anatomy: Anatomy) -> LayoutAdvice | None:
    columns = _largest(c for c in anatomy.columns if "UNCOMPRESSED" in c.codecs and c.compressed > LITTLE)
    if not columns:
        return None
    return LayoutAdvice(
        f"not compressed: {size_text(sum(column.compressed for column in columns))}",
        "Spark: option compression=zstd. pyarrow: compression='zstd'.",
        _names(columns),
    )


def tiny_pages(anatomy: Anatomy) -> LayoutAdvice | None:
    columns = _largest(
        c for c in anatomy.columns if c.pages and c.pages.count >= MANY_PAGES and c.pages.median_bytes < TINY_PAGE
    )
    if not columns:
        return None
    pages = sum(column.pages.count for column in columns if column.pages)
    return LayoutAdvice(
        f"tiny pages: {pages:,} of about {size_text(min(c.pages.median_bytes for c in columns if c.pages))}; "
        "headers and page index weigh as much as the values",
        "Spark: a larger parquet.page.row.count.limit. pyarrow: a larger max_rows_per_page or data_page_size.",
        _names(columns),
    )


def wasted_bytes(anatomy: Anatomy) -> LayoutAdvice | None:
    if anatomy.wasted <= max(WASTED_SHARE * anatomy.size, 4096):
        return None
    return LayoutAdvice(
        f"wasted: {size_text(anatomy.wasted)} belong to nothing the footer refers to",
        "Rewrite the file; every reader does without them.",
    )


RULES: tuple[Callable[[Anatomy], LayoutAdvice | None], ...] = (
    no_page_index,
    large_pages,
    useless_dictionary,
    no_statistics,
    tiny_row_groups,
    not_compressed,
    tiny_pages,
    wasted_bytes,
)


def _largest(columns: Iterable[ColumnAnatomy]) -> list[ColumnAnatomy]:

    return sorted(columns, key=lambda column: -column.compressed)


def _names(columns: Sequence[ColumnAnatomy]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)
