"""A sweep of a key index and a writer of the same index, each in the middle of the other. A sweep that waits for nobody
copies no entries of files that nobody has committed: the writer makes them again, or the files are scanned until the
next sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_restored_registry import COUNTED, compare, write

import needlepoint
from needlepoint.indexer import sorted_runs
from needlepoint.indexer.pools import InlinePool
from needlepoint.tables.registry import Registry
from needlepoint.tables.registry.index_generations import IndexGenerations

pytestmark = pytest.mark.long
STORES = ["rocksdb", "lake:", "redis_url", "postgres_url"]


@pytest.fixture(params=STORES)
def keys(request: pytest.FixtureRequest) -> str:
    of = request.param
    return str(request.getfixturevalue(of)) if of.endswith("_url") else of.removeprefix("rocksdb")


@pytest.fixture(params=["small", "large"])
def grow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[needlepoint.Lake, Path], None]:
    """Add two files and index them: as one run, or as runs of several ranges."""
    monkeypatch.setattr(sorted_runs, "FEWEST_ENTRIES_PER_RANGE", 100)

    def grown(lake: needlepoint.Lake, root: Path) -> None:
        for name in "xy":
            write(root, name, 500)
        lake.build("t", pool=InlinePool() if request.param == "large" else None)

    return grown


@contextmanager
def once_before(owner: Any, name: str, act: Callable[[], None], patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Do something in the middle: before the first call of a method, not of the calls in it."""
    called, method = list[str](), getattr(owner, name)

    def wrapped(self: Any, *arguments: Any, **more: Any) -> Any:
        if not called:
            called.append(name)
            act()
        return method(self, *arguments, **more)

    with patch.context() as context:
        context.setattr(owner, name, wrapped)
        yield called


def make(lake: needlepoint.Lake, root: Path) -> None:
    lake.create_table("t")
    lake.create_index("t", "id")
    lake.create_index("t", "name")
    (root / "t/c.parquet").unlink()  # so that there are entries to remove
    lake.sync()


def check(lake: needlepoint.Lake, root: Path) -> None:
    compare(lake, root)
    lake.sync()
    compare(lake, root)
    assert not lake.verify("t").indexes
    assert {index.files for index in lake.status().tables[0].indexes} == {4}
    lake.sweep(now=True)
    lake.sync()
    assert "counted" in str(lake.explain(COUNTED))
    compare(lake, root)
    assert not lake.verify("t").indexes


def test_a_sweep_between_the_entries_of_a_run_and_its_commit(
    tmp_path: Path, keys: str, grow: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        write(tmp_path, name, 300)

    def sweep() -> None:
        with needlepoint.open(tmp_path, keys=keys, refresh=0) as other:
            assert other.sweep(now=True).entries > 0
            compare(other, tmp_path)

    with needlepoint.open(tmp_path, keys=keys, refresh=0, access="pages") as lake:
        make(lake, tmp_path)
        with once_before(Registry, "commit_artifacts", sweep, monkeypatch) as called:
            grow(lake, tmp_path)
        assert called
        check(lake, tmp_path)


def test_a_writer_that_commits_while_a_sweep_copies(
    tmp_path: Path, keys: str, grow: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        write(tmp_path, name, 300)

    def commit() -> None:
        with needlepoint.open(tmp_path, keys=keys, refresh=0) as other:
            grow(other, tmp_path)
            compare(other, tmp_path)

    with needlepoint.open(tmp_path, keys=keys, refresh=0, access="pages") as lake:
        make(lake, tmp_path)
        with once_before(IndexGenerations, "replace", commit, monkeypatch) as called:
            lake.sweep(now=True)
        assert called
        check(lake, tmp_path)
