"""Streams: every row is in the table once, whatever happens to the driver."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests import stream_driver
from tests.stream_driver import FILES_A_BATCH, SCHEMA, start

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.spark.errors import reason
from needlepoint.tables import publishing

pytestmark = pytest.mark.spark

ROWS = 30  # in a file of the source, and so in a batch
DEFAULT_STEPS = ("between moves",)


@pytest.fixture
def lake(tmp_path: Path):
    with needlepoint.open(tmp_path / "lake", refresh=0) as lake:
        yield lake


def feed(root: Path, number: int, **more: Any) -> None:
    """Write file `number` of the source: ids from number * ROWS on, in three kinds."""
    source = root / "in"
    source.mkdir(exist_ok=True)
    rows = [
        {"id": n, "title": f"title {n}", "kind": "abc"[n % 3], **more}
        for n in range(number * ROWS, (number + 1) * ROWS)
    ]
    hidden = source / f".{number}.json"
    hidden.write_text("\n".join(map(json.dumps, rows)))
    hidden.rename(source / f"{number:03d}.json")


def ids(lake: needlepoint.Lake) -> list[int]:
    return [row["id"] for row in lake.sql("SELECT id FROM feed ORDER BY id").rows()]


def ids_in_files(lake: needlepoint.Lake) -> list[int]:
    """The ids that any Parquet reader finds in the directory."""
    found = duckdb.sql(f"SELECT id FROM read_parquet('{lake.root}/feed/**/*.parquet') ORDER BY id").fetchall()
    return [id for (id,) in found]


def run(session: Any, lake: needlepoint.Lake, root: Path, **options: Any) -> None:
    start(session, lake, root, **options).awaitTermination()


def killed(root: Path, step: str) -> None:
    """Run the stream in a process of its own until it dies at this step."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, stream_driver.__file__, str(root), step]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, start_new_session=True, check=False, timeout=300
    )
    assert done.returncode == -signal.SIGKILL, f"{step}: {done.stderr}"


def kill_at_each(spark: Any, lake: needlepoint.Lake, root: Path, steps: Sequence[str]) -> None:
    feed(root, 0)
    run(spark, lake, root)
    lake.create_index("feed", "id")
    seen = ROWS
    for number, step in enumerate(steps, 1):
        feed(root, number)
        killed(root, step)
        found = ids(lake)
        # Whole batches, in order, each once.
        assert found == list(range(len(found))), step
        assert seen <= len(found) <= (number + 1) * ROWS, step
        assert len(found) % ROWS == 0, step
        seen = len(found)
    feed(root, len(steps) + 1)
    run(spark, lake, root)
    expected = list(range((len(steps) + 2) * ROWS))
    assert ids(lake) == expected
    assert ids_in_files(lake) == expected
    list(lake.follow_events(once=True))
    (table,) = lake.status().tables
    assert (table.files, table.indexed) == (FILES_A_BATCH * (len(steps) + 2),) * 2
    assert table.indexes[0].entries == len(expected)
    for id in (0, ROWS + 1, expected[-1]):
        found = lake.sql(f"SELECT title FROM feed WHERE id = {id}")
        assert found.rows() == [{"title": f"title {id}"}]
        assert (found.report.tables[0].page_read_files, found.report.tables[0].scanned_files) == (1, 0)
    assert lake.queue.aside_count() == 0
    # Only the staged files of killed drivers are left, and a sweep removes them.
    publishing.sweep_staging(lake.store, lake.registry, now=True)
    assert list((lake.store / "stage" / "feed").iterdir()) == []
    lake.sync()
    assert ids(lake) == expected


