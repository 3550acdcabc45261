"""Queries continue while the files they read are replaced."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.buckets import Asked, Bucket, Server, parquet
from tests.cases import long
from tests.lakes import product_lake

import needlepoint
from needlepoint.errors import FileChanged
from needlepoint.objects import held
from needlepoint.parquet.write.embed import Payload, embed
from needlepoint.query.datafusion import session
from needlepoint.query.datafusion.native_scan import NativeScans
from needlepoint.query.datafusion.session import SessionOptions
from needlepoint.query.scan import held_files
from needlepoint.query.scan.held_files import Holder, QueryRetries
from needlepoint.query.sql.predicate_extraction import everything

FILES, ROWS, PARTITIONS = 24, 200, 12
TOTAL = FILES * ROWS


def rows_of(file: int) -> pa.Table:
    numbers = np.arange(file * ROWS, (file + 1) * ROWS)
    return pa.table({"id": numbers, "f": numbers / 2, "s": [f"word{number % 10} of{file}" for number in numbers]})


def write_files(directory: Path, files: int = FILES, partitions: int = PARTITIONS) -> list[Path]:
    paths = []
    for number in range(files):
        place = directory / f"p={number % partitions}" if partitions else directory
        place.mkdir(parents=True, exist_ok=True)
        paths.append(place / f"{number:05}.parquet")
        pq.write_table(rows_of(number), paths[-1], row_group_size=100, data_page_size=400, write_batch_size=20)
    return paths


QUESTIONS: dict[str, Callable[[list[dict[str, Any]]], bool]] = {
    "SELECT count(*) AS n, sum(id) AS s FROM t": lambda rows: rows == [{"n": TOTAL, "s": TOTAL * (TOTAL - 1) // 2}],
    "SELECT p, count(*) AS n FROM t GROUP BY p ORDER BY p": lambda rows: (
        [(row["p"], row["n"]) for row in rows] == [(number, TOTAL // PARTITIONS) for number in range(PARTITIONS)]
    ),
    "SELECT id, s FROM t WHERE id = 4242": lambda rows: rows == [{"id": 4242, "s": "word2 of21"}],
    "SELECT id FROM t WHERE id BETWEEN 395 AND 405 ORDER BY id": lambda rows: (
        [row["id"] for row in rows] == [*range(395, 406)]
    ),
    "SELECT count(*) AS n FROM t WHERE text_match(s, 'word3 of7')": lambda rows: rows == [{"n": ROWS // 10}],
    "SELECT id FROM t WHERE text_match(s, 'of7') ORDER BY score(s, 'of7') DESC, id LIMIT 2": lambda rows: (
        rows == [{"id": 7 * ROWS}, {"id": 7 * ROWS + 1}]
    ),
    "SELECT count(*) AS n FROM t WHERE f > 100": lambda rows: rows == [{"n": TOTAL - 201}],
    "SELECT count(*) AS n FROM t a JOIN t b ON a.id = b.id": lambda rows: rows == [{"n": TOTAL}],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[needlepoint.Lake]:
    root = tmp_path_factory.mktemp("readers")
    write_files(root / "t")
    with needlepoint.open(root) as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        lake.create_index("t", "s", kind="text", embed=True)
        yield lake


REPLACE = """
    import itertools, os, sys
    from needlepoint.parquet.write.embed import Payload, embed
    paths = sys.argv[1:]
    parent = os.getppid()
    for number in itertools.count():
        if os.getppid() != parent:
            break
        embed(paths[number % len(paths)], [Payload("odd", (), 1, b"x" * (number % 7 * 1000 + 1))])
"""


@contextmanager
def running(code: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def being_replaced(lake: needlepoint.Lake) -> Iterator[None]:
    """Another process replaces one file of the table after the other, all the time."""
    paths = sorted(map(str, Path(lake.root, "t").rglob("*.parquet")))
    first = Path(paths[0]).stat().st_ino
    with running(REPLACE, *paths):
        while Path(paths[0]).stat().st_ino == first:
            time.sleep(0.01)
        yield


def ask_all(lake: needlepoint.Lake) -> None:
    for query, is_right in QUESTIONS.items():
        rows = lake.sql(query).rows()
        assert is_right(rows), (query, rows[:5])
    assert lake.table("t").get(id=[17, 4242], columns=["id"], in_order=True).rows() == [{"id": 17}, {"id": 4242}]
    assert lake.table("t").get(f=8.5, columns=["id"]).rows() == [{"id": 17}]


def test_queries_answer_while_files_are_replaced_all_the_time(lake: needlepoint.Lake) -> None:
    with being_replaced(lake):
        ask_all(lake)
        lake.engine._retries._restless_until = float("-inf")  # start from the beginning again
        ask_all(lake)


@pytest.mark.long
@pytest.mark.parametrize("count", [2, *long(4, 16)])
def test_threads_share_a_lake_while_files_are_replaced(lake: needlepoint.Lake, count: int) -> None:
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            ask_all(lake)
        except BaseException as error:
            failures.append(error)

    with being_replaced(lake):
        threads = [threading.Thread(target=ask) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


EMBED = """
    import sys, needlepoint
    with needlepoint.open(sys.argv[1]) as lake:
        lake.retrofit("t", bloom=["id"])
        lake.create_index("t", "f", kind="distinct", embed=True)
        lake.drop_index("t_f_distinct", strip=True)
