"""ORDER BY with LIMIT over any type, with an index or bounds, NULLs, NaN and files that the index does not cover."""

from __future__ import annotations

import datetime
import math
import tempfile
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.lakes import write

import needlepoint
from needlepoint import Lake

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [-(2**63), -7, 0, 1, 2, 3, 2**63 - 1, *range(100, 200)]),
    "small": (pa.int16(), [*range(-40, 40)]),
    "unsigned": (pa.uint64(), [0, 1, 2**63, 2**64 - 1, *range(50, 90)]),
    "float": (pa.float64(), [-math.inf, math.inf, math.nan, 0.0, -0.0, 5e-324, -1.5, *(n / 8 for n in range(-40, 40))]),
    "float32": (pa.float32(), [math.nan, math.inf, *(n / 8 for n in range(-40, 40))]),
    "date": (pa.date32(), [datetime.date(1969, 1, 1) + datetime.timedelta(days=n) for n in range(0, 900, 9)]),
    "time": (pa.timestamp("us"), [datetime.datetime(1960, 1, 1) + datetime.timedelta(hours=n) for n in range(90)]),
    "decimal": (pa.decimal128(25, 2), [Decimal(10**22), Decimal(-(10**22)), *(Decimal(n) / 4 for n in range(-40, 40))]),
    "text": (pa.string(), ["", "\0", "a\0", "é", "ééééé", "日本語日本語", "\U0010ffff" * 3, "\ud7ff",
                           *(f"{n % 7}-{n}" for n in range(50)), *(f"product-{n:04}" for n in range(40))]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff" * 9, b"\xff", *(bytes([n, 255, n]) for n in range(60))]),
}  # fmt: skip
DIRECTIONS = ("", "ASC", "DESC", "DESC NULLS LAST", "NULLS FIRST")
CONDITIONS = ("", "WHERE id % 2 = 0", "WHERE id < 30", "WHERE v IS NOT NULL", "WHERE other = 3", "WHERE v IS NULL")


class TopLake:
    """A table `t` with a column `v` of one kind, in some files, sorted or not."""

    def __init__(self, chance: Random, root: Path) -> None:
        self._chance, self._root = chance, root
        self._type, self._pool = KINDS[chance.choice([*KINDS])]
        self._values = chance.sample(self._pool, chance.randint(3, len(self._pool)))
        self._nulls = chance.choice((0.0, 0.0, 0.02, 0.3))
        self._sorted, self._number, self._files = chance.random() < 0.5, 0, 0
        self._add(chance.randint(1, 4))
        self.lake = needlepoint.open(root, refresh=0)
        self.lake.engine.queries.least_rows = 0
        self.lake.create_table("t")
        if chance.random() < 0.6:
            self.lake.create_index("t", "v")
        if chance.random() < 0.4:
            self._add(1)  # unknown, unless it is synced
            if chance.random() < 0.5:
                self.lake.sync()
        if chance.random() < 0.2:
            next((root / "t").iterdir()).unlink()
            self._add(1)

    def _add(self, files: int) -> None:
        chance = self._chance
        for _ in range(files):
            rows = chance.choice((1, 40, 400))
            values = [None if chance.random() < self._nulls else chance.choice(self._values) for _ in range(rows)]
            if self._sorted:
                values.sort(key=lambda each: (each is not None, 0 if each is None or each != each else each, str(each)))
            ids = range(self._number, self._number + rows)
            columns = {"id": pa.array(ids), "v": pa.array(values, self._type), "other": [each % 9 for each in ids]}
            options = {"row_group_size": chance.choice((20, 1000)), "max_rows_per_page": chance.choice((5, 50))}
            write(pa.table(columns), self._root / "t" / f"{self._files}.parquet", write_batch_size=5, **options)
            self._number, self._files = self._number + rows, self._files + 1

    def query(self) -> str:
        chance = self._chance
        limit = f"LIMIT {chance.choice((0, 1, 3, 10, 40))}" + chance.choice(("", "", " OFFSET 2", " OFFSET 30"))
        columns = chance.choice(("v, id", "id", "id, other"))
        direction = chance.choice(DIRECTIONS)
        return f"SELECT {columns} FROM t {chance.choice(CONDITIONS)} ORDER BY v {direction}, id {limit}"


def rows(lake: Lake, query: str) -> str:
    answer = lake.sql(query).to_arrow()
    return repr([*zip(*(column.to_pylist() for column in answer.columns), strict=True)])


@settings(max_examples=cases(60, 8), phases=(Phase.explicit, Phase.reuse, Phase.generate), deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_first_rows_are_those_of_duckdb(chance: Random) -> None:
    with tempfile.TemporaryDirectory() as root:
        made = TopLake(chance, Path(root))
        with made.lake as lake, duckdb.connect() as duck:
            duck.execute("SET default_null_order = 'NULLS_LAST_ON_ASC_FIRST_ON_DESC'")
            duck.execute(f"CREATE TABLE t AS SELECT * FROM read_parquet('{root}/t/*.parquet')")
            for _ in range(20):
                query = made.query()
                assert rows(lake, query) == repr(duck.execute(query).fetchall()), query


@pytest.mark.covering
@pytest.mark.parametrize("direction", ["", "DESC NULLS LAST"])
@pytest.mark.parametrize("indexed", [False, True])
def test_zeros_of_both_signs_and_nan_of_both(tmp_path: Path, direction: str, indexed: bool) -> None:
    """-0.0 and 0.0 are equal, and DataFusion sorts -NaN before all numbers: with an index, too."""
    values = [0.0, -0.0, 1.0, -1.0, math.nan, -math.nan, *(n / 7 for n in range(300))]
    write(pa.table({"id": range(len(values)), "v": values}), tmp_path / "t" / "a.parquet")
    with needlepoint.open(tmp_path) as lake, needlepoint.open(tmp_path, access="scan") as scanned:
        lake.create_table("t")
        if indexed:
            lake.create_index("t", "v")
        lake.engine.queries.least_rows = 0
        for limit in range(1, 9):
            query = f"SELECT v, id FROM t ORDER BY v {direction}, id LIMIT {limit}"
            assert rows(lake, query) == rows(scanned, query)
            negated = f"SELECT v, id FROM t WHERE v <= 0.5 ORDER BY v {direction}, id LIMIT {limit}"
            assert rows(lake, negated) == rows(scanned, negated)
