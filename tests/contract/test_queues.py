"""One suite over every queue. A new backend adds one line to `queues`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.buckets import Server, aws_server
from tests.cases import long

from needlepoint.errors import StoreError
from needlepoint.queues import queue as local_queue
from needlepoint.queues.postgres import PostgresQueue
from needlepoint.queues.postgres import queue as postgres_queue
from needlepoint.queues.queue import LocalQueue, Queue
from needlepoint.queues.sqs import SqsQueue

queues = {
    "local": lambda directory, server: LocalQueue(directory),
    "postgres": lambda directory, server: PostgresQueue(server),
    "sqs": lambda directory, server: SqsQueue(server.queue(directory.name)),
    "sqs-fifo": lambda directory, server: SqsQueue(server.queue(f"{directory.name}.fifo")),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with aws_server() as server:
        yield server


@pytest.fixture(params=["local", "postgres", "sqs", *long("sqs-fifo")])
def make(request: pytest.FixtureRequest, tmp_path: Path):
    server = request.getfixturevalue("postgres_url" if request.param == "postgres" else "server")
    return lambda: queues[request.param](tmp_path, server)


def test_a_message_is_received_and_gone_once_acknowledged(make) -> None:
    queue: Queue = make()
    queue.put("one")
    (message,) = queue.receive(10, lease=60)
    assert (message.body, message.attempts) == ("one", 1)
    queue.acknowledge(message)
    assert queue.waiting() == 0
    assert queue.receive(10, lease=60) == []


@pytest.mark.parametrize("make", queues, indirect=True)
def test_a_message_survives_reopening(make) -> None:
    make().put("kept")
    (message,) = make().receive(1, lease=60)
    assert message.body == "kept"


@pytest.mark.parametrize("name", ["local", "postgres"])
def test_a_newer_format_is_refused(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By those that put messages and those that take them. SQS has nothing but the messages."""
    place = request.getfixturevalue("postgres_url") if name == "postgres" else None
    with monkeypatch.context() as patch:
        for module in (local_queue, postgres_queue):
            patch.setattr(module, "FORMAT", 2)
        queues[name](tmp_path, place).put("one")
    for ask in (lambda each: each.put("two"), lambda each: each.receive(1, 60), lambda each: each.waiting()):
        with pytest.raises(StoreError, match="has format 2; this version of Needlepoint reads format 1"):
            ask(queues[name](tmp_path, place))
    for module in (local_queue, postgres_queue):
        monkeypatch.setattr(module, "FORMAT", 2)
    assert [each.body for each in queues[name](tmp_path, place).receive(5, 60)] == ["one"]


def test_a_leased_message_is_invisible_and_comes_again_when_the_lease_ends(make) -> None:
    queue: Queue = make()
    queue.put("again")
    queue.receive(1, lease=0.0)
    (message,) = queue.receive(1, lease=60)
    assert message.attempts == 2
    assert queue.receive(1, lease=60) == []
    assert queue.waiting() == 1


def test_a_lease_ends_after_its_time(make) -> None:
    queue: Queue = make()
    queue.put("later")
    queue.receive(1, lease=1)
    assert queue.receive(1, lease=60) == []
    deadline = time.monotonic() + 30
    while not (again := queue.receive(1, lease=60)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [message.attempts for message in again] == [2]


def test_a_lease_is_renewed_by_the_one_that_has_it(make) -> None:
    queue: Queue = make()
    queue.put("long")
    (first,) = queue.receive(1, lease=60)
    queue.renew(first, lease=0)
    (second,) = queue.receive(1, lease=60)
    assert (second.id, second.attempts) == (first.id, 2)
    queue.renew(second, lease=60)
    assert queue.receive(1, lease=60) == []
    queue.acknowledge(second)
    queue.renew(second, lease=60)  # it is gone
    assert queue.waiting() == 0


@pytest.mark.parametrize("make", ["local", "postgres"], indirect=True)
def test_a_lease_that_another_has_is_left_alone(make) -> None:
    queue: Queue = make()
    queue.put("taken over")
    (late,) = queue.receive(1, lease=0)
    (now,) = queue.receive(1, lease=60)
    queue.renew(late, lease=0)
    assert queue.receive(1, lease=60) == []
    queue.release(now)
    assert len(queue.receive(1, lease=60)) == 1


def test_a_released_message_comes_again_at_once(make) -> None:
    queue: Queue = make()
    queue.put("soon")
    (message,) = queue.receive(1, lease=60)
    queue.release(message)
    assert [again.attempts for again in queue.receive(1, lease=60)] == [2]


@pytest.mark.parametrize("make", queues, indirect=True)
def test_a_message_set_aside_keeps_its_reason_and_does_not_return(make) -> None:
    queue: Queue = make()
    queue.put("bad")
    (message,) = queue.receive(1, lease=0.0)
    queue.set_aside(message, "not JSON")
    assert queue.receive(1, lease=0.0) == []
    (aside,) = queue.aside()
    assert (aside.body, aside.reason) == ("bad", "not JSON")
    assert [again.reason for again in make().aside()] == ["not JSON"]
    assert (queue.waiting(), queue.aside_count()) == (0, 1)


def test_nothing_is_aside_at_first(make) -> None:
    queue: Queue = make()
    assert (queue.waiting(), queue.aside_count(), queue.aside()) == (0, 0, [])


def test_more_messages_than_one_request_brings_are_received_and_set_aside(make) -> None:
    queue: Queue = make()
    for number in range(25):
        queue.put(str(number))
    messages = queue.receive(64, lease=60)
    assert sorted(int(message.body) for message in messages) == [*range(25)]
    assert len({message.id for message in messages}) == 25
    for message in messages:
        queue.set_aside(message, f"because of {message.body}\0 " + "x" * 3000)
    assert sorted(int(aside.body) for aside in queue.aside()) == [*range(25)]
    assert all(f"because of {aside.body}" in aside.reason for aside in queue.aside())


def test_a_limit_is_kept(make) -> None:
    queue: Queue = make()
    for number in range(25):
        queue.put(str(number))
    assert [len(queue.receive(limit, lease=60)) for limit in (1, 13, 64)] == [1, 13, 11]


def test_what_another_has_acknowledged_does_no_harm(make) -> None:
    """A lease expired too early, and the message was handled twice."""
    queue: Queue = make()
    queue.put("one")
    (first,) = queue.receive(1, lease=0.0)
    (second,) = queue.receive(1, lease=60)
    queue.acknowledge(second)
    queue.acknowledge(first)
    queue.release(first)
    assert queue.waiting() == 0
    assert queue.receive(1, lease=60) == []


@pytest.mark.covering
@pytest.mark.parametrize("body", ["Ünïcode — 😀\n\ttabs", " ", '{"a": "\\u0000"}', "x" * 200_000])
def test_bodies_come_as_they_were_put(make, body: str) -> None:
    queue: Queue = make()
    queue.put(body)
    assert [message.body for message in queue.receive(1, lease=60)] == [body]


def test_messages_come_in_order_and_no_two_receivers_get_one_at_once(make, request: pytest.FixtureRequest) -> None:
    """SQS promises delivery at least once; its simulation may deliver a message twice to concurrent receivers."""
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
    found = sorted(set(got) if "sqs" in request.node.name else got, key=int)
    assert found == [str(number) for number in range(40)]
