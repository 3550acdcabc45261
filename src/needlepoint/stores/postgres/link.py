"""One connection to PostgreSQL, opened at first use and opened again after a failure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from needlepoint import forks
from needlepoint.stores.postgres.address import PostgresAddress
from needlepoint.stores.postgres.errors import is_lost

PostgresConnection = psycopg.Connection[tuple[Any, ...]]
_Answer = TypeVar("_Answer")

# A client notices a dead server, and the server a dead client, after half a minute.
_CLIENT = {
    "application_name": "needlepoint",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_SESSION = """
SET search_path TO "{schema}";
SET lock_timeout TO '60s';
SET idle_in_transaction_session_timeout TO '120s';
SET tcp_keepalives_idle TO 10;
SET tcp_keepalives_interval TO 5;
SET tcp_keepalives_count TO 3;
SET default_transaction_read_only TO {read_only};
SELECT set_config('synchronous_commit', 'local', false) WHERE current_setting('synchronous_commit') = 'off'
"""


class PostgresLink:
    """For one thread at a time: its owner has a lock. `opened` counts connections: another number is another session,
    without the locks of the one before."""

    def __init__(self, address: PostgresAddress, *, read_only: bool = False) -> None:
        self._address = address
        self._read_only = read_only
        self._connection: PostgresConnection | None = None
        self.opened = 0
        forks.own(self)

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.closed

    def connection(self) -> PostgresConnection:
        """For the next transaction. An interrupt can leave the one before open: it must not go on."""
        known = self._connection
        if known is None or known.closed or known.info.transaction_status != TransactionStatus.IDLE:
            self.drop()
            known = self._connection = self._connect()
            self.opened += 1
        return known

    def _connect(self) -> PostgresConnection:
        given = conninfo_to_dict(self._address.conninfo)
        defaults: dict[str, Any] = {name: value for name, value in _CLIENT.items() if name not in given}
        connection = psycopg.connect(self._address.conninfo, autocommit=True, **defaults)
        try:
            read_only = "on" if self._read_only else "off"
            connection.execute(_SESSION.format(schema=self._address.schema, read_only=read_only).encode())
        except BaseException:
            connection.close()
            raise
        return connection

    def ask(self, use: Callable[[PostgresConnection], _Answer]) -> _Answer:
        """Call a function that can be repeated; once more, on a new connection, if the one at hand was lost."""
        fresh = self._connection is None
        try:
            return use(self.connection())
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            self.drop()
            if fresh:
                raise
        return use(self.connection())

    def drop(self) -> None:
        """Close a connection of unknown state; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def abandon(self) -> None:
        """In a child of the process that opened it, see forks.py: closing it would end the parent's session."""
        if self._connection is not None:
            forks.leak(self._connection)
        self._connection = cast(PostgresConnection, forks.AbandonedHandle())
