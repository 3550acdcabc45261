"""Merge sorted runs that overlap into runs that do not: each takes one range of entries out of all of them.

    runs of tasks      a c e f    b c d h    a g i
    ranges             [a a b c c d)    [d e f)    [g h i]

RocksDB ingests runs of disjoint ranges into its lowest level: a lookup reads one of them, and nothing is left to
compact. A range is a part of every run, found by bisection, and small enough to be sorted in memory.
"""

from __future__ import annotations

import bisect
import itertools
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from needlepoint.indexes import write_run
from needlepoint.indexes.key import sorted_once
from needlepoint.stores import Entries, name_in_range


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Entries `low <= entry < high` of plain runs, given by path and bytes; an empty bound is open."""

    runs: tuple[tuple[str, int], ...]
    key_bytes: int
    low: bytes = b""
    high: bytes = b""
    run_format: str = "sst"


@dataclass(frozen=True, slots=True)
class MergedRun:
    """A run that a store can ingest."""

    name: str
    file: str
    entries: int


def write_plain(path: Path, entries: Entries) -> str:
    """Write entries one after the other, durably. Returns their checksum."""
    data = np.ascontiguousarray(entries).data
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return xxhash.xxh3_64_hexdigest(data)


def is_plain(path: Path, checksum: str) -> bool:
    """Whether a file has the bytes that were written."""
    found = xxhash.xxh3_64()
    try:
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                found.update(data)
    except OSError:
        return False
    return found.hexdigest() == checksum


def choose_ranges(
    plain: Sequence[tuple[str, int]], key_bytes: int, most: int, run_format: str = "sst"
) -> list[EntryRange]:
    """Ranges that cover all entries of the runs, with at most `most` in each."""
    runs = [_opened(path, size, key_bytes) for path, size in plain]
    if not runs:
        return []
    # A sample represents the `step` entries up to it. Between two samples are as many entries as the samples between
    # represent, and less than a step more in each run: with steps this small that is half of what is allowed.
    step = max(1, most // (2 * len(runs)))
    last = max(run[-1].tobytes() for run in runs)
    samples = sorted(entry for run in runs for entry in run[step - 1 :: step].tolist() if entry < last)
    together = max(1, most // (2 * step))
    bounds = [b"", *dict.fromkeys(samples[together - 1 :: together]), b""]
    return [EntryRange(tuple(plain), key_bytes, low, high, run_format) for low, high in itertools.pairwise(bounds)]


def merge(task: EntryRange, directory: Path) -> MergedRun | None:
    """One run with the entries of a range, in a file of the directory; None when there are none."""
    entries = sorted_once(_read(task))
    if len(entries) == 0:
        return None
    name = name_in_range(uuid.uuid4().hex, entries)
    file = f"{name[:32]}.sst"
    write_run(directory / file, entries, name, task.key_bytes, task.run_format)
    return MergedRun(name, file, len(entries))


def _opened(path: str, size: int, key_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """A run as an array that is mapped, not read; an error when the file is shorter."""
    width = key_bytes + 8
    return np.memmap(path, dtype=f"V{width}", mode="r", shape=(size // width,))


def _read(task: EntryRange) -> Entries:
    width = task.key_bytes + 8
    pieces = [(path, *_piece(_opened(path, size, task.key_bytes), task)) for path, size in task.runs]
    entries = np.empty((sum(end - start for _, start, end in pieces), width), np.uint8)
    filled = 0
    for path, start, end in pieces:
        with open(path, "rb") as file:
            file.seek(start * width)
            got = file.readinto(entries[filled : filled + end - start].data) if end > start else 0
        if got != (end - start) * width:
            raise OSError(f"{path} is too short")
        filled += end - start
    return entries


def _piece(run: np.ndarray[tuple[int], np.dtype[np.void]], task: EntryRange) -> tuple[int, int]:
    """Where a range begins and ends in a run."""

    def place(bound: bytes) -> int:
        return bisect.bisect_left(range(len(run)), bound, key=lambda number: run[number].tobytes())

    return place(task.low) if task.low else 0, place(task.high) if task.high else len(run)
