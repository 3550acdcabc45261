"""Queries that are written differently for DataFusion: what changes, and what must not."""

from __future__ import annotations

import pytest
from tests.cases import cases

from needlepoint.query.sql.rewriting.conditions import as_truths, with_hidden_constants
from needlepoint.query.sql.rewriting.constants_last import with_constants_last
from needlepoint.query.sql.rewriting.existence import as_count
from needlepoint.query.sql.rewriting.instants import with_zones
from needlepoint.query.sql.rewriting.lossy_casts import with_hidden_casts
from needlepoint.query.sql.rewriting.null_safe import as_lists, spelled_out, with_parentheses
from needlepoint.query.sql.rewriting.separate_lists import with_separate_lists
from needlepoint.query.sql.rewriting.wildcards import with_named_wildcards
from needlepoint.query.sql.rewriting.zeros import without_signs

JOIN = "SELECT * FROM a LEFT JOIN b ON a.id = b.id AND "


@pytest.mark.parametrize(
    ("condition", "written"),
    [
        ("1 = b.id", "b.id = 1"),
        ("-1 < b.id", "b.id > -1"),
        ("(1 = b.id OR 'x' >= b.s)", "(b.id = 1 OR b.s <= 'x')"),
        ("NOT 1 <> b.id WHERE TRUE", "NOT b.id <> 1 WHERE TRUE"),
        ("CAST('1' AS BIGINT) = b.id", "b.id = CAST('1' AS BIGINT)"),
        ("'1'::BIGINT <= b.id", "b.id >= '1'::BIGINT"),
        ("$p = b.id + 1", "b.id + 1 = $p"),
        ("now() > LEFT(b.s, 2) LEFT JOIN c ON TRUE", "LEFT(b.s, 2) < now() LEFT JOIN c ON TRUE"),
        ("1 BETWEEN b.x AND b.y + 1 AND a.z", "(b.x <= 1 AND b.y + 1 >= 1) AND a.z"),
        ("2 = CASE WHEN b.x = 1 THEN 2 END OR a.z", "CASE WHEN b.x = 1 THEN 2 END = 2 OR a.z"),
        ("CASE WHEN 1 = b.x THEN TRUE END", "CASE WHEN b.x = 1 THEN TRUE END"),
        ('1 = "b"."on"', '"b"."on" = 1'),
    ],
)
def test_the_constant_is_last(condition: str, written: str) -> None:
    assert with_constants_last(JOIN + condition) == JOIN + written


@pytest.mark.parametrize(
    "condition",
    [
        "b.id = 1",
        "1 = 1",
        "b.id BETWEEN 1 AND 3 = b.x",
        "1 = ANY (b.list)",
        "1 IN (b.id, 2)",
        "f(x => b.id)",
        "b.j -> 'x' = 'y'",
        "1 = (SELECT max(id) FROM c)",
        "b.s = 'it''s 1 = b.id'",
        "b.id NOT BETWEEN 1 AND 2",
        "1 = b.id IS TRUE",
    ],
)
def test_other_conditions_stay(condition: str) -> None:
    assert with_constants_last(JOIN + condition) == JOIN + condition


def test_items_of_select_stay() -> None:
    query = "SELECT 1 = b.id AS x, a AND 1 = b.id y FROM a JOIN b USING (id) ORDER BY 1 = b.id DESC"
    assert with_constants_last(query) == query


def test_names_of_literals_are_hidden_in_conditions_only() -> None:
    inner = "FROM (SELECT 4 AS four, DATE '2024-01-01' day, count(*) AS n, id FROM t) AS x"
    assert with_constants_last(f"SELECT four, day {inner} WHERE four = x.id AND x.day <= n AND n = id") == (
        f"SELECT four, day {inner} WHERE x.id = nullif(four, NULL) AND n >= nullif(x.day, NULL) AND n = id"
    )


def test_parameters_that_are_a_table_stay() -> None:
    query = "WITH p AS (SELECT DATE '2024-01-01' AS start) SELECT * FROM t, p WHERE t.day >= p.start"
    assert with_constants_last(query) == query


def test_correlated_subqueries_keep_their_columns() -> None:
    inner = "(SELECT max(y.n) FROM y WHERE y.four = x.id)"
    query = f"SELECT {inner} FROM (SELECT 4 AS four, id FROM t) AS x WHERE x.id < coalesce({inner}, 0)"
    assert with_constants_last(query) == query


@pytest.mark.parametrize(
    ("condition", "written"),
    [
        ("a IS NOT DISTINCT FROM b AND c", "(a IS NOT DISTINCT FROM b) AND c"),
        ("NOT a + 1 IS DISTINCT FROM f(b, 2) OR c", "NOT (a + 1 IS DISTINCT FROM f(b, 2)) OR c"),
        ("CASE WHEN a THEN 1 END IS DISTINCT FROM 1 AND c", "(CASE WHEN a THEN 1 END IS DISTINCT FROM 1) AND c"),
        (
            "a IS DISTINCT FROM TIMESTAMP WITH TIME ZONE '2024-01-01' AND c",
            "(a IS DISTINCT FROM TIMESTAMP WITH TIME ZONE '2024-01-01') AND c",
        ),
        ("a IS DISTINCT FROM b + INTERVAL '1' DAY OR c", "(a IS DISTINCT FROM b + INTERVAL '1' DAY) OR c"),
        ("a IS NOT NULL AND b", "a IS NOT NULL AND b"),
    ],
)
def test_parentheses_of_null_safe_comparisons(condition: str, written: str) -> None:
    assert with_parentheses(f"SELECT * FROM t WHERE {condition}") == f"SELECT * FROM t WHERE {written}"


