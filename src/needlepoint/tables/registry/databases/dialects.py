"""Where the SQL of the registry differs between SQLite and PostgreSQL.

All other statements are what both understand: ON CONFLICT in the place of INSERT OR REPLACE, `"offset"` in quotes, and
`?` for parameters, which PostgreSQL's connection translates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass

from needlepoint.predicate import Ordinal


@dataclass(frozen=True, slots=True)
class Dialect:
    """`among` is a condition on an id, whose parameter `ids` makes of a list. `index_ids` are those of a group,
    separated by commas. `next_index_id` are statements whose last one returns an id that no index has or gets.
    `stored_ordinal` is how a bound is stored, and `as_number` makes a number of one that has a unit. `used_id` returns
    the greatest id that a table ever had, and `use_id` makes it have had one. `has_moved`, `end_sequence` and
    `begin_sequence` are those of moved.py."""

    among: str
    ids: Callable[[Collection[int]], object]
    index_ids: str
    next_index_id: tuple[str, ...]
    stored_ordinal: Callable[[Ordinal | None], Ordinal | str | None]
    as_number: Callable[[str], str]
    used_id: Callable[[str], str]
    use_id: Callable[[str, int], tuple[str, ...]]
    has_moved: str
    end_sequence: str
    begin_sequence: tuple[str, ...]


def _ordinal_in_sqlite(value: Ordinal | None) -> Ordinal | str | None:
    """A column holds values of any type; of integers, those of 64 bits. Greater ones are kept as text."""
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _ordinal_in_postgres(value: Ordinal | None) -> Ordinal | str | None:
    """A column has one type, and a double precision would round integers: all are text, with a letter before what is
    no integer.

    >>> [_ordinal_in_postgres(value) for value in (2**70, -0.5, b"cow", bytes([0, 255]))]
    ['1180591620717411303424', 'f-0x1.0000000000000p-1', 'tcow', 'x00ff']
    """
    match value:
        case None:
            return None
        case float():  # a NaN is no bound; SQLite takes it for NULL
            return None if value != value else f"f{float(value).hex()}"
        case bytes():
            try:
                text = value.decode()
            except UnicodeDecodeError:
                return f"x{value.hex()}"
            return f"x{value.hex()}" if "\0" in text else f"t{text}"
    return str(int(value))


def ordinal_of_text(text: str) -> Ordinal:
    """What was stored as text.

    >>> ordinal_of_text("f-0x1.0000000000000p-1"), ordinal_of_text("tcow"), ordinal_of_text("-7")
    (-0.5, b'cow', -7)
    """
    match text[:1]:
        case "f":
            return float.fromhex(text[1:])
        case "t":
            return text[1:].encode()
        case "x":
            return bytes.fromhex(text[1:])
    return int(text)


SQLITE = Dialect(
    among="IN (SELECT value FROM json_each(?))",
    ids=lambda ids: json.dumps(list(ids)),
    index_ids="group_concat(index_id)",
    next_index_id=(
        "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'indexes'",
        "SELECT seq FROM sqlite_sequence WHERE name = 'indexes'",
    ),
    stored_ordinal=_ordinal_in_sqlite,
    as_number=str,
    used_id=lambda table: f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",
    use_id=lambda table, used: (
        f"DELETE FROM sqlite_sequence WHERE name = '{table}'",
        f"INSERT INTO sqlite_sequence VALUES ('{table}', {used})",
    ),
    has_moved="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'moved'",
    end_sequence="DROP TABLE sequence",
    begin_sequence=("CREATE TABLE sequence (value INTEGER NOT NULL)",),
)

POSTGRES = Dialect(
    among="= ANY(?)",
    ids=list,
    index_ids="string_agg(CAST(index_id AS TEXT), ',')",
    next_index_id=("SELECT nextval(pg_get_serial_sequence('indexes', 'id'))",),
    stored_ordinal=_ordinal_in_postgres,
    # In this order: a float that has no unit is not cast.
    as_number=lambda column: f"CASE WHEN unit IS NOT NULL THEN CAST({column} AS NUMERIC) END",
    used_id=lambda table: f"SELECT last_value FROM {table}_id_seq WHERE is_called",
    use_id=lambda table, used: (f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {used})",) if used else (),
    has_moved="SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'moved'",
    # Not dropped: that would wait for a process that waits for this transaction.
    end_sequence="DELETE FROM sequence",
    begin_sequence=(),
)
