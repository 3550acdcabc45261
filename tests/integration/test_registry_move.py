"""A lake whose registry moves between SQLite and PostgreSQL answers as before, and builds nothing again."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.buckets import Bucket
from tests.cases import cases
from tests.database_servers import PASSWORD
from tests.integration.test_repair import check, rows_of, write

import needlepoint
from needlepoint.cli import main
from needlepoint.errors import StoreError, UsageError
from needlepoint.lake.upkeep import registry_move
from needlepoint.tables.registry import Registry


@pytest.fixture(autouse=True)
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_move, "SAMPLES", 1)


def indexes(lake: needlepoint.Lake) -> list[tuple[str, int]]:
    return [(index.name, index.id) for index in lake.registry.indexes.all()]


def test_there_and_back(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    """Keys in RocksDB, in leaf files and in a server are used in both."""
    for number in range(2):
        write(tmp_path, number)
    with needlepoint.open(tmp_path, keys=redis_url) as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids", store="")
        lake.create_index("item", "code", name="codes", store="lake:")
        lake.create_index("item", "name", name="names")
        lake.create_index("item", "note", kind="text", name="notes")
        before, entries = indexes(lake), lake.status().tables[0].indexes
        stale = lake

        def needle(*words: str, registry: str = "") -> tuple[int, str]:
            environment = {"NEEDLE_REGISTRY": registry, "NEEDLE_KEYS": redis_url}
            done = CliRunner().invoke(main, [*words, "--lake", str(tmp_path)], env=environment)
            assert PASSWORD not in done.output
            return done.exit_code, done.output

        code, said = needle("store", "copy", "sqlite", postgres_url)
        assert code == 0, said
        shown = postgres_url.replace(f"postgres:{PASSWORD}@", "") + "?schema=needlepoint"
        assert f"NEEDLE_REGISTRY={shown}" in said and "only this machine has ids, notes" in said
        with pytest.raises(StoreError, match="was moved to postgresql://"):
            stale.sql("SELECT count(*) FROM item")
        code, said = needle("status")
        assert code == 1 and f"was moved to {shown}. Open the lake with NEEDLE_REGISTRY" in said
    with pytest.raises(StoreError, match="was moved"):
        needlepoint.open(tmp_path, read_only=True)
    assert needle("store", "copy", "sqlite", postgres_url)[0] == 0  # it is there, and verified once more
    with needlepoint.open(tmp_path, keys=redis_url, registry=postgres_url, access="pages") as lake:
        assert indexes(lake) == before and not any(index.problem for index in lake.status().tables[0].indexes)
        assert [report.indexed for report in lake.sync()] == [0]
        check(lake, [rows_of(number) for number in range(2)])
        write(tmp_path, 2)
        lake.sync()
    # The password is that of the setting.
    code, said = needle("store", "copy", shown, "sqlite", registry=postgres_url)
    assert code == 0 and "no NEEDLE_REGISTRY" in said, said
    with needlepoint.open(tmp_path, keys=redis_url, access="pages") as lake:
        assert indexes(lake) == before and len(lake.status().tables[0].indexes) == len(entries)
        assert [report.indexed for report in lake.sync()] == [0]
        check(lake, [rows_of(number) for number in range(3)])
        assert lake.verify("item", 1).is_sound and not lake.sweep().entries
        check(lake, [rows_of(number) for number in range(3)])
    with pytest.raises(StoreError, match=r"was moved to .*registry\.db"):
        needlepoint.open(tmp_path, registry=postgres_url)


def test_what_is_refused(tmp_path: Path, postgres_url: str) -> None:
    for words in (
        ("sqlite", "sqlite"),
        ("sqlite", "redis://host/0"),
        ("rocksdb", "sqlite"),
        (postgres_url, postgres_url.replace("postgres:", "other:")),
        ("sqlite", postgres_url),  # there is no lake
    ):
        with pytest.raises(UsageError):
            needlepoint.move_registry(tmp_path / "lake", *words)
    assert not (tmp_path / "lake").exists()
    done = CliRunner().invoke(main, ["store", "copy", "sqlite", postgres_url, "--index", "i"])
    assert done.exit_code == 2 and "as a whole" in done.output


@pytest.mark.long
def test_a_published_registry_is_withdrawn_and_comes_back(bucket: Bucket, tmp_path: Path, postgres_url: str) -> None:
    bucket.put_table("lake/item/0.parquet", rows_of(0))
    place, url = {"store": tmp_path / "store"}, bucket.url("lake")
    with needlepoint.open(url, **place) as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids", store="lake:")
        lake.create_index("item", "name", kind="distinct", name="names")
    of_names = "SELECT count(*) FROM item WHERE name = 'dairy cow 33'"
    empty = {"store": tmp_path / "none", "cache": tmp_path / "cache", "object_refresh": 0.0, "access": "pages"}
    with needlepoint.open(url, read_only=True, **empty) as reader:
        check(reader, [rows_of(0)])
        moved = needlepoint.move_registry(url, "sqlite", postgres_url, **place)
        assert moved.withdrawn and not moved.local and not moved.problems
        with needlepoint.open(
            url, read_only=True, registry=postgres_url, **{**empty, "cache": tmp_path / "c"}
        ) as other:
            assert "names (distinct): used" in str(other.explain(of_names))
            check(other, [rows_of(0)])
        with pytest.raises(UsageError, match="there is no store"):
            needlepoint.open(url, read_only=True, **{**empty, "cache": tmp_path / "other"})
        bucket.put_table("lake/item/1.parquet", rows_of(1))
        with needlepoint.open(url, registry=postgres_url, **place) as lake:
            lake.sync()
            check(lake, [rows_of(0), rows_of(1)])
        check(reader, [rows_of(0)])  # a state that was published
        moved = needlepoint.move_registry(url, postgres_url, "sqlite", **place)
        assert not moved.withdrawn and not moved.problems
        with needlepoint.open(url, **place) as lake:
            assert "names (distinct): used" in str(lake.explain(of_names))
            lake.share()
            assert lake.repair(samples=1) == []
        check(reader, [rows_of(0), rows_of(1)])
        assert "ids (key): used" in str(reader.explain("SELECT * FROM item WHERE id = 17"))


def test_a_move_that_could_not_withdraw_is_finished_by_another(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, shared="on") as lake:
        lake.create_table("item")
    manifest = tmp_path / ".needlepoint/registry/manifest.json"

    def fail(*_: object) -> bool:
        raise StoreError("the bucket is away.")

    with monkeypatch.context() as patched, pytest.raises(StoreError, match="away"):
        patched.setattr(registry_move, "_withdraw", fail)
        needlepoint.move_registry(tmp_path, "sqlite", postgres_url)
    assert manifest.exists()
    moved = needlepoint.move_registry(tmp_path, "sqlite", postgres_url)
    assert moved.withdrawn and not moved.problems and not manifest.exists()


def test_an_indexer_takes_no_events_of_a_registry_that_was_moved(tmp_path: Path, postgres_url: str) -> None:
    write(tmp_path, 0)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("item")
        lake.queue.put("not understood")
        events = lake.follow_events(once=True)
        next(events)
        needlepoint.move_registry(tmp_path, "sqlite", postgres_url)
        lake.queue.put("not understood either")
        with pytest.raises(StoreError, match="was moved"):
            next(events)
        assert (lake.queue.waiting(), lake.queue.aside_count()) == (1, 1)


WALKED = ("registry_move.py", "copying.py", "moved.py", "database.py", "postgres.py", "place.py")
"""The modules with the lines at which a move is killed."""


def moved_until(line: int, root: Path, source: str, target: str) -> int:
    """Move a registry in a process that is killed at a line, of all different ones that it runs. Returns how many it
    ran if that is fewer."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with open(reader) as told:
            ran = told.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert (code == 0 and ran) or code == -signal.SIGKILL
        return int(ran or 0)
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(WALKED):
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(seen) > line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    code = 1
    try:
        sys.settrace(trace)
        needlepoint.move_registry(root, source, target)
        os.write(writer, str(len(seen)).encode())
        code = 0
    finally:
        os._exit(code)


