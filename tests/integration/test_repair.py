"""Damage of each kind: `verify` names it, `repair` repairs it, `verify` finds nothing, answers are DuckDB's."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.buckets import Bucket
from tests.cases import long
from tests.database_servers import PostgresServer, RedisServer
from tests.lakes import staged

import needlepoint
from needlepoint.cli import main
from needlepoint.tables import publishing
from needlepoint.tables.published import publisher as publishers

QUERIES = (
    "SELECT count(*), sum(number) FROM item WHERE id = 17",
    "SELECT name, number FROM item WHERE code IN (1, 5, 300, 77777) ORDER BY name, number",
    "SELECT count(*) FROM item WHERE name = 'dairy cow 33'",
    "SELECT number FROM item WHERE note LIKE '%cow 33%' ORDER BY number",
    "SELECT count(*), max(number) FROM item WHERE number > 500000000",
)


def rows_of(number: int, rows: int = 600) -> pa.Table:
    random = np.random.default_rng(number)
    ids = random.integers(0, 400, rows)
    names = [f"dairy cow {each % 50}" for each in ids]
    numbers = random.integers(0, 10**9, rows)
    return pa.table({"id": ids, "code": ids * 3, "name": names, "note": names, "number": numbers})


def write(root: Path, number: int) -> Path:
    path = root / "item" / f"{number}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows_of(number), path, row_group_size=200, write_page_index=True)
    return path


def check(lake: needlepoint.Lake, tables: list[pa.Table]) -> None:
    with duckdb.connect() as judge:
        judge.register("item", pa.concat_tables(tables))
        for query in QUERIES:
            expected = [tuple(row) for row in judge.execute(query).fetchall()]
            assert [tuple(row.values()) for row in lake.sql(query).rows()] == expected, query


def flipped(path: Path, at: int | None = None) -> None:
    """Change bytes of a file in place."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 if at is None else at
    for place in range(middle, min(len(data), middle + 64)):
        data[place] ^= 0x5A
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with indexes of all kinds, in RocksDB and in leaf files, which publishes its registry."""
    root = tmp_path_factory.mktemp("repair") / "lake"
    for number in range(3):
        write(root, number)
    with needlepoint.open(root, shared="on") as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids")
        lake.create_index("item", "code", name="codes", store="lake:")
        lake.create_index("item", "name", kind="distinct", name="names")
        lake.create_index("item", "note", kind="text", name="notes")
    return root


def of(root: Path, pattern: str) -> Path:
    return max((root / ".needlepoint").glob(pattern), key=lambda path: path.stat().st_size)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "rocksdb file": (lambda root: flipped(of(root, "indexes/*/*.sst")), "index ids"),
    "rocksdb lost": (lambda root: of(root, "indexes/*/*.sst").unlink(), "index ids"),
    "leaf file": (lambda root: flipped(of(root, "keys/*/*/leaves/*"), 100), "index codes"),
    "leaf lost": (lambda root: of(root, "keys/*/*/leaves/*").unlink(), "index codes"),
    "leaf manifest": (lambda root: flipped(of(root, "keys/*/*/manifest.ndjson")), "index codes"),
    "leaf manifest lost": (lambda root: of(root, "keys/*/*/manifest.ndjson").unlink(), "index codes"),
    "index pack": (lambda root: flipped(of(root, "indexes/*/*.pack")), "index n"),
    "index pack lost": (lambda root: of(root, "indexes/*/*.pack").unlink(), "index n"),
    "card pack": (lambda root: flipped(of(root, "cards/*.pack")), "cards and zone maps"),
    "card pack lost": (lambda root: of(root, "cards/*.pack").unlink(), "cards and zone maps"),
    "checkpoint": (lambda root: flipped(of(root, "registry/checkpoint-*")), "the published registry"),
    "checkpoint lost": (lambda root: of(root, "registry/checkpoint-*").unlink(), "the published registry"),
    "manifest": (lambda root: flipped(of(root, "registry/manifest.json")), "the published registry"),
    "manifest lost": (lambda root: of(root, "registry/manifest.json").unlink(), "the published registry"),
}


# One of each kind in a lake; `make test-all` also damages each alone.
TOGETHER = [tuple(name for name in DAMAGES if name.endswith("lost") is lost) for lost in (False, True)]


def is_clean(lake: needlepoint.Lake) -> bool:
    return lake.verify("item", 1).is_sound and not lake.verify_published()


@pytest.mark.parametrize("damages", [*TOGETHER, *long(*(((name,),) for name in DAMAGES))], ids=" and ".join)
def test_damage_is_named_and_repaired(pristine: Path, tmp_path: Path, damages: tuple[str, ...]) -> None:
    root = shutil.copytree(pristine, tmp_path / "lake")
    with needlepoint.open(root, shared="on") as lake:
        lake.sync()  # the copies of files have other inodes
    before = {path: path.stat().st_mtime_ns for path in root.glob("item/*")}
    for damage in damages:
        DAMAGES[damage][0](root)
    with needlepoint.open(root, shared="on", access="pages") as lake:
        assert not is_clean(lake)
        planned = lake.repair(dry_run=True, samples=1)
        parts = [each.part for each in planned]
        assert len(parts) == len({DAMAGES[damage][1] for damage in damages}), parts
        for damage in damages:
            assert any(part.startswith(DAMAGES[damage][1]) for part in parts), (damage, parts)
        assert not is_clean(lake)
        assert lake.repair(samples=1) == planned and all(each.is_done for each in planned)
        assert is_clean(lake)
        check(lake, [rows_of(number) for number in range(3)])
    with needlepoint.open(root, shared="on", read_only=True, cache=tmp_path / "cache") as reader:
        check(reader, [rows_of(number) for number in range(3)])
    assert {path: path.stat().st_mtime_ns for path in root.glob("item/*")} == before


def test_the_commands(pristine: Path, tmp_path: Path) -> None:
    root = shutil.copytree(pristine, tmp_path / "lake")

    def needle(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, [*words, "--samples", "1", "--lake", str(root)], env={"NEEDLE_SHARED": "on"})
        return done.exit_code, done.output

    assert needle("verify")[0] == 0
    assert needle("repair") == (0, "nothing to repair\n")
    flipped(of(root, "indexes/*/*.sst"))
    of(root, "registry/manifest.json").unlink()
    code, said = needle("verify")
    assert code == 1 and "index ids (key) is damaged" in said and "`needle repair item`" in said
    assert "the published registry: " in said
    code, said = needle("repair", "--dry-run")
    assert code == 0 and "item: index ids: " in said and said.count("-> would be ") == 2
    assert needle("verify")[0] == 1
    code, said = needle("repair")
    assert code == 0 and "-> built again" in said and "-> published again" in said
    assert needle("verify")[0] == 0
    assert needle("repair", "itm")[0] == 1


def test_an_embedded_index_is_left_to_rebuild(tmp_path: Path) -> None:
    """Repair writes no data file."""
    write(tmp_path, 0)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("item")
        lake.create_index("item", "name", kind="distinct", name="names", embed=True)
        (place,) = lake.registry.payloads.places(lake.registry.indexes.get("names")).values()
        path = tmp_path / "item/0.parquet"
        status = path.stat()
        with path.open("r+b") as file:
            file.seek(place.offset + 20)
            file.write(b"\0\0\0\0")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with lake.registry.database.change() as transaction:  # a disk changes bytes, and no times
            transaction.execute("UPDATE files SET ctime_ns = ?", (path.stat().st_ctime_ns,))
        before = path.read_bytes()
        (left,) = lake.repair("item", samples=1)
        assert not left.is_done and "--from-data" in left.action
        assert path.read_bytes() == before


@pytest.mark.parametrize("how", ["emptied", "blocks"])
def test_keys_in_a_server(tmp_path: Path, how: str, postgres_url: str, postgres_server: PostgresServer) -> None:
    for number in range(2):
        write(tmp_path, number)
    with needlepoint.open(tmp_path, keys=postgres_url, access="pages") as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids")
        assert lake.verify("item", 1).is_sound
        database = postgres_url.rpartition("/")[2]
        tables = postgres_server.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables WHERE tablename LIKE 'needlepoint_key%'", database
        )
        (blocks,) = [name for (name,) in tables if "block" in name]
        if how == "emptied":
            for (name,) in tables:
                postgres_server.execute(f"DELETE FROM {name}", database)
        else:
            columns = postgres_server.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_name = "
                f"'{blocks.rpartition('.')[2]}' AND data_type = 'bytea'",
                database,
            )
            (column,) = columns[-1]
            postgres_server.execute(f"UPDATE {blocks} SET {column} = set_byte({column}, 40, 77)", database)
        with needlepoint.open(tmp_path, keys=postgres_url, access="pages") as other:
            report = other.verify("item", 1)
            assert [each.index for each in report.indexes] == ["ids"] and not report.indexes[0].is_away
            (done,) = other.repair(samples=1)
            assert done.part == "index ids" and done.is_done
            assert other.verify("item", 1).is_sound
            check(other, [rows_of(number) for number in range(2)])


@pytest.mark.long
def test_a_server_that_was_flushed_and_one_that_is_away(
    tmp_path: Path, redis_url: str, redis_server: RedisServer
) -> None:
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, keys=redis_url, access="pages") as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids")
        with redis_server.client() as client:
            client.flushall()
        (done,) = lake.repair(samples=1)
        assert done.part == "index ids" and done.is_done
        assert lake.verify("item", 1).is_sound
        check(lake, [rows_of(0)])
        redis_server.stop()
        try:
            (damage,) = lake.verify("item", 1).indexes
            assert damage.is_away
            (left,) = lake.repair(samples=1)
            assert not left.is_done and "does not answer" in left.action
            check(lake, [rows_of(0)])
        finally:
            redis_server.start()
        time.sleep(1.1)
        assert lake.repair(samples=1) == [] and lake.verify("item", 1).is_sound


def test_a_batch_whose_publisher_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with needlepoint.open(tmp_path / "lake") as lake:
        staging = lake.writer.staging("item")
        files = staged(staging, {"a.parquet": rows_of(0)})

        def dies(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(publishing, "_move_all", dies)
            with pytest.raises(KeyboardInterrupt):
                lake.publish("item", files, staging, "first")
        assert lake.verify("item", 1).unfinished == ("first",)
        assert [each.action for each in lake.repair(dry_run=True, samples=1)] == ["finished"]
        assert lake.verify("item", 1).unfinished == ("first",)
        assert [each.part for each in lake.repair(samples=1)] == ["batch first"]
        assert lake.verify("item", 1).unfinished == () and lake.repair(samples=1) == []
        check(lake, [rows_of(0)])


def test_machines_share_the_cards_of_a_lake_in_a_bucket(bucket: Bucket, tmp_path: Path, postgres_url: str) -> None:
    """With the registry in PostgreSQL; what one of them builds, or repairs, the others read by page."""
    bucket.put_table("lake/item/0.parquet", rows_of(0))
    place = {"registry": postgres_url, "access": "pages"}
    query = "SELECT name FROM item WHERE id = 3"

    def is_paged(lake: needlepoint.Lake) -> bool:
        (report,) = lake.sql(query).report.tables
        return (report.page_read_files, report.scanned_files) == (1, 0)

    with needlepoint.open(bucket.url("lake"), store=tmp_path / "one", **place) as one:
        one.create_table("item")
        one.create_index("item", "id")
        with needlepoint.open(bucket.url("lake"), store=tmp_path / "other", cache=tmp_path / "c", **place) as other:
            for lake in (one, other):
                check(lake, [rows_of(0)])
                assert is_paged(lake)
            assert other.verify("item", 1).is_sound and other.repair(samples=1) == []
            (key,) = keys_of(bucket, "/cards/")
            data = bytearray(bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read())
            bucket.put(key, bytes(each ^ 0x5A for each in data))
            shutil.rmtree(tmp_path / "c")
        with needlepoint.open(bucket.url("lake"), store=tmp_path / "third", cache=tmp_path / "d", **place) as other:
            check(other, [rows_of(0)])
            assert not is_paged(other)
            assert len(other.verify("item", 1).damaged) == 1
            assert [each.is_done for each in other.repair(samples=1)] == [True]
            assert is_paged(other)
            bucket.delete(keys_of(bucket, "/cards/")[-1])
            other.sync()
            other.sweep(now=True)
            assert len(keys_of(bucket, "/cards/")) == len(other.registry.cards.names()) == 1
        reader = needlepoint.open(
            bucket.url("lake"), store=tmp_path / "none", cache=tmp_path / "e", read_only=True, **place
        )
        with reader:
            check(reader, [rows_of(0)])
            assert is_paged(reader) and is_paged(one)
    assert not [*tmp_path.glob("*/cards")]


def test_packs_of_an_earlier_version_are_put_into_the_bucket(bucket: Bucket, tmp_path: Path, postgres_url: str) -> None:
    """They were on the disk of the machine that built them."""
    bucket.put_table("lake/item/0.parquet", rows_of(0))
    place = {"registry": postgres_url, "access": "pages", "store": tmp_path / "store", "cache": tmp_path / "cache"}
    with needlepoint.open(bucket.url("lake"), **place) as lake:
        lake.create_table("item")
        lake.create_index("item", "name", kind="distinct", name="names")
    before = keys_of(bucket, "/packs/")
    assert len(before) == 2
    for key in before:
        part = key.rpartition("/packs/")[2].partition("/")[2]
        own = tmp_path / "store" / (part if part.startswith("cards/") else f"indexes/{part}")
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read())
        bucket.delete(key)
    with needlepoint.open(bucket.url("lake"), **place) as lake:
        assert "is missing" in lake.status().tables[0].indexes[0].problem
        check(lake, [rows_of(0)])
        lake.sync()
        assert keys_of(bucket, "/packs/") == before
        assert lake.verify("item", 1).is_sound
        assert "names (distinct): used" in str(lake.explain("SELECT count(*) FROM item WHERE name = 'dairy cow 33'"))


def test_packs_on_the_disk_of_another_machine_are_not_lost(tmp_path: Path, postgres_url: str) -> None:
    """Each machine has those that it built; what it does not have, it scans."""
    root, place = tmp_path / "lake", {"registry": postgres_url, "access": "pages"}
    write(root, 0)
    with (
        needlepoint.open(root, store=tmp_path / "one", **place) as one,
        needlepoint.open(root, store=tmp_path / "other", **place) as other,
    ):
        one.create_table("item")
        one.create_index("item", "name", kind="distinct")
        table, index = one.registry.tables.get("item"), one.registry.indexes.get("item_name_distinct")
        before = one.registry.payloads.places(index)
        write(root, 1)
        other.sync()
        one.sync()
        after = one.registry.payloads.places(index)
        assert before.items() <= after.items() and len(after) == 2
        for lake in (one, other):
            check(lake, [rows_of(0), rows_of(1)])
            assert "is missing" in lake.status().tables[0].indexes[0].problem
        assert [each.is_done for each in other.repair("item", samples=1)] == [True]
        assert other.verify("item", 1).is_sound
        assert other.status().tables[0].indexes[0].problem == ""
        assert {file.path for file in one.registry.files.of(table)} == {"0.parquet", "1.parquet"}
        check(one, [rows_of(0), rows_of(1)])


# Faults in buckets


@pytest.fixture
def bucket_lake(bucket: Bucket, tmp_path: Path) -> Iterator[needlepoint.Lake]:
    bucket.put_table("lake/item/0.parquet", rows_of(0))
    with needlepoint.open(bucket.url("lake"), store=tmp_path / "store", keys="lake:", access="pages") as lake:
        lake.create_table("item")
        lake.create_index("item", "id", name="ids")
        lake.create_index("item", "name", kind="distinct", name="names")
        lake.share()
        yield lake


def keys_of(bucket: Bucket, part: str) -> list[str]:
    found = bucket.client.list_objects_v2(Bucket=bucket.name, Prefix="lake/.needlepoint/")
    return [each["Key"] for each in found["Contents"] if part in each["Key"]]


def test_a_lost_leaf_object_is_noticed_by_sync(bucket_lake: needlepoint.Lake, bucket: Bucket, tmp_path: Path) -> None:
    (key,) = keys_of(bucket, "/leaves/")
    bucket.delete(key)
    with needlepoint.open(bucket.url("lake"), store=tmp_path / "store", access="pages") as other:
        assert "gone or cut" in other.status().tables[0].indexes[0].problem
        other.sync()
        assert other.status().tables[0].indexes[0].problem == ""
        (new,) = keys_of(bucket, "/leaves/")
        assert new != key and other.verify("item", 1).is_sound
        check(other, [rows_of(0)])


def test_a_published_pack_that_is_damaged_is_published_again(bucket_lake: needlepoint.Lake, bucket: Bucket) -> None:
    keys = [keys_of(bucket, part)[0] for part in ("/cards/", "/indexes/")]
    bucket.put(keys[0], b"nothing")
    bucket.delete(keys[1])
    assert len(bucket_lake.verify_published()) == 2
    assert [each.part for each in bucket_lake.repair(samples=1)] == ["the published registry"]
    assert bucket_lake.verify_published() == ()


def test_a_bucket_without_rights_beside_the_data(
    bucket: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning, ever; status says it; and replaced files are deleted an hour after the first refusal."""
    for number in range(2):
        bucket.put_table(f"lake/item/{number}.parquet", rows_of(number))
    refused = lambda asked: 403 if asked.method == "PUT" and ".needlepoint" in asked.path else None  # noqa: E731
    bucket.server.before = refused
    store = tmp_path / "store"
    with (
        caplog.at_level(logging.WARNING, "needlepoint"),
        needlepoint.open(bucket.url("lake"), store=store) as lake,
    ):
        lake.create_table("item")
        assert lake.publisher is not None and not lake.publisher.try_publish()
        assert "refused" in lake.status().published.problem  # type: ignore[union-attr]
    assert caplog.text.count("is not published") == 1
    caplog.clear()
    with needlepoint.open(bucket.url("lake"), store=store) as lake:
        assert "rights" in lake.status().published.problem  # type: ignore[union-attr]
        lake.sql("CREATE VIEW v AS SELECT 1 AS one")
        lake.compact("item")
        assert len(lake.sql("SELECT * FROM item")) == 1200
    assert "is not published" not in caplog.text
    listed = lambda: bucket.client.list_objects_v2(Bucket=bucket.name, Prefix="lake/item/")["Contents"]  # noqa: E731
    assert len(listed()) == 3
    monkeypatch.setattr(publishers, "REFUSED_GRACE", 0.0)
    with needlepoint.open(bucket.url("lake"), store=store) as lake:
        lake.sync()
        assert len(listed()) == 1 and len(lake.sql("SELECT * FROM item")) == 1200
    bucket.server.before = None
    with needlepoint.open(bucket.url("lake"), store=store) as lake:
        assert lake.share().problem == ""
