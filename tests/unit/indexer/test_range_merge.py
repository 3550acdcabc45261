"""Merging overlapping runs into runs that do not overlap."""

from __future__ import annotations

import tracemalloc
import uuid
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.indexer.build import COPIES_OF_AN_ENTRY
from needlepoint.indexer.range_merge import choose_ranges, merge, write_plain
from needlepoint.stores import rocksdb
from needlepoint.stores.base import IndexDamaged
from needlepoint.stores.rocksdb import RocksKeyStore

MOST = 2**63


def plain_runs(directory: Path, runs: list[list[tuple[int, int]]], width: int = 8) -> list[tuple[str, int]]:
    paths = []
    for run in filter(None, runs):
        path = directory / f"{uuid.uuid4().hex}.run"
        rows = [key.to_bytes(width, "big") + location.to_bytes(8, "big") for key, location in sorted(set(run))]
        write_plain(path, np.frombuffer(b"".join(rows), np.uint8).reshape(-1, width + 8))
        paths.append((str(path), path.stat().st_size))
    return paths


def merged(
    directory: Path, paths: list[tuple[str, int]], most: int, width: int = 8
) -> tuple[RocksKeyStore, list[str], list[int]]:
    """A store with the merged runs, their names and their numbers of entries."""
    store = RocksKeyStore(directory / uuid.uuid4().hex, width)
    made = [found for each in choose_ranges(paths, width, most) if (found := merge(each, directory)) is not None]
    store.ingest([directory / each.file for each in made])
    names = [each.name for each in made]
    store.refresh(names)
    return store, names, [each.entries for each in made]


ENTRIES = st.tuples(st.one_of(st.integers(0, 5), st.integers(0, MOST)), st.integers(0, 40))


@settings(max_examples=cases(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=st.lists(st.lists(ENTRIES, max_size=60), max_size=6), most=st.integers(1, 50))
@pytest.mark.parametrize("width", [8, 16])
def test_every_entry_is_found_and_ranges_are_small(tmp_path: Path, width: int, runs, most: int) -> None:
    store, _, sizes = merged(tmp_path, plain_runs(tmp_path, runs, width), most, width)
    wanted = {entry for run in runs for entry in run}
    assert sum(sizes) == len(wanted)
    # Even if fewer entries are allowed than there are runs, a range has entries of each run.
    assert all(size <= max(most, 2 * len(runs)) + len(runs) for size in sizes)
    for key in {key for key, _ in wanted} | {3, 7}:
        expected = sorted(location for other, location in wanted if other == key)
        assert sorted(store.find([key.to_bytes(width, "big")], 10_000).tolist()) == expected
    low, high = (each.to_bytes(width, "big") for each in (1, MOST // 2))
    expected = sorted(location for key, location in wanted if 1 <= key <= MOST // 2)
    assert sorted(store.find_range(low, high, 10_000).tolist()) == expected
    store.close()


def test_ranges_lie_side_by_side_in_the_lowest_level(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).permutation(20_000)
    runs = [[(int(number), int(number)) for number in part] for part in np.array_split(numbers, 10)]
    store, names, sizes = merged(tmp_path, plain_runs(tmp_path, runs), 4000)
    assert len(sizes) > 5
    assert max(sizes) <= 4000
    with store._primary() as database:
        assert database.property_int_value("rocksdb.num-files-at-level0") == 0
        assert database.property_int_value("rocksdb.num-files-at-level6") == len(sizes) + 1  # and the format
        database.compact_range(None, None)
    store.refresh(names)  # a compaction keeps the names
    assert len(store.find_range((0).to_bytes(8, "big"), (99).to_bytes(8, "big"), 1000)) == 100


def test_one_key_in_many_ranges(tmp_path: Path) -> None:
    runs = [[(7, location) for location in range(start, 3000, 3)] for start in range(3)]
    store, _, sizes = merged(tmp_path, plain_runs(tmp_path, [*runs, [(6, 1), (8, 1)]]), 500)
    assert len(sizes) > 5
    for key, count in ((5, 0), (6, 1), (7, 3000), (8, 1)):
        assert len(store.find([key.to_bytes(8, "big")], 10_000)) == count
    assert store.find([(7).to_bytes(8, "big")], 2999) is None
    assert store.find_range((7).to_bytes(8, "big"), (7).to_bytes(8, "big"), 2999) is None
    assert len(store.find_range((6).to_bytes(8, "big"), (8).to_bytes(8, "big"), 3002)) == 3002


def test_a_lost_range_is_noticed(tmp_path: Path) -> None:
    store, names, sizes = merged(tmp_path, plain_runs(tmp_path, [[(n, n) for n in range(1000)]]), 200)
    assert len(sizes) > 3
    store.close()
    sorted(store._directory.glob("*.sst"))[1].unlink()
    with pytest.raises(IndexDamaged):
        store.refresh(names)


def test_a_run_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    ((path, size),) = plain_runs(tmp_path, [[(n, n) for n in range(100)]])
    (all_of_it,) = choose_ranges([(path, size)], 8, 1000)
    Path(path).write_bytes(Path(path).read_bytes()[:-5])
    with pytest.raises((OSError, ValueError)):
        merge(all_of_it, tmp_path)


def test_no_entries() -> None:
    assert choose_ranges([], 8, 10) == []


def test_merging_takes_the_memory_that_ranges_are_sized_by(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).permutation(200_000)
    runs = [[(int(number), int(number)) for number in part] for part in np.array_split(numbers, 4)]
    (everything,) = choose_ranges(plain_runs(tmp_path, runs), 8, 1_000_000)
    merge(everything, tmp_path)  # do not measure what is loaded only once
    tracemalloc.start()
    merge(everything, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000 * 16 * COPIES_OF_AN_ENTRY + rocksdb.WRITE_CHUNK * 100
