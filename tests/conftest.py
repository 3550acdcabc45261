"""Fixtures that every suite may use."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.nodeid import coerce_node_id
from tests.cases import keep_covering, load_profile
from tests.servers import (  # noqa: F401
    mysql_server,
    mysql_url,
    postgres_server,
    postgres_url,
    redis_cluster,
    redis_cluster_url,
    redis_server,
    redis_url,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _keep_files_in_memory() -> None:
    """Lakes sync what they write: on a disk, tests would spend most of their time waiting. Each run has a directory of
    its own: pytest removes those of other runs, even if they still go on."""
    memory = Path("/dev/shm")
    if "TMPDIR" not in os.environ and memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30:
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="needlepoint-tests-", dir=memory)
        atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)


def _accept_interrupts() -> None:
    """A shell lets its background jobs ignore SIGINT. The processes that tests interrupt would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_compiled_modules() -> None:
    """Tests start many processes. Where PYTHONDONTWRITEBYTECODE is set, each would compile all modules again, which
    takes as long as the import of all libraries."""
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


_keep_compiled_modules()
_keep_files_in_memory()
_accept_interrupts()
load_profile()


def pytest_configure(config: pytest.Config) -> None:
    # PySpark warns at every mapInArrow, although no pandas object is involved; in these tests, warnings are errors.
    config.addinivalue_line("filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning")


_COUNTED = [f"tests/property/test_{name}.py" for name in ("answers", "layout", "way_taken")]
_LONG = ("property/test_changes", "property/test_whole_queries", "integration/test_backfill", "integration/test_units")
_FIRST = ("spark", "counted properties", *(f"tests/{name}.py" for name in _LONG))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes share the tests (`-n 3 --dist loadgroup --no-loadscope-reorder`): one begins with all tests
    that need the Spark session, one with the properties that share counters, and the long files come next. The other
    tests go file by file to the process that is free. In a single process, the order is the same."""
    keep_covering(items)
    items.sort(key=lambda item: (*_FIRST, _group(item)).index(_group(item)))
    for item in items:
        if hasattr(item.config, "workerinput"):
            # pytest-xdist 3.8 appends the group to an attribute that pytest 9.2 no longer reads.
            item._id = coerce_node_id(f"{item.nodeid}@{_group(item)}")  # type: ignore[attr-defined]


def _group(item: pytest.Item) -> str:
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    file = item.nodeid.partition("::")[0]
    return "counted properties" if file in _COUNTED else file


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """DuckDB's module prints pages of its own leaks when the interpreter exits, after the summary: suppress that."""
    if hasattr(config, "workerinput"):  # a worker, whose exit is awaited
        # Only at exit: pytest still restores the stderr that it captured.
        atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))
    elif "duckdb" in sys.modules and hasattr(config, "exit_status"):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.exit_status)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.exit_status = int(exitstatus)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for all tests: starting it takes longer than most of them."""
    from needlepoint.spark.session import session

    scratch = tmp_path_factory.mktemp("derby")
    # The second compiler does not pay off for code that runs once or twice: it takes more time than the tests.
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={scratch}"
    active = session("needlepoint tests", cores=2, memory="1g", config={"spark.driver.extraJavaOptions": java})
    yield active
    active.stop()
