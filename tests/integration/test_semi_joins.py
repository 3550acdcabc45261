"""Small tables are read first, and of larger ones only the rows with their keys; answers are DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lakes import write

import needlepoint
from needlepoint import Lake, Limits
from needlepoint.errors import SqlError
from needlepoint.query import semi_joins

ROWS, FILES = 40_000, 8


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Customers by files of ids, orders and their lines in any order; few are `wanted`."""
    root, chance = tmp_path_factory.mktemp("joins"), np.random.default_rng(4)
    orders = chance.permutation(ROWS)
    for file in range(FILES):
        part = orders[file::FILES]
        customers = pa.array(part % 4000, pa.int32(), mask=part % 97 == 0)
        days = pa.array((part % 900).astype("datetime64[D]"))
        rows = pa.table({"order_id": part, "customer": customers, "day": days, "total": part * 3})
        write(rows, root / "orders" / f"{file}.parquet")
        lines = pa.table({"order_id": np.repeat(part, 2), "n": np.tile([1, 2], len(part)), "sku": np.repeat(part, 2)})
        lines = lines.set_column(2, "sku", lines["sku"].cast(pa.string()))
        write(lines, root / "lines" / f"{file}.parquet")
        ids = np.arange(file * 500, (file + 1) * 500)
        write(pa.table({"id": ids, "name": [f"c{number}" for number in ids]}), root / "customer" / f"{file}.parquet")
    ids, skus = [7, 7, 12_345, 39_999, 90_000, None], ["5", "5", "777", "x", None, "39999"]
    write(pa.table({"id": ids, "sku": skus, "ok": [True] * 6}), root / "wanted" / "0.parquet")
    with needlepoint.open(root) as lake:
        for table in ("orders", "lines", "customer", "wanted"):
            lake.create_table(table)
        lake.create_index("orders", "order_id")
        lake.create_index("orders", "customer")
        lake.create_index("lines", "order_id")
        lake.create_index("lines", "sku", kind="bloom")
    return root


@pytest.fixture
def lake(root: Path) -> Iterator[Lake]:
    with needlepoint.open(root) as lake:
        yield lake


