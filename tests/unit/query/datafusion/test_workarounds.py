"""Plain DataFusion, to check that each bug with a workaround still exists."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from needlepoint.query.datafusion.workarounds import WORKAROUNDS

NAN = float("nan")
PUSHDOWN = {"datafusion.execution.parquet.pushdown_filters": "true"}


class Plain:
    """DataFusion without any of our settings, over files in a directory."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self._directory = directory
        self.context = datafusion.SessionContext(datafusion.SessionConfig(settings or {}))

    def write(self, name: str, table: pa.Table, file: str = "a.parquet", **options: Any) -> None:
        (self._directory / name).mkdir(exist_ok=True)
        pq.write_table(table, self._directory / name / file, **options)

    def files(self, name: str, table: pa.Table, schema: pa.Schema | None = None, **options: Any) -> None:
        self.write(name, table, **options)
        self.context.register_parquet(name, f"{self._directory / name}/", schema=schema)

    def rows(self, query: str) -> list[dict[str, Any]]:
        return self.context.sql(query).to_arrow_table().to_pylist()

    def memory(self, name: str, columns: dict[str, Any]) -> None:
        self.context.register_record_batches(name, [[pa.RecordBatch.from_pydict(columns)]])


def shared_names(path: Path) -> bool:
    plain = Plain(path, PUSHDOWN)
    plain.files("x", pa.table({"s": ["a", None, "c"], "i": [1, 2, 3]}))
    plain.files("y", pa.table({"s": ["a", "b", None], "i": [1, 2, 4]}))
    query = "SELECT x.s AS xs, y.s AS ys FROM x RIGHT JOIN y ON x.i = y.i WHERE x.s IS NULL OR y.s IS NULL"
    return len(plain.rows(query)) == 2


def nan_statistics(path: Path) -> bool:
    plain = Plain(path)
    plain.files("t", pa.table({"f": [0.5, NAN]}))
    return len(plain.rows("SELECT f FROM t WHERE f > 1")) == 1


def coarse_units(path: Path) -> bool:
    plain = Plain(path, PUSHDOWN)
    plain.files("t", pa.table({"t": pa.array([1, 2], pa.timestamp("us"))}), pa.schema([("t", pa.timestamp("ns"))]))
    return len(plain.rows("SELECT t FROM t WHERE t < arrow_cast(1001, 'Timestamp(Nanosecond, None)')")) == 1


def sorted_parts(path: Path) -> bool:
    plain = Plain(path, {"datafusion.execution.target_partitions": "4"})
    for part in range(3):
        plain.files(f"t{part}", pa.table({"id": [*range(part * 10, part * 10 + 10)]}))
    union = " UNION ALL ".join(f"SELECT {part} AS p, id FROM t{part}" for part in range(3))
    query = f"SELECT id FROM ({union}) ORDER BY p DESC, id LIMIT 3"
    # The order of the parts is random.
    return all([row["id"] for row in plain.rows(query)] == [20, 21, 22] for _ in range(20))


def constant_groups(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"id": pa.array([], pa.int64())})
    return plain.rows("SELECT count(*) AS n, count(DISTINCT p) AS d FROM (SELECT id, 7 AS p FROM t)")[0]["d"] == 0


def outer_constants(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("c", {"n": [1, 2, 3, 4], "s": ["a", "b", "c", "d"]})
    plain.memory("b", {"id": [2, 4], "p": [7, 7]})
    query = "SELECT c.s FROM c LEFT JOIN b ON b.id = c.n AND b.p = 7 ORDER BY b.p, c.s"
    return [row["s"] for row in plain.rows(query)] == ["b", "d", "a", "c"]


def equal_subtotals(path: Path) -> bool:
    plain = Plain(path, {"datafusion.execution.target_partitions": "1"})
    plain.memory("a", {"id": [1, 2, 3]})
    plain.memory("b", {"n": [1, 2, 3]})
    query = "SELECT id, n FROM a JOIN b ON id = n GROUP BY CUBE (id, n) ORDER BY id, n NULLS"
    last, first = [{"id": 1, "n": 1}, {"id": 1, "n": None}], [{"id": 1, "n": None}, {"id": 1, "n": 1}]
    return plain.rows(f"{query} LAST")[:2] == last and plain.rows(f"{query} FIRST")[:2] == first


def literal_first(path: Path) -> bool:
    plain = Plain(path, PUSHDOWN)
    plain.files("s", pa.table({"id": [3, 4, 5]}))
    literal = datafusion.lit(pa.scalar(4, pa.int64())).alias("p")
    plain.context.register_view("t", plain.context.sql("SELECT id FROM s").select(literal, datafusion.col("id")))
    return plain.rows("SELECT id FROM t WHERE p = id AND id = 4") == [{"id": 4}]


def aggregate_filters(path: Path) -> bool:
    settings = PUSHDOWN | {"datafusion.execution.target_partitions": "2"}
    plain = Plain(path, settings | {"datafusion.execution.collect_statistics": "false"})
    plain.write("t", pa.table({"k": pa.array([None, 5], pa.int64()), "m": [7, 7]}), row_group_size=1)
    later = pa.table({"k": pa.array([9, None], pa.int64()), "m": [7, 3]})
    plain.files("t", later, file="b.parquet", row_group_size=1)
    # The order of the files is random.
    return all(plain.rows("SELECT max(k) AS k, max(m) AS m FROM t WHERE m > 0")[0]["k"] == 9 for _ in range(20))


def anti_joins_without_keys(path: Path) -> bool:
    plain = Plain(path)
    plain.context.remove_optimizer_rule("extract_equijoin_predicate")
    plain.memory("x", {"i": [1, 2, 3]})
    plain.memory("y", {"i": pa.array([1, None], pa.int64())})
    return plain.rows("SELECT i FROM x WHERE i NOT IN (SELECT i FROM y)") == []


REGROUPED = "(SELECT x.p, y.i FROM (SELECT p FROM t GROUP BY p) AS x, t AS y GROUP BY x.p, y.i) AS z"


def keys_of_groups(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"i": [3, 1, 2], "p": [7, 7, 8]})
    return [row["i"] for row in plain.rows(f"SELECT * FROM {REGROUPED} ORDER BY p, i")] == [1, 2, 3, 1, 2, 3]


