"""ORDER BY floats takes -0.0 and 0.0 for equal, with and without LIMIT, as in SQL and DuckDB."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest
from tests.lakes import write

import needlepoint
from needlepoint import Lake

ROWS = 4000
QUERIES = (
    "SELECT f, id FROM t ORDER BY f, id LIMIT {n}",
    "SELECT id FROM t ORDER BY f DESC NULLS LAST, id DESC LIMIT {n} OFFSET 5",
    "SELECT id, f + g AS x FROM t ORDER BY x, id DESC LIMIT {n}",
    "SELECT id FROM t ORDER BY g, f NULLS FIRST, id LIMIT {n}",
    "SELECT id FROM t ORDER BY f, g DESC, id",
    "SELECT id % 900 AS k, min(f) AS m FROM t GROUP BY k ORDER BY min(f), k LIMIT {n}",
    "SELECT * FROM (SELECT f, id FROM t ORDER BY f, id LIMIT {n})",
    "SELECT count(*), sum(id) FROM (SELECT id FROM t ORDER BY f DESC NULLS LAST, id LIMIT {n})",
    "WITH x AS (SELECT f, id FROM t ORDER BY f, id LIMIT {n}) SELECT id FROM x ORDER BY f DESC NULLS LAST, id LIMIT 9",
    "SELECT id FROM t WHERE id IN (SELECT id FROM t ORDER BY f, id DESC LIMIT {n}) ORDER BY id",
    "SELECT id FROM t WHERE id > (SELECT id FROM t ORDER BY f, id LIMIT 1) ORDER BY f, id LIMIT {n}",
    "SELECT a.id FROM t a LEFT JOIN t b ON a.id = b.id AND b.p = 1 ORDER BY b.p, a.f, a.id LIMIT {n}",
    "SELECT id FROM (SELECT f, id FROM t ORDER BY f, id LIMIT {n}) UNION SELECT id FROM t WHERE id < 3 ORDER BY id",
)


@pytest.fixture(scope="module", params=(pa.float64(), pa.float32()), ids=str)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    chance, root = Random(7), tmp_path_factory.mktemp("zeros")
    ids = [*range(ROWS)]
    chance.shuffle(ids)
    rows = pa.table(
        {
            "id": ids,
            "f": pa.array([chance.choice((0.0, -0.0, 0.0, -0.0, 1.5, None)) for _ in ids], request.param),
            "g": pa.array([chance.choice((0.0, -0.0, -2.0)) for _ in ids], request.param),
            "p": [chance.choice((1, 2)) for _ in ids],
        }
    )
    for part in range(4):
        write(rows.slice(part * ROWS // 4, ROWS // 4), root / "t" / f"{part}.parquet", row_group_size=100)
    with needlepoint.open(root, refresh=60) as found:
        found.create_table("t")
        yield found


@pytest.fixture(scope="module")
def duck(lake: Lake) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t AS FROM read_parquet('{Path(lake.root) / 't'}/*.parquet')")
    return connection


@pytest.mark.parametrize("rows", (10, 700))
@pytest.mark.parametrize("query", QUERIES)
def test_zeros_are_equal(lake: Lake, duck: duckdb.DuckDBPyConnection, query: str, rows: int) -> None:
    asked = query.format(n=rows)
    shown = [tuple(row.values()) for row in lake.sql(asked).rows()]
    assert shown == duck.sql(asked).fetchall()


def test_zeros_are_equal_with_an_index(lake: Lake, duck: duckdb.DuckDBPyConnection) -> None:
    lake.create_index("t", "f")
    try:
        lake.engine.queries.least_rows = 0
        for query in QUERIES[:5]:
            asked = query.format(n=12)
            assert [tuple(row.values()) for row in lake.sql(asked).rows()] == duck.sql(asked).fetchall()
    finally:
        lake.sql("DROP INDEX t_f_key")


def test_the_sign_of_a_zero_is_shown(lake: Lake) -> None:
    shown = {str(row["f"]) for row in lake.sql("SELECT f FROM t WHERE f < 1 ORDER BY f, id LIMIT 50").rows()}
    assert shown == {"0.0", "-0.0"}