"""


@pytest.mark.long
def test_queries_answer_while_indexes_are_embedded_and_files_retrofitted(
    lake: needlepoint.Lake,
) -> None:
    rounds = 0
    with running(EMBED, str(lake.root)) as job:
        while job.poll() is None:
            ask_all(lake)
            rounds += 1
        assert job.returncode == 0
    assert rounds > 0
    ask_all(lake)
    # Nothing changes any more: files are read by path, and the index finds the rows.
    lake.engine._retries._restless_until = float("-inf")
    assert lake.sql("SELECT id, s FROM t WHERE id = 4242").report.tables[0].scanned_files == 0


def test_a_system_that_opens_no_descriptor_again_gets_copies(
    lake: needlepoint.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "DESCRIPTORS", "/dev/fd")
    with being_replaced(lake):
        ask_all(lake)
    assert not list((lake.store / "scratch").iterdir())


def test_no_room_for_copies(lake: needlepoint.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without copies, files are read by path and checked afterwards."""
    monkeypatch.setattr(held, "DESCRIPTORS", "/dev/fd")
    monkeypatch.setattr(held_files, "MOST_COPIED", 1)
    retries = QueryRetries(lambda: None, lake.store / "scratch", lake.registry.locks)
    state = lake.engine.state("t")
    retries._restless_until = float("inf")
    scan = retries.run(lambda _: lake.engine.scan_planner.plan(state, everything(["id"])))
    assert (scan.held, scan.sources, len(scan.scanned)) == ({}, {}, FILES)
    assert not list((lake.store / "scratch").iterdir())


@contextmanager
def trying(lake: needlepoint.Lake) -> Iterator[None]:
    with Holder(lake.store / "scratch", lake.registry.locks) as holder, holder.trying(1):
        yield


def read_column(lake: needlepoint.Lake, state: Any, column: str = "id") -> list[Any]:
    found = lake.engine.queries.read(state, column, range(len(state.snapshot.files)))
    return sorted(value for batch in found for value in batch.to_pylist())


@pytest.fixture
def small(tmp_path: Path) -> Iterator[needlepoint.Lake]:
    write_files(tmp_path / "t", 3, partitions=0)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        yield lake


def replace_file(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def test_what_is_held_is_read_whatever_becomes_of_the_file(small: needlepoint.Lake, tmp_path: Path) -> None:
    state = small.engine.state("t")
    with trying(small):
        scanned = small.engine.scan_planner.plan(state, everything(["id"]))
        for path in (tmp_path / "t").iterdir():
            replace_file(path, pa.table({"id": [-1]}))
        assert read_column(small, state) == [*range(3 * ROWS)]
        (tmp_path / "t" / "00000.parquet").unlink()
        assert read_column(small, state) == [*range(3 * ROWS)]
        assert scanned.held
    small.sync("t")
    assert small.sql("SELECT id FROM t").rows() == [{"id": -1}, {"id": -1}]


def test_a_file_replaced_before_it_was_opened_is_planned_again_alone(small: needlepoint.Lake, tmp_path: Path) -> None:
    state = small.engine.state("t")
    replace_file(tmp_path / "t" / "00001.parquet", rows_of(7))
    with trying(small):
        assert read_column(small, state) == [*range(ROWS), *range(2 * ROWS, 3 * ROWS), *range(7 * ROWS, 8 * ROWS)]
        scan = small.engine.scan_planner.plan(state, everything(["id"]))
        assert [file.id is None for file in scan.scanned] == [False, True, False]


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"id": [1], "more": [1]}),
        pa.table({"id": pa.array([1.5])}),
        pa.table({"id": ["text"]}),
        None,
    ],
    ids=["column", "wider", "conflict", "gone"],
)
def test_a_file_with_other_columns_makes_the_plan_void(
    small: needlepoint.Lake, tmp_path: Path, other: pa.Table | None
) -> None:
    state = small.engine.state("t")
    path = tmp_path / "t" / "00001.parquet"
    path.unlink() if other is None else replace_file(path, other)
    with trying(small), pytest.raises(FileChanged):
        read_column(small, state)


def test_a_file_changed_in_place_is_noticed(small: needlepoint.Lake, tmp_path: Path) -> None:
    state = small.engine.state("t")
    with trying(small), pytest.raises(FileChanged):
        small.engine.scan_planner.plan(state, everything(["id"]))
        with (tmp_path / "t" / "00001.parquet").open("ab") as file:
            file.write(b"more")
        read_column(small, state)


