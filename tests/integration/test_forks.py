"""A child that is forked while a lake is open gets a clear error, and does not disturb its parent's lake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import long

import needlepoint
from needlepoint.tables.locks import TableLocks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

TIMEOUT = 120

START = """
import multiprocessing, os, sys, threading, time
import needlepoint
from needlepoint.errors import UsageError
from needlepoint.lake import lake_opener

root = sys.argv[1]

def in_child(work):
    # The status that the child ended with; a child that hangs is killed by the time limit of the whole script.
    process = os.fork()
    if process == 0:
        work()
        print("still here", flush=True)
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

def refused(work):
    try:
        work()
    except UsageError as error:
        assert "spawn" in str(error) and "fork" in str(error), error
    else:
        raise AssertionError("no error")

def is_whole(lake):
    assert lake.sql("SELECT s FROM t WHERE id = 5").rows() == [{"s": "word5"}]
    assert lake.table("t").get(id=7, columns=["s"]).rows() == [{"s": "word7"}]
    assert lake.sql("SELECT count(*) AS n FROM t").rows() == [{"n": 300}]
    assert lake.sql("SELECT count(*) AS n FROM t WHERE text_match(s, 'word9')").rows() == [{"n": 1}]
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "t").mkdir()
    for number in range(3):
        ids = range(number * 100, number * 100 + 100)
        table = pa.table({"id": list(ids), "s": [f"word{id}" for id in ids]})
        pq.write_table(table, tmp_path / "t" / f"{number}.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        lake.create_index("t", "s", kind="text")
    yield tmp_path


def run(root: Path, code: str) -> str:
    """What a script prints; it must exit with status 0 within the time limit."""
    script = root / "script.py"
    script.write_text(START + textwrap.dedent(code))
    command = [sys.executable, str(script), str(root)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, errors = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, errors = process.communicate()
            pytest.fail(f"it hangs: {out}{errors}")
    assert process.returncode == 0, out + errors
    assert errors == ""
    return out


def test_every_use_in_a_child_is_refused(root: Path) -> None:
    out = run(
        root,
        """
        lake = needlepoint.open(root)
        is_whole(lake)
        table = lake.table("t")
        def work():
            for use in (
                lambda: lake.sql("SELECT count(*) FROM t"), lambda: lake.sql("SHOW INDEXES"), lambda: table.get(id=7),
                lambda: table.schema, lambda: lake.explain("SELECT 1"), lake.tables, lake.sync, lake.status,
                lambda: lake.writer.staging("t"), lambda: lake.create_index("t", "s"), lambda: lake.plan_read("t"),
                lambda: lake.registry.sequence(), lambda: needlepoint.open(root), lambda: lake_opener(lake)(),
                lake.sweep,
            ):
                refused(use)
        assert in_child(work) == 7
        is_whole(lake)
        """,
    )
    assert out == "still here\n"


@pytest.mark.parametrize(
    "end", ["lake.close()", *long("pass", "lake.__exit__(None, None, None)", "del globals()['lake']")]
)
def test_a_child_that_only_ends_changes_nothing(root: Path, end: str) -> None:
    """It exits with its own status, though RocksDB's threads are missing, and removes and writes no file."""
    run(
        root,
        f"""
        from pathlib import Path
        lake = needlepoint.open(root)
        is_whole(lake)
        (store,) = [each for each in lake.index_stores._open.values()]
        secondary = store._secondary.name
        claimed = lake.writer.staging("t")
        def files():
            return {{(str(path), path.stat().st_mtime_ns) for path in Path(root).rglob("*") if path.is_file()}}
        before = files()
        assert in_child(lambda: exec("{end}", globals())) == 7
        assert files() == before
        assert Path(secondary).is_dir()
        assert lake.registry.locks.is_claimed(claimed.name)
        is_whole(lake)
        lake.history.flush()
        table = lake.registry.tables.get("t")
        assert sum(each.sums.times for each in lake.history.shapes(table.id)) == 8
        lake.close()
        assert not Path(secondary).exists()
        """,
    )


@pytest.mark.long
def test_an_index_that_is_open_for_writing(root: Path) -> None:
    """In the child, RocksDB would wait for threads that do not exist, and write to the parent's files."""
    run(
        root,
        """
        lake = needlepoint.open(root)
        (index,) = [each for each in lake.registry.indexes.all() if each.kind == "key"]
        with lake.index_stores.entries(index)._primary() as database:
            database[b"x" * 30] = b""
            assert in_child(lambda: None) == 7
        is_whole(lake)
        """,
    )


@pytest.mark.long
def test_a_fork_beside_threads_that_ask(root: Path) -> None:
    run(
        root,
        """
        lake = needlepoint.open(root)
        done = threading.Event()
        def ask():
            while not done.is_set():
                is_whole(lake)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            assert in_child(lambda: refused(lambda: is_whole(lake))) == 7
        done.set()
        for thread in threads:
            thread.join()
        is_whole(lake)
        """,
    )


@pytest.mark.long
def test_multiprocessing(root: Path) -> None:
    run(
        root,
        """
        def ask_inherited(id):
            return lake.sql(f"SELECT s FROM t WHERE id = {id}").rows()
        def ask_own(id):
            with needlepoint.open(root) as lake:
                return lake.sql(f"SELECT s FROM t WHERE id = {id}").rows()
        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                # Nobody has opened a lake yet.
                assert pool.map(ask_own, [5, 6]) == [[{"s": "word5"}], [{"s": "word6"}]]
            lake = needlepoint.open(root)
            is_whole(lake)
            with multiprocessing.get_context("fork").Pool(2) as pool:
                refused(lambda: pool.map(ask_inherited, [5, 6]))
                refused(lambda: pool.map(ask_own, [5, 6]))
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.map(ask_own, [5]) == [[{"s": "word5"}]]
            is_whole(lake)
        """,
    )


def test_locks_end_with_the_process_that_took_them(root: Path) -> None:
    """A child inherits the open lock files of its parent, and would hold the locks until it exits."""
    code = """
        lake = needlepoint.open(root)
        lake.registry.locks.claim("mine")
        with lake.registry.locks.shared(lake.registry.tables.get("t")):
            child = os.fork()
            if child == 0:
                time.sleep(100)
                os._exit(0)
            print(child, flush=True)
            time.sleep(100)
    """
    script = root / "script.py"
    script.write_text(START + textwrap.dedent(code))
    with subprocess.Popen([sys.executable, str(script), str(root)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            turns = TableLocks(root / ".needlepoint" / "turns")
            assert turns.is_claimed("mine")
            parent.kill()
            parent.wait()
            os.kill(child, 0)  # it is alive
            deadline = time.monotonic() + 30
            while turns.is_claimed("mine") and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not turns.is_claimed("mine")
            with needlepoint.open(root) as lake, turns.exclusive(lake.registry.tables.get("t")):
                pass
        finally:
            os.kill(child, signal.SIGKILL)
