"""Bytes that earlier versions stored are read for ever: the golden files are never made again.

A version that cannot read them has a new format number, and says so instead of reading something else.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from needlepoint.errors import StoreError
from needlepoint.indexes.zone import ZoneMap
from needlepoint.parquet.card import FileCard
from needlepoint.predicate import Bounds
from needlepoint.tables.registry import Registry

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
    (table,) = registry.tables()
    (file,) = registry.files(table)
    assert (table.name, file.path, file.rows, file.pages) == ("t", "a.parquet", 10, 20)
    assert dict(registry.bounds(table, "id")) == {file.id: Bounds(0, 9, 0, 10)}
    assert FileCard.from_bytes(registry.card(file.id) or b"").num_rows == 10
    registry.close()


def test_a_registry_of_another_format_is_refused(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "registry-2.db", tmp_path / "registry.db")
    with sqlite3.connect(tmp_path / "registry.db") as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(StoreError, match="version"):
        Registry(tmp_path, tmp_path)
