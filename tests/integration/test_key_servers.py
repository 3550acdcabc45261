"""Lakes whose key indexes are in servers answer as DuckDB does, through changes, faults and moves."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.cases import cases, long
from tests.database_servers import PASSWORD, PostgresServer, RedisServer

import needlepoint
from needlepoint.cli import main
from needlepoint.errors import StoreError, UsageError
from needlepoint.indexer.pools import InlinePool
from needlepoint.lake.upkeep import store_copy
from needlepoint.query.kept_plans import LONGEST_KEPT
from needlepoint.stores.keys import block_store, space, sql_space
from needlepoint.stores.keys import redis as redis_space
from needlepoint.stores.keys.space import READ_PAUSE

SERVERS = {"postgres": "postgres_url", "mysql": "mysql_url", "redis": "redis_url", "cluster": "redis_cluster_url"}
QUERIES = (
    "SELECT count(*), sum(number) FROM item WHERE id = 17",
    "SELECT name, number FROM item WHERE id IN (1, 5, 300, 77777) ORDER BY name, number",
    "SELECT name, number FROM item WHERE id BETWEEN 40 AND 60 ORDER BY name, number",
    "SELECT number FROM item WHERE name = 'name 33' ORDER BY number",
    "SELECT max(id), min(id) FROM item",
    "SELECT id, number FROM item ORDER BY id DESC, number LIMIT 5",
)


def default(name: str) -> pytest.MarkDecorator:
    """Only on this server by default, on each in `make test-all`. The first test below runs on each but the cluster."""
    others = [each for each in SERVERS if each != name]
    return pytest.mark.parametrize("keys", [name, *long(*others)], indirect=True)


@pytest.fixture(params=[*[name for name in SERVERS if name != "cluster"], *long("cluster")])
def keys(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(SERVERS[request.param]))


def write(root: Path, number: int, rows: int = 2000) -> Path:
    random = np.random.default_rng(number)
    ids = random.integers(0, 1000, rows)
    table = pa.table(
        {"id": ids, "name": [f"name {each % 50}" for each in ids], "number": random.integers(0, 10**9, rows)}
    )
    path = root / "item" / f"{number}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=500, write_page_index=True)
    return path


def check(lake: needlepoint.Lake, root: Path, *, used: bool | None = True) -> None:
    """All answers are those of DuckDB, and the index gave them, or a scan; with None either."""
    with duckdb.connect() as judge:
        judge.execute(f"CREATE VIEW item AS SELECT * FROM read_parquet('{root}/item/*.parquet')")
        for query in QUERIES:
            expected = [tuple(row) for row in judge.execute(query).fetchall()]
            assert [tuple(row.values()) for row in lake.sql(query).rows()] == expected, query
    assert used is None or ("item_id_key (key): used" in str(lake.explain(QUERIES[0]))) is used


def test_a_lake_with_its_keys_in_a_server(tmp_path: Path, keys: str) -> None:
    for number in range(3):
        write(tmp_path, number)
    with needlepoint.open(tmp_path, keys=keys, access="pages") as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        lake.sql("CREATE INDEX ON item USING key (name)")
        check(lake, tmp_path)
        assert not list((tmp_path / ".needlepoint" / "indexes").glob("*/*.sst"))
        write(tmp_path, 3).touch()
        write(tmp_path, 0, 100)
        lake.sync()
        check(lake, tmp_path)
        (tmp_path / "item" / "1.parquet").unlink()
        lake.sync()
        before = {index.name: index.id for index in lake.registry.indexes.all()}
        assert lake.sweep(now=True).entries > 0
        assert all(index.id != before[index.name] for index in lake.registry.indexes.all())
        assert lake.index_stores.ids() == sorted(index.id for index in lake.registry.indexes.all())
        check(lake, tmp_path)
        lake.rebuild("item")
        assert lake.index_stores.ids() == sorted(index.id for index in lake.registry.indexes.all())
        check(lake, tmp_path)
        assert not lake.verify("item").differences
        shown = [index for table in lake.status().tables for index in table.indexes]
        assert all(index.bytes > 0 and index.store and not index.problem and not index.dead for index in shown)
        assert PASSWORD not in str(lake.status())
    with needlepoint.open(tmp_path, keys=keys, read_only=True, access="pages") as reader:
        check(reader, tmp_path)
    with needlepoint.open(tmp_path, keys=keys, access="pages") as lake:
        lake.drop_index("item_id_key")
        assert lake.index_stores.ids() == [lake.registry.indexes.get("item_name_key").id]
        check(lake, tmp_path, used=False)
        lake.drop_table("item")
        assert lake.index_stores.ids() == []


@default("redis")
def test_a_large_build(tmp_path: Path, keys: str) -> None:
    """Its runs are sorted by tasks, merged by ranges, and ingested as one batch."""
    for number in range(4):
        write(tmp_path, number)
    with needlepoint.open(tmp_path, keys=keys, access="pages") as lake:
        lake.create_table("item")
        lake.create_index("item", "id", build=False)
        lake.create_index("item", "name", build=False)
        lake.build("item", pool=InlinePool())
        check(lake, tmp_path)
        assert not lake.verify("item").differences


@default("redis")
def test_the_password_is_kept_nowhere(tmp_path: Path, keys: str) -> None:
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, keys=keys) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        assert PASSWORD not in repr(lake.settings)
    for path in (tmp_path / ".needlepoint").rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes()


@default("postgres")
def test_each_index_can_have_a_store(tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 0)
    monkeypatch.setenv("OF_THE_TEST", PASSWORD)
    url = keys.replace(PASSWORD, "${OF_THE_TEST}")
    with needlepoint.open(tmp_path, access="pages") as lake:
        lake.create_table("item")
        with pytest.raises(UsageError, match=r"has a password.*\$\{NAME\}") as refused:
            lake.create_index("item", "id", store=keys)
        assert PASSWORD not in str(refused.value)
        lake.create_index("item", "id", store=url)
        lake.sql(f"CREATE INDEX ON item USING key (number) WITH (store = '{url}')")
        lake.create_index("item", "name")
        check(lake, tmp_path)
        served = [i.id for i in lake.registry.indexes.all() if i.name != "item_name_key"]
        assert sorted(lake.index_stores._servers.ids()) == sorted(served)
    monkeypatch.delenv("OF_THE_TEST")
    with needlepoint.open(tmp_path, access="pages") as lake:
        check(lake, tmp_path, used=False)
        assert "OF_THE_TEST is not set" in str(lake.explain(QUERIES[0]))
        problems = [index.problem for index in lake.status().tables[0].indexes]
        assert ["OF_THE_TEST is not set" in each for each in problems] == [True, False, True]


@default("postgres")
def test_indexes_move_between_stores(tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 0)
    write(tmp_path, 1)
    monkeypatch.setenv("OF_THE_TEST", PASSWORD)
    url = keys.replace(PASSWORD, "${OF_THE_TEST}")
    with needlepoint.open(tmp_path, access="pages") as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        lake.create_index("item", "name")
        there = lake.copy_store("rocksdb", url)
        assert [each.name for each in there] == ["item_id_key", "item_name_key"]
        assert all(each.entries == 4000 and each.bytes and each.checks for each in there)
        assert sorted(lake.index_stores._servers.ids()) == sorted(i.id for i in lake.registry.indexes.all())
        assert not [*(tmp_path / ".needlepoint" / "indexes").glob("*/*")]
        check(lake, tmp_path)
        assert lake.copy_store("rocksdb", url) == []
        with pytest.raises(UsageError, match="the same"):
            lake.copy_store(url, url)
        with pytest.raises(UsageError, match="not in that store"):
            lake.copy_store("rocksdb", url, "item_id_key")
        assert [each.name for each in lake.copy_store(url, "rocksdb", "item_id_key")] == ["item_id_key"]
        check(lake, tmp_path)
        write(tmp_path, 2)
        lake.sync()
        check(lake, tmp_path)
        assert [index.store != "" for index in lake.status().tables[0].indexes] == [False, True]


@default("postgres")
def test_an_index_of_an_older_format_is_built_again(tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is its upgrade: until the next sync queries scan, and no writer adds anything to it."""
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, keys=keys) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
    for module in (sql_space, redis_space, block_store):
        monkeypatch.setattr(module, "FORMAT", space.FORMAT + 1)
    with needlepoint.open(tmp_path, keys=keys, access="pages") as lake:
        before = lake.registry.indexes.get("item_id_key").id
        check(lake, tmp_path, used=False)
        assert "has the old format 1" in str(lake.explain(QUERIES[0]))
        write(tmp_path, 1)
        lake.sync()
        check(lake, tmp_path)
        index = lake.registry.indexes.get("item_id_key")
        assert index.id != before and lake.index_stores.ids() == [index.id]
        assert lake.verify("item").is_sound


