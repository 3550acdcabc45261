"""Answers of Needlepoint over tables in external formats, compared with the libraries of these formats."""

from __future__ import annotations

import datetime
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from needlepoint import Lake

WORDS = ("airy", "blue", "cow", "dairy", "east", "farm", "green", "hill")


def rows_of(first: int, count: int, *, seed: int = 0) -> pa.Table:
    """Shuffled ids from `first` on, one of three parts, a title of three words."""
    chance = random.Random(f"{seed} {first}")
    ids = list(range(first, first + count))
    chance.shuffle(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": [f"p{number % 3}" for number in ids],
            "title": [" ".join(chance.choices(WORDS, k=3)) for _ in ids],
            "price": [round(chance.random() * 100, 2) for _ in ids],
        }
    )


QUESTIONS = (
    "SELECT count(*) AS n, CAST(sum(id) AS BIGINT) AS s, min(title) AS t FROM {table}",
    "SELECT part, count(*) AS n, CAST(sum(id) AS BIGINT) AS s FROM {table} GROUP BY part",
    "SELECT * FROM {table} WHERE id = 7",
    "SELECT id, title FROM {table} WHERE id IN (3, 5, 1001, 2002, 99999)",
    "SELECT id, part FROM {table} WHERE part = 'p1' AND id < 40",
    "SELECT id FROM {table} WHERE title LIKE '%dairy cow%'",
    "SELECT id, part, price FROM {table} WHERE price > 90 AND part <> 'p2'",
)


def agree(lake: Lake, name: str, theirs: pa.Table, questions: Sequence[str] = QUESTIONS) -> None:
    """Every query answers as DuckDB does over the rows that the format's own library reads."""
    connection = duckdb.connect()
    connection.register("theirs", theirs)
    for question in questions:
        mine = lake.sql(question.format(table=name)).to_arrow()
        expected = connection.sql(question.format(table="theirs")).to_arrow_table()
        assert in_order(mine) == in_order(expected.select(mine.column_names)), question


def ask_while_it_changes(lake: Lake, overwrite: Callable[[int], object], generations: int) -> None:
    """Every version of table `t` has 100 ids, all of one generation; an answer that mixes two versions has not."""
    stop = threading.Event()

    def change() -> None:
        for number in range(1, generations + 1):
            overwrite(number)
        stop.set()

    writer = threading.Thread(target=change)
    writer.start()
    asked = 0
    while not stop.is_set() or asked < 5:
        found = lake.sql("SELECT count(*) AS n, min(generation) AS a, max(generation) AS b FROM t").rows()[0]
        assert found["n"] == 100 and found["a"] == found["b"]
        assert len(lake.sql("SELECT * FROM t WHERE id = 77").rows()) == 1
        asked += 1
        if asked % 5 == 0:
            lake.sync()
    writer.join()
    assert lake.sql("SELECT max(generation) AS b FROM t").rows() == [{"b": generations}]


def in_order(table: pa.Table) -> list[str]:
    """The rows as sorted text, the same however engines represent time zones and zeros."""
    return sorted(repr([(name, _shown(row[name])) for name in sorted(row)]) for row in table.to_pylist())


def _shown(value: object) -> object:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return value + 0.0 if isinstance(value, float) else value


def rows_in_utc(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in one order, with times as microseconds in UTC."""
    columns = [
        column.cast(pa.timestamp("us", column.type.tz)).cast(pa.timestamp("us"))
        if pa.types.is_timestamp(column.type)
        else column
        for column in table.columns
    ]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=repr)
