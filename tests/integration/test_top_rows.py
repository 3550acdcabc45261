"""ORDER BY with LIMIT reads from the end of an index, or by bounds; answers are DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.cases import cases
from tests.lakes import write

import needlepoint
from needlepoint import Lake

ROWS, FILES = 40_000, 8


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`score` is in any order and has an index, `id` ascends by file and has none; `rank` has NULLs, `same` is equal
    in many rows."""
    root, scores = tmp_path_factory.mktemp("top"), np.random.default_rng(3).permutation(ROWS)
    for file in range(FILES):
        ids = np.arange(file * ROWS // FILES, (file + 1) * ROWS // FILES)
        part = scores[ids]
        columns = {
            "id": ids,
            "score": part - 1000,
            "rank": pa.array(part, pa.int32(), mask=part % 50 == 0),
            "same": part % 7,
            "day": pa.array(part.astype("datetime64[D]")),
            "f": np.where(part % 1000 == 0, np.nan, part),
            "name": [f"n{number % 10}" for number in part],
        }
        write(pa.table(columns), root / "t" / f"{file}.parquet")
    with needlepoint.open(root) as lake:
        lake.create_table("t")
        for column in ("score", "rank", "same", "day", "f"):
            lake.create_index("t", column)
    return root


@pytest.fixture
def lake(root: Path) -> Iterator[Lake]:
    with needlepoint.open(root) as lake:
        yield lake


@pytest.fixture(scope="module")
def duck(root: Path) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute("SET default_null_order = 'NULLS_LAST_ON_ASC_FIRST_ON_DESC'")  # as in DataFusion and PostgreSQL
    made.execute(f"CREATE TABLE t AS SELECT * FROM read_parquet('{root}/t/*.parquet')")
    return made


def check(lake: Lake, duck: duckdb.DuckDBPyConnection, query: str) -> int:
    """Compare the answers; return how many rows were read."""
    expected = duck.execute(query).fetchall()
    result = lake.sql(query)
    answer = result.to_arrow()
    found = list(zip(*(column.to_pylist() for column in answer.columns), strict=True))
    assert repr(found) == repr(expected), query
    return result.report.tables[0].rows.read


@pytest.mark.parametrize(
    ("query", "most_rows"),
    [
        ("SELECT id, score FROM t ORDER BY score DESC LIMIT 10", 10),
        ("SELECT id FROM t ORDER BY score LIMIT 10 OFFSET 25", 35),
        ("SELECT name FROM (SELECT name, score AS s FROM t) x ORDER BY s DESC LIMIT 3", 3),
        ("SELECT score + 1 AS n FROM t ORDER BY score DESC, id LIMIT 5", 5),
        ("SELECT day, id FROM t ORDER BY day DESC LIMIT 4", 4),
        ("SELECT rank, id FROM t ORDER BY rank LIMIT 5", 5),
        ("SELECT rank, id FROM t ORDER BY rank DESC NULLS LAST LIMIT 5", 5),
        ("SELECT rank, id FROM t WHERE rank IS NOT NULL ORDER BY rank DESC LIMIT 5", 30),
        ("SELECT rank, id FROM t WHERE rank < 39990 ORDER BY rank DESC LIMIT 5", 200),
        # Conditions that leave every second row, or every tenth: twice the rows that are needed at that rate.
        ("SELECT id FROM t WHERE id % 2 = 0 ORDER BY score DESC LIMIT 10", 40),
        ("SELECT id FROM t WHERE id % 2 = 0 ORDER BY score DESC LIMIT 10 OFFSET 20", 120),
        ("SELECT id, name FROM t WHERE name = 'n3' ORDER BY score DESC LIMIT 10", 200),
        ("SELECT id, name FROM t WHERE name = 'n3' ORDER BY score LIMIT 10 OFFSET 2", 300),
        ("SELECT f, id FROM t ORDER BY f, score LIMIT 5", 60),  # and the rows with NaN
        ("SELECT f, id FROM t ORDER BY f DESC, score LIMIT 5", 60),  # NaN comes first
        # By the bounds of pages, which have 100 rows.
        ("SELECT id, score FROM t ORDER BY id DESC LIMIT 10", 100),
        ("SELECT id FROM t ORDER BY id LIMIT 10 OFFSET 3", 100),
    ],
)
def test_few_rows_are_read(lake: Lake, duck: duckdb.DuckDBPyConnection, query: str, most_rows: int) -> None:
    assert check(lake, duck, query) <= most_rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT rank, score FROM t ORDER BY rank DESC, score LIMIT 5",  # NULL comes first
        "SELECT score FROM t ORDER BY CAST(score AS VARCHAR) DESC LIMIT 3",
        "SELECT id FROM t ORDER BY id::text LIMIT 3",
        "SELECT rank, score FROM t ORDER BY rank NULLS FIRST, score LIMIT 5",
        "SELECT f, score FROM t ORDER BY f DESC, score LIMIT 5",
        "SELECT f, score FROM t ORDER BY f, score LIMIT 5",
        "SELECT score FROM t WHERE score < -995 ORDER BY score DESC LIMIT 10",  # there are five
        "SELECT score FROM t WHERE name = 'n3' AND id < 100 ORDER BY score DESC LIMIT 10",
        "SELECT score FROM t ORDER BY score DESC LIMIT 5 OFFSET 39998",
        "SELECT score FROM t ORDER BY score DESC LIMIT 30000",
        "SELECT same, score FROM t ORDER BY same DESC, score LIMIT 5",
        "SELECT score FROM t ORDER BY score % 100 DESC, score LIMIT 5",
        "SELECT name, max(score) AS m FROM t GROUP BY name ORDER BY m DESC LIMIT 3",
        "SELECT DISTINCT same FROM t ORDER BY same DESC LIMIT 3",
        "SELECT score, row_number() OVER (ORDER BY id) AS n FROM t ORDER BY score DESC LIMIT 3",
        "SELECT a.score, b.id FROM t a LEFT JOIN t b ON a.id = b.score ORDER BY a.score DESC, b.id LIMIT 5",
        "SELECT * FROM (SELECT score, id FROM t ORDER BY score DESC LIMIT 50) x WHERE id % 3 = 0 ORDER BY id LIMIT 5",
        "SELECT score FROM t UNION ALL SELECT id FROM t ORDER BY score DESC LIMIT 5",
        "SELECT score FROM t WHERE score > (SELECT avg(score) FROM t) ORDER BY score LIMIT 5",
    ],
)
def test_other_queries_have_their_answers(lake: Lake, duck: duckdb.DuckDBPyConnection, query: str) -> None:
    check(lake, duck, query)


