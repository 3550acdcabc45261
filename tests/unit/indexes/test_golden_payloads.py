"""Payloads stay in lakes and in files: every version reads those of earlier versions. The golden files are never
regenerated; the columns they were built from are defined here.
"""

from __future__ import annotations

import decimal
import math
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.indexes.asking import Held, numbers

from needlepoint.indexes.bloom.kind import BloomKind
from needlepoint.indexes.distinct.kind import DistinctKind
from needlepoint.indexes.distinct.search import DistinctIndex
from needlepoint.indexes.values import is_nan, stored_values
from needlepoint.predicate import Compare, IsNull
from needlepoint.tables.schemas import ordinal

GOLDEN = Path(__file__).parents[2] / "golden"
ROWS = 60
COLUMNS = {
    "text": pa.array(
        [None if n % 7 == 0 else ["", "foo", "bar", "with\nnewline", "Zoë"][n * n % 5] for n in range(ROWS)]
    ),
    "number": pa.array([n * n % 11 - 5 for n in range(ROWS)], pa.int32()),
    "float": pa.array([[0.0, -0.0, math.nan, 1.5, None][n // 9 % 5] for n in range(ROWS)]),
    "wide": pa.array([decimal.Decimal(n // 10) * 10**20 for n in range(ROWS)], pa.decimal128(38, 2)),
}


@pytest.mark.parametrize("version", ["distinct", "distinct2"])
@pytest.mark.parametrize("name", COLUMNS)
def test_distinct_values(name: str, version: str) -> None:
    """Pages of six rows."""
    column = COLUMNS[name]
    stored = Held((GOLDEN / f"{version}-{name}.npfc").read_bytes())
    index = DistinctKind().open(stored, [pa.field(name, column.type)], {})
    for value in {ordinal(each) for each in column}:
        if value is None or value == value:
            condition = IsNull(name) if value is None else Compare(name, "=", value)
            pages = {row // 6 for row, each in enumerate(column) if ordinal(each) == value}
            rows = {6 * page + row for page in pages for row in range(6)}
            assert numbers(index.find([condition], 1.0).rows, ROWS) == rows
    above = numbers(index.find([Compare(name, ">", b"\xff" if name == "text" else 2**100)], 1.0).rows, ROWS)
    assert above == (set(range(18, 30)) if name == "float" else set())  # NaN


@pytest.mark.parametrize("name", COLUMNS)
def test_counts_of_distinct_values(name: str) -> None:
    """Version 1 has none."""
    fields = [pa.field(name, COLUMNS[name].type)]
    old = DistinctKind().open(Held((GOLDEN / f"distinct-{name}.npfc").read_bytes()), fields, {})
    index = DistinctKind().open(Held((GOLDEN / f"distinct2-{name}.npfc").read_bytes()), fields, {})
    assert isinstance(old, DistinctIndex)
    assert isinstance(index, DistinctIndex)
    assert old.row_counts is None
    assert index.row_counts is not None
    assert index.values.equals(old.values)
    stored = stored_values(COLUMNS[name])
    counts = [stored.to_pylist().count(value) for value in index.values.to_pylist()]
    nan = int(is_nan(stored).sum())
    assert index.row_counts.tolist() == [*counts, nan, stored.null_count]


def test_a_list_for_datafusion() -> None:
    stored = Held((GOLDEN / "distinct-datafusion.idx1").read_bytes())
    assert stored.data.startswith(b"IDX1\x07" + bytes(7) + b"bar\nfoo")
    index = DistinctKind().open(stored, [pa.field("text", pa.string())], {"compat": "datafusion"})
    assert str(index.find([Compare("text", "=", b"bar")], 1.0).rows) == "2-4"


def test_filters() -> None:
    """Row groups of twenty rows."""
    names = ("number", "text")
    stored = Held((GOLDEN / "bloom.npfc").read_bytes())
    index = BloomKind().open(stored, [pa.field(name, COLUMNS[name].type) for name in names], {})
    for row in range(ROWS):
        values = {name: ordinal(COLUMNS[name][row]) for name in names}
        conditions = [Compare(name, "=", value) for name, value in values.items() if value is not None]
        assert row in numbers(index.find(conditions, 1.0).rows, ROWS)
    assert not numbers(index.find([Compare("number", "=", 77)], 1.0).rows, ROWS)
    assert not numbers(index.find([Compare("text", "=", b"nowhere")], 1.0).rows, ROWS)
