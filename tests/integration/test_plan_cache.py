"""A query that runs again is planned once, and never with what has changed since."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import write

import needlepoint
from needlepoint import Lake
from needlepoint.query import execution
from needlepoint.query.kept_plans import KeptPlans
from needlepoint.query.scan.scan_plan import Undecided
from needlepoint.query.scan.table_provider import TableFrame, as_frame
from needlepoint.query.sql.plan_facts import PlanFacts


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    numbers = {"id": range(100), "f": [float(number % 10) for number in range(100)], "text": ["a"] * 100}
    write(pa.table(numbers), tmp_path / "item" / "a.parquet")
    with needlepoint.open(tmp_path / "lake") as opened:
        opened.create_table("item", tmp_path / "item")
        yield opened


def kept(lake: Lake) -> int:
    return len(lake.engine.queries.planner.planned)


def scans_kept(lake: Lake) -> int:
    return len(lake.engine.queries.plans.kept)


@pytest.fixture
def made(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each table that is made for DataFusion."""
    made: list[int] = []

    def counting(*arguments: Any) -> TableFrame:
        made.append(1)
        return as_frame(*arguments)

    monkeypatch.setattr(execution, "as_frame", counting)
    return made


def test_a_query_is_planned_once(lake: Lake) -> None:
    query = "SELECT count(*) AS n FROM item WHERE id < 7 AND f >= 3"
    assert [lake.engine.sql(query, use_indexes=False).rows() for _ in range(2)] == [[{"n": 4}]] * 2
    assert (kept(lake), lake.engine.queries.planner.planned.hits, scans_kept(lake)) == (1, 1, 0)


def test_the_scans_of_a_query_are_planned_once(lake: Lake, made: list[int]) -> None:
    query = "SELECT sum(a.id) AS n FROM item a JOIN item b ON a.id = b.id + 1 WHERE a.f <> $x"
    for x, found in ((5.0, 4450), (4.0, 4460), (5.0, 4450), (4.0, 4460)):
        assert lake.sql(query, {"x": x}).rows() == [{"n": found}]
    assert (scans_kept(lake), len(made)) == (2, 2)


@pytest.mark.parametrize("limits", [{}, {"query_memory": 1 << 28}])
def test_a_query_with_limited_memory_has_a_context_of_its_own(tmp_path: Path, limits: dict[str, int]) -> None:
    write(pa.table({"id": range(100)}), tmp_path / "item" / "a.parquet")
    with needlepoint.open(tmp_path / "lake", **limits) as lake:
        lake.create_table("item", tmp_path / "item")
        for _ in range(3):
            assert lake.sql("SELECT sum(id) AS n FROM item").rows() == [{"n": 4950}]
        assert scans_kept(lake) == (not limits)


def test_both_ways_to_filter_are_kept(lake: Lake, made: list[int]) -> None:
    lake.engine.queries.filters.worth_bytes = 0
    lake.engine.queries.filters._worth_seconds = 0.0
    for _ in range(6):
        assert lake.sql("SELECT sum(id) AS n FROM item WHERE f <> 5").rows() == [{"n": 4450}]
    assert len(made) == 2


@pytest.mark.parametrize("change", ["add", "replace", "remove", "index", "drop"])
def test_scans_are_planned_again_after_a_change(lake: Lake, tmp_path: Path, change: str) -> None:
    query = "SELECT count(*) AS n, max(id + 1) AS most FROM item WHERE f + 1 > 5"
    assert [lake.sql(query).rows() for _ in range(2)] == [[{"n": 50, "most": 100}]] * 2
    assert scans_kept(lake) == 1
    more = pa.table({"id": [500], "f": [9.0], "text": ["b"]})
    expected = {"n": 50, "most": 100}
    if change == "add":
        write(more, tmp_path / "item" / "b.parquet")
        lake.sync()
        expected = {"n": 51, "most": 501}
    elif change == "replace":
        write(more, tmp_path / "item" / "a.parquet")  # nobody says so
        expected = {"n": 1, "most": 501}
    elif change == "remove":
        write(more, tmp_path / "item" / "b.parquet")
        lake.sync()
        (tmp_path / "item" / "a.parquet").unlink()
        lake.sync()
        expected = {"n": 1, "most": 501}
    elif change == "index":
        lake.create_index("item", "id")
    else:
        lake.drop_table("item")
        write(more, tmp_path / "other" / "a.parquet")
        lake.create_table("item", tmp_path / "other")
        expected = {"n": 1, "most": 501}
    assert [lake.sql(query).rows() for _ in range(2)] == [[expected]] * 2
    assert scans_kept(lake) <= 1