def test_explain_names_the_condition(lake: Lake) -> None:
    shown = str(lake.explain("SELECT id FROM t ORDER BY score DESC LIMIT 10"))
    assert "narrowed by: score >= … for the first 10" in shown and "10 rows for score >= …" in shown


def test_texts_by_the_first_bytes_of_their_keys(tmp_path: Path) -> None:
    names = [f"{number * 7919 % 20_000:05d} é product" for number in range(20_000)]
    for file in range(2):
        part = names[file * 10_000 : (file + 1) * 10_000]
        write(pa.table({"name": part, "code": [name.encode() for name in part]}), tmp_path / "t" / f"{file}.parquet")
    with needlepoint.open(tmp_path) as lake, duckdb.connect() as duck:
        duck.execute(f"CREATE TABLE t AS SELECT * FROM read_parquet('{tmp_path}/t/*.parquet')")
        lake.create_table("t")
        for column in ("name", "code"):
            lake.create_index("t", column)
            for direction in ("", "DESC", "DESC NULLS LAST"):
                assert check(lake, duck, f"SELECT {column} FROM t ORDER BY {column} {direction} LIMIT 7") <= 7


def test_files_that_are_not_indexed_are_read(tmp_path: Path) -> None:
    for file in range(4):
        ids = np.arange(file * 5000, (file + 1) * 5000)
        write(pa.table({"v": ids * 7919 % 20_000}), tmp_path / "t" / f"{file}.parquet")
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        lake.create_index("t", "v")
        write(pa.table({"v": [19_997, 30_000]}), tmp_path / "t" / "new.parquet")
        result = lake.sql("SELECT v FROM t ORDER BY v DESC LIMIT 4")
        assert [row["v"] for row in result.rows()] == [30_000, 19_999, 19_998, 19_997]
        assert result.report.tables[0].narrowed_by == ("v >= … or NULL for the first 4",)
        assert result.report.tables[0].rows.read <= 10


