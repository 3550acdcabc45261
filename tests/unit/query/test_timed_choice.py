"""Which of two ways is kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from needlepoint.query.timed_choice import MOST_KEYS, TimedChoice


def test_first_runs_in_threads() -> None:
    """All of them note the same choice; the other one is tried next."""
    choice = TimedChoice(0.02)
    for _ in range(5):
        choice.note("q", False, 1.0)
    for _ in range(2):
        assert choice.choose("q", first=False) is True
        choice.note("q", True, 2.0)
    assert choice.choose("q", first=False) is False


@pytest.mark.parametrize("first", [True, False])
def test_the_faster_is_kept(first: bool) -> None:
    choice, used = TimedChoice(0.02), []
    for _ in range(6):
        used.append(choice.choose("q", first))
        choice.note("q", used[-1], 0.3 if used[-1] else 0.4)
    assert used == [first, not first, first, not first, True, True]


def test_a_quick_query_does_not_try_both() -> None:
    choice = TimedChoice(0.02)
    for _ in range(4):
        assert choice.choose("q", first=False) is False
        choice.note("q", False, 0.001)


@pytest.mark.long
def test_threads_and_many_queries() -> None:
    choice = TimedChoice(0.02)

    def run(number: int) -> None:
        shape = f"q{number % (2 * MOST_KEYS)}"
        choice.note(shape, choice.choose(shape, first=bool(number % 2)), 0.1)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(run, range(6 * MOST_KEYS)))
    assert len(choice._tried) == MOST_KEYS


def test_a_quick_second_try_is_kept() -> None:
    choice, used = TimedChoice(0.02), []
    for _ in range(5):
        used.append(choice.choose("q", first=False))
        choice.note("q", used[-1], 0.001 if used[-1] else 0.5)
    assert used == [False, True, False, True, True]


def test_a_session_that_starts_does_not_decide() -> None:
    """The second try of the other choice has what the first one made."""
    choice, used = TimedChoice(0.004), []
    seconds = {False: iter([0.1, 0.01, 0.01]), True: iter([0.1, 0.005, 0.005, 0.005])}
    for _ in range(6):
        used.append(choice.choose("q", first=False))
        choice.note("q", used[-1], next(seconds[used[-1]]))
    assert used == [False, True, False, True, True, True]


def test_a_much_slower_try_is_not_repeated() -> None:
    choice, used = TimedChoice(0.02), []
    for _ in range(5):
        used.append(choice.choose("q", first=False))
        choice.note("q", used[-1], 9.0 if used[-1] else 0.5)
    assert used == [False, True, False, False, False]


def test_a_choice_that_became_faster_is_found() -> None:
    """Its first tries decoded dictionaries, or ran beside other work."""
    choice, used = TimedChoice(0.02), []
    tries = iter([0.8])
    for _ in range(300):
        used.append(choice.choose("q", first=False))
        choice.note("q", used[-1], next(tries, 0.04) if used[-1] else 0.1)
    assert 4 < used.index(True, 4) < 150
    assert used[150:].count(False) <= 2


def test_the_slower_is_tried_less_and_less() -> None:
    choice, used = TimedChoice(0.02), []
    for _ in range(3000):
        used.append(choice.choose("q", first=False))
        choice.note("q", used[-1], 0.2 if used[-1] else 0.1)
    later = [number for number, chosen in enumerate(used) if chosen][2:]
    assert 4 <= len(later) <= 7
    waits = [right - left for left, right in pairwise(later)]
    assert all(right > 1.9 * left for left, right in pairwise(waits))


def test_times_are_forgotten() -> None:
    """A lucky run does not count for ever."""
    choice = TimedChoice(0.02)
    for chosen, seconds in ((False, 0.1), (True, 0.11), (False, 0.02), (True, 0.1)):
        choice.note("q", chosen, seconds)
    for _ in range(60):
        choice.note("q", choice.choose("q", first=False), 0.1 if choice.choose("q", first=False) else 0.3)
    assert choice.choose("q", first=False) is True


def test_a_way_that_never_ends_is_not_tried_for_ever() -> None:
    """Queries that are cancelled note no time."""
    choice, used = TimedChoice(0.02), []
    for _ in range(20):
        used.append(choice.choose("q", first=True))
        if used[-1]:
            choice.note("q", True, 0.1)
    assert used == [True, *[False] * 3, *[True] * 16]


def test_a_choice_is_settled_when_another_run_would_make_it_too() -> None:
    choice = TimedChoice(worth_seconds=0.01)
    settled = []
    for chosen, seconds in ((True, 0.5), (False, 0.4), (True, 0.5), (False, 0.4)):
        settled.append(choice.is_settled("q"))
        assert choice.choose("q", first=True) is chosen
        choice.note("q", chosen, seconds)
    assert settled[:3] == [False] * 3 and choice.is_settled("q")
    for _ in range(100):
        choice.note("q", False, 0.4)
    assert not choice.is_settled("q")  # the slower one is tried again
    choice.note("little", True, 0.001)
    assert choice.is_settled("little")
