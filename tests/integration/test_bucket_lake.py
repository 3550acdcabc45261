"""A lake at s3://: written, published, indexed, queried, synced and swept, with its store in a directory."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.buckets import ACCESS_KEY, SECRET_KEY, Asked, Bucket, Server
from tests.cases import cases, long
from tests.integration.test_publishing import ids, publish, swap
from tests.lakes import products, staged, write

import needlepoint
from needlepoint.cli.needle import main
from needlepoint.lake import lake_opener
from needlepoint.objects import identify, move, remove, remove_directory
from needlepoint.objects.remote import s3
from needlepoint.tables import locks, publishing
from needlepoint.tables.staged_file import StagedFile


def opened(bucket: Bucket, store: Path, **settings: Any) -> needlepoint.Lake:
    return needlepoint.open(bucket.url("lake"), store=store, object_refresh=0, **settings)


@pytest.fixture
def lake(bucket: Bucket, tmp_path: Path) -> Iterator[needlepoint.Lake]:
    with opened(bucket, tmp_path / "store") as lake:
        yield lake


def keys(bucket: Bucket, prefix: str = "") -> list[str]:
    """Without the published registry, which appears a moment after a change."""
    found = bucket.client.list_objects_v2(Bucket=bucket.name, Prefix=prefix)
    return [each["Key"] for each in found.get("Contents", []) if "/.needlepoint/" not in each["Key"]]


# The store


def test_the_default_store_is_named_after_the_url(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    names = set()
    for key in ("lake", "lake/", "lake/deep", "lake%2Fdeep", "lake_deep", "x" * 300, "x" * 299 + "y"):
        with needlepoint.open(bucket.url(key)) as lake:
            assert lake.store.parent == tmp_path / "needlepoint"
            names.add(lake.store.name)
    assert len(names) == 6
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with needlepoint.open(bucket.url("lake")) as lake:
        assert lake.store == tmp_path / f"home/.local/share/needlepoint/s3%3A%2F%2F{bucket.name}%2Flake"
    assert keys(bucket) == []


def test_a_directory_can_have_its_store_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(products(0, 10), tmp_path / "lake/product/x.parquet")
    with needlepoint.open(tmp_path / "lake", store=tmp_path / "store") as lake:
        lake.create_table("product")
        lake.create_index("product", "product_id")
        assert lake.status().store == str(tmp_path / "store")
    assert not (tmp_path / "lake/.needlepoint").exists()
    monkeypatch.setenv("NEEDLE_STORE", str(tmp_path / "store"))
    with needlepoint.open(tmp_path / "lake", create=False) as lake:
        assert ids(lake) == list(range(10))
    with pytest.raises(needlepoint.UsageError, match=r"is the store of the lake .*lake, not of .*other"):
        needlepoint.open(tmp_path / "other")


@pytest.mark.parametrize("store", ["postgresql://user:hidden@host/db", "redis://host", "s3://bucket/store"])
def test_a_store_that_is_no_directory_is_refused(tmp_path: Path, store: str) -> None:
    with pytest.raises(needlepoint.UsageError, match="keeps the store in a directory") as caught:
        needlepoint.open(tmp_path / "lake", store=store)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("root", ["gs://bucket/lake", "s3a://bucket/lake", "s3://", "s3://bucket//lake", "s3://b/../l"])
def test_roots_that_are_no_place(tmp_path: Path, root: str) -> None:
    with pytest.raises(needlepoint.UsageError):
        needlepoint.open(root, store=tmp_path)


def test_an_endpoint_that_is_no_url(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with opened(bucket, tmp_path) as lake, pytest.raises(needlepoint.UsageError, match="AWS_ENDPOINT_URL is not a URL"):
        lake.create_table("product")


def test_a_lake_that_is_not_there(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(needlepoint.UsageError, match=r"no store of 's3://.*lake' in .*store"):
        opened(bucket, tmp_path / "store", create=False)
    assert not (tmp_path / "store").exists()


def test_the_same_lake_is_opened_elsewhere(lake: needlepoint.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(lake, "one", 0)
    opener = pickle.loads(pickle.dumps(lake_opener(lake)))
    monkeypatch.setenv("XDG_DATA_HOME", "/nonexistent")
    monkeypatch.setenv("NEEDLE_STORE", "/nonexistent")
    with opener() as other:
        assert (other.root, other.store) == (lake.root, lake.store)
        assert ids(other) == list(range(30))


def test_a_lost_store_loses_no_data(lake: needlepoint.Lake, bucket: Bucket, tmp_path: Path) -> None:
    publish(lake, "one", 0)
    publish(lake, "two", 30)
    with opened(bucket, tmp_path / "new") as other:
        assert other.tables() == []
        other.create_table("product")
        other.create_index("product", "product_id")
        assert ids(other) == list(range(60))
        publish(other, "three", 60)
        assert ids(other) == list(range(90))


# Publishing


def test_batches_are_uploaded(lake: needlepoint.Lake, bucket: Bucket, server: Server) -> None:
    batch = publish(lake, "one", 0)
    assert batch.state == "announced"
    found = keys(bucket)
    assert len(found) == 3
    assert all(key.startswith("lake/product/year=202") and "/part-0000" in key for key in found)
    assert ids(lake) == list(range(30))
    assert lake.registry.tables.get("product").location == bucket.url("lake/product")
    assert list((lake.store / "stage/product").iterdir()) == []
    lake.create_index("product", "product_id", build=False)
    start = len(server.asked)
    assert [each.problem for each in lake.follow_events(once=True)] == [""]
    assert server.listings(start) == []
    result = lake.sql("SELECT upc FROM product WHERE product_id = 17")
    assert result.rows() == [{"upc": "U000000017"}]
    assert result.report.tables[0].page_read_files == 1
    publish(lake, "one", 1000)  # delivered again
    publish(lake, "two", 30)
    assert ids(lake) == list(range(60))
    (report,) = lake.sync()
    assert (report.added, report.changed, report.removed) == (0, 0, 0)


def test_a_batch_takes_two_requests_a_file(lake: needlepoint.Lake, server: Server) -> None:
    publish(lake, "one", 0)
    start = len(server.asked)
    publish(lake, "two", 30)
    assert sorted(each.method for each in server.asked[start:]) == ["HEAD"] * 3 + ["PUT"] * 3


def test_a_table_in_a_bucket_of_a_lake_in_a_directory_is_written_too(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_table("t/year=2020/x.parquet", products(1000, 10))
    with needlepoint.open(tmp_path / "lake") as lake:
        lake.create_table("product", bucket.url("t"))
        publish(lake, "one", 0)
        assert ids(lake) == [*range(30), *range(1000, 1010)]
    assert len(keys(bucket, "t/")) == 4


@pytest.mark.parametrize("look", ["sync", "notification"])
def test_a_batch_on_its_way_is_not_seen_by_half(
    lake: needlepoint.Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    publish(lake, "one", 0)
    seen = []
    original = publishing.move

    def watched(source: str, target: str) -> None:
        original(source, target)
        with opened(bucket, lake.store) as other:
            seen.append(len(ids(other)))
            if look == "sync":
                other.indexer.sync("product")
            else:
                paths = [key.removeprefix("lake/product/") for key in keys(bucket, "lake/product/")]
                other.indexer.look("product", paths)
            seen.append(len(ids(other)))

    monkeypatch.setattr(publishing, "move", watched)
    publish(lake, "two", 30)
    assert seen == [30] * 6
    assert ids(lake) == list(range(60))


class Crash(BaseException):
    pass


def crash_at(lake: needlepoint.Lake, monkeypatch: pytest.MonkeyPatch, stop: str, when: str) -> None:
    owner = {"move": publishing, "remove": publishing, "put": lake.queue}.get(stop, lake.registry.batches)
    original = getattr(owner, stop)

    def crash(*arguments: Any) -> None:
        if when == "after":
            original(*arguments)
        raise Crash

    monkeypatch.setattr(owner, stop, crash)


@pytest.mark.parametrize("stop", ["begin", "move", "commit", "put", "announced"])
@pytest.mark.parametrize("when", ["after", *long("before")])
def test_a_crash_at_any_step_is_caught_up_with(
    lake: needlepoint.Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, stop: str, when: str
) -> None:
    publish(lake, "one", 0)
    crash_at(lake, monkeypatch, stop, when)
    with pytest.raises(Crash):
        publish(lake, "two", 30)
    monkeypatch.undo()
    with opened(bucket, lake.store) as other:
        assert len(ids(other)) in (30, 60)
        publish(other, "two", 30)  # Spark delivers the batch again
        assert ids(other) == list(range(60))
        other.create_index("product", "product_id", build=False)
        list(other.follow_events(once=True))
        assert other.status().tables[0].indexes[0].entries == 60
    assert len(keys(bucket)) == 6


@pytest.mark.covering
@pytest.mark.parametrize("stop", ["begin", "move", "commit", "put", "announced", "remove", "removed"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_while_files_are_replaced_leaves_the_old_or_the_new(
    lake: needlepoint.Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, stop: str, when: str
) -> None:
    publish(lake, "one", 0)
    crash_at(lake, monkeypatch, stop, when)
    with pytest.raises(Crash):
        swap(lake, "two")
    monkeypatch.undo()
    old, new = list(range(30)), list(range(500, 510))
    with opened(bucket, lake.store) as other:
        assert ids(other) in (old, new)
        other.sync()
        expected = old if (stop, when) == ("begin", "before") else new
        assert ids(other) == expected
    assert len(keys(bucket)) == (3 if expected is old else 1)


@pytest.mark.parametrize("replaced", [False, True])
def test_an_upload_that_comes_too_late_is_taken_back(
    lake: needlepoint.Lake, bucket: Bucket, tmp_path: Path, monkeypatch, *, replaced: bool
) -> None:
    """Another process assumes that the writer is dead and finishes its batch, perhaps replaces it; then the writer
    continues. This can only happen without locks."""
    monkeypatch.setattr(locks, "fcntl", None)
    publish(lake, "one", 0)

    def late(pairs: Sequence[tuple[str, str]]) -> None:
        copies = [shutil.copy(source, tmp_path / f"{number}") for number, (source, _) in enumerate(pairs)]
        with opened(bucket, lake.store) as other:
            other.sync()
            if replaced:
                swap(other, "three")
        for copy, (_, target) in zip(copies, pairs, strict=True):
            move(str(copy), target)

    staging = lake.writer.staging("product")
    lake.writer.publish(
        "product", staged(staging, {"year=2020/x.parquet": products(30, 10)}), staging, "two", mover=late
    )
    expected = list(range(500, 510)) if replaced else list(range(40))
    assert ids(lake) == expected
    lake.sync()
    assert ids(lake) == expected
    assert len(keys(bucket)) == (1 if replaced else 4)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_upload_that_is_refused_is_done_again(lake: needlepoint.Lake, server: Server, nth: int) -> None:
    publish(lake, "one", 0)
    puts: list[Asked] = []

    def refuse(asked: Asked) -> int | None:
        puts.extend([asked] if asked.method == "PUT" else [])
        return 403 if asked.method == "PUT" and len(puts) >= nth else None

    server.before = refuse
    with pytest.raises(
        needlepoint.StoreError, match=r"batch 'two' cannot be moved.*access is refused.*publish the batch again"
    ):
        publish(lake, "two", 30)
    assert ids(lake) == list(range(30))
    server.before = None
    publish(lake, "two", 30)
    assert ids(lake) == list(range(60))
    (table,) = lake.status().tables
    assert table.files == 6


def test_an_overloaded_store_is_asked_again(lake: needlepoint.Lake, server: Server) -> None:
    left = [503, 500, 503]
    server.before = lambda asked: left.pop() if left and asked.method in ("PUT", "HEAD") else None
    publish(lake, "one", 0)
    assert not left
    assert ids(lake) == list(range(30))


def test_wrong_credentials_lose_nothing_and_show_nothing(
    lake: needlepoint.Lake, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish(lake, "one", 0)
    server.demand_credentials()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another key")
    try:
        with pytest.raises(needlepoint.StoreError, match="not accepted") as caught:
            publish(lake, "two", 30)
    finally:
        server.demand_credentials(demanded=False)
    for secret in (ACCESS_KEY, SECRET_KEY, "another key"):
        assert secret not in f"{caught.value!r}{caplog.text}"
    monkeypatch.undo()
    lake.sync()
    assert ids(lake) == list(range(60))


def test_replaced_files_change_or_are_kept(lake: needlepoint.Lake, bucket: Bucket) -> None:
    publish(lake, "one", 0)
    swap(lake, "two", keep=3600)
    lake.sync()
    assert ids(lake) == list(range(500, 510))
    assert len(keys(bucket)) == 4
    (key,) = [key for key in keys(bucket) if identify(bucket.url(key)).size == _size_of_new(lake)]
    bucket.put_table(key, products(600, 20))
    with pytest.raises(needlepoint.TableChanged, match="Sync, then retry"):
        swap(lake, "three", first=900)
    assert ids(lake) == list(range(600, 620))
    assert len(keys(bucket)) == 4


def _size_of_new(lake: needlepoint.Lake) -> int:
    (file,) = lake.registry.files.of(lake.registry.tables.get("product"))
    return file.identity.size


def _publish_many(root: str, store: str, first: int) -> None:
    with needlepoint.open(root, store=store) as lake:
        for number in range(first, 1000):
            publish(lake, f"b{number}", number * 30)


@pytest.mark.long
def test_a_killed_writer_leaves_whole_batches(lake: needlepoint.Lake, bucket: Bucket) -> None:
    context = multiprocessing.get_context("spawn")
    publish(lake, "b0", 0)
    for pause in (0.03, 0.15):
        before = len(ids(lake))
        writer = context.Process(target=_publish_many, args=(str(lake.root), str(lake.store), before // 30))
        writer.start()
        while len(keys(bucket)) * 10 == before:  # until it begins to upload
            time.sleep(0.005)
        time.sleep(pause)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        seen = ids(lake)
        assert seen == list(range(len(seen)))
        assert len(seen) % 30 == 0
        lake.sync()
        seen = ids(lake)
        assert (seen, len(keys(bucket)) * 10) == (list(range(len(seen))), len(seen))


# Moving


def test_files_and_objects_are_moved(bucket: Bucket, server: Server, tmp_path: Path) -> None:
    content = os.urandom(1000)
    (tmp_path / "x").write_bytes(content)
    first, second = bucket.url("a b/ü.parquet"), bucket.url("c/x.parquet")
    move(str(tmp_path / "x"), first)
    assert not (tmp_path / "x").exists()
    start = len(server.asked)
    move(first, second)
    assert server.gets(start) == []  # copied inside the store
    assert keys(bucket) == ["c/x.parquet"]
    assert bucket.client.get_object(Bucket=bucket.name, Key="c/x.parquet")["Body"].read() == content
    for source in (str(tmp_path / "x"), first):
        move(source, second)  # already done
        with pytest.raises(FileNotFoundError):
            move(source, bucket.url("nowhere"))
    identity = identify(second)
    bucket.put("c/x.parquet", b"another")
    remove(second, identity)
    assert keys(bucket) == ["c/x.parquet"]
    remove(second, identify(second))
    remove(second, identity)
    assert keys(bucket) == []


def test_large_files_are_moved_in_parts(
    bucket: Bucket, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom((12 << 20) + 7)
    (tmp_path / "x").write_bytes(content)
    monkeypatch.setattr(s3, "PUT_PART", 5 << 20)
    start = len(server.asked)
    move(str(tmp_path / "x"), bucket.url("x.parquet"))
    assert len([each for each in server.asked[start:] if "partNumber" in each.query]) == 3
    monkeypatch.setattr(s3, "LARGEST_COPY", 1 << 20)
    move(bucket.url("x.parquet"), bucket.url("y.parquet"))
    assert keys(bucket) == ["y.parquet"]
    assert bucket.client.get_object(Bucket=bucket.name, Key="y.parquet")["Body"].read() == content


def test_a_directory_of_objects_is_removed(bucket: Bucket) -> None:
    bucket.put_quickly([f"stage/a/{number}" for number in range(1200)], b"x")
    bucket.put("stage/ab", b"x")
    remove_directory(bucket.url("stage/a"))
    remove_directory(bucket.url("stage/a"))
    assert keys(bucket) == ["stage/ab"]


# Everything else


def test_all_that_a_lake_does(lake: needlepoint.Lake, bucket: Bucket) -> None:
    publish(lake, "one", 0, count=1000)
    everything = list(range(3000))
    for column, kind in (("product_id", "key"), ("upc", "key"), ("title", "text"), ("title", "distinct")):
        lake.create_index("product", column, kind, embed=column != "upc")
    wanted = "SELECT product_id, price FROM product WHERE product_id IN (5, 1500, 2999) ORDER BY 1"
    expected = lake.engine.sql(wanted, use_indexes=False).to_arrow()

    def check(*, paged: bool = True) -> None:
        result = lake.sql(wanted)
        assert result.to_arrow().equals(expected)
        assert not paged or result.report.tables[0].page_read_files == 3
        assert ids(lake) == everything
        assert lake.verify("product", samples=cases(5, 2), seed=1).differences == ()

    check()
    assert [each.indexed for each in lake.rebuild("product")] == [3]
    check()
    assert len(lake.retrofit("product", bloom=["upc"])) == 3
    check()
    (status,) = lake.status().tables
    assert (status.location, status.files, status.indexed) == (bucket.url("lake/product"), 3, 3)
    lake.drop_index("product_title_distinct", strip=True)
    lake.drop_index("product_product_id_key")
    check(paged=False)
    lake.drop_table("product")
    assert len(keys(bucket, "lake/product/")) == 3
    lake.create_table("product")
    assert ids(lake) == everything


def test_sync_takes_in_what_others_write(lake: needlepoint.Lake, bucket: Bucket) -> None:
    publish(lake, "one", 0)
    bucket.put_table("lake/product/year=2020/other.parquet", products(100, 10))
    bucket.delete(next(key for key in keys(bucket) if "year=2022" in key))
    (report,) = lake.sync()
    assert (report.added, report.removed) == (1, 1)
    assert ids(lake) == [*range(20), *range(100, 110)]


def test_orphans_in_the_bucket_are_swept_and_live_batches_are_not(
    lake: needlepoint.Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(lake, "one", 0)
    orphan, live = lake.writer.staging_url("product"), lake.writer.staging_url("product")
    assert orphan.startswith(bucket.url("lake/_stage/product/"))
    for place in (orphan, live):
        bucket.put_table(f"{place.removeprefix(f's3://{bucket.name}/')}/year=2020/x.parquet", products(30, 10))
    dropped = lake.writer.staging_url("dropped")
    bucket.put(f"{dropped.removeprefix(f's3://{bucket.name}/')}/_temporary/0/x", b"x")
    bucket.put("lake/_stage/of/others", b"x")
    files = [StagedFile(f"{live}/year=2020/x.parquet", "year=2020", 0, 10)]
    crash_at(lake, monkeypatch, "move", "before")
    with pytest.raises(Crash):
        lake.publish("product", files, live, "two")
    monkeypatch.undo()
    assert ids(lake) == list(range(30))
    assert publishing.sweep_prefixes(lake.root, lake.registry) == []
    assert lake.sweep().staging == 0  # finishes the batch, and keeps what is recent
    assert ids(lake) == list(range(40))
    assert publishing.sweep_prefixes(lake.root, lake.registry, now=True) == []  # their writer is alive
    lake.registry.locks.close()  # as when its process ends
    assert lake.sweep().staging == 0
    assert publishing.sweep_prefixes(lake.root, lake.registry, now=True) == [dropped, orphan]
    assert len(keys(bucket)) == 5


def test_a_table_that_is_a_bucket_is_staged_inside(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_table("year=2020/a.parquet", products(0, 10))
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product", f"s3://{bucket.name}")
        place = lake.writer.staging_url("product")
        assert place.startswith(f"s3://{bucket.name}/_stage/product/")
        bucket.put_table(f"{place.removeprefix(f's3://{bucket.name}/')}/year=2021/x.parquet", products(10, 10))
        lake.engine.snapshots.forget()
        assert ids(lake) == list(range(10))
        lake.publish("product", [StagedFile(f"{place}/year=2021/x.parquet", "year=2021", 0, 10)], place)
        assert ids(lake) == list(range(20))
        with pytest.raises(needlepoint.UsageError, match="Stage it in a directory"):
            lake.writer.staging_url("other")
    assert len(keys(bucket)) == 2


def test_the_command_line(bucket: Bucket, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for number in range(3):
        bucket.put_table(f"lake/product/year={2020 + number}/x.parquet", products(number * 1000, 1000))
    shown = []

    def needle(*arguments: str, status: int = 0, **variables: str) -> str:
        result = CliRunner(env={"NEEDLE_LAKE": bucket.url("lake"), **variables}).invoke(main, arguments)
        assert result.exit_code == status, result.output
        shown.append(result.output)
        return result.output

    assert "no store of" in needle("status", status=1)
    assert needle("create-table", "product") == "table product: 3 files, 3,000 rows, partitioned by year\n"
    needle("create-index", "product", "product_id", "--embed")
    query = "SELECT upc FROM product WHERE product_id = 1234"
    assert json.loads(needle("sql", "--format", "json", query)) == [{"upc": "U000001234"}]
    assert "1 of 3" in needle("explain", query) or "product" in shown[-1]
    assert "0 added" in needle("sync")
    assert "0 orphaned batches removed" in needle("sweep")
    needle("verify", "product")
    needle("retrofit", "product", "--bloom", "upc")
    needle("rebuild", "product")
    needle("indexer", "--once")
    status = json.loads(needle("status", "--format", "json"))
    assert status["root"] == bucket.url("lake")
    assert status["store"] == str(tmp_path / f"data/needlepoint/s3%3A%2F%2F{bucket.name}%2Flake")
    table = needle("status")
    assert f"lake {bucket.url('lake')}\nstore " in table
    needle("inspect", bucket.url("lake/product/year=2020/x.parquet"))
    # Another store has another registry over the same files.
    other = str(tmp_path / "other")
    needle("create-table", "product", "--store", other)
    assert other in needle("--store", other, "status").replace("\n", "")
    assert json.loads(needle("sql", "--format", "json", query, NEEDLE_STORE=other)) == [{"upc": "U000001234"}]
    assert "is the store of" in needle("--lake", bucket.url("else"), "--store", other, "status", status=1)
    needle("drop-index", "product_product_id_key")
    needle("drop-table", "product")
    assert len(keys(bucket)) == 3
    assert "is a directory" in needle("demo", "--lake", bucket.url("demo"), status=2)
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in "".join(shown)


# Deletion and compaction


@pytest.mark.long
def test_rows_are_deleted_and_files_compacted_in_a_bucket(
    lake: needlepoint.Lake, bucket: Bucket, tmp_path: Path
) -> None:
    publish(lake, "one", 0, count=100)
    publish(lake, "two", 300, count=100)
    lake.create_index("product", "product_id")
    lake.create_index("product", "title", kind="text", embed=True)
    with needlepoint.open(bucket.url("lake"), store=tmp_path / "store", object_refresh=600) as other:
        assert len(ids(other)) == 600
        deleted = lake.delete("product", "product_id IN (5, 305) OR (year = 2022 AND product_id < 250)")
        assert (deleted.rows, deleted.rewritten, deleted.removed) == (52, 3, 0)
        left = [id for id in range(600) if id not in (5, 305, *range(200, 250))]
        assert ids(lake) == ids(other) == left
        assert len(keys(bucket)) == 6
        assert lake.compact("product", sort_by=["product_id"]).new_files == 3
        assert ids(lake) == ids(other) == left
        assert len(keys(bucket)) == 3
        lake.compact("product", zorder=["product_id", "price"], target_size=2000, keep=1000)
        lake.sync()
        assert ids(lake) == ids(other) == left
        found = lake.sql("SELECT upc FROM product WHERE product_id = 7")
        assert (found.rows(), found.report.tables[0].page_read_files) == ([{"upc": "U000000007"}], 1)
        lake.sweep(now=True)
        assert lake.drop_partition("product", year=2021).rewritten == 0
        assert lake.expire("product", "product_id", 50).rows == 49
        left = [id for id in left if id >= 50 and id // 100 not in (1, 4)]
        assert ids(lake) == ids(other) == left
        files = lake.registry.files.of(lake.registry.tables.get("product"))
        lake.delete_files("product", [f"{bucket.url('lake')}/product/{file.path}" for file in files])
        assert (ids(lake), ids(other), keys(bucket)) == ([], [], [])


def test_a_delete_in_a_bucket_that_dies_is_finished(
    lake: needlepoint.Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(lake, "one", 0, count=100)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    for stop in ("_move_all", "_remove_all"):
        monkeypatch.setattr(publishing, stop, die)
        with pytest.raises(KeyboardInterrupt):
            lake.delete("product", f"product_id < {10 if stop == '_move_all' else 20}")
        monkeypatch.undo()
        first = 0 if stop == "_move_all" else 20
        assert ids(lake) == list(range(first, 300))
        lake.sync()
        assert ids(lake) == list(range(first or 10, 300))
        assert len(keys(bucket)) == 3
