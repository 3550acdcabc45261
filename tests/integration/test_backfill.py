"""Spark tasks build the same indexes as a local build, also after a kill and on a cluster."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from tests.buckets import aws_server
from tests.cases import long
from tests.lakes import product_lake, products, write

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.cli import main
from needlepoint.indexer import plan, sorted_runs
from needlepoint.indexer.build import FileTask
from needlepoint.indexer.pools import InlinePool, PoolTasks
from needlepoint.lake import Lake
from needlepoint.objects import Identity
from needlepoint.spark.pool import SparkPool
from needlepoint.stores.leaf_files import LeafKeyStore, merge_tasks
from needlepoint.stores.leaf_files import merge as leaf_merge

pytestmark = pytest.mark.spark

FILES, ROWS = 6, 2000
INDEXES: dict[str, tuple[str | list[str], str]] = {
    "id": ("product_id", "key"),
    "upc": ("upc", "key"),
    "titles": ("title", "text"),
    "few": ("title", "distinct"),
    "blooms": (["title", "price"], "bloom"),
}
QUESTIONS = (
    "product_id = 4711",
    "product_id IN (1, 3000, 9999, 77777)",
    "product_id BETWEEN 1990 AND 4020",
    "upc = 'U000007777'",
    "upc LIKE 'U00000111%'",
    "title LIKE '%13 dair%'",
    "title = 'title 5 dairy' AND year = 2021",
    "text_match(title, '42')",
)


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make several tasks, each with several files, and several ranges."""
    monkeypatch.setattr(plan, "FILES_PER_TASK", 2)
    monkeypatch.setattr(sorted_runs, "ENTRIES_PER_RANGE", 1500)


def declare(lake: Lake, *, embed: bool = False, indexes: Sequence[str] = tuple(INDEXES)) -> None:
    for name in indexes:
        columns, kind = INDEXES[name]
        lake.create_index("product", columns, kind, name=name, embed=embed, build=False)


def make_lake(root: Path, *, embed: bool = False, **settings: Any) -> Lake:
    """A lake that also has a file with an older schema, and a file with a column of NULLs."""
    product_lake(root, files=FILES, rows=ROWS)
    write(products(FILES * ROWS, 500).drop_columns(["upc"]), root / "product/year=2020/old.parquet")
    empty = products(FILES * ROWS + 500, 10).to_pydict() | {"title": pa.nulls(10, pa.string())}
    write(pa.table(empty), root / "product/year=2021/null.parquet")
    lake = needlepoint.open(root, refresh=0, access="pages", **settings)
    lake.create_table("product")
    declare(lake, embed=embed)
    return lake


