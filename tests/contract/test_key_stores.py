"""One suite over every key store. A new backend adds one line to `stores`. With NEEDLE_TEST_KEY_STORE it runs over a
store that is not in this repository, and over no other (docs/stores.md)."""

from __future__ import annotations

import multiprocessing
import tracemalloc
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import cases, long
from tests.key_stores import OWN, entries, fill, ingest_one, key, open_store

from needlepoint.stores.base import IndexDamaged, name_in_range

if TYPE_CHECKING:
    from tests.buckets import Server

# Each store, and the fixture that says where it is.
stores = {
    "rocksdb": "tmp_path",
    "leaf files": "leaf_place",
    "leaf files in a bucket": "leaf_bucket",
    "postgres": "postgres_url",
    "mysql": "mysql_url",
    "redis": "redis_url",
    "redis cluster": "redis_cluster_url",
    "own": "own_place",
}
TESTED = (
    ["own"] if OWN else [*[name for name in stores if name not in ("own", "redis cluster")], *long("redis cluster")]
)
TESTED_BY_PROCESSES = (
    ["own"]
    if OWN
    else ["rocksdb", "leaf files", "postgres", *long("leaf files in a bucket", "mysql", "redis", "redis cluster")]
)


@pytest.fixture
def own_place(tmp_path: Path) -> str:
    (tmp_path / "own store").mkdir()
    return f"own+{tmp_path / 'own store'}"


@pytest.fixture
def leaf_place(tmp_path: Path) -> str:
    return f"leaf+{tmp_path}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    from tests.buckets import aws_server  # the processes of a test import this module, and need no server

    with aws_server() as server:
        yield server


@pytest.fixture
def leaf_bucket(server: Server) -> str:
    return f"leaf+{server.bucket().url(uuid.uuid4().hex)}"


@pytest.fixture(params=TESTED)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(stores[request.param]))


@pytest.fixture
def make(place: str):
    return lambda width=8: open_store(place, width)


def test_finds_all_rows_of_a_key_over_several_runs(make, tmp_path: Path) -> None:
    store = make()
    fill(store, tmp_path, [(5, 1), (5, 2), (7, 3)], [(5, 9), (6, 4)])
    assert sorted(store.find([key(5)], 100).tolist()) == [1, 2, 9]
    assert sorted(store.find([key(5), key(7), key(8)], 100).tolist()) == [1, 2, 3, 9]
    assert store.find([key(4)], 100).tolist() == []
    assert store.find([], 100).tolist() == []


def test_all_entries_are_scanned_in_order_and_counted(make, tmp_path: Path) -> None:
    store = make()
    first, second = [(7, 3), (5, 1), (2**64 - 1, 2**64 - 2)], [(6, 4), (0, 0)]
    names = fill(store, tmp_path, first)
    own = name_in_range(uuid.uuid4().hex, entries(second))
    store.write_run(tmp_path / "second", entries(second), own)
    store.ingest([tmp_path / "second"])
    store.refresh([*names, own])
    assert np.concatenate(list(store.scan())).tolist() == entries(first + second).tolist()
    assert (store.count(), store.key_bits()) == (5, 64)


def test_the_same_entry_twice_is_one(make, tmp_path: Path) -> None:
    store = make()
    fill(store, tmp_path, [(5, 1)])
    fill(store, tmp_path, [(5, 1)])
    assert store.find([key(5)], 100).tolist() == [1]


def test_the_same_run_twice_is_one(make, tmp_path: Path) -> None:
    store, pairs = make(), [(number, number) for number in range(300)]
    for _ in range(2):
        store.write_run(tmp_path / "run", entries(pairs), "the run")
        store.ingest([tmp_path / "run"])
        store.refresh(["the run"])
        assert np.concatenate(list(store.scan())).tolist() == entries(pairs).tolist()


def test_runs_that_are_not_named_are_noticed(make, tmp_path: Path) -> None:
    """A registry that was restored from a backup does not know them."""
    store = make()
    names = fill(store, tmp_path, [(5, 1)], [(6, 1)])
    assert not store.has_other_runs()
    store.refresh(names[:1])
    assert store.has_other_runs()
    other = make()
    names += fill(other, tmp_path, *([(number, 2)] for number in range(12)))  # merged, in some stores
    assert other.has_other_runs()
    other.refresh(names)
    assert not other.has_other_runs()
    other.close()
    store.refresh(names)
    assert not store.has_other_runs()
    own = name_in_range(uuid.uuid4().hex, entries([(7, 1)]))
    store.write_run(tmp_path / "own", entries([(7, 1)]), own)
    store.ingest([tmp_path / "own"])
    store.refresh(names)
    assert store.has_other_runs()
    store.refresh([*names, own])
    assert not store.has_other_runs()


def test_a_run_without_entries_is_a_run(make, tmp_path: Path) -> None:
    store = make()
    fill(store, tmp_path, [(5, 1)], [])
    assert store.find([key(5)], 10).tolist() == [1]


def test_a_batch_of_runs_is_consumed(make, tmp_path: Path) -> None:
    fill(make(), tmp_path / ".", [(5, 1)], [(6, 1)])
    assert [path for path in tmp_path.glob("*") if path.is_file()] == []


