"""A registry that is restored from an older backup, while key stores and nodes went on: ids of files and indexes are
given away again, and the stores have entries under them."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.database_servers import PostgresServer

import needlepoint
from needlepoint.errors import StoreError
from needlepoint.indexer import sorted_runs
from needlepoint.indexer.pools import InlinePool
from needlepoint.tables.published import publisher
from needlepoint.tables.registry import Registry

QUERIES = (
    "SELECT count(*) AS n FROM t WHERE id BETWEEN 10 AND 400",
    "SELECT count(*) AS n FROM t WHERE id = 17",
    "SELECT min(id) AS a, max(id) AS b, count(id) AS n FROM t",
    "SELECT id, count(*) AS n FROM t WHERE id < 40 GROUP BY id ORDER BY id",
    "SELECT id, name FROM t WHERE id IN (1, 5, 77, 233, 1000) ORDER BY id, name",
    "SELECT count(*) AS n FROM t WHERE name = 'name 5'",
    "SELECT id, name FROM t ORDER BY id DESC, name LIMIT 5",
)
COUNTED = QUERIES[0]


def write(root: Path, name: str, rows: int) -> None:
    ids = np.random.default_rng(ord(name)).integers(0, 500, rows)
    path = root / "t" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids, "name": [f"name {id % 50}" for id in ids]}), path)


def compare(lake: needlepoint.Lake, root: Path) -> None:
    duckdb.sql(f"CREATE OR REPLACE VIEW t AS SELECT * FROM read_parquet('{root}/t/*.parquet')")
    for query in QUERIES:
        expected = duckdb.sql(query).fetchall()
        assert [tuple(row.values()) for row in lake.sql(query).rows()] == expected, query


def grow(lake: needlepoint.Lake, root: Path) -> None:
    for name in "xyz":
        write(root, name, 500)
        lake.sync()


def grow_and_replace(lake: needlepoint.Lake, root: Path) -> None:
    """The index continues under ids that the backup does not know."""
    grow(lake, root)
    lake.rebuild("t")
    write(root, "w", 500)
    lake.sync()


def grow_by_large_builds(lake: needlepoint.Lake, root: Path) -> None:
    """Their runs are merged by ranges of keys."""
    for name in "xyz":
        write(root, name, 500)
        lake.build("t", pool=InlinePool())


class Backup:
    """Of a registry in SQLite or PostgreSQL."""

    def __init__(self, tmp_path: Path, url: str, server: PostgresServer | None) -> None:
        self._file, self._copy = tmp_path / "store/registry.db", tmp_path / "backup.db"
        self._database, self._server = url.rpartition("/")[2], server

    def make(self) -> None:
        if self._server is not None:
            self._server.execute(f"CREATE DATABASE {self._database}_copy TEMPLATE {self._database}")
            return
        with sqlite3.connect(self._file) as one, sqlite3.connect(self._copy) as other:
            one.backup(other)

    def restore(self) -> None:
        if self._server is not None:
            self._server.execute(f"DROP DATABASE {self._database}")
            self._server.execute(f"CREATE DATABASE {self._database} TEMPLATE {self._database}_copy")
            self._server.execute(f"DROP DATABASE {self._database}_copy")
            return
        for path in self._file.parent.glob("registry.db*"):
            path.unlink()
        shutil.copy(self._copy, self._file)


@pytest.mark.covering
@pytest.mark.parametrize("change", [grow, grow_and_replace, grow_by_large_builds])
@pytest.mark.parametrize("files", ["the same", "others"])
@pytest.mark.parametrize("stores", ["sqlite rocksdb", "sqlite lake:", "sqlite redis", "postgres lake:"])
def test_every_answer_is_right(
    tmp_path: Path,
    stores: str,
    files: str,
    change: Any,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sorted_runs, "FEWEST_ENTRIES_PER_RANGE", 100)
    registry, keys = stores.split()
    root, on_server = tmp_path / "lake", registry == "postgres"
    url = str(request.getfixturevalue("postgres_url")) if on_server else ""
    place = {"rocksdb": "", "redis": "redis_url"}.get(keys, keys)
    place = str(request.getfixturevalue(place)) if place == "redis_url" else place
    backup = Backup(tmp_path, url, request.getfixturevalue("postgres_server") if on_server else None)

    def opened() -> needlepoint.Lake:
        more = {"registry": url, "queue": url} if url else {}
        return needlepoint.open(root, store=tmp_path / "store", keys=place, refresh=0, access="pages", **more)

    for name in "abc":
        write(root, name, 300)
    with opened() as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        lake.create_index("t", "name")
        compare(lake, root)
        assert "counted" in str(lake.explain(COUNTED))
    backup.make()
    with opened() as lake:
        change(lake, root)
        compare(lake, root)
    backup.restore()
    if files == "others":
        for path in (root / "t").glob("[xyzw].parquet"):
            path.unlink()
        for name in "uv":
            write(root, name, 200)
    with opened() as lake:
        compare(lake, root)
        lake.sync()
        compare(lake, root)
        damaged = lake.verify("t").indexes
        assert all("Was the registry restored?" in each.reason for each in damaged)
        write(root, "q", 400)
        lake.sync()
        compare(lake, root)
        lake.sweep(now=True)
        compare(lake, root)
        lake.sync()
        assert not lake.verify("t").indexes
        assert "counted" in str(lake.explain(COUNTED))
        compare(lake, root)


def test_repair_builds_the_index_again(tmp_path: Path) -> None:
    backup = Backup(tmp_path, "", None)
    root = tmp_path / "lake"
    for name in "abc":
        write(root, name, 300)
    with needlepoint.open(root, store=tmp_path / "store", keys="lake:", refresh=0) as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        backup.make()
        grow(lake, root)
    backup.restore()
    (root / "t/x.parquet").unlink()
    with needlepoint.open(root, store=tmp_path / "store", keys="lake:", refresh=0) as lake:
        lake.sync()
        (damage,) = lake.verify("t").indexes
        assert "it has too many entries of" in damage.reason
        assert lake.repair("t")
        assert not lake.verify("t").indexes
        assert "counted" in str(lake.explain(COUNTED))
        compare(lake, root)


@pytest.mark.parametrize("keys", ["", "lake:"])
def test_a_sweep_makes_runs_of_killed_writers_known(tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then, the index finds rows, and counts none."""
    for name in "abc":
        write(tmp_path, name, 300)
    with needlepoint.open(tmp_path, keys=keys, refresh=0) as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        write(tmp_path, "x", 500)

        def killed(*arguments: Any, **more: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Registry, "commit_artifacts", killed)
            lake.sync()
        lake.sync()
        assert "counted" not in str(lake.explain(COUNTED))
        compare(lake, tmp_path)
        assert not lake.verify("t").indexes
        lake.sweep(now=True)
        assert "counted" in str(lake.explain(COUNTED))
        compare(lake, tmp_path)
        assert not lake.verify("t").indexes


