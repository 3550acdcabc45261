from __future__ import annotations

import time

import pytest

from needlepoint.errors import SqlError
from needlepoint.query.sql.statements import CreateView, Explain, ShowIndexes, parse


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM item WHERE id = 5", ["DELETE", "`needle delete item --where CONDITION`"]),
        ("-- old ones\ndelete from item", ["`needle delete item --where CONDITION`"]),
        ("/* a */ -- b\n DROP TABLE IF EXISTS item;", ["DROP TABLE", "`needle drop-table item`"]),
        ("INSERT INTO item VALUES (1)", ["`needle ingest item SOURCE`"]),
        ("INSERT OVERWRITE item SELECT 1", ["`needle ingest item SOURCE`"]),
        ("UPDATE item SET id = 5", ["`needle delete item", "`needle ingest item"]),
        ("MERGE INTO item USING b ON TRUE", ["`needle ingest item"]),
        ("TRUNCATE TABLE item", ["`needle delete item --where TRUE`"]),
        ("CREATE TABLE x AS SELECT 1", ["`needle create-table x DIRECTORY`"]),
        ("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION 'a'", ["`needle create-table x DIRECTORY`"]),
        ("CREATE OR REPLACE TABLE x (a INT)", ["`needle create-table TABLE DIRECTORY`"]),
        ("ALTER TABLE item ADD COLUMN x INT", ["columns of its files"]),
        ("COPY item TO 'x.parquet'", ["`needle sql --output FILE QUERY`"]),
        ("VACUUM", ["`needle sweep`"]),
        ("SET a = 1", ["docs/settings.md"]),
        ("EXPLAIN DELETE FROM item", ["`needle delete item"]),
        ("EXPLAIN DROP VIEW a", ["only a query can be explained"]),
        ("EXPLAIN EXPLAIN SELECT 1", ["only a query can be explained"]),
    ],
)
def test_what_sql_does_not_do_names_the_command_that_does(sql: str, words: list[str]) -> None:
    with pytest.raises(SqlError) as caught:
        parse(sql)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("explain select 1;", Explain("select 1", analyze=False)),
        ("/* why */ EXPLAIN\nANALYZE\nSELECT 1", Explain("SELECT 1", analyze=True)),
        ("-- all of them\nSHOW INDEXES", ShowIndexes()),
        ("/**/CREATE VIEW a AS SELECT 1 -- one", CreateView("a", "SELECT 1 -- one")),
        ("EXPLAIN VERBOSE SELECT 1", None),
        ("EXPLAIN FORMAT TREE SELECT 1", None),
        ("EXPLAIN ANALYZE VERBOSE SELECT 1", None),
        ("SELECT 'DELETE FROM item'", None),
        ("/* never ends", None),
        ("/*/ SHOW INDEXES */ SELECT 1", None),
        ("-- nothing else", None),
        ("", None),
    ],
)
def test_statements(sql: str, statement: object) -> None:
    assert parse(sql) == statement


def test_comments_take_no_time() -> None:
    started = time.perf_counter()
    assert parse("\n" * 200_000 + "--\n" * 200_000 + "SELECT 1") is None
    assert time.perf_counter() - started < 1.0
