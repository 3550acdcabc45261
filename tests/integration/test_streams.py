"""Large results, limits of queries, and queries that are cancelled."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import cases
from tests.lakes import CORES

import needlepoint
from needlepoint import Lake, Limits
from needlepoint.errors import FileChanged, LimitExceeded, QueryCancelled, SqlError, UsageError

ROWS, FILES = 50_000, 4


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = tmp_path_factory.mktemp("files")
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"item {id}" for id in ids], "kind": [7] * ROWS})
        pq.write_table(rows, files / f"{number}.parquet", row_group_size=10_000)
    return files


@pytest.fixture
def lake(tmp_path: Path, files: Path) -> Iterator[Lake]:
    shutil.copytree(files, tmp_path / "item")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("item")
        yield lake


@pytest.fixture
def streaming(lake: Lake) -> Lake:
    """A lake in which every result that needs DataFusion is large."""
    lake.engine.room = 1
    return lake


def test_batches_have_all_rows_and_one_schema(streaming: Lake) -> None:
    result = streaming.sql("SELECT * FROM item WHERE id >= 1000")
    assert result.schema.names == ["id", "name", "kind"]
    seen = [*result.batches()]
    assert len(seen) > FILES and {batch.schema for batch in seen} == {result.schema}
    ids = pa.chunked_array([batch.column("id") for batch in seen])
    assert sorted(ids.to_pylist()) == [*range(1000, ROWS * FILES)]
    assert streaming.running() == []


def test_few_texts_of_many_pages_are_a_small_result(lake: Lake) -> None:
    """Texts that DataFusion selects while it reads refer to whole pages, whose bytes do not count."""
    lake.engine.room = 64 << 10
    for _ in range(4):  # the second run filters while it reads
        result = lake.sql("SELECT name FROM item WHERE id % 5000 = 7")
        assert result.is_complete
        assert len(result.to_arrow()) == ROWS * FILES // 5000


def test_a_small_result_has_batches_too_and_any_number_of_times(lake: Lake) -> None:
    result = lake.sql("SELECT id FROM item WHERE id < 3 ORDER BY id")
    for _ in range(2):
        assert [row for batch in result.batches() for row in batch.to_pylist()] == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert lake.running() == []


def test_a_large_result_is_read_once(streaming: Lake) -> None:
    result = streaming.sql("SELECT * FROM item")
    next(result.batches())
    with pytest.raises(UsageError, match="already read"):
        result.to_arrow()


def test_a_large_result_in_every_other_form(streaming: Lake) -> None:
    assert len(streaming.sql("SELECT * FROM item")) == ROWS * FILES
    result = streaming.sql("SELECT id FROM item ORDER BY id DESC")
    assert "more rows" in repr(result)
    assert result.to_arrow().column("id").to_pylist() == [*range(ROWS * FILES)][::-1]
    assert repr(result) == "Result(200,000 rows: id)"
    assert sum(batch.num_rows for batch in result.batches()) == ROWS * FILES
    assert next(iter(result)) == {"id": ROWS * FILES - 1}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*), sum(id) FROM item",
        "SELECT id, name FROM item ORDER BY name LIMIT 7 OFFSET 3",
        "SELECT a.id, b.name FROM item a JOIN item b ON a.id = b.id + 1 WHERE a.id % 1000 = 0",
        "SELECT kind, count(*) FROM item GROUP BY kind HAVING count(*) > 5",
        "SELECT id, row_number() OVER (ORDER BY id DESC) AS r FROM item WHERE id < 50",
        "SELECT id FROM item WHERE id > (SELECT max(id) - 10 FROM item) UNION ALL SELECT 5",
        "SELECT id FROM item WHERE FALSE",
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 9) SELECT * FROM n",
    ],
)
def test_streamed_rows_are_those_of_duckdb(streaming: Lake, query: str) -> None:
    duck = duckdb.connect()
    duck.execute(f"CREATE VIEW item AS FROM '{streaming.root}/item/*.parquet'")
    expected = sorted(duck.execute(query).fetchall())
    result = streaming.sql(query)
    for rows in (pa.Table.from_batches(result.batches(), result.schema), streaming.sql(query).to_arrow()):
        assert sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == expected
    assert streaming.running() == []


def test_an_unread_result_ends_its_query(streaming: Lake) -> None:
    result = streaming.sql("SELECT * FROM item", query_id="mine")
    assert [(each.id, each.query) for each in streaming.running()] == [("mine", "SELECT * FROM item")]
    with pytest.raises(UsageError, match="'mine' is running"):
        streaming.sql("SELECT 1", query_id="mine")
    del result
    gc.collect()
    assert streaming.running() == []
    streaming.sql("SELECT * FROM item", query_id="mine").close()
    assert streaming.running() == []


def test_a_report_after_the_rows(streaming: Lake) -> None:
    result = streaming.sql("SELECT * FROM item")
    for _ in result.batches():
        pass
    (table,) = result.report.tables
    assert table.scan_counted and table.scanned_rows == ROWS * FILES
    assert (result.bytes.read, result.bytes.there) == (table.bytes.read, table.bytes.total)


def test_explain_analyze_of_a_large_result(streaming: Lake) -> None:
    lines = streaming.sql("EXPLAIN ANALYZE SELECT * FROM item").rows()
    assert any("200,000" in line["plan"] for line in lines)


# Files that change


def test_a_file_that_changes_while_batches_are_read(streaming: Lake) -> None:
    result = streaming.sql("SELECT * FROM item")
    batches = result.batches()
    next(batches)
    _replace(streaming)
    with pytest.raises(FileChanged, match=r"changed while the rows were read\. Run the query again"):
        for _ in batches:
            pass
    assert streaming.running() == []


def test_a_file_that_changes_before_the_table_is_read(streaming: Lake) -> None:
    result = streaming.sql("SELECT * FROM item")
    _replace(streaming)
    found = result.to_arrow()
    assert found.num_rows == ROWS * (FILES - 1) + 10
    assert streaming.running() == []


def test_held_files_of_a_large_result_stay_readable(streaming: Lake) -> None:
    """A query that was retried holds its files, also while its rows are read."""
    streaming.engine._retries._changed(0)  # as if another query had just seen a changed file
    result = streaming.sql("SELECT * FROM item")
    _replace(streaming)
    assert sum(batch.num_rows for batch in result.batches()) == ROWS * FILES


def _replace(lake: Lake) -> None:
    path = Path(lake.root) / "item" / "2.parquet"
    path.unlink()
    pq.write_table(pa.table({"id": range(10), "name": ["new"] * 10, "kind": [8] * 10}), path)


# Limits

# It takes some seconds, also after it is cancelled.
LONG = f"SELECT count(*) FROM item a, item b WHERE a.id + b.id = 7 AND b.id < {10_000 * CORES}"
# It never ends.
ENDLESS = "SELECT count(*) FROM item a, item b, item c WHERE a.id + b.id + c.id = 7"


def test_a_limit_of_time(lake: Lake) -> None:
    began = time.monotonic()
    with pytest.raises(LimitExceeded, match=r"ran for more than 0\.3 seconds"):
        lake.sql(LONG, limits=Limits(seconds=0.3))
    assert time.monotonic() - began < 20
    assert lake.running() == []
    assert len(lake.sql("SELECT * FROM item WHERE id = 7")) == 1


@pytest.mark.long
def test_other_queries_run_beside_some_that_never_end(lake: Lake) -> None:
    """DataFusion does not notice that such a join was cancelled: run them in a process that ends."""
    script = f"""