def test_rows_that_are_new_or_gone(tmp_path: Path) -> None:
    for file in range(4):
        ids = np.arange(file * 5000, (file + 1) * 5000)
        write(pa.table({"id": ids, "v": ids * 7919 % 20_000}), tmp_path / "t" / f"{file}.parquet")
    query = "SELECT v FROM t ORDER BY v DESC LIMIT 3"
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("t")
        lake.create_index("t", "v")
        assert [row["v"] for row in lake.sql(query).rows()] == [19_999, 19_998, 19_997]
        lake.delete("t", "v >= 19998")
        assert [row["v"] for row in lake.sql(query).rows()] == [19_997, 19_996, 19_995]
        write(pa.table({"id": [1], "v": [30_000]}), tmp_path / "t" / "new.parquet")
        assert [row["v"] for row in lake.sql(query).rows()] == [30_000, 19_997, 19_996]
        lake.sync()
        assert [row["v"] for row in lake.sql(query).rows()] == [30_000, 19_997, 19_996]
        (tmp_path / "t" / "new.parquet").unlink()
        assert [row["v"] for row in lake.sql(query).rows()] == [19_997, 19_996, 19_995]


@pytest.mark.parametrize("indexed", [False, True])
def test_other_rows_of_the_files_that_are_read_do_not_count(tmp_path: Path, indexed: bool) -> None:
    """A file with one high value has low ones too; conditions leave few rows, and NULL is not a value."""
    columns = {
        "a": np.arange(30_000, 40_000),
        "b": np.r_[0:2550, 35_000, 2550:5000],
        "c": np.arange(20_000, 30_000),
        "d": np.arange(5_000, 20_000),
    }
    duck = duckdb.connect()
    for name, values in columns.items():
        masked = pa.array(values, mask=(values > 30_004) & (values < 40_000) & (values != 35_000))
        rows = pa.table({"v": values, "w": masked, "ok": np.where(values < 30_005, f"y{name}", "n")})
        write(rows, tmp_path / "t" / f"{name}.parquet", row_group_size=2000)
    duck.execute(f"CREATE TABLE t AS SELECT * FROM read_parquet('{tmp_path}/t/*.parquet')")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        for column in ("v", "w") if indexed else ():
            lake.create_index("t", column)
        for limit in (1, 10, 300, 3, 100, 900)[: cases(6, 3)]:
            for query in (
                "SELECT v FROM t WHERE ok LIKE '%y%' ORDER BY v DESC",
                "SELECT v FROM t WHERE ok LIKE '%y%' AND v % 3 > 0 ORDER BY v DESC",
                "SELECT v FROM t WHERE ok = 'ya' ORDER BY v",
                "SELECT w FROM t ORDER BY w DESC NULLS LAST",
                "SELECT w FROM t ORDER BY w",
                "SELECT v FROM t WHERE w IS NULL ORDER BY v DESC",
            ):
                check(lake, duck, f"{query} LIMIT {limit}")
                check(lake, duck, f"{query} LIMIT {limit} OFFSET 7")


def test_a_wide_result_is_read_again_if_it_is_not_full(tmp_path: Path) -> None:
    ids = np.arange(20_000)
    rows = pa.table({"id": ids, "wide": pa.array([b"x" * 4000] * 20_000), "s": (ids % 50).astype(str)})
    write(rows, tmp_path / "t" / "0.parquet", compression="zstd")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        lake.create_index("t", "id")
        lake.engine.room = 1
        query = "SELECT id, wide FROM t WHERE s = '7' ORDER BY id DESC LIMIT 500"
        assert [row["id"] for row in lake.sql(query).rows()] == [*range(19_957, 0, -50)]
        assert lake.running() == []
