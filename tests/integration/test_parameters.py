"""Query parameters: accepted values, and errors for the rest."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import write

import needlepoint
from needlepoint import Lake
from needlepoint.errors import SqlError

QUERY = "SELECT id FROM item WHERE id = $a"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    top = 2**63 - 1
    rows = {
        "id": pa.array([*range(1000), top], pa.int64()),
        "wide": pa.array([*range(1000), 2**64 - 1], pa.uint64()),
        "price": pa.array([*map(float, range(1000)), 2.0**70], pa.float64()),
        "at": pa.array([number * 10**9 for number in range(1001)], pa.timestamp("us", "Europe/Berlin")),
    }
    write(pa.table(rows), tmp_path / "data" / "item" / "a.parquet")
    with needlepoint.open(tmp_path / "lake") as opened:
        opened.create_table("item", tmp_path / "data" / "item")
        opened.create_index("item", "id")
        yield opened


@pytest.mark.parametrize(
    ("condition", "value", "count"),
    [
        ("id = $a", 2**63, 0),
        ("id < $a", 2**63, 1001),
        ("id > $a", -(2**70), 1001),
        ("id <> $a", 2**70, 1001),
        ("id IN (1, $a)", 2**70, 1),
        ("wide = $a", 2**64 - 1, 1),
        ("wide < $a", 2**64, 1001),
        ("price = $a", 2**70, 1),
        ("price < $a", 2**70, 1000),
        ("id < $a", 10**37, 1001),
    ],
)
def test_an_integer_beyond_64_bits_is_compared_as_what_it_is(
    lake: Lake, condition: str, value: int, count: int
) -> None:
    query = f"SELECT count(*) AS n FROM item WHERE {condition}"
    assert lake.sql(query, {"a": value}).rows() == [{"n": count}]
    lake.explain(query, {"a": value})


def test_get_with_an_integer_beyond_its_column_finds_nothing(lake: Lake) -> None:
    assert lake.table("item").get(id=2**63).rows() == []
    assert lake.table("item").get(id=[2**70, 7, -(2**70)], columns=["id"]).rows() == [{"id": 7}]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ([5], ["parameters are a list", '{"name": value}']),
        ((5,), ["parameters are a tuple"]),
        ("a", ["parameters are a str"]),
        (5, ["parameters are an int"]),
        ({1: 5}, ["the name of a parameter is 1", "string"]),
        ({"$a": 5}, ["'$a'", "'a'"]),
        ({"b": 5}, ["parameter $a has no value"]),
        ({}, ["parameter $a has no value"]),
        (None, ["parameter $a has no value"]),
        ({"a": object()}, ["parameter $a is an object", "no SQL type"]),
        ({"a": {"b": None}}, ["parameter $a is a dict", "no SQL type"]),
        ({"a": 1j}, ["parameter $a is a complex"]),
        ({"a": 10**80}, ["parameter $a is an int", "76 digits"]),
        ({"a": decimal.Decimal("NaN")}, ["parameter $a is a Decimal"]),
        ({"a": "\ud800"}, ["parameter $a is a str"]),
        ({"a": True}, ["Int64 = Boolean"]),
    ],
)
def test_a_parameter_that_cannot_be_used_is_told_plainly(lake: Lake, parameters: Any, words: list[str]) -> None:
    for ask in (lake.sql, lake.explain):
        with pytest.raises(SqlError) as caught:
            ask(QUERY, parameters)
        for word in words:
            assert word in str(caught.value)
        assert "caused by" not in str(caught.value)


@pytest.mark.parametrize("query", [5, None, b"SELECT 1", "SELECT '\ud800'"])
def test_a_query_that_is_no_text(lake: Lake, query: Any) -> None:
    for ask in (lake.sql, lake.explain):
        with pytest.raises(SqlError, match="query"):
            ask(query)


def test_a_question_mark_is_told_how_to_be_a_parameter(lake: Lake) -> None:
    with pytest.raises(SqlError, match=r"\$name"):
        lake.sql("SELECT id FROM item WHERE id = ?")


def test_a_list_is_compared_with_any(lake: Lake) -> None:
    with pytest.raises(SqlError, match=r"a parameter is a list, .* Write column = any\(\$name\)"):
        lake.sql("SELECT id FROM item WHERE id IN ($ids)", {"ids": [5, 7]})
    found = lake.sql("SELECT id FROM item WHERE id = any($ids)", {"ids": [5, 7]}).rows()
    assert sorted(row["id"] for row in found) == [5, 7]


def test_a_view_has_no_parameters(lake: Lake) -> None:
    with pytest.raises(SqlError, match="parameter \\$a has no value"):
        lake.sql("CREATE VIEW v AS SELECT id FROM item WHERE id = $a")


def test_signs_that_look_like_parameters_are_none(lake: Lake) -> None:
    assert lake.sql("SELECT '$a ? :b' AS t, 1::int AS n").rows() == [{"t": "$a ? :b", "n": 1}]


def test_bins_of_a_zoned_column_with_an_origin_in_a_zone(lake: Lake) -> None:
    """DataFusion writes the zone of such a literal as +00, which Python does not accept."""
    bins = "date_bin(interval '15 minutes', at, timestamp '1970-01-01T00:00:00Z')"
    until = "arrow_cast('1970-01-01T00:15:00Z', 'Timestamp(Microsecond, Some(\"Europe/Berlin\"))')"
    query = f"SELECT id FROM item WHERE {bins} < {until}"
    assert lake.sql(query).rows() == [{"id": 0}]


@pytest.mark.parametrize("zone", ["+00", "-0330", "+01:00", "UTC", "Europe/Berlin"])
def test_every_zone_of_an_answer_can_be_shown(lake: Lake, zone: str) -> None:
    query = f"SELECT arrow_cast(at, 'Timestamp(Microsecond, Some(\"{zone}\"))') AS t FROM item WHERE id = 7"
    (row,) = lake.sql(query).rows()
    assert row["t"].timestamp() == 7000.0