import os, sys
import needlepoint
from needlepoint.errors import LimitExceeded
lake = needlepoint.open({str(lake.root)!r})
for _ in range(3):
    try:
        lake.sql({ENDLESS!r}, limits=needlepoint.Limits(seconds=0.2))
    except LimitExceeded as error:
        print(error)
    print(lake.sql("SELECT count(*) AS n FROM item").rows())
    print(lake.sql("SELECT count(*) AS n FROM item a JOIN item b ON a.id = b.id").rows())
sys.stdout.flush()
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.count("ran for more than 0.2 seconds") == 3
    assert done.stdout.count("[{'n': 200000}]") == 6


def test_time_in_which_rows_wait_does_not_count(streaming: Lake) -> None:
    result = streaming.sql("SELECT * FROM item", limits=Limits(seconds=30))
    batches = result.batches()
    next(batches)
    (running,) = streaming.running()
    worked = running.left()
    time.sleep(0.2)
    next(batches)
    left = running.left()
    assert worked is not None and left is not None
    assert left > worked - running.seconds + 0.2


def test_a_limit_of_rows(lake: Lake) -> None:
    limits = Limits(rows=3)
    assert len(lake.sql("SELECT * FROM item LIMIT 3", limits=limits)) == 3
    for query in ("SELECT * FROM item LIMIT 4", "SELECT a.id FROM item a JOIN item b ON a.id = b.id"):
        with pytest.raises(LimitExceeded, match="more than 3 rows"):
            lake.sql(query, limits=limits)
    with pytest.raises(LimitExceeded, match="more than 3 rows"):
        lake.table("item").get(id=[1, 2, 3, 4], limits=limits)
    lake.create_index("item", "id")
    with pytest.raises(LimitExceeded, match="more than 3 rows"):
        lake.table("item").get(id=[1, 2, 3, 4], limits=limits)
    with pytest.raises(LimitExceeded, match="more than 3 rows"):
        lake.sql("SELECT id FROM item WHERE id IN (1, 2, 3, 4)", limits=limits)
    assert lake.running() == []


