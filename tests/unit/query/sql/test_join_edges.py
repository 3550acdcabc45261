"""Which tables a join narrows."""

from __future__ import annotations

import datafusion
import pyarrow as pa
import pytest

from needlepoint.query.sql.join_edges import join_edges

TYPES = {"id": pa.int64(), "k": pa.int32(), "s": pa.string(), "d": pa.date32(), "f": pa.float64()}

BOTH = {"a.id by b.id", "b.id by a.id"}


def edges(query: str) -> set[str]:
    context = datafusion.SessionContext()
    for name in "abc":
        rows = pa.RecordBatch.from_arrays([pa.array([], type) for type in TYPES.values()], [*TYPES])
        context.register_record_batches(name, [[rows]])
    plan = context.sql(query).optimized_logical_plan()
    found = join_edges(plan, plan.display_indent(), dict.fromkeys("abc", TYPES))
    return {
        f"{edge.table}.{edge.column} by {edge.by_table}.{edge.by_column}" + (f" {edge.offset:+}" if edge.offset else "")
        for edge in found
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM a JOIN b ON a.id = b.id", BOTH),
        ("SELECT * FROM a JOIN b ON a.k = b.id", {"a.k by b.id", "b.id by a.k"}),
        ("SELECT * FROM a LEFT JOIN b ON a.id = b.id", {"b.id by a.id"}),
        ("SELECT * FROM a RIGHT JOIN b ON a.id = b.id", {"a.id by b.id"}),
        ("SELECT * FROM a FULL JOIN b ON a.id = b.id", set()),
        ("SELECT * FROM a WHERE id IN (SELECT id FROM b)", BOTH),
        ("SELECT * FROM a WHERE id NOT IN (SELECT id FROM b)", set()),
        ("SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.s = a.s)", {"a.s by b.s", "b.s by a.s"}),
        ("SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id)", {"b.id by a.id"}),
        ("SELECT * FROM a WHERE id IN (SELECT id FROM b) OR k = 1", {"b.id by a.id"}),
        ("SELECT a.id, (SELECT max(b.id) FROM b WHERE b.k = a.k) FROM a", {"b.k by a.k"}),
        ("SELECT * FROM a JOIN b ON a.d = b.d", {"a.d by b.d", "b.d by a.d"}),
        # Values that may be equal in SQL, and differ in Python.
        ("SELECT * FROM a JOIN b ON a.f = b.f", set()),
        ("SELECT * FROM a JOIN b ON a.s = b.id", set()),
        ("SELECT * FROM a JOIN b ON CAST(a.id AS DOUBLE) = CAST(b.id AS DOUBLE)", set()),
        ("SELECT * FROM a JOIN b ON CAST(a.s AS BIGINT) = CAST(b.s AS BIGINT)", set()),
        ("SELECT * FROM a JOIN b ON CAST(a.id AS VARCHAR) = CAST(b.id AS VARCHAR)", set()),
        ("SELECT * FROM a JOIN b ON CAST(a.id AS SMALLINT) = b.k", {"a.id by b.k", "b.k by a.id"}),
        ("SELECT * FROM a JOIN b ON CAST(a.id + 1 AS INT) = b.k", {"a.id by b.k -1", "b.k by a.id +1"}),
        # Sums of 64 bits.
        ("SELECT * FROM a JOIN b ON a.id + 1 = b.id", {"a.id by b.id -1", "b.id by a.id +1"}),
        ("SELECT * FROM a JOIN b ON a.k + 1 = b.id", {"a.k by b.id -1", "b.id by a.k +1"}),
        ("SELECT * FROM a JOIN b ON CAST(a.k + CAST(1 AS INT) AS BIGINT) = b.id", set()),
        ("SELECT * FROM a JOIN b ON a.f + 1 = b.f", set()),
        ("SELECT * FROM a JOIN b ON a.id * 2 = b.id", set()),
        ("SELECT * FROM a WHERE id IN (SELECT k - 1 FROM b)", {"a.id by b.k -1"}),
        ("SELECT * FROM a WHERE id + 1 IN (SELECT k - 1 FROM b)", {"a.id by b.k -2"}),
        ("SELECT * FROM a WHERE id IN (SELECT max(k) + 1 FROM b GROUP BY s)", {"a.id by b.k +1"}),
        ("SELECT * FROM a WHERE id IN (SELECT max(id + 1) - 3 FROM b GROUP BY s)", {"a.id by b.id -2"}),
        ("SELECT * FROM a WHERE id IN (SELECT id + 1 FROM b GROUP BY id + 1)", {"a.id by b.id +1"}),
        ("SELECT * FROM a JOIN (SELECT id + 1 AS x FROM b) v ON a.id = v.x + 2", {"a.id by b.id +3"}),
        ("SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k + 1 = a.id)", {"a.id by b.k +1", "b.k by a.id -1"}),
        ("SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k + 1 = a.id)", {"b.k by a.id -1"}),
        ("SELECT * FROM a WHERE id NOT IN (SELECT k + 1 FROM b)", set()),
        ("SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.id = a.id) OR k = 1", {"b.id by a.id"}),
        ("SELECT * FROM a LEFT SEMI JOIN b ON a.id = b.id", BOTH),
        ("SELECT * FROM a LEFT ANTI JOIN b ON a.id = b.id", {"b.id by a.id"}),
        ("SELECT * FROM a RIGHT ANTI JOIN b ON a.id = b.id", {"a.id by b.id"}),
        ("SELECT * FROM a JOIN b ON a.id IS NOT DISTINCT FROM b.id", set()),
        ("SELECT * FROM a JOIN b ON a.id < b.id", set()),
        # The rows of a LIMIT and of a window depend on all rows below.
        ("SELECT * FROM (SELECT * FROM a LIMIT 5) x JOIN b ON x.id = b.id", {"b.id by a.id"}),
        ("SELECT * FROM (SELECT * FROM a ORDER BY k LIMIT 5) x JOIN b ON x.id = b.id", {"b.id by a.id"}),
        ("SELECT * FROM (SELECT id, row_number() OVER (ORDER BY k) FROM a) x JOIN b ON x.id = b.id", set()),
        ("SELECT * FROM (SELECT id, count(*) FROM a GROUP BY id) x JOIN b USING (id)", BOTH),
        ("SELECT * FROM (SELECT k, max(id) AS id FROM a GROUP BY ROLLUP (k)) x JOIN b USING (id)", set()),
        ("SELECT * FROM (SELECT max(id) AS id FROM a GROUP BY k) x JOIN b USING (id)", {"b.id by a.id"}),
        ("SELECT * FROM (SELECT id FROM a UNION ALL SELECT id FROM c) x JOIN b USING (id)", set()),
        # One of two scans of a may need all rows.
        ("SELECT * FROM a x JOIN a y ON x.id = y.id JOIN b ON y.k = b.k", {"b.k by a.k"}),
        ("SELECT * FROM a JOIN b ON a.id = b.id WHERE a.k > (SELECT max(k) FROM b)", {"a.id by b.id"}),
        # Through joins below, of any kind.
        (
            "SELECT * FROM a LEFT JOIN b ON a.id = b.id JOIN c ON b.k = c.k",
            {"b.id by a.id", "b.k by c.k", "c.k by b.k"},
        ),
        ("SELECT * FROM (a FULL JOIN b ON a.id = b.id) LEFT JOIN c ON b.k = c.k", {"c.k by b.k"}),
        (
            "WITH RECURSIVE a AS (SELECT 1 AS id UNION ALL SELECT b.id FROM a JOIN b ON a.id = b.k) SELECT * FROM a",
            set(),
        ),
    ],
)
def test_edges(query: str, expected: set[str]) -> None:
    assert edges(query) == expected