@pytest.mark.long
def test_a_killed_driver_loses_nothing_and_repeats_nothing(lake, spark, tmp_path: Path) -> None:
    kill_at_each(spark, lake, tmp_path, DEFAULT_STEPS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_driver_killed_at_every_step(lake, spark, tmp_path: Path) -> None:
    kill_at_each(spark, lake, tmp_path, list(stream_driver.steps(lake)))


def test_a_stream_goes_on_where_it_was_and_is_findable_at_once(lake, spark, tmp_path: Path) -> None:
    feed(tmp_path, 0)
    run(spark, lake, tmp_path)
    lake.create_index("feed", "id")
    feed(tmp_path, 1)
    feed(tmp_path, 2)
    run(spark, lake, tmp_path)
    assert ids(lake) == ids_in_files(lake) == list(range(3 * ROWS))
    assert lake.status().waiting_events == 0
    found = lake.sql("SELECT title FROM feed WHERE id = 77")
    assert found.rows() == [{"title": "title 77"}]
    assert found.report.tables[0].page_read_files == 1
    assert (lake.store / "streams/feed/feed/metadata").exists()


@pytest.mark.long
def test_a_batch_that_spark_delivers_again_is_written_once(lake, spark, tmp_path: Path) -> None:
    checkpoint = tmp_path / "elsewhere"
    for number in range(2):
        feed(tmp_path, number)
    run(spark, lake, tmp_path, checkpoint=checkpoint, index=False)
    assert lake.status().waiting_events == 2
    # As when the driver dies after publishing, before Spark records that batch 1 is done.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    feed(tmp_path, 2)
    query = start(spark, lake, tmp_path, checkpoint=str(checkpoint), index=False, name="other_name")
    query.awaitTermination()
    assert {1, 2} <= {progress.batchId for progress in query.recentProgress}
    assert ids(lake) == ids_in_files(lake) == list(range(3 * ROWS))
    assert lake.status().waiting_events == 3


@pytest.mark.long
def test_a_new_checkpoint_under_the_same_name_loses_no_rows(lake, spark, tmp_path: Path) -> None:
    """Its batches are numbered from 0 again, but differ from those of the earlier stream."""
    feed(tmp_path, 0)
    run(spark, lake, tmp_path)
    shutil.rmtree(lake.store / "streams/feed/feed")
    (tmp_path / "in/000.json").unlink()
    feed(tmp_path, 1)
    run(spark, lake, tmp_path)
    assert ids(lake) == ids_in_files(lake) == list(range(2 * ROWS))


def test_a_batch_that_died_after_its_commit_is_announced_when_it_comes_again(lake, spark, monkeypatch) -> None:
    """An indexer that runs all the time then receives the event."""
    needle_spark.write(spark.range(5), lake, "numbers", batch="one")
    monkeypatch.setattr(lake.queue, "put", lambda body: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        needle_spark.write(spark.range(5, 10), lake, "numbers", batch="two")
    monkeypatch.undo()
    assert lake.status().waiting_events == 1
    done = needle_spark.write(spark.range(5, 10), lake, "numbers", batch="two")
    assert (done.state, lake.status().waiting_events) == ("announced", 2)
    assert lake.sql("SELECT count(*) AS c FROM numbers").rows() == [{"c": 10}]
    assert list((lake.store / "stage/numbers").iterdir()) == []


def test_an_empty_batch_is_nothing(lake, spark, tmp_path: Path) -> None:
    def some(first: int) -> Any:
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        return needle_spark.stream(
            source.where(f"id >= {first}"), lake, "feed", partition_by=["kind"], available_now=True, index=True
        )

    feed(tmp_path, 0)
    some(1000).awaitTermination()
    assert lake.tables() == []
    feed(tmp_path, 1)
    feed(tmp_path, 2)
    some(2 * ROWS).awaitTermination()
    assert ids(lake) == list(range(2 * ROWS, 3 * ROWS))
    assert len(lake.registry.files.of(lake.registry.tables.get("feed"))) == FILES_A_BATCH
    assert list((lake.store / "stage/feed").iterdir()) == []


def test_columns_can_come_and_a_type_that_does_not_fit_stops_the_stream(lake, spark, tmp_path: Path) -> None:
    def typed(schema: str) -> Any:
        source = spark.readStream.schema(schema).json(str(tmp_path / "in"))
        return needle_spark.stream(source, lake, "feed", partition_by=["kind"], available_now=True)

    feed(tmp_path, 0)
    typed(SCHEMA).awaitTermination()
    feed(tmp_path, 1, price=2.5)
    typed(f"{SCHEMA}, price double").awaitTermination()
    found = lake.sql("SELECT count(*) AS c, count(price) AS p, sum(price) AS s FROM feed").rows()
    assert found == [{"c": 2 * ROWS, "p": ROWS, "s": 2.5 * ROWS}]
    feed(tmp_path, 2)
    query = typed("id bigint, title bigint, kind string")
    with pytest.raises(Exception, match="SchemaConflict") as failure:
        query.awaitTermination()
    assert "column 'title' is string in the table but int64" in reason(failure.value)
    assert ids(lake) == list(range(2 * ROWS))
    typed(SCHEMA).awaitTermination()  # the same batch with the correct schema
    assert ids(lake) == ids_in_files(lake) == list(range(3 * ROWS))


def test_what_cannot_work_is_refused_before_the_stream_starts(lake, spark, tmp_path: Path) -> None:
    feed(tmp_path, 0)
    run(spark, lake, tmp_path)
    for wrong, message in {
        "table 'feed' is partitioned by kind, not by id. Leave partition_by out": {"partition_by": ["id"]},
        "unknown column 'titel' in the layout. Did you mean 'title'?": {
            "layout": needle_spark.Layout(bloom=("titel",))
        },
        "'my/feed' cannot name a stream": {"name": "my/feed"},
        "starting stream 'feed' failed": {"available_now": False, "every": "a while"},
    }.items():
        with pytest.raises(needlepoint.NeedlepointError) as refused:
            start(spark, lake, tmp_path, **message)
        assert wrong in str(refused.value)
    with pytest.raises(needlepoint.UsageError, match="is not a stream"):
        needle_spark.stream(spark.range(5), lake, "feed")
    with pytest.raises(needlepoint.UsageError, match="called by a stream"):
        needle_spark.batch_writer(lake, "feed")(spark.range(5), 0)
    assert spark.streams.active == []


@pytest.mark.long
def test_two_streams_into_one_table(lake, spark, tmp_path: Path) -> None:
    for root, first in ((tmp_path / "one", 0), (tmp_path / "two", 4)):
        root.mkdir()
        for number in range(first, first + 4):
            feed(root, number)
    queries = [
        start(spark, lake, tmp_path / name, name=name, available_now=False, every="0 seconds")
        for name in ("one", "two")
    ]
    try:
        with pytest.raises(needlepoint.UsageError, match=r"a stream 'one' is running\. Stop it first"):
            start(spark, lake, tmp_path / "one", name="one")
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    assert ids(lake) == ids_in_files(lake) == list(range(8 * ROWS))


def test_an_index_that_cannot_be_built_does_not_stop_the_stream(
    lake, spark, tmp_path: Path, monkeypatch, caplog
) -> None:
    feed(tmp_path, 0)
    run(spark, lake, tmp_path)
    lake.create_index("feed", "id")

    def refuse(*_: object) -> None:
        raise needlepoint.StoreError("the disk of the indexes is full.")

    monkeypatch.setattr(lake.registry, "commit_artifacts", refuse)
    feed(tmp_path, 1)
    with caplog.at_level(logging.WARNING, "needlepoint"):
        run(spark, lake, tmp_path)
    assert "the disk of the indexes is full" in caplog.text
    assert ids(lake) == list(range(2 * ROWS))
    monkeypatch.undo()
    feed(tmp_path, 2)
    run(spark, lake, tmp_path)  # catches up
    assert lake.status().tables[0].indexes[0].entries == 3 * ROWS