@pytest.mark.parametrize("restored", ["registry.db*", "*"])
def test_nodes_get_no_mixture_of_both_states(tmp_path: Path, restored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The restored registry has a larger sequence number than the published state when it is published again."""
    monkeypatch.setattr(publisher, "DELAY", 1000.0)
    root, store, backup = tmp_path / "lake", tmp_path / "store", tmp_path / "backup"

    def opened() -> needlepoint.Lake:
        return needlepoint.open(root, store=store, keys="lake:", refresh=0, shared="on", access="pages")

    def node(name: str) -> needlepoint.Lake:
        places = {"store": tmp_path / "none", "cache": tmp_path / name}
        return needlepoint.open(root, read_only=True, shared="on", refresh=0, access="pages", **places)

    write(root, "a", 300)
    with opened() as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
    shutil.copytree(store, backup)
    with opened() as lake:
        for name in "bcdef":
            write(root, name, 300)
            lake.sync()
        (root / "t/b.parquet").unlink()
        lake.sync()
    with node("first") as reader:
        compare(reader, root)
        for path in store.glob(restored):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in backup.glob(restored):
            shutil.copytree(path, store / path.name) if path.is_dir() else shutil.copy(path, store / path.name)
        with opened() as lake:
            for name in "uvwxyz1234":
                write(root, name, 100)
                lake.sync()
        with pytest.raises(StoreError, match="Open the lake again"):
            reader.sql(COUNTED)
    with node("first") as reader, node("second") as other:
        compare(reader, root)
        compare(other, root)
    with opened() as lake:  # it goes on as any other
        lake.sweep(now=True)
        lake.sync()
        lake.share()
        with node("third") as reader:
            compare(reader, root)
            assert "counted" in str(reader.explain(COUNTED))
            write(root, "5", 100)
            lake.sync()
            lake.share()
            compare(reader, root)
