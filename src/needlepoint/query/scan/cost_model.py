"""The cost model: page reads, row-group reads or the native scan, whichever is fastest.

    pages       open the file, fetch the pages that hold the rows, decode them here
    row groups  the same for all pages of the affected row groups: more bytes, fewer requests
    scan        DataFusion opens the file and reads what its own pruning leaves

Estimates use the card only: numbers of pages, bytes and requests. The constants are measured
(`benchmarks/calibrate.py` prints them for a machine; the setting `costs` names a file with others).
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from needlepoint.access import Rows
from needlepoint.errors import UsageError
from needlepoint.objects import is_url
from needlepoint.parquet import PAGES_FOR_A_THREAD, CachedCard
from needlepoint.parquet.format import Int64Array

THREADS = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds. Page reads: per file, page, request, byte and decoded value; `skimmed_byte` of pages of which only some
    values are decoded. Native scans: per query, file, byte and value of an IN. `key`: one lookup in a key index. Bytes
    are compressed."""

    file: float = 130e-6
    page: float = 8e-6
    request: float = 3e-6
    byte: float = 1e-9
    value: float = 38e-9
    scan: float = 1.5e-3
    scan_file: float = 400e-6
    scan_byte: float = 2.5e-9
    key: float = 6e-6
    scan_value: float = 50e-6
    skimmed_byte: float = 2.5e-9

    @classmethod
    def of(cls, location: str, path: str) -> Costs:
        """The costs for a location: an object store has more latency and less throughput than a disk."""
        where = "remote" if is_url(location) else "local"
        return read_costs(path)[where] if path else (_REMOTE if where == "remote" else cls())

    def dictionary_byte(self) -> float:
        """Of a dictionary page, or of another one whose values are as small."""
        return self.byte + self.value / _ENTRY_BYTES

    def in_parallel(self, seconds: float, pages: int) -> float:
        """The time that reads of so many pages, of this sequential time, take in threads, which share decoding."""
        threads = max(1, min(THREADS, pages // PAGES_FOR_A_THREAD))
        return seconds / (1 + (threads - 1) * 0.7)


# Compressed bytes of an entry of a dictionary, roughly: it costs as much as a value.
_ENTRY_BYTES = 16

# An object store in the same region: 15 ms to the first byte, eight requests at a time, 80 MB/s each.
_REMOTE = Costs(file=2e-3, request=4e-3, byte=15e-9, scan=20e-3, scan_file=15e-3, scan_byte=8e-9)


@functools.cache
def read_costs(path: str) -> dict[str, Costs]:
    """The costs in a file: `{"local": {…}, "remote": {…}}`. Missing ones have their defaults."""
    bases = {"local": Costs(), "remote": _REMOTE}
    names = {each.name for each in fields(Costs)}
    try:
        found = json.loads(Path(path).expanduser().read_text())
        if not isinstance(found, dict) or not found or not found.keys() <= bases.keys():
            raise ValueError("its keys must be 'local' or 'remote'")
        for where, given in found.items():
            if not isinstance(given, dict) or not given.keys() <= names:
                raise ValueError(f"'{where}' may only have {', '.join(sorted(names))}")
            if not all(isinstance(seconds, int | float) and seconds >= 0 for seconds in given.values()):
                raise ValueError(f"'{where}' has a value that is not a number of seconds")
        return {where: replace(base, **found.get(where, {})) for where, base in bases.items()}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the costs in '{path}' cannot be read: {error}.", hint="benchmarks/calibrate.py writes such a file."
        ) from None


@dataclass(frozen=True, slots=True)
class Estimate:
    """The work of reading some rows of some columns by page."""

    pages: int
    requests: int
    bytes: int
    values: int

    def seconds(self, costs: Costs) -> float:
        decoding = self.pages * costs.page + self.bytes * costs.byte + self.values * costs.value
        return costs.file + self.requests * costs.request + decoding


def by_pages(cached: CachedCard, columns: Sequence[str], rows: Rows) -> Estimate:
    """The estimate for row ranges anywhere in the file. It assumes pages of equal size, so it takes only a few sums."""
    size = cached.sizes(tuple(columns))
    if not size.pages:
        return Estimate(0, 0, 0, 0)
    ranges, share = len(rows.starts), rows.count / max(1, cached.card.num_rows)
    per_column = size.pages / size.leaves
    # Each range starts inside a page and covers its share of the others; no page is read twice.
    begun = per_column * -math.expm1(-ranges / per_column)
    pages = min(size.pages, size.leaves * (begun + share * per_column))
    chunks = min(size.chunks, size.leaves * ranges)
    dictionaries = size.dictionaries * chunks / size.chunks
    requests = min(pages, size.leaves * ranges) + (chunks if dictionaries else 0)
    values = cached.card.num_rows * size.leaves * pages / size.pages + dictionaries / _ENTRY_BYTES
    return Estimate(round(pages), round(requests), round(size.bytes * pages / size.pages + dictionaries), round(values))


def overlaps(first_row: Int64Array, rows: Rows) -> Int64Array:
    """How many row ranges overlap each page, or row group, given the first row of each.

    >>> overlaps(np.array([0, 100, 200, 300]), Rows(np.array([120, 150]), np.array([130, 305]))).tolist()
    [0, 2, 1, 1]
    """
    firsts = np.searchsorted(first_row, rows.starts, side="right") - 1
    lasts = np.searchsorted(first_row, rows.stops - 1, side="right")
    count = len(first_row) + 1
    return np.cumsum(np.bincount(firsts, minlength=count) - np.bincount(lasts, minlength=count))[:-1]


def by_row_groups(cached: CachedCard, columns: Sequence[str], rows: Rows) -> tuple[Rows, Estimate]:
    """The rows of all row groups that hold any of `rows`, and the work of reading them: values beyond those rows count
    twice, since the predicate is evaluated on them."""
    card = cached.card
    groups = np.flatnonzero(overlaps(card.row_group_rows[:-1], rows))
    widened = Rows.joined(card.row_group_rows[groups], card.row_group_rows[groups + 1])
    size, share = cached.sizes(tuple(columns)), len(groups) / max(1, card.num_row_groups)
    whole = Estimate(
        round(size.pages * share),
        size.leaves * len(groups),
        round((size.bytes + size.dictionaries) * share),
        (2 * widened.count - rows.count) * size.leaves + round(size.dictionaries * share / _ENTRY_BYTES),
    )
    return widened, whole


@dataclass(frozen=True, slots=True)
class NativeFilter:
    """How DataFusion filters: whether during the scan, by which columns, and with how many values in the longest IN. It
    plans each value, and searches each in every batch."""

    pushdown: bool
    filtered: frozenset[str]
    values: int = 0


def scan_seconds(
    cached: CachedCard, columns: Sequence[str], rows: Rows, bounded: Estimate | None, native: NativeFilter, costs: Costs
) -> float:
    """The time of a native scan of the file. Rows left by bounds (`bounded`) it finds by the same bounds, if the file
    has a page index. Rows named by an index it finds by reading the columns that it filters by."""
    filtered = [name for name in columns if name in native.filtered]
    if not native.pushdown:
        size = column_bytes(cached, columns)
    elif bounded is not None and all(_has_page_index(cached, name) for name in filtered):
        size = bounded.bytes
    else:
        rest = [name for name in columns if name not in native.filtered]
        size = column_bytes(cached, filtered) + by_pages(cached, rest, rows).bytes
    return costs.scan_file + size * costs.scan_byte


def column_bytes(cached: CachedCard, columns: Sequence[str]) -> int:
    size = cached.sizes(tuple(columns))
    return size.bytes + size.dictionaries


def _has_page_index(cached: CachedCard, column: str) -> bool:
    return cached.sizes((column,)).indexed
