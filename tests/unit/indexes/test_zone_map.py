"""Zone maps are decoded safely: what the format does not clearly define counts as unknown."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlepoint.indexes.zone_map import ZoneMap, zone_maps
from needlepoint.objects import open_object
from needlepoint.parquet.card import describe as describe_module
from needlepoint.parquet.card.array_container import CardCorrupt
from needlepoint.parquet.card.describe import describe
from needlepoint.parquet.format.footer import read_footer
from needlepoint.parquet.format.page_index import decode_column_index, encode_column_index
from needlepoint.predicate import Bounds, Compare, IsNotNull, IsNull, Match, Zone, Zones, match

DAY = datetime.date(2024, 1, 1)
VALUES = {
    "int8": pa.array([-5, 3, None, 7], pa.int8()),
    "uint64": pa.array([0, 2**64 - 1, 5, None], pa.uint64()),
    "date": pa.array([DAY, None, DAY, DAY], pa.date32()),
    "timestamp": pa.array([1, 2, None, -3], pa.timestamp("us", tz="UTC")),
    "decimal": pa.array([decimal.Decimal("-1.50"), None, decimal.Decimal("99999999.99"), None], pa.decimal128(10, 2)),
    "wide decimal": pa.array([decimal.Decimal(10**30), None, decimal.Decimal(-(10**30)), None], pa.decimal128(38, 0)),
    "string": pa.array(["b", "a", None, "ü" * 50]),
    "binary": pa.array([b"\xff" * 100, b"", None, b"x"]),
    "bool": pa.array([True, False, None, True]),
    "fixed": pa.array([b"aaaa", b"zzzz", None, b"mmmm"], pa.binary(4)),
    "float": pa.array([1.5, float("nan"), None, -0.0]),
}


@pytest.mark.covering
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("page_index", [True, False])
def test_every_value_is_within_its_bounds(tmp_path: Path, name: str, page_index: bool) -> None:
    column = pa.chunked_array([VALUES[name]] * 5)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": column}), path, row_group_size=6, max_rows_per_page=2, write_batch_size=1,
                   write_page_index=page_index)  # fmt: skip
    found = zone_maps(describe(str(path)))["c"]
    assert found.group_rows.tolist() == [0, 6, 12, 18, 20]
    assert found.page_rows[-1] == 20
    again = ZoneMap.from_bytes(found.to_bytes())
    for zone_map in (found, again):
        for zone, edges in ((zone_map.groups, zone_map.group_rows), (zone_map.pages, zone_map.page_rows)):
            for at, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
                values = column.slice(start, stop - start)
                nulls = Match(match(IsNull("c"), Zones(len(zone.known), {"c": zone}))[at])
                assert nulls != Match.NEVER or values.null_count == 0
                assert nulls != Match.ALWAYS or values.null_count == len(values)
    from needlepoint.tables.schemas import ordinal

    for row, value in enumerate(column):
        sought = ordinal(value)
        if sought is None or sought != sought:
            continue
        for zone, edges in ((found.groups, found.group_rows), (found.pages, found.page_rows)):
            at = int(np.searchsorted(edges, row, side="right")) - 1
            for operator in ("=", "<=", ">="):
                answer = match(Compare("c", operator, sought), Zones(len(zone.known), {"c": zone}))[at]
                assert answer != Match.NEVER, (name, row, operator)


def test_bounds_tell_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": range(100)}), path, row_group_size=50, max_rows_per_page=10, write_batch_size=10,
                   write_page_index=True)  # fmt: skip
    found = zone_maps(describe(str(path)))["c"]
    assert found.file_bounds() == Bounds(0, 99, 0, 100)
    assert found.pages.ordered
    assert found.pages.low.tolist() == list(range(0, 100, 10))
    answers = match(Compare("c", "=", 55), Zones(10, {"c": found.pages}))
    assert np.flatnonzero(answers != Match.NEVER).tolist() == [5]


def test_descending_pages_are_searched_too(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": [f"{99 - each:02}" for each in range(100)]}), path, max_rows_per_page=10,
                   write_batch_size=10, write_page_index=True)  # fmt: skip
    found = zone_maps(describe(str(path)))["c"]
    assert found.pages.descending
    assert ZoneMap.from_bytes(found.to_bytes()).pages.descending
    answers = match(Compare("c", "=", b"55"), Zones(10, {"c": found.pages}))
    assert np.flatnonzero(answers != Match.NEVER).tolist() == [4]


def test_bounds_in_a_finer_unit_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    years = [datetime.datetime(year, 1, 1) for year in (1, 1970, 2024, 9999)]
    pq.write_table(pa.table({"c": pa.array(years, pa.timestamp("us"))}), path, row_group_size=1, write_page_index=True)
    found = zone_maps(describe(str(path)))["c"]
    assert found.scaled(1) is found
    finer = found.scaled(1000)
    assert [int(low) for low in finer.pages.low] == [1000 * int(low) for low in found.pages.low]
    assert finer.pages.ordered and finer.file_bounds().high == 1000 * int(found.file_bounds().high or 0) > 2**63
    for value in (0, 1000 * int(found.pages.low[2]), 1 + 1000 * int(found.pages.low[2]), 2**63 - 1):
        answers = match(Compare("c", ">=", value), Zones(4, {"c": finer.pages}))
        assert (answers != Match.NEVER).tolist() == [int(high) >= value for high in finer.pages.high]


def test_int96_has_no_bounds(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    times = pa.array([datetime.datetime(2020, 1, 1), datetime.datetime(1950, 1, 1)])
    pq.write_table(pa.table({"c": times}), path, use_deprecated_int96_timestamps=True)
    found = zone_maps(describe(str(path))).get("c")
    assert found is None or not (found.groups.known.any() or found.pages.known.any())


def test_bounds_of_an_order_that_is_not_known_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": [1, 2], "f": [1.5, 2.5]}), path, write_page_index=True)
    assert zone_maps(describe(str(path)))["c"].groups.known.all()
    monkeypatch.setattr(describe_module, "TYPE_ORDER", b"\x2c\x00\x00")  # so the file has another order
    found = zone_maps(describe(str(path)))
    assert not found["c"].groups.known.any() and not found["c"].pages.known.any()
    assert found["c"].groups.no_null.all()
    assert found["f"].groups.known.all()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_zone_map_are_refused(data: bytes) -> None:
    with pytest.raises(CardCorrupt):
        ZoneMap.from_bytes(data)


def test_zones_of_nothing() -> None:
    empty = np.zeros(1, np.int64)
    zone_map = ZoneMap(empty, Zone.unknown(0), empty, Zone.unknown(0))
    assert len(ZoneMap.from_bytes(zone_map.to_bytes()).pages.known) == 0


def tampered(path: Path, **changes: object) -> ZoneMap:
    """Change the column index of column c in place, and return the zone map."""
    data = bytearray(path.read_bytes())
    with open_object(str(path)) as file:
        (group,) = read_footer(file).row_groups
    chunk = group.columns[0]
    assert chunk.column_index_offset is not None and chunk.column_index_length is not None
    place = slice(chunk.column_index_offset, chunk.column_index_offset + chunk.column_index_length)
    index = encode_column_index(dataclasses.replace(decode_column_index(bytes(data[place])), **changes))  # type: ignore[arg-type]
    data[place] = index.ljust(chunk.column_index_length, b"\0")  # pyarrow also writes level histograms
    path.write_bytes(data)
    return zone_maps(describe(str(path)))["c"]


@pytest.mark.parametrize(
    ("null_pages", "null_counts"),
    [
        ([True, True, True], [-1, -1, -1]),  # as older writers do for pages without statistics
        ([True, True, True], [10, 10, 10]),  # the chunk has no NULLs
        ([False, True, False], [0, 0, 0]),
        ([False, True, False], [0, 10, 0]),
        ([False, False, False], [0, 10, 0]),
    ],
)
def test_pages_of_nulls_that_contradict_the_chunk_are_not_believed(
    tmp_path: Path, null_pages: list[bool], null_counts: list[int]
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": range(30)}), path, max_rows_per_page=10, write_batch_size=10, write_page_index=True)
    found = tampered(path, null_pages=np.array(null_pages), null_counts=np.array(null_counts))
    assert len(found.pages.known) == 3
    for zone in (found.pages, ZoneMap.from_bytes(found.to_bytes()).pages):
        zones = Zones(3, {"c": zone})
        assert (match(IsNotNull("c"), zones) != Match.NEVER).all()
        assert (match(Compare("c", "<>", -1), zones) != Match.NEVER).all()


def test_pages_of_nulls_are_known_where_all_counts_agree(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    column = pa.array([*range(10), *[None] * 10, *range(10)], pa.int64())
    pq.write_table(pa.table({"c": column}), path, max_rows_per_page=10, write_batch_size=10, write_page_index=True)
    found = zone_maps(describe(str(path)))["c"]
    for zone in (found.pages, ZoneMap.from_bytes(found.to_bytes()).pages):
        assert match(IsNotNull("c"), Zones(3, {"c": zone})).tolist() == [Match.ALWAYS, Match.NEVER, Match.ALWAYS]


def test_a_stored_zone_map_of_pages_without_statistics_is_not_believed() -> None:
    """Earlier versions stored such maps."""
    rows, nothing = np.array([0, 10, 20]), Zone.unknown(2)
    stored = ZoneMap(rows, nothing, rows, dataclasses.replace(nothing, all_null=np.array([True, True]))).to_bytes()
    assert match(IsNotNull("c"), Zones(2, {"c": ZoneMap.from_bytes(stored).pages})).tolist() == [Match.MAYBE] * 2


def test_an_empty_bound_is_none_where_the_chunk_has_no_empty_string(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for texts, expected in ((["b", "c"], Match.MAYBE), (["", "c"], Match.NEVER)):
        pq.write_table(pa.table({"c": texts}), path, max_rows_per_page=1, write_batch_size=1, write_page_index=True)
        described = describe(str(path))
        (index,) = described.page_bounds
        assert index is not None
        empty = dataclasses.replace(index, min_values=(b"", b"c"), max_values=(b"", b"c"))
        found = zone_maps(dataclasses.replace(described, page_bounds=(empty,)))["c"]
        assert match(Compare("c", "=", b"b"), Zones(2, {"c": found.pages}))[0] == expected


def test_a_chunk_of_nulls_with_bounds_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": range(30)}), path)
    described = describe(str(path))
    chunks = dataclasses.replace(described.card.chunks, null_count=np.array([30]))
    found = zone_maps(dataclasses.replace(described, card=dataclasses.replace(described.card, chunks=chunks)))["c"]
    assert match(IsNotNull("c"), Zones(1, {"c": found.groups})).tolist() == [Match.MAYBE]
    assert match(Compare("c", "=", 100), Zones(1, {"c": found.groups})).tolist() == [Match.MAYBE]