def test_null_safe_comparisons_are_spelled_out() -> None:
    query = "SELECT DISTINCT a FROM t JOIN u ON (t.x IS NOT DISTINCT FROM u.x) AND t.y IS DISTINCT FROM u.y"
    assert spelled_out(query) == (
        "SELECT DISTINCT a FROM t JOIN u "
        "ON (coalesce(t.x = u.x, t.x IS NULL AND u.x IS NULL)) AND t.y IS DISTINCT FROM u.y"
    )


def test_null_safe_comparisons_with_constants_stay() -> None:
    query = "SELECT * FROM t JOIN u ON t.x IS NOT DISTINCT FROM u.x WHERE t.y IS NOT DISTINCT FROM 5"
    written = query.replace("t.x IS NOT DISTINCT FROM u.x", "make_array(t.x) = make_array(u.x)")
    assert as_lists(query) == written


def test_conditions_as_truths() -> None:
    query = (
        "WITH w AS (SELECT 1 FROM t WHERE a = 1) SELECT count(*) FILTER (WHERE b) FROM w HAVING count(*) > 1 LIMIT 2"
    )
    assert as_truths(query) == (
        "WITH w AS (SELECT 1 FROM t WHERE (a = 1) IS TRUE) SELECT count(*) FILTER (WHERE b) FROM w "
        "HAVING (count(*) > 1) IS TRUE LIMIT 2"
    )


@pytest.mark.covering
@pytest.mark.parametrize(
    "rewrite",
    [with_constants_last, with_parentheses, as_lists, spelled_out, as_truths, with_separate_lists, with_hidden_casts,
     with_hidden_constants, with_named_wildcards, as_count],
)  # fmt: skip
@pytest.mark.parametrize(
    "query",
    ["", "(", ")", "SELECT JOIN ON =", "SELECT SELECT WHERE", "WHERE 1 =", "NOT IN (", "IN ()", "IS NOT DISTINCT FROM",
     "CAST(a AS INT", "a::", "::int", ")::int", "SELECT * FROM USING (", "SELECT * FROM a USING (",
     "SELECT NOT EXISTS (", "SELECT EXISTS ()"],
)  # fmt: skip
def test_what_is_not_sql_stays_or_fails_later(rewrite: object, query: str) -> None:
    assert isinstance(rewrite(query), str)  # type: ignore[operator]


@pytest.mark.parametrize(
    "part", ["(1 = a ", "a IS DISTINCT FROM (", "1 BETWEEN a AND ", "coalesce(-0.0, ", "x NOT IN (",
             "CAST(a AS INT) = (", "(a)::int + ", "a IN (SELECT * FROM t JOIN u USING (k) WHERE "]
)  # fmt: skip
def test_hostile_queries_take_no_time(part: str) -> None:
    """If each operand were searched to the end of the query, this would take an hour."""
    query = "SELECT * FROM t JOIN u ON " + part * cases(5_000, 2_000)
    for rewrite in (with_constants_last, with_parentheses, spelled_out, without_signs, with_separate_lists,
                    with_hidden_casts, with_hidden_constants, with_named_wildcards):  # fmt: skip
        assert isinstance(rewrite(query), str)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT EXISTS (SELECT 1 FROM t) FROM u",
        "SELECT EXISTS (SELECT 1 FROM t) OR TRUE",
        "SELECT EXISTS (SELECT 1 FROM t), 1",
        "SELECT EXISTS (SELECT 1 FROM t) AS a FROM u WHERE x",
        "SELECT EXISTS (SELECT 1 FROM t) UNION SELECT TRUE",
        "SELECT EXISTS (SELECT 1 FROM t) x",
        "SELECT EXISTS (SELECT 1 FROM t",
        "SELECT EXISTS (t)",
        "SELECT EXISTS",
        "SELECT EXISTS (SELECT 1) AS 'a",
        "SELECT exists FROM t",
    ],
)
def test_other_queries_with_exists_stay(query: str) -> None:
    assert as_count(query) == query


def test_exists_as_a_count() -> None:
    assert as_count('select not exists(WITH a AS (SELECT 1) SELECT * FROM a LIMIT 3) as "A b" ;') == (
        'SELECT count(*) = 0 AS "A b" FROM (SELECT 1 FROM (WITH a AS (SELECT 1) SELECT * FROM a LIMIT 3) LIMIT 1)'
    )


def test_very_many_casts_of_one_value() -> None:
    """A hostile query may have thousands; no more than a hundred are looked at."""
    for rewrite, cast, call in (
        (with_hidden_casts, "::BIGINT", "nullif("),
        (with_zones, "::TIMESTAMP WITH TIME ZONE", "arrow_cast("),
    ):
        few, many = "SELECT a" + 3 * cast + " FROM t", "SELECT a" + 5000 * cast + " FROM t"
        assert rewrite(few).count(call) == 3
        assert 90 <= rewrite(many).count(call) <= 110
