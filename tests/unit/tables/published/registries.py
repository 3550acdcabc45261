"""Registries that are changed at random, and what is in them."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from needlepoint.errors import NameTaken, TableChanged
from needlepoint.indexer import sweep_cards
from needlepoint.objects import Identity
from needlepoint.predicate import Bounds
from needlepoint.tables.model import Batch, File, Index, Move, Place, Removal, Table
from needlepoint.tables.registry import FileArtifact, PackEntry, Registry

SCHEMA = pa.schema([("id", pa.int64()), ("title", pa.string())])


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of a registry, or of a copy, that matter to readers."""
    connection = sqlite3.connect(path)
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = [name for (name,) in connection.execute(query)]
    only = {"batches": " WHERE state <> 'announced'"}
    found = {
        name: sorted(connection.execute(f"SELECT * FROM {name}{only.get(name, '')}").fetchall(), key=repr)
        for name in tables
    }
    connection.close()
    return found


@dataclass
class RandomRegistry:
    """A registry with what a lake does to it: `change` does one of these things."""

    registry: Registry
    random: random.Random
    numbers: int = 0
    changes: list[str] = field(default_factory=list)

    def change(self) -> None:
        ways: list[Callable[[], None]] = [
            self.add, self.add, self.index, self.index, self.index, self.remove, self.publish, self.create_table,
            self.drop_table, self.create_index, self.drop_index, self.replace_index, self.create_view, self.drop_view,
            self.repack, self.sweep_cards, self.note_problems, self.forget_cards, self.overwrite,
        ]  # fmt: skip
        way = self.random.choice(ways)
        self.changes.append(way.__name__)
        way()

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _table(self) -> Table | None:
        tables = self.registry.tables.all()
        return self.random.choice(tables) if tables else None

    def _file(self, path: str | None = None) -> File:
        return File(path or f"{self._number()}.parquet", Identity(self.random.randint(4, 999), self._number(), "e"))

    def _some(self, files: list[File]) -> list[File]:
        return self.random.sample(files, min(len(files), self.random.randint(1, 4)))

    def create_table(self) -> None:
        name = f"t{self._number()}"
        self.registry.tables.create(name, f"s3://b/{name}", SCHEMA, ())

    def drop_table(self) -> None:
        if (table := self._table()) is not None and self.random.random() < 0.3:
            with contextlib.suppress(TableChanged):
                self.registry.tables.drop(table.name)

    def add(self) -> None:
        if (table := self._table()) is not None:
            self.registry.files.replace(table, [self._file() for _ in range(self.random.randint(1, 5))], [])

    def overwrite(self) -> None:
        """The same paths again, and perhaps gone at once."""
        table = self._table()
        if table is None or not (files := self.registry.files.of(table)):
            return
        paths = [each.path for each in self._some(files)]
        self.registry.files.replace(table, [self._file(path) for path in paths], [])
        if self.random.random() < 0.5:
            gone = [each.id or 0 for each in self.registry.files.of(table) if each.path in paths]
            self.registry.files.replace(table, [], gone)

    def remove(self) -> None:
        table = self._table()
        if table is not None and (files := self.registry.files.of(table)):
            self.registry.files.replace(table, [], [each.id or 0 for each in self._some(files)])

    def publish(self) -> None:
        """A batch, in the place of other files, which stops anywhere."""
        if (table := self._table()) is None:
            return
        removals = [Removal(each.id or 0, each.path, each.identity) for each in self.registry.files.of(table)[:2]]
        moves = (Move("a", f"{self._number()}.parquet", 5, True),)
        batch = Batch(table.id, uuid.uuid4().hex, "publishing", "s", moves, tuple(removals), 0.0)
        try:
            self.registry.batches.begin(batch)
        except TableChanged:
            return
        if self.random.random() < 0.3:
            self.registry.batches.abandon(batch)
            return
        self.registry.batches.commit(batch, [self._file(moves[0].target)])
        if self.random.random() < 0.7:
            announced = self.registry.batches.announced(batch)
            if self.random.random() < 0.7:
                self.registry.batches.removed(announced)

    def create_index(self) -> None:
        if (table := self._table()) is not None:
            kind = self.random.choice(["key", "distinct"])
            with contextlib.suppress(NameTaken):
                self.registry.indexes.create(table, f"i{self._number()}", ("id",), kind)

    def _index(self, kind: str | None = None) -> Index | None:
        found = [each for each in self.registry.indexes.all() if kind in (None, each.kind)]
        return self.random.choice(found) if found else None

    def drop_index(self) -> None:
        if (index := self._index()) is not None and self.random.random() < 0.4:
            self.registry.indexes.drop(index.name)

    def replace_index(self) -> None:
        if (index := self._index("key")) is not None:
            files = self.registry.indexes.entries(index)
            new = self.registry.generations.reserve()
            self.registry.generations.replace(index, new, files.keys(), [uuid.uuid4().hex], lambda: None)

    def create_view(self) -> None:
        self.registry.views.create(f"v{self._number()}", "SELECT 1")

    def drop_view(self) -> None:
        if views := self.registry.views.all():
            self.registry.views.drop(views[0][0])

    def index(self) -> None:
        table = self._table()
        if table is None or not (files := self.registry.files.of(table)):
            return
        artifacts = []
        for file in self._some(files):
            indexes = self.registry.indexes.of(table)
            place = Place("p.pack", self._number(), 7, "none", 7, str(self._number()), 1)
            artifacts.append(
                FileArtifact(
                    file.id or 0, file.identity, file.identity, 10, 1, 1, self.random.randbytes(40),
                    {"id": Bounds(1, self._number(), 0, 10), "title": Bounds(b"a", b"b", 0, 10)},
                    zones={"id": self.random.randbytes(30)},
                    entries={each.id: 10 for each in indexes},
                    places={each.id: place for each in indexes if each.kind == "distinct"},
                    own=frozenset(["own"]) if self.random.random() < 0.5 else frozenset(),
                )
            )  # fmt: skip
        runs = [(each.id, uuid.uuid4().hex) for each in self.registry.indexes.of(table) if each.kind == "key"]
        self.registry.commit_artifacts(artifacts, runs)

    def repack(self) -> None:
        index = self._index("distinct")
        if index is not None and (places := self.registry.payloads.places(index)):
            moved = [(PackEntry(id, place.offset, place.length), self._number()) for id, place in places.items()]
            self.registry.payloads.repack(index.id, "p.pack", "q.pack", moved)

    def sweep_cards(self) -> None:
        sweep_cards(self.registry, 0.0, 0.0)

    def note_problems(self) -> None:
        table = self._table()
        if table is not None and (files := self.registry.files.of(table)):
            self.registry.files.note_problems({each.id or 0: "a problem" for each in self._some(files)})

    def forget_cards(self) -> None:
        table = self._table()
        if table is not None and (files := self.registry.files.of(table)):
            self.registry.cards.forget({each.id or 0: "damaged" for each in self._some(files)})
