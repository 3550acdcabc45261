"""Key stores in servers, when something fails: connections, servers, writers, data."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import cases, long
from tests.database_servers import PASSWORD, PostgresServer, RedisServer
from tests.key_stores import LAKE, entries, fill, key, open_store
from tests.proxies import cutting_proxy

from needlepoint.errors import StoreError
from needlepoint.stores.base import IndexDamaged
from needlepoint.stores.keys import BlockKeyStore, block_store, key_server, part_merge, space, sql_space
from needlepoint.stores.keys import redis as redis_space
from needlepoint.stores.keys.urls import parsed

SERVERS = {"postgres": "postgres_url", "mysql": "mysql_url", "redis": "redis_url", "redis cluster": "redis_cluster_url"}
PAIRS = [(number * 3, number) for number in range(1000)]


@pytest.fixture(params=[*[name for name in SERVERS if name != "redis cluster"], *long("redis cluster")])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(SERVERS[request.param]))


def everything(store: Any) -> list[list[int]]:
    return np.concatenate([np.empty((0, 16), np.uint8), *store.scan()]).tolist()


def forget_blocks() -> None:
    block_store._block_cache.cache_clear()


def wipe(url: str, request: pytest.FixtureRequest) -> None:
    """Remove everything from the server."""
    if url.startswith("postgresql"):
        database = url.rpartition("/")[2]
        for table in ("stores", "runs", "parts", "blocks"):
            request.getfixturevalue("postgres_server").execute(f"TRUNCATE needlepoint_key_{table}", database)
    elif url.startswith("mysql"):
        database = url.rpartition("/")[2]
        for table in ("stores", "runs", "parts", "blocks"):
            request.getfixturevalue("mysql_server").execute(f"TRUNCATE needlepoint_key_{table}", database)
    elif "cluster" in url:
        request.getfixturevalue("redis_cluster").flush()
    else:
        request.getfixturevalue("redis_server").client().flushall()


def grow_old(url: str, request: pytest.FixtureRequest, seconds: int) -> None:
    """As if everything in the server had been written so much earlier."""
    if url.startswith(("postgresql", "mysql")):
        server = request.getfixturevalue("postgres_server" if url.startswith("postgresql") else "mysql_server")
        for table in ("stores", "parts"):
            statement = f"UPDATE needlepoint_key_{table} SET made = made - {seconds}"
            server.execute(statement, url.rpartition("/")[2])
        return
    with contextlib.closing(key_server(url)._connected()) as client:
        name = redis_space.lake_key(LAKE)
        for id, made in client.hgetall(name).items():
            client.hset(name, id, int(made) - seconds)


def test_a_store_that_is_being_written_is_as_old_as_its_last_part(url: str, tmp_path: Path, request: Any) -> None:
    """A sweep takes an unknown one for that of a dead process after a day: a copy may take longer."""
    store = open_store(url)
    fill(store, tmp_path, PAIRS)
    grow_old(url, request, 2 * space.STAGED_AGE)
    server = key_server(url)
    (age,) = server.ids(LAKE).values()
    assert age >= 2 * space.STAGED_AGE
    fill(store, tmp_path, [(number, 5) for number in range(10)])
    (age,) = server.ids(LAKE).values()
    assert age < space.STAGED_AGE
    store.destroy()
    assert server.ids(LAKE) == {}
    server.close()


def test_a_server_that_lost_everything_gives_no_answer(url: str, tmp_path: Path, request: Any) -> None:
    """Not even without a refresh: to find nothing would be wrong."""
    store = open_store(url)
    names = fill(store, tmp_path, PAIRS)
    forget_blocks()
    store = open_store(url)
    store.refresh(names)
    wipe(url, request)
    for ask in (
        lambda: store.find([key(3)], 10),
        lambda: store.find_range(key(3), key(9), 10),
        lambda: store.ends(3, last=True),
        lambda: list(store.scan()),
    ):
        with pytest.raises((IndexDamaged, StoreError)):
            ask()
    with pytest.raises(IndexDamaged):
        store.refresh(names)
    store.ingest([])
    with pytest.raises(IndexDamaged):
        store.refresh(names)


def test_two_indexes_and_two_lakes_do_not_meet(url: str, tmp_path: Path) -> None:
    one, other, another = open_store(url), open_store(url, index=8), open_store(url, lake="f" * 16)
    for number, store in enumerate((one, other, another)):
        fill(store, tmp_path, [(number, number)])
    other.destroy()
    assert everything(one) == entries([(0, 0)]).tolist()
    assert everything(another) == entries([(2, 2)]).tolist()
    server = key_server(url)
    assert (sorted(server.ids(LAKE)), sorted(server.ids("f" * 16)), server.ids("0")) == ([7], [7], {})
    assert all(-5 < age < 60 for age in server.ids(LAKE).values())


def test_a_newer_format_is_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By readers and by writers, which would mix both."""
    with monkeypatch.context() as patch:
        newer = space.FORMAT + 1
        for module in (sql_space, redis_space, block_store):
            patch.setattr(module, "FORMAT", newer)
        names = fill(open_store(url), tmp_path, PAIRS)
    store = open_store(url)
    store.write_run(tmp_path / "run", entries([(5, 1)]), "run")
    for ask in (lambda: store.refresh(names), lambda: store.ingest([]), lambda: store.ingest([tmp_path / "run"])):
        with pytest.raises(StoreError, match="format 2; this version of Needlepoint reads format 1") as refused:
            ask()
        assert not isinstance(refused.value, IndexDamaged) and PASSWORD not in str(refused.value)
    monkeypatch.setattr(block_store, "FORMAT", newer)
    again = open_store(url)
    again.refresh(names)
    assert everything(again) == entries(PAIRS).tolist()
    assert not again.has_other_runs()


