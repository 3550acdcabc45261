"""The bytes to fetch for some rows of a file: its pages, and dictionaries that are not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from needlepoint.objects import LOCAL_GAP, REMOTE_GAP, coalesce
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.read.caches import Caches, FileCache
from needlepoint.parquet.read.dictionaries import is_worth_keeping
from needlepoint.parquet.read.page_plan import CachedCard, ChunkPlan, FilePlan, LeafPlan, PageSelection
from needlepoint.parquet.read.wanted_rows import NOTHING_READ, ReadStats


class ChunkPart(NamedTuple):
    """A chunk to assemble: which of the fetched ranges are its dictionary page and its pages.

    `apart`: its values are looked up in the decoded dictionary, which is `entries` if it was kept.
    """

    leaf: LeafPlan
    plan: ChunkPlan
    row_group: int
    num_rows: int
    dictionary: int | None
    first_range: int
    last_range: int
    sizes: Int64Array  # of the pages
    nested: bool
    apart: bool
    entries: pa.Array | None


class FilePart(NamedTuple):
    """A file to assemble: for each field the chunks of its leaves, by row group, and the place of the rows."""

    plan: FilePlan
    chunks: list[list[list[ChunkPart]]]
    selections: list[PageSelection]
    blocks: list[bytes]  # of all parts of the request; filled when they are fetched
    cache: FileCache | None
    apart: bool


class PageRequest:
    """Collects the byte ranges of all files to assemble, so that they are fetched at once."""

    def __init__(self, cache: FileCache | None) -> None:
        self.cache = cache
        self.ranges: list[tuple[int, int]] = []
        self.blocks: list[bytes] = []
        self.pages = 0
        self.row_groups = 0

    def add(self, plan: FilePlan, rows: Int64Array) -> FilePart:
        chosen: dict[int, tuple[PageSelection, list[tuple[int, list[int], int]]]] = {}
        selections: list[PageSelection] = []
        chunks: list[list[list[ChunkPart]]] = []
        apart = False
        for field in plan.fields:
            shared = id(field.first_row)  # by fields whose pages begin at the same rows
            if shared not in chosen:
                selection = field.select(rows)
                chosen[shared] = selection, selection.by_row_group()
            selection, row_groups = chosen[shared]
            selections.append(selection)
            of_field: list[list[ChunkPart]] = []
            for row_group, stretches, num_rows in row_groups:
                of_row_group: list[ChunkPart] = []
                for leaf in field.leaves:
                    chunk = self._chunk(leaf, row_group, stretches, num_rows, field.nested)
                    of_row_group.append(chunk)
                    apart = apart or chunk.apart
                of_field.append(of_row_group)
            chunks.append(of_field)
            self.row_groups = max(self.row_groups, len(of_field))
        return FilePart(plan, chunks, selections, self.blocks, self.cache, apart)

    def _chunk(self, leaf: LeafPlan, row_group: int, stretches: list[int], num_rows: int, nested: bool) -> ChunkPart:
        ranges = self.ranges
        plan = leaf.chunk(row_group)
        dictionary = entries = None
        apart = False
        if plan.dictionary is not None:
            if self.cache is not None and plan.keepable and is_worth_keeping(plan.dictionary[1], self.cache.num_rows):
                apart, entries = True, self.cache.entries(leaf, row_group)
            if entries is None:
                dictionary = len(ranges)
                ranges.append(plan.dictionary)
        first = len(ranges)
        runs, sizes = leaf.runs(stretches)
        ranges += runs
        self.pages += len(sizes)
        return ChunkPart(leaf, plan, row_group, num_rows, dictionary, first, len(ranges), sizes, nested, apart, entries)


def foresee_rows(cached: CachedCard, columns: Sequence[str], rows: Int64Array) -> ReadStats:
    """What `read_rows` will cost."""
    if not len(rows) or not columns:
        return NOTHING_READ
    request = PageRequest(None)
    for file in cached.plan(tuple(columns)).files:
        request.add(file, rows)
    blocks = coalesce(request.ranges, REMOTE_GAP if cached.card.identity.etag else LOCAL_GAP)
    wanted = sum(block.end - block.start for block in blocks)
    return ReadStats(wanted, len(blocks), request.pages, request.row_groups)


class DictionaryRead(NamedTuple):
    """The bytes of a read of few rows that looks values up in kept dictionaries: of data pages of which only some
    values are decoded, of other pages, and of dictionary pages that are not kept yet."""

    skimmed: float
    decoded: float
    cold: int


def foresee_dictionaries(
    path: str, cached: CachedCard, columns: Sequence[str], num_rows: int, row_groups: Sequence[int], caches: Caches
) -> DictionaryRead:
    """What reading so many rows of these row groups will take. It assumes pages of equal size."""
    skimmed, decoded, cold = 0.0, 0.0, 0
    identity, kept = cached.card.identity, caches.dictionaries
    for leaf in (leaf for file in cached.plan(tuple(columns)).files for field in file.fields for leaf in field.leaves):
        touched = leaf.mean_size * min(num_rows, len(leaf.size))
        chunks = [leaf.chunk(row_group) for row_group in row_groups]
        sizes = [chunk.dictionary[1] if chunk.dictionary else 0 for chunk in chunks]
        if all(chunk.keepable and is_worth_keeping(size, num_rows) for chunk, size in zip(chunks, sizes, strict=True)):
            skimmed += touched
            cold += sum(
                size
                for row_group, size in zip(row_groups, sizes, strict=True)
                if (path, identity, leaf.leaf, row_group) not in kept
            )
        else:
            decoded += touched + sum(sizes)
    return DictionaryRead(skimmed, decoded, cold)
