"""Pieces of packs that are kept on disk: a cache never causes an error, and never returns other bytes."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from needlepoint.stores.piece_cache import PieceCache


def test_pieces_come_back(tmp_path: Path) -> None:
    cache, other = PieceCache(tmp_path, 1 << 20), PieceCache(tmp_path, 1 << 20)
    cache.put("a.pack", {(0, 3): b"abc", (3, 2): b"de"})
    assert other.get("a.pack", [(0, 3), (3, 2), (5, 1)]) == {(0, 3): b"abc", (3, 2): b"de"}
    assert other.get("b.pack", [(0, 3)]) == {}
    other.drop("a.pack", [(0, 3)])
    assert cache.get("a.pack", [(0, 3), (3, 2)]) == {(3, 2): b"de"}


def test_the_least_recently_used_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PieceCache(tmp_path, 10_000)
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    for number in range(40):
        clock[0] += 1000
        cache.put("a", {(number, 1000): bytes(1000)})
        cache.get("a", [(0, 1000)])  # used again and again
    held = cache.get("a", [(number, 1000) for number in range(40)])
    assert 5 <= len(held) <= 11 and {(0, 1000), (39, 1000)} <= held.keys()
    cache.put("a", {(99, 9000): bytes(9000)})  # too large a share
    assert cache.get("a", [(99, 9000)]) == {}


def test_damaged_pieces_are_not_returned(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path, 1 << 20)
    cache.put("a", {(0, 3): b"abc"})
    with sqlite3.connect(tmp_path / "pieces.db") as connection:
        connection.execute("UPDATE pieces SET data = 'abd'")
    assert cache.get("a", [(0, 3)]) == {}


@pytest.mark.parametrize("damage", [b"", b"no database", bytes(5000)])
def test_a_damaged_cache_is_made_again(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "pieces.db").write_bytes(damage)
    cache = PieceCache(tmp_path, 1 << 20)
    cache.put("a", {(0, 3): b"abc"})
    cache.put("a", {(0, 3): b"abc"})
    assert cache.get("a", [(0, 3)]) == {(0, 3): b"abc"}


def test_a_cache_that_is_removed_or_cannot_be_written(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path / "cache", 1 << 20)
    cache.put("a", {(0, 3): b"abc"})
    shutil.rmtree(tmp_path / "cache")
    cache.put("a", {(3, 3): b"def"})
    assert cache.get("a", [(0, 3)]) in ({}, {(0, 3): b"abc"})
    (tmp_path / "file").write_bytes(b"")
    nowhere = PieceCache(tmp_path / "file", 1 << 20)
    nowhere.put("a", {(0, 3): b"abc"})
    assert nowhere.get("a", [(0, 3)]) == {}
    assert PieceCache(tmp_path, 0).get("a", [(0, 3)]) == {}
