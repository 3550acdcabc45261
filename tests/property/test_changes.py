"""An index changes the speed of an answer, never the answer: whatever happens to the files and to the indexes."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.strategies import DataObject
from tests.cases import cases
from tests.property.generated import Column, FileSpec, TableSpec, files, tables
from tests.property.kinds import same
from tests.property.predicates import values
from tests.property.queries import Query, queries
from tests.property.test_answers import index_kinds
from tests.property.worlds import TAKEN, World, world

from needlepoint.errors import StoreError
from needlepoint.stores import rocksdb


class Changes(RuleBasedStateMachine):
    """Files are added, removed and changed, with and without sync; indexes are created, dropped, partly built and
    damaged."""

    made: World | None = None

    @initialize(spec=tables(most_files=2))
    def begin(self, spec: TableSpec) -> None:
        # No other process writes here, so waiting for one to finish does not repair a damaged index.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(rocksdb, "READ_ATTEMPTS", 2)
        self.open = world(spec)
        self.made = self.open.__enter__()
        self.indexes: dict[str, tuple[str, str]] = {}
        self.batches: dict[str, list[FileSpec]] = {}
        self.count = 0
        self.damaged = False
        self.create_index_on(spec.columns[0])

    def teardown(self) -> None:
        if self.made is not None:
            self.open.__exit__(None, None, None)
            self.patch.undo()

    @property
    def it(self) -> World:
        assert self.made is not None
        return self.made

    @contextmanager
    def refusing_damage(self) -> Iterator[None]:
        """Writing to a damaged index may raise a StoreError. Queries are answered all the same."""
        try:
            yield
        except StoreError:
            if not self.damaged:
                raise
            TAKEN["refused"] += 1

    # Files

    @rule(data=st.data(), synced=st.booleans())
    def add(self, data: DataObject, synced: bool) -> None:
        self.it.add(data.draw(files(self.it.spec)))
        if synced:
            self.sync()

    @precondition(lambda self: self.made and self.made.files)
    @rule(data=st.data())
    def delete(self, data: DataObject) -> None:
        self.it.delete(data.draw(st.sampled_from(sorted(self.it.files))))

    @precondition(lambda self: self.made and self.made.files)
    @rule(data=st.data())
    def replace(self, data: DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.it.files)))
        self.it.add(data.draw(files(self.it.spec)), path)

    @rule(data=st.data(), again=st.booleans(), followed=st.booleans())
    def publish(self, data: DataObject, again: bool, followed: bool) -> None:
        batch = f"batch {len(self.batches)}"
        if again and self.batches:
            batch = data.draw(st.sampled_from(sorted(self.batches)))
        there = batch in self.batches
        batch_files = self.batches.setdefault(batch, data.draw(st.lists(files(self.it.spec), max_size=2)))
        before = set(self.it.location.rglob("*.parquet"))
        self.it.publish(batch_files, batch)
        after = set(self.it.location.rglob("*.parquet"))
        assert len(after - before) == (0 if there else len(batch_files))
        if followed:
            self.follow()

    @rule()
    def follow(self) -> None:
        with self.refusing_damage():
            TAKEN["events"] += len(list(self.it.lake.follow_events(once=True)))

    # Indexes

    @rule(data=st.data(), build=st.booleans())
    def create_index(self, data: DataObject, build: bool) -> None:
        column = data.draw(st.sampled_from([column for column in self.it.spec.columns if column.kind.indexed]))
        for kind in data.draw(index_kinds(column)):
            if (column.name, kind) not in self.indexes.values():
                self.create_index_on(column, kind, data.draw(st.booleans()), build)

    def create_index_on(self, column: Column, kind: str = "key", embed: bool = False, build: bool = True) -> None:
        self.count += 1
        name = f"ix{self.count}"
        self.indexes[name] = (column.name, kind)
        with self.refusing_damage():
            self.it.create_index(column, kind, embed, name, build)

    @precondition(lambda self: self.made and self.indexes)
    @rule(data=st.data(), strip=st.booleans())
    def drop_index(self, data: DataObject, strip: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.indexes)))
        self.sync()
        self.it.lake.drop_index(name, strip=strip)
        del self.indexes[name]

    @rule()
    def sync(self) -> None:
        with self.refusing_damage():
            self.it.lake.sync("t")

    @rule()
    def reopen(self) -> None:
        self.it.reopen()

    # Damage

    @precondition(lambda self: self.made and self.indexes)
    @rule(
        seed=st.integers(0, 2**16),
        what=st.sampled_from(["*.sst", "MANIFEST*", "CURRENT", "*.pack", "*"]),
        how=st.sampled_from(["remove", "truncate", "overwrite"]),
        while_open=st.booleans(),
    )
    def damage_index(self, seed: int, what: str, how: str, while_open: bool) -> None:
        chance = random.Random(seed)
        if not while_open:
            self.it.lake.close()
        directories = sorted((self.it.root / ".needlepoint" / "indexes").glob("*"))
        found = sorted(path for path in directories and chance.choice(directories).glob(what) if path.is_file())
        for path in chance.sample(found, min(len(found), 2)):
            _damage(path, how, chance)
        self.damaged = True
        TAKEN["damaged indexes"] += 1
        if not while_open:
            self.it.reopen()

    @precondition(lambda self: self.made and self.indexes)
    @rule(seed=st.integers(0, 2**16), foreign=st.booleans())
    def lose_index(self, seed: int, foreign: bool) -> None:
        """Remove the directory of an index, or replace it with that of another index."""
        chance = random.Random(seed)
        self.it.lake.close()
        directories = sorted((self.it.root / ".needlepoint" / "indexes").glob("*"))
        if directories:
            lost, other = chance.choice(directories), chance.choice(directories)
            if lost != other or not foreign:
                shutil.rmtree(lost)
            if foreign and lost != other:
                shutil.copytree(other, lost)
        self.damaged = True
        TAKEN["lost indexes"] += 1
        self.it.reopen()

    @rule(seed=st.integers(0, 2**16), how=st.sampled_from(["delete", "truncate", "flip", "swap"]), reopen=st.booleans())
    def damage_card(self, seed: int, how: str, reopen: bool) -> None:
        chance = random.Random(seed)
        store = self.it.root / ".needlepoint"
        connection = sqlite3.connect(store / "registry.db")
        with connection:
            files = [id for (id,) in connection.execute("SELECT file_id FROM cards ORDER BY file_id")]
            for file_id in chance.sample(files, min(len(files), 2)):
                _damage_card(connection, store / "cards", file_id, chance.choice(files), how, chance)
        connection.close()
        TAKEN["damaged cards"] += 1
        if reopen:
            self.it.reopen()

    # Queries

    @rule(data=st.data())
    def ask(self, data: DataObject) -> None:
        for _ in range(2):
            self.it.check(data.draw(queries(self.it.spec), label="query"))

    @invariant()
    def still_answers(self) -> None:
        """After every change: a point lookup, a range and all rows by SQL, and a `get`."""
        if self.made is None:
            return
        number = random.Random(self.it._next_id + self.count).randrange(self.it._next_id + 1)
        for where in (f"id = {number}", f"id BETWEEN {number} AND {number + 3}", "id >= 0"):
            self.it.check(Query(same(f"SELECT * FROM t WHERE {where}")))
        self.it.check_get({"id": [number]})

    @rule(data=st.data())
    def get(self, data: DataObject) -> None:
        column = data.draw(st.sampled_from(self.it.keyed()))
        keys: list[Any] = data.draw(st.lists(values(column), max_size=3))
        self.it.check_get({column.name: keys})


def _damage(path: Path, how: str, chance: random.Random) -> None:
    size = path.stat().st_size
    match how:
        case "remove":
            path.unlink()
        case "truncate":
            os.truncate(path, chance.randint(0, size))
        case "overwrite":
            start = chance.randint(0, size)
            path.write_bytes(path.read_bytes()[:start] + chance.randbytes(size - start))


def _damage_card(
    connection: sqlite3.Connection, packs: Path, file_id: int, other: int, how: str, chance: random.Random
) -> None:
    """Damage the pack with the card of a file, or what the registry says of it."""
    if how == "delete":
        connection.execute("DELETE FROM cards WHERE file_id = ?", (file_id,))
        return
    if how == "swap":
        place = "pack_id, start, length, checksum"
        query = f"UPDATE cards SET ({place}) = (SELECT {place} FROM cards WHERE file_id = ?) WHERE file_id = ?"
        connection.execute(query, (other, file_id))
        return
    query = "SELECT name, start, length FROM cards JOIN card_packs ON id = pack_id WHERE file_id = ?"
    name, start, length = connection.execute(query, (file_id,)).fetchone()
    pack = packs / name
    if pack.exists():
        data = bytearray(pack.read_bytes())
        at = start + chance.randrange(length)
        if how == "flip" and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        pack.write_bytes(data[:at] if how == "truncate" else data)


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=cases(100, 3), stateful_step_count=cases(25, 12))
