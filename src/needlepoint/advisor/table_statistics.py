"""Statistics of a table from cards, bounds and a few rows: sizes of columns and pages, overlap of files and pages,
frequency of values. All are estimates from a sample of files, so a large table takes no longer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.errors import NeedlepointError
from needlepoint.parquet import ABSENT, CachedCard, FileCard, FileRows, read_files
from needlepoint.predicate import Zone
from needlepoint.query import CardCache, Costs, TableState
from needlepoint.tables import File

CARDS, VALUE_FILES, BLOCKS, SETS = 64, 8, 8, 20_000
MOST_ROWS_OF_A_BLOCK = 2000


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Of a column in the whole table. `bytes` are compressed, dictionaries included. `file_share` and `page_share` say
    how many of the files and pages bounds leave for one value, on average; 1.0 where they rule out nothing."""

    type: pa.DataType
    bytes: float
    dictionary_bytes: float  # of one chunk
    pages: float
    file_share: float
    page_share: float
    page_indexed: float  # share of the chunks

    @property
    def page_bytes(self) -> float:
        return self.bytes / max(1.0, self.pages)


@dataclass(frozen=True, slots=True)
class ValueStatistics:
    """From a sample of rows: how many different values a column has, and how many rows of a page have a value, where
    any has."""

    distinct: float
    rows_in_page: float


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    name: str
    kind: str
    columns: tuple[str, ...]
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """`directories` hold files; `unknown` files are not in the registry; `groups` are all row groups. `ours`: the
    table is a directory, so its files can be rewritten; tables with a log of their own (Delta, Iceberg) are not."""

    table: str
    files: int
    rows: int
    bytes: int
    groups: int
    directories: int
    unknown: int
    columns: Mapping[str, ColumnStatistics]
    values: Mapping[str, ValueStatistics]
    indexes: tuple[IndexStatistics, ...]
    costs: Costs
    range_limit: int
    ours: bool = True

    @property
    def file_bytes(self) -> float:
        return self.bytes / max(1, self.files)


def collect_statistics(
    state: TableState,
    cards: CardCache,
    costs: Costs,
    range_limit: int,
    indexes: Sequence[IndexStatistics],
    valued: Sequence[str],
) -> TableStatistics:
    """All of it for one snapshot; values are sampled of the columns in `valued`."""
    snapshot = state.snapshot
    known = [file for file in snapshot.files if file.has_card]
    sample = [known[at] for at in _spread(len(known), CARDS)]
    held = [(file, card) for file in sample if (card := cards.get(file)) is not None]
    scale = snapshot.files and sum(file.identity.size for file in snapshot.files) / max(
        1, sum(file.identity.size for file, _ in held)
    )
    columns = {
        name: _column(state, cards, name, held, float(scale or 1)) for name in snapshot.table.data_columns if held
    }
    chance = np.random.default_rng(0)
    rows = int(state.file_rows.sum())
    sampled = {
        name: found
        for name in valued
        if name in columns and (found := _values(state, name, held, columns[name], rows, chance)) is not None
    }
    return TableStatistics(
        snapshot.table.name,
        len(snapshot.files),
        rows,
        sum(file.identity.size for file in snapshot.files),
        sum(file.row_groups or 1 for file in snapshot.files),
        len(snapshot.partitions),
        snapshot.unknown,
        columns,
        sampled,
        tuple(indexes),
        costs,
        range_limit,
        snapshot.table.format == "parquet",
    )


def _spread(count: int, most: int) -> list[int]:
    return list(range(count)) if count <= most else np.linspace(0, count - 1, most).astype(int).tolist()


def _column(
    state: TableState, cards: CardCache, name: str, held: Sequence[tuple[File, FileCard]], scale: float
) -> ColumnStatistics:
    size = pages = dictionaries = chunks = indexed = 0
    for _, card in held:
        if not card.has(name):
            continue
        field, groups = card.find(name), card.num_row_groups
        for leaf in range(field.first_leaf, field.last_leaf):
            of_leaf, of_pages = slice(leaf * groups, (leaf + 1) * groups), card.leaf_pages(leaf)
            dictionary = int(card.chunks.dictionary_size[of_leaf].sum())
            size += int(card.pages.size[of_pages].sum()) + dictionary
            dictionaries += dictionary
            pages += of_pages.stop - of_pages.start
            chunks += groups
            indexed += int((card.chunks.column_index_offset[of_leaf] != ABSENT).sum())
    type = state.types[name]
    maps = cards.zone_maps([file for file, _ in held], name, type)
    zones = [each.pages for each in maps if each is not None]
    zone = state.zones([name]).columns.get(name)
    files = overlap(zone) if zone is not None else 1.0
    return ColumnStatistics(
        type,
        size * scale,
        dictionaries / max(1, chunks),
        pages * scale,
        files,
        min(files, overlap(Zone.joined(zones)) if zones else 1.0),
        indexed / max(1, chunks),
    )


