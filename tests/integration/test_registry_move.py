"""A lake whose registry moves between SQLite and PostgreSQL answers as before, and builds nothing again."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.buckets import Bucket
from tests.database_servers import PASSWORD
from tests.integration.test_repair import check, rows_of, write

import needlepoint
from needlepoint.cli import main
from needlepoint.errors import StoreError, UsageError
from needlepoint.lake import registry_move


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


def test_a_published_registry_is_withdrawn_and_comes_back(bucket: Bucket, tmp_path: Path, postgres_url: str) -> None:
    bucket.put_table("lake/item/0.parquet", rows_of(0))
    place, url = {"store": tmp_path / "store"}, bucket.url("lake")
    with needlepoint.open(url, **place) as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids", store="lake:")
    empty = {"store": tmp_path / "none", "cache": tmp_path / "cache", "object_refresh": 0.0, "access": "pages"}
    with needlepoint.open(url, read_only=True, **empty) as reader:
        check(reader, [rows_of(0)])
        assert needlepoint.move_registry(url, "sqlite", postgres_url, **place).withdrawn
        with pytest.raises(UsageError, match="there is no store"):
            needlepoint.open(url, read_only=True, **{**empty, "cache": tmp_path / "other"})
        bucket.put_table("lake/item/1.parquet", rows_of(1))
        with needlepoint.open(url, registry=postgres_url, **place) as lake:
            lake.sync()
            check(lake, [rows_of(0), rows_of(1)])
        check(reader, [rows_of(0)])  # a state that was published
        assert not needlepoint.move_registry(url, postgres_url, "sqlite", **place).withdrawn
        with needlepoint.open(url, **place) as lake:
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