def test_a_card_that_the_registry_has_no_more_is_made_of_what_is_held(small: needlepoint.Lake, tmp_path: Path) -> None:
    """Another process embeds an index after this query chooses its pages and before it reads them."""
    from needlepoint.query.scan.page_reader import read_pages

    state = small.engine.state("t")
    logical = small.engine.queries.plan_sql("SELECT s FROM t WHERE id = 5", state)
    with trying(small):
        scan = small.engine.scan_planner.plan(state, logical.requests["t"])
        assert len(scan.paged) == 1
        embed(str(tmp_path / "t" / "00000.parquet"), [Payload("odd", (), 1, b"x")])
        small.sync("t")
        small.engine.cards.cards.clear()
        found = read_pages(scan, small.engine.cards, small.engine.caches).rows
    assert found is not None
    assert found.column("s").to_pylist() == ["word5 of0"]


def test_one_descriptor_is_two_files_of_the_same_size_and_time(tmp_path: Path) -> None:
    """What DataFusion caches for a path must not be used for the next file with the same descriptor."""
    paths = [tmp_path / "one.parquet", tmp_path / "other.parquet"]
    for path, first in zip(paths, (0, 1000), strict=True):
        numbers = pa.array(range(first, first + 100), pa.int64())
        pq.write_table(pa.table({"k": numbers}), path, compression="none", use_dictionary=False)
        os.utime(path, ns=(10**18, 10**18))
    assert paths[0].stat().st_size == paths[1].stat().st_size
    natives, descriptors = NativeScans(), set()
    context = session.make_context(SessionOptions(statistics=False, footers=False))
    for path, expected in ((paths[0], 0), (paths[1], 100), (paths[0], 0)):
        file = held.HeldFile(str(path))
        descriptors.add(file.descriptor)
        frame = natives.scan(context, pa.schema([("k", pa.int64())]), [str(file.reopenable())])
        found = frame.filter(datafusion.col("k") >= datafusion.lit(500)).collect()
        assert sum(batch.num_rows for batch in found) == expected
        file.close()
    assert len(descriptors) == 1


LIMITED = """
    import resource, sys
    import needlepoint
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[3])))
    with needlepoint.open(sys.argv[1]) as lake:
        lake.engine._retries._restless_until = float("inf")
        print(lake.sql("SELECT count(*) AS n FROM t").rows()[0]["n"], resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.long
@pytest.mark.parametrize(("soft", "hard", "raised"), [(128, 4096, True), *long((300, 300, False))])
def test_more_files_than_a_process_may_open(tmp_path: Path, soft: int, hard: int, raised: bool) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("this system allows fewer open files")
    write_files(tmp_path / "t", 150, partitions=0)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path), str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split()[:1] == [str(150 * ROWS)], done.stderr
    assert (int(done.stdout.split()[1]) > soft) is raised


@pytest.mark.long
@pytest.mark.parametrize("access", ["scan", *long("pages")])
def test_objects_that_are_replaced_all_the_time(tmp_path: Path, bucket: Bucket, server: Server, access: str) -> None:
    """Every request for an object replaces the next one."""
    objects = 6
    versions = itertools.count(1)

    def put(number: int) -> None:
        rows = rows_of(number)
        content = parquet(rows, row_group_size=50 + next(versions) % 5, write_page_index=next(versions) % 3 == 0)
        bucket.put(f"t/{number}.parquet", content)

    def replace(asked: Asked) -> None:
        if asked.method == "GET" and asked.path.endswith(".parquet"):
            put((int(asked.path.rpartition("/")[2].removesuffix(".parquet")) + 1) % objects)

    for number in range(objects):
        put(number)
    with needlepoint.open(tmp_path, access=access) as lake:
        lake.create_table("t", bucket.url("t"))
        lake.create_index("t", "id")
        server.before = replace
        total = objects * ROWS
        query = "SELECT count(*) AS n, sum(id) AS s, count(s) AS t FROM t WHERE f >= 0"
        assert lake.sql(query).rows() == [{"n": total, "s": total * (total - 1) // 2, "t": total}]
        assert not list((lake.store / "scratch").iterdir())


def test_nothing_is_kept_of_files_that_are_gone(tmp_path: Path) -> None:
    """A process that runs for long holds no more than the files of its tables need."""
    product_lake(tmp_path, files=4)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        lake.create_index("product", "title", "text")
        query = "SELECT product_id FROM product WHERE text_match(title, 'dairy') AND price > 1"
        lake.engine.sql(query, use_indexes="product_title_text")
        kept = (lake.engine.file_indexes.open, lake.engine.cards.cards, lake.engine.cards.zones)
        before = [len(each) for each in kept]
        lake.drop_partition("product", year=2021)
        lake.engine.sql(query, use_indexes="product_title_text")
        assert [len(each) for each in kept] == [number // 2 for number in before] and min(before) >= 4
