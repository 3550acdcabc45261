"""What the registry knows, as frozen values: tables, their files, their indexes, published batches."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from needlepoint.errors import UnknownName, UsageError
from needlepoint.objects import Identity

LONGEST_NAME = 63
_NAME = re.compile(rf"[a-z_][a-z0-9_]{{0,{LONGEST_NAME - 1}}}")


def check_name(what: str, name: str) -> str:
    """Names are what SQL writes without quotes, so that the same word works in SQL, Python and the CLI."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name {what}.", hint="Use lower-case letters, digits and _, not a digit first."
        )
    return name


@dataclass(frozen=True, slots=True)
class Table:
    """A location of Parquet files. `schema` ends with the Hive partition columns. `mixed` are the columns
    that DataFusion must not filter by itself: timestamps and times that some files have in another unit or zone, and
    decimals with bounds in a wrong order. `format` says what decides which files belong: `parquet` takes all files of
    the location."""

    id: int
    name: str
    location: str
    schema: pa.Schema
    partitions: tuple[str, ...]
    mixed: frozenset[str] = frozenset()
    format: str = "parquet"

    def field(self, column: str) -> pa.Field:
        if column not in self.schema.names:
            raise UnknownName("column", column, self.schema.names, where=f" in table '{self.name}'")
        return self.schema.field(column)

    @property
    def data_columns(self) -> list[str]:
        return [name for name in self.schema.names if name not in self.partitions]

    @property
    def data_schema(self) -> pa.Schema:
        """The schema without the partition columns: what is in the files."""
        return pa.schema([self.schema.field(name) for name in self.data_columns])


@dataclass(frozen=True, slots=True)
class Index:
    """`embed`: its payloads are inside the data files. `options` is a JSON object."""

    id: int
    table_id: int
    name: str
    columns: tuple[str, ...]
    kind: str
    embed: bool = False
    options: str = "{}"

    @property
    def column(self) -> str:
        """The only column, or the first."""
        return self.columns[0]

    @property
    def shown_columns(self) -> str:
        return ", ".join(self.columns)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an index's payload for one file is: in a pack of the store, or, without one, in the file itself.

    `length` bytes are stored, `size` when unpacked; the checksum is of the stored ones.
    """

    pack: str
    offset: int
    length: int
    codec: str
    size: int
    checksum: str
    version: int


@dataclass(frozen=True, slots=True)
class File:
    """One generation of a file: replaced content has another identity and another id.

    `id` is None for a file that is not in the registry (yet); such a file is scanned. `blooms` are the columns with
    bloom filters in the file itself. `problem` says why a file has no card.
    """

    path: str
    identity: Identity
    id: int | None = None
    rows: int | None = None
    row_groups: int | None = None
    pages: int | None = None
    has_card: bool = False
    indexed: frozenset[int] = frozenset()
    blooms: frozenset[str] = frozenset()
    problem: str | None = None


# In the place of a checksum: every payload that is embedded in a file.
ALL = ""


@dataclass(frozen=True, slots=True)
class Move:
    """One file of a batch on its way from staging to its final place, relative to the table's location. `own` as of
    staged_file.py."""

    source: str
    target: str
    rows: int
    own: bool = False


@dataclass(frozen=True, slots=True)
class Removal:
    """One file that a batch removes from its table."""

    file_id: int
    path: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class Batch:
    """`publishing` once its files are safe in staging, `published` once they belong to the table and what it removes
    does not, `removing` once its event is on the queue, `announced` when nothing is left to do; then the registry
    forgets moves and removals. Removed files are deleted after `keep_until`, in seconds since 1970. A batch that cannot
    be committed any more is `abandoned` until its files are gone from the table's location."""

    table_id: int
    batch: str
    state: str
    staging: str
    moves: tuple[Move, ...]
    removals: tuple[Removal, ...] = ()
    keep_until: float = 0.0

    @property
    def rows(self) -> int:
        return sum(move.rows for move in self.moves)

    @property
    def is_committed(self) -> bool:
        """Whether its files are in the table, and those it removes are not."""
        return self.state not in ("publishing", "abandoned")
