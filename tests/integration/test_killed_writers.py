"""Promise 5: after a kill at any point, the lake opens, answers correctly and catches up. `make fuzz` kills more."""

from __future__ import annotations

import time

import pytest
from tests.fuzz import killed_writers


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.long)])
def test_a_killed_writer_leaves_a_lake_that_answers_and_catches_up(kills: int) -> None:
    tally = killed_writers.run(kills, time.monotonic() + 300, kills)
    assert tally.tried == kills
    assert not tally.findings, "\n".join(tally.findings)
