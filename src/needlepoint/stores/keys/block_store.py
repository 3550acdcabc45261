"""A key store in a server: sorted parts of blocks, found by fences that the reader keeps.

    fences (here)     a        f        m
    blocks (there)    [a c e]  [f h k]  [m z]        a part; a lookup reads one block of each part

Runs are written as parts, and parts of similar size are merged, so that there are few.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from needlepoint import forks
from needlepoint.errors import StoreError
from needlepoint.parquet import ByteCache
from needlepoint.stores.base import BLOCK_BYTES, Entries, IndexDamaged, Locations
from needlepoint.stores.keys import blocks
from needlepoint.stores.keys.part_merge import PartMerge, parts_to_merge
from needlepoint.stores.keys.part_writer import PartWriter
from needlepoint.stores.keys.run_file import RunFile, write_run_file
from needlepoint.stores.keys.space import FORMAT, BlockSpace, Part, Published, SpaceState, StagedPart, patience

_HINT = "Queries scan without it; sync builds it again."
_HINT_BLOCK = "Queries scan without it; `needle repair` builds it again."
_READ_ATTEMPTS = 5
_PORTION = 1 << 16  # entries
_FETCHED_AT_ONCE = 4096  # blocks

Found = TypeVar("Found")


@functools.cache
def _block_cache(size: int) -> ByteCache[Entries]:
    """One cache for all indexes with that setting. Ids of parts are random, and blocks never change."""
    return ByteCache(size)


forks.reset(_block_cache.cache_clear)


@dataclass(frozen=True, slots=True)
class _OpenPart:
    """A part whose fences are here: the first entry of each block, as numpy compares them."""

    part: Part
    fences: Entries

    def block_range(self, low: bytes, high: bytes) -> tuple[int, int]:
        """The blocks that can have entries from low to high; half-open."""
        known = blocks.comparable(self.fences)
        first = int(np.searchsorted(known, np.bytes_(low), "right")) - 1
        return max(first, 0), int(np.searchsorted(known, np.bytes_(high), "right"))


@dataclass(frozen=True, slots=True)
class _View:
    """What a reader relies on: a state, and the runs that were seen in it; `named` of them in the last refresh."""

    state: SpaceState
    parts: tuple[_OpenPart, ...]
    seen: frozenset[str]
    named: int


class _PartsGone(Exception):
    """Blocks are missing: their part was merged, or lost."""


class BlockKeyStore:
    def __init__(self, space: BlockSpace, key_bytes: int, block_bytes: int = BLOCK_BYTES) -> None:
        self._space = space
        self._key_bytes = key_bytes
        self._width = key_bytes + 8
        self._cache = _block_cache(block_bytes)
        self._lock = threading.Lock()
        self._view: _View | None = None
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it: see forks.py."""
        self._lock = threading.Lock()

    # Writing

    def write_run(self, path: Path, entries: Entries, name: str) -> None:
        write_run_file(path, entries, name)

    def ingest(self, runs: Sequence[Path]) -> None:
        with patience():
            self._space.create(self._key_bytes)
            self._checked(self._space.state())
            self._ingest({file.name: file for file in (RunFile(path, self._width) for path in runs)})
        for path in runs:
            path.unlink(missing_ok=True)

    def _ingest(self, runs: Mapping[str, RunFile]) -> None:
        new = sorted(self._space.missing(runs))
        staged = [self._stage_runs(some) for some in _in_order([runs[name] for name in new if runs[name].count])]
        self._publish(new, staged, ())
        if runs:  # also those that are there: who published them may have died before it merged
            self._merge()
            self._space.tidy()

    def _stage_runs(self, runs: Sequence[RunFile]) -> StagedPart:
        part = self._stage(itertools.chain.from_iterable(run.portions(_PORTION) for run in runs))
        assert part is not None  # the runs have entries
        return StagedPart(part, runs[0].name if len(runs) == 1 else None)

    def _stage(self, portions: Iterable[Entries]) -> Part | None:
        """Write entries as a part that is not visible yet; None for no entries."""
        writer = PartWriter(self._space)
        for portion in portions:
            writer.add(portion)
        return writer.close()

    def _publish(self, runs: Sequence[str], added: Sequence[StagedPart], removed: Sequence[Part]) -> bool:
        outcome = self._space.publish(runs, added, removed)
        if outcome is Published.GONE:
            raise IndexDamaged(f"the index in {self._space.shown} is gone.", hint=_HINT)
        if outcome is Published.LOST:
            raise StoreError(
                f"the index in {self._space.shown} lost what was just written.",
                hint="Sync again. Does the server remove keys when its memory is full?",
            )
        if outcome is Published.CHANGED:
            for each in added:
                self._space.discard(each.part)
        return outcome is Published.DONE

    def _merge(self) -> None:
        """Merge parts of similar size, until there are few."""
        while (state := self._space.state()) is not None and (chosen := parts_to_merge(state.parts)):
            try:
                merged = self._stage(PartMerge(self._blocks_uncached, chosen, self._width).portions())
            except _PartsGone:
                return  # another process merges
            if not self._publish((), [StagedPart(merged, None)] if merged else [], chosen):
                return

    # Reading

    def refresh(self, runs: Iterable[str]) -> None:
        with self._lock:
            self._refresh(frozenset(runs))

    def _refresh(self, wanted: frozenset[str]) -> None:
        for _ in range(_READ_ATTEMPTS):
            state = self._checked(self._space.state())
            known, view = {}, self._view
            if view is not None:
                known = {each.part.id: each for each in view.parts if each.part in state.parts}
            try:
                self._check_presence(known)
                parts = tuple(known.get(part.id) or self._open(part) for part in state.parts)
            except _PartsGone:
                self._view = None  # merged just now, or lost
                continue
            # Where no part is gone, what was seen in them is still there.
            seen = view.seen if view is not None and len(known) == len(view.parts) else frozenset[str]()
            if self._space.missing(wanted - seen):
                raise IndexDamaged(f"the index in {self._space.shown} has lost entries.", hint=_HINT)
            self._view = _View(state, parts, wanted | seen, len(wanted))
            return
        raise self._damaged()

    def has_other_runs(self) -> bool:
        view = self._opened()
        return view.state.runs > view.named

    def _checked(self, state: SpaceState | None) -> SpaceState:
        if state is None:
            self._view = None
            raise IndexDamaged(f"the index in {self._space.shown} is gone.", hint=_HINT)
        if state.format > FORMAT:
            raise StoreError(
                f"the index in {self._space.shown} has format {state.format}; this version of Needlepoint reads "
                f"format {FORMAT}.",
                hint="Use the newer version, or rebuild the index with this one.",
            )
        if state.format < FORMAT:  # building it again is the upgrade
            raise IndexDamaged(f"the index in {self._space.shown} has the old format {state.format}.", hint=_HINT)
        if state.key_bytes != self._key_bytes:
            raise IndexDamaged(f"the index in {self._space.shown} has keys of another length.", hint=_HINT)
        return state

    def _check_presence(self, parts: Mapping[int, _OpenPart]) -> None:
        """That the server still has blocks of these parts, though it says so."""
        if len(self._space.fetch({id: [-1] for id in parts}) if parts else ()) != len(parts):
            raise _PartsGone

    def _open(self, part: Part) -> _OpenPart:
        """Read its fences."""
        found = self._blocks_uncached(part.id, [-1 - number for number in range(part.fences)])
        fences = np.concatenate(found) if found else np.empty((0, self._width), np.uint8)
        if len(fences) != part.blocks:
            raise self._damaged()
        return _OpenPart(part, fences)

    def _reading(self, read: Callable[[tuple[_OpenPart, ...]], Found]) -> Found:
        """Read from the parts that are known; from the present ones where they were merged."""
        for _ in range(_READ_ATTEMPTS):
            view = self._opened()
            try:
                return read(view.parts)
            except _PartsGone:
                with self._lock:
                    if self._view is view:
                        self._reopen(view)
        raise self._damaged()

    def _reopen(self, view: _View) -> None:
        state = self._checked(self._space.state())
        if state.version == view.state.version:
            self._view = None
            raise self._damaged()  # nothing was merged
        self._refresh(view.seen)

    def _opened(self) -> _View:
        view = self._view
        if view is None:
            raise StoreError(f"the index in {self._space.shown} was not opened.", hint="Refresh it first.")
        return view

    def _damaged(self) -> IndexDamaged:
        return IndexDamaged(f"the index in {self._space.shown} has lost blocks.", hint=_HINT_BLOCK)

    def find(self, keys: Sequence[bytes], limit: int) -> Locations | None:
        if not keys:
            self._opened()
            return np.empty(0, np.uint64)
        lows = np.array([key + b"\x00" * 8 for key in keys], f"S{self._width}")
        highs = np.array([key + b"\xff" * 8 for key in keys], f"S{self._width}")
        found = self._reading(lambda parts: self._find(parts, lows, highs, limit))
        return None if found is None or len(found) > limit else self._locations(found)

    def find_range(self, low: bytes, high: bytes, limit: int) -> Locations | None:
        lows = np.array([low + b"\x00" * 8], f"S{self._width}")
        highs = np.array([high + b"\xff" * 8], f"S{self._width}")
        found = self._reading(lambda parts: self._find(parts, lows, highs, limit))
        return None if found is None or len(found) > limit else self._locations(found)

    def _find(self, parts: tuple[_OpenPart, ...], lows: np.ndarray, highs: np.ndarray, limit: int) -> Entries | None:
        """Entries between any of the lows and its high; None when one part alone has more than the limit."""
        wanted: dict[int, list[int]] = {}
        for each in parts:
            known = blocks.comparable(each.fences)
            first = np.maximum(np.searchsorted(known, lows, "right") - 1, 0)
            end = np.searchsorted(known, highs, "right")
            # Of the blocks of one range, all but the first and the last have nothing else.
            if (end - first - 2).max(initial=0) * blocks.ENTRIES > limit:
                return None
            wanted[each.part.id] = _numbers(first, end)
        found = []
        for entries in self._blocks(wanted).values():
            held = blocks.comparable(entries)
            first, end = np.searchsorted(held, lows), np.searchsorted(held, highs, "right")
            if (end - first).clip(0).sum() > limit:
                return None
            picked = _numbers(first, end)
            if picked:
                found.append(entries[picked])
        return blocks.merged(found, self._width)

    def _blocks(self, wanted: Mapping[int, Sequence[int]]) -> dict[int, Entries]:
        """The entries of blocks, by part, in order."""
        held: dict[tuple[int, int], Entries] = {}
        absent: dict[int, list[int]] = {}
        for part, numbers in wanted.items():
            for number in numbers:
                entries = self._cache.get((part, number))
                if entries is None:
                    absent.setdefault(part, []).append(number)
                else:
                    held[part, number] = entries
        for some in _in_portions(absent):
            for place, entries in self._decoded(self._space.fetch(some)).items():
                held[place] = entries
                # A copy: a part of an array keeps all of it.
                self._cache.put(place, entries.copy(), entries.nbytes + 200)
        try:
            return {
                part: np.concatenate([held[part, number] for number in numbers])
                for part, numbers in wanted.items()
                if numbers
            }
        except KeyError:
            raise _PartsGone from None

    def _blocks_uncached(self, part: int, numbers: Sequence[int]) -> list[Entries]:
        """For one reading of everything."""
        found = {}
        for some in _in_portions({part: numbers}):
            found.update(self._decoded(self._space.fetch(some)))
        try:
            return [found[part, number] for number in numbers]
        except KeyError:
            raise _PartsGone from None

    def _decoded(self, fetched: Mapping[tuple[int, int], bytes]) -> dict[tuple[int, int], Entries]:
        try:
            return blocks.decode_all(fetched, self._width)
        except ValueError as error:
            raise IndexDamaged(
                f"a block of the index in {self._space.shown} is damaged ({error}).",
                hint=_HINT_BLOCK,
            ) from None

    def ends(self, count: int, last: bool) -> Entries:
        def read(parts: tuple[_OpenPart, ...]) -> Entries:
            found, held = [np.empty((0, self._width), np.uint8)], 0
            at_once = max(1, -(-count // blocks.ENTRIES))
            merge = PartMerge(self._blocks_uncached, [each.part for each in parts], self._width, min(at_once, 64))
            for portion in merge.portions(last=last) if count else ():
                found.append(portion)
                held += len(portion)
                if held >= count:
                    break
            return np.concatenate(found)[:count]

        return self._reading(read)

    def count(self) -> int:
        return sum(each.part.entries for each in self._opened().parts)

    def scan(self) -> Iterator[Entries]:
        """Where parts are merged meanwhile, it goes on in the new ones behind the last entry."""
        after = b""
        for attempt in range(_READ_ATTEMPTS):
            view = self._opened()
            merge = PartMerge(self._blocks_uncached, [each.part for each in view.parts], self._width)
            start = {each.part.id: each.block_range(after, after)[0] for each in view.parts} if after else {}
            try:
                for portion in merge.portions(start=start):
                    rest = portion[blocks.comparable(portion) > np.bytes_(after)] if after else portion
                    if len(rest):
                        yield rest
                        after = rest[-1].tobytes()
                return
            except _PartsGone:
                if attempt == _READ_ATTEMPTS - 1:
                    raise self._damaged() from None
                with self._lock:
                    if self._view is view:
                        self._reopen(view)

    def _locations(self, entries: Entries) -> Locations:
        return np.ascontiguousarray(entries[:, self._key_bytes :]).view(">u8").ravel().astype(np.uint64)

    # Both

    def key_bits(self) -> int:
        return 8 * self._key_bytes

    def size(self) -> int:
        state = self._space.state()
        return 0 if state is None else sum(part.bytes for part in state.parts)

    def close(self) -> None:
        with self._lock:
            self._view = None

    def destroy(self) -> None:
        self.close()
        self._space.destroy()


def _numbers(first: np.ndarray, end: np.ndarray) -> list[int]:
    """All numbers of half-open ranges, ascending and once."""
    if len(first) == 1:
        return list(range(int(first[0]), int(end[0])))
    return sorted({number for a, b in zip(first.tolist(), end.tolist(), strict=True) for number in range(a, b)})


def _in_order(runs: Sequence[RunFile]) -> list[list[RunFile]]:
    """Runs that do not overlap, as those of a large build, together: they become one part."""
    ranges = sorted((*run.ends(), number) for number, run in enumerate(runs))
    if any(last >= first for (_, last, _), (first, _, _) in itertools.pairwise(ranges)):
        return [[run] for run in runs]
    return [[runs[number] for _, _, number in ranges]] if runs else []


def _in_portions(wanted: Mapping[int, Sequence[int]]) -> Iterator[dict[int, Sequence[int]]]:
    """No more blocks at once than a server and this process can hold."""
    some: dict[int, Sequence[int]] = {}
    room = _FETCHED_AT_ONCE
    for part, numbers in wanted.items():
        rest = numbers
        while len(rest):
            some[part], rest = rest[:room], rest[room:]
            room -= len(some[part])
            if room == 0:
                yield some
                some, room = {}, _FETCHED_AT_ONCE
    if some:
        yield some
