"""A registry that was moved to another place is closed: the table `moved` says where to, and nothing can be changed.

    moved (place, sequence)   the new place, without a password; empty in a copy that is not finished yet
    sequence                  without its row, in SQLite dropped: every query and every change of any process needs it

So processes that have the old registry open neither read nor change it after the move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from needlepoint.errors import StoreError
from needlepoint.tables.registry.databases.dialects import Dialect
from needlepoint.tables.registry.databases.transaction import RegistryTransaction

if TYPE_CHECKING:
    from needlepoint.tables.registry.databases.database import RegistryDatabase


@dataclass(frozen=True, slots=True)
class MovedMark:
    """`place` is empty in a copy that is not finished. `sequence` counts the changes before."""

    place: str
    sequence: int


def moved_mark(database: RegistryDatabase) -> MovedMark | None:
    """None if the registry was not moved."""
    if not database.read(database.dialect.has_moved):
        return None
    ((place, sequence),) = database.read("SELECT place, sequence FROM moved")
    return MovedMark(place, int(sequence))


def close_registry(transaction: RegistryTransaction, dialect: Dialect, place: str, sequence: int) -> None:
    for statement in closing_statements(dialect):
        transaction.execute(statement)
    transaction.execute("UPDATE moved SET place = ?, sequence = ?", (place, sequence))


def closing_statements(dialect: Dialect) -> tuple[str, ...]:
    """They close a registry that is only being made, as a copy that is not finished."""
    return (
        "CREATE TABLE moved (place TEXT NOT NULL, sequence BIGINT NOT NULL)",
        "INSERT INTO moved VALUES ('', 1)",
        dialect.end_sequence,
    )


def open_registry(transaction: RegistryTransaction, dialect: Dialect) -> None:
    ((sequence,),) = transaction.execute("SELECT sequence FROM moved").fetchall()
    for statement in dialect.begin_sequence:
        transaction.execute(statement)
    transaction.execute("INSERT INTO sequence VALUES (?)", (sequence,))
    transaction.execute("DROP TABLE moved")


def moved_error(here: str, mark: MovedMark | None) -> StoreError:
    if mark is None:
        return StoreError(f"the registry in {here} has no sequence number.", hint="Restore it from a backup.")
    if not mark.place:
        return StoreError(
            f"the registry in {here} is a copy that was not finished.",
            hint="Run the same `needle store copy` again; until then, open the lake as before it.",
        )
    new = "with NEEDLE_REGISTRY, its user and its password" if "://" in mark.place else "without NEEDLE_REGISTRY"
    return StoreError(
        f"the registry in {here} was moved to {mark.place}.",
        hint=f"Open the lake {new}; `needle store copy --registry` from there moves it back.",
    )
