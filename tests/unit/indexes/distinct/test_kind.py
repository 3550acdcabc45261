"""For every column type, the pages found contain all rows for which the conditions are TRUE."""

from __future__ import annotations

import datetime
import decimal
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from tests.cases import cases
from tests.property.kinds import BY_NAME, Kind
from tests.unit.indexes.asking import (
    INDEXED,
    OPERATORS,
    Held,
    any_kind,
    built,
    check_damaged_payloads,
    columns_of,
    edges,
    numbers,
    questions,
    source_of,
    true_rows,
)

from needlepoint.errors import NotIndexable, UsageError
from needlepoint.indexes.base import IndexPayload
from needlepoint.indexes.distinct import build
from needlepoint.indexes.distinct.kind import DistinctKind
from needlepoint.indexes.distinct.search import DistinctIndex
from needlepoint.predicate import (
    And,
    Between,
    Compare,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Like,
    Not,
    Or,
    StartsWith,
    TextMatch,
)
from needlepoint.stores.base import IndexDamaged
from needlepoint.tables.schemas import ordinal

KIND = DistinctKind()


@pytest.mark.parametrize("kind", INDEXED, ids=repr)
@settings(deadline=None, max_examples=cases(12, 4))
@given(data=st.data())
def test_every_row_that_matches_is_found(kind: Kind, data: DataObject) -> None:
    rows = data.draw(st.integers(0, 40))
    values = data.draw(columns_of(kind, rows))
    column = kind.array(values)
    index = built(KIND, source_of({"c": column}, data.draw(edges(rows)), batch_rows=data.draw(st.integers(1, 50))))
    for _ in range(4):
        asked = data.draw(st.lists(questions(kind, values), min_size=1, max_size=3))
        found = numbers(index.find([each.condition for each in asked], 1.0).rows, rows)
        assert found >= true_rows({"c": column}, " AND ".join(f"({each.sql})" for each in asked)), asked


MOMENTS = [datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=n) for n in range(9)]
OTHERS: dict[str, pa.Array] = {
    "float16": pa.array(np.array([-0.0, 0.0, 1.5, np.nan, np.inf], np.float16)),
    "decimal32": pa.array([decimal.Decimal("-1.25"), None, decimal.Decimal("99.99")], pa.decimal32(5, 2)),
    "decimal64": pa.array([decimal.Decimal("-1.25"), None, decimal.Decimal("99.99")], pa.decimal64(12, 2)),
    "decimal256": pa.array([decimal.Decimal(n) * 10**60 for n in (-3, 0, 7)], pa.decimal256(76, 2)),
    "decimal256 short": pa.array([decimal.Decimal(n) for n in (-3, 0, 7)], pa.decimal256(10, 2)),
    "date64": pa.array([moment.date() for moment in MOMENTS], pa.date64()),
    "time32": pa.array([moment.time() for moment in MOMENTS], pa.time32("s")),
    "duration": pa.array([-5, None, 7], pa.duration("ms")),
    "seconds": pa.array(MOMENTS, pa.timestamp("s")),
    "large_string": pa.array(["b", None, "", "a"], pa.large_string()),
    "string_view": pa.array(["a string longer than twelve", None, ""], pa.string_view()),
    "large_binary": pa.array([b"\xff", None, b""], pa.large_binary()),
    "sliced": pa.array([decimal.Decimal(n) for n in range(9)], pa.decimal128(38, 2)).slice(3, 4),
    "uint64": pa.array([0, 2**64 - 1, None, 2**63], pa.uint64()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_each_value_of_other_types_is_on_its_page(name: str) -> None:
    column = OTHERS[name]
    index = built(KIND, source_of({"c": column}, list(range(len(column) + 1)), batch_rows=2))
    for value in filter(lambda value: value is not None and value == value, map(ordinal, column)):
        same = {row for row, other in enumerate(column) if ordinal(other) == value}
        assert value is not None
        assert numbers(index.find([Compare("c", "=", value)], 1.0).rows, len(column)) == same
        above = {row for row, other in enumerate(column) if (number := ordinal(other)) is not None and number > value}  # type: ignore[operator]
        assert numbers(index.find([Compare("c", ">", value)], 1.0).rows, len(column)) >= above
    assert numbers(index.find([IsNull("c")], 1.0).rows, len(column)) == {
        row for row, other in enumerate(column) if not other.is_valid
    }


def fruit() -> DistinctIndex:
    """Pages of two rows."""
    column = pa.array(["apple", "apple", "banana", None, "cherry", "apple", "", "with\nnewline"])
    index = built(KIND, source_of({"c": column}, [0, 2, 4, 6, 8]))
    assert isinstance(index, DistinctIndex)
    return index


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([Compare("c", "=", b"apple")], "0-2, 4-6"),
        ([Compare("c", "=", b"zebra")], ""),
        ([Compare("c", "=", b"")], "6-8"),
        ([Compare("c", "=", b"with\nnewline")], "6-8"),
        ([Not(Compare("c", "=", b"apple"))], "2-8"),
        ([Compare("c", "<>", b"apple"), Compare("c", "<>", b"cherry")], "2-4, 6-8"),
        ([IsNull("c")], "2-4"),
        ([In("c", (b"banana", b"zebra"))], "2-4"),
        ([In("c", ())], ""),
        ([Not(In("c", (b"banana", b"apple")))], "4-8"),
        ([StartsWith("c", b"b")], "2-4"),
        ([Not(StartsWith("c", b"a"))], "2-8"),
        ([Between("c", b"b", b"c")], "2-4"),
        ([Not(Between("c", b"a", b"b"))], "2-8"),
        ([Like("c", ("an", "na"))], "2-4"),
        ([Like("c", ("CHERRY",), fold=True)], "4-6"),
        ([Like("c", ("h", "e"), starts=True)], ""),
        ([Like("c", ("with", "line"), starts=True, ends=True)], "6-8"),
        ([Compare("c", ">=", b"b"), Compare("c", "<", b"c")], "2-4"),
        ([Compare("c", "=", b"apple"), IsNull("c")], ""),
    ],
)
def test_pages_of_values(conditions: list[Any], expected: str) -> None:
    assert str(fruit().find(conditions, 1.0).rows) == expected


