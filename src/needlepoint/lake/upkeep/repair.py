"""Repair what `verify` finds: build indexes, cards and zone maps again, finish batches, publish the registry again.

Data files are read, and never written: an index that is embedded in them is left to `needle rebuild --from-data`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from needlepoint.errors import NeedlepointError
from needlepoint.indexes import find_damage
from needlepoint.printable import count
from needlepoint.query import VerifyReport, verify_indexes
from needlepoint.tables import Table, recover

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake

PUBLISHED = "the published registry"


@dataclass(frozen=True, slots=True)
class Repair:
    """One finding of `verify`, and what is done about it. `part` is an index, the cards, a batch or the published
    registry, whose `table` is empty. `is_done` is False if it could not be repaired, and `action` says why."""

    table: str
    part: str
    reason: str
    action: str
    is_done: bool = True


def verify_table(lake: Lake, table: Table, samples: int, seed: int | None) -> VerifyReport:
    found = [find_damage(lake.registry, lake.index_stores, table, each) for each in lake.registry.indexes.of(table)]
    # A reader without the store knows that some indexes are on the machine that writes.
    damaged = tuple(each for each in found if each is not None and not (each.is_away and lake.node is not None))
    unfinished = () if lake.read_only else tuple(_unfinished(lake, table))
    return replace(verify_indexes(lake.engine, table, samples, seed), indexes=damaged, unfinished=unfinished)


def _unfinished(lake: Lake, table: Table) -> Iterator[str]:
    """The batches whose publishers died. Those whose removed files are kept for a while are not among them."""
    for batch in lake.registry.batches.unfinished(table):
        if batch.state != "removing" or batch.keep_until <= time.time():
            with lake.registry.locks.batch_lock(table, batch.batch, wait=False) as mine:
                now = lake.registry.batches.get(table, batch.batch) if mine else None
                if now is not None and now.state != "announced":
                    yield batch.batch


def repair(lake: Lake, table: str | None, *, dry_run: bool, samples: int) -> list[Repair]:
    """Of one table, or of all tables and the published registry."""
    # Asked first: what is repaired in tables is published too, about a second later.
    published = lake.publisher.check() if table is None and lake.publisher is not None else {}
    done: list[Repair] = []
    for name in lake.tables() if table is None else [table]:
        try:
            done += _repair_table(lake, name, dry_run=dry_run, samples=samples)
        except NeedlepointError as error:
            if table is not None:
                raise
            done.append(Repair(name, "the table", str(error), "not repaired", is_done=False))
    return [*done, *_repair_published(lake, published, dry_run=dry_run)]


def _repair_table(lake: Lake, name: str, *, dry_run: bool, samples: int) -> list[Repair]:
    table = lake.registry.tables.get(name)
    report = lake.verify(name, samples)
    planned = _planned(lake, table, report)
    possible = [each for each in planned if each.is_done]
    if dry_run or not possible:
        return planned
    recover(lake.registry, lake.queue, table)
    lake.registry.cards.forget(lake.registry.cards.check(table))
    _forget(lake, report, {each.part for each in possible})
    failed = [each for report in lake.sync(name) for each in report.failures]
    parts = {each.part for each in _planned(lake, table, lake.verify(name, samples))}
    done = [_still_so(each) if each.is_done and each.part in parts else each for each in planned]
    return [*done, *(Repair(name, f"file {each.path}", each.reason, "not indexed", is_done=False) for each in failed)]


def _still_so(planned: Repair) -> Repair:
    return replace(planned, action="not repaired: it is found again", is_done=False)


def _planned(lake: Lake, table: Table, report: VerifyReport) -> list[Repair]:
    """What to do about each finding."""
    name, found = table.name, list[Repair]()
    for batch in report.unfinished:
        found.append(Repair(name, f"batch {batch}", "its publisher ended before it was done.", "finished"))
    if report.damaged:
        found.append(Repair(name, "cards and zone maps", _first(report.damaged), "built again"))
    embedded = {index.name for index in lake.registry.indexes.of(table) if index.embed}
    for damage in report.indexes:
        part = f"index {damage.index}"
        if damage.is_away:
            found.append(Repair(name, part, damage.reason, "not repaired: its store does not answer", False))
        elif damage.embedded:
            found.append(_left_to_rebuild(name, damage.index, damage.reason))
        else:
            found.append(Repair(name, part, damage.reason, "built again"))
    for index in dict.fromkeys(check.index for check in report.differences):
        wrong = [check.condition for check in report.differences if check.index == index]
        reason = f"it answers differently than a scan for {_first(wrong)}"
        if index in embedded:
            found.append(_left_to_rebuild(name, index, reason))
        elif index not in {damage.index for damage in report.indexes}:
            found.append(Repair(name, f"index {index}", reason, "built again"))
    return found


def _left_to_rebuild(table: str, index: str, reason: str) -> Repair:
    action = f"not repaired: `needle rebuild {table} --index {index} --from-data` writes data files"
    return Repair(table, f"index {index}", reason, action, is_done=False)


def _forget(lake: Lake, report: VerifyReport, parts: set[str]) -> None:
    """Make the registry forget what damaged indexes have, so that a sync builds it again."""
    damaged = {damage.index: damage for damage in report.indexes}
    for index in lake.registry.indexes.select(lake.registry.tables.get(report.table)):
        if f"index {index.name}" in parts:
            damage = damaged.get(index.name)
            if damage is not None and damage.files:
                lake.registry.payloads.forget(index, damage.files)
            else:
                lake.index_stores.replace_index(index)


def _repair_published(lake: Lake, damaged: Mapping[str, str], *, dry_run: bool) -> list[Repair]:
    """`damaged` is what is wrong, by name of object."""
    if lake.publisher is None or not damaged:
        return []
    planned = Repair("", PUBLISHED, _first([*damaged.values()]), "published again")
    if dry_run:
        return [planned]
    try:
        lake.publisher.publish_again(damaged)
    except (NeedlepointError, OSError) as error:
        return [replace(planned, action=f"not repaired: {error}", is_done=False)]
    left = lake.publisher.check()
    return [_still_so(planned) if left else planned]


def _first(reasons: Sequence[str]) -> str:
    """The first of them, and how many there are."""
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} ({count(len(reasons), 'finding')})"
