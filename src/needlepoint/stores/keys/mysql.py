"""Keys in MySQL or MariaDB, with PyMySQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

import pymysql
from pymysql.constants import CR, ER

from needlepoint.errors import UsageError
from needlepoint.stores.keys.connections import ConnectionPool
from needlepoint.stores.keys.space import ANSWER_SECONDS, CONNECT_SECONDS, ServerCalls
from needlepoint.stores.keys.sql_space import SqlServer
from needlepoint.stores.keys.urls import expanded, parsed, without_secrets

_NAME = "VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
_TABLES = (
    f"""CREATE TABLE IF NOT EXISTS needlepoint_key_stores (lake {_NAME}, index_id BIGINT NOT NULL,
       format INT NOT NULL, key_bytes INT NOT NULL, version {_NAME}, made DOUBLE NOT NULL,
       PRIMARY KEY (lake, index_id)) ENGINE = InnoDB""",
    f"""CREATE TABLE IF NOT EXISTS needlepoint_key_runs (lake {_NAME}, index_id BIGINT NOT NULL,
       name {_NAME}, PRIMARY KEY (lake, index_id, name)) ENGINE = InnoDB""",
    f"""CREATE TABLE IF NOT EXISTS needlepoint_key_parts (id BIGINT PRIMARY KEY, lake {_NAME},
       index_id BIGINT NOT NULL, state SMALLINT NOT NULL, blocks INT NOT NULL, fences INT NOT NULL,
       entries BIGINT NOT NULL, bytes BIGINT NOT NULL, made DOUBLE NOT NULL,
       KEY of_index (lake, index_id)) ENGINE = InnoDB""",
    """CREATE TABLE IF NOT EXISTS needlepoint_key_blocks (part BIGINT NOT NULL, number INT NOT NULL,
       data VARBINARY(8000) NOT NULL, PRIMARY KEY (part, number)) ENGINE = InnoDB""",
)

_LOST = frozenset(
    (
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_CONNECTION_ERROR,
        ER.SERVER_SHUTDOWN,
        ER.LOCK_DEADLOCK,
        ER.LOCK_WAIT_TIMEOUT,
        ER.CON_COUNT_ERROR,
        1927,  # MariaDB: connection was killed
    )
)


class MysqlDialect:
    tables: tuple[str, ...] = _TABLES
    now = "UNIX_TIMESTAMP(SYSDATE(6))"
    insert_once = ("INSERT IGNORE", "")

    def is_missing_table(self, error: Exception) -> bool:
        return bool(error.args) and error.args[0] == ER.NO_SUCH_TABLE

    def lock_tables(self, cursor: Any) -> None:
        """MySQL itself takes turns."""

    def put(self, cursor: Any, part: int, numbers: Sequence[int], blocks: Sequence[bytes]) -> None:
        rows = ", ".join(["(%s, %s, %s)"] * len(blocks))
        values = [value for row in zip([part] * len(blocks), numbers, blocks, strict=True) for value in row]
        cursor.execute(f"REPLACE INTO needlepoint_key_blocks VALUES {rows}", values)

    def fetch(self, cursor: Any, wanted: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], bytes]:
        one = "SELECT part, number, data FROM needlepoint_key_blocks WHERE part = {} AND number IN ({})"
        query = " UNION ALL ".join(one.format(part, ", ".join(map(str, some))) for part, some in wanted.items() if some)
        cursor.execute(query)
        return {(part, number): data for part, number, data in cursor.fetchall()}


def mysql_server(url: str) -> SqlServer:
    arguments = _arguments(url)

    def connect() -> Any:
        return pymysql.connect(**arguments)

    calls = ServerCalls(url, (pymysql.MySQLError,), _is_lost, "MySQL")
    return SqlServer(calls, ConnectionPool(connect), MysqlDialect(), pymysql.MySQLError)


def _arguments(url: str) -> dict[str, Any]:
    parts = parsed(expanded(url))
    query = dict(parse_qsl(parts.query))
    database = unquote(parts.path.strip("/"))
    if not database:
        raise UsageError(f"{without_secrets(url)} names no database.", hint="For example mysql://user@host/database.")
    tls: dict[str, str] = {name: query.pop(name) for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in query}
    if query.pop("tls", "").lower() in ("true", "1", "on"):
        tls["ssl_verify_identity"] = tls["ssl_verify_cert"] = "true"
    if query:
        raise UsageError(
            f"{without_secrets(url)} has the unknown option '{min(query)}'.",
            hint="Known are tls, ssl_ca, ssl_cert and ssl_key.",
        )
    return {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": database,
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": ANSWER_SECONDS,
        "write_timeout": ANSWER_SECONDS,
        "autocommit": True,
        "charset": "utf8mb4",
        **tls,
    }


def _is_lost(error: Exception) -> bool:
    """Whether the request can be tried again: on a new connection, or after the one it collided with."""
    return isinstance(error, pymysql.InterfaceError) or (bool(error.args) and error.args[0] in _LOST)
