"""`KnownFiles` does not read the rows of unchanged files again, and still sees every change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.lakes import product_lake, products, write

import needlepoint
from needlepoint.objects import Identity
from needlepoint.tables import snapshots
from needlepoint.tables.model import File, Table
from needlepoint.tables.registry import known_files
from needlepoint.tables.registry.artifacts import FileArtifact
from needlepoint.tables.registry.databases import database
from needlepoint.tables.registry.known_files import KnownFiles
from needlepoint.tables.registry.registry import Registry

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path, tmp_path)


def a_table(registry: Registry, name: str = "t", files: int = 20) -> Table:
    table = registry.tables.create(name, f"/{name}", SCHEMA, ())
    registry.files.replace(table, [File(f"{n}.parquet", Identity(n, n)) for n in range(files)], [])
    return table


def an_artifact(file: File, *, rows: int = 1, **known: Any) -> FileArtifact:
    return replace(FileArtifact(file.id or 0, file.identity, file.identity, rows, 1, 1, b"", {}), **known)


def test_only_what_changed_is_another_object(registry: Registry) -> None:
    table, other = a_table(registry), a_table(registry, "other")
    known = KnownFiles(registry)
    before = known.of(table)
    registry.files.replace(other, [File("x.parquet", Identity(1, 1))], [])
    assert known.of(table) is before
    first = before["0.parquet"]
    registry.commit_artifacts([an_artifact(first, rows=10)], [])
    after = known.of(table)
    assert after["0.parquet"].rows == 10
    assert all(after[path] is file for path, file in before.items() if path != "0.parquet")


def test_every_way_a_file_changes_is_noticed(registry: Registry) -> None:
    table = a_table(registry)
    known = KnownFiles(registry)
    known.of(table)
    index = registry.indexes.create(table, "t_id_key", ("id",), "key")
    files = {file.path: file for file in registry.files.of(table)}
    ids = {path: file.id or 0 for path, file in files.items()}
    changes = [
        lambda: registry.files.replace(table, [File("new.parquet", Identity(1, 1))], [ids["1.parquet"]]),
        lambda: registry.files.replace(table, [File("2.parquet", Identity(9, 9))], []),  # replaces the row
        lambda: registry.commit_artifacts([an_artifact(files["3.parquet"], rows=10)], []),
        lambda: registry.commit_artifacts(
            [an_artifact(files["4.parquet"], rows=5, entries={index.id: 5}, identity=Identity(7, 7))], []
        ),
        lambda: registry.commit_artifacts([], [], {index.id: {ids["5.parquet"]: 3}}),
        lambda: registry.files.note_problems({ids["6.parquet"]: "odd"}),
        lambda: registry.payloads.forget(index, [ids["4.parquet"]]),
        lambda: registry.indexes.drop(index.name),
    ]
    for change in changes:
        before = known.of(table)
        change()
        found = known.of(table)
        assert found is not before
        assert found == {file.path: file for file in registry.files.of(table)}


def test_a_reader_with_an_old_state_reads_everything(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CHANGES_KEPT", 5)
    table = a_table(registry)
    known = KnownFiles(registry)
    known.of(table)
    since = registry.sequence()
    for number in range(10):
        registry.files.replace(table, [File(f"new{number}.parquet", Identity(1, 1))], [])
    assert registry.files.changed(table, since) is None
    assert registry.files.changed(table, registry.sequence()) == []
    assert len(known.of(table)) == 30
    ((kept,),) = registry.database.read("SELECT count(DISTINCT sequence) FROM changes")
    assert kept <= 5


def test_random_changes_by_two_processes(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_files, "FEW", 3)
    table = a_table(registry)
    other = Registry(tmp_path, tmp_path)
    known = KnownFiles(registry)
    chance = np.random.default_rng(3)
    for _ in range(60):
        writer = other if chance.random() < 0.7 else registry
        present = writer.files.of(table)
        removed = [present[at].id or 0 for at in chance.integers(0, len(present), chance.integers(0, 3))]
        added = [File(f"{n}.parquet", Identity(int(chance.integers(9)), 1)) for n in set(chance.integers(0, 40, 3))]
        writer.files.replace(table, added, removed)
        if chance.random() < 0.5:
            assert known.of(table) == {file.path: file for file in registry.files.of(table)}
    other.close()


# Queries


def test_what_is_prepared_of_other_files_stays_and_answers_are_right(tmp_path: Path) -> None:
    product_lake(tmp_path, files=12, rows=300)
    questions = (
        "product_id BETWEEN 100 AND 900",
        "year = 2021 AND price < 30",
        "upc = 'U000009005'",
        "title LIKE 't%'",
    )

    def answers(lake: needlepoint.Lake) -> list[list[dict[str, object]]]:
        query = "SELECT product_id FROM product WHERE {} ORDER BY 1"
        return [lake.sql(query.format(where)).rows() for where in questions]

    with needlepoint.open(tmp_path, refresh=600) as lake, needlepoint.open(tmp_path) as writer:
        lake.create_table("product")
        lake.create_index("product", "product_id")
        answers(lake)
        for step in range(4):
            write(products(9000 + step * 300, 300), tmp_path / "product/year=2021" / f"new{step}.parquet")
            if step == 2:
                (tmp_path / "product/year=2020/p4.parquet").unlink()
                write(products(900, 310), tmp_path / "product/year=2020/p2.parquet")
            writer.sync("product")
            before = lake.engine._states["product"]
            with needlepoint.open(tmp_path) as fresh:
                assert answers(lake) == answers(fresh)
            now = lake.engine._states["product"]
            assert now is not before
            kept = {id(file) for file in before.snapshot.files} & {id(file) for file in now.snapshot.files}
            assert len(kept) >= 10


def test_a_change_elsewhere_lists_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product_lake(tmp_path, files=4, rows=100)
    with needlepoint.open(tmp_path, refresh=600) as lake:
        lake.create_table("product")
        lake.create_table("again", tmp_path / "product")
        before = lake.engine.snapshots.current("product")
        monkeypatch.setattr(snapshots, "list_files", None)  # every listing fails
        lake.sql("CREATE VIEW v AS SELECT 1 AS one")
        again = lake.registry.tables.get("again")
        lake.registry.files.replace(again, [], [lake.registry.files.of(again)[0].id or 0])
        assert lake.engine.snapshots.current("product") is before
        lake.registry.indexes.create(lake.registry.tables.get("product"), "an_index", ("upc",), "key")
        with pytest.raises(TypeError):
            lake.engine.snapshots.current("product")


def test_a_slow_listing_serves_longer_and_zero_lists_always(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product_lake(tmp_path, files=1, rows=100)
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("product")
        often = snapshots.Snapshots(lake.registry, 1.0, 60.0)
        assert often._serves_for("/data", 0.05) == 1.0
        assert often._serves_for("/data", 0.5) == 5.0
        assert often._serves_for("s3://data", 0.5) == 60.0
        assert snapshots.Snapshots(lake.registry, 0)._serves_for("/data", 3.0) == 0


def test_a_listing_stands_while_an_indexer_commits_and_while_files_come(tmp_path: Path, monkeypatch) -> None:
    product_lake(tmp_path)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        (first, *_) = lake.registry.files.of(table := lake.registry.tables.get("product"))
        original, listed = snapshots.list_files, []

        def busy(location: str):
            found = original(location)
            listed.append(location)
            lake.registry.files.note_problems({first.id: f"problem {len(listed)}"})
            if len(listed) == 2:
                lake.registry.files.replace(table, [File("year=2020/new.parquet", Identity(1, 1))], [])
            return found

        monkeypatch.setattr(snapshots, "list_files", busy)
        seen = lake.engine.snapshots.look("product")
        assert len(listed) == 1
        assert "problem 1" in {file.problem for file in seen.files}
        seen = lake.engine.snapshots.look("product")
        assert len(listed) == 2
        assert "year=2020/new.parquet" in {file.path for file in seen.files}
