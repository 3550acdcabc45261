"""Lakes whose key indexes are leaf files in the lake itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest
from tests.buckets import Bucket
from tests.integration.test_key_servers import check, write

import needlepoint
from needlepoint.errors import UsageError


@pytest.fixture
def lake(tmp_path: Path):
    for number in range(3):
        write(tmp_path, number)
    with needlepoint.open(tmp_path, keys="lake:", access="pages") as found:
        found.create_table("item")
        found.create_index("item", "id")
        found.sql("CREATE INDEX ON item USING key (name)")
        yield found


def test_answers_through_changes(lake: needlepoint.Lake, tmp_path: Path) -> None:
    check(lake, tmp_path)
    places = {int(place.name) for place in (tmp_path / ".needlepoint/keys").glob("*/*")}
    assert places == {index.id for index in lake.registry.indexes.all()}
    assert not list((tmp_path / ".needlepoint").glob("indexes/*/*.sst"))
    write(tmp_path, 3)
    write(tmp_path, 0, 100)
    lake.sync()
    check(lake, tmp_path)
    (tmp_path / "item/1.parquet").unlink()
    lake.sync()
    before = {index.name: index.id for index in lake.registry.indexes.all()}
    assert lake.sweep(now=True).entries > 0
    after = {index.name: index.id for index in lake.registry.indexes.all()}
    assert not set(after.values()) & set(before.values())
    assert lake.index_stores.ids() == sorted(after.values())
    check(lake, tmp_path)
    assert not lake.verify("item").differences
    lake.rebuild("item")
    check(lake, tmp_path)
    lake.drop_index("item_name_key")
    assert [*map(int, lake.index_stores.ids())] == [lake.registry.indexes.get("item_id_key").id]


def test_lost_leaf_files_are_built_again(lake: needlepoint.Lake, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / ".needlepoint/keys")
    with needlepoint.open(tmp_path, access="pages") as other:
        check(other, tmp_path, used=False)
        other.sync()
        check(other, tmp_path)


def test_one_index_in_the_lake_and_one_in_rocksdb(tmp_path: Path) -> None:
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, access="pages") as lake:
        lake.create_table("item")
        lake.sql("CREATE INDEX ON item USING key (id) WITH (store = 'lake:')")
        lake.create_index("item", "name")
        check(lake, tmp_path)
        moved = lake.copy_store("lake:", "rocksdb")
        assert [each.name for each in moved] == ["item_id_key"]
        check(lake, tmp_path)
        assert lake.copy_store("rocksdb", "lake:", "item_name_key")
        check(lake, tmp_path)
        with pytest.raises(UsageError):
            lake.sql("CREATE INDEX ON item USING key (number) WITH (store = 'lake:elsewhere')")


def test_another_machine_reads_them_from_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    write(tmp_path, 0)
    root = bucket.url("lake")
    bucket.put("lake/item/0.parquet", (tmp_path / "item/0.parquet").read_bytes())
    query = "SELECT name, number FROM item WHERE id IN (1, 5, 300, 77777) ORDER BY name, number"
    with duckdb.connect() as judge:
        judge.execute(f"CREATE VIEW item AS SELECT * FROM read_parquet('{tmp_path}/item/*.parquet')")
        expected = judge.execute(query).fetchall()
    with needlepoint.open(root, store=tmp_path / "store", keys="lake:", access="pages") as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        found = lake.sql(query)
        assert [tuple(row.values()) for row in found.rows()] == expected
        assert "item_id_key (key): used" in str(found.report)
        lake.sync()
    listed = bucket.server.client.list_objects_v2(Bucket=bucket.name)["Contents"]
    assert any("/.needlepoint/keys/" in each["Key"] for each in listed)


def test_a_new_registry_uses_nothing_of_a_lost_one(tmp_path: Path) -> None:
    """The ids of files and indexes begin again, and mean others."""
    root = tmp_path / "lake"
    for number in range(3):
        write(root, number)
    for _ in range(2):
        with needlepoint.open(root, store=tmp_path / "store", keys="lake:", access="pages") as lake:
            lake.create_table("item")
            lake.create_index("item", "id")
            check(lake, root)
        shutil.rmtree(tmp_path / "store")
        (root / "item/0.parquet").unlink(missing_ok=True)
    assert len(list((root / ".needlepoint/keys").iterdir())) == 2


def test_a_registry_that_was_removed_alone_is_another_one(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, number)
    for _ in range(2):
        with needlepoint.open(tmp_path, keys="lake:", access="pages") as lake:
            lake.create_table("item")
            lake.create_index("item", "id")
            check(lake, tmp_path)
        for name in ("registry.db", "registry.db-wal", "registry.db-shm"):
            (tmp_path / ".needlepoint" / name).unlink(missing_ok=True)
        (tmp_path / "item/0.parquet").unlink(missing_ok=True)


def test_two_stores_over_a_lake_leave_each_other_alone(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    write(root, 0)
    with (
        needlepoint.open(root, store=tmp_path / "a", keys="lake:", access="pages") as one,
        needlepoint.open(root, store=tmp_path / "b", keys="lake:", access="pages") as other,
    ):
        for lake in (one, other):
            lake.create_table("item")
            lake.create_index("item", "id")
            write(root, 1)
            lake.sync()
        check(one, root)
        check(other, root)
        other.drop_index("item_id_key")
        other.sweep(now=True)
        check(one, root)


def test_a_bucket_that_cannot_be_written_or_listed_there(bucket: Bucket, tmp_path: Path) -> None:
    """A lake with its indexes in RocksDB asks nothing of `.needlepoint` in the bucket."""
    write(tmp_path, 0)
    bucket.put("lake/item/0.parquet", (tmp_path / "item/0.parquet").read_bytes())
    bucket.server.before = lambda asked: 403 if ".needlepoint" in asked.path + asked.query else None
    try:
        with needlepoint.open(bucket.url("lake"), store=tmp_path / "store", shared="off") as lake:
            lake.create_table("item")
            lake.create_index("item", "id")
            lake.sync()
            lake.rebuild("item")
            assert lake.sql("SELECT count(*) AS n FROM item WHERE id = 5").rows()[0]["n"] > 0
            lake.drop_index("item_id_key")
            lake.sweep(now=True)
    finally:
        bucket.server.before = None
