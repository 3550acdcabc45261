"""What is special about key indexes in RocksDB: files that are damaged, blocks in memory, compaction."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.key_stores import entries, fill, key

from needlepoint.errors import StoreError
from needlepoint.stores import rocksdb
from needlepoint.stores.base import IndexDamaged, name_in_range
from needlepoint.stores.rocksdb import RocksKeyStore

GOLDEN = Path(__file__).parents[1] / "golden"


def test_blocks_take_no_more_memory_than_the_setting(tmp_path: Path) -> None:
    limit = 256 << 10
    store = RocksKeyStore(tmp_path / "index", 8, limit)
    fill(store, tmp_path, [(number, number) for number in range(200_000)])
    assert store.find_range(key(0), key(200_000), 200_000).size == 200_000
    assert 0 < rocksdb._block_cache(limit).get_usage() <= 1.1 * limit


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


def fill_in_ranges(store: RocksKeyStore, directory: Path, runs: list[list[tuple[int, int]]]) -> list[str]:
    """As a large build does: ranges of runs overlap no other run of their build."""
    names = [name_in_range(f"{number:032x}", entries(pairs)) for number, pairs in enumerate(runs)]
    for name, pairs in zip(names, runs, strict=True):
        store.write_run(directory / name, entries(pairs), name)
    store.ingest([directory / name for name in names])
    return names


@pytest.mark.parametrize("before_compaction", [2, 100])
@pytest.mark.parametrize("known", [[], [0], [7], [0, 1, 2, 3, 4, 5, 6]])
def test_runs_of_large_builds_are_listed_also_when_they_were_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: list[int], before_compaction: int
) -> None:
    monkeypatch.setattr(rocksdb, "RUNS_BEFORE_COMPACTION", before_compaction)
    store = RocksKeyStore(tmp_path / "index", 8)
    at_the_end = fill(store, tmp_path, [(2**64 - 1, 0), (0, 9)])
    names = fill_in_ranges(store, tmp_path, [[(10 * number + at, number) for at in range(5)] for number in range(8)])
    assert (len(list((tmp_path / "index").glob("*.sst"))) < 8) == (before_compaction == 2)
    store.refresh([*at_the_end, *names])
    assert not store.has_other_runs()
    assert len(np.concatenate(list(store.scan()))) == 42
    assert store.count() == 42
    assert store.ends(1, last=True).tolist() == entries([(2**64 - 1, 0)]).tolist()
    store.refresh([*at_the_end, *(names[number] for number in known)])
    assert store.has_other_runs()
    store.refresh(names)
    assert store.has_other_runs()


def test_marks_are_no_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep counts dead entries by all that there are."""
    monkeypatch.setattr(rocksdb, "RUNS_BEFORE_COMPACTION", 2)
    store = RocksKeyStore(tmp_path / "index", 8)
    store.ingest([])
    store.refresh([])
    assert (store.count(), store.has_other_runs()) == (0, False)
    names = fill_in_ranges(store, tmp_path, [[(number, number)] for number in range(4)])
    names += fill(store, tmp_path, *[[(number, number)] for number in range(10, 18)])
    store.refresh(names)
    assert (store.count(), store.has_other_runs()) == (12, False)


def test_of_a_store_of_an_earlier_version_all_runs_may_not_be_known(tmp_path: Path) -> None:
    """It was written before the mark that says so. It finds the same rows, and a copy of it is as any other store."""
    shutil.copytree(GOLDEN / "rocksdb", tmp_path / "7")
    at_the_end = "297c86153e684505a343044c36cc210f"
    in_ranges = [f"{32 * 'a'}@{9:016x}{2 << 32 | 9:016x}", f"{32 * 'b'}@{19:016x}{2 << 32 | 19:016x}"]
    store = RocksKeyStore(tmp_path / "7", 8)
    for runs in ([at_the_end], [at_the_end, *in_ranges]):
        store.refresh(runs)
        assert store.has_other_runs()
    assert sorted(store.find([key(5), key(12)], 9).tolist()) == [1 << 32, 2 << 32 | 5, 2 << 32 | 12]
    assert (store.count(), len(np.concatenate(list(store.scan())))) == (22, 22)
    fill(store, tmp_path, [(30, 30)])
    assert store.has_other_runs()


def test_a_newer_format_is_refused_and_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rocksdb, "FORMAT", 3)
        names = fill(RocksKeyStore(tmp_path / "index", 8), tmp_path, [(5, 1)])
    store = RocksKeyStore(tmp_path / "index", 8)
    for ask in (lambda: store.refresh(names), lambda: store.ingest([])):
        with pytest.raises(StoreError, match=r"has format 3; this version .* reads format 2") as refused:
            ask()
        assert not isinstance(refused.value, IndexDamaged)
