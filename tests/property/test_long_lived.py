"""A lake that stays open while another one changes everything answers correctly, as a newly opened lake does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import cases
from tests.lakes import staged, write

import needlepoint
from needlepoint.tables import publishing

STEPS = cases(30, 12)
INDEXES = [
    ("id", "key", False),
    ("id", "key", True),
    ("word", "text", True),
    ("word", "text", False),
    ("kind", "distinct", False),
    ("kind", "bloom", True),
    ("t", "key", False),
]


class World:
    """A table `t` that one lake changes, and the rows it must have, by id."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.lake = needlepoint.open(root, refresh=0)
        self.rows: dict[int, dict[str, Any]] = {}
        self.synced = True
        self.next = 0
        self.log: list[str] = []
        self.pending: list[tuple[pa.Table, int]] = []  # of batches that a later change finishes
        self.publish()

    def table(self, count: int) -> pa.Table:
        ids = list(range(self.next, self.next + count))
        self.next += count
        self.random.shuffle(ids)
        unit = self.random.choice(["us", "us", "us", "ns"])
        columns = {
            "id": pa.array(ids, pa.int64()),
            "word": [f"w{n % 13} common{'' if n % 3 else ' rare'}" for n in ids],
            "kind": [None if n % 7 == 0 else n % 5 for n in ids],
            "t": pa.array([n * 1000 for n in ids], pa.int64()).cast(pa.timestamp("us")).cast(pa.timestamp(unit)),
        }
        if self.random.random() < 0.3:
            columns["a.b"] = pa.array([n / 2 for n in ids])
        return pa.table(columns)

    def note(self, table: pa.Table, year: int) -> None:
        for row in table.to_pylist():
            self.rows[row["id"]] = {"id": row["id"], "word": row["word"], "kind": row["kind"], "year": year}

    # Changes

    def publish(self) -> None:
        table, year = self.table(self.random.randint(1, 300)), self.random.choice([2020, 2021])
        staging = self.lake.writer.staging("t")
        self.lake.publish("t", staged(staging, {f"year={year}/x.parquet": table}), staging)
        self.note(table, year)

    def begin(self) -> None:
        """A publisher dies before or after the commit."""
        table, year = self.table(20), self.random.choice([2020, 2021])
        staging = self.lake.writer.staging("t")
        owner, name = self.random.choice(
            [
                (publishing, "_move_all"),
                (self.lake.registry.batches, "commit"),
                (self.lake.registry.batches, "announced"),
            ]
        )
        with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(owner, name, _die)
            self.lake.publish("t", staged(staging, {f"year={year}/x.parquet": table}), staging)
        if name == "announced":
            self.note(table, year)
        else:
            self.pending.append((table, year))

    def delete(self) -> None:
        low = self.random.randrange(self.next)
        high = low + self.random.choice([1, 5, 100])
        conditions: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
            (f"id >= {low} AND id < {high}", lambda row: low <= row["id"] < high),
            (f"kind = 3 AND id < {low}", lambda row: row["kind"] == 3 and row["id"] < low),
            (
                f"kind IS NULL AND year = 2020 AND id < {high}",
                lambda row: row["kind"] is None and row["year"] == 2020 and row["id"] < high,
            ),
            (
                f"word LIKE '%rare%' AND id BETWEEN {low} AND {high}",
                lambda row: "rare" in row["word"] and low <= row["id"] <= high,
            ),
            (
                f"text_match(word, 'w4') AND NOT (id > {high})",
                lambda row: row["word"].startswith("w4 ") and row["id"] <= high,
            ),
        ]
        where, holds = self.random.choice(conditions)
        self.lake.delete("t", where)
        self.all_known()
        self.rows = {id: row for id, row in self.rows.items() if not holds(row)}

    def finish(self) -> None:
        """The change finished all pending batches."""
        for table, year in self.pending:
            self.note(table, year)
        self.pending.clear()

    def all_known(self) -> None:
        self.finish()
        self.synced = True

    def compact(self) -> None:
        order = self.random.choice([{}, {"sort_by": ["id"]}, {"zorder": ["id", "kind"]}])
        self.lake.compact("t", **order, keep=self.random.choice([0, 0, 1000]), index=self.random.random() < 0.7,
                target_size=self.random.choice([4000, 1 << 20]))  # fmt: skip
        self.all_known()

    def sync(self) -> None:
        self.lake.sync("t")
        self.all_known()

    def create_index(self) -> None:
        column, kind, embed = self.random.choice(INDEXES)
        build = self.random.random() < 0.7
        try:
            self.lake.create_index("t", column, kind=kind, embed=embed, build=build, name=f"i_{column}_{kind}")
        except needlepoint.NameTaken:
            return
        if build:
            self.all_known()

    def drop_index(self) -> None:
        known = self.lake.registry.indexes.of(self.lake.registry.tables.get("t"))
        if known:
            self.lake.drop_index(self.random.choice(known).name, strip=self.random.random() < 0.3)

    def sweep(self) -> None:
        self.lake.sweep(now=self.random.random() < 0.5)
        self.finish()

    def events(self) -> None:
        list(self.lake.follow_events(once=True))
        self.finish()

    def write_file(self) -> None:
        table, year = self.table(50), self.random.choice([2020, 2021])
        write(table, self.root / f"t/year={year}/own{self.next}.parquet")
        self.note(table, year)
        self.synced = False

    def overwrite(self) -> None:
        path = self.pick()
        if path is not None:
            for id in pq.read_table(path, columns=["id"], partitioning=None)["id"].to_pylist():
                self.rows.pop(id)
            table = self.table(40)
            write(table, path)
            self.note(table, int(path.parent.name.removeprefix("year=")))
            self.synced = False

    def remove(self) -> None:
        path = self.pick()
        if path is not None and len(self.rows) > 500:
            for id in pq.read_table(path, columns=["id"], partitioning=None)["id"].to_pylist():
                self.rows.pop(id)
            path.unlink()
            self.synced = False

    def pick(self) -> Path | None:
        files = self.lake.engine.snapshots.current("t").files
        return self.root / "t" / self.random.choice(files).path if files else None

    def recreate(self) -> None:
        self.lake.sweep(now=True)
        self.all_known()
        self.lake.drop_table("t")
        self.lake.create_table("t", self.root / "t")

    def step(self) -> None:
        what: Callable[[], None] = self.random.choice(
            [self.publish, self.publish, self.begin, self.delete, self.delete, self.compact, self.sync, self.sync,
             self.create_index, self.create_index, self.drop_index, self.sweep, self.events, self.write_file,
             self.overwrite, self.remove, self.recreate if self.random.random() < 0.3 else self.sync]
        )  # fmt: skip
        if what in (self.write_file, self.overwrite, self.remove) and self.pending:
            what = self.sync
        self.log.append(what.__name__)
        what()


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def answers(world: World, lake: needlepoint.Lake) -> Iterator[tuple[str, object, object]]:
    """Queries, each with the answer of the lake and the correct one."""
    rows = world.rows
    few = world.random.sample(range(world.next), 3)
    low = world.random.randrange(world.next)

    def ids(where: str) -> list[int]:
        return [row["id"] for row in lake.sql(f"SELECT id FROM t WHERE {where} ORDER BY id").rows()]

    def right(holds: Callable[[dict[str, Any]], bool]) -> list[int]:
        return sorted(row["id"] for row in rows.values() if holds(row))

    yield (
        "count",
        lake.sql("SELECT count(*) AS n, sum(id) AS s FROM t").rows(),
        [{"n": len(rows), "s": sum(rows) if rows else None}],
    )
    yield "all", ids("true"), sorted(rows)
    for id in few:
        yield f"id = {id}", ids(f"id = {id}"), [id] if id in rows else []
    got = lake.table("t").get(id=few, columns=["id"])
    yield f"get {few}", sorted(row["id"] for row in got.rows()), sorted(set(few) & rows.keys())
    yield "range", ids(f"id >= {low} AND id < {low + 20}"), right(lambda row: low <= row["id"] < low + 20)
    yield (
        "text",
        ids("word LIKE '%w7 %' AND year = 2021"),
        right(lambda row: "w7 " in row["word"] and row["year"] == 2021),
    )
    yield (
        "match",
        ids("text_match(word, 'rare') AND kind = 2"),
        right(lambda row: "rare" in row["word"] and row["kind"] == 2),
    )
    yield "nulls", ids("kind IS NULL"), right(lambda row: row["kind"] is None)
    yield "time", ids(f"t = to_timestamp_micros({low * 1000})"), right(lambda row: row["id"] == low)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_lakes_that_stay_open_follow_every_change(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    with needlepoint.open(tmp_path, refresh=0) as eager, needlepoint.open(tmp_path, refresh=3600) as lazy:
        for _ in range(STEPS):
            world.step()
            with needlepoint.open(tmp_path, refresh=0) as fresh:
                lakes = {
                    "fresh": fresh,
                    "eager": eager,
                    "writer": world.lake,
                    **({"lazy": lazy} if world.synced else {}),
                }
                for name, lake in lakes.items():
                    for question, found, right in answers(world, lake):
                        assert found == right, (name, question, world.log)
    world.lake.close()
