"""Reads that are planned in one process and run in others."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from tests.lakes import product_lake

import needlepoint
from needlepoint.lake import Lake
from needlepoint.query.scan import scan_tasks
from needlepoint.query.scan.scan_tasks import ReadPlan, ScanTask
from needlepoint.spark.read import is_current


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    product_lake(tmp_path, files=6)
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("product")
        lake.create_index("product", "product_id")
        yield lake


def read(plan: ReadPlan) -> pa.Table:
    """Read as another process does: from nothing but the pickled parts."""
    sent = [pickle.loads(pickle.dumps(part)) for part in plan.parts]
    return pa.Table.from_batches([batch for part in sent for batch in part.batches()], plan.schema)


def test_parts_are_of_a_size(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    scan, pages = "price > 50", "product_id IN (1, 2001, 4001, 6001)"
    assert [len(lake.plan_read("product", where).parts) for where in (scan, pages)] == [1, 1]
    size = max(path.stat().st_size for path in lake.root.rglob("*.parquet"))
    monkeypatch.setattr(scan_tasks, "BYTES_IN_A_PART", 2 * size)
    found = [len(part.scan.scanned) for part in lake.plan_read("product", scan).parts]
    assert found == [2, 2, 2]
    monkeypatch.setattr(scan_tasks, "FILES_IN_A_PART", 3)
    by_page = lake.plan_read("product", pages)
    assert [len(part.scan.paged) for part in by_page.parts] == [3, 1]
    assert sorted(read(by_page)["product_id"].to_pylist()) == [1, 2001, 4001, 6001]
    # Neighbouring files share a directory, and so an arm of the scan.
    assert {file.path.split("/")[0] for file in by_page.parts[0].scan.paged} == {"year=2020", "year=2021"}


def test_files_whose_rows_datafusion_cannot_skip(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    duckdb.sql(
        f"COPY (SELECT range AS id, range * 7 % 1000 AS x, 'abc' || range AS s FROM range(60000)) "
        f"TO '{tmp_path}/t/a.parquet' (FORMAT parquet, PARQUET_VERSION v2, ROW_GROUP_SIZE 20000)"
    )
    with needlepoint.open(tmp_path, access="scan") as lake:
        lake.create_table("t")
        for where in ("x = 5", "s LIKE '%99%'", "id % 2 = 0"):
            found, expected = read(lake.plan_read("t", where)), lake.sql(f"SELECT * FROM t WHERE {where}").to_arrow()
            assert found.sort_by("id").equals(expected.sort_by("id"))


def test_rows_that_came_before_a_failure_come_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = lake.plan_read("product", "price > 50")
    whole, run = read(plan), ScanTask._run

    def failing(part: ScanTask, made: object, options: scan_tasks.SessionOptions) -> Iterator[pa.RecordBatch]:
        batches = list(run(part, made, options))  # type: ignore[arg-type]
        if not options.pushdown:
            yield from batches
            return
        yield batches[0].slice(0, 10)
        raise Exception("Parquet error: cannot skip")

    monkeypatch.setattr(ScanTask, "_run", failing)
    assert read(plan).sort_by("product_id").equals(whole.sort_by("product_id"))


def test_a_plan_knows_whether_it_still_holds(lake: Lake) -> None:
    plan = lake.plan_read("product")
    assert is_current(lake, plan)
    next(lake.root.rglob("*.parquet")).unlink()
    assert not is_current(lake, plan)
