"""What indexing learns of one file, and its commit."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from needlepoint.objects import Identity
from needlepoint.predicate import Bounds
from needlepoint.stores import PackPiece
from needlepoint.tables.model import Place
from needlepoint.tables.registry.batches import IDENTITY
from needlepoint.tables.registry.card_packs import CardContent, CardPack, PlacedCard, insert_cards, insert_pack
from needlepoint.tables.registry.databases.dialects import Dialect
from needlepoint.tables.registry.databases.transaction import RegistryTransaction


@dataclass(frozen=True, slots=True)
class FileArtifact:
    """What indexing learned of one file; committed as a whole. Bounds and zones are in the file's own units, so they
    stay right when the table changes; zones are of columns with bounds. `places` are those of payloads, by index. `was`
    is the identity of the file when it was listed, and `identity` the present one: they differ when something was
    embedded. `own` are the checksums of payloads in the file that this lake built from its rows. `sample` is a checksum
    of the content (objects/base.py)."""

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

    @property
    def content(self) -> CardContent:
        """What a pack keeps of it."""
        zones = {column: zones for column, zones in self.zones.items() if column in self.bounds}
        return CardContent(self.file_id, self.card, zones)

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
    packs: Sequence[CardPack],
    kept: Collection[int],
) -> None:
    """`packs` have the cards of all files but the `kept` ones, whose cards are in the registry."""
    connection.executemany(
        "INSERT INTO runs SELECT id, ? FROM indexes WHERE id = ?", [(name, index_id) for index_id, name in runs]
    )
    connection.executemany(
        "INSERT INTO indexed SELECT files.id, indexes.id, ? FROM files, indexes WHERE files.id = ? AND indexes.id = ? "
        "ON CONFLICT (file_id, index_id) DO UPDATE SET entries = excluded.entries",
        [(count, file, index) for index, files in entries.items() for file, count in files.items()],
    )
    places: dict[int, tuple[int, PlacedCard]] = {}
    for pack in packs:
        pack_id = insert_pack(connection, pack)
        places |= {placed.file_id: (pack_id, placed) for placed in pack.files}
    found = _identities(connection, dialect, [artifact.file_id for artifact in artifacts])
    there = [artifact for artifact in artifacts if artifact.file_id in found]
    # Another process may have embedded something and described the new version.
    current = [artifact for artifact in there if found[artifact.file_id] in (artifact.was, artifact.identity)]
    late = [artifact for artifact in there if found[artifact.file_id] not in (artifact.was, artifact.identity)]
    _describe(connection, current)
    _renew_bounds(connection, dialect, [artifact for artifact in current if artifact.file_id in kept])
    placed = [(each, *places[each.file_id]) for each in current if each.file_id not in kept]
    _place_cards(connection, dialect, placed)
    _cover(connection, [*current, *(artifact.without_positions() for artifact in late)])
    # Readers that cache the places of payloads read them again when a file changed.
    connection.executemany("UPDATE files SET rows = rows WHERE id = ?", [(artifact.file_id,) for artifact in late])


def _identities(connection: RegistryTransaction, dialect: Dialect, file_ids: Sequence[int]) -> dict[int, Identity]:
    query = f"SELECT id, {IDENTITY} FROM files WHERE id {dialect.among}"
    return {id: Identity(*row) for id, *row in connection.execute(query, (dialect.ids(file_ids),)).fetchall()}


def _describe(connection: RegistryTransaction, artifacts: Sequence[FileArtifact]) -> None:
    connection.executemany(
        """UPDATE files SET size = ?, mtime_ns = ?, etag = ?, ctime_ns = ?, inode = ?, sample = ?, rows = ?,
           row_groups = ?, pages = ?, blooms = ?, problem = NULL WHERE id = ?""",
        [
            (
                *astuple(artifact.identity),
                artifact.sample,
                artifact.rows,
                artifact.row_groups,
                artifact.pages,
                json.dumps(artifact.blooms) if artifact.blooms else None,
                artifact.file_id,
            )
            for artifact in artifacts
        ],
    )
    connection.executemany(
        "INSERT INTO own VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(artifact.file_id, each) for artifact in artifacts for each in artifact.own],
    )


def _renew_bounds(connection: RegistryTransaction, dialect: Dialect, artifacts: Sequence[FileArtifact]) -> None:
    """Of files whose cards are in the registry. If another process has just forgotten one, the file has none."""
    connection.executemany(
        """UPDATE bounds SET low = ?, high = ?, nulls = ?, rows = ?, nan = ?, unit = ?
           WHERE table_id = (SELECT table_id FROM files WHERE id = ?) AND column_name = ? AND file_id = ?""",
        [
            (*_bounds_row(dialect, known), artifact.units.get(column), artifact.file_id, column, artifact.file_id)
            for artifact in artifacts
            for column, known in artifact.bounds.items()
        ],
    )


def _place_cards(
    connection: RegistryTransaction, dialect: Dialect, placed: Sequence[tuple[FileArtifact, int, PlacedCard]]
) -> None:
    """Record the bounds of files, and where their cards and zone maps are: in which pack, and where in it."""
    insert_cards(connection, [(pack_id, place) for _, pack_id, place in placed])
    new = {artifact.file_id: artifact.bounds.keys() for artifact, _, _ in placed}
    query = f"SELECT file_id, column_name FROM bounds WHERE file_id {dialect.among}"
    known = connection.execute(query, (dialect.ids(new.keys()),)).fetchall()
    connection.executemany(
        "DELETE FROM bounds WHERE file_id = ? AND column_name = ?",
        [(id, column) for id, column in known if column not in new[id]],
    )
    connection.executemany(
        "INSERT INTO bounds SELECT table_id, ?, id, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM files WHERE id = ? "
        + _REPLACE_BOUNDS,
        [
            (
                column,
                *_bounds_row(dialect, bounds),
                artifact.units.get(column),
                *_piece_row(place.zones.get(column)),
                artifact.file_id,
            )
            for artifact, _, place in placed
            for column, bounds in artifact.bounds.items()
        ],
    )


def _piece_row(piece: PackPiece | None) -> tuple[int | None, ...]:
    return (None, None, None) if piece is None else (piece.start, piece.length, piece.checksum)


def _cover(connection: RegistryTransaction, artifacts: Sequence[FileArtifact]) -> None:
    """Record payloads and entries of files; an index that was dropped meanwhile has no row to refer to."""
    connection.executemany(
        f"INSERT INTO payloads SELECT ?, id, ?, ?, ?, ?, ?, ?, ? FROM indexes WHERE id = ? {_REPLACE_PAYLOADS}",
        [
            (artifact.file_id, *astuple(place), index_id)
            for artifact in artifacts
            for index_id, place in artifact.places.items()
        ],
    )
    connection.executemany(
        "INSERT INTO indexed SELECT ?, id, ? FROM indexes WHERE id = ? "
        "ON CONFLICT (file_id, index_id) DO UPDATE SET entries = excluded.entries",
        [
            (artifact.file_id, entries, index_id)
            for artifact in artifacts
            for index_id, entries in artifact.entries.items()
        ],
    )


def _bounds_row(dialect: Dialect, known: Bounds) -> tuple[object, ...]:
    return dialect.stored_ordinal(known.low), dialect.stored_ordinal(known.high), known.nulls, known.rows, known.nan


def _replace(key: str, columns: str) -> str:
    return f"ON CONFLICT ({key}) DO UPDATE SET " + ", ".join(
        f"{each} = excluded.{each}" for each in columns.split(", ")
    )


_REPLACE_BOUNDS = _replace(
    "table_id, column_name, file_id", "low, high, nulls, rows, nan, unit, zone_start, zone_length, zone_checksum"
)
_REPLACE_PAYLOADS = _replace("index_id, file_id", 'pack, "offset", length, codec, size, checksum, version')
