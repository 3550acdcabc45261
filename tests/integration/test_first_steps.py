"""What a new user tries, and what is said when it is not the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.test_cli import lake, needle, refused

import needlepoint

__all__ = ["lake"]  # a fixture


# EXPLAIN


def test_explain_in_sql_gives_our_report(lake: Path) -> None:
    query = "SELECT title FROM item WHERE id = 1234"
    shown = needle("sql", f"EXPLAIN {query}", lake=lake).stdout
    assert shown == needle("explain", query, lake=lake).stdout
    assert "index item_id_key (key): used" in shown
    ran = needle("sql", f"EXPLAIN ANALYZE {query};", lake=lake).stdout
    assert "index item_id_key (key): used" in ran and "time: plan " in ran
    assert needle("explain", f"EXPLAIN {query}", lake=lake).stdout == shown


def test_explain_in_sql_is_rows_in_python_and_other_formats(lake: Path) -> None:
    query = "EXPLAIN SELECT title FROM item WHERE id = $a"
    with needlepoint.open(lake) as opened:
        result = opened.sql(query, {"a": 1234})
        assert result.to_arrow().column_names == ["plan"]
        assert "\n".join(row["plan"] for row in result.rows()) == str(result.report)
        assert not result.report.executed
        assert opened.sql(query.replace("EXPLAIN", "EXPLAIN ANALYZE"), {"a": 1234}).report.executed
    rows = json.loads(needle("sql", "--format", "json", "EXPLAIN SELECT 1", lake=lake).stdout)
    assert rows == [{"plan": "no table is read"}]


def test_explain_verbose_is_the_engine_s_own(lake: Path) -> None:
    assert "physical_plan" in needle("sql", "EXPLAIN VERBOSE SELECT title FROM item", lake=lake).stdout


# Tables by path, and SQL that writes


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM 'x/y/*.parquet'", ["'x/y/*.parquet' is a path", "`needle create-table NAME x/y`"]),
        ("SELECT * FROM 'x/y/year=*/*.parquet'", ["`needle create-table NAME x/y`"]),
        ('SELECT * FROM "x/a.parquet"', ["`needle create-table NAME x`"]),
        ("SELECT * FROM 'a b/c.parquet'", ["`needle create-table NAME 'a b'`"]),
        ("SELECT * FROM 's3://bucket/x/'", ["`needle create-table NAME s3://bucket/x`"]),
        ("SELECT * FROM 'feed.csv'", ["`needle ingest NAME feed.csv`"]),
        ("SELECT * FROM read_parquet('x/*.parquet')", ["`needle create-table NAME DIRECTORY`"]),
        ("SELECT * FROM main.item", ["unknown table 'main.item'", "write item"]),
        ("DELETE FROM item WHERE id = 5", ["`needle delete item --where CONDITION`"]),
        ("DROP TABLE item", ["`needle drop-table item`"]),
        ("INSERT INTO item VALUES (1)", ["`needle ingest item SOURCE`"]),
        ("UPDATE item SET id = 5", ["`needle delete item --where CONDITION`"]),
        ("SELECT 1; SELECT 2", ["several statements"]),
    ],
)
def test_sql_that_is_not_for_here_says_what_is(lake: Path, query: str, words: list[str]) -> None:
    refused(needle("sql", query, lake=lake), *words)
    refused(needle("explain", query, lake=lake), *words)
