"""Keys in PostgreSQL, with psycopg 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from needlepoint.stores.keys.connections import ConnectionPool
from needlepoint.stores.keys.space import ANSWER_SECONDS, CONNECT_SECONDS, ServerCalls
from needlepoint.stores.keys.sql_space import SqlServer
from needlepoint.stores.keys.urls import expanded

_TABLES_LOCK = 0x6E6565646C65  # "needle"

_TABLES = (
    """CREATE TABLE IF NOT EXISTS needlepoint_key_stores (lake text NOT NULL, index_id bigint NOT NULL,
       format int NOT NULL, key_bytes int NOT NULL, version text NOT NULL, made double precision NOT NULL,
       PRIMARY KEY (lake, index_id))""",
    """CREATE TABLE IF NOT EXISTS needlepoint_key_runs (lake text NOT NULL, index_id bigint NOT NULL,
       name text NOT NULL, PRIMARY KEY (lake, index_id, name))""",
    """CREATE TABLE IF NOT EXISTS needlepoint_key_parts (id bigint PRIMARY KEY, lake text NOT NULL,
       index_id bigint NOT NULL, state smallint NOT NULL, blocks int NOT NULL, fences int NOT NULL,
       entries bigint NOT NULL, bytes bigint NOT NULL, made double precision NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS needlepoint_key_parts_of ON needlepoint_key_parts (lake, index_id)",
    """CREATE TABLE IF NOT EXISTS needlepoint_key_blocks (part bigint NOT NULL, number int NOT NULL,
       data bytea NOT NULL, PRIMARY KEY (part, number))""",
    # In the row, as they are: they are small, and do not get smaller.
    "ALTER TABLE needlepoint_key_blocks ALTER COLUMN data SET STORAGE PLAIN",
)


class _Connection(psycopg.Connection[Any]):
    """A connection that does not wait for ever for a server that does not answer."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, timeout or ANSWER_SECONDS)
        except psycopg.errors._WaitTimeout:
            self.close()
            raise psycopg.OperationalError("timeout") from None


class PostgresDialect:
    tables: tuple[str, ...] = _TABLES
    now = "extract(epoch FROM clock_timestamp())::float8"
    insert_once = ("INSERT", "ON CONFLICT DO NOTHING")

    def is_missing_table(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.UndefinedTable)

    def lock_tables(self, cursor: Any) -> None:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_TABLES_LOCK,))

    def put(self, cursor: Any, part: int, numbers: Sequence[int], blocks: Sequence[bytes]) -> None:
        # A second try finds what the first one may have written.
        statement = "DELETE FROM needlepoint_key_blocks WHERE part = %b AND number = ANY(%b::int4[])"
        cursor.execute(statement, (part, list(numbers)))
        with cursor.copy("COPY needlepoint_key_blocks (part, number, data) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(("int8", "int4", "bytea"))
            for number, block in zip(numbers, blocks, strict=True):
                copy.write_row((part, number, block))

    def fetch(self, cursor: Any, wanted: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], bytes]:
        if len(wanted) == 1:
            ((part, numbers),) = wanted.items()
            query = "SELECT number, data FROM needlepoint_key_blocks WHERE part = %b AND number = ANY(%b::int4[])"
            rows = cursor.execute(query, (part, list(numbers)), binary=True).fetchall()
            return {(part, number): data for number, data in rows}
        query = """SELECT part, number, data FROM unnest(%b::int8[], %b::int4[]) AS wanted (p, n)
            JOIN needlepoint_key_blocks ON part = p AND number = n"""
        parts = [part for part, numbers in wanted.items() for _ in numbers]
        listed = [number for numbers in wanted.values() for number in numbers]
        rows = cursor.execute(query, (parts, listed), binary=True).fetchall()
        return {(part, number): data for part, number, data in rows}


def postgres_server(url: str) -> SqlServer:
    def connect() -> Any:
        connection = _Connection.connect(
            expanded(url),
            autocommit=True,
            connect_timeout=int(CONNECT_SECONDS),
            application_name="needlepoint",
            keepalives_idle=30,
        )
        # Blocks are found by their keys, whatever the server believes of tables that it has not analysed yet.
        for name, value in (("enable_seqscan", "off"), ("enable_hashjoin", "off"), ("enable_mergejoin", "off"),
                            ("jit", "off"), ("statement_timeout", f"{int(ANSWER_SECONDS)}s")):  # fmt: skip
            connection.execute(sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        return connection

    calls = ServerCalls(url, (psycopg.Error,), _is_lost, "PostgreSQL")
    return SqlServer(calls, ConnectionPool(connect), PostgresDialect(), psycopg.Error)


def _is_lost(error: Exception) -> bool:
    """Whether the request can be tried again: on a new connection, or after the one it collided with."""
    if isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
        return True
    if "authentication" in str(error) or (getattr(error, "sqlstate", None) or "").startswith("28"):
        return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not isinstance(
        error, psycopg.errors.QueryCanceled | psycopg.errors.DiskFull
    )
