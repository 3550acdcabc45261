"""Find entries in leaf files: which pages can have them, those that memory lacks decoded at once, and binary searches
in all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, pairwise
from typing import NamedTuple

import numpy as np

from needlepoint.objects import concurrently
from needlepoint.stores.base import Locations
from needlepoint.stores.leaf_files.directory import COLUMNS, Numbers
from needlepoint.stores.leaf_files.key_form import KeyCut, least_cut
from needlepoint.stores.leaf_files.keys import Columns, Keys, in_order, joined, key_table, merged
from needlepoint.stores.leaf_files.leaf_reader import LeafReader
from needlepoint.stores.leaf_files.page_table import DecodedPages, Searches, search, to_table
from needlepoint.stores.leaf_files.pages import PagesOfColumns, decode


class LeafPortion(NamedTuple):
    """Pages of a leaf, ascending, and for each the keys `low` to `high`, both inclusive, to look for in it. They are as
    its pages have them; for single keys, both are the same array. A page is there once for each range that it can have
    keys of."""

    reader: LeafReader
    pages: Numbers
    low: Keys
    high: Keys


def find_keys(readers: Sequence[LeafReader], keys: Keys, width: int, limit: int) -> Locations | None:
    """The locations of these keys of so many bytes, which ascend; None if there are more than `limit`."""
    portions: list[LeafPortion] = []
    by_cut: dict[KeyCut, Keys] = {}
    only = key_table(keys, width).tobytes() if len(keys) == 1 else None
    for reader in readers:
        wanted = reader.form.point(only) if only is not None else _wanted(reader, keys, width, by_cut)
        wanted = wanted[reader.directory.admits(wanted)]
        if not _add_portion(portions, reader, wanted, wanted, limit):
            return None
    return _locations(portions, limit)


def _wanted(reader: LeafReader, keys: Keys, width: int, by_cut: dict[KeyCut, Keys]) -> Keys:
    """The keys between the ends of a leaf, as its pages have them. `by_cut` has keys that were cut for another leaf."""
    cut = reader.form.cut
    if cut not in by_cut:
        by_cut[cut] = cut.of(keys, width)
    known = by_cut[cut]
    first, end = np.searchsorted(known, reader.first, "left"), np.searchsorted(known, reader.last, "right")
    return reader.form.points(known[first[0] : end[0]])


def find_between(readers: Sequence[LeafReader], low: bytes, high: bytes, limit: int) -> Locations | None:
    """The locations of all keys from `low` to `high`; None if there are more than `limit`."""
    portions: list[LeafPortion] = []
    for reader in readers:
        ends = reader.form.between(low, high)
        if ends is not None and not _add_portion(portions, reader, *ends, limit):
            return None
    return _locations(portions, limit)


def first_entries(readers: Sequence[LeafReader], cut: KeyCut, count: int, last: bool) -> Columns:
    """The first or the last `count` entries, ascending, with keys that are cut."""
    parts: list[Columns] = []
    for reader in readers:
        directory = reader.directory
        needed = -(-count // directory.page_rows) + 1
        start, stop = (max(0, directory.pages - needed), directory.pages) if last else (0, min(needed, directory.pages))
        found = reader.entries(np.arange(start, stop), cut)
        parts.append(Columns(found.keys[-count:], found.locations[-count:]) if last else _head(found, count))
    together = merged(parts)
    return Columns(together.keys[-count:], together.locations[-count:]) if last else _head(together, count)


def _head(columns: Columns, count: int) -> Columns:
    return Columns(columns.keys[:count], columns.locations[:count])


def _add_portion(portions: list[LeafPortion], reader: LeafReader, low: Keys, high: Keys, limit: int) -> bool:
    """Add the pages that can have entries of these ranges, which ascend. False if the directory shows more entries than
    `limit`: the entries of one leaf are all different."""
    directory = reader.directory
    start, end = directory.spans(low, high)
    lengths = end - start
    if len(low) and (lengths == 1).all():
        portions.append(LeafPortion(reader, start, low, high))
        return True
    inside = lengths > 0
    if not inside.any():
        return True
    # All pages of a range but the last are full, and have nothing else, except the first if it begins before `low`.
    full = np.maximum(lengths - 1 - (directory.first_keys[np.minimum(start, directory.pages - 1)] < low), 0)
    if int(full.sum()) * directory.page_rows > limit:
        return False
    lengths = np.maximum(lengths, 0)
    pages = np.repeat(start - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
    each = np.repeat(np.arange(len(low)), lengths)
    lows = low[each]
    portions.append(LeafPortion(reader, pages, lows, lows if low is high else high[each]))
    return True


def _locations(portions: list[LeafPortion], limit: int) -> Locations | None:
    if not portions:
        return np.empty(0, np.uint64)
    # An entry that was ingested twice is one; a location under two keys is two entries.
    cut = least_cut(portion.reader.form.cut for portion in portions) if len(portions) > 1 else None
    found: list[Columns] = []
    for _, alike in groupby(sorted(portions, key=_layout), key=_layout):
        found += _find(list(alike), cut)
    together = joined(found)
    locations = (together if cut is None else in_order(together)).locations
    return None if len(locations) > limit else locations


def _layout(portion: LeafPortion) -> tuple[int, int, int]:
    """What portions that are searched together must have in common: the rows of a page, the bytes of keys in it, and
    the memory."""
    directory = portion.reader.directory
    return directory.page_rows, directory.width, id(portion.reader.memory)


def _find(portions: list[LeafPortion], cut: KeyCut | None) -> list[Columns]:
    """What is found in the pages that memory has, and in the others, which are read and decoded together. Pages of all
    portions have the same layout, and are kept in the same memory. Keys are cut, or with None as pages have them."""
    layout, memory = portions[0].reader.directory, portions[0].reader.memory
    leaves, pages = [portion.reader.slots for portion in portions], [portion.pages for portion in portions]
    rows = np.concatenate([portion.reader.directory.rows(portion.pages) for portion in portions])
    low = np.concatenate([portion.low for portion in portions])
    is_point = all(portion.low is portion.high for portion in portions)
    high = low if is_point else np.concatenate([portion.high for portion in portions])
    found: list[Columns] = []
    with memory.kept(leaves, pages, layout) as (table, lines):
        known = (lines >= 0).nonzero()[0]
        if len(known):
            of_pages = search(table, _chosen(Searches(lines, rows, low, high), known))
            found.append(_from_pages(portions, known, *of_pages, cut))
    if len(known) == len(lines):
        return found
    needed, places = _needed(portions, lines)
    table = _read_table([portion for portion in needed if len(portion.pages)])
    memory.keep(leaves, [portion.pages for portion in needed], layout, table)
    left, missing = Searches(places, rows, low, high), (lines < 0).nonzero()[0]
    of_pages = search(table, _chosen(left, missing) if len(known) else left)
    found.append(_from_pages(portions, missing, *of_pages, cut))
    return found


def _from_pages(
    portions: list[LeafPortion], searched: Numbers, found: Columns, counts: Numbers, cut: KeyCut | None
) -> Columns:
    """What searches found, so many each, with keys that are cut; these are the numbers of the searches among the pages
    of all portions."""
    forms = [portion.reader.form for portion in portions]
    if cut is None or all(form.alphabets is None and form.cut == cut for form in forms):
        return found
    owners = np.repeat(np.repeat(np.arange(len(portions)), [len(each.pages) for each in portions])[searched], counts)
    ends = np.searchsorted(owners, np.arange(len(portions) + 1))
    parts = [
        cut.of(form.from_pages(found.keys[start:end]), form.cut.width)
        for form, (start, end) in zip(forms, pairwise(ends.tolist()), strict=True)
    ]
    return Columns(np.concatenate(parts), found.locations)


def _chosen(searches: Searches, numbers: Numbers) -> Searches:
    lines, rows, low, high = searches
    some = low[numbers]
    return Searches(lines[numbers], rows[numbers], some, some if low is high else high[numbers])


def _needed(portions: list[LeafPortion], lines: Numbers) -> tuple[list[LeafPortion], Numbers]:
    """The portions with only the pages that are NOWHERE, each once, and for these the lines that they will be."""
    if len(lines) == 1:
        return portions, np.zeros(1, np.int64)
    needed: list[LeafPortion] = []
    made = lines.copy()
    position = count = 0
    for portion in portions:
        end = position + len(portion.pages)
        missing = (lines[position:end] < 0).nonzero()[0]
        pages = portion.pages[missing]
        begins = np.append(True, pages[1:] != pages[:-1])[: len(pages)]
        made[position + missing] = count + np.cumsum(begins) - 1
        needed.append(portion._replace(pages=pages[begins]))
        count += len(needed[-1].pages)
        position = end
    return needed, made


def _read_table(portions: list[LeafPortion]) -> DecodedPages:
    """All pages of the portions, a line each."""
    read = concurrently(_pages, portions) if _wait(portions) else [_pages(portion) for portion in portions]
    rows = np.concatenate([portion.reader.directory.rows(portion.pages) for portion in portions])
    together = (
        read[0] if len(read) == 1 else [[*chain(*(pages[column] for pages in read))] for column in range(COLUMNS)]
    )
    layout = portions[0].reader.directory
    return to_table(decode(together, int(rows.sum()), layout.width), rows, layout.page_rows)


def _wait(portions: list[LeafPortion]) -> bool:
    """Whether reading them is waiting for an object store."""
    return len(portions) > 1 and portions[0].reader.is_remote


def _pages(portion: LeafPortion) -> PagesOfColumns:
    return portion.reader.read(portion.pages)