def summary(lake: Lake) -> list[tuple[str, int, int]]:
    (table,) = lake.status().tables
    return [(index.name, index.files, index.entries) for index in table.indexes]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The same lake, with indexes of a local build."""
    with make_lake(tmp_path_factory.mktemp("local") / "lake") as lake:
        (report,) = lake.sync()
        assert report.failures == ()
        yield lake


def assert_like_a_local_build(lake: Lake, local: Lake) -> None:
    assert summary(lake) == summary(local)
    assert all(entries and files == FILES + 2 for _, files, entries in summary(lake))
    for where in QUESTIONS:
        query = f"SELECT * FROM product WHERE {where} ORDER BY product_id"
        assert lake.sql(query).rows() == local.sql(query).rows(), where
    found = lake.sql("SELECT * FROM product WHERE product_id = 4711").report.tables[0]
    assert (found.rows.read, found.scanned_files) == (1, 0)
    assert lake.verify("product", samples=4).differences == ()


@pytest.mark.long
@pytest.mark.parametrize("embed", [False, True])
def test_all_kinds_as_a_local_build_makes_them(tmp_path: Path, spark, local: Lake, embed: bool) -> None:
    told: list[tuple[str, int, int]] = []
    with make_lake(tmp_path / "lake", embed=embed, progress=lambda *what: told.append(what)) as lake:
        told.clear()
        report = needle_spark.build(spark, lake, "product")
        assert (report.indexed, report.failures) == (FILES + 2, ())
        assert_like_a_local_build(lake, local)
        assert told[0] == ("indexing", 0, FILES + 2)
        assert ("indexing", 2, FILES + 2) in told
        assert ("indexing", FILES + 2, FILES + 2) in told
        merging = [each for each in told if each[0] == "merging"]
        assert merging[0][1] == 0 and merging[-1][1] == merging[-1][2] > 3
        assert leftovers(lake) == []
        assert needle_spark.build(spark, lake, "product").indexed == 0
        for name in ("id", "upc"):
            assert levels(lake, name) == (0, True)


def test_tasks_merge_leaf_files_as_a_local_merge_does(tmp_path: Path, spark, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(3)
    store = LeafKeyStore(str(tmp_path / "here"), 8)
    names = [f"run-{number}" for number in range(9)]
    with monkeypatch.context() as patched:
        patched.setattr(leaf_merge, "FAN_OUT", 100)
        for number, name in enumerate(names):
            entries = np.zeros((3000, 16), np.uint8)
            entries[:, :8] = np.sort(chance.integers(0, 20_000, 3000)).astype(">u8").view(np.uint8).reshape(-1, 8)
            entries[:, 8:] = (np.arange(3000) + number * 4000).astype(">u8").view(np.uint8).reshape(-1, 8)
            store.write_run(tmp_path / name, entries, name)
            store.ingest([tmp_path / name])
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    there = LeafKeyStore(str(tmp_path / "there"), 8)
    monkeypatch.setattr(merge_tasks, "WORTH_TASKS", 0)
    monkeypatch.setattr(leaf_merge, "LEAF_ENTRIES", 9000)
    (tmp_path / "scratch").mkdir()
    assert store.merge() == there.merge(PoolTasks(SparkPool(spark), tmp_path / "scratch")) == 1
    found = []
    for each in (store, there):
        each.refresh(names)
        leaves = each._open_state().manifest.leaves
        assert len(leaves) >= 3 and all(leaf.entries <= 9000 for leaf in leaves)
        found.append(np.concatenate(list(each.scan())))
    assert len(found[0]) == 27_000 and np.array_equal(*found)
    paths = [f"{tmp_path}/there/leaves/{leaf.name}" for leaf in leaves]
    rows = duckdb.sql(f"SELECT key, file, row FROM read_parquet({paths})").fetchnumpy()
    keys = (found[0][:, :8].copy().view(">u8").ravel().astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
    assert np.array_equal(rows["key"], keys)
    assert np.array_equal(rows["row"], found[0][:, 12:].copy().view(">u4").ravel())


@pytest.mark.long
def test_a_build_in_spark_merges_leaf_files_in_its_tasks(tmp_path: Path, spark, monkeypatch) -> None:
    monkeypatch.setattr(merge_tasks, "WORTH_TASKS", 0)
    monkeypatch.setattr(leaf_merge, "LEAF_ENTRIES", 700)
    called: list[str] = []

    class Told(SparkPool):
        def run(self, function: Any, items: Any, scratch: Path) -> Any:
            called.extend(function.__name__ for _ in items)
            return super().run(function, items, scratch)

    root = tmp_path / "lake"
    write(products(0, 200), root / "product/p.parquet")
    with needlepoint.open(root, refresh=0, access="pages", keys="lake:") as lake:
        lake.create_table("product")
        lake.create_index("product", "upc", name="upc")
        for number in range(1, 8):  # keys in between, so that the runs overlap
            write(products(10 * number, 200), root / f"product/p{number}.parquet")
            if number < 7:
                lake.sync("product")
        lake.build("product", pool=Told(spark))
        assert called.count("merge_reached_range") > 1
        assert lake.verify("product", samples=4).differences == ()
        assert leftovers(lake) == []


def leftovers(lake: Lake) -> list[Path]:
    return [each for each in (lake.store / "scratch").glob("backfill-*/*") if each.is_dir()]


def levels(lake: Lake, name: str) -> tuple[int, bool]:
    """Number of files of a key index in RocksDB's level 0, and whether the lowest has several beside the format."""
    store: Any = lake.index_stores.entries(lake.registry.indexes.get(name))
    with store._primary() as database:
        lowest = database.property_int_value("rocksdb.num-files-at-level6")
        return database.property_int_value("rocksdb.num-files-at-level0"), lowest > 2


