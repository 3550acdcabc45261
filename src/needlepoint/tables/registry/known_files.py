"""The files of tables in the registry, cached between queries.

A table can have very many files, and a change touches few: only changed files are read again, the others stay the same
objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from needlepoint.tables.model import File, Table
from needlepoint.tables.registry.registry import Registry

# Up to FEW changed files, or a SHAREth of all, are read alone; more than that reads all files.
FEW, SHARE = 1000, 4


class KnownFiles:
    """For one process; threads may share it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._held: dict[int, tuple[int, Mapping[str, File]]] = {}

    def of(self, table: Table) -> Mapping[str, File]:
        """By path, in no particular order."""
        with self._registry.snapshot():  # one thread at a time
            sequence = self._registry.sequence()
            since, files = self._held.get(table.id, (0, {}))
            if since != sequence:
                files = self._renewed(table, since, files)
                self._held[table.id] = (sequence, files)
            return files

    def _renewed(self, table: Table, since: int, files: Mapping[str, File]) -> Mapping[str, File]:
        known = self._registry.files.changed(table, since) if since else None
        if known is None or len(known) > max(FEW, len(files) // SHARE):
            return {file.path: file for file in self._registry.files.of(table)}
        if not known:
            return files
        changed = frozenset(known)
        kept = {path: file for path, file in files.items() if file.id not in changed}
        return kept | {file.path: file for file in self._registry.files.of(table, known)}
