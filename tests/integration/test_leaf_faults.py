"""Writers of leaf files are killed between any two writes, and object stores fail: what was acknowledged is there."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.buckets import Asked, Server, aws_server
from tests.cases import cases
from tests.leaf_driver import RUNS, run_entries, walk, write

from needlepoint.stores.base import IndexDamaged
from needlepoint.stores.leaf_files import LeafKeyStore
from needlepoint.stores.leaf_files.place import LeafPlace

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with aws_server() as server:
        yield server


def start(location: str, directory: Path, killed_at: int | None) -> multiprocessing.Process:
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    process = SPAWN.Process(target=write, args=(location, str(scratch), str(directory / "log"), killed_at))
    process.start()
    return process


def union(numbers: list[int]) -> np.ndarray:
    lines = sorted({line.tobytes() for number in numbers for line in run_entries(number)})
    return np.frombuffer(b"".join(lines), np.uint8).reshape(-1, 16)


def check(location: str, directory: Path) -> None:
    """What was acknowledged is there, what was not is there entirely or not at all, and the store goes on."""
    notes = (directory / "log").read_text().split()
    begun = [int(number) for word, number in zip(notes[::2], notes[1::2], strict=True) if word == "begin"]
    done = [int(number) for word, number in zip(notes[::2], notes[1::2], strict=True) if word == "done"]
    store = LeafKeyStore(location, 8)
    try:
        store.refresh([f"run {number}" for number in done])
    except IndexDamaged:
        assert not done and not LeafPlace(location).is_remote and not (Path(location) / "manifest.ndjson").exists()
        store.ingest([])
        store.refresh([])
    scanned = np.concatenate(list(store.scan()))
    assert any(np.array_equal(scanned, union(numbers)) for numbers in (done, begun) if numbers or not len(scanned))
    found = store.find([(7).to_bytes(8, "big")], 1000)
    assert found is not None and (2**40 in found.tolist()) == bool(len(scanned))
    for number in set(range(RUNS)) - set(done):
        run = directory / f"again {number}"
        store.write_run(run, run_entries(number), f"run {number}")
        store.ingest([run])
    store.refresh([f"run {number}" for number in range(RUNS)])
    assert np.array_equal(np.concatenate(list(store.scan())), union(list(range(RUNS))))
    store.sweep(grace=-1)
    store.refresh([])
    live = {leaf.name for leaf in store._open_state().manifest.leaves}
    assert {name for name, _ in LeafPlace(location).listed()} == live
    assert np.array_equal(np.concatenate(list(store.scan())), union(list(range(RUNS))))


def changes(tmp_path: Path) -> int:
    """How many changes of files the process makes if nothing kills it."""
    whole = tmp_path / "whole"
    whole.mkdir()
    process = start(str(whole / "index"), whole, None)
    process.join(60)
    assert process.exitcode == 0
    check(str(whole / "index"), whole)
    return int((whole / "log").read_text().split()[-1])


@pytest.mark.long
def test_a_writer_killed_before_any_change_of_a_file_loses_nothing(tmp_path: Path) -> None:
    total = changes(tmp_path)
    assert total > 100
    points = [*range(1, total, max(1, total // cases(1000, 25)))]
    process = SPAWN.Process(target=walk, args=(str(tmp_path), points))
    process.start()
    process.join()
    assert process.exitcode == 0
    for killed_at in points:
        directory = tmp_path / str(killed_at)
        (directory / "log").touch()
        check(str(directory / "index"), directory)


class Killer:
    """Kills a process at a request that changes something, and fails all those that follow."""

    def __init__(self, killed_at: int, applied: bool) -> None:
        self.killed_at, self.applied, self.seen = killed_at, applied, 0
        self.process: multiprocessing.Process | None = None

    def __call__(self, asked: Asked) -> int | None:
        if asked.method not in ("PUT", "POST", "DELETE"):
            return None
        self.seen += 1
        if self.seen < self.killed_at:
            return None
        if self.seen == self.killed_at and self.process is not None:
            os.kill(self.process.pid or 0, signal.SIGKILL)
        return None if self.applied and self.seen == self.killed_at else 500


@pytest.mark.parametrize("applied", [True, False], ids=["before the answer", "before the request"])
def test_a_writer_killed_at_any_request_loses_nothing(server: Server, tmp_path: Path, applied: bool) -> None:
    for killed_at in range(1, 40, max(1, 39 // cases(40, 3))):
        directory = tmp_path / f"{killed_at}"
        directory.mkdir()
        (directory / "log").touch()
        location = server.bucket().url("index")
        server.before = killer = Killer(killed_at, applied)
        try:
            killer.process = process = start(location, directory, None)
            process.join(60)
        finally:
            server.before = None
        assert process.exitcode in (-signal.SIGKILL, 0)
        if not (directory / "log").read_text():  # killed before the store exists, or was acknowledged
            LeafKeyStore(location, 8).ingest([])
        check(location, directory)


def test_an_object_store_that_fails_now_and_then_is_asked_again(server: Server, tmp_path: Path) -> None:
    location = server.bucket().url("index")
    numbers = iter(range(10**6))
    server.before = lambda asked: 503 if next(numbers) % 4 == 3 else None
    try:
        store = LeafKeyStore(location, 8)
        for number in range(4):
            store.write_run(tmp_path / "run", run_entries(number), f"run {number}")
            store.ingest([tmp_path / "run"])
        store.refresh([f"run {number}" for number in range(4)])
        assert np.array_equal(np.concatenate(list(store.scan())), union(list(range(4))))
    finally:
        server.before = None
