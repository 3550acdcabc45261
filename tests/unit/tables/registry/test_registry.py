"""The registry describes the current file, even if another process changes it before a commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from needlepoint.objects import Identity
from needlepoint.tables.model import File, Place
from needlepoint.tables.registry.artifacts import FileArtifact
from needlepoint.tables.registry.registry import Registry

WAS, NOW = Identity(1, 1), Identity(2, 2)


def a_place(pack: str) -> Place:
    return Place(pack, 4, 10, "none", 10, "sum", 1)


def test_positions_in_a_file_are_of_the_version_that_is_there(tmp_path: Path) -> None:
    """One build reads a file; another one embeds an index in it and commits first."""
    registry = Registry(tmp_path, tmp_path)
    table = registry.tables.create("t", "/t", pa.schema([("id", pa.int64()), ("x", pa.int64())]), ())
    registry.files.replace(table, [File("a.parquet", WAS)], [])
    file_id = registry.files.of(table)[0].id or 0
    key = registry.indexes.create(table, "k", ("id",), "key")
    packed = registry.indexes.create(table, "p", ("id",), "bloom")
    carried = registry.indexes.create(table, "c", ("x",), "bloom", embed=True)
    embedded = registry.indexes.create(table, "e", ("x",), "distinct", embed=True)
    slow = FileArtifact(
        file_id,
        WAS,
        WAS,
        5,
        1,
        1,
        b"before",
        {},
        entries={key.id: 5, packed.id: 5, carried.id: 5},
        places={packed.id: a_place("a.pack"), carried.id: a_place("")},
    )
    quick = FileArtifact(
        file_id, WAS, NOW, 5, 1, 1, b"after", {}, entries={embedded.id: 5}, places={embedded.id: a_place("")}
    )
    registry.commit_artifacts([quick], [])
    registry.commit_artifacts([slow], [(key.id, "run")])
    (file,) = registry.files.of(table)
    assert (file.identity, registry.cards.read(file_id)) == (NOW, b"after")
    # Rows and pages are the same. The next sync finds the new places of other contents of the file.
    assert file.indexed == {key.id, packed.id, embedded.id}
    assert registry.payloads.places(packed) == {file_id: a_place("a.pack")}
    assert registry.payloads.places(carried) == {}
    registry.close()
