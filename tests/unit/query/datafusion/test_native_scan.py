"""The bytes of a listing plan as DataFusion writes them; if a new version changes them, these tests fail first."""

from __future__ import annotations

from pathlib import Path

import datafusion
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from needlepoint.query.datafusion.native_scan import NativeScans, _fields, _read_varint, _varint

SCHEMA = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", "Europe/Berlin")), ("l", pa.list_(pa.int32()))])


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**40])
def test_varints(number: int) -> None:
    assert _read_varint(_varint(number), 0) == (number, len(_varint(number)))


def test_paths_are_field_2_of_field_1() -> None:
    context = datafusion.SessionContext()
    context.register_listing_table("x", "/nonexistent/", schema=SCHEMA)
    plan = context.table("x").logical_plan().to_bytes(context)
    assert plan[0] == 0x0A
    _, start = _read_varint(plan, 1)
    paths = [plan[start:][begin:end] for tag, begin, end in _fields(plan[start:]) if tag == 0x12]
    assert [path[2:] for path in paths[:1]] == [b"file:///nonexistent/"]


@pytest.mark.parametrize("name", ["plain", "with space", "per%20cent", "ünï", "[a]*?", "a#b", "p=x%2Fy"])
def test_exactly_the_named_files_are_scanned(tmp_path: Path, name: str) -> None:
    for number in range(3):
        path = tmp_path / f"{name}-{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), path)
    context = datafusion.SessionContext()
    wanted = [str(tmp_path / f"{name}-{number}.parquet") for number in (0, 2)]
    frame = NativeScans().scan(context, SCHEMA, wanted)
    table = pa.table(frame.to_arrow_table())
    assert table.schema.types == SCHEMA.types
    assert sorted(table["id"].to_pylist()) == [0, 2]
    assert table["l"].null_count == 2


def test_a_file_needs_no_suffix_to_be_scanned(tmp_path: Path) -> None:
    """In a list of files, DataFusion would silently skip this one."""
    pq.write_table(pa.table({"id": [5]}), tmp_path / "17")
    frame = NativeScans().scan(datafusion.SessionContext(), SCHEMA, [str(tmp_path / "17")])
    assert pa.table(frame.to_arrow_table())["id"].to_pylist() == [5]


@pytest.mark.parametrize("stored", [True, False])
def test_int96_is_read_as_microseconds(tmp_path: Path, stored: bool) -> None:
    path = tmp_path / "a.parquet"
    stamps = pa.array([253402300799_000_000, None], pa.timestamp("us"))  # the year 9999
    pq.write_table(pa.table({"t": stamps}), path, use_deprecated_int96_timestamps=True, store_schema=stored)
    frame = NativeScans().scan(datafusion.SessionContext(), pa.schema([("t", pa.timestamp("us"))]), [str(path)])
    assert pa.table(frame.to_arrow_table())["t"].to_pylist() == stamps.to_pylist()
