"""Counts, extremes and groups that indexes answer: the answers are DuckDB's, and little or nothing is read."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import needlepoint
from needlepoint import Lake
from needlepoint.errors import NeedlepointError
from needlepoint.indexes.distinct.payload import DistinctPayload

FILES, ROWS = 4, 3000
Answer = list[tuple[object, ...]]


def rows_of(file: int) -> pa.Table:
    """`id` ascends, `r` is in any order, `tenant` and `rare` have NULLs, `long` is longer than bounds are kept."""
    numbers = np.arange(file * ROWS, (file + 1) * ROWS)
    random = np.random.default_rng(file).integers(0, 1_000_000, ROWS)
    first = datetime.datetime(2024, 1, 1 + file)
    return pa.table(
        {
            "id": numbers,
            "r": random,
            "tenant": [None if at % 11 == 0 else f"t{at % 7}" for at in range(ROWS)],
            "rare": pa.array([at if at % 3 else None for at in range(ROWS)], pa.int32()),
            "ts": pa.array([first + datetime.timedelta(seconds=at) for at in range(ROWS)]),
            "f": np.where(numbers % 5 == 0, np.nan, numbers / 2),
            "long": ["x" * 70 + str(number % 10) for number in numbers],
            "ok": numbers % 2 == 0,
            "unit": ["one"] * ROWS,
        }
    )


def write(root: Path, file: int, **options: object) -> None:
    path = root / "t" / f"p={file % 2}" / f"{file}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        rows_of(file), path, **{"write_page_index": True, "max_rows_per_page": 100, "row_group_size": 1000, **options}
    )


def make(root: Path) -> Path:
    for file in range(FILES):
        write(root, file)
    with needlepoint.open(root) as lake:
        lake.create_table("t")
        lake.create_index("t", "tenant", "distinct")
        lake.create_index("t", "ok", "distinct", embed=True)
        lake.create_index("t", "r")
    return root


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return make(tmp_path)


class Asked:
    """A lake, and DuckDB over the same files."""

    def __init__(self, root: Path, lake: Lake) -> None:
        self.root, self.lake = root, lake

    def check(self, query: str) -> tuple[int, int]:
        """Compare the answers; return how many files were read, and how many rows by page."""
        duck = duckdb.connect()
        duck.execute(
            f"CREATE VIEW t AS SELECT * FROM read_parquet('{self.root}/t/*/*.parquet', hive_partitioning=true)"
        )
        expected = duck.execute(query).fetchall()
        result = self.lake.sql(query)
        found, plain = result.to_arrow(), self.lake.engine.sql(query, use_indexes=False).to_arrow()
        assert found.schema == plain.schema
        assert sorted(map(repr, _rows(found))) == sorted(map(repr, expected)), query
        (table,) = result.report.tables
        return table.files.read, table.rows.read


def _rows(table: pa.Table) -> Answer:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture
def asked(made: Path) -> Asked:
    return Asked(made, needlepoint.open(made, refresh=0))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """The same lake for all tests that change nothing."""
    root = make(tmp_path_factory.mktemp("shared"))
    return Asked(root, needlepoint.open(root, refresh=0))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM t",
        "SELECT count(*), count(rare), count(tenant), count(f) FROM t",
        "SELECT p, count(*) AS n FROM t GROUP BY p",
        "SELECT min(id), max(id), min(ts), max(ts), min(p), max(p) FROM t",
        "SELECT min(r), max(r) FROM t",
        "SELECT count(*) FROM t WHERE tenant = 't1'",
        "SELECT count(*) FROM t WHERE tenant = 'no such'",
        "SELECT count(*) FROM t WHERE tenant IS NULL OR tenant IN ('t0', 'x')",
        "SELECT count(*) * 2, count(tenant) FROM t WHERE tenant <> 't3' AND p = 1",
        "SELECT tenant, count(*) FROM t GROUP BY tenant",
        "SELECT tenant, p, unit, count(*), max(tenant) FROM t WHERE id >= 3000 GROUP BY tenant, p, unit",
        "SELECT tenant FROM t GROUP BY tenant HAVING count(*) > 1100 ORDER BY count(*) DESC, tenant LIMIT 3 OFFSET 1",
        "SELECT DISTINCT tenant FROM t WHERE tenant >= 't3'",
        "SELECT count(DISTINCT tenant) FROM t",
        "SELECT min(tenant), max(tenant) FROM t WHERE tenant < 't5'",
        "SELECT count(*) > 0 AS there FROM t WHERE tenant = 't2'",
        "SELECT x.n + 1 FROM (SELECT count(*) AS n FROM t WHERE ok) AS x WHERE x.n > 5",
        "WITH a AS (SELECT r AS n, p FROM t) SELECT count(*), count(n) FROM a AS b WHERE n < 9000 AND b.p = 0",
        "SELECT count(*) FROM t WHERE r BETWEEN 5000 AND 9000 OR r IN (1, 2, 30)",
        "SELECT count(*) FROM t WHERE id >= 6000",
        "SELECT unit, count(*) FROM t WHERE unit = 'one' GROUP BY unit",
        "SELECT EXISTS (SELECT 1 FROM t WHERE tenant = 't1')",
        "SELECT EXISTS (SELECT * FROM t WHERE tenant = 'no such') AS there",
        "SELECT NOT EXISTS (SELECT id FROM t WHERE tenant IS NULL AND p = 1) AS absent;",
        "SELECT EXISTS (SELECT id FROM t WHERE id > 4321)",
        "SELECT EXISTS (SELECT r FROM t WHERE r BETWEEN 5000 AND 5400)",
        "SELECT EXISTS (SELECT 1 FROM t WHERE tenant > 't2' ORDER BY tenant)",
        "SELECT 1 FROM t WHERE tenant = 't1' LIMIT 1",
        "SELECT 1 AS one, NULL AS none, 'x' FROM t WHERE ok LIMIT 3 OFFSET 2",
        "SELECT 1 AS one FROM t WHERE tenant = 'no such' LIMIT 1",
        "SELECT 1 AS one FROM t WHERE tenant = 't1' LIMIT 10 OFFSET 1555",
        "SELECT 1 AS one FROM t WHERE tenant = 't1' LIMIT 10 OFFSET 1555000",
        "SELECT 1 FROM t LIMIT 1",
        "SELECT count(*) FROM (SELECT id FROM t LIMIT 5)",
        "SELECT count(*) + 1 FROM (SELECT id, p FROM t WHERE id >= 3000 LIMIT 5 OFFSET 8998) AS x",
        "SELECT one + 1 FROM (SELECT 1 AS one FROM t WHERE tenant = 't1' LIMIT 2) AS x WHERE one > 0",
    ],
)
def test_nothing_is_read(shared: Asked, query: str) -> None:
    assert shared.check(query) == (0, 0)


@pytest.mark.parametrize(
    ("query", "files", "rows"),
    [
        ("SELECT count(*) FROM t WHERE id > 4321", 1, 100),
        ("SELECT count(*), count(id) FROM t WHERE ts >= TIMESTAMP '2024-01-03 00:10:30'", 1, 100),
        ("SELECT p, count(*) FROM t WHERE id BETWEEN 1234 AND 8765 GROUP BY p", 2, 200),
    ],
)
def test_pages_at_the_ends_of_a_range_are_read(shared: Asked, query: str, files: int, rows: int) -> None:
    assert shared.check(query) == (files, rows)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT min(long), max(long) FROM t",  # longer than what is kept of bounds
        "SELECT count(*) FROM t WHERE f < 100",
        "SELECT count(*) FILTER (WHERE tenant = 't1') FROM t",
        "SELECT count(*) FROM t WHERE upper(tenant) = 'T1'",
        "SELECT count(*) FROM t WHERE tenant NOT IN ('t1', NULL)",
        "SELECT tenant, sum(id) FROM t GROUP BY tenant",
        "SELECT tenant, ok, count(*) FROM t GROUP BY tenant, ok",
        "SELECT tenant, count(*) FROM t GROUP BY ROLLUP (tenant)",
        "SELECT count(id) FROM (SELECT id FROM t LIMIT 5)",
        "SELECT count(*) FILTER (WHERE id < 0) FROM (SELECT id FROM t WHERE id >= 0 LIMIT 5)",
        "SELECT count(*) FROM (SELECT id FROM t WHERE id >= 0 LIMIT 5) WHERE id >= 0",
        "SELECT DISTINCT ok IS NOT NULL FROM (SELECT ok FROM t LIMIT 5)",
        "SELECT EXISTS (SELECT 1 FROM t WHERE f < 100)",
        "SELECT EXISTS (SELECT 1 FROM t WHERE tenant LIKE 't1%')",
        "SELECT EXISTS (SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.tenant = 't1')",
        "SELECT EXISTS (SELECT id FROM t WHERE id = 1 UNION SELECT id FROM t WHERE id = 2)",
        "SELECT EXISTS (SELECT tenant FROM t GROUP BY tenant HAVING sum(id) > 99)",
        "SELECT count(*) FROM t WHERE tenant LIKE 't1%'",
        "SELECT count(*) FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.tenant = 't1'",
    ],
)
def test_what_no_index_says_exactly_is_read(shared: Asked, query: str) -> None:
    assert shared.check(query)[0] > 0


def test_files_that_no_index_knows_are_read(asked: Asked) -> None:
    write(asked.root, FILES)
    assert asked.check("SELECT tenant, count(*), min(tenant) FROM t GROUP BY tenant")[0] == 1
    assert asked.check("SELECT count(*), min(r), max(id) FROM t")[0] == 1
    text = str(asked.lake.sql("SELECT count(*) FROM t WHERE tenant = 't1'").report)
    assert "counted from index t_tenant_distinct: 4 files; 1 file read" in text


def test_rows_of_a_file_that_no_index_knows_exist(asked: Asked) -> None:
    """The others answer if they have enough rows."""
    write(asked.root, FILES)
    assert asked.check("SELECT EXISTS (SELECT 1 FROM t WHERE tenant = 't1')")[0] == 0
    assert asked.check("SELECT EXISTS (SELECT 1 FROM t WHERE tenant = 't1' AND id >= 12000)")[0] == 1
    assert asked.check("SELECT 1 FROM t WHERE tenant = 't9' OR id = 12001 LIMIT 1")[0] >= 1
    assert asked.check("SELECT count(*) FROM (SELECT id FROM t WHERE tenant = 't1' LIMIT 1570)")[0] >= 1


def test_a_limit_over_many_files_is_left_to_the_scan(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for number in range(12):
        pq.write_table(pa.table({"k": [number, 50, 99], "x": [0, 1, 2]}), tmp_path / f"t/{number}.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        lake.create_index("t", "k")
        result = lake.sql("SELECT 1 AS one FROM t WHERE k BETWEEN 20 AND 60 LIMIT 1")
        assert result.rows() == [{"one": 1}] and "counted" not in str(result.report)
        assert "counted" in str(lake.sql("SELECT 1 AS one FROM t WHERE x >= 0 LIMIT 1").report)


def test_rows_that_were_replaced_do_not_exist(asked: Asked) -> None:
    there, query = asked.root / "t/p=0/0.parquet", "SELECT EXISTS (SELECT 1 FROM t WHERE rare = 2999 AND id = 2999)"
    few = "SELECT EXISTS (SELECT 1 FROM t WHERE id BETWEEN 100 AND 200)"
    asked.check(query)
    assert asked.check(few) == (0, 0)
    pq.write_table(rows_of(0).slice(1000, 700), there)
    asked.check(query)
    assert asked.check(few)[0] == 1
    there.unlink()
    asked.check(query)
    assert asked.check(few)[0] == 0


def test_replaced_and_removed_files_do_not_count(asked: Asked) -> None:
    queries = ["SELECT count(*) FROM t WHERE tenant = 't1'", "SELECT count(*) FROM t WHERE r < 9000",
               "SELECT count(*), min(r), max(r) FROM t"]  # fmt: skip
    for query in queries:
        asked.check(query)
    path = asked.root / "t/p=0/0.parquet"
    pq.write_table(rows_of(0).slice(0, 700), path)
    for query in queries:
        assert asked.check(query)[0] == 1
    path.unlink()
    for query in queries:
        assert asked.check(query)[0] == 0


def test_a_changed_file_is_noticed_before_the_next_listing(made: Path) -> None:
    asked = Asked(made, needlepoint.open(made, refresh=600))
    queries = ["SELECT count(*) FROM t", "SELECT tenant, count(*) FROM t GROUP BY tenant",
               "SELECT EXISTS (SELECT 1 FROM t WHERE id BETWEEN 800 AND 1900)"]  # fmt: skip
    for query in queries:
        assert asked.check(query)[0] == 0
    path = made / "t/p=0/0.parquet"
    pq.write_table(rows_of(0).slice(0, 700), path)
    for query in queries:
        assert asked.check(query)[0] > 0  # a query that was planned again holds what it reads, and counts nothing
    path.unlink()
    for query in queries:
        asked.check(query)


def test_other_ways_do_not_count(shared: Asked) -> None:
    query = "SELECT count(*) FROM t WHERE tenant = 't1'"
    for result in (
        shared.lake.engine.sql(query, use_indexes=False),
        needlepoint.open(shared.root, access="scan").sql(query),
    ):
        (table,) = result.report.tables
        assert not table.counted_by
        assert table.files.read == FILES


def test_explain_says_what_is_counted(shared: Asked) -> None:
    report = shared.lake.explain("SELECT count(*) FROM t WHERE tenant = 't1'")
    assert "counted from index t_tenant_distinct: 4 files\n" in str(report)
    assert "index t_tenant_distinct (distinct): used, counted 4 files" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["tables"][0]["rows"]["read"] == 0


def test_a_damaged_index_is_not_asked(asked: Asked) -> None:
    for pack in (asked.root / ".needlepoint/indexes").glob("*/*"):
        if pack.is_file() and "pack" in pack.name:
            data = bytearray(pack.read_bytes())
            data[len(data) // 2] ^= 0xFF
            pack.write_bytes(bytes(data))
    asked.lake.close()
    again = Asked(asked.root, needlepoint.open(asked.root))
    again.check("SELECT tenant, count(*) FROM t GROUP BY tenant")


@pytest.mark.parametrize(
    "options", [{"write_statistics": False}, {"write_page_index": False}, {"max_rows_per_page": 1}]
)
def test_files_with_other_statistics(tmp_path: Path, options: dict[str, object]) -> None:
    for file in range(2):
        write(tmp_path, file, **options)
    lake = needlepoint.open(tmp_path)
    lake.create_table("t")
    asked = Asked(tmp_path, lake)
    for query in ("SELECT count(rare), min(id), max(tenant) FROM t", "SELECT count(*) FROM t WHERE id > 1700",
                  "SELECT p, count(*) FROM t WHERE rare IS NOT NULL GROUP BY p"):  # fmt: skip
        asked.check(query)


def test_rounded_bounds_are_not_extremes(tmp_path: Path) -> None:
    """A writer may write a bound that no row has, if it does not call it exact."""
    duckdb.connect().execute(f"COPY (SELECT 'abc' || i AS s, i FROM range(9) x(i)) TO '{tmp_path}/a.parquet'")
    table = tmp_path / "t/p=0"
    table.mkdir(parents=True)
    (tmp_path / "a.parquet").rename(table / "a.parquet")
    lake = needlepoint.open(tmp_path)
    lake.create_table("t")
    Asked(tmp_path, lake).check("SELECT min(s), max(s), min(i), max(i), count(*) FROM t")


def test_limits_and_errors_of_what_is_above(shared: Asked) -> None:
    with pytest.raises(NeedlepointError, match=r"(?i)divide by zero"):
        shared.lake.sql("SELECT 1 / (count(*) - count(*)) FROM t").to_arrow()


def test_verify_sees_wrong_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that names the right rows may still count them wrong."""
    of = DistinctPayload.of.__func__  # type: ignore[attr-defined]

    def exchanged(cls: type[DistinctPayload], *given: Any, row_counts: Any, **named: Any) -> Any:
        return of(cls, *given, row_counts=row_counts[[1, 0, *range(2, len(row_counts))]], **named)

    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"x": [0] * 10 + [1] * 90}), tmp_path / "t/0.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        with monkeypatch.context() as patched:
            patched.setattr(DistinctPayload, "of", classmethod(exchanged))
            lake.create_index("t", "x", kind="distinct")
        assert lake.sql("SELECT count(*) AS n FROM t WHERE x = 0").rows() == [{"n": 90}]
        assert {(each.indexed, each.scanned) for each in lake.verify("t").differences} == {(90, 10), (10, 90)}
        lake.rebuild("t", from_data=True)
        assert not lake.verify("t").differences
