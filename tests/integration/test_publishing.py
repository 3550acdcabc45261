"""Promise 5: a batch is in the table entirely, once, or not at all, whatever happens to the publisher."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cases import cases
from tests.lakes import products, removals, staged, write

import needlepoint
from needlepoint.errors import FileChanged
from needlepoint.indexer import build, event_consumer, payloads
from needlepoint.objects import move
from needlepoint.tables import locks, publishing


@pytest.fixture
def lake(tmp_path: Path):
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        yield lake


def publish(lake, batch: str | None, first: int, *, count: int = 10, files: int = 3) -> object:
    staging = lake.writer.staging("product")
    tables = {f"year={2020 + n}/x.parquet": products(first + n * count, count) for n in range(files)}
    return lake.publish("product", staged(staging, tables), staging, batch)


def ids(lake) -> list[int]:
    return [row["product_id"] for row in lake.sql("SELECT product_id FROM product ORDER BY product_id").rows()]


def test_the_first_batch_makes_the_table(lake) -> None:
    batch = publish(lake, "one", 0)
    assert batch.state == "announced"
    assert ids(lake) == list(range(30))
    assert lake.registry.tables.get("product").partitions == ("year",)
    assert not any((lake.store / "stage" / "product").iterdir())
    names = [path.name for path in (lake.root / "product").rglob("*.parquet")]
    assert len(set(names)) == 3


def test_the_same_batch_twice_is_one(lake) -> None:
    publish(lake, "one", 0)
    publish(lake, "one", 1000)  # delivered again, with any content
    publish(lake, "two", 30)
    assert ids(lake) == list(range(60))
    assert lake.status().waiting_events == 2


def test_events_are_indexed_once_however_often_they_come(lake) -> None:
    publish(lake, "one", 0)
    lake.create_index("product", "product_id", build=False)
    body = lake.queue.receive(1, lease=0)[0].body
    lake.queue.put(body)
    lake.queue.put(body)
    handled = list(lake.follow_events(once=True))
    assert [each.problem for each in handled] == ["", "", ""]
    assert lake.status().tables[0].indexes[0].entries == 30
    result = lake.sql("SELECT upc FROM product WHERE product_id = 17")
    assert result.rows() == [{"upc": "U000000017"}]
    assert result.report.tables[0].page_read_files == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("not json", "not JSON"),
        ('{"batch": "x"}', "names no table"),
        ('{"table": "produkt", "batch": "x"}', "Did you mean 'product'"),
        ('{"table": "product", "batch": "x", "added": ["../../etc/passwd"]}', "outside the table"),
        ('{"table": "product", "batch": "x", "added": "a"}', "not a list"),
        (r'{"table": "\ud800", "batch": "x"}', r"holds '\ud800', which is not a character"),
        ('{"table": "product", "batch": "x", "added": ["year=2020/bad.parquet"]}', "bad.parquet"),
    ],
)
def test_a_bad_event_is_set_aside_and_does_not_stop_the_rest(lake, body: str, reason: str) -> None:
    publish(lake, "one", 0)
    lake.create_index("product", "product_id", build=False)
    (lake.root / "product/year=2020/bad.parquet").write_bytes(b"PAR1 this is not Parquet PAR1")
    lake.queue.put(body)
    list(lake.follow_events(once=True))
    list(lake.follow_events(once=True))
    (aside,) = lake.queue.aside()
    assert reason in aside.reason
    assert lake.queue.waiting() == 0
    assert lake.status().tables[0].indexes[0].entries == 30


def test_what_may_pass_is_tried_again(lake, monkeypatch) -> None:
    publish(lake, "one", 0)
    lake.create_index("product", "product_id", build=False)
    changed = sorted((lake.root / "product").rglob("*.parquet"))[0]
    for error in (errno.ENOSPC, errno.EIO, None):

        def fails(*_: object, error: int | None = error) -> None:
            if error is not None:
                raise OSError(error, os.strerror(error))
            write(products(5000, 20), changed)  # replaced in the meantime
            raise FileChanged(str(changed), "changed while it was read")

        with monkeypatch.context() as patch:
            patch.setattr(build, "_index_file", fails)
            (message,) = lake.queue.receive(1, lease=0)
            (handled,) = event_consumer._handle_all(lake.registry, lake.queue, lake.indexer, [message])
        assert handled.problem and (lake.queue.waiting(), lake.queue.aside_count()) == (1, 0)
    assert [each.problem for each in lake.follow_events(once=True)] == [""]
    assert (lake.queue.waiting(), lake.queue.aside_count()) == (0, 0)
    assert lake.sql("SELECT upc FROM product WHERE product_id = 5007").report.tables[0].page_read_files == 1


def test_a_file_that_cannot_be_indexed_ever_is_set_aside(lake, monkeypatch) -> None:
    publish(lake, "one", 0, files=1)

    def fails(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    lake.create_index("product", "product_id", build=False)
    monkeypatch.setattr(build, "_index_file", fails)
    list(lake.follow_events(once=True))
    assert (lake.queue.waiting(), lake.queue.aside_count()) == (0, 1)


def test_a_file_that_goes_away_while_it_is_indexed_is_no_problem(lake, monkeypatch) -> None:
    publish(lake, "one", 0)
    lake.create_index("product", "product_id", build=False)
    gone = sorted((lake.root / "product").rglob("*.parquet"))[0]
    index_file = build._index_file

    def goes(file: build.FileTask, *rest: object) -> object:
        if file.path == str(gone):
            gone.unlink()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file.path)
        return index_file(file, *rest)

    monkeypatch.setattr(build, "_index_file", goes)
    assert [each.problem for each in lake.follow_events(once=True)] == [""]
    assert (lake.queue.waiting(), lake.queue.aside_count()) == (0, 0)
    assert lake.status().tables[0].indexes[0].entries == 20


def test_a_conflicting_schema_is_refused_and_leaves_nothing(lake) -> None:
    publish(lake, "one", 0)
    staging = lake.writer.staging("product")
    wrong = products(100, 5).set_column(0, "product_id", [[f"{n}" for n in range(5)]])
    with pytest.raises(needlepoint.SchemaConflict, match=r"'product_id' is int64 .* but string"):
        lake.publish("product", staged(staging, {"year=2020/x.parquet": wrong}), staging, "two")
    staging = lake.writer.staging("product")
    with pytest.raises(needlepoint.SchemaConflict, match="partitioned by"):
        lake.publish("product", staged(staging, {"x.parquet": products(100, 5)}), staging, "three")
    assert ids(lake) == list(range(30))
    assert lake.registry.batches.get(lake.registry.tables.get("product"), "two") is None


def test_a_batch_on_its_way_is_not_seen_by_half(lake, monkeypatch) -> None:
    """A query that runs while files are moved sees none of them; a query after the commit sees all."""
    publish(lake, "one", 0)
    seen = []
    original = publishing.move

    def look(source: str, target: str) -> None:
        original(source, target)
        with needlepoint.open(lake.root, refresh=0) as other:
            seen.append(len(ids(other)))
            other.indexer.sync("product")
            seen.append(len(ids(other)))

    monkeypatch.setattr(publishing, "move", look)
    publish(lake, "two", 30)
    assert seen == [30] * 6
    assert ids(lake) == list(range(60))
    monkeypatch.undo()
    lake.sync()
    assert ids(lake) == list(range(60))
    assert lake.status().tables[0].files == 6


@pytest.mark.parametrize("stop", ["begin", "move", "commit", "put", "announced"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_step_is_caught_up_with(lake, monkeypatch, stop: str, when: str) -> None:
    publish(lake, "one", 0)

    class Crash(BaseException):
        pass

    owner = {"move": publishing, "put": lake.queue}.get(stop, lake.registry.batches)
    original = getattr(owner, stop)

    def crash(*arguments):
        if when == "after":
            original(*arguments)
        raise Crash

    monkeypatch.setattr(owner, stop, crash)
    with pytest.raises(Crash):
        publish(lake, "two", 30)
    monkeypatch.undo()
    with needlepoint.open(lake.root, refresh=0) as other:
        assert len(ids(other)) in (30, 60)
        publish(other, "two", 30)  # Spark delivers the batch again
        assert ids(other) == list(range(60))
        other.create_index("product", "product_id", build=False)
        list(other.follow_events(once=True))
        assert other.status().tables[0].indexes[0].entries == 60


def test_an_indexer_finishes_what_a_dead_publisher_began(lake, monkeypatch) -> None:
    publish(lake, "one", 0)
    monkeypatch.setattr(publishing, "_move_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        publish(lake, "two", 30)
    monkeypatch.undo()
    assert ids(lake) == list(range(30))
    list(lake.follow_events(once=True))
    assert ids(lake) == list(range(60))


def test_orphans_in_staging_are_swept_and_live_batches_are_not(lake, monkeypatch) -> None:
    publish(lake, "one", 0)
    orphan = lake.writer.staging("product")
    write(products(0, 5), orphan / "x.parquet")
    monkeypatch.setattr(publishing, "_move_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        publish(lake, "two", 30)
    monkeypatch.undo()
    with needlepoint.open(lake.root, refresh=0) as other:
        assert publishing.sweep_staging(lake.store, other.registry, now=True) == []  # its writer is alive
        lake.registry.locks.close()  # as when its process ends
        assert publishing.sweep_staging(lake.store, other.registry) == []  # it is recent
        assert publishing.sweep_staging(lake.store, other.registry, now=True) == [orphan]
        assert publishing.sweep_staging(lake.store, other.registry, now=True) == []
    lake.sync()
    assert ids(lake) == list(range(60))


def test_staging_on_another_file_system_is_copied(lake, monkeypatch) -> None:
    def refuse(self: Path, target: Path) -> Path:
        if "stage" in str(self):
            raise OSError(18, "Invalid cross-device link")
        os.replace(self, target)  # noqa: PTH105
        return target

    monkeypatch.setattr(Path, "rename", refuse)
    publish(lake, "one", 0)
    assert ids(lake) == list(range(30))
    assert [path.name for path in (lake.root / "product/year=2020").iterdir() if path.name.startswith(".")] == []


def _publish_many(root: str, name: str, first: int, count: int) -> None:
    with needlepoint.open(root) as lake:
        for number in range(count):
            publish(lake, f"{name}/{number}", first + number * 30)


@pytest.mark.long
def test_several_processes_publish_index_and_query_at_once(lake) -> None:
    publish(lake, "first", 1_000_000)
    lake.create_index("product", "product_id")
    context = multiprocessing.get_context("spawn")
    many, batches = cases(3, 2), cases(8, 4)
    writers = [
        context.Process(target=_publish_many, args=(str(lake.root), f"w{number}", number * 10_000, batches))
        for number in range(many)
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        list(lake.follow_events(once=True))
        assert len(ids(lake)) % 30 == 0
        assert len(lake.sql("SELECT upc FROM product WHERE product_id = 1000007").rows()) == 1
    assert [writer.exitcode for writer in writers] == [0] * many
    list(lake.follow_events(once=True))
    expected = sorted(
        [*range(1_000_000, 1_000_030), *(w * 10_000 + n for w in range(many) for n in range(30 * batches))]
    )
    assert ids(lake) == expected
    table = lake.status().tables[0]
    assert table.files == table.indexed == 3 * (many * batches + 1)
    assert table.indexes[0].entries == 30 * (many * batches + 1)
    for number in (0, 10_119, 10_000):
        result = lake.sql(f"SELECT upc FROM product WHERE product_id = {number}")
        assert result.rows() == [{"upc": f"U{number:09d}"}]
        assert result.report.tables[0].scanned_files == 0


def _index(root: str) -> None:
    with needlepoint.open(root, workers=1) as lake:
        lake.sync()


@pytest.mark.long
def test_a_killed_indexer_leaves_a_lake_that_answers_and_catches_up(lake) -> None:
    for number in range(6):
        publish(lake, f"b{number}", number * 30_000, count=10_000)
    lake.create_index("product", "product_id", build=False)
    context = multiprocessing.get_context("spawn")
    for pause in (0.3, 0.8, 1.1, 1.3):
        process = context.Process(target=_index, args=(str(lake.root),))
        process.start()
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert lake.sql("SELECT upc FROM product WHERE product_id = 123456").rows() == [{"upc": "U000123456"}]
        assert lake.sql("SELECT count(*) AS c FROM product").rows() == [{"c": 180_000}]
    lake.sync()
    result = lake.sql("SELECT upc FROM product WHERE product_id = 123456")
    assert result.rows() == [{"upc": "U000123456"}]
    assert result.report.tables[0].page_read_files == 1


def test_threads_publish_side_by_side(lake) -> None:
    publish(lake, "first", 900_000)
    threads = [threading.Thread(target=publish, args=(lake, f"t{n}", n * 30)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids(lake)) == 30 * 9


def test_publishing_again_from_the_same_staging_finishes_the_batch(lake, monkeypatch) -> None:
    """As the error of a failed move advises."""
    publish(lake, "one", 0)
    staging = lake.writer.staging("product")
    files = staged(staging, {"year=2020/x.parquet": products(30, 10)})
    monkeypatch.setattr(publishing, "identify", lambda path: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(needlepoint.StoreError, match="publish the batch again"):
        lake.publish("product", files, staging, "two")
    lake.sync()  # the failed batch does not stop a sync
    monkeypatch.undo()
    lake.publish("product", files, staging, "two")
    assert ids(lake) == list(range(40))


def test_a_dropped_tables_files_are_not_overwritten_by_the_same_batch_id(lake) -> None:
    publish(lake, "one", 0)
    lake.drop_table("product")
    publish(lake, "one", 1000)
    assert len(list((lake.root / "product").rglob("*.parquet"))) == 6
    assert ids(lake) == [*range(30), *range(1000, 1030)]


def test_first_batches_at_once_make_one_table(lake) -> None:
    failures: list[BaseException] = []

    def first(number: int) -> None:
        try:
            publish(lake, f"b{number}", number * 30)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=first, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ids(lake) == list(range(180))


def test_columns_that_two_writers_add_at_once_both_stay(lake) -> None:
    publish(lake, "one", 0)
    stale = lake.registry.tables.get("product")
    for column in ("a", "b"):
        wider = stale.schema.insert(0, pa.field(column, pa.int64()))
        lake.registry.tables.widen_schema(stale, wider)
    assert {"a", "b"} <= set(lake.registry.tables.get("product").schema.names)


def swap(lake, batch: str | None = None, *, first: int = 500, keep: float = 0.0, old=None) -> object:
    """Replace all files with ten new rows."""
    table = lake.registry.tables.get("product")
    removed = lake.registry.files.of(table) if old is None else old
    staging = lake.writer.staging("product")
    files = staged(staging, {"year=2020/x.parquet": products(first, 10)})
    return lake.publish("product", files, staging, batch, removed=removed, keep=keep)


def test_files_are_replaced_in_one_moment_and_deleted(lake) -> None:
    publish(lake, "one", 0)
    lake.create_index("product", "product_id")
    swap(lake)
    assert ids(lake) == list(range(500, 510))
    assert len(list((lake.root / "product").rglob("*.parquet"))) == 1
    list(lake.follow_events(once=True))
    (status,) = lake.status().tables
    assert (status.files, status.indexed, lake.queue.aside_count()) == (1, 1, 0)
    lake.sync()
    assert ids(lake) == list(range(500, 510))


@pytest.mark.parametrize("stop", ["begin", "move", "commit", "put", "announced", "remove", "removed"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_while_files_are_replaced_leaves_the_old_or_the_new(lake, monkeypatch, stop: str, when: str) -> None:
    publish(lake, "one", 0)

    class Crash(BaseException):
        pass

    owner = {"move": publishing, "remove": publishing, "put": lake.queue}.get(stop, lake.registry.batches)
    original = getattr(owner, stop)

    def crash(*arguments):
        if when == "after":
            original(*arguments)
        raise Crash

    monkeypatch.setattr(owner, stop, crash)
    with pytest.raises(Crash):
        swap(lake, "two")
    monkeypatch.undo()
    old, new = list(range(30)), list(range(500, 510))
    with needlepoint.open(lake.root, refresh=0) as other:
        assert ids(other) in (old, new)
        other.sync()
        expected = old if (stop, when) == ("begin", "before") else new
        assert ids(other) == expected
        assert len(list((lake.root / "product").rglob("*.parquet"))) == (3 if expected is old else 1)


def test_queries_see_the_old_or_the_new_files_while_they_are_replaced(lake, monkeypatch) -> None:
    publish(lake, "one", 0)
    seen = []

    def watched(name: str):
        original = getattr(publishing, name)

        def look(*arguments):
            original(*arguments)
            with needlepoint.open(lake.root, refresh=0) as other:
                other.indexer.sync("product")
                seen.append((name, ids(other)))

        monkeypatch.setattr(publishing, name, look)

    watched("move")
    watched("remove")
    swap(lake)
    assert seen == [("move", list(range(30)))] + [("remove", list(range(500, 510)))] * 3


def test_replaced_files_are_kept_for_as_long_as_is_asked(lake) -> None:
    publish(lake, "one", 0)
    swap(lake, keep=3600)
    lake.sync()
    assert ids(lake) == list(range(500, 510))
    assert len(list((lake.root / "product").rglob("*.parquet"))) == 4
    old = sorted(path for path in (lake.root / "product").rglob("*.parquet"))
    with lake.registry.database.change() as connection:
        connection.execute("UPDATE batches SET keep_until = 1")
    # A new file that another writer puts in the place of an old one is not removed.
    kept = next(path for path in old if "year=2021" in str(path))
    write(products(700, 10), kept)
    lake.sweep()
    assert ids(lake) == [*range(500, 510), *range(700, 710)]
    assert len(list((lake.root / "product").rglob("*.parquet"))) == 2


def test_what_changes_meanwhile_is_not_replaced(lake) -> None:
    publish(lake, "one", 0)
    old = lake.registry.files.of(lake.registry.tables.get("product"))
    swap(lake, "two")
    with pytest.raises(needlepoint.TableChanged, match="Retry"):
        swap(lake, "three", first=900, old=old)
    assert ids(lake) == list(range(500, 510))
    # A file that another writer has replaced since the last sync.
    (path,) = (lake.root / "product").rglob("*.parquet")
    write(products(600, 20), path)
    with pytest.raises(needlepoint.TableChanged, match="Sync, then retry"):
        swap(lake, "four", first=900)
    assert ids(lake) == list(range(600, 620))
    assert len(list((lake.root / "product").rglob("*.parquet"))) == 1
    assert lake.registry.batches.get(lake.registry.tables.get("product"), "four") is None
    lake.sync()
    swap(lake, "four", first=900)
    assert ids(lake) == list(range(900, 910))


def test_two_batches_do_not_replace_the_same_file(lake, monkeypatch) -> None:
    publish(lake, "one", 0)
    monkeypatch.setattr(publishing, "_move_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        swap(lake, "two")
    monkeypatch.undo()
    with pytest.raises(needlepoint.TableChanged, match="being replaced by batch 'two'"):
        swap(lake, "three", first=900)
    lake.sync()
    assert ids(lake) == list(range(500, 510))


def test_what_another_process_finished_is_not_taken_for_changed(lake, monkeypatch) -> None:
    """Both find the old files in the registry, and one deletes them before the other checks them. This can only happen
    without locks."""
    publish(lake, "one", 0)
    monkeypatch.setattr(locks, "fcntl", None)
    original = publishing.identify_all

    def late(paths):
        monkeypatch.setattr(publishing, "identify_all", original)
        with needlepoint.open(lake.root, refresh=0) as other:
            other.sync()
            assert ids(other) == list(range(500, 510))
        return original(paths)

    monkeypatch.setattr(publishing, "identify_all", late)
    swap(lake, "two")
    assert ids(lake) == list(range(500, 510))


def test_a_batch_whose_publisher_is_alive_is_not_recovered(lake, tmp_path: Path) -> None:
    """If another process finished the batch and replaced it, a slow publisher would add its files again."""
    publish(lake, "one", 0)
    again: list[object] = []

    def slowly(pairs) -> None:
        with needlepoint.open(lake.root, refresh=0) as other:
            assert other.sync()[0].added == 0
            other.sweep(now=True)
            swap(other, "three")
            assert ids(other) == list(range(500, 510))
        waiting = threading.Thread(target=lambda: again.append(lake.writer.finished("product", "two")))
        waiting.start()
        waiting.join(0.2)
        assert again == []  # the lookup of this batch waits
        threads.append(waiting)
        for source, target in pairs:
            move(source, target)

    threads: list[threading.Thread] = []
    staging = lake.writer.staging("product")
    files = staged(staging, {"year=2020/x.parquet": products(30, 10), "year=2021/x.parquet": products(40, 10)})
    lake.writer.publish("product", files, staging, "two", mover=slowly)
    threads[0].join()
    assert again[0].is_committed
    assert ids(lake) == [*range(30, 50), *range(500, 510)]
    lake.sync()
    assert ids(lake) == [*range(30, 50), *range(500, 510)]
    assert sorted(path.name for path in (lake.store / "turns").iterdir()) == ["1"]  # no lock file of a batch is left


def test_publishing_an_abandoned_batch_is_an_error(lake, monkeypatch) -> None:
    publish(lake, "one", 0)
    monkeypatch.setattr(locks, "fcntl", None)  # with locks, no process abandons it
    (kept,) = (lake.root / "product").glob("year=2021/*.parquet")
    original = publishing.move

    def late(source: str, target: str) -> None:
        monkeypatch.undo()
        os.utime(kept)  # this process has checked the file before; another one finds it changed
        with needlepoint.open(lake.root, refresh=0) as other:
            other.sync()
            assert ids(other) == list(range(30))
        original(source, target)

    monkeypatch.setattr(publishing, "move", late)
    with pytest.raises((needlepoint.TableChanged, needlepoint.StoreError)):
        swap(lake, "two")
    assert ids(lake) == list(range(30))
    assert lake.registry.batches.unfinished(lake.registry.tables.get("product")) == []


@pytest.mark.parametrize("stop", ["_remove_target", "remove_directory"])
def test_a_crash_while_a_batch_is_abandoned_leaves_the_old_files(lake, monkeypatch, stop: str) -> None:
    publish(lake, "one", 0)
    (kept,) = (lake.root / "product").glob("year=2021/*.parquet")
    original = publishing.move

    def touched(source: str, target: str) -> None:
        original(source, target)
        with lake.registry.database.change() as connection:  # as a sync that finds a new version
            connection.execute("UPDATE files SET id = id + 1000 WHERE path LIKE 'year=2021%'")

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(publishing, "move", touched)
    monkeypatch.setattr(publishing, stop, crash)
    with pytest.raises(KeyboardInterrupt):
        swap(lake, "two")
    monkeypatch.undo()
    assert kept.exists()
    assert ids(lake) == list(range(30))
    lake.sync()
    assert ids(lake) == list(range(30))
    assert len(list((lake.root / "product").rglob("*.parquet"))) == 3
    assert lake.registry.batches.unfinished(lake.registry.tables.get("product")) == []


def test_a_file_that_no_sync_has_seen_is_not_replaced(lake) -> None:
    publish(lake, "one", 0)
    write(products(100, 10), lake.root / "product/year=2020/new.parquet")
    seen = lake.engine.snapshots.current("product").files
    with pytest.raises(needlepoint.TableChanged, match="Sync, then retry"):
        swap(lake, "two", old=seen)
    assert ids(lake) == [*range(30), *range(100, 110)]


@pytest.mark.parametrize("keep", [0, 3600])
def test_what_is_embedded_in_a_file_that_is_replaced_does_not_bring_it_back(lake, monkeypatch, keep: float) -> None:
    """An index is declared while new files are built from the old ones. It is being embedded in an old file when the
    swap begins."""
    publish(lake, "one", 0)
    lake.create_index("product", "title", kind="text", embed=True, build=False)
    monkeypatch.setattr(locks, "LONGEST_WAIT", 0.2)
    original = payloads.embed
    refused = []

    def late(*arguments, **named):
        if not refused:
            try:
                swap(lake, "two", keep=keep)
            except needlepoint.StoreError as error:
                refused.append(str(error))
        return original(*arguments, **named)

    monkeypatch.setattr(payloads, "embed", late)
    lake.writer.index_files("product")
    assert "embedding" in refused[0]
    assert ids(lake) == list(range(30))
    lake.sync()
    assert ids(lake) == list(range(500, 510))
    lake.sweep(now=True)
    assert ids(lake) == list(range(500, 510))
    assert len(list((lake.root / "product").rglob("*.parquet"))) == 1


def test_a_file_that_is_kept_for_others_is_not_taken_in_by_a_slow_sync(lake) -> None:
    publish(lake, "one", 0)
    table = lake.registry.tables.get("product")
    found = lake.registry.files.of(table)
    swap(lake, "two", keep=3600)
    lake.registry.files.replace(table, found, [])  # as a sync that listed the files earlier
    assert ids(lake) == list(range(500, 510))
    assert [file.rows for file in lake.registry.files.of(table)] == [10]


@pytest.mark.parametrize("stop", ["commit", "put", "remove", ""])
def test_what_batches_left_of_a_dropped_table_is_not_in_one_made_there_again(lake, monkeypatch, stop: str) -> None:
    publish(lake, "one", 0)
    if stop:
        place = {"commit": lake.registry.batches, "put": lake.queue, "remove": publishing}[stop]

        def killed(*arguments: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(place, stop, killed)
            with pytest.raises(KeyboardInterrupt):
                swap(lake, "two")
    else:
        swap(lake, "two", keep=3600)
    lake.drop_table("product")
    lake.create_table("product")
    lake.sync()
    assert ids(lake) == list(range(500, 510))
    assert len(list((lake.root / "product").rglob("*.parquet"))) == 1


def test_a_table_whose_batches_cannot_be_finished_is_not_dropped(lake, monkeypatch) -> None:
    publish(lake, "one", 0)
    swap(lake, "two", keep=3600)

    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "remove", refuse)
        with pytest.raises(needlepoint.StoreError, match=r"'product' is not dropped: .*batch 'two'.*drop it again"):
            lake.drop_table("product")
    with pytest.raises(needlepoint.TableChanged, match=r"batch 'two' .* not finished"):
        lake.registry.tables.drop("product")  # checks too: another process may have begun a batch
    assert ids(lake) == list(range(500, 510))
    lake.drop_table("product")
    assert lake.tables() == []


def test_a_table_is_not_dropped_while_indexes_are_put_into_its_files(lake, monkeypatch) -> None:
    publish(lake, "one", 0)
    monkeypatch.setattr(locks, "LONGEST_WAIT", 0.2)
    with (
        lake.registry.locks.shared(lake.registry.tables.get("product")),
        pytest.raises(needlepoint.StoreError, match=r"'product' is not dropped: .*embedding"),
    ):
        lake.drop_table("product")
    lake.drop_table("product")


@pytest.mark.parametrize("inner", ["", "year=2020"])
def test_files_that_are_another_tables_too_are_not_replaced(lake, inner: str) -> None:
    """Each table would see the other's files appear and disappear one by one, and also the old files that are kept."""
    publish(lake, "one", 0)
    lake.create_table("again", lake.root / "product" / inner)
    lake.create_table("elsewhere", write(products(0, 5), lake.root / "product2/a.parquet").parent)
    lake.create_table("private", write(products(0, 5), lake.root / "product/_old/a.parquet").parent)
    message = "files of table 'product' also belong to table 'again'.* Drop table 'again'"
    with pytest.raises(needlepoint.UsageError, match=message):
        swap(lake, "two")
    rows = len(lake.sql("SELECT 1 FROM again"))
    lake.sync()
    assert (ids(lake), len(lake.sql("SELECT 1 FROM again"))) == (list(range(30)), rows)
    for attempt in (*removals(lake, "product"), *removals(lake, "again")):
        with pytest.raises(needlepoint.UsageError, match=r"files of table '\w+' also belong to table '\w+'"):
            attempt()
    for table in ("elsewhere", "private"):
        assert lake.delete(table, "product_id = 1").rows == 1
    # Changes that remove no files still work.
    publish(lake, "three", 100)
    lake.create_index("again", "upc", kind="bloom", embed=True)
    lake.create_index("product", "title", kind="text", embed=True)
    lake.sync()
    assert ids(lake) == [*range(30), *range(100, 130)]
    assert len(lake.sql("SELECT 1 FROM again")) == rows * 2
    lake.drop_table("again")
    swap(lake, "four")
    assert ids(lake) == list(range(500, 510))


def test_a_table_is_not_made_of_files_that_are_being_replaced(lake) -> None:
    publish(lake, "one", 0)
    swap(lake, "two", keep=3600)
    for inner in ("", "year=2020", "../product"):
        with pytest.raises(needlepoint.UsageError, match=r"table 'product' .* `needle sweep --now`"):
            lake.create_table("again", lake.root / "product" / inner)
    assert lake.tables() == ["product"]
    lake.sweep(now=True)
    lake.create_table("again", lake.root / "product")
    assert len(lake.sql("SELECT 1 FROM again")) == 10


def test_tables_behind_a_symbolic_link_share_their_files(lake) -> None:
    publish(lake, "one", 0)
    link = lake.root / "link"
    link.symlink_to(lake.root / "product")
    lake.registry.tables.create("link", str(link), lake.registry.tables.get("product").schema, ("year",))
    with pytest.raises(needlepoint.UsageError, match="also belong to table 'link'"):
        swap(lake, "two")
