"""The local queue, beyond the contract of all queues (tests/contract)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from needlepoint.queues.queue import LONGEST_LEASE, LocalQueue

YEAR = 365 * 24 * 3600.0


def test_a_lease_of_a_clock_that_was_ahead_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = LocalQueue(tmp_path)
    queue.put("one")
    with monkeypatch.context() as ahead:
        now = time.time()
        ahead.setattr(time, "time", lambda: now + YEAR)
        assert len(queue.receive(1, lease=600)) == 1
        assert queue.receive(1, lease=600) == []  # leased, by that clock
    (message,) = queue.receive(1, lease=600)
    assert message.attempts == 2
    assert queue.receive(1, lease=600) == []  # leased, by this clock


def test_no_lease_is_longer_than_a_lease_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = LocalQueue(tmp_path)
    queue.put("one")
    queue.receive(1, lease=YEAR)
    assert queue.receive(1, lease=600) == []
    later = time.time() + LONGEST_LEASE + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert len(queue.receive(1, lease=600)) == 1