@pytest.mark.parametrize(
    "condition",
    [
        Compare("c", "=", 5),
        Not(Like("c", ("a",))),
        TextMatch("c", "apple"),
        Like("c", ("İ",), fold=True),
        In("c", (b"a", 5)),
        Compare("c", ">=", b""),
    ],
)
def test_what_it_cannot_say(condition: Any) -> None:
    assert fruit().find([condition], 1.0).rows is None or condition == Compare("c", ">=", b"")
    assert str(fruit().find([condition, Compare("c", "=", b"banana")], 1.0).rows) == "2-4"


def test_nan_and_zeros() -> None:
    column = pa.array([0.0, -0.0, 1.0, math.nan, None])
    index = built(KIND, source_of({"c": column}, [0, 1, 2, 3, 4, 5]))

    def found(condition: Any) -> set[int]:
        return numbers(index.find([condition], 1.0).rows, 5)

    assert found(Compare("c", "=", 0.0)) == found(In("c", (-0.0,))) == {0, 1}
    assert found(Compare("c", "=", 1)) == {2}
    assert found(Compare("c", ">", 5.0)) == {3}
    assert found(Compare("c", "<", -5.0)) == {3}
    assert found(Compare("c", "<>", 1.0)) == {0, 1, 3}
    assert found(Between("c", -1.0, 0.5)) == {0, 1}
    assert found(Not(In("c", (0.0, 1.0)))) == {0, 1, 3}  # DataFusion's NOT IN distinguishes the zeros
    assert found(Compare("c", "<", 0.0)) == {0, 1, 3}
    assert found(Compare("c", "=", math.nan)) == {0, 1, 2, 3, 4}
    assert found(Compare("c", "=", 2**60 + 1)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("value", [2**70, -(2**70)])
@pytest.mark.parametrize("type", [pa.int64(), pa.uint64(), pa.decimal128(38, 0)])
def test_literals_beyond_the_type(type: pa.DataType, value: int) -> None:
    index = built(KIND, source_of({"c": pa.array([1, 2], type)}))
    assert index.find([Compare("c", "=", value)], 1.0).rows is not None
    for operator in ("<", "<=") if value > 0 else (">", ">="):
        assert index.find([Compare("c", operator, value)], 1.0).rows is None
    assert index.find([In("c", (value,) * 100)], 1.0).rows is not None


def test_a_column_with_too_many_values_is_refused_with_the_figure() -> None:
    column = pa.array([f"value {n}" for n in range(50)])
    with pytest.raises(NotIndexable, match=r"column 'c' has 14 distinct values in its first 14 of 50 rows; 10 is"):
        KIND.build(source_of({"c": column}, options={"most_values": 10}))
    with pytest.raises(NotIndexable, match=r"bytes in its first .*most_bytes"):
        KIND.build(source_of({"c": column}, options={"most_bytes": 100}))
    assert KIND.build(source_of({"c": column}, options={"most_values": 50})).entries == 50


def test_pages_become_coarser_before_they_become_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MOST_PLACES", 100)
    values = [n % 30 for n in range(600)]
    index = built(KIND, source_of({"c": pa.array(values)}, list(range(0, 601, 5))))
    assert isinstance(index, DistinctIndex)
    assert len(index.pages) <= 100
    for operator in OPERATORS:
        found = numbers(index.find([Compare("c", operator, 17)], 1.0).rows, 600)
        assert found >= true_rows({"c": pa.array(values)}, f"c {operator} 17")


def test_rows_that_were_not_read_are_noticed() -> None:
    with pytest.raises(NotIndexable, match="3 rows were read of a file with 5"):
        KIND.build(source_of({"c": pa.array([1, 2, 3])}, [0, 2, 5]))


def test_check() -> None:
    text, number, nested = pa.field("s", pa.string()), pa.field("n", pa.int64()), pa.field("l", pa.list_(pa.int64()))
    KIND.check("t", [text], {"compat": "datafusion", "most_values": 5})
    for fields, options, error, message in [
        ([nested], {}, NotIndexable, "column 'l' of table 't' is list"),
        ([text, number], {}, UsageError, "one column, not 2"),
        ([text], {"most_value": 5}, UsageError, "no option 'most_value'"),
        ([text], {"most_values": "5"}, UsageError, "most_values='5'"),
        ([text], {"most_bytes": 0}, UsageError, "most_bytes=0"),
        ([text], {"compat": "duckdb"}, UsageError, "compat='duckdb'"),
        ([number], {"compat": "datafusion"}, NotIndexable, "holds strings"),
    ]:
        with pytest.raises(error, match=message):
            KIND.check("t", fields, options)


@settings(deadline=None, max_examples=cases(100))
@given(kind=any_kind(), data=st.data())
def test_damage_is_noticed_or_does_not_matter(kind: Kind, data: DataObject) -> None:
    values = data.draw(columns_of(kind, 20))
    check_damaged_payloads(KIND, source_of({"c": kind.array(values)}, [0, 3, 9, 20]), kind, values, data)


def test_a_payload_that_would_become_huge_is_not_unpacked() -> None:
    payload = KIND.build(source_of({"c": pa.array([1, 2])})).payload
    bomb = payload[:9] + (1 << 30).to_bytes(8, "little") + payload[17:]
    with pytest.raises(IndexDamaged, match="would become"):
        KIND.open(Held(bomb), [pa.field("c", pa.int64())], {})


def test_a_payload_of_another_kind_is_damage() -> None:
    kind = BY_NAME["int64"]
    payload: IndexPayload = KIND.build(source_of({"c": kind.array([1, 2])}))
    assert payload.entries == 2
    for data in (b"", b"IDX1", b"NPFC", payload.payload[:-1]):
        with pytest.raises(IndexDamaged):
            KIND.open(Held(data), [pa.field("c", pa.int64())], {})


@pytest.mark.parametrize("counts", [[3, 1, 0, 1], [2, 2, 0], [2, 2, 1, 1], [5, 0, 0, 0], [-1, 4, 0, 2], [2, 0, 0, 3]])
def test_wrong_counts_are_damage(counts: list[int]) -> None:
    index = built(KIND, source_of({"c": pa.array([1, 1, 2, 2, None])}))
    assert isinstance(index, DistinctIndex)
    assert index.row_counts is not None
    assert index.row_counts.tolist() == [2, 2, 0, 1]
    wrong = replace(index, row_counts=np.array(counts)).to_bytes()
    if counts == [3, 1, 0, 1]:
        DistinctIndex.from_bytes(wrong, text=False)  # it adds up: only a checksum notices it
    else:
        with pytest.raises(IndexDamaged):
            DistinctIndex.from_bytes(wrong, text=False)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (Compare("c", "=", b"apple"), 3),
        (Compare("c", "<>", b"apple"), 4),
        (In("c", (b"apple", b"zebra", b"banana")), 4),
        (Between("c", b"b", b"d"), 2),
        (IsNull("c"), 1),
        (IsNotNull("c"), 7),
        (Or((IsNull("c"), Compare("c", "<", b"b"))), 5),
        (And((IsNotNull("c"), Compare("c", ">=", b"b"))), 3),
        (Constant(True), 8),
        (Constant(False), 0),
        (Not(Compare("c", "=", b"apple")), None),
        (StartsWith("c", b"a"), None),
        (Like("c", ("an",)), None),
        (Compare("c", "=", 5), None),
        (Or((Compare("c", "=", 5), IsNull("c"))), None),
    ],
)
def test_exact_counts(condition: Any, rows: int | None) -> None:
    index = fruit()
    chosen = index.exactly(condition)
    assert index.row_counts is not None
    assert (None if chosen is None else int(index.row_counts[chosen].sum())) == rows


def test_no_exact_counts_of_floats() -> None:
    index = built(KIND, source_of({"c": pa.array([0.0, -0.0, math.nan])}))
    assert isinstance(index, DistinctIndex)
    assert index.exactly(Compare("c", "=", 0.0)) is None