class MovedLake:
    """A lake with one table, whose registry is to be moved to a target. It may have been there before."""

    def __init__(self, root: Path, url: str, target: str, was_there: bool) -> None:
        self.root, self.url = root, f"{url}?schema={root.name}"
        self.source, self.target = (self.url, "sqlite") if target == "sqlite" else ("sqlite", self.url)
        root.mkdir()
        with closing(self.open(self.target if was_there else self.source, create=True)) as registry:
            registry.tables.create("item", "item", pa.schema([("id", pa.int64())]), ())
        if was_there:
            needlepoint.move_registry(root, self.target, self.source)

    def open(self, place: str, *, create: bool) -> Registry:
        return Registry(self.root / ".needlepoint", self.root, url="" if place == "sqlite" else place, create=create)

    def tables(self, place: str) -> list[str]:
        """Those of the registry in a place; none if there is none, or it cannot be opened."""
        if place == "sqlite" and not (self.root / ".needlepoint/registry.db").exists():
            return []
        try:
            with closing(self.open(place, create=False)) as registry:
                assert registry.tables.names(), f"{place} is an empty registry"
                return registry.tables.names()
        except (StoreError, UsageError) as error:
            assert re.search("was moved to|was not finished|there is no registry", str(error)), error
            return []


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_a_move_that_is_killed_anywhere(
    tmp_path: Path, postgres_url: str, target: str, was_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody opens an empty registry, at most one can be opened, and the next move finishes."""
    monkeypatch.setattr(registry_move, "_verified", lambda moved, *_: moved)
    whole = MovedLake(tmp_path / "whole", postgres_url, target, was_there)
    lines = moved_until(10**6, whole.root, whole.source, whole.target)
    assert lines > 100 and whole.tables(whole.target) == ["item"]
    step = max(1, lines // cases(60, 3))
    for line in range(step // (3 if was_there else 2), lines, step):
        lake = MovedLake(tmp_path / f"line{line}", postgres_url, target, was_there)
        moved_until(line, lake.root, lake.source, lake.target)
        assert not (lake.tables(lake.source) and lake.tables(lake.target))
        needlepoint.move_registry(lake.root, lake.source, lake.target)
        assert (lake.tables(lake.source), lake.tables(lake.target)) == ([], ["item"]), line