def test_keys_of_another_length_are_not_read(url: str, tmp_path: Path) -> None:
    fill(open_store(url, 8), tmp_path, PAIRS)
    with pytest.raises(IndexDamaged):
        open_store(url, 16).refresh([])


def test_a_reader_goes_on_while_parts_are_merged(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_merge, "_BLOCKS_AT_ONCE", 2)
    writer, reader = open_store(url), open_store(url)
    names, expected = [], []
    for number in range(3):
        pairs = [(row * 3 + number, row) for row in range(2000)]
        expected += pairs
        names += fill(writer, tmp_path, pairs)
    reader.refresh(names)
    scan = part_merge.PartMerge.portions
    portions = reader.scan()
    found = [next(portions)]
    fill(writer, tmp_path, [(10**6, 1)])
    forget_blocks()
    for part in _removed_parts(writer):
        writer._space.discard(part)  # as tidying does after a minute
    found += list(portions)
    assert scan is part_merge.PartMerge.portions
    assert np.concatenate(found).tolist()[: len(expected)] == entries(expected).tolist()
    assert reader.find([key(3)], 10).tolist() == [1]
    reader.refresh(names)
    assert len(reader._view.parts) < 3


def _removed_parts(store: BlockKeyStore) -> list[Any]:
    """Parts that were merged are still there for a minute, or, as here, not."""
    import psycopg
    import pymysql

    del psycopg, pymysql
    view = store._view
    assert view is not None
    current = {part.id for part in store._space.state().parts}
    return [each.part for each in view.parts if each.part.id not in current]


class _Died(BaseException):
    """Instead of a kill: nothing after it is done."""