def overlap(zone: Zone) -> float:
    """The share of the sets of rows whose bounds hold a value, for values from all over.

    >>> from needlepoint.predicate import Bounds
    >>> apart, alike = [Bounds(0, 9, 0, 5), Bounds(10, 19, 0, 5)], [Bounds(0, 19, 0, 5)] * 2
    >>> overlap(Zone.of(apart)), overlap(Zone.of(alike))
    (0.5, 1.0)
    """
    if not zone.known.any():
        return 1.0
    known = np.flatnonzero(zone.known)
    chosen = known[_spread(len(known), SETS)]
    lows, highs = _as_numbers(zone.low[chosen], zone.high[chosen])
    asked = lows / 2 + highs / 2
    inside = np.searchsorted(np.sort(lows), asked, "right") - np.searchsorted(np.sort(highs), asked, "left")
    return float((inside.mean() / len(chosen) * len(known) + len(zone.known) - len(known)) / len(zone.known))


def _as_numbers(lows: npt.NDArray[Any], highs: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Bounds as numbers in their order; of texts the eight bytes after those that all have in common."""
    if lows.dtype != object or not isinstance(lows[0], bytes):
        return lows.astype(np.float64), highs.astype(np.float64)
    first, last = min(lows), max(highs)
    shorter = min(len(first), len(last))
    common = next((at for at in range(shorter) if first[at] != last[at]), shorter)

    def numbers(texts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.array([int.from_bytes(text[common : common + 8].ljust(8, b"\0")) for text in texts], np.float64)

    return numbers(lows), numbers(highs)


def _values(
    state: TableState,
    name: str,
    held: Sequence[tuple[File, FileCard]],
    facts: ColumnStatistics,
    rows: int,
    chance: np.random.Generator,
) -> ValueStatistics | None:
    """Blocks of as many rows as a page has, from all over the table; None when they cannot be read or compared."""
    if pa.types.is_nested(facts.type):
        return None
    block = int(min(MOST_ROWS_OF_A_BLOCK, max(1, rows / max(1.0, facts.pages))))
    wanted = []
    for at in _spread(len(held), VALUE_FILES):
        file, card = held[at]
        if not card.has(name) or not card.num_rows:
            continue
        starts = np.unique(chance.integers(0, max(1, card.num_rows // block), BLOCKS)) * block
        numbers = (starts[:, None] + np.arange(block)[None, :]).ravel()
        path = f"{state.snapshot.table.location}/{file.path}"
        wanted.append(FileRows(path, CachedCard(card), numbers[numbers < card.num_rows]))
    try:
        parts = [chunk for _, found, _ in read_files(wanted, [name]) for chunk in found.column(name).chunks]
        values, owners = _codes(pa.chunked_array(parts), block)
    except (NeedlepointError, OSError, ValueError, pa.ArrowException):
        return None
    if not len(values):
        return None
    counts = np.bincount(values)
    pairs = np.unique(values * (int(owners.max()) + 1) + owners) // (int(owners.max()) + 1)
    blocks = np.bincount(pairs, minlength=len(counts))
    rows_in_page = float(np.median(counts[counts > 0] / blocks[counts > 0]))
    return ValueStatistics(distinct_values(counts[counts > 0], rows), rows_in_page)


def _codes(values: pa.ChunkedArray, block: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A number for each value that is not NULL, the same for the same, and the block it is of."""
    encoded = pc.dictionary_encode(values).combine_chunks()
    indices = (encoded if isinstance(encoded, pa.DictionaryArray) else encoded.chunk(0)).indices
    valid = np.asarray(indices.is_valid())
    owners = np.arange(len(indices)) // block
    return indices.drop_null().to_numpy().astype(np.int64), owners[valid]


def distinct_values(counts: npt.NDArray[np.int64], rows: int) -> float:
    """How many different values all rows have, going by how often each occurs in a sample (the estimator Duj1 of Haas
    and others: values seen once stand for those not seen).

    >>> distinct_values(np.ones(1000, np.int64), 1_000_000), distinct_values(np.full(10, 100), 1_000_000)
    (1000000.0, 10.0)
    """
    sampled, once = int(counts.sum()), int((counts == 1).sum())
    unseen = sampled - once + once * sampled / max(rows, sampled)
    return min(float(rows), len(counts) * sampled / unseen) if unseen else math.nan
