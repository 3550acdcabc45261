"""Every version reads the bytes that earlier versions stored: the golden files are never regenerated.

A version that cannot read them has a new format number, and raises an error instead of reading them incorrectly.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import as_format_5

from needlepoint.errors import StoreError
from needlepoint.indexes.zone_map import ZoneMap
from needlepoint.objects import Identity
from needlepoint.parquet.card.card import FileCard
from needlepoint.predicate import Bounds
from needlepoint.tables.model import File, Place, Removal
from needlepoint.tables.published import copies
from needlepoint.tables.published.manifest import RegistryManifest
from needlepoint.tables.registry.artifacts import FileArtifact
from needlepoint.tables.registry.cards import StoredZones
from needlepoint.tables.registry.registry import Registry
from needlepoint.tables.snapshots import on_their_way

GOLDEN = Path(__file__).parents[1] / "golden"


def test_cards() -> None:
    card = FileCard.from_bytes((GOLDEN / "card.npfc").read_bytes())
    expected = json.loads((GOLDEN / "card.json").read_text())
    assert (card.num_rows, card.identity.size, card.identity.mtime_ns) == (
        expected["rows"],
        expected["size"],
        1_700_000_000,
    )
    assert card.arrow_schema.names == expected["columns"]
    assert card.row_group_rows.tolist() == expected["row_group_rows"]
    assert card.pages.offset.tolist() == expected["page_offsets"]
    assert card.pages.first_row.tolist() == expected["page_rows"]
    low = card.statistics(0, 0)
    assert (low.min_value, low.max_value) == (bytes.fromhex(expected["min"]), bytes.fromhex(expected["max"]))


@pytest.mark.parametrize("column", ["id", "text", "big", "number"])
def test_zone_maps(column: str) -> None:
    zone_map = ZoneMap.from_bytes((GOLDEN / f"zones-{column}.npfc").read_bytes())
    expected = json.loads((GOLDEN / "zones.json").read_text())[column]
    assert zone_map.group_rows.tolist() == expected["group_rows"]
    assert zone_map.page_rows.tolist() == expected["page_rows"]
    assert [str(value) for value in zone_map.pages.low.tolist()] == expected["low"]
    assert [str(value) for value in zone_map.pages.high.tolist()] == expected["high"]
    assert zone_map.pages.known.tolist() == expected["known"]


def test_registry(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "registry-2.db", tmp_path / "registry.db")
    registry = Registry(tmp_path, tmp_path)
    (table,) = registry.tables.all()
    (file,) = registry.files.of(table)
    assert (table.name, file.path, file.rows, file.pages) == ("t", "a.parquet", 10, 20)
    assert dict(registry.files.bounds(table, "id")) == {file.id: Bounds(0, 9, 0, 10)}
    assert FileCard.from_bytes(registry.cards.read(file.id) or b"").num_rows == 10
    registry.close()


def test_registry_with_units(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "registry-3.db", tmp_path / "registry.db")
    registry = Registry(tmp_path, tmp_path)
    (table,) = registry.tables.all()
    both, index = registry.indexes.of(table)
    coarse, fine = registry.files.of(table)
    assert (coarse.id, fine.id) == (1, 2)
    assert table.mixed == {"at"}
    assert dict(registry.files.bounds(table, "id")) == {1: Bounds(0, 9, 0, 10), 2: Bounds(10, 19, 0, 10)}
    assert dict(registry.files.bounds(table, "at")) == {1: Bounds(1000, 2000, 0, 10), 2: Bounds(1, 2, 0, 10)}
    zones = (GOLDEN / "zones-id.npfc").read_bytes()
    assert registry.cards.zones([1, 2], "at") == {1: StoredZones(zones, "us"), 2: StoredZones(zones, "ns")}
    assert (coarse.indexed, registry.indexes.runs(index)) == ({index.id, both.id}, ["run"])
    assert (registry.indexes.coverage(index), registry.indexes.coverage(both)) == ((1, 10), (1, 7))
    assert (both.columns, both.kind, both.embed, both.options) == (("id", "at"), "bloom", True, '{"fpp": 0.02}')
    assert registry.payloads.places(both) == {1: Place("a.pack", 4, 100, "zstd", 300, "abc", 1)}
    registry.close()


def test_registry_with_removals(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "registry-4.db", tmp_path / "registry.db")
    registry = Registry(tmp_path, tmp_path)
    (table,) = registry.tables.all()
    assert (table.name, table.format, table.partitions) == ("t", "parquet", ("year",))
    (file,) = registry.files.of(table)
    assert (file.id, file.path) == (2, "year=2020/b.parquet")
    (batch,) = registry.batches.unfinished(table)
    assert (batch.batch, batch.state, batch.staging, batch.keep_until) == ("swap", "removing", "stage/x", 5e9)
    assert batch.removals == (Removal(1, "year=2020/a.parquet", Identity(10, 11, "e")),)
    assert on_their_way([batch], {"year=2020/b.parquet"}) == (
        frozenset(),
        {"year=2020/a.parquet": Identity(10, 0, "e")},
    )
    registry.close()


def test_registry_with_changes(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "registry-5.db", tmp_path / "registry.db")
    registry = Registry(tmp_path, tmp_path)
    (table,) = registry.tables.all()
    assert [file.path for file in registry.files.of(table)] == ["a.parquet", "c.parquet"]
    assert (registry.sequence(), registry.files.changed(table, 5)) == (6, [2, 3])
    assert registry.payloads.embedded([2, 3]) == {}  # the registry has no record of embedded indexes
    files = registry.files.of(table)
    assert [(file.identity.ctime_ns, file.identity.inode) for file in files] == [(0, 0), (0, 0)]
    assert registry.files.samples([file.id for file in files if file.id is not None]) == {}
    registry.close()


def test_units_of_a_registry_that_had_none(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.timestamp("us")), ("i", pa.int64())])
    registry = Registry(tmp_path, tmp_path)
    table = registry.tables.create("t", str(tmp_path / "t"), schema, ())
    registry.files.replace(table, [File("a.parquet", Identity(1, 2))], ())
    (file,) = registry.files.of(table)
    assert file.id is not None
    bounds = {"t": Bounds(1, 2, 0, 10), "i": Bounds(1, 2, 0, 10)}
    artifact = FileArtifact(file.id, file.identity, file.identity, 10, 1, 1, b"", bounds, {"t": b"", "i": b""})
    registry.commit_artifacts([artifact], ())
    registry.close()
    with sqlite3.connect(tmp_path / "registry.db") as connection:
        as_format_5(connection)
        for name in ("bounds", "zones"):
            connection.execute(f"ALTER TABLE {name} DROP COLUMN unit")
        for name in ("mixed", "format"):
            connection.execute(f"ALTER TABLE tables DROP COLUMN {name}")
        for name in ("removals", "keep_until"):
            connection.execute(f"ALTER TABLE batches DROP COLUMN {name}")
        for name in ("columns", "embed", "options"):
            connection.execute(f"ALTER TABLE indexes DROP COLUMN {name}")
        connection.execute("DROP TABLE payloads")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DROP TABLE changes")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    registry = Registry(tmp_path, tmp_path)
    finer = registry.tables.widen_schema(registry.tables.get("t"), pa.schema([("t", pa.timestamp("ns"))]))
    assert (finer.schema.field("t").type, finer.mixed) == (pa.timestamp("ns"), {"t"})
    assert registry.files.bounds(table, "t") == [(file.id, Bounds(1, 2, 0, 10))]
    assert registry.files.bounds(finer, "t") == [(file.id, Bounds(1000, 2000, 0, 10))]
    assert registry.files.bounds(finer, "i") == [(file.id, Bounds(1, 2, 0, 10))]
    assert [registry.cards.zones([file.id], name)[file.id].unit for name in ("t", "i")] == ["us", None]
    registry.close()


def test_a_registry_of_another_format_is_refused(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "registry-2.db", tmp_path / "registry.db")
    with sqlite3.connect(tmp_path / "registry.db") as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(StoreError, match="version"):
        Registry(tmp_path, tmp_path)


def test_registry_with_samples(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "registry-6.db", tmp_path / "registry.db")
    registry = Registry(tmp_path, tmp_path)
    (table,) = registry.tables.all()
    (file,) = registry.files.of(table)
    assert (file.id, file.path, file.identity) == (1, "a.parquet", Identity(10, 11, ctime_ns=12, inode=13))
    assert (file.identity.ctime_ns, file.identity.inode) == (12, 13)
    assert registry.files.samples([1]) == {1: "s1"}
    assert registry.payloads.embedded([1]) == {1: frozenset({"abc"})}
    assert dict(registry.files.bounds(table, "id")) == {1: Bounds(0, 9, 0, 10)}
    registry.close()


def test_registry_with_cards_in_packs(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "registry-7.db", tmp_path / "registry.db")
    registry = Registry(tmp_path, tmp_path)
    (name,) = registry.cards.names()
    (tmp_path / "cards").mkdir()
    shutil.copy(GOLDEN / "registry-7.pack", tmp_path / "cards" / name)
    (table,) = registry.tables.all()
    first, second, third = registry.files.of(table)
    assert [file.has_card for file in (first, second, third)] == [True, True, False]
    assert (first.identity, first.pages) == (Identity(10, 11, ctime_ns=12, inode=13), 20)
    card, zones, texts = ((GOLDEN / f"{each}.npfc").read_bytes() for each in ("card", "zones-id", "zones-text"))
    assert registry.cards.read_all([1, 2, 3]) == {1: card, 2: card}
    assert registry.cards.zones([1, 2, 3], "id") == {1: StoredZones(zones, None), 2: StoredZones(zones, None)}
    assert registry.cards.zones([1, 2, 3], "at") == {1: StoredZones(zones, "us")}
    assert registry.cards.zones([1, 2, 3], "text") == {2: StoredZones(texts, None)}
    assert dict(registry.files.bounds(table, "id")) == {1: Bounds(0, 9, 0, 10), 2: Bounds(10, 19, 0, 10)}
    assert (registry.cards.check(table), registry.cards.lost()) == ({}, {})
    registry.close()


def test_published_registry(tmp_path: Path) -> None:
    """The manifest, the checkpoint and the delta of format 1, of a registry of format 7."""
    golden = GOLDEN / "published"
    manifest = RegistryManifest.from_bytes("golden", (golden / "manifest.json").read_bytes())
    (delta,) = manifest.deltas
    assert manifest.schema == 7 and manifest.steps(manifest.checkpoint.sequence) == (delta,)
    for name, object in (("checkpoint", manifest.checkpoint), ("delta", delta)):
        assert copies.is_intact(golden / f"{name}.zst", object.size, object.checksum)
        copies.unpack(golden / f"{name}.zst", tmp_path / f"{name}.db")
    with copies.opened(tmp_path / "checkpoint.db") as connection:
        assert copies.sequence_of(connection) == manifest.checkpoint.sequence
        copies.apply_deltas(connection, [tmp_path / "delta.db"])
        assert copies.sequence_of(connection) == manifest.sequence
        for table, expected in json.loads((golden / "contents.json").read_text()).items():
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()
            plain = [[value.hex() if isinstance(value, bytes) else value for value in row] for row in rows]
            assert sorted(plain, key=repr) == sorted(expected, key=repr), table