@pytest.fixture(scope="module")
def duck(root: Path) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    for table in ("orders", "lines", "customer", "wanted"):
        made.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{root}/{table}/*.parquet')")
    return made


def check(lake: Lake, duck: duckdb.DuckDBPyConnection, query: str) -> None:
    expected = duck.execute(query).fetchall()
    answer = lake.sql(query).to_arrow()
    found = list(zip(*(column.to_pylist() for column in answer.columns), strict=True))
    assert sorted(found, key=repr) == sorted(expected, key=repr), query


def rows_read(lake: Lake, query: str, table: str) -> int:
    return next(each.rows.read for each in lake.explain(query).tables if each.table == table)


QUERIES = [
    ("SELECT w.id, o.total FROM wanted w JOIN orders o ON w.id = o.order_id", {"orders": 3}),
    ("SELECT w.id, o.total FROM wanted w LEFT JOIN orders o ON w.id = o.order_id", {"orders": 3}),
    ("SELECT w.id, o.total FROM orders o RIGHT JOIN wanted w ON w.id = o.order_id", {"orders": 3}),
    ("SELECT total FROM orders WHERE order_id IN (SELECT id FROM wanted)", {"orders": 3}),
    ("SELECT total FROM orders o WHERE EXISTS (SELECT 1 FROM wanted w WHERE w.id = o.order_id AND ok)", {"orders": 3}),
    ("SELECT id FROM wanted w WHERE NOT EXISTS (SELECT 1 FROM orders WHERE order_id = w.id)", {"orders": 3}),
    ("SELECT id, (SELECT max(total) FROM orders o WHERE o.order_id = w.id) FROM wanted w", {"orders": 3}),
    (
        (
            "SELECT w.id, x.n FROM wanted w JOIN (SELECT order_id, count(*) AS n FROM lines GROUP BY order_id) x"
            " ON x.order_id = w.id"
        ),
        {"lines": 6},
    ),
    ("SELECT w.id, o.order_id FROM orders o LEFT JOIN wanted w ON w.id = o.order_id WHERE w.ok", {"orders": 3}),
    # Semi and anti joins, and keys with a number added.
    ("SELECT total FROM orders o WHERE EXISTS (SELECT 1 FROM wanted w WHERE w.id + 1 = o.order_id)", {"orders": 2}),
    ("SELECT total FROM orders WHERE order_id IN (SELECT id - 1 FROM wanted)", {"orders": 3}),
    ("SELECT total FROM orders WHERE order_id + 2 IN (SELECT id - 1 FROM wanted)", {"orders": 3}),
    ("SELECT total FROM orders WHERE order_id IN (SELECT max(id) + 5 FROM wanted GROUP BY sku)", {"orders": 2}),
    ("SELECT id FROM wanted w WHERE NOT EXISTS (SELECT 1 FROM orders WHERE order_id - 1 = w.id)", {"orders": 2}),
    ("SELECT id FROM wanted w WHERE sku = 'x' OR EXISTS (SELECT 1 FROM orders WHERE order_id = w.id)", {"orders": 3}),
    ("SELECT id FROM wanted w WHERE sku = 'x' OR id IN (SELECT order_id FROM orders)", {"orders": 3}),
    (
        (
            "SELECT w.id FROM wanted w WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.order_id = w.id AND EXISTS"
            " (SELECT 1 FROM lines l WHERE l.order_id = o.order_id))"
        ),
        {"orders": 3, "lines": 6},
    ),
    # A table that is narrowed narrows the next one.
    (
        "SELECT w.id, l.n, o.day FROM wanted w JOIN orders o ON w.id = o.order_id JOIN lines l USING (order_id)",
        {"orders": 3, "lines": 6},
    ),
    (
        (
            "SELECT c.name, o.total, l.sku FROM customer c JOIN orders o ON o.customer = c.id"
            " JOIN lines l ON l.order_id = o.order_id WHERE c.id = 77"
        ),
        {"orders": 10, "lines": 20},
    ),
    ("SELECT c.name FROM customer c JOIN orders o ON c.id = o.customer WHERE o.order_id IN (5, 6)", {"customer": 100}),
    # What none of the rows has.
    ("SELECT total FROM orders WHERE order_id IN (SELECT id FROM wanted WHERE id > 50000)", {"orders": 0}),
    ("SELECT o.total FROM wanted w JOIN orders o ON w.id = o.order_id WHERE w.sku = 'nobody has it'", {"orders": 0}),
    # These need all rows of the larger table.
    ("SELECT count(*) FROM orders o LEFT JOIN wanted w ON w.id = o.order_id", {"orders": ROWS}),
    ("SELECT count(*), count(w.id) FROM orders o FULL JOIN wanted w ON w.id = o.order_id", {"orders": ROWS}),
    ("SELECT count(*) FROM orders WHERE order_id NOT IN (SELECT id FROM wanted WHERE id > 0)", {"orders": ROWS}),
    ("SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM wanted WHERE id = order_id)", {"orders": ROWS}),
    (
        "SELECT count(*) FROM (SELECT * FROM orders ORDER BY total LIMIT 20) o JOIN wanted w ON w.id = o.order_id",
        {"orders": ROWS},
    ),
    (
        (
            "SELECT o.r FROM (SELECT order_id, row_number() OVER (ORDER BY total) AS r FROM orders) o"
            " JOIN wanted w ON w.id = o.order_id"
        ),
        {"orders": ROWS},
    ),
    ("SELECT count(*) FROM orders a JOIN orders b ON a.order_id = b.customer JOIN wanted w ON w.id = a.order_id", {}),
    (
        "SELECT w.id FROM wanted w JOIN orders o ON w.id = o.order_id WHERE o.total < (SELECT max(total) FROM orders)",
        {"orders": ROWS},
    ),
]


@pytest.mark.parametrize(("query", "rows"), QUERIES)
def test_joins_read_the_rows_with_keys_of_smaller_tables(
    lake: Lake, duck: duckdb.DuckDBPyConnection, query: str, rows: dict[str, int]
) -> None:
    check(lake, duck, query)
    for table, count in rows.items():
        assert rows_read(lake, query, table) == count


def test_a_bloom_index_rules_out_files(lake: Lake, duck: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT l.n FROM wanted w JOIN lines l ON w.sku = l.sku"
    check(lake, duck, query)
    lines = next(each for each in lake.explain(query).tables if each.table == "lines")
    assert lines.files.read <= 4 and lines.narrowed_by == ("sku is one of 4 values of wanted.sku",)


def test_explain_names_the_keys(lake: Lake) -> None:
    shown = str(lake.explain("SELECT total FROM wanted JOIN orders ON id = order_id"))
    assert "narrowed by: order_id is one of 4 values of wanted.id" in shown
    assert "index orders_order_id_key (key): used, 3 rows for order_id IN (4 values)" in shown


def test_a_table_that_is_not_much_larger_is_not_narrowed(lake: Lake) -> None:
    lake.engine.queries.times_larger = 10_000
    assert rows_read(lake, "SELECT total FROM wanted JOIN orders ON id = order_id", "orders") == ROWS


def test_too_many_keys_narrow_nothing(
    lake: Lake, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semi_joins, "MOST_KEYS", 3)
    query = "SELECT total FROM wanted JOIN orders ON id = order_id"
    check(lake, duck, query)
    assert rows_read(lake, query, "orders") == ROWS


def test_access_by_scan_reads_no_keys(root: Path) -> None:
    with needlepoint.open(root, access="scan") as lake:
        assert rows_read(lake, "SELECT total FROM wanted JOIN orders ON id = order_id", "orders") == ROWS


def test_new_rows_of_both_tables_count(tmp_path: Path) -> None:
    write(pa.table({"id": np.arange(5000), "v": np.arange(5000)}), tmp_path / "big" / "0.parquet")
    write(pa.table({"k": [7]}), tmp_path / "small" / "0.parquet")
    query = "SELECT k, v FROM small JOIN big ON k = id ORDER BY k, v"
    with needlepoint.open(tmp_path, refresh=0) as lake:
        lake.create_table("big")
        lake.create_table("small")
        lake.create_index("big", "id")
        assert lake.sql(query).rows() == [{"k": 7, "v": 7}]
        pq.write_table(pa.table({"k": [8, 9000]}), tmp_path / "small" / "1.parquet")
        pq.write_table(pa.table({"id": [9000, 7], "v": [1, 2]}), tmp_path / "big" / "1.parquet")
        # Neither file is indexed: the new file of the small table has no card, so nothing is narrowed.
        assert [tuple(row.values()) for row in lake.sql(query).rows()] == [(7, 2), (7, 7), (8, 8), (9000, 1)]
        lake.sync()
        assert [tuple(row.values()) for row in lake.sql(query).rows()] == [(7, 2), (7, 7), (8, 8), (9000, 1)]
        assert rows_read(lake, query, "big") == 4


def test_keys_that_are_texts_of_numbers(tmp_path: Path) -> None:
    write(pa.table({"s": ["1", "02"]}), tmp_path / "small" / "0.parquet")
    write(pa.table({"s": [f"{n:06}" for n in range(5000)], "v": range(5000)}), tmp_path / "big" / "0.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("small")
        lake.create_table("big")
        lake.create_index("big", "s")
        query = "SELECT v FROM small a JOIN big b ON CAST(a.s AS BIGINT) = CAST(b.s AS BIGINT) ORDER BY v"
        assert [row["v"] for row in lake.sql(query).rows()] == [1, 2]


def test_a_small_table_with_large_values_is_not_read_first(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    texts = [chance.bytes(1000).hex() for _ in range(6000)]
    write(pa.table({"k": np.arange(6000), "doc": texts}), tmp_path / "small" / "0.parquet", row_group_size=1 << 20)
    for file in range(4):
        ids = np.arange(file * 50_000, (file + 1) * 50_000)
        write(pa.table({"id": ids[::-1], "v": ids}), tmp_path / "big" / f"{file}.parquet", row_group_size=1 << 20)
    query = "SELECT v FROM small JOIN big ON k = id WHERE doc LIKE '%never%'"
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("small")
        lake.create_table("big")
        lake.create_index("big", "id")
        assert rows_read(lake, query, "big") == 200_000
        few = "SELECT v FROM small JOIN big ON k = id WHERE k < 9"
        assert rows_read(lake, few, "big") < 200
        assert len(lake.sql(few, limits=Limits(memory=64 << 20))) == 9


@pytest.mark.parametrize(
    ("query", "read", "why"),
    [
        ("SELECT * FROM orders WHERE order_id = (SELECT max(id) FROM wanted WHERE id < 90000)", 3, "order_id is one"),
        ("SELECT * FROM orders WHERE order_id = (SELECT id FROM wanted WHERE sku = '777')", 1, "order_id is one"),
        ("SELECT * FROM orders WHERE order_id = (SELECT id FROM wanted WHERE id > 90000)", 0, "order_id is one of 0"),
        ("SELECT * FROM orders WHERE order_id = (SELECT max(id) FROM wanted WHERE sku = 'y')", 0, "order_id is one"),
        ("SELECT * FROM orders WHERE order_id > (SELECT min(id) FROM wanted WHERE id = 39999)", 0, "order_id > the"),
        ("SELECT * FROM orders WHERE (SELECT min(id) FROM wanted) >= order_id", 8, "order_id <= the min of wanted.id"),
        ("SELECT * FROM orders JOIN wanted ON order_id = id + 1", 3, "order_id is one of 4 values of wanted.id +1"),
        ("SELECT * FROM orders JOIN wanted ON order_id - 2 = id", 3, "order_id is one of 4 values of wanted.id +2"),
        ("SELECT * FROM orders WHERE order_id = (SELECT max(id) + 1 FROM wanted WHERE id < 9)", 1, "order_id is one"),
        ("SELECT * FROM orders WHERE order_id = (SELECT max(id + 1) FROM wanted WHERE id < 9)", 1, "order_id is one"),
        ("SELECT * FROM orders WHERE order_id = (SELECT max(id) FROM wanted WHERE id < 9) - 2", 1, "order_id is one"),
        (
            "SELECT * FROM orders WHERE order_id > (SELECT max(id) + 2 FROM wanted WHERE id < 39995 + 5)",
            0, "order_id > the max of wanted.id +2",
        ),
        ("SELECT * FROM orders WHERE order_id < (SELECT min(id) FROM wanted) - 3", 4, "order_id < the min of wanted.id -3"),  # noqa: E501
        (
            "SELECT * FROM lines WHERE order_id = (SELECT order_id FROM orders WHERE order_id = (SELECT min(id) FROM wanted))",  # noqa: E501
            6, "order_id is one of 3 values of orders.order_id",
        ),
    ],
)  # fmt: skip
def test_comparisons_with_subqueries_and_computed_keys(
    lake: Lake, duck: duckdb.DuckDBPyConnection, query: str, read: int, why: str
) -> None:
    result = lake.sql(query)
    (report,) = (each for each in result.report.tables if each.table == query.split()[3])
    assert report.rows.read <= read
    assert report.narrowed_by[0].startswith(why)
    found = sorted(map(repr, result.to_arrow().to_pylist()))
    assert found == sorted(map(repr, duck.sql(query).to_arrow_table().to_pylist()))


def test_a_subquery_with_several_rows_stays_an_error(lake: Lake) -> None:
    """Also if the other table would leave one of them."""
    for query in (
        "SELECT * FROM orders WHERE order_id = (SELECT id FROM wanted)",
        "SELECT * FROM orders WHERE order_id = (SELECT id FROM wanted) AND order_id = 7",
        "SELECT * FROM wanted WHERE id = (SELECT order_id FROM orders WHERE total < 30)",
    ):
        with pytest.raises(SqlError, match="more than one row"):
            lake.sql(query)


def test_values_of_subqueries_that_narrow_nothing(lake: Lake, duck: duckdb.DuckDBPyConnection) -> None:
    for query in (
        "SELECT count(*) FROM orders WHERE order_id < (SELECT max(id) FROM wanted WHERE sku LIKE '%9%')",
        "SELECT count(*) FROM orders WHERE order_id < (SELECT max(id) FILTER (WHERE sku = '5') FROM wanted)",
        "SELECT count(*) FROM orders WHERE order_id <> (SELECT max(id) FROM wanted)",
        "SELECT count(*) FROM orders WHERE order_id = (SELECT count(*) FROM wanted)",
        "SELECT count(*) FROM orders WHERE order_id = (SELECT max(id) FROM wanted) OR total = 3",
        "SELECT count(*) FROM orders WHERE total > (SELECT max(id) FROM (SELECT id FROM wanted ORDER BY id LIMIT 1))",
    ):
        assert lake.sql(query).to_arrow().column(0).to_pylist() == [each for (each,) in duck.sql(query).fetchall()]


def test_casts_between_texts_and_numbers_do_not_narrow(tmp_path: Path) -> None:
    """'007' is 7 as a number, and '7' as its text: the values of the column are not those that are joined."""
    for file in range(8):
        ids = np.arange(file * 1000, (file + 1) * 1000)
        write(pa.table({"id": ids, "s": pa.array(ids).cast(pa.string())}), tmp_path / "a" / f"{file}.parquet")
    write(pa.table({"n": [3, 9, 10, 19], "s": ["007", "0009", "010", "00003"]}), tmp_path / "u" / "0.parquet")
    with needlepoint.open(tmp_path) as lake:
        for table in ("a", "u"):
            lake.create_table(table)
        lake.create_index("a", "id")
        lake.create_index("a", "s")
        lake.engine.queries.times_larger = 1
        for query in (
            "SELECT * FROM a WHERE s = (SELECT CAST(max(i) AS VARCHAR) FROM (SELECT CAST(s AS INT) i FROM u))",
            "SELECT * FROM a WHERE id < (SELECT CAST(min(i) AS BIGINT) FROM (SELECT CAST(n AS VARCHAR) i FROM u))",
            "SELECT a.* FROM a JOIN (SELECT i::text k FROM (SELECT s::int i FROM u ORDER BY i LIMIT 3)) x ON a.s = x.k",
            "WITH n AS (SELECT s::bigint AS i FROM u LIMIT 2) SELECT a.* FROM a JOIN n ON a.s = n.i::text",
        ):
            expected = lake.engine.sql(query, use_indexes=False).to_arrow().sort_by("id")
            assert expected.num_rows and lake.sql(query).to_arrow().sort_by("id").equals(expected), query


def test_sums_that_wrap_around(tmp_path: Path) -> None:
    """The largest integer plus one is the least."""
    least, most = -(1 << 63), (1 << 63) - 1
    ids = np.concatenate([np.arange(5000), [least, least + 1, most - 1, most]])
    for file, part in enumerate(np.array_split(ids, 4)):
        write(pa.table({"id": part, "v": part % 7}), tmp_path / "big" / f"{file}.parquet")
    write(
        pa.table({"k": [most, 3, None, least], "n": pa.array([1, 2, 3, 4], pa.int32())}), tmp_path / "u" / "0.parquet"
    )
    with needlepoint.open(tmp_path) as lake:
        for table in ("big", "u"):
            lake.create_table(table)
        lake.create_index("big", "id")
        for query in (
            "SELECT id FROM big WHERE id IN (SELECT k + 1 FROM u)",
            "SELECT id FROM big WHERE id IN (SELECT k - 1 FROM u)",
            "SELECT id FROM big WHERE id - 1 IN (SELECT k FROM u)",
            "SELECT id FROM big WHERE id = (SELECT max(k) + 1 FROM u)",
            "SELECT id FROM big WHERE id = (SELECT max(k) FROM u) + 1",
            "SELECT id FROM big WHERE id = (SELECT max(k + 1) FROM u)",
            "SELECT id FROM big WHERE id > (SELECT max(k + 1) FROM u)",
            "SELECT id FROM big WHERE id <= (SELECT max(k + 1) FROM u)",
            "SELECT id FROM big WHERE id <= (SELECT max(j) FROM (SELECT k + 1 AS j FROM u LIMIT 9))",
            "SELECT id FROM big WHERE id >= (SELECT min(j) FROM (SELECT k - 1 AS j FROM u) x)",
            "SELECT id FROM big WHERE id > (SELECT max(k) + 1 FROM u)",
            "SELECT id FROM big WHERE id > (SELECT max(k) FROM u) + 1",
            "SELECT id FROM big WHERE id <= (SELECT min(k) - 1 FROM u)",
            "SELECT id FROM big WHERE id < (SELECT min(k - 1) FROM u)",
            "SELECT id FROM big WHERE id >= (SELECT max(j + 2) FROM (SELECT k - 1 AS j FROM u))",
            "SELECT id FROM big WHERE EXISTS (SELECT 1 FROM u WHERE k + 1 = id)",
            "SELECT k FROM u WHERE NOT EXISTS (SELECT 1 FROM big WHERE id - 1 = k)",
            "SELECT id FROM big WHERE id IN (SELECT n + 9223372036854775807 FROM u)",
        ):
            expected = lake.engine.sql(query, use_indexes=False).to_arrow().column(0).to_pylist()
            found = lake.sql(query).to_arrow().column(0).to_pylist()
            assert sorted(map(repr, found)) == sorted(map(repr, expected)), query
