"""Files built from the rows of other files, for all types."""

from __future__ import annotations

import decimal
import uuid
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from needlepoint.errors import FileChanged
from needlepoint.maintenance import merge as merging
from needlepoint.maintenance.merge import MergeResult, MergeTask, SourceFile, merge
from needlepoint.maintenance.ordering import RowOrder, is_sortable
from needlepoint.objects import identify
from needlepoint.parquet.write.rewrite import Pages, form_of, without_rows

NUMBER = decimal.Decimal("1.50")

COLUMNS = {
    "int8": pa.array([1, None, 3], pa.int8()),
    "uint64": pa.array([2**63, None, 0], pa.uint64()),
    "half": pa.array([np.float16(1), None, np.float16(2)], pa.float16()),
    "nanoseconds": pa.array([1, None, -1], pa.timestamp("ns")),
    "zoned": pa.array([1, None, 2], pa.timestamp("us", "Europe/Berlin")),
    "seconds": pa.array([1, None, 2], pa.timestamp("s")),
    "time": pa.array([1, None, 2], pa.time64("ns")),
    "time32": pa.array([1, None, 2], pa.time32("s")),
    "decimal": pa.array([NUMBER, None, NUMBER], pa.decimal128(9, 2)),
    "wide": pa.array([NUMBER, None, NUMBER], pa.decimal256(50, 2)),
    "large": pa.array([["a"], None, []], pa.large_list(pa.large_string())),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": [1, None]}, None, {"x": None}], pa.struct([("x", pa.list_(pa.int32()))])),
    "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "bytes": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "view": pa.array(["a", None, "a text that is longer than a view"], pa.string_view()),
    "duration": pa.array([1, None, 2], pa.duration("us")),
    "nothing": pa.nulls(3),
    "bool": pa.array([True, None, False]),
    "uuid": pa.array([uuid.UUID(int=1).bytes, None, uuid.UUID(int=2).bytes], pa.uuid()),
    "json": pa.array(['{"a": 1}', None, "[]"], pa.json_()),
    "a.b": pa.array([1, None, 2]),
}


@pytest.mark.parametrize("store_schema", [True, False])
def test_every_type_comes_back(tmp_path: Path, store_schema: bool) -> None:
    source, target = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    pq.write_table(pa.table(COLUMNS), source, store_schema=store_schema, row_group_size=2)
    assert form_of(source).refused() is None
    assert without_rows(source, identify(source), target, np.array([1]), 100) == 2
    assert form_of(target).kind == form_of(source).kind
    before, after = (pq.ParquetFile(path).read() for path in (source, target))
    assert (after.schema, after.to_pylist()) == (before.schema, [before.to_pylist()[at] for at in (0, 2)])


@pytest.mark.parametrize("column", COLUMNS)
def test_files_are_merged_in_order_of_any_type_that_has_one(tmp_path: Path, column: str) -> None:
    table = pa.table({"n": [0, 1, 2], column: COLUMNS[column]})
    sources = []
    for number in range(2):
        path = str(tmp_path / f"{number}.parquet")
        pq.write_table(table.set_column(0, "n", pa.array([number * 3 + each for each in range(3)])), path)
        sources.append(SourceFile(path, identify(path)))
    type = table.schema.field(column).type
    for zorder in (False, True):
        order = RowOrder((column, "n"), zorder=zorder) if is_sortable(type) else None
        assert order is not None or pa.types.is_nested(type) or pa.types.is_null(type) or column == "json", column
        made = merge(MergeTask(tuple(sources), str(tmp_path / "new/m"), Pages(100, 1000, "zstd", ("n",)), order))
        assert made.rows == 6
        merged = pq.ParquetFile(made.path).read()
        whole = pa.concat_tables([pq.ParquetFile(source.path).read() for source in sources])
        assert form_of(made.path).kind == form_of(sources[0].path).kind
        places = np.argsort(merged["n"].to_numpy())
        assert [merged[column][int(at)].as_py() for at in places] == whole[column].to_pylist()


def test_two_attempts_at_one_merge_do_not_meet(tmp_path: Path, monkeypatch) -> None:
    """Spark restarts a task that it assumes to be lost or slow, while the first attempt still runs."""
    table = pa.table({"n": list(range(10))})
    pq.write_table(table, tmp_path / "0.parquet")
    path = str(tmp_path / "0.parquet")
    task = MergeTask((SourceFile(path, identify(path)),), str(tmp_path / "new/m"), Pages(100, 1000, "zstd", ()))
    original = merging._tables

    def broken(*_: object) -> Iterator[pa.Table]:
        yield table
        raise OSError("killed")

    def meanwhile(*arguments: object) -> Iterator[pa.Table]:
        yield from original(*arguments)
        monkeypatch.setattr(merging, "_tables", broken)
        with pytest.raises(OSError, match="killed"):
            merge(task)
        monkeypatch.setattr(merging, "_tables", original)
        others.append(merge(task))

    others: list[MergeResult] = []
    monkeypatch.setattr(merging, "_tables", meanwhile)
    made = merge(task)
    for each in (made, *others):
        assert pq.read_table(each.path).equals(table)
    assert made.path != others[0].path
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_forms_of_other_writers(tmp_path: Path) -> None:
    times = pa.table({"t": pa.array([1000, None], pa.timestamp("ns"))})
    pq.write_table(times, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    decimals = pa.table({"d": pa.array([NUMBER], pa.decimal128(9, 2)), "e": pa.array([NUMBER], pa.decimal128(30, 2))})
    pq.write_table(decimals, tmp_path / "integers.parquet", store_decimal_as_integer=True)
    polars.DataFrame({"a": [1, None], "s": ["x", "y"], "l": [[1], []]}).write_parquet(tmp_path / "polars.parquet")
    query = "SELECT 1::UTINYINT AS a, uuid() AS u, '{}'::JSON AS j, [1, 2] AS l, now() AS t, 1.5::DECIMAL(9, 2) AS d"
    duckdb.sql(f"COPY ({query}) TO '{tmp_path}/duckdb.parquet'")
    for path in sorted(tmp_path.glob("*.parquet")):
        form = form_of(str(path))
        assert form.refused() is None, path
        target = str(tmp_path / "new" / path.name)
        without_rows(str(path), identify(str(path)), target, np.empty(0, np.int64), 10)
        assert form_of(target).kind == form.kind
        assert pq.read_table(target).equals(pq.read_table(path))
    duckdb.sql(f"COPY (SELECT INTERVAL 1 DAY AS i) TO '{tmp_path}/interval.parquet'")
    assert "Interval" in (form_of(str(tmp_path / "interval.parquet")).refused() or "")


def test_a_file_that_changed_is_not_rewritten(tmp_path: Path) -> None:
    source, target = str(tmp_path / "a.parquet"), tmp_path / "b.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), source)
    identity = identify(source)
    pq.write_table(pa.table({"a": [1, 2, 3]}), source)
    with pytest.raises(FileChanged):
        without_rows(source, identity, str(target), np.array([0]), 10)
    Path(source).unlink()
    with pytest.raises(FileChanged):
        without_rows(source, identity, str(target), np.array([0]), 10)
    assert not target.exists()
