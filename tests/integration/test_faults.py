"""Faults in the middle of every change, over combinations of all stores; tests/faults.py says what holds after each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.cases import PROFILE, cases, long
from tests.fault_driver import CHANGES
from tests.faults import PLACES, Fault, Place, Work, check
from tests.proxies import Passage

SHORT, LONG = 0.5, 10.0  # seconds that servers are away
POINTS = os.environ.get("NEEDLE_TEST_POINTS", "")  # make test-faults: `all`, or how many of each case
SEED = os.environ.get("NEEDLE_TEST_SEED", "")

CASES = [
    (name, change)
    for name in PLACES
    for change in CHANGES
    if change != "checkpoint" or "postgres, " not in name  # it publishes no checkpoints
]
ON_A_WIRE = [(name, change) for name, change in CASES if name not in PLACES[:2]]


def few(given: Sequence[tuple[str, ...]], first: int) -> list[Any]:
    """By default every fifth place from the `first` on, with different changes and faults; in `make test-all` all."""
    chosen = set()
    for number, name in enumerate(dict.fromkeys(each[0] for each in given)):
        of = [each for each in given if each[0] == name]
        if number % 5 == first % 5:
            chosen.add(of[(number + first) * 5 % len(of)])
    return [pytest.param(*each, marks=[] if each in chosen else [pytest.mark.long]) for each in given]


def points(count: Callable[[], int], likely: int, *seed: object) -> list[int]:
    """Some of the points, by a seed; with `make test-faults` every one. `count` says how many there are. By default one
    of the first, which are `likely` there."""
    random = Random(f"{SEED}{seed}")
    if PROFILE == "default" and not POINTS:
        return [random.randrange(1, likely)]
    total = count()
    return random.sample(range(1, total + 1), total if POINTS == "all" else min(total, int(POINTS or 2)))


@pytest.mark.parametrize(("name", "change"), few(CASES, 0))
def test_a_process_killed_between_any_two_writes(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, change: str
) -> None:
    place = Place(name, request, tmp_path)

    def count() -> int:
        whole = place.start(change)
        assert whole.end() == "done"
        return whole.points

    for killed_at in points(count, 40, name, change):
        work = place.start(change, killed_at)
        check(work, work.end())


def killed_before(work: Work) -> Passage:
    work.kill()
    return Passage.CUT


def killed_after(work: Work) -> Passage:
    work.kill()
    return Passage.FORWARD


def cut_before(work: Work) -> Passage:
    return Passage.CUT


def cut_after(work: Work) -> Passage:
    return Passage.UNANSWERED


FAULTS = {each.__name__: each for each in (killed_before, killed_after, cut_before, cut_after)}


def pieces(place: Place, change: str) -> int:
    """How many the process sends when nothing happens to it."""
    fault = Fault(0, cut_before)
    assert place.meet(change, fault).end() == "done"
    return fault.seen


# Each change of a place meets another of the faults; with `make test-faults` all of them.
WIRED = [
    (name, change, fault)
    for number, (name, change) in enumerate(ON_A_WIRE)
    for turn, fault in enumerate(FAULTS)
    if POINTS or (number + number // len(FAULTS)) % len(FAULTS) == turn
]


@pytest.mark.parametrize(("name", "change", "fault"), few(WIRED, 3))
def test_a_fault_at_any_piece_of_what_is_sent(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, change: str, fault: str
) -> None:
    """The process is killed, or its connection is cut, before the server gets a piece or after."""
    place = Place(name, request, tmp_path)
    for at in points(lambda: pieces(place, change), 15, name, change, fault):
        work = place.meet(change, Fault(at, FAULTS[fault]))
        check(work, work.end())


@pytest.mark.long
@pytest.mark.parametrize(("name", "change"), few(ON_A_WIRE, 5))
def test_servers_that_go_away_in_the_middle_and_come_back(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, change: str
) -> None:
    """Registry, keys and bucket at once. What is refused meanwhile works in the same open lake when they are back."""
    place = Place(name, request, tmp_path)
    away = LONG if PROFILE == "thorough" and change == next(iter(CHANGES)) else SHORT
    for at in points(lambda: pieces(place, change), 15, name, change)[:5]:
        left, back = threading.Event(), threading.Event()

        def leave(work: Work, left: threading.Event = left, back: threading.Event = back) -> Passage:
            left.set()
            place.wire.go_away()
            threading.Timer(away, lambda: (place.wire.come_back(), back.set())).start()
            return Passage.CUT

        work = place.meet(change, Fault(at, leave))
        assert not left.is_set() or back.wait(2 * LONG)  # the process may have ended before
        check(work, work.end())


FULL = [(name, change) for name, change in CASES if name in (*PLACES[:2], "sqlite, lake:, bucket")]


@pytest.mark.parametrize(("name", "change"), few(FULL, 1))
def test_a_disk_that_is_full_during_a_change(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, change: str
) -> None:
    """No file can get larger than some bytes. What is refused works in the same open lake when there is room again."""
    place = Place(name, request, tmp_path)
    sizes = [0, 100, 700, 1500, 3000, 5000, 9000, 20_000, 40_000, 80_000]
    for largest in Random(f"{name} {change}").sample(sizes, cases(3, 1)):
        work = place.start(change, largest=largest)
        check(work, work.end())


@pytest.mark.long
@pytest.mark.parametrize("largest", [300, *long(0, 2000, 10_000, 40_000)])
def test_a_reader_whose_disk_is_full(tmp_path: Path, request: pytest.FixtureRequest, largest: int) -> None:
    """Its cache has no room: it answers all the same, or says why it cannot, and works when there is room again."""
    place = Place("sqlite, lake:, bucket", request, tmp_path)
    whole = place.start("checkpoint")
    assert whole.end() == "done"
    assert place.read(whole.stores, largest) in ("done", "refused")
