from __future__ import annotations

import random

import datafusion
import pyarrow as pa
import pytest
from tests.cases import cases

from needlepoint.errors import SqlError
from needlepoint.query.sql.nesting import DEEPEST, MOST_CONDITIONS, MOST_RELATIONS, frame, measure, shallow


@pytest.fixture(scope="module")
def context() -> datafusion.SessionContext:
    made = datafusion.SessionContext()
    values = [None, 0, 1, 2, 3]
    rows = [(a, b, s) for a in values for b in values for s in (None, "x", "y OR z", "it's")]
    batch = pa.record_batch({"a": [r[0] for r in rows], "b": [r[1] for r in rows], "s": [r[2] for r in rows]})
    made.register_record_batches("t", [[batch]])
    return made


def term(rng: random.Random, depth: int = 0) -> str:
    plain = [
        lambda: f"a = {rng.randrange(4)}",
        lambda: f"b<>-{rng.randrange(3)}",
        lambda: f"a + b * 2 >= {rng.randrange(5)}",
        lambda: "s LIKE '%OR%'",
        lambda: "s NOT LIKE 'x%' -- a comment AND more (\n",
        lambda: "s = 'it''s' /* or ) */",
        lambda: f"a BETWEEN {rng.randrange(3)} AND b",
        lambda: f"a NOT BETWEEN 1 AND {rng.randrange(3)}",
        lambda: "a IS NULL",
        lambda: '"b" IS NOT NULL',
        lambda: f"a IN ({rng.randrange(3)}, 2, 3)",
        lambda: "t.b NOT IN (1, NULL)",
        lambda: "NOT a = 1",
        lambda: "TRUE",
        lambda: "NULL",
        lambda: "coalesce(a, b) = abs(-1)",
        lambda: "a = (SELECT max(b) FROM t WHERE a = 1 OR b = 2)",
        lambda: "CASE WHEN a = 1 OR b = 2 THEN b = 1 ELSE a = 2 END",
        lambda: "(a IS DISTINCT FROM 1)",
        lambda: "a::int = 1",
    ]
    if depth < 3 and rng.random() < 0.3:
        return f"{'NOT ' * rng.randrange(2)}({condition(rng, depth + 1)})"
    return rng.choice(plain)()


def condition(rng: random.Random, depth: int = 0) -> str:
    text = term(rng, depth)
    for _ in range(rng.randrange(1, 12)):
        text += f" {rng.choice(['AND', 'OR', 'or', 'OR'])} {term(rng, depth)}"
    return text


@pytest.mark.parametrize("seed", range(cases(120, 40)))
def test_parentheses_do_not_change_the_answer(context: datafusion.SessionContext, seed: int) -> None:
    rng = random.Random(seed)
    where = condition(rng)
    query = rng.choice(
        [
            f"SELECT a, b, s FROM t WHERE {where} ORDER BY a, b, s",
            f"SELECT ({where}) AS found, count(*) FROM t GROUP BY 1 ORDER BY 1",
            f"SELECT {where}, a FROM t ORDER BY 1, 2",
            f"SELECT t.a FROM t JOIN (SELECT 1 AS c) u ON {where} ORDER BY 1",
            f"SELECT a FROM t WHERE {where} UNION ALL SELECT b FROM t WHERE {condition(rng)} ORDER BY 1",
        ]
    )
    made = shallow(query, group=2)
    assert context.sql(made).to_pydict() == context.sql(query).to_pydict()


def test_most_of_the_chains_get_parentheses() -> None:
    changed = 0
    for seed in range(120):
        query = f"SELECT * FROM t WHERE {condition(random.Random(seed))}"
        changed += shallow(query, group=2) != query
    assert changed > 60


@pytest.mark.parametrize(
    "query",
    [
        "SELECT f(x => a OR b OR c OR d OR e) FROM t",
        "SELECT f(x -> x OR b OR c OR d OR e) FROM t",
        "SELECT a OR b OR c OR d OR e FROM t",
        "SELECT * FROM t WHERE a IS NOT DISTINCT FROM b OR c OR d OR e",
        "SELECT count(DISTINCT (a) OR b OR c OR d OR e) FROM t",
    ],
)
def test_what_is_not_surely_understood_stays(query: str) -> None:
    assert shallow(query, group=2) == query


def test_a_long_chain_is_shallow() -> None:
    ors = " OR ".join(f"(id = {number} AND s = 'a{number}')" for number in range(20_000))
    assert measure(f"SELECT * FROM t WHERE {ors}").depth < 100
    equal = " OR ".join(f"id = {number}" for number in range(20_000))
    assert measure(f"SELECT * FROM t WHERE {equal}").depth < 100


def test_lists_are_not_deep() -> None:
    for values in (map(str, range(10_000)), (f"-{n}.5" for n in range(10_000)), (f"'a-{n}'" for n in range(10_000))):
        assert measure(f"SELECT * FROM t WHERE id IN ({', '.join(values)})").depth < 10
    marks = ", ".join(f"$p0_{number}" for number in range(10_000))
    assert measure(f'SELECT "a" FROM "t" WHERE "a" IN ({marks})').depth < 10
    assert measure("SELECT " + ", ".join(f"a + {n} AS c{n}" for n in range(5_000)) + " FROM t").depth < 10
    whens = " ".join(f"WHEN a = {number} THEN {number} + 1" for number in range(5_000))
    assert measure(f"SELECT CASE {whens} ELSE 0 END FROM t").depth < 10


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t WHERE " + " AND ".join(f"a <> {n}" for n in range(MOST_CONDITIONS + 2)),
        "SELECT * FROM t WHERE (" + ") AND (".join(["a = 1 AND b = 2"] * MOST_CONDITIONS) + ")",
        "SELECT * FROM t WHERE " + " OR ".join(f"a <> {n}" for n in range(100_000)),
        "SELECT " + " + ".join(["a"] * (DEEPEST + 2)) + " FROM t",
        "SELECT " + " + ".join(["when"] * (DEEPEST + 2)) + " FROM t",
        "SELECT " + " + ".join(["CASE WHEN a = 1 THEN 1 END"] * (DEEPEST + 2)) + " FROM t",
        "SELECT s" + " || 'x'" * DEEPEST + " FROM t",
        "SELECT a" + "::int" * DEEPEST + " FROM t",
        "SELECT a" + " IS NULL" * (DEEPEST + 1) + " FROM t",
        "SELECT " + "(" * 100_000,
        " UNION ALL ".join(["SELECT a FROM t"] * (MOST_RELATIONS + 1)),
        "SELECT * FROM " + ", ".join(f"t t{n}" for n in range(MOST_RELATIONS + 2)),
        "SELECT * FROM t " + "CROSS JOIN t " * (MOST_RELATIONS + 1),
    ],
    ids=lambda query: query[:40],
)
def test_what_is_too_deep_is_refused(context: datafusion.SessionContext, query: str) -> None:
    with pytest.raises(SqlError, match="and the limit is"):
        frame(context, query)


def test_an_error_is_about_the_text_as_it_was_written(context: datafusion.SessionContext) -> None:
    for many in (300, 1000):  # with few it is planned as it was written
        chain = " OR ".join(f"a = {n}" for n in range(many))
        query = f"SELECT *\nFROM t WHERE {chain}\nORDER BY b LIMIT )"
        assert shallow(query) != query
        with pytest.raises(ValueError, match=r"Line: 3, Column: 18"):
            frame(context, query)
        with pytest.raises(ValueError, match=rf"Line: 2, Column: {14 + len(chain) + 10}\D"):
            frame(context, f"SELECT *\nFROM t WHERE {chain} ORDER BY )")
