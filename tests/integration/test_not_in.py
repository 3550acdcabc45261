"""NOT IN over columns without NULL runs as a simpler join; with a NULL anywhere, the answer is still right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from tests.lakes import write

import needlepoint
from needlepoint import Lake
from needlepoint.query.cache.table_state import TableState

QUERY = "SELECT n FROM a WHERE n NOT IN (SELECT m FROM b WHERE m < 9) ORDER BY n"


def numbers(name: str, values: list[int | None]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.int64()), "text": ["x"] * len(values)})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    write(numbers("n", [1, 2, 3, 4, 5]), tmp_path / "a" / "1.parquet")
    write(numbers("m", [2, 4, 9]), tmp_path / "b" / "1.parquet")
    with needlepoint.open(tmp_path / "lake") as opened:
        for name in ("a", "b"):
            opened.create_table(name, tmp_path / name)
        yield opened


def found(lake: Lake, query: str = QUERY) -> list[list[object]]:
    """The rows of two runs, which are the same."""
    results = [[list(row.values()) for row in lake.sql(query).rows()] for _ in range(2)]
    assert results[0] == results[1]
    return results[0]


def filled(lake: Lake, query: str = QUERY) -> dict[str, set[str]]:
    plan, _ = lake.engine.queries.plans.of(query, None)
    return {name: {*scan.filled} for name, scan in plan.scans.items()}


def test_columns_without_null(lake: Lake) -> None:
    assert filled(lake) == {"a": {"n"}, "b": {"m"}}
    assert found(lake) == [[1], [3], [5]]


@pytest.mark.parametrize(
    ("table", "values", "expected"),
    [
        ("a", [6, None], [[1], [3], [5], [6]]),
        ("b", [3, None], []),
        ("b", [None], []),
        ("b", [1, 10], [[3], [5]]),
    ],
)
def test_a_null_that_comes_later(
    lake: Lake, tmp_path: Path, table: str, values: list[int | None], expected: list[list[int]]
) -> None:
    assert len(found(lake)) == 3
    query = QUERY.replace("WHERE m < 9", "WHERE m < 9 OR m IS NULL")
    write(numbers("n" if table == "a" else "m", values), tmp_path / table / "2.parquet")
    lake.sync()
    assert found(lake, query) == expected
    assert filled(lake, query)[table] == (set() if None in values else {"n" if table == "a" else "m"})


def test_a_file_that_lacks_the_column(lake: Lake, tmp_path: Path) -> None:
    assert len(found(lake)) == 3
    write(pa.table({"text": ["y"]}), tmp_path / "b" / "2.parquet")
    lake.sync()
    assert filled(lake, query := QUERY.replace("WHERE m < 9", ""))["b"] == set()
    assert found(lake, query) == []


def test_a_file_that_is_replaced_by_one_with_a_null(lake: Lake, tmp_path: Path) -> None:
    query = QUERY.replace("WHERE m < 9", "")
    assert found(lake, query) == [[1], [3], [5]]
    write(numbers("m", [2, None]), tmp_path / "b" / "1.parquet")  # nobody says so
    assert found(lake, query) == []


def test_a_list_without_rows(lake: Lake, tmp_path: Path) -> None:
    query = "SELECT n FROM a WHERE n NOT IN (SELECT m FROM b WHERE m > 100 AND text = 'y') ORDER BY n"
    write(numbers("n", [None]), tmp_path / "a" / "2.parquet")
    lake.sync()
    assert found(lake, query) == [[1], [2], [3], [4], [5], [None]]


def test_the_result_has_the_same_schema(lake: Lake, tmp_path: Path) -> None:
    query = "SELECT n, count(*) AS c, n + 1 AS more FROM a WHERE n NOT IN (SELECT m FROM b) GROUP BY n"
    before = lake.sql(query).to_arrow().schema
    assert before == lake.engine.queries.schema(query) and before.field("n").nullable
    write(numbers("n", [None]), tmp_path / "a" / "2.parquet")
    lake.sync()
    assert lake.sql(query).to_arrow().schema == before


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a.n, b.m FROM a LEFT JOIN b ON a.n = b.m WHERE a.n NOT IN (SELECT m FROM b) AND m IS NULL", 3),
        ("SELECT n FROM a WHERE n NOT IN (SELECT m FROM b) AND (SELECT n FROM a WHERE n > 10) IS NULL", 3),
        ("SELECT n FROM a WHERE n NOT IN (SELECT m FROM b) GROUP BY ROLLUP (n) HAVING n IS NULL", 1),
        ("SELECT m FROM b FULL JOIN (SELECT n FROM a WHERE n NOT IN (SELECT m FROM b)) c ON n = m WHERE m IS NULL", 3),
        ("SELECT lag(n) OVER (ORDER BY n) AS l FROM a WHERE n NOT IN (SELECT m FROM b)", 3),
        ("SELECT n FROM a WHERE n NOT IN (SELECT m FROM b UNION ALL SELECT CAST(NULL AS BIGINT))", 0),
    ],
)
def test_queries_that_make_nulls_know_nothing_of_files(lake: Lake, query: str, expected: int) -> None:
    assert not any(filled(lake, query).values())
    assert len(found(lake, query)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT n FROM a WHERE n NOT IN (SELECT max(m) FROM b WHERE m > 100)", 0),
        ("SELECT DISTINCT n FROM a WHERE n NOT IN (SELECT m FROM b) AND EXISTS (SELECT 1 FROM b WHERE m = n + 1)", 2),
        ("SELECT x.n FROM a x JOIN a y ON x.n = y.n + 1 WHERE x.n NOT IN (SELECT m FROM b)", 2),
        ("SELECT n FROM a WHERE n + 1 NOT IN (SELECT m FROM b) AND n NOT IN (SELECT m FROM b)", 1),
        ("WITH v AS (SELECT nullif(n, 1) AS n FROM a) SELECT n FROM v WHERE n NOT IN (SELECT m FROM b)", 2),
        ("SELECT n FROM a WHERE n NOT IN (SELECT nullif(m, 9) AS m FROM b)", 0),
    ],
)
def test_values_that_are_computed(lake: Lake, query: str, expected: int) -> None:
    assert len(found(lake, query)) == expected


def test_a_wrong_count_of_nulls_is_noticed(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(state: TableState, columns: frozenset[str], chosen: npt.NDArray[np.bool_]) -> frozenset[str]:
        return frozenset(columns)

    write(numbers("n", [None, 7]), tmp_path / "a" / "2.parquet")
    write(numbers("m", [None, 1]), tmp_path / "b" / "2.parquet")
    lake.sync()
    monkeypatch.setattr(TableState, "filled", all_of_them)
    assert found(lake, "SELECT n FROM a WHERE n NOT IN (SELECT m FROM b)") == []
    assert found(lake) == [[3], [5], [7]]