def groups_of_groups(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"i": [3, 1, 2], "p": [7, 7, 8]})
    return len(plain.rows(f"SELECT p, count(*) AS n FROM {REGROUPED} GROUP BY p, i")) == 6


def zero_lists(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"f": [-0.0, 0.0]})
    return len(plain.rows("SELECT f FROM t WHERE f IN (0.0, 3.0, 4.0, 5.0)")) == 2


def zero_bounds(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"f": [-0.0, 0.0]})
    return plain.rows("SELECT f FROM t WHERE f <= -0.0 AND f < 0.0") == []


def zero_order(path: Path) -> bool:
    plain = Plain(path, {"datafusion.execution.target_partitions": "1"})
    parts = [{"f": [0.0, 0.0, 1.5], "id": [1, 2, 3]}, {"f": [-0.0, -0.0, 1.5], "id": [4, 5, 6]}]
    plain.context.register_record_batches("t", [[pa.RecordBatch.from_pydict(part) for part in parts]])
    return plain.rows("SELECT id FROM t ORDER BY f, id LIMIT 2") == plain.rows("SELECT id FROM t ORDER BY f, id")[:2]


def zero_blooms(path: Path) -> bool:
    plain = Plain(path)
    zeros = pa.table({"f": [-0.0] * 10 + [0.0] * 10})
    plain.files("t", zeros, row_group_size=10, bloom_filter_options={"f": {"ndv": 10}})
    return len(plain.rows("SELECT f FROM t WHERE f = 0.0")) == 20


def zero_keys(path: Path) -> bool:
    plain = Plain(path, PUSHDOWN)
    plain.files("x", pa.table({"f": [-0.0]}))
    plain.files("y", pa.table({"g": [0.0]}))
    return len(plain.rows("SELECT f FROM x JOIN y ON f = g")) == 1


def nested_keys(path: Path) -> bool:
    plain = Plain(path, PUSHDOWN)
    plain.files("x", pa.table({"f": [1, 2, None]}))
    plain.files("y", pa.table({"g": [2, 3, None]}))
    return len(plain.rows("SELECT f FROM x JOIN y ON make_array(f) = make_array(g)")) == 2


def decimal_literals(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"a": pa.array([Decimal("8.64")], pa.decimal128(12, 2))})
    return len(plain.rows("SELECT a FROM t WHERE a = 8.64")) == 1


def listing_cache(path: Path) -> bool:
    plain = Plain(path)
    plain.files("t", pa.table({"i": [1]}))
    plain.rows("SELECT i FROM t")
    plain.write("t", pa.table({"i": [2]}), file="b.parquet")
    return len(plain.rows("SELECT i FROM t")) == 2


def sum_beside_distinct(path: Path) -> bool:
    plain = Plain(path, {"datafusion.sql_parser.parse_float_as_decimal": "true"})
    plain.memory("t", {"k": [1, 1], "d": pa.array([Decimal("0.29"), Decimal("1.00")], pa.decimal128(12, 2))})
    try:
        return plain.rows("SELECT count(DISTINCT k) AS n FROM t GROUP BY k HAVING sum(d) > 0.5") == [{"n": 1}]
    except Exception:
        return False


def forgotten_equalities(path: Path) -> bool:
    plain = Plain(path, {"datafusion.execution.target_partitions": "1"})
    plain.memory("x", {"s": ["a"], "k": [1]})
    plain.memory("y", {"n": [1], "k": [1], "u": ["a"]})
    semi = "WHERE EXISTS (SELECT 1 FROM y AS z WHERE z.k <> y.k)"
    joined = f"SELECT x.s AS s, y.n AS n, coalesce(y.u, 'a') AS v FROM x LEFT JOIN y USING (k) {semi}"
    try:
        return plain.rows(f"SELECT v, max(n) OVER (PARTITION BY s) AS m FROM ({joined}) AS t WHERE s = v") == []
    except Exception:
        return False