@pytest.mark.parametrize("servers", [("postgres", "redis"), *long((("postgres", "mysql", "redis", "cluster"),))])
def test_indexes_move_between_any_two_stores(
    tmp_path: Path, servers: tuple[str, ...], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each to each other, and nothing of them stays behind."""
    monkeypatch.setattr(store_copy, "SAMPLES", cases(20, 3))
    monkeypatch.setenv("OF_THE_TEST", PASSWORD)
    urls = [request.getfixturevalue(SERVERS[name]).replace(PASSWORD, "${OF_THE_TEST}") for name in servers]
    places = ["rocksdb", "lake:", *urls]
    there_and_back = [pair for one, other in itertools.combinations(places, 2) for pair in ((one, other), (other, one))]
    write(tmp_path, 0)
    write(tmp_path, 1)
    with needlepoint.open(tmp_path, access="pages", refresh=0) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        lake.create_index("item", "name")
        at = "rocksdb"
        for source, target in there_and_back:
            if at != source:
                lake.copy_store(at, source)
            moved = lake.copy_store(source, target)
            assert [(each.entries, each.checks > 0) for each in moved] == [(4000, True)] * 2
            at = target
            check(lake, tmp_path)
            shown = {index.store for index in lake.status().tables[0].indexes}
            assert shown == {"" if target == "rocksdb" else target}
            assert lake.index_stores.ids() == sorted(index.id for index in lake.registry.indexes.all())
        assert lake.verify("item").is_sound


@default("redis")
def test_two_lakes_share_a_server(tmp_path: Path, keys: str) -> None:
    for name in ("one", "other"):
        write(tmp_path / name, len(name))
        with needlepoint.open(tmp_path / name, keys=keys) as lake:
            lake.create_table("item")
            lake.create_index("item", "id")
    with needlepoint.open(tmp_path / "one", keys=keys, access="pages") as one:
        one.drop_table("item")
        one.sweep(now=True)
    with needlepoint.open(tmp_path / "other", keys=keys, access="pages") as other:
        check(other, tmp_path / "other")


@default("redis")
def test_what_a_killed_process_left_is_swept(tmp_path: Path, keys: str) -> None:
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, keys=keys, access="pages") as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        index = lake.registry.indexes.get("item_id_key")
        lake.index_stores._servers.space(keys, 999).create(8)
        lake.sync()
        assert lake.index_stores.ids() == [index.id, 999]  # another process may be filling it
        lake.sweep(now=True)
        assert lake.index_stores.ids() == [index.id]
        check(lake, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["postgres", "redis"])
def test_a_server_that_goes_away_and_comes_back(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    keys = request.getfixturevalue(SERVERS[name])
    server: PostgresServer | RedisServer = request.getfixturevalue(f"{name}_server")
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, keys=keys, access="pages", block_bytes=0) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        check(lake, tmp_path)
        server.stop()
        check(lake, tmp_path, used=None)  # plans of queries that run again are kept, with the rows that they read
        time.sleep(LONGEST_KEPT)
        for _ in range(3):
            check(lake, tmp_path, used=False)
        shown = str(lake.explain(QUERIES[0]))
        assert "does not answer" in shown and PASSWORD not in shown
        (index,) = lake.status().tables[0].indexes
        assert "does not answer" in index.problem and PASSWORD not in index.problem
        with pytest.raises(StoreError):
            lake.create_index("item", "number")
        assert [each.name for each in lake.registry.indexes.all()] == ["item_id_key"]
        server.start()
        time.sleep(max(READ_PAUSE, LONGEST_KEPT))
        check(lake, tmp_path)


def test_a_redis_that_lost_everything(tmp_path: Path, redis_url: str, redis_server: RedisServer) -> None:
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, keys=redis_url, access="pages", block_bytes=0) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        check(lake, tmp_path)
        redis_server.client().flushall()
        check(lake, tmp_path, used=None)
        time.sleep(LONGEST_KEPT)
        check(lake, tmp_path, used=False)
        lake.sync()
        check(lake, tmp_path)


def test_tables_that_were_dropped(tmp_path: Path, postgres_url: str, postgres_server: PostgresServer) -> None:
    write(tmp_path, 0)
    database = postgres_url.rpartition("/")[2]
    with needlepoint.open(tmp_path, keys=postgres_url, access="pages", block_bytes=0) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        for table in ("needlepoint_key_blocks", "needlepoint_key_runs", "needlepoint_key_stores"):
            check(lake, tmp_path)
            postgres_server.execute(f"DROP TABLE {table}", database)
            write(tmp_path, 1)
            lake.sync()
            check(lake, tmp_path)


def test_an_index_whose_server_is_away_is_dropped_and_swept_later(
    tmp_path: Path, redis_url: str, redis_server: RedisServer
) -> None:
    write(tmp_path, 0)
    with needlepoint.open(tmp_path, keys=redis_url) as lake:
        lake.create_table("item")
        lake.create_index("item", "id")
        id = lake.registry.indexes.get("item_id_key").id
        redis_server.stop()
        lake.drop_index("item_id_key")
        redis_server.start()
    with needlepoint.open(tmp_path, keys=redis_url) as lake:
        assert lake.index_stores.ids() == [id]
        lake.sweep(now=True)
        assert lake.index_stores.ids() == []


def test_the_command_line(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 0)
    monkeypatch.setenv("OF_THE_TEST", PASSWORD)
    url = redis_url.replace(PASSWORD, "${OF_THE_TEST}")

    def needle(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["--lake", str(tmp_path), *arguments])
        assert done.exit_code == 0, done.output
        assert PASSWORD not in done.output
        return done.output

    needle("create-table", "item")
    needle("create-index", "item", "id", "--option", f"store={url}")
    assert f"item_id_key is in {url}" in " ".join(needle("status").split())
    assert "answers as a scan's" in needle("store", "copy", url, "rocksdb")
    assert "no key index" in needle("store", "copy", url, "rocksdb")
    assert "redis" not in needle("status")


def test_urls_that_are_no_stores(tmp_path: Path) -> None:
    write(tmp_path, 0)
    for url in ("ftp://host/a", "redis:", "nothing", "mysql://host", "lake:elsewhere"):
        with needlepoint.open(tmp_path) as lake:
            if not lake.tables():
                lake.create_table("item")
            with pytest.raises(UsageError):
                lake.create_index("item", "id", store=url)
            with pytest.raises(UsageError, match="only a key index"):
                lake.create_index("item", "name", "bloom", store="redis://localhost")
            assert lake.registry.indexes.all() == []


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import needlepoint, sys; print([m for m in ('psycopg', 'pymysql', 'redis') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
