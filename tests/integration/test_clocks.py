"""Clocks that are an hour apart, and work that takes longer than a lease: nothing is taken from anybody, nor kept for
ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.buckets import Bucket
from tests.cases import long
from tests.fault_driver import Stores, delete_first, follow, prepare, publish
from tests.faults import batches, compare

from needlepoint import Lake
from needlepoint.indexer import event_consumer
from needlepoint.queues.queue import LocalQueue

HOUR = 3600.0


@contextmanager
def clock(monkeypatch: pytest.MonkeyPatch, difference: float) -> Iterator[None]:
    """That of the machine, inside."""
    right = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: right() + difference)
        yield


def place(kind: str, directory: Path, request: pytest.FixtureRequest) -> Stores:
    """A lake that machines share, each with a store of its own: by PostgreSQL, or one writer and its readers."""
    bucket: Bucket = request.getfixturevalue("bucket")
    root = bucket.url("lake")
    if kind == "published":
        return Stores(root, str(directory / "store"), keys="lake:")
    url = request.getfixturevalue("postgres_url")
    return Stores(root, str(directory / "store"), registry=url, queue=url, keys="lake:" if kind == "leaves" else url)


@pytest.mark.parametrize("kind", ["local", "postgres"])
def test_leases_are_renewed_while_files_are_indexed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    stores = Stores(str(tmp_path / "lake"), str(tmp_path / "store"), queue=url)
    with stores.open(shared="off") as lake:
        publish(lake, stores, 0)
        renewed, queue = threading.Event(), lake.queue
        receive, renew, handle = queue.receive, queue.renew, event_consumer._handle_table
        others: list[Any] = []

        def note(message: Any, lease: float) -> None:
            renew(message, lease)
            renewed.set()

        def slowly(*arguments: Any) -> None:
            assert renewed.wait(60)
            others.extend(receive(1, 60))
            handle(*arguments)

        monkeypatch.setattr(event_consumer, "RENEWAL", 0.01)
        monkeypatch.setattr(event_consumer, "_handle_table", slowly)
        monkeypatch.setattr(queue, "receive", lambda limit, lease: receive(limit, 0.0))  # it ends at once
        monkeypatch.setattr(queue, "renew", note)
        (result,) = lake.follow_events(once=True)
        assert not result.problem and not others
        assert queue.waiting() == 0
        assert not [thread for thread in threading.enumerate() if thread.name == "needlepoint-repeatedly"]


@pytest.mark.parametrize("difference", [-HOUR, HOUR])
def test_a_lease_of_another_clock_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, difference: float) -> None:
    """A process takes a message and dies; the clock of the next one is an hour ahead or behind."""
    queue = LocalQueue(tmp_path)
    queue.put("one")
    assert len(queue.receive(1, lease=600)) == 1
    with clock(monkeypatch, difference):
        found = queue.receive(1, lease=600)
        assert [each.attempts for each in found] == [2]
        queue.acknowledge(found[0])
    assert queue.waiting() == 0


@pytest.mark.long
@pytest.mark.covering
@pytest.mark.parametrize("difference", [HOUR, *long(-HOUR)])
@pytest.mark.parametrize("kind", ["leaves", *long("published", "served")])
def test_readers_lose_nothing_to_a_sweep_of_another_clock(
    kind: str, difference: float, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaf files are merged, indexes rebuilt, files deleted. A machine whose clock is an hour off sweeps at once, while
    readers have the state from before."""
    stores = place(kind, tmp_path, request)
    with prepare(stores) as lake:
        if lake.publisher is not None:
            lake.share()
        with _reader(stores, tmp_path, "before", object_refresh=HOUR) as before:
            compare(before, {0, 1, 2})
            publish(lake, stores, 3)
            follow(lake)  # merges
            delete_first(lake)
            lake.rebuild("t")
            with clock(monkeypatch, difference):
                lake.sweep()
                compare(lake, {1, 2, 3})
                with _reader(stores, tmp_path, "ahead") as ahead:
                    compare(ahead, {1, 2, 3})
            assert batches(before) in ({0, 1, 2}, {1, 2, 3})
            compare(before, batches(before))
        lake.sync("t")
        lake.sweep(now=True)
        with _reader(stores, tmp_path, "after") as after:
            compare(after, {1, 2, 3})
        assert "t_id_key (key): used" in str(lake.explain("SELECT name FROM t WHERE id = 17"))


def _reader(stores: Stores, directory: Path, name: str, **more: Any) -> Lake:
    place = directory / name
    given = {**vars(stores), "store": str(place / "store")}
    return Stores(**given).open(read_only=True, cache=place / "cache", **more)