def null_safe_keys(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("x", {"k": [1], "n": pa.array([None], pa.int64())})
    return plain.rows("SELECT x.k FROM x JOIN x AS y ON x.k IS NOT DISTINCT FROM y.k WHERE x.n = y.n") == []


def reused_names(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"s": ["b", "A", "c", "D"]})
    query = "SELECT upper(s) AS s FROM (SELECT DISTINCT s FROM t) ORDER BY s LIMIT 2"
    return plain.rows(query) == [{"s": "A"}, {"s": "B"}]


def filtered_totals(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"s": ["a"]})
    return plain.rows("SELECT n FROM (SELECT count(*) AS n FROM t) WHERE n = 1 AND n = 2") == []


def combined_lists(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"k": [1, None]})
    return plain.rows("SELECT k FROM t WHERE k NOT IN (1) OR k NOT IN (2)") == [{"k": 1}]


def counted_literals(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"k": pa.array([], pa.int64())})
    query = "SELECT count(*) AS c, count(DISTINCT x) AS n FROM (SELECT 5 AS x FROM t)"
    summed = plain.rows("SELECT sum(x) AS s FROM (SELECT 5 AS x FROM t)")
    return plain.rows(query) == [{"c": 0, "n": 0}] or summed == [{"s": None}]


def lossy_casts(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"d": [Decimal("5.00"), Decimal("5.10")]})
    return len(plain.rows("SELECT d FROM t WHERE CAST(d AS BIGINT) = 5")) == 2


def wildcards(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"k": [1]})
    inner = "SELECT x.k FROM t x JOIN t y USING (k)"
    found = plain.context.sql(f"SELECT * FROM t x JOIN t y ON x.k = y.k WHERE x.k IN ({inner})")
    return len(found.schema()) == 2


def ignored_clauses(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"k": [1, 2]})
    in_window = "SELECT sum(k) OVER (w ORDER BY k) AS s FROM t WINDOW w AS (PARTITION BY k)"
    return (
        len(plain.rows("SELECT count(*) FROM t GROUP BY k WITH ROLLUP")) == 3
        or len(plain.rows("SELECT k FROM t PREWHERE k = 1")) == 1
        or {"s": 3} not in plain.rows(in_window)
    )


def multisets(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"k": [1, 1, 2]})
    plain.memory("u", {"k": [1]})
    both = "SELECT k FROM t {} ALL SELECT k FROM u"
    return len(plain.rows(both.format("EXCEPT"))) == 2 or len(plain.rows(both.format("INTERSECT"))) == 1


def quantified(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"k": [1, 2]})
    return plain.rows("SELECT k FROM t WHERE k < ANY (SELECT k FROM t)") == [{"k": 1}]


def merged_columns(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"k": [1]})
    plain.memory("u", {"k": [2]})
    return plain.rows("SELECT k FROM t RIGHT JOIN u USING (k)") == [{"k": 2}]


def zoneless_instants(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"z": pa.array([0], pa.timestamp("us", "Asia/Tokyo"))})
    return len(plain.rows("SELECT z FROM t WHERE z = TIMESTAMPTZ '1970-01-01 00:00:00Z'")) == 1


def finer_times(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"ms": pa.array([0], pa.timestamp("ms")), "us": pa.array([500], pa.timestamp("us"))})
    literal = plain.rows("SELECT ms FROM t WHERE ms = TIMESTAMP '1970-01-01 00:00:00.0005'")
    return not literal and len(plain.rows("SELECT ms FROM t WHERE ms < us")) == 1


def missing_values(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"k": [1]})
    return plain.rows("SELECT k FROM t WHERE (SELECT 1 FROM t WHERE k = 9) IS NULL") == [{"k": 1}]


def distinct_from(path: Path) -> bool:
    plain = Plain(path)
    plain.memory("t", {"ok": [False, False, True], "k": [1, 2, 1]})
    return plain.rows("SELECT k FROM t WHERE ok IS NOT DISTINCT FROM false AND k = 1") == [{"k": 1}]


ANSWERS_RIGHT: dict[str, Callable[[Path], bool]] = {
    check.__name__: check
    for check in (
        shared_names, nan_statistics, coarse_units, sorted_parts, constant_groups, outer_constants, equal_subtotals,
        literal_first, aggregate_filters, anti_joins_without_keys, keys_of_groups, groups_of_groups, zero_lists,
        zero_bounds, zero_order, zero_blooms, zero_keys, nested_keys, decimal_literals, sum_beside_distinct,
        forgotten_equalities, null_safe_keys, reused_names, filtered_totals, combined_lists, counted_literals,
        lossy_casts, wildcards, ignored_clauses, multisets, quantified,
        merged_columns, zoneless_instants, finer_times, missing_values, listing_cache, distinct_from,
    )
}  # fmt: skip


def test_every_workaround_is_tested() -> None:
    assert [each.name for each in WORKAROUNDS] == list(ANSWERS_RIGHT)


@pytest.mark.parametrize("name", ANSWERS_RIGHT)
def test_datafusion_still_needs_it(name: str, tmp_path: Path) -> None:
    assert not ANSWERS_RIGHT[name](tmp_path), f"DataFusion now answers correctly: the workaround {name} can be removed"
