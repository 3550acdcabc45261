"""The registry: tables, views, their files, indexes and batches, in one database of the lake, and the cards and zone
maps of the files, in packs beside it.

Every change is one transaction and raises `sequence`: a reader compares it to see whether what it has in memory is
still current.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType

from needlepoint.errors import UsageError
from needlepoint.stores import IN_LAKE, BucketPacks, PackStore, PieceCache
from needlepoint.tables.locks import Locks, TableLocks
from needlepoint.tables.registry.artifacts import FileArtifact, commit_artifacts
from needlepoint.tables.registry.batches import Batches
from needlepoint.tables.registry.cards import Cards
from needlepoint.tables.registry.databases.database import RegistryDatabase, SqliteRegistryDatabase
from needlepoint.tables.registry.files import Files
from needlepoint.tables.registry.index_generations import IndexGenerations
from needlepoint.tables.registry.indexes import Indexes
from needlepoint.tables.registry.payloads import Payloads
from needlepoint.tables.registry.tables import Tables
from needlepoint.tables.registry.views import Views


class Registry:
    """What it keeps is in its parts; they share one database, and a transaction can span several of them.

    One for reading only has its locks in the `own` directory of its process. `cards` are the packs, by default in a
    directory beside the database. A copy of a registry that is published in the lake has a function that brings it up
    to date, `follow`: it is called before queries, and with True when a file is not as the copy has it."""

    def __init__(
        self,
        directory: Path,
        root: Path | str,
        *,
        own: Path | None = None,
        url: str = "",
        create: bool = True,
        cards: PackStore | None = None,
        pieces: PieceCache | None = None,
        follow: Callable[[bool], None] | None = None,
        for_move: bool = False,
    ) -> None:
        """In PostgreSQL if there is a `url`, otherwise in SQLite in the directory. `pieces` keeps what is read of cards
        in a bucket. One that was moved elsewhere is refused, unless it is opened `for_move`; then a new one is closed
        until the move is finished."""
        work = own or directory
        self._packs_of = ""  # the identity that it gets when the move is finished
        local = TableLocks(work / "turns")
        self._own_cards = PackStore(directory / "cards")
        packs = cards or self._own_cards
        if url and cards is None:  # machines that share a registry share the lake, and not their stores
            if isinstance(root, Path):
                packs = PackStore(root / IN_LAKE / "cards")
            else:
                identity = functools.cache(self.identity)
                packs = BucketPacks(
                    lambda: f"{root}/{IN_LAKE}/packs/{self._packs_of or identity()}/cards",
                    pieces or PieceCache(work, 0),
                    work / "scratch" / "cards",
                )
        self.database: RegistryDatabase
        self.locks: Locks
        if url:
            self.database, self.locks = _in_postgres(
                url, root, local, create=create, read_only=own is not None, for_move=for_move
            )
        else:
            self.database = SqliteRegistryDatabase(
                directory / "registry.db", packs, read_only=own is not None, for_move=for_move
            )
            self.locks = local
        database = self.database
        self.is_on_server = bool(url)
        """Other machines write it too, and have stores of their own."""
        self.batches = Batches(database, lambda table_id: self.tables.refuse_shared(table_id))
        self.tables = Tables(database, root, self.batches)
        self.views = Views(database)
        self.files = Files(database)
        self.cards = Cards(database, packs)
        self.indexes = Indexes(database)
        self.generations = IndexGenerations(database)
        self.payloads = Payloads(database)
        self._follow = follow
        # Make the present state known to readers elsewhere; False if that failed.
        self.make_known: Callable[[], bool] = _nobody_else
        # Not wrapped in methods: every query calls them.
        self.sequence: Callable[[], int] = database.sequence if follow is None else self._followed_sequence
        self.snapshot: Callable[[], AbstractContextManager[None]] = database.snapshot

    @property
    def is_followed(self) -> bool:
        """Whether it is a copy of a published registry. Then it says which files a table has, and nothing is listed."""
        return self._follow is not None

    def renew(self) -> None:
        """Bring a copy of a published registry up to date at once."""
        if self._follow is not None:
            self._follow(True)

    def _followed_sequence(self) -> int:
        copy = self.database
        if self._follow is not None and isinstance(copy, SqliteRegistryDatabase) and not copy.is_in_transaction:
            self._follow(False)
        return copy.sequence()

    def identity(self) -> str:
        """A random name that no other registry has."""
        return self.database.identity()

    def share_cards(self) -> None:
        """Put packs that an earlier version left on the disk of this machine where all machines have theirs."""
        own = self._own_cards.sizes() if isinstance(self.cards.packs, BucketPacks) else {}
        if own:
            for name in sorted(self.cards.packs.missing(self.cards.names() & own.keys())):
                self.cards.packs.take(self._own_cards, name)

    def will_be(self, identity: str) -> None:
        """It gets the identity of another registry, which is moved here, and its packs."""
        self._packs_of = identity

    def after_changes(self, call: Callable[[], None]) -> None:
        """Call this after every change by this process. A registry in PostgreSQL is not published: readers ask it."""
        if isinstance(self.database, SqliteRegistryDatabase):
            self.database.after_change = call

    def close(self) -> None:
        self.locks.close()
        self.database.close()

    def settle(self, *, whole: bool = False) -> None:
        """Remove what was deleted from the files of the database; with `whole`, however long ago it was deleted."""
        self.database.checkpoint(whole=whole)

    def commit_artifacts(
        self,
        artifacts: Sequence[FileArtifact],
        runs: Sequence[tuple[int, str]],
        entries: Mapping[int, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        """Count files as indexed from here on: those of the artifacts, and those that `entries` has, by index and then
        by file, whose cards came before. Files replaced meanwhile and indexes that no longer exist are ignored."""
        packs, kept = self.cards.write([artifact.content for artifact in artifacts])
        with self.database.change() as connection:
            commit_artifacts(connection, self.database.dialect, artifacts, runs, entries, packs, kept)


def _in_postgres(
    url: str, root: Path | str, local: TableLocks, *, create: bool, read_only: bool, for_move: bool
) -> tuple[RegistryDatabase, Locks]:
    """A process that only reads has no locks there."""
    from needlepoint.stores.postgres import parse_postgres
    from needlepoint.tables.postgres_locks import PostgresLocks
    from needlepoint.tables.registry.databases.postgres import PostgresRegistryDatabase

    if not url.startswith(("postgresql://", "postgres://")):
        kind = url.partition("://")[0] if "://" in url else url
        raise UsageError(f"'{kind}' is not a kind of registry.", hint="Name a database as postgresql://host/database.")
    address = parse_postgres(url)
    database = PostgresRegistryDatabase(address, root, create=create, read_only=read_only, for_move=for_move)
    return database, local if read_only else PostgresLocks(database, local)


def _nobody_else() -> bool:
    return True