def test_a_file_that_is_removed_is_missed_by_a_kept_plan(lake: Lake, tmp_path: Path) -> None:
    query = "SELECT sum(id) AS n FROM item WHERE f < 5"
    assert lake.sql(query).rows() == [{"n": 2350}]
    (tmp_path / "item" / "a.parquet").unlink()
    assert lake.sql(query).rows() == [{"n": None}]


def test_rows_that_are_read_by_page_are_read_again(lake: Lake, tmp_path: Path) -> None:
    lake.create_index("item", "id")
    query = "SELECT sum(f) AS n FROM item WHERE id + 0 < 9 AND id = 7"
    for _ in range(3):
        found = lake.sql(query)
        assert found.rows() == [{"n": 7.0}]
        assert found.report.tables[0].bytes.read > 0
    assert scans_kept(lake) == 1
    write(pa.table({"id": range(100), "f": [2.0 * each for each in range(100)]}), tmp_path / "item" / "a.parquet")
    for _ in range(3):
        assert lake.sql(query).rows() == [{"n": 14.0}]
    lake.sync()
    assert lake.sql(query).rows() == [{"n": 14.0}]


def test_a_plan_is_kept_when_both_ways_were_tried(lake: Lake) -> None:
    lake.create_index("item", "id")
    queries = lake.engine.queries
    query = "SELECT f FROM item WHERE id BETWEEN 7 AND 60 AND f + 0 < 99"
    undecided = Undecided("key", by_pages=True)
    for is_settled in (False, True):
        plan, _ = queries.plans.of(query, None)
        scan = replace(plan.scans["item"], undecided=replace(undecided, is_settled=is_settled))
        queries.plans.kept = KeptPlans()
        queries.plans.kept.keep("key", replace(plan, scans={"item": scan}), PlanFacts())
        assert scans_kept(lake) == is_settled


def test_queries_that_share_a_plan_report_their_own_reads(lake: Lake) -> None:
    query = "SELECT id FROM item WHERE f + 1 > 5 ORDER BY id"
    lake.sql(query)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: lake.sql(query), range(40)))
    assert {tuple(result.to_arrow()["id"].to_pylist()) for result in results} == {
        tuple(number for number in range(100) if number % 10 >= 5)
    }
    assert len({result.bytes.read for result in results}) == 1


def test_a_new_column_is_seen(lake: Lake, tmp_path: Path) -> None:
    query = "SELECT * FROM item ORDER BY id DESC LIMIT 1"
    assert "more" not in lake.sql(query).rows()[0]
    write(pa.table({"id": [500], "f": [1.0], "text": ["b"], "more": [True]}), tmp_path / "item" / "b.parquet")
    lake.sync()
    assert lake.sql(query).rows() == [{"id": 500, "f": 1.0, "text": "b", "more": True}]


def test_a_view_that_is_made_again_is_used(lake: Lake) -> None:
    query = "SELECT count(*) AS n FROM few"
    for most in (10, 20):
        lake.sql(f"CREATE VIEW few AS SELECT * FROM item WHERE id < {most}")
        assert lake.sql(query).rows() == [{"n": most}]
        lake.sql("DROP VIEW few")


@pytest.mark.parametrize("time", ["now()", "current_date", "CURRENT_TIMESTAMP", "today()", "current_time"])
def test_a_query_with_the_time_is_planned_anew(lake: Lake, time: str) -> None:
    lake.sql(f"SELECT id FROM item WHERE text < CAST({time} AS VARCHAR) LIMIT 1")
    assert kept(lake) == 0


def test_parameters_that_are_equal_are_not_the_same(lake: Lake) -> None:
    query = "SELECT $x AS x, count(*) AS n FROM item WHERE f = $x"
    values = (1, 1.0, True, Decimal("1"), Decimal("1.00"), 0.0, -0.0, datetime.date(1970, 1, 2))
    for value in values[:2] + values[3:7]:
        (row,) = lake.sql(query, {"x": value}).rows()
        assert (str(row["x"]), row["n"]) == (str(value), 10)
    assert kept(lake) == 6
    for value in values:
        (row,) = lake.sql("SELECT $x AS x FROM item LIMIT 1", {"x": value}).rows()
        assert (type(row["x"]), str(row["x"])) == (type(value), str(value))


def test_a_table_of_another_schema_with_the_same_name(lake: Lake, tmp_path: Path) -> None:
    query = "SELECT sum(id) AS n FROM item"
    assert lake.sql(query).rows() == [{"n": 4950}]
    lake.drop_table("item")
    write(pa.table({"id": pa.array([Decimal("1.50")])}), tmp_path / "other" / "a.parquet")
    lake.create_table("item", tmp_path / "other")
    assert lake.sql(query).rows() == [{"n": Decimal("1.50")}]
