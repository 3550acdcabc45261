"""The registry's database in PostgreSQL, for writers on many machines.

A change first updates the row with the sequence number, so one process changes at a time, and numbers are in the order
of commits. Whoever changes something under a lock is fenced: its transaction checks that no other process has taken
the lock since, as one does when the connection that held it is lost.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from needlepoint.errors import LockLost, StoreError, UsageError
from needlepoint.stores.postgres import PostgresAddress, PostgresDatabase, PostgresTransaction
from needlepoint.tables.registry.databases import database as registry_database
from needlepoint.tables.registry.databases.dialects import POSTGRES
from needlepoint.tables.registry.databases.moved import closing_statements, moved_error, moved_mark
from needlepoint.tables.registry.databases.postgres_schema import (
    POSTGRES_FORMAT,
    POSTGRES_STATEMENTS,
    POSTGRES_UPGRADES,
)
from needlepoint.tables.registry.databases.transaction import RegistryTransaction

_RAISED = "UPDATE sequence SET value = value + 1 RETURNING txid_current(), value"
_ALONE = "SELECT txid_current() FROM sequence FOR UPDATE"
_PRUNED_EVERY = 32  # changes


class _Fences(threading.local):
    """The locks that a thread holds, with the numbers it got with them."""

    def __init__(self) -> None:
        self.held: list[tuple[str, int]] = []


class PostgresRegistryDatabase(PostgresDatabase):
    dialect = POSTGRES
    format = POSTGRES_FORMAT
    _first = _ALONE

    def __init__(
        self,
        address: PostgresAddress,
        root: Path | str,
        *,
        create: bool = True,
        read_only: bool = False,
        for_move: bool = False,
    ) -> None:
        """One that was moved elsewhere is refused, unless it is opened `for_move`; then a new one is closed."""
        self._fences = _Fences()
        super().__init__(
            address,
            "registry",
            (*POSTGRES_STATEMENTS, *closing_statements(POSTGRES)) if for_move else POSTGRES_STATEMENTS,
            POSTGRES_FORMAT,
            POSTGRES_UPGRADES,
            create=create,
            read_only=read_only,
        )
        self._claim(str(root))
        if not for_move and not self.read("SELECT value FROM sequence"):
            error = self._absent()
            self.close()
            raise error

    def _absent(self) -> StoreError:
        return moved_error(self.address.shown, moved_mark(self))

    def _claim(self, root: str) -> None:
        """UsageError when the schema belongs to another lake: its tables would be taken for those of this one."""
        owners = self.read("SELECT root FROM lake")
        if not owners and not self._read_only:
            with self.write("SELECT txid_current()") as transaction:  # also in a copy that is not finished
                transaction.execute("LOCK TABLE lake IN SHARE ROW EXCLUSIVE MODE")
                made = (root, secrets.token_hex(16))
                transaction.execute("INSERT INTO lake SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM lake)", made)
            owners = self.read("SELECT root FROM lake")
        for (owner,) in owners:
            if owner not in ("", root):  # empty: one lake in several places
                raise UsageError(
                    f"{self.address.shown} is the registry of the lake {owner}, not of {root}.",
                    hint="Name another schema: ?schema=…; or, if it is the same lake in another place, "
                    f"UPDATE {self.address.schema}.lake SET root = ''.",
                )

    def identity(self) -> str:
        return str(self.read("SELECT identity FROM lake")[0][0])

    def adopt(self, transaction: RegistryTransaction, identity: str) -> None:
        transaction.execute("UPDATE lake SET identity = ?", (identity,))

    def sequence(self) -> int:
        found = self.read("SELECT value FROM sequence")
        if not found:
            raise self._absent()
        return int(found[0][0])

    @contextmanager
    def change(self) -> Iterator[PostgresTransaction]:
        with self.write(_RAISED) as transaction:
            self._check_fences(transaction)
            yield transaction
            ((now,),) = transaction.execute("SELECT value FROM sequence").fetchall()
            if now % _PRUNED_EVERY == 0:
                oldest = now - registry_database.CHANGES_KEPT
                transaction.execute("DELETE FROM changes WHERE sequence <= ?", (oldest,))

    def between_changes(self, *, even_moved: bool = False) -> AbstractContextManager[PostgresTransaction]:
        return self.write("SELECT txid_current()" if even_moved else _ALONE)

    @contextmanager
    def fenced(self, name: str, *, shared: bool = False, forget: bool = False) -> Iterator[None]:
        """For the holder of a lock: changes of this thread inside fail with LockLost if the lock was taken by another
        process. A holder that is not `shared` gets a new number, with which all before it are shut out. With `forget`
        the number is deleted at the end, since the lock has a name that few others will have."""
        held = (name, self._enter(name, shared=shared))
        self._fences.held.append(held)
        try:
            yield
        finally:
            self._fences.held.remove(held)
            if forget:
                # A row that stays is replaced by the next holder.
                with suppress(StoreError), self.write() as transaction:
                    transaction.execute("DELETE FROM fences WHERE name = ? AND number = ?", held)

    def _enter(self, name: str, *, shared: bool) -> int:
        update = "SET number = fences.number" if shared else "SET number = excluded.number"
        with self.write() as transaction:
            ((number,),) = transaction.execute(
                f"INSERT INTO fences VALUES (?, nextval('fence_numbers')) ON CONFLICT (name) DO UPDATE {update} "
                "RETURNING number",
                (name,),
            ).fetchall()
        return int(number)

    def _check_fences(self, transaction: PostgresTransaction) -> None:
        for name, number in self._fences.held:
            if not transaction.execute("SELECT 1 FROM fences WHERE name = ? AND number = ?", (name, number)).fetchall():
                raise LockLost(
                    f"the connection to {self.address.shown} was lost, and another process took over this work.",
                    hint="Nothing was changed by this one. Retry: what the other finished is not done twice.",
                )

    def checkpoint(self, *, whole: bool = False) -> None:
        """PostgreSQL frees room by itself. With `whole` the tables are rewritten."""
        if not whole:
            return
        names = [name for (name,) in self.read("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]
        with self._write_lock, self.errors():
            for name in sorted(names):
                self._writing.connection().execute(f'VACUUM FULL "{name}"'.encode())

    def describe(self) -> tuple[str, str, int]:
        query = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
                   WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = ?)"""
        return "postgresql", self.address.shown, int(self.read(query, self.address.schema)[0][0])
