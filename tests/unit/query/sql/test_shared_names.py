"""Which tables of a join with shared names get no filters from DataFusion's physical plan."""

from __future__ import annotations

import datafusion
import pytest

from needlepoint.query.sql.plan_facts import PlanFacts, plan_facts

COLUMNS = {"a": ("k", "s"), "b": ("k2", "s"), "c": ("k3", "z")}


@pytest.fixture(scope="module")
def context() -> datafusion.SessionContext:
    made = datafusion.SessionContext()
    for name, columns in COLUMNS.items():
        made.from_pydict({column: [1, 2] for column in columns}, name=name)
    return made


def facts_of(context: datafusion.SessionContext, query: str) -> PlanFacts:
    return plan_facts(context.sql(query).optimized_logical_plan())


@pytest.mark.parametrize(
    ("query", "misled"),
    [
        ("SELECT a.s, c.z FROM a JOIN c ON a.k = c.k3", ""),
        ("SELECT x.s, y.s, c.z FROM a x JOIN a y ON x.k = y.k JOIN c ON c.k3 = x.k", "ab"),
        ("SELECT a.s, b.s, c.z FROM a JOIN b ON a.k = b.k2 JOIN c ON c.k3 = a.k", "ab"),
        ("SELECT x.z, y.z, a.s FROM c x JOIN c y ON x.k3 = y.k3 JOIN a ON a.k = x.k3", "c"),
        # Columns that get a shared name: the filter may reach any table.
        ("SELECT a.s, q.s FROM a JOIN (SELECT k3, z AS s FROM c) q ON a.k = q.k3", "abc"),
        ("SELECT a.s, q.s FROM a JOIN (SELECT k3, max(z) AS s FROM c GROUP BY k3) q ON a.k = q.k3", "abc"),
        ("SELECT a.s, q.s FROM a JOIN (SELECT k2, s FROM b UNION ALL SELECT k3, z FROM c) q ON a.k = q.k2", "abc"),
        ("SELECT a.s, q.s FROM a JOIN (SELECT k2, s, rank() OVER (ORDER BY s) r FROM b) q ON a.k = q.r", "abc"),
        # Names that are given and not shared do no harm.
        ("SELECT x.z AS s, y.z AS k FROM c x JOIN c y ON x.k3 = y.k3 JOIN (SELECT k AS v FROM a) q ON v = x.k3", "c"),
        ("SELECT a.k, b.s FROM a JOIN (SELECT s, count(*) AS n FROM b GROUP BY s) b ON a.s = b.s", "ab"),
    ],
)
def test_tables_that_a_filter_may_reach(context: datafusion.SessionContext, query: str, misled: str) -> None:
    facts = facts_of(context, query)
    assert "".join(name for name, columns in COLUMNS.items() if facts.misleads(columns)) == misled


def test_a_plan_that_is_not_visible_misleads_any_table() -> None:
    assert PlanFacts.careful().any_table
    assert PlanFacts.careful().misleads(["x"])
    assert not PlanFacts().any_table
