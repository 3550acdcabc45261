"""One suite over every key store. A new backend adds one line to `stores`."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import tracemalloc
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.stores import rocksdb
from needlepoint.stores.base import IndexDamaged, KeyStore, name_in_range
from needlepoint.stores.leaf_files import LeafCache, LeafKeyStore
from needlepoint.stores.rocksdb import RocksKeyStore

if TYPE_CHECKING:
    from tests.buckets import Server

# Each takes where the store is and the width of its keys. A place is a directory, or the name of a fixture for it.
stores = {
    "rocksdb": lambda place, width: RocksKeyStore(Path(place) / "index", width),
    "leaf files": lambda place, width: LeafKeyStore(f"{place}/index", width),
    "leaf files in a bucket": lambda place, width: LeafKeyStore(
        f"{place}/index", width, LeafCache(Path(tempfile.gettempdir()) / place.rpartition("/")[2], 1 << 20)
    ),
}
places = {"leaf files in a bucket": "bucket_place"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    from tests.buckets import aws_server  # the processes of a test import this module, and need no server

    with aws_server() as server:
        yield server


@pytest.fixture
def bucket_place(server: Server) -> str:
    return server.bucket().url(uuid.uuid4().hex)


@pytest.fixture(params=stores)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The kind of a store, and its place."""
    fixture = places.get(request.param)
    return request.param, request.getfixturevalue(fixture) if fixture else str(tmp_path)


@pytest.fixture
def make(made: tuple[str, str]):
    kind, place = made
    return lambda width=8: stores[kind](place, width)


def entries(pairs: list[tuple[int, int]]) -> np.ndarray:
    array = np.array(sorted(set(pairs)), dtype=">u8").reshape(-1, 2)
    return array.view(np.uint8).reshape(-1, 16)


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def fill(store: KeyStore, directory: Path, *runs: list[tuple[int, int]]) -> list[str]:
    names = [uuid.uuid4().hex for _ in runs]
    for name, pairs in zip(names, runs, strict=True):
        store.write_run(directory / name, entries(pairs), name)
    store.ingest([directory / name for name in names])
    store.refresh(names)
    return names


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
    assert store.count() == 5


def test_the_same_entry_twice_is_one(make, tmp_path: Path) -> None:
    store = make()
    fill(store, tmp_path, [(5, 1)])
    fill(store, tmp_path, [(5, 1)])
    assert store.find([key(5)], 100).tolist() == [1]


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


def test_blocks_of_rocksdb_take_no_more_memory_than_the_setting(tmp_path: Path) -> None:
    limit = 256 << 10
    store = RocksKeyStore(tmp_path / "index", 8, limit)
    fill(store, tmp_path, [(number, number) for number in range(200_000)])
    assert store.find_range(key(0), key(200_000), 200_000).size == 200_000
    assert 0 < rocksdb._block_cache(limit).get_usage() <= 1.1 * limit


def _ingest(kind: str, place: str, directory: str, number: int) -> None:
    store = stores[kind](place, 8)
    run = Path(directory) / f"process-{number}"
    store.write_run(run, entries([(number, number)]), f"run of {number}")
    store.ingest([run])


def test_several_processes_ingest_while_one_reads(made, make, tmp_path: Path) -> None:
    store = make()
    fill(store, tmp_path, [(1000, 1)])
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_ingest, args=(*made, str(tmp_path), number)) for number in range(3)]
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


def _remove(file: Path) -> None:
    file.unlink()


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _flip(file: Path) -> None:
    file.write_bytes(bytes(byte ^ 0x55 for byte in file.read_bytes()))


def _exchange(file: Path) -> None:
    other = RocksKeyStore(file.parent / "other", 8)
    other.write_run(file, entries([(number + 1000, number) for number in range(100)]), "other")


@pytest.mark.parametrize("damage", [_remove, _truncate, _flip, _exchange])
def test_lost_or_foreign_entries_are_an_error_not_an_empty_answer(tmp_path: Path, damage) -> None:
    store = RocksKeyStore(tmp_path / "index", 8)
    names = fill(store, tmp_path, [(number, number) for number in range(100)], [(5, 1000)])
    store.close()
    damage(sorted((tmp_path / "index").glob("*.sst"))[0])
    with pytest.raises(IndexDamaged):
        store.refresh(names)


def test_the_store_of_another_index_is_noticed(tmp_path: Path) -> None:
    names = [fill(RocksKeyStore(tmp_path / name, 8), tmp_path, [(5, 1)]) for name in ("index", "other")]
    shutil.rmtree(tmp_path / "index")
    (tmp_path / "other").rename(tmp_path / "index")
    with pytest.raises(IndexDamaged):
        RocksKeyStore(tmp_path / "index", 8).refresh(names[0])


def test_names_of_runs_outlive_compaction_and_are_no_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb, "RUNS_BEFORE_COMPACTION", 2)
    store = RocksKeyStore(tmp_path / "index", 8)
    names = [name for number in range(8) for name in fill(store, tmp_path, [(2**64 - 1, number), (number, number)])]
    assert len(list((tmp_path / "index").glob("*.sst"))) < 8
    again = RocksKeyStore(tmp_path / "index", 8)
    again.refresh(names)
    assert sorted(again.find([key(2**64 - 1)], 100).tolist()) == list(range(8))
    assert len(again.find_range(key(0), key(2**64 - 1), 100)) == 16


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
