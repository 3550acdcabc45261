"""Remove cards and zone maps of files that are gone, and make few large packs of many small ones.

Packs with dead pieces are copied without them. A copied pack stays until it is as old as one that a killed process
left: queries that began before, and nodes with an older registry, still read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from needlepoint.tables.registry import PACK_BYTES, PackUse, Registry

# An event about one file makes a pack of one file. So many packs below this size become one.
SMALL_PACK, SMALL_PACKS = 8 << 20, 8


def sweep_cards(registry: Registry, older_than: float, worth: float) -> int:
    """Copy packs whose dead share is larger than `worth`, and remove what nothing refers to. Returns the bytes that are
    free."""
    cards = registry.cards
    before = sum(cards.packs.sizes().values())
    for some in _groups(_to_copy(cards.uses(), worth)):
        _copy(registry, [each.id for each in some])
    unused = cards.drop_unused()
    if older_than > 0:
        cards.packs.keep(unused)
    cards.packs.sweep(cards.names(), older_than)
    return max(0, before - sum(cards.packs.sizes().values()))


def _to_copy(packs: Sequence[PackUse], worth: float) -> list[PackUse]:
    used = [each for each in packs if each.live]
    small = [each for each in used if each.size < SMALL_PACK]
    merged = {each.id for each in small} if len(small) >= SMALL_PACKS else set[int]()
    return [each for each in used if each.id in merged or each.size - each.live > worth * each.size]


def _groups(packs: Sequence[PackUse]) -> Iterator[list[PackUse]]:
    """Packs whose live pieces fit into one."""
    held: list[PackUse] = []
    for each in packs:
        if held and sum(other.live for other in held) + each.live > PACK_BYTES:
            yield held
            held = []
        held.append(each)
    if held:
        yield held


def _copy(registry: Registry, pack_ids: Sequence[int]) -> None:
    """Put the live pieces of packs into a new one. A file with a damaged piece loses its card: a sync makes it."""
    cards = registry.cards
    contents, damaged = cards.contents(cards.files_of(pack_ids))
    cards.forget(damaged)
    cards.copy(pack_ids, contents)
