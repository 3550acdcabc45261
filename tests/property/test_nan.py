"""Floats compared with NaN of either sign, zeros and infinities: pruning must not change the answer.

The order is DataFusion's: -NaN, -inf, ..., inf, NaN. The expected rows come from DataFusion itself, over the same
values in memory, where it cannot skip anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

import needlepoint
from needlepoint.lake import Lake

NAN = "CAST('NaN' AS DOUBLE)"
LITERALS = (NAN, f"-{NAN}", "-0.0", "0.0", "5", "5.5", "-7", "CAST('inf' AS DOUBLE)", "CAST('-inf' AS DOUBLE)")
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
KINDS = ("none", "key", "bloom", "distinct")
VALUES = [1.0, 2.0, 5.0, 5.5, 100.0, -7.0, 0.0, -0.0, float("inf"), -float("inf"), float("nan"), -float("nan"), None]


@pytest.fixture(scope="module", params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    root = tmp_path_factory.mktemp("nan")
    (root / "t").mkdir()
    for name, part in zip("abc", parts(), strict=True):
        pq.write_table(part, root / "t" / f"{name}.parquet", row_group_size=10, write_page_index=True)
    with needlepoint.open(root, refresh=60, access="pages") as opened:
        opened.create_table("t")
        if request.param != "none":
            opened.create_index("t", "f", kind=request.param)
        yield opened


def parts() -> list[pa.Table]:
    """Numbers and a NaN, numbers only, and some of everything."""
    lists = [[1.0, 2.0, float("nan")], [float(each) for each in range(30)], VALUES]
    starts = np.cumsum([0, *map(len, lists)]).tolist()
    return [
        pa.table({"i": range(start, start + len(each)), "f": pa.array(each, pa.float64())})
        for start, each in zip(starts, lists, strict=False)
    ]


@pytest.fixture(scope="module")
def plain() -> SessionContext:
    context = SessionContext()
    context.from_arrow(pa.concat_tables(parts()), "t")
    return context


def check(lake: Lake, plain: SessionContext, where: str) -> None:
    query = f"SELECT i FROM t WHERE {where}"
    expected = sorted(plain.sql(query).to_arrow_table().column("i").to_pylist())
    assert sorted(lake.sql(query).to_arrow().column("i").to_pylist()) == expected, where


@pytest.mark.covering
@pytest.mark.parametrize("operator", OPERATORS)
def test_one_comparison(lake: Lake, plain: SessionContext, operator: str) -> None:
    for literal in LITERALS:
        check(lake, plain, f"f {operator} {literal}")


def test_ranges(lake: Lake, plain: SessionContext) -> None:
    for low, high in product(LITERALS, repeat=2):
        check(lake, plain, f"f BETWEEN {low} AND {high}")


def test_lists_of_values(lake: Lake, plain: SessionContext) -> None:
    for pair in product(LITERALS, repeat=2):
        check(lake, plain, f"f IN ({', '.join(pair)})")


comparisons = st.builds("f {} {}".format, st.sampled_from(OPERATORS), st.sampled_from(LITERALS))
conditions = st.recursive(
    comparisons,
    lambda child: (
        st.builds("({} {} {})".format, child, st.sampled_from(["AND", "OR"]), child) | child.map("NOT ({})".format)
    ),
    max_leaves=6,
)


@settings(max_examples=cases(60, 6))
@given(where=conditions)
def test_several_comparisons(lake: Lake, plain: SessionContext, where: str) -> None:
    check(lake, plain, where)


def test_a_range_that_ends_in_nan_by_bounds(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"i": [0, 1, 2], "f": [1.0, 2.0, float("nan")]}), tmp_path / "t" / "a.parquet")
    with needlepoint.open(tmp_path) as lake:
        lake.create_table("t")
        assert lake.sql(f"SELECT i FROM t WHERE f BETWEEN 5 AND {NAN}").rows() == [{"i": 2}]
        lake.create_index("t", "f")
        assert len(lake.sql(f"SELECT i FROM t WHERE f > -{NAN}")) == 3
        assert lake.sql(f"SELECT i FROM t WHERE f >= {NAN}").rows() == [{"i": 2}]
