"""Whole queries over several tables have the answers that DuckDB gives over copies of the rows."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.fuzz.whole_queries import Run, described, with_views
from tests.property.trees import NOTHING, listed, node, smaller, word
from tests.property.whole_judge import Judge
from tests.property.whole_lakes import random_lake
from tests.property.whole_queries import Queries
from tests.property.whole_shrinking import script, shrunk

LAKES, QUERIES = 8, 60


@pytest.mark.parametrize("number", range(cases(LAKES, 3)))
def test_whole_queries(number: int) -> None:
    run = Run()
    run.lake(number, queries=QUERIES)
    tally = run.tally()
    assert not tally.findings, "\n\n".join(tally.findings)
    # A generator whose queries no engine answers would prove nothing.
    assert run.verdicts["right"] > QUERIES * 0.8, run.verdicts


# Hypothesis does not shrink here: it knows no SQL, and would write the lake again for each query it tries.
@pytest.mark.long
@settings(max_examples=cases(200), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.randoms(use_true_random=False))
def test_more_whole_queries(chance: Random) -> None:
    with Judge(with_views(chance, random_lake(chance))) as judge:
        judge.lake.engine.queries.times_larger = judge.lake.engine.queries.least_rows = 0
        made = Queries(chance, judge.spec)
        for _ in range(12):
            query = made.query()
            verdict = judge.verdict(query)
            if verdict.is_finding:
                pytest.fail(described(shrunk(judge.spec, query, verdict), "drawn by Hypothesis"))


def test_a_tree_gets_smaller() -> None:
    items = listed([word("a", "item"), word("b", "item")])
    both = node("bool", "({} OR {})", word("x", "bool"), word("y", "bool"))
    tree = node("rows", "SELECT {} FROM t{}", items, node("clause", " WHERE {}", both))
    assert str(tree) == "SELECT a, b FROM t WHERE (x OR y)"
    assert {str(each) for each in smaller(tree)} == {
        "SELECT a, b FROM t",
        "SELECT a, b FROM t WHERE TRUE",
        "SELECT a, b FROM t WHERE x",
        "SELECT a, b FROM t WHERE y",
        "SELECT a FROM t WHERE (x OR y)",
        "SELECT b FROM t WHERE (x OR y)",
    }
    assert str(NOTHING) == ""


@pytest.mark.long
def test_a_wrong_answer_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake that loses a row of a join is found; the finding is shrunk, and its script compiles."""
    ask = Judge.ask

    def forgetful(self: Judge, sql: str, parameters: dict[str, object]) -> object:
        found = ask(self, sql, parameters)
        return found[1:] if isinstance(found, list) and "JOIN" in sql else found

    monkeypatch.setattr(Judge, "ask", forgetful)
    chance = Random(1)
    with Judge(random_lake(chance)) as judge:
        made = Queries(chance, judge.spec)
        query, verdict = next(
            (query, verdict)
            for query in (made.query() for _ in range(200))
            if (verdict := judge.verdict(query)).name == "wrong"
        )
        spec = judge.spec
    finding = shrunk(spec, query, verdict, 6)
    assert finding.verdict.name == "wrong"
    assert finding.query.tree.size() <= query.tree.size()
    compile(script(finding, "a test"), "script", "exec")
