"""One suite over every queue. A new backend adds one line to `queues`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from needlepoint.tables.queue import LocalQueue, Queue

queues = {"local": lambda directory: LocalQueue(directory)}


@pytest.fixture(params=queues)
def make(request: pytest.FixtureRequest, tmp_path: Path):
    return lambda: queues[request.param](tmp_path)


def test_a_message_is_received_and_gone_once_acknowledged(make) -> None:
    queue: Queue = make()
    queue.put("one")
    (message,) = queue.receive(10, lease=60)
    assert (message.body, message.attempts) == ("one", 1)
    queue.acknowledge(message)
    assert queue.waiting() == 0
    assert queue.receive(10, lease=60) == []


def test_a_message_survives_reopening(make) -> None:
    make().put("kept")
    (message,) = make().receive(1, lease=60)
    assert message.body == "kept"


def test_a_leased_message_is_invisible_and_comes_again_when_the_lease_ends(make) -> None:
    queue: Queue = make()
    queue.put("again")
    queue.receive(1, lease=0.0)
    (message,) = queue.receive(1, lease=60)
    assert message.attempts == 2
    assert queue.receive(1, lease=60) == []
    assert queue.waiting() == 1


def test_a_released_message_comes_again_at_once(make) -> None:
    queue: Queue = make()
    queue.put("soon")
    (message,) = queue.receive(1, lease=60)
    queue.release(message)
    assert [again.attempts for again in queue.receive(1, lease=60)] == [2]


def test_a_message_set_aside_keeps_its_reason_and_does_not_return(make) -> None:
    queue: Queue = make()
    queue.put("bad")
    (message,) = queue.receive(1, lease=0.0)
    queue.set_aside(message, "not JSON")
    assert queue.receive(1, lease=0.0) == []
    (aside,) = queue.aside()
    assert (aside.body, aside.reason) == ("bad", "not JSON")


def test_messages_come_in_order_and_no_two_receivers_get_one_at_once(make) -> None:
    queue: Queue = make()
    for number in range(40):
        queue.put(str(number))
    got: list[str] = []

    def drain() -> None:
        mine = make()
        while messages := mine.receive(3, lease=60):
            got.extend(message.body for message in messages)

    threads = [threading.Thread(target=drain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got, key=int) == [str(number) for number in range(40)]
