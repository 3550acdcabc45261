"""What indexing learns of one file, and its commit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from needlepoint.objects import Identity
from needlepoint.predicate import Bounds
from needlepoint.tables.model import Place
from needlepoint.tables.registry.batches import IDENTITY
from needlepoint.tables.registry.database import RegistryTransaction
from needlepoint.tables.registry.dialects import Dialect


@dataclass(frozen=True, slots=True)
class FileArtifact:
    """What indexing learned of one file; committed as a whole. Bounds and zones are in the file's own units, so they
    stay right when the table changes. `places` are those of payloads, by index. `was` is the identity of the file when
    it was listed, and `identity` the present one: they differ when something was embedded. `own` are the checksums of
    payloads in the file that this lake built from its rows. `sample` is a checksum of the content (objects/base.py)."""

    file_id: int
    was: Identity
    identity: Identity
    rows: int
    row_groups: int
    pages: int
    card: bytes
    bounds: Mapping[str, Bounds]
    zones: Mapping[str, bytes] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    blooms: tuple[str, ...] = ()
    entries: Mapping[int, int] = field(default_factory=dict)
    places: Mapping[int, Place] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    sample: str = ""

    def without_positions(self) -> FileArtifact:
        """What holds for every version of the file, since all have the same rows: nothing that is inside the file."""
        within = {index_id for index_id, place in self.places.items() if not place.pack}
        return replace(
            self,
            entries={index_id: count for index_id, count in self.entries.items() if index_id not in within},
            places={index_id: place for index_id, place in self.places.items() if index_id not in within},
        )


def commit_artifacts(
    connection: RegistryTransaction,
    dialect: Dialect,
    artifacts: Sequence[FileArtifact],
    runs: Sequence[tuple[int, str]],
    entries: Mapping[int, Mapping[int, int]],
) -> None:
    connection.executemany(
        "INSERT INTO runs SELECT id, ? FROM indexes WHERE id = ?", [(name, index_id) for index_id, name in runs]
    )
    connection.executemany(
        "INSERT INTO indexed SELECT files.id, indexes.id, ? FROM files, indexes WHERE files.id = ? AND indexes.id = ? "
        "ON CONFLICT (file_id, index_id) DO UPDATE SET entries = excluded.entries",
        [(count, file, index) for index, files in entries.items() for file, count in files.items()],
    )
    for artifact in artifacts:
        query = f"SELECT {IDENTITY} FROM files WHERE id = ?"
        found = connection.execute(query, (artifact.file_id,)).fetchone()
        if found is None:
            continue
        # Another process may have embedded something and described the new version.
        if Identity(*found) in (artifact.was, artifact.identity):
            _describe(connection, dialect, artifact)
            _cover(connection, artifact)
        else:
            _cover(connection, artifact.without_positions())
            # Readers that cache the places of payloads read them again when a file changed.
            connection.execute("UPDATE files SET rows = rows WHERE id = ?", (artifact.file_id,))


def _describe(connection: RegistryTransaction, dialect: Dialect, artifact: FileArtifact) -> None:
    identity = artifact.identity
    connection.execute(
        """UPDATE files SET size = ?, mtime_ns = ?, etag = ?, ctime_ns = ?, inode = ?, sample = ?, rows = ?,
           row_groups = ?, pages = ?, blooms = ?, problem = NULL WHERE id = ?""",
        (
            *astuple(identity),
            artifact.sample,
            artifact.rows,
            artifact.row_groups,
            artifact.pages,
            json.dumps(artifact.blooms) if artifact.blooms else None,
            artifact.file_id,
        ),
    )
    connection.executemany(
        f"INSERT INTO bounds SELECT table_id, ?, id, ?, ?, ?, ?, ?, ? FROM files WHERE id = ? {_REPLACE_BOUNDS}",
        [
            (column, *_bounds_row(dialect, known), artifact.units.get(column), artifact.file_id)
            for column, known in artifact.bounds.items()
        ],
    )
    connection.executemany(
        "INSERT INTO zones VALUES (?, ?, ?, ?) "
        "ON CONFLICT (file_id, column_name) DO UPDATE SET zones = excluded.zones, unit = excluded.unit",
        [(artifact.file_id, column, zones, artifact.units.get(column)) for column, zones in artifact.zones.items()],
    )
    connection.execute(
        "INSERT INTO cards VALUES (?, ?) ON CONFLICT (file_id) DO UPDATE SET card = excluded.card",
        (artifact.file_id, artifact.card),
    )
    connection.executemany(
        "INSERT INTO own VALUES (?, ?) ON CONFLICT DO NOTHING", [(artifact.file_id, each) for each in artifact.own]
    )


def _cover(connection: RegistryTransaction, artifact: FileArtifact) -> None:
    """Record payloads and entries of a file; an index that was dropped meanwhile has no row to refer to."""
    connection.executemany(
        f"INSERT INTO payloads SELECT ?, id, ?, ?, ?, ?, ?, ?, ? FROM indexes WHERE id = ? {_REPLACE_PAYLOADS}",
        [(artifact.file_id, *astuple(place), index_id) for index_id, place in artifact.places.items()],
    )
    connection.executemany(
        "INSERT INTO indexed SELECT ?, id, ? FROM indexes WHERE id = ? "
        "ON CONFLICT (file_id, index_id) DO UPDATE SET entries = excluded.entries",
        [(artifact.file_id, entries, index_id) for index_id, entries in artifact.entries.items()],
    )


def _bounds_row(dialect: Dialect, known: Bounds) -> tuple[object, ...]:
    return dialect.stored_ordinal(known.low), dialect.stored_ordinal(known.high), known.nulls, known.rows, known.nan


def _replace(key: str, columns: str) -> str:
    return f"ON CONFLICT ({key}) DO UPDATE SET " + ", ".join(
        f"{each} = excluded.{each}" for each in columns.split(", ")
    )


_REPLACE_BOUNDS = _replace("table_id, column_name, file_id", "low, high, nulls, rows, nan, unit")
_REPLACE_PAYLOADS = _replace("index_id, file_id", 'pack, "offset", length, codec, size, checksum, version')