KILLED = """
import os, signal, sys
import needlepoint
from needlepoint import spark
from needlepoint.indexer import plan, sorted_runs
from needlepoint.indexer.pools import InlinePool, LocalPool

root, on, what, enough = sys.argv[1:]
plan.FILES_PER_TASK, sorted_runs.ENTRIES_PER_RANGE = 1, 1500

def progress(doing, done, total):
    if doing == what and done >= int(enough) and isinstance(done, int):
        os.kill(os.getpid(), signal.SIGKILL)

if on == "spark":
    pool = spark.pool.SparkPool(spark.session(cores=2, memory="512m"))
else:
    pool = LocalPool(2) if on == "local" else InlinePool()
needlepoint.open(root, progress=progress).build("product", pool=pool)
"""


class Counting:
    """A pool that counts the files it is given to index."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.files: list[FileTask] = []
        self.ranges = 0

    def cores(self) -> int:
        return self.pool.cores()

    def reaches(self, directory: Path) -> bool:
        return self.pool.reaches(directory)

    def run(self, function: Callable[..., Any], items: Sequence[Any], scratch: Path) -> Iterator[Any]:
        self.files += [file for item in items for file in getattr(item, "files", ())]
        self.ranges += sum(not hasattr(item, "files") for item in items)
        return self.pool.run(function, items, scratch)


def kill_a_build(root: Path, on: str, what: str, enough: int) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(root), on, what, str(enough)], check=False)
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.parametrize(("what", "enough"), [("indexing", 3), *long(("merging", 1))])
def test_a_killed_build_goes_on_where_it_was(tmp_path: Path, local: Lake, what: str, enough: int) -> None:
    make_lake(tmp_path / "lake", embed=True).close()
    kill_a_build(tmp_path / "lake", "local", what, enough)
    assert_it_goes_on(tmp_path / "lake", local, InlinePool(), what, enough)


@pytest.mark.long
def test_a_killed_build_of_spark_goes_on_where_it_was(tmp_path: Path, spark, local: Lake) -> None:
    make_lake(tmp_path / "lake").close()
    kill_a_build(tmp_path / "lake", "spark", "indexing", 3)
    assert_it_goes_on(tmp_path / "lake", local, SparkPool(spark), "indexing", 3)


def assert_it_goes_on(root: Path, local: Lake, way: Any, what: str, enough: int) -> None:
    told: list[tuple[str, int, int]] = []
    with needlepoint.open(root, refresh=0, access="pages", progress=lambda *what: told.append(what)) as lake:
        for where in QUESTIONS:  # the intermediate state is consistent
            assert lake.sql(f"SELECT * FROM product WHERE {where}").rows() is not None
        assert lake.sql("SELECT upc FROM product WHERE product_id = 4711").rows() == [{"upc": "U000004711"}]
        pool = Counting(way)
        (report,) = lake.build("product", pool=pool)
        assert report.failures == ()
        # Files that were reported as done are not read again.
        assert len(pool.files) == (FILES + 2 - enough if what == "indexing" else 0)
        assert told[0] == ("indexing", FILES + 2 - len(pool.files), FILES + 2)
        assert pool.ranges > 0
        assert_like_a_local_build(lake, local)
        assert leftovers(lake) == []


@pytest.mark.long
def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    make_lake(tmp_path / "lake").close()
    program = "from needlepoint.cli import main; main()"
    command = [sys.executable, "-c", program, "--lake", str(tmp_path / "lake"), "index", "build", "product"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--on", "spark"], stdout=pipe, stderr=pipe, start_new_session=True) as process:
        while not list((tmp_path / "lake/.needlepoint").rglob("reached")):  # tasks are about to start
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, said = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, b"")
    assert said.startswith(b"interrupted: ")
    assert said.count(b"\n") == 1
    (report,) = needlepoint.open(tmp_path / "lake").build("product")
    assert report.failures == ()


@pytest.mark.long
def test_what_was_sorted_of_files_that_changed_since_is_not_used(tmp_path: Path) -> None:
    make_lake(tmp_path / "lake").close()
    kill_a_build(tmp_path / "lake", "inline", "indexing", FILES + 2)
    write(products(50_000, 300), tmp_path / "lake/product/year=2020/p0.parquet")
    (tmp_path / "lake/product/year=2021/p1.parquet").unlink()
    with needlepoint.open(tmp_path / "lake", refresh=0, access="pages") as lake:
        pool = Counting(InlinePool())
        (report,) = lake.build("product", pool=pool)
        assert (report.changed, report.removed, report.failures) == (1, 1, ())
        assert [Path(file.path).name for file in pool.files] == ["p0.parquet"]
        for id, there in ((10, False), (50_010, True), (ROWS + 10, False), (2 * ROWS + 10, True)):
            assert len(lake.table("product").get(product_id=id)) == there
        assert lake.verify("product", samples=4).differences == ()


@pytest.mark.long
def test_files_travel_where_executors_do_not_reach_the_lake(
    tmp_path: Path, spark, local: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster that reads a bucket: of the driver's disk, tasks reach only the table's files."""
    pool = sys.modules["needlepoint.spark.pool"]
    monkeypatch.setattr(pool, "CHUNK", 5000)
    monkeypatch.setattr(pool, "PARTS", 3)
    asked: list[Path] = []

    class Far(SparkPool):
        def reaches(self, directory: Path) -> bool:
            asked.append(directory)
            self._reached[directory] = False
            return False

    with make_lake(tmp_path / "lake") as lake:
        (report,) = lake.build("product", pool=Far(spark))
        assert (report.indexed, report.failures) == (FILES + 2, ())
        assert asked
        assert_like_a_local_build(lake, local)
        assert leftovers(lake) == []


