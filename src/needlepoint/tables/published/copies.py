"""Checkpoints and deltas of a registry: SQLite databases, compressed with zstd.

    checkpoint   the tables of the registry as they are, without the batches that are done
    delta        the tables with rows of files (BY_FILE), only for the files that changed; the others whole

The triggers that note changes are in neither: a copy has the changes that the registry noted itself.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import xxhash

from needlepoint.errors import StoreError
from needlepoint.tables.registry.databases import database as registry_database

# Tables with rows of files, and the column with the id of the file.
BY_FILE = {
    "files": "id",
    "cards": "file_id",
    "bounds": "file_id",
    "indexed": "file_id",
    "payloads": "file_id",
    "own": "file_id",
}
_WITH_INDEX = ("indexed", "payloads")  # of those, the ones whose rows end with their index
# Readers ask for unfinished batches only.
_ROWS = {"batches": "WHERE state <> 'announced'"}
_PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class RegistryCopy:
    """A checkpoint or delta that was made: the state of the registry in it, and how many files it has rows of."""

    sequence: int
    schema: int
    files: int


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database of a registry, for copying from it or into a copy."""
    with _errors():
        connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def _errors() -> Iterator[None]:
    """The border: what SQLite raises becomes a StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(
            f"the registry cannot be copied: {error}.", hint="Check permissions, and room on the disk."
        ) from error


def make_checkpoint(connection: sqlite3.Connection, target: Path) -> RegistryCopy:
    """Copy the registry as it is now into a new database."""
    connection.execute("VACUUM INTO ?", (str(target),))
    with opened(target) as copy:
        copy.execute("PRAGMA synchronous = OFF")
        copy.execute("PRAGMA journal_mode = OFF")
        for (trigger,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            copy.execute(f"DROP TRIGGER {trigger}")
        copy.execute("DELETE FROM batches WHERE state = 'announced'")
        files = int(copy.execute("SELECT count(*) FROM files").fetchone()[0])
        return RegistryCopy(_sequence(copy), _schema(copy), files)


def changed_files(connection: sqlite3.Connection, first: int) -> int | None:
    """How many files changed after a sequence number; None if the registry does not know any more."""
    if first < _sequence(connection) - registry_database.CHANGES_KEPT:
        return None
    query = "SELECT count(DISTINCT file_id) FROM changes WHERE sequence > ?"
    return int(connection.execute(query, (first,)).fetchone()[0])


def make_delta(connection: sqlite3.Connection, target: Path, first: int) -> RegistryCopy | None:
    """Write what changed after a sequence number into a new database; None if that is not known any more."""
    connection.execute("ATTACH ? AS delta", (str(target),))
    try:
        connection.execute("PRAGMA delta.synchronous = OFF")
        connection.execute("PRAGMA delta.journal_mode = OFF")
        connection.execute("BEGIN")
        try:
            if changed_files(connection, first) is None:
                return None
            connection.execute(
                """CREATE TABLE delta.changed AS
                   SELECT DISTINCT file_id FROM main.changes WHERE sequence > ? ORDER BY file_id""",
                (first,),
            )
            connection.execute("CREATE TABLE delta.changes AS SELECT * FROM main.changes WHERE sequence > ?", (first,))
            for table in _tables(connection):
                rows = _ROWS.get(table, "")
                if table in BY_FILE:
                    rows = f"WHERE {BY_FILE[table]} IN (SELECT file_id FROM delta.changed)"
                connection.execute(f"CREATE TABLE delta.{table} AS SELECT * FROM main.{table} {rows}")
            files = int(connection.execute("SELECT count(*) FROM delta.changed").fetchone()[0])
            made = RegistryCopy(_sequence(connection), _schema(connection), files)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return made
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
        connection.execute("DETACH delta")


def apply_deltas(connection: sqlite3.Connection, deltas: list[Path]) -> None:
    """Bring a copy of the registry to the state of the last of these deltas, in one transaction."""
    names = [f"delta{number}" for number in range(len(deltas))]
    for start in range(0, len(deltas), _ATTACHED):
        some = deltas[start : start + _ATTACHED]
        with _errors(), _attached(connection, some, names), _transaction(connection):
            for name, _ in zip(names, some, strict=False):
                _apply(connection, name)


# SQLite attaches ten databases. More deltas than that take several transactions, each of a state that was published.
_ATTACHED = 8


def _apply(connection: sqlite3.Connection, delta: str) -> None:
    dropped = [
        id
        for (id,) in connection.execute(f"SELECT id FROM main.indexes WHERE id NOT IN (SELECT id FROM {delta}.indexes)")
    ]
    for table in _tables(connection):
        column = BY_FILE.get(table)
        gone = "" if column is None else f"WHERE {column} IN (SELECT file_id FROM {delta}.changed)"
        connection.execute(f"DELETE FROM main.{table} {gone}")
    for table in _WITH_INDEX:
        connection.executemany(f"DELETE FROM main.{table} WHERE index_id = ?", [(id,) for id in dropped])
    for table in _tables(connection):
        connection.execute(f"INSERT INTO main.{table} SELECT * FROM {delta}.{table}")
    connection.execute(f"INSERT OR REPLACE INTO main.changes SELECT * FROM {delta}.changes")
    connection.execute(
        "DELETE FROM main.changes WHERE sequence <= (SELECT value - ? FROM main.sequence)",
        (registry_database.CHANGES_KEPT,),
    )


def load_checkpoint(connection: sqlite3.Connection, checkpoint: Path) -> None:
    """Replace all rows of a copy of the registry by those of a checkpoint, in one transaction."""
    with _errors(), _attached(connection, [checkpoint], ["checkpoint"]), _transaction(connection):
        for table in (*_tables(connection), "changes"):
            connection.execute(f"DELETE FROM main.{table}")
            connection.execute(f"INSERT INTO main.{table} SELECT * FROM checkpoint.{table}")


def packs_of(connection: sqlite3.Connection) -> tuple[set[str], set[tuple[int, str]]]:
    """The packs that a checkpoint or delta refers to: those of cards by name, those of indexes with the index."""
    cards = {name for (name,) in connection.execute("SELECT name FROM card_packs")}
    return cards, set(connection.execute("SELECT DISTINCT index_id, pack FROM payloads WHERE pack <> ''"))


def sequence_of(connection: sqlite3.Connection) -> int:
    """The state of a registry or of a copy of it."""
    with _errors():
        return _sequence(connection)


def pack(source: Path, target: Path) -> tuple[int, str]:
    """Compress a file. Returns the size and checksum of what was written."""
    try:
        with (
            source.open("rb") as file,
            pa.OSFile(str(target), "wb") as raw,
            pa.CompressedOutputStream(raw, "zstd") as out,
        ):
            while piece := file.read(_PIECE):
                out.write(piece)
        return checksum_of(target)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{target} cannot be written: {error}.", hint="Check permissions and room.") from error


def checksum_of(path: Path) -> tuple[int, str]:
    """The size and checksum of a file."""
    found, size = xxhash.xxh3_128(), 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            found.update(piece)
            size += len(piece)
    return size, found.hexdigest()


def is_intact(path: Path, size: int, checksum: str) -> bool:
    """Whether a file has exactly these bytes."""
    try:
        return path.stat().st_size == size and checksum_of(path) == (size, checksum)
    except OSError:
        return False


def unpack(source: Path, target: Path) -> None:
    """Decompress a file that is intact."""
    try:
        with pa.OSFile(str(source)) as raw, pa.CompressedInputStream(raw, "zstd") as packed, target.open("wb") as file:
            while piece := packed.read(_PIECE):
                file.write(piece)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{source} cannot be unpacked: {error}.", hint="Check permissions and room.") from error


def _tables(connection: sqlite3.Connection) -> list[str]:
    """All tables but the changes."""
    query = "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in connection.execute(query).fetchall() if name != "changes"]


def _sequence(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT value FROM main.sequence").fetchone()[0])


def _schema(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA main.user_version").fetchone()[0])


@contextmanager
def _attached(connection: sqlite3.Connection, paths: list[Path], names: list[str]) -> Iterator[None]:
    done: list[str] = []
    try:
        for path, name in zip(paths, names, strict=False):
            connection.execute(f"ATTACH ? AS {name}", (str(path),))
            done.append(name)
        yield
    finally:
        for name in done:
            with contextlib.suppress(sqlite3.Error):  # the first error says what is wrong
                connection.execute(f"DETACH {name}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
