"""Write batches of files into tables: a staging place, what to embed, and publishing.

Spark jobs, the command line and maintenance write through it; `lake.writer` is one.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from pathlib import Path

from needlepoint.errors import NameTaken, StoreError, UsageError
from needlepoint.indexer import Indexer
from needlepoint.lake.locations import table_location
from needlepoint.maintenance import Finisher
from needlepoint.objects import is_url
from needlepoint.queues import Queue
from needlepoint.tables import (
    Batch,
    File,
    Mover,
    StagedFile,
    Table,
    check_name,
    discover_schema,
    discover_table,
    publish,
    read_schemas,
    recover,
    staging_directory,
    staging_prefix,
    sweep_staging,
)
from needlepoint.tables.formats import decide, described_format, is_external
from needlepoint.tables.registry import Registry


class BatchWriter:
    def __init__(self, root: Path | str, store: Path, registry: Registry, queue: Queue, indexer: Indexer) -> None:
        self._root = root
        self._store = store
        self._registry = registry
        self._queue = queue
        self._indexer = indexer

    def staging(self, table: str) -> Path:
        """A fresh directory for one batch; `publish` moves its files to the table's location."""
        check_name("a table", table)
        self.refuse_foreign(table)
        try:
            sweep_staging(self._store, self._registry)
            place = staging_directory(self._store, table)
            self._registry.locks.claim(place.name)
            return place
        except OSError as error:
            raise StoreError(f"{self._store} cannot be written: {error}.", hint="Check its permissions.") from error

    def staging_url(self, table: str) -> str:
        """A fresh place for one batch in the bucket of a table, for writers that share no directory; `publish` copies
        its files inside the store."""
        check_name("a table", table)
        self.refuse_foreign(table)
        location = self._location(table)
        if not is_url(location):
            raise UsageError(f"table '{table}' is in {location}.", hint="Stage it in a directory: `staging`.")
        place = staging_prefix(location, table)
        self._registry.locks.claim(place.rpartition("/")[2])
        return place

    def is_remote(self, table: str) -> bool:
        """Whether the files of a table are, or will be, in an object store."""
        return is_url(self._location(table))

    def finisher(self, table: str) -> Finisher | None:
        """A function that embeds the table's indexes into a staged file and returns its size; None when there is
        nothing to embed.

        It can be pickled and run in other processes, on the file at the path it is given. Files can also be published
        without it: the indexer embeds what they lack.
        """
        if table not in self._registry.tables.names():
            return None
        return self._indexer.finisher(self._registry.tables.get(table))

    def publish(
        self,
        table: str,
        staged: Sequence[StagedFile],
        staging: Path | str,
        batch: str | None = None,
        *,
        removed: Sequence[File] = (),
        keep: float = 0.0,
        mover: Mover | None = None,
    ) -> Batch:
        """Add staged files to a table, which the first batch creates. A batch id is published once.

        Files `removed` leave the table in the same commit, and are deleted `keep` seconds later; TableChanged when one
        of them is not what it was. `mover` moves or uploads the files outside of this process.
        """
        self.refuse_foreign(table)
        place = str(staging)
        found = self._table_for(table, staged, place)
        id = batch or uuid.uuid4().hex
        done = publish(self._registry, self._queue, found, id, staged, place, removed=removed, keep=keep, mover=mover)
        self._registry.locks.release(place.rpartition("/")[2])
        return done

    def finished(self, table: str, batch: str) -> Batch | None:
        """The batch of this id if it was begun; it is finished first if its publisher died. None if it is new."""
        if table not in self._registry.tables.names():
            return None
        found = self._registry.tables.get(table)
        if self._registry.batches.get(found, batch) is None:
            return None
        recover(self._registry, self._queue, found, batch)
        return self._registry.batches.get(found, batch)

    def is_pending(self, table: str, staging: Path | str) -> bool:
        """Whether an unfinished batch refers to these staged files: then they are its only copy."""
        return table in self._registry.tables.names() and any(
            batch.staging == str(staging)
            for batch in self._registry.batches.unfinished(self._registry.tables.get(table))
        )

    def index_files(self, table: str) -> None:
        """Build what the files that the registry knows lack; sync reports what cannot be built."""
        self._indexer.catch_up(self._registry.tables.get(table))

    def refuse_foreign(self, name: str, hint: str = "Write to it with its own tools, then sync.") -> None:
        """UsageError for a Delta or Iceberg table: its log has the sizes of its files, and readers rely on them."""
        tables = self._registry.tables
        if name in tables.names() and is_external(format := tables.get(name).format):
            kind = described_format(format)
            raise UsageError(f"table '{name}' is {kind}; Needlepoint does not write its files.", hint=hint)

    def refuse_removing(self, name: str) -> None:
        """UsageError before any work is done for a batch that would be refused when it is published."""
        self.refuse_foreign(name)
        self._registry.tables.refuse_shared(self._registry.tables.get(name).id)

    def _location(self, name: str) -> str:
        """The location of a table that exists or will."""
        tables = self._registry.tables
        return tables.get(name).location if name in tables.names() else table_location(self._root, name)

    def _table_for(self, name: str, staged: Sequence[StagedFile], staging: str) -> Table:
        """The table of a batch, whose schema must fit before any of it is published."""
        paths = [file.path.removeprefix(f"{staging}/") for file in staged]
        if name not in self._registry.tables.names():
            if not staged:
                raise UsageError(f"the first batch of table '{name}' is empty.", hint="The table needs a schema.")
            found = discover_table(staging, paths, skip_unfinished=False)
            # Another first batch may be quicker: then this one is a second.
            with contextlib.suppress(NameTaken):
                place = self._new_location(name)
                return self._registry.tables.create(name, place, found.schema, found.partitions, found.mixed)
        table = self._registry.tables.get(name)
        if staged:
            known = self._registry.files.paths(table)
            # A writer's own names of files mean nothing to those whose rows they hold.
            shown = "the batch" if all(file.own for file in staged) else ""
            found = discover_schema(staging, read_schemas(staging, paths), [*known, *paths], base=table, shown=shown)
            if found.adds_to(table):
                table = self._registry.tables.widen_schema(table, found.schema, found.mixed)
        return table

    def _new_location(self, name: str) -> str:
        """The location of a table that its first batch creates."""
        decided, place = decide(table_location(self._root, name), None)
        if is_external(decided):
            raise UsageError(
                f"{place} is {described_format(decided)}, which Needlepoint does not write.",
                hint=f"`needle create-table {name}` makes it a table to read; choose another name to write.",
            )
        return place