def test_reaching_is_found_out_by_a_file(tmp_path: Path, spark) -> None:
    reaches = sys.modules["needlepoint.spark.pool"]._reaches
    assert SparkPool(spark).reaches(tmp_path)
    assert not reaches(tmp_path, "another token")
    assert not reaches(tmp_path / "nothing", "token")
    assert [path.name for path in tmp_path.iterdir()] == ["reached"]


def _fails(item: int, directory: Path) -> int:
    (directory / "file").write_text("x")
    if item == 3:
        raise needlepoint.StoreError("this one fails.", hint="Try another.")
    return item


@pytest.mark.long
def test_a_task_that_fails_says_why(tmp_path: Path, spark) -> None:
    with pytest.raises(needlepoint.SparkError, match=r"building indexes in Spark failed: .*this one fails"):
        list(SparkPool(spark).run(_fails, range(6), tmp_path))


def test_results_come_with_their_files(tmp_path: Path, spark) -> None:
    found = dict(SparkPool(spark).run(_fails, [5, 1, 2], tmp_path))
    assert sorted(found) == [1, 2, 5]
    assert all((place / "file").read_text() == "x" for place in found.values())
    assert len(set(found.values())) == 3
    assert list(SparkPool(spark).run(_fails, [], tmp_path)) == []


def _leaves_a_directory(item: int, directory: Path) -> int:
    (directory / "not-removed").mkdir()
    return _fails(item, directory)


def test_directories_that_a_task_could_not_remove_do_not_travel() -> None:
    names = [
        name
        for batch in sys.modules["needlepoint.spark.pool"]._work(_leaves_a_directory, 1, None)
        for name in batch.column("name").to_pylist()
    ]
    assert names == ["", "file"]


