"""A bucket that answers slowly, out of order and with errors, also after it did what it was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.buckets import Asked, Bucket, Server
from tests.cases import PROFILE, long
from tests.fault_driver import BATCHES, STRIDE, Stores, follow, prepare, publish
from tests.faults import batches, compare

from needlepoint.errors import NeedlepointError
from needlepoint.stores.leaf_files import merge


class Weather:
    """Some requests wait longer than others, so that answers come in another order. Some get 503, before they are
    handled or after, and some conditional PUTs lose although nobody else wrote."""

    def __init__(self, seed: int, share: float) -> None:
        self._chance, self._share = Random(seed), share
        self._lock = threading.Lock()
        self.refused = 0

    def before(self, asked: Asked) -> int | None:
        with self._lock:
            delay, luck = self._chance.random() ** 6 * 0.1, self._chance.random()
        time.sleep(delay)
        if luck < self._share:
            return self._refuse(503)
        if luck < 2 * self._share and asked.method == "PUT" and "manifest" in asked.path:
            return self._refuse(412)
        return None

    def after(self, asked: Asked) -> int | None:
        with self._lock:
            luck = self._chance.random()
        return self._refuse(503) if luck < self._share else None

    def _refuse(self, status: int) -> int:
        self.refused += 1
        return status


LAST = STRIDE if PROFILE == "thorough" else BATCHES + 1


@pytest.fixture(params=[1, *long(2, 3, 4, 5, 6, 7, 8)])
def weather(request: pytest.FixtureRequest, server: Server) -> Iterator[Weather]:
    yield Weather(request.param, 0.04)
    server.before = server.after = None


@pytest.mark.long
@pytest.mark.parametrize("kind", ["published", *long("postgres")])
def test_a_writer_and_a_reader_of_an_unsteady_bucket(
    kind: str,
    bucket: Bucket,
    weather: Weather,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every answer is that of a state which the lake had, and no reader sees an earlier one after a later one."""
    monkeypatch.setattr(merge, "FAN_OUT", BATCHES + 1)
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    stores = Stores(bucket.url("lake"), str(tmp_path / "store"), registry=url, queue=url, keys="lake:")
    server, problems, done = bucket.server, list[BaseException](), threading.Event()
    with prepare(stores) as lake:
        if lake.publisher is not None:
            lake.share()
        elsewhere = Stores(stores.root, str(tmp_path / "none"), registry=url, queue=url, keys="lake:")
        reader = elsewhere.open(read_only=True, cache=tmp_path / "cache")

        def read() -> None:
            last: set[int] = set()
            try:
                while not done.is_set():
                    found = batches(reader)
                    assert last <= found, (last, found)
                    last = found
            except BaseException as error:
                problems.append(error)

        thread = threading.Thread(target=read)
        server.before, server.after = weather.before, weather.after
        thread.start()
        try:
            for batch in range(BATCHES, LAST):
                _insist(lambda batch=batch: publish(lake, stores, batch))
                _insist(lambda: follow(lake))
                if batch % 3 == 2:
                    _insist(lambda: lake.compact("t"))
                    _insist(lake.sweep)
        finally:
            done.set()
            thread.join()
            server.before = server.after = None
        assert not problems, problems
        assert weather.refused
        lake.sync("t")
        everything = set(range(LAST))
        assert batches(lake) == everything
        compare(lake, everything)
        assert not lake.verify("t", samples=3, seed=1).differences
        if lake.publisher is not None:
            lake.share()
        compare(reader, everything)
        reader.close()


def _insist(change: object) -> None:
    """A change that fails with an error of ours is made again: the bucket may have refused it too often."""
    for attempt in range(5):
        try:
            change()  # type: ignore[operator]
            return
        except NeedlepointError:
            if attempt == 4:
                raise