def test_a_limit_of_memory(lake: Lake) -> None:
    limits = Limits(memory=4 << 20)
    ordered = lake.sql("SELECT a.name, a.id FROM item a ORDER BY a.name DESC", limits=limits).to_arrow()
    assert ordered.column("name").to_pylist() == sorted((f"item {id}" for id in range(ROWS * FILES)), reverse=True)
    with pytest.raises(LimitExceeded, match=r"needs more than 4\.2 MB of memory"):
        lake.sql("SELECT count(*) FROM item a JOIN item b ON a.name = b.name", limits=limits)
    assert lake.sql("SELECT count(*) AS n FROM item a JOIN item b ON a.name = b.name").rows() == [{"n": ROWS * FILES}]


def test_limits_of_a_lake(lake: Lake) -> None:
    with needlepoint.open(lake.root, query_rows=2) as limited:
        with pytest.raises(LimitExceeded, match="more than 2 rows"):
            limited.sql("SELECT * FROM item")
        assert len(limited.sql("SELECT * FROM item LIMIT 5", limits=Limits(rows=5))) == 5
    with pytest.raises(UsageError, match="negative"):
        Limits(seconds=-1)


# Slow queries


def test_slow_queries_are_in_the_log_without_values(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    query = "SELECT count(*) FROM item -- mine\nWHERE name = 'it''s' AND id < 5"
    with needlepoint.open(lake.root, slow_seconds=0.0001) as watched:
        watched.sql(query)
        with pytest.raises(SqlError):
            watched.sql("SELECT 1 / 0 FROM item")
    first, second = (record.getMessage() for record in caplog.records)
    assert first.endswith("seconds: SELECT count(*) FROM item WHERE name = ? AND id < ?")
    assert second.endswith("seconds: SELECT ? / ? FROM item")
    caplog.clear()
    lake.sql(query)
    assert caplog.records == []


# Cancel


def test_another_thread_cancels_a_query(lake: Lake) -> None:
    errors = []

    def run() -> None:
        try:
            lake.sql(LONG, query_id="long")
        except QueryCancelled as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not lake.running():
        time.sleep(0.01)
    time.sleep(0.2)
    (running,) = lake.running()
    assert running.id == "long" and running.seconds > 0.1 and "item a, item b" in repr(running)
    running.cancel()
    thread.join(30)
    assert not thread.is_alive() and "cancelled after" in str(errors[0])
    assert lake.running() == []
    assert len(lake.sql("SELECT * FROM item WHERE id = 7")) == 1


UNENDING = (
    "SELECT count(*) FROM generate_series(1, 100000000000) AS g WHERE g.value % 7 = 8",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
)


@pytest.mark.parametrize("query", UNENDING)
def test_rows_that_no_table_has_are_limited_too(lake: Lake, query: str) -> None:
    with pytest.raises(LimitExceeded, match=r"ran for more than 0\.2 seconds"):
        lake.sql(query, limits=Limits(seconds=0.2))


@pytest.mark.long
def test_datafusion_ends_with_a_query_over_its_limit(lake: Lake) -> None:
    script = f"""
import time
import needlepoint
lake = needlepoint.open({str(lake.root)!r})
for query in {UNENDING!r}:
    try:
        lake.sql(query, limits=needlepoint.Limits(seconds=0.2))
    except needlepoint.LimitExceeded:
        pass
for _ in range(100):
    worked = time.process_time()
    time.sleep(0.2)
    if time.process_time() - worked < 0.01:
        print("idle")
        break
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "idle\n"


def test_a_recursive_query(lake: Lake) -> None:
    numbers = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 10)"
    assert lake.sql(f"{numbers} SELECT count(*) AS c, max(i) AS m FROM n").rows() == [{"c": 10, "m": 10}]
    joined = f"{numbers} SELECT name FROM item JOIN n ON id = i WHERE i > 8 ORDER BY i"
    assert lake.sql(joined).rows() == [{"name": "item 9"}, {"name": "item 10"}]


def test_a_cancelled_query_returns_no_more_batches(streaming: Lake) -> None:
    batches = streaming.sql("SELECT * FROM item").batches()
    next(batches)
    streaming.running()[0].cancel()
    with pytest.raises(QueryCancelled):
        for _ in batches:
            pass
    assert streaming.running() == []


def test_a_failure_in_the_middle_is_clear(streaming: Lake) -> None:
    batches = streaming.sql("SELECT 100 / (id - 199999) FROM item").batches()
    with pytest.raises(SqlError, match="Divide by zero"):
        for _ in batches:
            pass
    assert streaming.running() == []


def test_a_partition_of_a_join_that_ends_before_another_begins(lake: Lake) -> None:
    """Awaiting the partitions of DataFusion one by one, this query hung in one of a few runs."""
    lake.engine.room = 1
    query = """
        SELECT t.id, t.name FROM item AS t LEFT ANTI JOIN item AS u ON t.name = u.name WHERE t.id < 0 UNION ALL
        SELECT id, name FROM item AS t WHERE t.id < 3 AND EXISTS (SELECT 1 FROM item AS v WHERE v.kind - 7 = t.id)"""
    for _ in range(20):
        assert lake.sql(query).rows() == [{"id": 0, "name": "item 0"}]


# Threads


@pytest.mark.long
def test_sixteen_threads_share_a_lake(lake: Lake) -> None:
    lake.create_index("item", "id")
    lake.engine.room = 1 << 20
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            for turn in range(cases(6, 3)):
                id = (number * 7919 + turn * 104_729) % (ROWS * FILES)
                rows = [{"id": id, "name": f"item {id}", "kind": 7}]
                assert lake.sql(f"SELECT * FROM item WHERE id = {id}").rows() == rows
                assert lake.table("item").get(id=id).rows() == rows
                assert lake.sql("SELECT * FROM item WHERE id = $id", {"id": id}).rows() == rows
                if turn % 4 == number % 4:
                    found = lake.sql(f"SELECT id, name FROM item WHERE id >= {id}")
                    assert sum(batch.num_rows for batch in found.batches()) == ROWS * FILES - id
                    total = f"SELECT count(*) AS n FROM item a JOIN item b ON a.id = b.id WHERE a.id < {id}"
                    assert lake.sql(total).rows() == [{"n": id}]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert lake.running() == []


def test_threads_see_the_tables_of_their_own_query(lake: Lake) -> None:
    """DataFusion lists tables in threads of its own."""
    lake.create_table("other", Path(lake.root) / "item")
    names = {"item": ["id", "name", "kind"], "view_of_item": ["n"]}
    lake.sql("CREATE VIEW view_of_item AS SELECT count(*) AS n FROM item")
    wrong: list[object] = []

    def run(name: str) -> None:
        for _ in range(15):
            found = lake.sql(f"SELECT column_name FROM information_schema.columns WHERE table_name = '{name}'").rows()
            if [row["column_name"] for row in found] != names[name]:
                wrong.append(found)
            lake.sql(f"SELECT count(*) FROM {name}")

    threads = [threading.Thread(target=run, args=(name,)) for name in names for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def exit_code(lake: Lake, work: str) -> int:
    """Of a process that does this work with the lake, and ends without closing it."""
    script = f"import threading, time, needlepoint\nlake = needlepoint.open({str(lake.root)!r})\n{work}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False).returncode


def test_a_process_ends_with_a_result_half_read(lake: Lake) -> None:
    """Also while the next batch is stored, under the lock that the end of the result takes."""
    work = """
from needlepoint.query.running import Limits
lake.engine.room = 1
batches = lake.sql("SELECT * FROM item").batches()
Limits.check_rows = lambda self, rows: time.sleep(1)
next(batches)
next(batches)
"""
    assert exit_code(lake, work) == 0


def test_a_process_ends_while_a_thread_of_datafusion_is_in_python(lake: Lake) -> None:
    """The one that brings the last batch wakes the event loop, and takes a while to leave Python."""
    work = """
from needlepoint.query.datafusion import batch_stream
loop = batch_stream._loop()
wake = loop._write_to_self
known = {each.ident for each in threading.enumerate()}
def slow_wake():
    foreign = threading.get_ident() not in known
    wake()
    if foreign:
        threading.current_thread()  # as logging does
        time.sleep(0.02)
loop._write_to_self = slow_wake
lake.sql("SELECT sum(id) FROM item")
"""
    assert exit_code(lake, work) == 0


def test_a_process_ends_while_another_thread_runs_a_query(lake: Lake) -> None:
    work = f"""
threading.Thread(target=lake.sql, args=({ENDLESS!r},), daemon=True).start()
while "needlepoint-batches" not in [each.name for each in threading.enumerate()]:  # until it is planned
    time.sleep(0.01)
time.sleep(0.5)
"""
    assert exit_code(lake, work) == 0


def test_a_result_that_another_thread_closes_is_not_taken_for_complete(streaming: Lake) -> None:
    for room in (1, 2_000_000):  # what waits is a part of the rest, or all of it
        streaming.engine.room = room
        result = streaming.sql("SELECT * FROM item")
        assert not result.is_complete
        batches = result.batches()
        next(batches)
        time.sleep(0.2)
        other = threading.Thread(target=result.close)
        other.start()
        other.join()
        with pytest.raises(QueryCancelled, match="was closed before"):
            list(batches)


def test_a_query_at_the_end_of_a_process(lake: Lake) -> None:
    work = """
import atexit
atexit.register(lambda: print(lake.sql("SELECT sum(id) FROM item").rows()))
lake.sql("SELECT sum(id) FROM item")
"""
    assert exit_code(lake, work) == 0