def test_a_file_that_cannot_be_indexed_fails_alone(tmp_path: Path, spark) -> None:
    with make_lake(tmp_path / "lake") as lake:
        bad = tmp_path / "lake/product/year=2021/p1.parquet"
        data = bytearray(bad.read_bytes())
        data[4:20_000] = bytes(19_996)
        stat = bad.stat()
        bad.write_bytes(data)
        os.utime(bad, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # a damaged file, not a changed one
        report = needle_spark.build(spark, lake, "product")
        assert {Path(failure.path).name for failure in report.failures} == {"p1.parquet"}, report.failures
        assert report.indexed == FILES + 1
        assert lake.sql("SELECT upc FROM product WHERE product_id = 4711").rows() == [{"upc": "U000004711"}]


@pytest.mark.long
def test_one_index_of_several(tmp_path: Path, spark, local: Lake) -> None:
    with make_lake(tmp_path / "lake") as lake:
        with pytest.raises(needlepoint.UnknownName, match="Did you mean 'titles'"):
            needle_spark.build(spark, lake, "product", "title")
        needle_spark.build(spark, lake, "product", "upc")
        assert {name for name, files, _ in summary(lake) if files} == {"upc"}
        lake.build("product", "few")
        assert {name for name, files, _ in summary(lake) if files} == {"upc", "few"}
        needle_spark.build(spark, lake, "product")
        assert_like_a_local_build(lake, local)


def test_tasks_have_several_files_and_there_are_some_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def sizes(files: int, rows: int, bytes: int, cores: int, most: int = 10**9) -> list[int]:
        tasks = [FileTask(number, str(number), Identity(bytes, 0), frozenset()) for number in range(files)]
        limits = plan.pool_limits(most, files * rows, cores)
        groups = list(plan.group(tasks, dict.fromkeys(range(files), rows), limits))
        assert [file for group in groups for file in group] == tasks
        return [len(group) for group in groups]

    assert sizes(1000, 100_000, 1 << 20, 2) == [20] * 50  # 2 million rows each
    assert set(sizes(1000, 100_000, 1 << 20, 2, most=500_000)) == {5}  # as memory allows
    assert set(sizes(1000, 1000, 128 << 20, 2)) == {2}  # bytes
    assert sizes(600, 0, 0, 2) == [256, 256, 88]
    assert sizes(12, 100_000, 1 << 20, 2) == [2] * 6  # three for each core
    assert sizes(12, 100, 1 << 10, 2) == [12]  # too small to split
    assert sizes(0, 0, 0, 2) == []


def test_one_build_of_a_table_at_a_time(tmp_path: Path, spark) -> None:
    with make_lake(tmp_path / "lake") as lake:
        table = lake.registry.tables.get("product")
        with (
            sorted_runs.alone(lake.registry.locks, lake.store / "scratch" / f"backfill-{table.id}"),
            pytest.raises(needlepoint.UsageError, match="another process builds"),
        ):
            needle_spark.build(spark, lake, "product")


# The command


def needle(root: Path, *arguments: str) -> Result:
    return CliRunner(env={"NEEDLE_LAKE": None}).invoke(main, ["--lake", str(root), "index", "build", *arguments])


def test_the_command(tmp_path: Path, spark) -> None:
    with make_lake(tmp_path / "lake") as lake:
        done = needle(tmp_path / "lake", "product", "--on", "spark", "--index", "id")
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith(f"product: {FILES + 2} files indexed in ")
        assert {name for name, files, _ in summary(lake) if files} == {"id"}
        done = needle(tmp_path / "lake", "product")
        assert done.exit_code == 0
        assert all(files == FILES + 2 for _, files, _ in summary(lake))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["prodct"], 1, "Did you mean 'product'?"),
        (["product", "--index", "titel"], 1, "Did you mean 'titles'?"),
        (["product", "--on", "flink"], 2, "'local', 'spark'"),
        (["product", "--master", "spark://head:7077"], 2, "--on spark"),
        (["product", "--on", "spark", "--config", "x"], 2, "NAME=VALUE"),
        ([], 2, "Missing argument"),
    ],
)
def test_the_command_refuses(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    make_lake(tmp_path / "lake").close()
    done = needle(tmp_path / "lake", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert words in done.stderr


# A cluster of two workers

ON_A_CLUSTER = """
import os, signal, sys
import psutil
import needlepoint
from needlepoint import spark
from needlepoint.indexer import plan, sorted_runs

root, master, worker, far, python_path = sys.argv[1:]
if far:
    spark.pool.SparkPool.reaches = lambda self, directory: self._reached.setdefault(directory, False)
plan.FILES_PER_TASK, sorted_runs.ENTRIES_PER_RANGE = 1, 1500
config = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": python_path,
    "spark.ui.enabled": "false",
    **{f"spark.executorEnv.{name}": os.environ[name] for name in os.environ if name.startswith("AWS_")},
}
kill = [int(worker)] if worker else []

def progress(doing, done, total):
    print(doing, done, total, flush=True)
    if doing == "indexing" and done >= 2 and kill:
        for executor in psutil.Process(kill.pop()).children(recursive=True):
            executor.kill()

session = spark.session(master=master, memory="512m", config=config)
report = spark.build(session, needlepoint.open(root, progress=progress), "product")
session.stop()
print("indexed", report.indexed, len(report.failures))
"""


class Cluster:
    """A master and two workers of one core each, on loopback."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = {
            **os.environ,
            "JAVA_HOME": needle_spark.java_home(),
            "SPARK_HOME": str(Path(sys.modules["pyspark"].__file__ or "").parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        master = self._start("master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.master = self._said("master", master, "Starting Spark master at ").strip()
        self.workers = [
            self._start(
                "worker", self.master, "--host", "127.0.0.1", "--cores", "1", "--memory", "600m",
                "--webui-port", "0", "--work-dir", str(self.directory / str(number)),
            )
            for number in range(2)
        ]  # fmt: skip
        for worker in self.workers:
            self._said("worker", worker, "Successfully registered with master")

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = Path(self._environment["SPARK_HOME"]) / "bin" / "spark-class"
        name = f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"
        with (self.directory / f"{kind}-{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen([program, name, *arguments], env=self._environment, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def _said(self, kind: str, process: subprocess.Popen[bytes], words: str) -> str:
        log = self.directory / f"{kind}-{self._processes.index(process)}.log"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            for line in log.read_text(errors="replace").splitlines():
                if words in line:
                    return line.partition(words)[2]
            time.sleep(0.1)
        raise AssertionError(log.read_text(errors="replace"))

    def build(self, root: Path, *, kill: int | None = None, far: bool = False) -> list[str]:
        """Build in a process of its own, since a process can have only one Spark. `kill` is the number of a worker
        whose executor dies during the build; with `far`, executors are assumed not to reach the lake's directory."""
        python_path = os.pathsep.join([str(Path(needlepoint.__file__).parent.parent), *sys.path])
        worker = "" if kill is None else str(self.workers[kill].pid)
        program = [sys.executable, "-c", ON_A_CLUSTER, str(root), self.master, worker, "far" * far, python_path]
        environment = {**os.environ, **self._environment, **{n: os.environ[n] for n in os.environ if n[:4] == "AWS_"}}
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def executors(self) -> list[int]:
        """How many executors each worker has had."""
        return [len(list((self.directory / str(number)).glob("app-*/*"))) for number in range(2)]

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("pyspark")
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.long
def test_on_a_cluster_where_an_executor_dies(tmp_path: Path, cluster: Cluster, local: Lake) -> None:
    with make_lake(tmp_path / "lake", embed=True) as lake:
        told = cluster.build(tmp_path / "lake", kill=1)
        assert told[0] == f"indexing 0 {FILES + 2}"
        assert told[-1].startswith("indexed ") and told[-1].endswith(" 0")
        before, after = cluster.executors()
        assert before >= 1 and after >= 2
        assert_like_a_local_build(lake, local)
        assert leftovers(lake) == []


@pytest.mark.long
def test_on_a_cluster_over_a_bucket(tmp_path: Path, cluster: Cluster) -> None:
    """The lake is on the driver's disk, the files are in the bucket: results of tasks are sent to the driver."""
    product_lake(tmp_path, files=3, rows=500)
    with aws_server() as server:
        bucket = server.bucket()
        bucket.put_directory(tmp_path / "product", "product")
        with needlepoint.open(tmp_path / "lake", refresh=0, object_refresh=0, access="pages") as lake:
            lake.create_table("product", bucket.url("product"))
            declare(lake)
            told = cluster.build(tmp_path / "lake", far=True)
            assert told[-1] == "indexed 3 0"
            assert {files for _, files, _ in summary(lake)} == {3}
            assert lake.table("product").get(product_id=777).rows()[0]["upc"] == "U000000777"
            assert len(lake.sql("SELECT upc FROM product WHERE title LIKE '%13 dair%'").rows()) == 16
            assert lake.verify("product", samples=4).differences == ()
            assert leftovers(lake) == []
