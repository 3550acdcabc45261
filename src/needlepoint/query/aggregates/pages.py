"""Rows of pages and row groups that bounds decide: those of which each row counts, and those of which none does.

id > 3000      pages   1000-1999   2000-2999   3000-3999   4000-4999
                         NEVER       NEVER       MAYBE       ALWAYS      count 1000 rows, and read one page
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from needlepoint.access import Rows
from needlepoint.indexes import ZoneMap
from needlepoint.predicate import Match, Predicate, Zones, match
from needlepoint.query.aggregates.facts import FileFacts, all_columns
from needlepoint.query.scan.cost_model import overlaps

# Reading so few rows of a file takes no longer than finding them in a key index.
FEW_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class PageCounts:
    """How many rows of a file count by the bounds of pages, and which ones these leave open. All values of those that
    are not NULL are in the range `hull`, if that is known."""

    rows: int
    unread: Rows
    hull: tuple[int, int] | None


def decided(facts: FileFacts, positions: npt.NDArray[np.int64]) -> dict[int, PageCounts]:
    """The files among these in which pages are decided."""
    known = facts.grouped & facts.registered
    for function in facts.aggregate.functions:
        known &= facts.of_any_rows(function)
    files = facts.state.snapshot.files
    chosen = [at for at in positions[known[positions]].tolist() if files[at].has_card and (files[at].pages or 0) > 1]
    parts = {at: facts.undecided(at) for at in chosen}
    columns = sorted({column for undecided in parts.values() for each in undecided for column in all_columns(each)})
    stored = [column for column in columns if column not in facts.state.snapshot.table.partitions]
    found = {
        column: dict(
            zip(
                chosen,
                facts.sources.cards.zone_maps([files[at] for at in chosen], column, facts.state.types[column]),
                strict=True,
            )
        )
        for column in stored
    }
    answers = {}
    for at in chosen:
        maps = {column: zone_map for column in stored if (zone_map := found[column][at]) is not None}
        counted, unread = _of_file(parts[at], maps, int(facts.rows[at]))
        if counted:
            hull = _hull(next(iter(maps.values())), unread) if len(maps) == len(stored) == 1 else None
            answers[at] = PageCounts(counted, unread, hull)
    return answers


def _of_file(parts: Sequence[Predicate], maps: Mapping[str, ZoneMap], rows: int) -> tuple[int, Rows]:
    """How many rows of a file count for certain, and which rows may."""
    whole = Rows(np.array([0]), np.array([rows]))
    certain, possible = whole, whole
    for part in parts:
        columns = all_columns(part)
        zone_map = maps.get(columns[0]) if len(columns) == 1 else None
        if zone_map is None or int(zone_map.group_rows[-1]) != rows:
            return 0, whole
        always, may = Rows.of([]), whole
        for edges, zone in ((zone_map.group_rows, zone_map.groups), (zone_map.page_rows, zone_map.pages)):
            found = match(part, Zones(len(zone.known), {columns[0]: zone}))
            always |= Rows.where(edges, found == Match.ALWAYS)
            may &= Rows.where(edges, found != Match.NEVER)
        certain, possible = certain & always, possible & may
    return certain.count, possible & _others(certain, rows)


def _hull(zone_map: ZoneMap, rows: Rows) -> tuple[int, int] | None:
    """The least and greatest value of the pages with these rows, if they are integers."""
    zone = zone_map.pages
    chosen = overlaps(zone_map.page_rows[:-1], rows) > 0 if rows.count else np.zeros(len(zone.known), np.bool_)
    if zone.low.dtype != np.int64 or not chosen.any() or not (zone.known | zone.all_null)[chosen].all():
        return None
    chosen &= zone.known
    return (int(zone.low[chosen].min()), int(zone.high[chosen].max())) if chosen.any() else None


def _others(rows: Rows, total: int) -> Rows:
    """The rows of a file that are not these.

    >>> str(_others(Rows.of([0, 1, 4]), 6))
    '2-4, 5-6'
    """
    return Rows.joined(np.append(0, rows.stops), np.append(rows.starts, total))
