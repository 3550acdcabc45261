"""A process that fills, merges and sweeps a store of leaf files, and is killed at a point between two writes.

It logs each run before and after it is ingested. `killed_at` counts changes of files; the process kills itself before
that one. With None it goes on to the end, and logs how many there were. Changes of a bucket are counted by its server.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from needlepoint.stores.leaf_files import LeafKeyStore, merge

RUNS = 9
_CHANGES = {"os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.copyfile"}


def run_entries(number: int) -> np.ndarray:
    """Forty entries that overlap those of other runs, and one that all runs have."""
    pairs = sorted({(key * (number % 3 + 1), number << 32 | key) for key in range(40)} | {(7, 2**40)})
    return np.array(pairs, dtype=">u8").reshape(-1, 2).view(np.uint8).reshape(-1, 16)


def write(location: str, scratch: str, log: str, killed_at: int | None) -> None:
    merge.FAN_OUT = 3
    seen = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (is_write and str(arguments[0]) != log) or event in _CHANGES:
            seen += 1
            if seen == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)

    with open(log, "ab", buffering=0) as notes:
        sys.addaudithook(count)
        store = LeafKeyStore(location, 8)
        store.ingest([])
        for number in range(RUNS):
            path = Path(scratch) / f"run {number}"
            notes.write(f"begin {number}\n".encode())
            store.write_run(path, run_entries(number), f"run {number}")
            store.ingest([path])
            notes.write(f"done {number}\n".encode())
            if number % 3 == 2:
                store.sweep(grace=-1)  # nobody else reads or writes
        notes.write(f"changes {seen}\n".encode())
        os._exit(0)


def walk(directory: str, points: list[int]) -> None:
    """For each of the points, a store that is killed there, in a directory of that name. Forks, which takes a fraction
    of the time that a new interpreter takes; this process has no threads."""
    warm = LeafKeyStore(f"{directory}/warm/index", 8)  # what libraries import at first use is imported once
    warm.write_run(Path(directory) / "warm run", run_entries(0), "run")
    warm.ingest([Path(directory) / "warm run"])
    warm.refresh([])
    list(warm.scan())
    for killed_at in points:
        place = Path(directory) / str(killed_at)
        (place / "scratch").mkdir(parents=True)
        child = os.fork()
        if not child:
            write(str(place / "index"), str(place / "scratch"), str(place / "log"), killed_at)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