STEPS = ("create", "missing", "stage", "put", "publish", "state", "discard", "tidy", "fetch")


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_writer_that_dies_at_any_step(url: str, tmp_path: Path, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote is there entirely or not at all, and the same runs can be ingested again."""
    names, expected, at = [f"old {number}" for number in range(3)], [], 0
    for number, name in enumerate(names):
        _ingest(open_store(url), tmp_path, {name: [(row, number) for row in range(500)]})
        expected += [(row, number) for row in range(500)]
    while True:
        at += 1
        batch = {f"{at} first": [(at, 7)], f"{at} second": [(at, 8), (at + 10**6, 9)]}
        store, left = open_store(url), [at]
        _die_at(store._space, left, late, monkeypatch)
        with contextlib.suppress(_Died):
            _ingest(store, tmp_path, batch)
        reader = open_store(url)
        reader.refresh(names)
        there = reader._space.missing(list(batch))
        assert len(there) in (0, 2)
        assert len(reader.find([key(at)], 10)) - len({p for p in expected if p[0] == at}) in ((0,) if there else (2,))
        _ingest(open_store(url), tmp_path, batch)
        names += batch
        expected += [pair for pairs in batch.values() for pair in pairs]
        reader.refresh(names)
        assert everything(reader) == entries(expected).tolist()
        if left[0] > 0:
            break
    assert at > 5


def _ingest(store: Any, directory: Path, runs: dict[str, list[tuple[int, int]]]) -> None:
    paths = []
    for number, (name, pairs) in enumerate(runs.items()):
        paths.append(directory / f"run {number}")
        store.write_run(paths[-1], entries(pairs), name)
    store.ingest(paths)


def _die_at(target: Any, left: list[int], late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise at the n-th call of a step, where n is in `left`: before it does something, or after."""

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not late:
                raise _Died
            found = step(*arguments)
            if left[0] == 0:
                raise _Died
            return found

        return call

    for name in STEPS:
        monkeypatch.setattr(target, name, dying(getattr(target, name)), raising=True)


@pytest.mark.parametrize("after", [False, True], ids=["lost request", "lost answer"])
@pytest.mark.parametrize("name", ["postgres", "mysql", "redis"])
def test_a_connection_that_is_cut_at_any_moment(
    name: str, after: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whether the server did what was asked or not: it is asked again, and the outcome is the same."""
    direct = request.getfixturevalue(SERVERS[name])
    names: list[str] = []
    expected: list[tuple[int, int]] = []
    with cutting_proxy(parsed(direct).port or 0) as proxy:
        for at in range(1, 200, cases(1, 2)):
            store = open_store(direct.replace(str(parsed(direct).port), str(proxy.port)))
            proxy.arm(at, after=after)
            pairs = [(number, at) for number in range(at, at + 300)]
            # Now and then two runs that become one part, or two.
            names += fill(store, tmp_path, *((pairs,), (pairs[:200], pairs[200:]), (pairs[::2], pairs[1::2]))[at % 3])
            expected += pairs
            assert everything(store) == entries(expected).tolist()
            if proxy.seen < at:
                break
        assert at > 10
    reader = open_store(direct)
    reader.refresh(names)
    assert everything(reader) == entries(expected).tolist()


@pytest.mark.parametrize("name", ["postgres", "mysql", "redis"])
def test_a_server_that_comes_back_during_an_ingest(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url, server = request.getfixturevalue(SERVERS[name]), request.getfixturevalue(f"{name}_server")
    store = open_store(url)
    names = fill(store, tmp_path, PAIRS)
    server.stop()
    writer = threading.Thread(target=lambda: names.extend(fill(store, tmp_path, [(1, 10**6)])))
    writer.start()
    time.sleep(0.3)
    server.start()
    writer.join()
    assert len(names) == 2
    assert everything(store) == entries([*PAIRS, (1, 10**6)]).tolist()


@pytest.mark.long
@pytest.mark.parametrize("name", ["postgres", "mysql", "redis"])
def test_a_server_that_does_not_answer(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, server = request.getfixturevalue(SERVERS[name]), request.getfixturevalue(f"{name}_server")
    for module in ("postgres", "mysql", "redis"):
        monkeypatch.setattr(f"needlepoint.stores.keys.{module}.ANSWER_SECONDS", 0.5)
        monkeypatch.setattr(f"needlepoint.stores.keys.{module}.CONNECT_SECONDS", 2)
    monkeypatch.setattr(space, "READ_PAUSE", 0.3)
    store = open_store(url)
    names = fill(store, tmp_path, PAIRS)
    forget_blocks()
    store = open_store(url)
    store.refresh(names)
    with server.paused():
        began = time.monotonic()
        with pytest.raises(StoreError, match="does not answer") as away:
            store.find([key(3)], 10)
        assert time.monotonic() - began < 15
        assert PASSWORD not in str(away.value) and not isinstance(away.value, IndexDamaged)
        began = time.monotonic()
        with pytest.raises(StoreError, match="does not answer"):  # readers do not wait again at once
            store.find([key(3)], 10)
        assert time.monotonic() - began < 1
    time.sleep(space.READ_PAUSE)
    assert store.find([key(3)], 10).tolist() == [1]


def test_a_wrong_password_is_told_at_once(url: str) -> None:
    wrong = url.replace(PASSWORD, "another-secret")
    with pytest.raises(StoreError) as refused:
        open_store(wrong).ingest([])
    assert "another-secret" not in str(refused.value) and "refuses" in str(refused.value)


def test_a_block_that_was_changed_is_an_error(redis_url: str, redis_server: RedisServer, tmp_path: Path) -> None:
    store = open_store(redis_url)
    names = fill(store, tmp_path, PAIRS)
    client = redis_server.client()
    (segment,) = [name for name in client.keys("needlepoint:*:0") if client.type(name) == b"hash"]
    block = bytearray(client.hget(segment, 0))
    for position in range(0, len(block), 7):
        changed = block.copy()
        changed[position] ^= 1
        client.hset(segment, 0, bytes(changed))
        forget_blocks()
        reader = open_store(redis_url)
        reader.refresh(names)
        with pytest.raises(IndexDamaged):
            reader.find([key(0)], 10)
    client.hset(segment, 0, client.hget(segment, 1))
    with pytest.raises(IndexDamaged):
        reader.find([key(0)], 10)


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_block_of_a_table_that_was_changed_is_an_error(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    url, server = request.getfixturevalue(f"{kind}_url"), request.getfixturevalue(f"{kind}_server")
    store, database = open_store(url), url.rpartition("/")[2]
    names = fill(store, tmp_path, PAIRS)
    ((found,),) = server.execute("SELECT data FROM needlepoint_key_blocks WHERE number = 0", database)
    literal = "'\\x{}'::bytea" if kind == "postgres" else "x'{}'"
    block = bytes(found)
    for position in range(0, len(block), 7):
        changed = bytearray(block)
        changed[position] ^= 1
        data = literal.format(changed.hex())
        server.execute(f"UPDATE needlepoint_key_blocks SET data = {data} WHERE number = 0", database)
        forget_blocks()
        reader = open_store(url)
        reader.refresh(names)
        with pytest.raises(IndexDamaged):
            reader.find([key(0)], 10)
        reader.close()


def test_a_redis_that_is_full_loses_nothing(redis_url: str, redis_server: RedisServer, tmp_path: Path) -> None:
    store, more = open_store(redis_url), [(number, number) for number in range(10_000, 10_500)]
    names = fill(store, tmp_path, PAIRS)
    client = redis_server.client()
    client.config_set("maxmemory", 1)
    try:
        store.write_run(tmp_path / "second", entries(more), "second")
        with pytest.raises(StoreError):
            store.ingest([tmp_path / "second"])
        store.refresh(names)
        assert everything(store) == entries(PAIRS).tolist()
    finally:
        client.config_set("maxmemory", 0)
    store.write_run(tmp_path / "second", entries(more), "second")
    store.ingest([tmp_path / "second"])
    store.refresh([*names, "second"])
    assert everything(store) == entries([*PAIRS, *more]).tolist()


def test_a_redis_that_evicts_keys_is_refused(redis_url: str, redis_server: RedisServer) -> None:
    client = redis_server.client()
    client.config_set("maxmemory", 1 << 30)
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(StoreError, match="noeviction"):
            open_store(redis_url).ingest([])
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 0)


def test_what_writers_left_in_tables_is_removed(
    postgres_url: str, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres_url)
    names = fill(store, tmp_path, PAIRS)
    store._space.stage(77)
    store._space.put(77, [0, 1], [b"a", b"b"])
    database = postgres_url.rpartition("/")[2]
    count = "SELECT count(*) FROM needlepoint_key_blocks WHERE part = 77"
    store._space.tidy()
    assert postgres_server.execute(count, database) == [(2,)]
    monkeypatch.setattr(sql_space, "STAGED_AGE", -1)
    store._space.tidy()
    assert postgres_server.execute(count, database) == [(0,)]
    store.refresh(names)
    assert everything(store) == entries(PAIRS).tolist()
    store.destroy()
    for table in ("stores", "runs", "parts", "blocks"):
        assert postgres_server.execute(f"SELECT count(*) FROM needlepoint_key_{table}", database) == [(0,)]


def test_nothing_stays_in_redis(redis_url: str, redis_server: RedisServer, tmp_path: Path) -> None:
    store = open_store(redis_url)
    for number in range(9):
        fill(store, tmp_path, [(row, number) for row in range(1000)])
    client = redis_server.client()
    lasting = [name for name in client.keys("*") if client.ttl(name) < 0]
    parts = len(store._space.state().parts)
    assert len(lasting) == 4 + 2 * parts
    store.destroy()
    assert [name for name in client.keys("*") if client.ttl(name) < 0] == []


def test_a_child_uses_connections_of_its_own(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    names = fill(store, tmp_path, PAIRS)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            forget_blocks()
            store.refresh(names)
            os.write(writing, str(store.find([key(3)], 10).tolist()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    assert os.read(reading, 100) == b"[1]"
    os.waitpid(child, 0)
    store.refresh(names)
    assert everything(store) == entries(PAIRS).tolist()


def test_runs_that_do_not_overlap_become_one_part(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    ranges = [[(number * 1000 + row, row) for row in range(300)] for number in (3, 1, 0, 2, 4)]
    names = fill(store, tmp_path, *ranges, [])
    assert len(store._view.parts) == 1
    assert everything(store) == entries([pair for pairs in ranges for pair in pairs]).tolist()
    names += fill(store, tmp_path, [(5, 1000)], [(6, 1), (4, 1)])
    store.refresh(names)
    assert len(store._view.parts) == 3
    assert store.find([key(5)], 10).tolist() == [5, 1000]


def test_writers_merge_at_the_same_time(url: str, tmp_path: Path) -> None:
    errors: list[BaseException] = []
    names: list[str] = []

    def write(number: int) -> None:
        try:
            directory = tmp_path / str(number)
            directory.mkdir()
            store = open_store(url)
            for turn in range(8):
                names.extend(fill(store, directory, [(row, number * 100 + turn) for row in range(200)]))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    reader = open_store(url)
    reader.refresh(names)
    expected = [(row, number * 100 + turn) for number in range(3) for turn in range(8) for row in range(200)]
    assert everything(reader) == entries(expected).tolist()
