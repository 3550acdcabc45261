"""Move a registry into another database: from SQLite to PostgreSQL, or back.

Ids stay, since indexes and packs know files by them; so does which ids were ever used, since none is used twice; and so
does the identity of the registry, which is in the names of indexes in the lake and in servers. What is copied is
compared with the original before it counts. Packs of cards are copied too if they are in another place.

    make     the new registry, if there is none, is closed from the beginning (databases/moved.py)
    copy     all rows, in one change of the new registry, which stays closed
    close    the old registry says where the new one is; until here it is the one that counts
    open     the new one counts

No process can change the old one from the beginning of the copy on. A move that is killed is finished by another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from needlepoint.errors import StoreError, UsageError
from needlepoint.predicate import Ordinal
from needlepoint.tables.registry.databases.database import CHANGES_KEPT, RegistryDatabase
from needlepoint.tables.registry.databases.dialects import Dialect, ordinal_of_text
from needlepoint.tables.registry.databases.moved import close_registry, moved_error, moved_mark, open_registry
from needlepoint.tables.registry.databases.transaction import RegistryTransaction
from needlepoint.tables.registry.registry import Registry

# In this order: a row refers to rows of earlier tables.
COPIED = {
    "tables": "id, name, location, schema, partitions, mixed, format",
    "views": "id, name, query",
    "indexes": "id, table_id, name, column_name, kind, columns, embed, options",
    "files": "id, table_id, path, size, mtime_ns, etag, rows, row_groups, pages, blooms, problem, ctime_ns, inode, "
    "sample",
    "card_packs": "id, name, size, etag",
    "cards": "file_id, pack_id, start, length, checksum",
    "bounds": "file_id, table_id, column_name, low, high, nulls, rows, nan, unit, zone_start, zone_length, "
    "zone_checksum",
    "indexed": "file_id, index_id, entries",
    "runs": "index_id, name",
    "batches": "table_id, batch, state, staging, moves, removals, keep_until",
    "payloads": 'file_id, index_id, pack, "offset", length, codec, size, checksum, version',
    "own": "file_id, checksum",
}
_BY_ID = ("tables", "views", "indexes", "files", "card_packs")
_PORTION = 20_000  # files whose rows are in memory at a time

Row = tuple[Any, ...]


def move_registry(source: Registry, target: Registry) -> dict[str, int]:
    """Move all of a registry into an empty one, or finish that. Returns the number of rows of each table. Both are
    opened with `for_move`: one that was moved away from the target can come back."""
    here, there = source.database, target.database
    for each in (here, there):
        each.identity()  # one that has none yet gets it in a transaction of its own
    if (mark := moved_mark(here)) is None:
        with here.between_changes() as transaction:
            _copy(source, target)
            close_registry(transaction, here.dialect, there.describe()[1], here.sequence())
    elif mark.place != there.describe()[1] or there.identity() != here.identity():
        raise moved_error(here.describe()[1], mark)
    if (copy := moved_mark(there)) is not None:
        if copy.place:
            raise moved_error(there.describe()[1], copy)
        with there.between_changes(even_moved=True) as transaction:
            open_registry(transaction, there.dialect)
    return {table: int(there.read(f"SELECT count(*) FROM {table}")[0][0]) for table in COPIED}


def _copy(source: Registry, target: Registry) -> None:
    """Make the target a closed copy of the source, which nobody changes meanwhile."""
    here, there = source.database, target.database
    with there.between_changes(even_moved=True) as transaction:
        mark = moved_mark(there)
        is_empty = not any(there.read(f"SELECT 1 FROM {table} LIMIT 1") for table in _BY_ID)
        if mark is not None and (there.identity() == here.identity() or (is_empty and not mark.place)):
            open_registry(transaction, there.dialect)
            for table in reversed(COPIED):
                transaction.execute(f"DELETE FROM {table}")
        elif mark is not None or not is_empty:
            place = there.describe()[1]
            raise UsageError(f"the registry in {place} is not empty.", hint="Name an empty one to move to.")
        _copy_packs(source, target)
        for table, columns in COPIED.items():
            for rows in _portions(here, table, columns):
                _insert(transaction, there.dialect, table, columns, rows)
        _check(here, there)
        for table in _BY_ID:
            (used,) = here.read(here.dialect.used_id(table))[:1] or [(0,)]
            for statement in there.dialect.use_id(table, int(used[0] or 0)):
                transaction.execute(statement)
        there.adopt(transaction, here.identity())
        # Which files changed last is not copied: nobody may take what there is for all that changed since a state.
        close_registry(transaction, there.dialect, "", here.sequence() + CHANGES_KEPT + 1)


def _portions(database: RegistryDatabase, table: str, columns: str) -> Iterator[list[Row]]:
    """The rows of a table, in the form that both databases have in common."""
    first = columns.partition(",")[0]
    order = ", ".join(str(number + 1) for number in range(min(3, columns.count(",") + 1)))
    query = f"SELECT {columns} FROM {table} WHERE {first} >= ? AND {first} < ? ORDER BY {order}"
    ((low, high),) = database.read(f"SELECT min({first}), max({first}) FROM {table}")
    for start in () if low is None else range(low, high + 1, _PORTION):
        rows = database.read(query, start, start + _PORTION)
        if rows:
            yield _converted(table, columns, rows, _plain)


def _insert(transaction: RegistryTransaction, dialect: Dialect, table: str, columns: str, rows: Sequence[Row]) -> None:
    marks = ", ".join("?" * (columns.count(",") + 1))
    stored = _converted(table, columns, rows, dialect.stored_ordinal)
    transaction.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", stored)


def _check(source: RegistryDatabase, target: RegistryDatabase) -> None:
    for table, columns in COPIED.items():
        pairs = zip(_portions(source, table, columns), _portions(target, table, columns), strict=True)
        if not all(repr(one) == repr(other) for one, other in pairs):  # NaN is not equal to itself
            raise StoreError(f"the copy of '{table}' differs from the original.", hint="Nothing was copied. Retry.")


def _converted(
    table: str, columns: str, rows: Sequence[Row], bound: Callable[[Any], Ordinal | str | None]
) -> list[Row]:
    """Truths as bool, and bounds as `bound` has them."""
    names = columns.split(", ")
    truths = [names.index(name) for name in ("embed", "nan") if name in names]
    bounds = [names.index(name) for name in ("low", "high") if table == "bounds"]
    if not truths and not bounds:
        return list(rows)
    found = []
    for row in rows:
        values = list(row)
        for at in truths:
            values[at] = bool(values[at])
        for at in bounds:
            values[at] = bound(values[at])
        found.append(tuple(values))
    return found


def _plain(stored: Ordinal | str | None) -> Ordinal | None:
    return ordinal_of_text(stored) if isinstance(stored, str) else stored


def _copy_packs(source: Registry, target: Registry) -> None:
    """Durable before the registry names them, as those that a build writes."""
    target.will_be(source.identity())
    there, here = source.cards.packs, target.cards.packs
    names = [name for name in sorted(source.cards.names()) if there.where(name) != here.where(name)]
    known = here.sizes() if names else {}
    for name in names:
        if name not in known:
            with contextlib.suppress(FileNotFoundError):  # a lost pack is built again, here as there
                here.take(there, name)