def test_many_runs_are_one_index(make, tmp_path: Path) -> None:
    store, random = make(), np.random.default_rng(5)
    names, expected = [], set()
    for _ in range(cases(30, 12)):
        pairs = list(zip(random.integers(0, 3000, 400).tolist(), random.integers(0, 2**40, 400).tolist(), strict=True))
        expected |= set(pairs)
        names += fill(store, tmp_path, pairs)
    for reader in (store, make()):
        reader.refresh(names)
        assert np.concatenate(list(reader.scan())).tolist() == entries(list(expected)).tolist()
        asked = list(range(0, 3000, 3))
        found = sorted(reader.find([key(number) for number in asked], 100_000).tolist())
        assert found == sorted(location for number, location in expected if number in set(asked))
        assert reader.ends(500, last=True).tolist() == entries(list(expected))[:-501:-1].tolist()
        assert len(reader.find_range(key(100), key(200), 100_000)) == sum(
            100 <= number <= 200 for number, _ in expected
        )
        assert reader.count() >= len(expected)
        assert reader.size() > 1000


def test_keys_of_sixteen_bytes(make, tmp_path: Path) -> None:
    store = make(16)
    table = np.random.default_rng(3).integers(0, 256, (5000, 24), np.uint8)
    table[:, :6] = 0
    table = np.unique(table.view("S24").ravel()).view(np.uint8).reshape(-1, 24)
    store.write_run(tmp_path / "run", table, "run")
    store.ingest([tmp_path / "run"])
    store.refresh(["run"])
    for row in table[::500]:
        assert store.find([row[:16].tobytes()], 5).tolist() == [int.from_bytes(row[16:].tobytes(), "big")]
    assert np.array_equal(np.concatenate(list(store.scan())), table)


def test_what_is_destroyed_is_gone(make, tmp_path: Path) -> None:
    store = make()
    names = fill(store, tmp_path, [(5, 1)])
    store.destroy()
    with pytest.raises(IndexDamaged):
        make().refresh(names)
    store.destroy()


def test_a_run_that_was_never_ingested_is_missed(make, tmp_path: Path) -> None:
    store = make()
    names = fill(store, tmp_path, [(5, 1)])
    with pytest.raises(IndexDamaged):
        store.refresh([*names, "another"])


def test_both_ends_are_read_without_the_rest(make, tmp_path: Path) -> None:
    store = make()
    pairs = [(7, 3), (5, 1), (2**64 - 1, 2**64 - 2), (6, 4), (0, 0)]
    fill(store, tmp_path, pairs[:2], pairs[2:])
    assert store.ends(2, last=False).tolist() == entries(pairs)[:2].tolist()
    assert store.ends(3, last=True).tolist() == entries(pairs)[:-4:-1].tolist()
    assert store.ends(9, last=True).tolist() == entries(pairs)[::-1].tolist()
    assert len(store.ends(0, last=True)) == 0


def test_ranges_include_both_ends(make, tmp_path: Path) -> None:
    store = make()
    fill(store, tmp_path, [(1, 10), (2, 20), (3, 30), (2**64 - 1, 40)])
    assert sorted(store.find_range(key(1), key(2), 100).tolist()) == [10, 20]
    assert sorted(store.find_range(key(0), key(2**64 - 1), 100).tolist()) == [10, 20, 30, 40]
    assert store.find_range(key(4), key(9), 100).tolist() == []


def test_more_than_the_limit_is_none(make, tmp_path: Path) -> None:
    store = make()
    fill(store, tmp_path, [(1, row) for row in range(20)])
    assert store.find([key(1)], 10) is None
    assert store.find_range(key(0), key(9), 10) is None
    assert len(store.find([key(1)], 20)) == 20


def test_no_more_than_the_limit_is_held(make, tmp_path: Path) -> None:
    store = make()
    fill(store, tmp_path, [(5, row) for row in range(100_000)])
    store.ends(1, last=False)  # opening it is not part of an answer, and servers of tests share this process
    for ask in (lambda: store.find([key(4), key(5)], 10), lambda: store.find_range(key(0), key(9), 10)):
        tracemalloc.start()
        try:
            assert ask() is None
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()


@pytest.mark.long
@pytest.mark.parametrize("name", TESTED_BY_PROCESSES)
def test_several_processes_ingest_while_one_reads(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(request.getfixturevalue(stores[name]))
    store = open_store(place)
    fill(store, tmp_path, [(1000, 1)])
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=ingest_one, args=(place, str(tmp_path), number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        while process.is_alive():
            assert store.find([key(1000)], 10).tolist() == [1]
            process.join(0.01)
        assert process.exitcode == 0
    store.refresh([f"run of {number}" for number in range(3)])
    assert sorted(store.find([key(number) for number in range(3)], 10).tolist()) == [0, 1, 2]


def test_a_store_that_was_never_written_is_an_error_not_an_empty_answer(make) -> None:
    with pytest.raises(IndexDamaged):
        make().refresh([])


@settings(max_examples=cases(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2**63)), min_size=1), min_size=1, max_size=4))
def test_agrees_with_a_dictionary(make, tmp_path: Path, runs: list[list[tuple[int, int]]]) -> None:
    store = make()
    store.destroy()
    fill(store, tmp_path, *runs)
    everything = {pair for run in runs for pair in run}
    for number in range(31):
        expected = sorted(location for value, location in everything if value == number)
        assert sorted(store.find([key(number)], 1000).tolist()) == expected
    expected = sorted(location for value, location in everything if 5 <= value <= 20)
    assert sorted(store.find_range(key(5), key(20), 1000).tolist()) == expected
    store.close()
