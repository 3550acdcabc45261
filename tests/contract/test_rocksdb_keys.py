"""What is special about key indexes in RocksDB: files that are damaged, blocks in memory, compaction."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.key_stores import entries, fill, key

from needlepoint.stores import rocksdb
from needlepoint.stores.base import IndexDamaged
from needlepoint.stores.rocksdb import RocksKeyStore


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
