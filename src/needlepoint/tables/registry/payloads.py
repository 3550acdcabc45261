"""The registry's payloads: where each index keeps what it knows of each file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from needlepoint.tables.model import Index, Place
from needlepoint.tables.registry.databases.database import RegistryDatabase


@dataclass(frozen=True, slots=True)
class PackEntry:
    """The payload of one file in a pack."""

    file_id: int
    offset: int
    length: int


class Payloads:
    def __init__(self, database: RegistryDatabase) -> None:
        self._database = database

    def places(self, index: Index) -> dict[int, Place]:
        """Where the payloads of an index are, by file id."""
        query = """SELECT file_id, pack, "offset", length, codec, size, checksum, version FROM payloads
                   WHERE index_id = ?"""
        return {file_id: Place(*row) for file_id, *row in self._database.read(query, index.id)}

    def embedded(self, file_ids: Sequence[int], *, own: bool = True) -> dict[int, frozenset[str]]:
        """Checksums of payloads inside files, by file id, that queries use, and with `own` those that this lake's
        writers embedded. ALL stands for every one of the file."""
        dialect = self._database.dialect
        query = f"SELECT file_id, checksum FROM payloads WHERE pack = '' AND file_id {dialect.among}"
        asked = [dialect.ids(file_ids)]
        if own:
            query += f" UNION SELECT file_id, checksum FROM own WHERE file_id {dialect.among}"
            asked *= 2
        found: dict[int, set[str]] = {}
        for file_id, checksum in self._database.read(query, *asked):
            found.setdefault(file_id, set()).add(checksum)
        return {file_id: frozenset(checksums) for file_id, checksums in found.items()}

    def packs(self) -> set[tuple[int, str]]:
        """Indexes and names of all packs that hold a payload."""
        return set(self._database.read("SELECT DISTINCT index_id, pack FROM payloads WHERE pack <> ''"))

    def packs_of(self, index: Index) -> set[str]:
        """The names of the packs of an index."""
        query = "SELECT DISTINCT pack FROM payloads WHERE index_id = ? AND pack <> ''"
        return {name for (name,) in self._database.read(query, index.id)}

    def pack_entries(self) -> dict[tuple[int, str], list[PackEntry]]:
        """The live payloads of each pack, by index and name of the pack."""
        found: dict[tuple[int, str], list[PackEntry]] = {}
        query = '''SELECT index_id, pack, file_id, "offset", length FROM payloads WHERE pack <> '' ORDER BY "offset"'''
        for index_id, pack, *place in self._database.read(query):
            found.setdefault((index_id, pack), []).append(PackEntry(*place))
        return found

    def checksums(self) -> frozenset[str]:
        """Of all payloads."""
        return frozenset(checksum for (checksum,) in self._database.read("SELECT DISTINCT checksum FROM payloads"))

    def size(self, index: Index) -> int:
        """Bytes of all payloads of an index."""
        query = "SELECT coalesce(sum(length), 0) FROM payloads WHERE index_id = ?"
        return int(self._database.read(query, index.id)[0][0])

    def forget(self, index: Index, file_ids: Sequence[int]) -> None:
        """Count none of these files as indexed by this index any more."""
        pairs = [(index.id, id) for id in file_ids]
        with self._database.change() as connection:
            connection.executemany("DELETE FROM payloads WHERE index_id = ? AND file_id = ?", pairs)
            connection.executemany("DELETE FROM indexed WHERE index_id = ? AND file_id = ?", pairs)

    def repack(self, index_id: int, old: str, new: str, moved: Sequence[tuple[PackEntry, int]]) -> None:
        """Record that payloads are in another pack, each at another offset, if they still exist."""
        with self._database.change() as connection:
            connection.executemany(
                """UPDATE payloads SET pack = ?, "offset" = ?
                   WHERE index_id = ? AND file_id = ? AND pack = ? AND "offset" = ?""",
                [(new, offset, index_id, each.file_id, old, each.offset) for each, offset in moved],
            )
            # Readers that cache the places read them again when a file changed.
            connection.executemany("UPDATE files SET rows = rows WHERE id = ?", [(each.file_id,) for each, _ in moved])
