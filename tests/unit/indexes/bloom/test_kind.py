"""An existing row is never ruled out, whatever columns the conditions use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from tests.cases import cases
from tests.property.kinds import Kind
from tests.unit.indexes.asking import (
    INDEXED,
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
from needlepoint.indexes.bloom import search
from needlepoint.indexes.bloom.kind import BloomKind
from needlepoint.indexes.bloom.search import BloomIndex
from needlepoint.indexes.hashing import hash_integers
from needlepoint.predicate import Compare, In, IsNull, Not, StartsWith
from needlepoint.stores.base import IndexDamaged

KIND = BloomKind()


@pytest.mark.parametrize("kind", INDEXED, ids=repr)
@settings(deadline=None, max_examples=cases(8, 4))
@given(data=st.data())
def test_every_row_that_matches_is_found(kind: Kind, data: DataObject) -> None:
    rows = data.draw(st.integers(0, 40))
    kinds = {"c": kind}
    for name in data.draw(st.sampled_from([(), ("d",), ("d", "e")])):
        kinds[name] = data.draw(any_kind())
    values = {name: data.draw(columns_of(each, rows)) for name, each in kinds.items()}
    columns = {name: each.array(values[name]) for name, each in kinds.items()}
    memory = data.draw(st.sampled_from([1 << 30, 2000, 100]))
    source = source_of(columns, groups=data.draw(edges(rows)), batch_rows=data.draw(st.integers(1, 50)), memory=memory)
    index = built(KIND, source)
    for _ in range(3):
        asked = [data.draw(questions(each, values[name], name)) for name, each in kinds.items()]
        found = numbers(index.find([each.condition for each in asked], 1.0).rows, rows)
        assert found >= true_rows(columns, " AND ".join(f"({each.sql})" for each in asked)), asked


def test_columns_alone_and_together() -> None:
    """Row groups of a thousand rows; only one row group has both a and b."""
    a = np.repeat(np.arange(4), 1000) * 1000 + np.tile(np.arange(1000), 4)
    b = [f"b{n}" for n in a[::-1]]
    index = built(KIND, source_of({"a": pa.array(a), "b": pa.array(b)}, groups=[0, 1000, 2000, 3000, 4000]))
    row = 1234
    this, that = Compare("a", "=", int(a[row])), Compare("b", "=", b[row].encode())
    other = Compare("b", "=", b[row + 1].encode())
    assert str(index.find([this, that], 1.0).rows) == "1000-2000"
    assert index.find([this, other], 1.0).rows is not None
    assert not numbers(index.find([this, other], 1.0).rows, 4000)
    assert 1234 in numbers(index.find([this], 1.0).rows, 4000)
    assert index.find([In("a", (int(a[row]), 99_999)), In("b", (b[row].encode(), b"?"))], 1.0).rows is not None
    assert not numbers(index.find([In("a", (7, 8)), Compare("a", "=", 9)], 1.0).rows, 4000)
    assert "1 of 4 row groups" in index.find([this, that], 1.0).why


@pytest.mark.parametrize("wrong", [0.1, 0.01, 0.001])
def test_filters_are_as_wrong_as_they_may_be(wrong: float) -> None:
    groups = list(range(0, 100_001, 5000))
    column = pa.array(np.arange(100_000))
    index = built(KIND, source_of({"c": column}, groups=groups, options={"fpp": wrong}, batch_rows=65_536))
    assert isinstance(index, BloomIndex)
    absent = hash_integers(np.arange(100_000, 120_000))
    found = index._probe(index.counts[0], index.firsts[0], absent).mean(axis=1)
    assert 0.6 * wrong < found[0] < 1.5 * wrong  # the filter of the file
    assert 0.8 * wrong < found[1:].mean() < 1.25 * wrong


def test_a_filter_takes_ten_bits_a_value() -> None:
    column = pa.array(np.arange(100_000))
    payload = KIND.build(source_of({"c": column}, batch_rows=65_536)).payload
    assert len(payload) == pytest.approx(100_000 * 10.5 / 8, rel=0.02)
    few = KIND.build(source_of({"c": pa.array(np.arange(100_000) % 10)}, batch_rows=65_536))
    assert (len(few.payload) < 500, few.entries) == (True, 10)


def test_what_it_cannot_say() -> None:
    index = built(KIND, source_of({"c": pa.array(["a", None, "b"]), "f": pa.array([0.0, -0.0, math.nan])}))
    for condition in (
        IsNull("c"), Not(Compare("c", "=", b"z")), Compare("c", "<", b"z"), Compare("c", "<>", b"z"),
        Compare("c", "=", 5), StartsWith("c", b"z"), Compare("f", "=", math.nan), In("f", (5.0, math.nan)),
        Compare("x", "=", 5),
    ):  # fmt: skip
        assert index.find([condition], 1.0).rows is None
    assert index.find([Compare("f", "=", -0.0)], 1.0).rows is None
    assert not numbers(index.find([Compare("f", "=", 5)], 1.0).rows, 3)
    assert not numbers(index.find([In("c", ())], 1.0).rows, 3)


def test_zeros() -> None:
    for stored in (0.0, -0.0):
        index = built(KIND, source_of({"c": pa.array([stored, 7.0])}))
        for asked in (0.0, -0.0, 0):
            assert index.find([Compare("c", "=", asked)], 1.0).rows is None


def test_nulls_only() -> None:
    index = built(KIND, source_of({"c": pa.array([None, None, 1], pa.int64())}, groups=[0, 2, 3]))
    assert str(index.find([Compare("c", "=", 1)], 1.0).rows) == "2-3"


def test_of_many_combinations_the_columns_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_COMBINATIONS", 3)
    index = built(KIND, source_of({"a": pa.array([1, 2]), "b": pa.array([1, 2])}))
    assert not numbers(index.find([Compare("a", "=", 1), In("b", (2, 3, 4))], 1.0).rows, 2)
    assert index.find([Compare("a", "=", 1), In("b", (2, 3, 4, 5))], 1.0).rows is None


def test_long_lists() -> None:
    groups = list(range(0, 100_001, 100))
    index = built(KIND, source_of({"c": pa.array(np.arange(100_000))}, groups=groups, batch_rows=65_536))
    found = numbers(index.find([In("c", tuple(range(0, 100_000, 1000)))], 1.0).rows, 100_000)
    assert found >= set(range(0, 100_000, 1000))
    assert len(found) < 60_000


def test_check() -> None:
    text, nested = pa.field("s", pa.string()), pa.field("l", pa.list_(pa.int64()))
    KIND.check("t", [text, pa.field("n", pa.int64())], {"fpp": 0.05})
    cases: list[tuple[list[pa.Field], dict[str, Any], type[Exception], str]] = [
        ([text, nested], {}, NotIndexable, "column 'l' of table 't' is list"),
        ([], {}, UsageError, "1 to 16 columns, not 0"),
        ([text], {"ndv": 5}, UsageError, "no option 'ndv'"),
        ([text], {"fpp": 0}, UsageError, "fpp=0"),
        ([text], {"fpp": "x"}, UsageError, "fpp='x'"),
    ]
    for fields, options, error, message in cases:
        with pytest.raises(error, match=message):
            KIND.check("t", fields, options)


@settings(deadline=None, max_examples=cases(80, 8))
@given(kind=any_kind(), data=st.data())
def test_damage_is_noticed_or_does_not_matter(kind: Kind, data: DataObject) -> None:
    values = data.draw(columns_of(kind, 20))
    check_damaged_payloads(KIND, source_of({"c": kind.array(values)}, groups=[0, 9, 20]), kind, values, data)


def test_a_payload_of_other_columns_is_damage() -> None:
    payload = KIND.build(source_of({"a": pa.array([1]), "b": pa.array([1])})).payload
    for names in (["a"], ["b", "a"]):
        with pytest.raises(IndexDamaged, match="of the columns"):
            KIND.open(Held(payload), [pa.field(name, pa.int64()) for name in names], {})
    opened = KIND.open(Held(payload), [pa.field(name, pa.int64()) for name in ("a", "b")], {})
    assert isinstance(opened, BloomIndex)
    assert opened.memory > 0
