"""An existing row is never ruled out, whatever program wrote the filters."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import arro3.io
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.indexes.parquet_bloom import may_match, stored_values
from needlepoint.objects.local import LocalFile
from needlepoint.parquet.card.describe import build_card
from needlepoint.predicate import And, Compare, Constant, In, IsNull, Not, Or, Ordinal, Predicate, Unknown
from needlepoint.tables.schemas import ordinal

ROWS, GROUPS = 900, 3

moments = [datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=7 * n) for n in range(ROWS)]
special = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-300]
COLUMNS: dict[str, pa.Array] = {
    "int8": pa.array([n % 200 - 100 for n in range(ROWS)], pa.int8()),
    "int16": pa.array([n * 7 - 3000 for n in range(ROWS)], pa.int16()),
    "int32": pa.array([n * 77 - 30000 for n in range(ROWS)], pa.int32()),
    "int64": pa.array([(n << 40) - 2**49 for n in range(ROWS)], pa.int64()),
    "uint8": pa.array([n % 256 for n in range(ROWS)], pa.uint8()),
    "uint16": pa.array([65535 - n for n in range(ROWS)], pa.uint16()),
    "uint32": pa.array([2**32 - 1 - n for n in range(ROWS)], pa.uint32()),
    "uint64": pa.array([2**64 - 1 - n for n in range(ROWS)], pa.uint64()),
    "float16": pa.array(np.arange(ROWS, dtype=np.float16)),
    "float32": pa.array([*special[:5], *(n / 3 for n in range(ROWS - 5))], pa.float32()),
    "float64": pa.array([*special, *(n / 3 for n in range(ROWS - 6))], pa.float64()),
    "string": pa.array([f"text {n} é" * (n % 4) for n in range(ROWS)]),
    "large_string": pa.array([f"large {n}" for n in range(ROWS)], pa.large_string()),
    "string_view": pa.array([f"a string longer than twelve {n}" for n in range(ROWS)], pa.string_view()),
    "binary": pa.array([bytes([n % 256, 0]) * (n % 9) for n in range(ROWS)], pa.binary()),
    "fixed": pa.array([n.to_bytes(5, "big") for n in range(ROWS)], pa.binary(5)),
    "decimal5": pa.array([decimal.Decimal(n - 400) / 4 for n in range(ROWS)], pa.decimal128(5, 2)),
    "decimal15": pa.array([decimal.Decimal(n - 400) * 10**9 for n in range(ROWS)], pa.decimal128(15, 2)),
    "decimal38": pa.array([decimal.Decimal(n - 400) * 10**30 for n in range(ROWS)], pa.decimal128(38, 2)),
    "date32": pa.array([datetime.date(1969, 1, 1) + datetime.timedelta(n) for n in range(ROWS)]),
    "date64": pa.array([datetime.date(1969, 1, 1) + datetime.timedelta(n) for n in range(ROWS)], pa.date64()),
    "timestamp_s": pa.array(moments, pa.timestamp("s")),
    "timestamp_ms": pa.array(moments, pa.timestamp("ms")),
    "timestamp_us": pa.array(moments, pa.timestamp("us", tz="Europe/Vienna")),
    "timestamp_ns": pa.array(moments, pa.timestamp("ns", tz="UTC")),
    "time32": pa.array([moment.time() for moment in moments], pa.time32("ms")),
    "time32_s": pa.array([moment.time() for moment in moments], pa.time32("s")),
    "time64": pa.array([moment.time() for moment in moments], pa.time64("us")),
    "duration": pa.array([n * 1000 for n in range(ROWS)], pa.duration("s")),
    "dictionary": pa.array([f"word {n % 300}" for n in range(ROWS)]).dictionary_encode(),
    "bool": pa.array([n % 2 == 0 for n in range(ROWS)]),
    "uuid": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([uuid.UUID(int=n << 60).bytes for n in range(ROWS)], pa.binary(16))
    ),
}
TABLE = pa.table({name: pa.array(column) for name, column in COLUMNS.items()})


def _by_pyarrow(path: str, **options: Any) -> None:
    filters = {name: {"ndv": ROWS, "fpp": 0.01} for name in TABLE.column_names if name != "bool"}
    pq.write_table(TABLE, path, row_group_size=ROWS // GROUPS, bloom_filter_options=filters, **options)


def _by_duckdb(path: str) -> None:
    connection = duckdb.connect()
    connection.register("source", TABLE.drop_columns(["float16", "string_view", "uuid"]))
    copies = f"SELECT * FROM source ORDER BY int64 LIMIT {ROWS}"
    # Each value ten times: DuckDB writes filters only for columns with a dictionary.
    repeated = f"SELECT a.* FROM ({copies}) a, range(10) ORDER BY int64"
    connection.execute(f"COPY ({repeated}) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")


def _by_arrow_rs(path: str) -> None:
    arro3.io.write_parquet(TABLE, path, bloom_filter_enabled=True, max_row_group_size=ROWS // GROUPS)


WRITERS: dict[str, Callable[[str], None]] = {
    "pyarrow": _by_pyarrow,
    "pyarrow_old": lambda path: _by_pyarrow(path, version="2.4", store_schema=False),
    "pyarrow_integers": lambda path: _by_pyarrow(path, store_decimal_as_integer=True, data_page_version="2.0"),
    "duckdb": _by_duckdb,
    "arrow_rs": _by_arrow_rs,
}
FEWEST_FILTERS = {"pyarrow": 28, "pyarrow_old": 28, "pyarrow_integers": 28, "duckdb": 12, "arrow_rs": 25}


@pytest.fixture(scope="module", params=WRITERS)
def writer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(writer: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("bloom") / f"{writer}.parquet")
    WRITERS[writer](path)
    return path


def ask(path: str, predicate: Predicate, schema: pa.Schema | None = None) -> list[bool]:
    card = build_card(path)
    with LocalFile(path) as file:
        answers: list[bool] = may_match(file, card, predicate, range(card.num_row_groups), schema).tolist()
    return answers


def ordinals(array: pa.ChunkedArray) -> list[Ordinal]:
    if isinstance(array.type, pa.BaseExtensionType):
        array = pa.chunked_array([chunk.storage for chunk in array.chunks])
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    found = [ordinal(value) for value in array]
    return [value for value in found if value is not None]


@cache
def ordinals_of(path: str, name: str) -> list[Ordinal]:
    with pq.ParquetFile(path) as parquet:
        return ordinals(parquet.read(columns=[name]).column(name))


def test_a_value_that_is_there_is_never_ruled_out(writer: str, path: str) -> None:
    card = build_card(path)
    groups = range(card.num_row_groups)
    ruled_out = 0
    with pq.ParquetFile(path) as parquet, LocalFile(path) as file:
        for group in groups:
            table = parquet.read_row_group(group)
            for name in table.column_names:
                values = ordinals(table.column(name))
                for value in values[:: len(values) // cases(40, 12)]:
                    answers = may_match(file, card, Compare(name, "=", value), groups)
                    assert answers[group], (name, value)
                    ruled_out += int((~answers).sum())
    assert ruled_out > cases(1000, 300)
    assert sum((card.chunks.bloom_filter_offset > 0).reshape(-1, len(groups))[:, 0]) >= FEWEST_FILTERS[writer]


SAYS_NO: dict[str, list[Ordinal]] = {
    "int8": [3, 127], "int16": [-2999], "int32": [5], "int64": [12345], "uint8": [], "uint16": [7], "uint32": [1],
    "uint64": [12345], "float32": [0.1], "float64": [0.1], "string": [b"nowhere"], "binary": [b"nowhere"],
    "fixed": [b"\xff" * 5], "decimal5": [-99999], "decimal15": [77], "decimal38": [77], "date32": [99_999],
    "timestamp_ms": [1], "timestamp_us": [1], "timestamp_ns": [1], "time32": [1], "time64": [1], "duration": [77],
    "uuid": [b"\xff" * 16], "float16": [0.5], "dictionary": [b"nowhere"], "timestamp_s": [1],
}  # fmt: skip


def test_a_value_that_is_not_there_is_ruled_out(tmp_path: Path) -> None:
    path = str(tmp_path / "file.parquet")
    _by_pyarrow(path)
    said = {name: [ask(path, Compare(name, "=", value)) for value in values] for name, values in SAYS_NO.items()}
    wrong = [name for name, answers in said.items() if any(any(each) for each in answers)]
    assert len(wrong) <= 2, wrong  # a filter has one false positive in a hundred


@pytest.mark.parametrize("name", TABLE.column_names)
@settings(deadline=None, max_examples=cases(25, 2))
@given(data=st.data())
def test_in_rules_out_no_group_that_has_one(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "in.parquet"
    if not path.exists():
        _by_pyarrow(str(path))
    values = ordinals_of(str(path), name)
    positions = data.draw(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=20))
    wanted = In(name, tuple(values[position] for position in positions))
    answers = ask(str(path), wanted)
    assert all(answers[position * GROUPS // ROWS] for position in positions)
    assert all(ask(str(path), Not(wanted)))


def test_the_tree(tmp_path: Path) -> None:
    path = str(tmp_path / "file.parquet")
    table = pa.table({"a": np.arange(300) * 1000, "b": [f"b{n}" for n in range(300)], "c": np.arange(300)})
    options = {"a": {"ndv": 300, "fpp": 1e-6}, "b": {"ndv": 300, "fpp": 1e-6}}
    pq.write_table(table, path, row_group_size=100, bloom_filter_options=options)
    first, second, third = (Compare("a", "=", value) for value in (5000, 150_000, 250_000))
    text = Compare("b", "=", b"b150")
    nowhere = Compare("a", "=", 7)
    for predicate, expected in [
        (first, [True, False, False]),
        (And((first, second)), [False, False, False]),
        (And((Unknown(), second)), [False, True, False]),
        (And((text, second, Compare("c", "=", 999))), [False, True, False]),
        (Or((first, third)), [True, False, True]),
        (Or((first, Unknown())), [True, True, True]),
        (Or((nowhere, And((text, third)))), [False, False, False]),
        (And(()), [True, True, True]),
        (Or(()), [False, False, False]),
        (Not(nowhere), [True, True, True]),
        (In("a", ()), [False, False, False]),
        (In("a", (7, 5000, 250_000)), [True, False, True]),
        (Constant(False), [False, False, False]),
        (Constant(True), [True, True, True]),
        (IsNull("a"), [True, True, True]),
        (Compare("a", "<", 7), [True, True, True]),
        (Compare("nonexistent", "=", 7), [True, True, True]),
        (Compare("a", "=", b"bytes"), [True, True, True]),
        (Compare("a", "=", 5.5), [True, True, True]),
        (Compare("b", "=", 5), [True, True, True]),
    ]:
        assert ask(path, predicate) == expected, predicate
    card = build_card(path)
    with LocalFile(path) as file:
        assert may_match(file, card, Or((second, third)), [2, 0]).tolist() == [True, False]
        before = file.requests
        assert not may_match(file, card, And((nowhere, text)), [0, 1]).any()
        assert file.requests == before + 1  # b is not read: nothing was left


def test_zeros_and_nan(tmp_path: Path) -> None:
    path = str(tmp_path / "file.parquet")
    table = pa.table({"f": [0.0, 1.0, -0.0, 1.0, math.nan, 1.0]})
    pq.write_table(table, path, row_group_size=2, bloom_filter_options={"f": {"ndv": 10, "fpp": 1e-6}})
    for zero in (0.0, -0.0):
        assert ask(path, Compare("f", "=", zero)) == [True, True, False]
    assert ask(path, Compare("f", "=", math.nan)) == [True, True, True]
    assert ask(path, In("f", (5.0, math.nan))) == [True, True, True]


def test_units_that_differ_from_the_tables_say_maybe(tmp_path: Path) -> None:
    path = str(tmp_path / "file.parquet")
    _by_pyarrow(path)
    nowhere = Compare("timestamp_ms", "=", 1)
    for type, expected in [(pa.timestamp("us"), True), (pa.timestamp("ms"), False), (pa.timestamp("ms", "UTC"), False)]:
        assert ask(path, nowhere, pa.schema([("timestamp_ms", type)])) == [expected] * GROUPS
    for scale in (2, 3):
        schema = pa.schema([("decimal5", pa.decimal128(9, scale))])
        assert ask(path, Compare("decimal5", "=", 99_998), schema) == [scale == 3] * GROUPS
    assert ask(path, Compare("int8", "=", 1 << 40), pa.schema([("int8", pa.int64())])) == [False] * GROUPS
    for scale in (0, 2):  # 500 is 5.00
        assert (
            ask(path, Compare("int32", "=", 500), pa.schema([("int32", pa.decimal128(12, scale))])) == [True] * GROUPS
        )


def test_stored_values() -> None:
    assert stored_values([2**32 - 1, -1], pa.uint32(), 1) == [b"\xff" * 4]
    assert stored_values([1e300, 0.1, 0.5], pa.float32(), 4) == [b"\0\0\0\x3f"]
    assert stored_values([2**63], pa.int64(), 2) == []
    assert stored_values([2**127], pa.decimal128(38, 0), 7, 16) == []
    assert stored_values([b"abc", b"ab"], pa.binary(3), 7, 3) == [b"abc"]
    for type, physical in [
        (pa.decimal128(9, 2), 6),  # of variable length
        (pa.timestamp("ns"), 3),  # INT96
        (pa.bool_(), 0),
        (pa.date64(), 1),
        (pa.timestamp("s"), 2),
        (pa.time32("s"), 1),
        (pa.null(), 1),
    ]:
        assert stored_values([1], type, physical) is None


@pytest.mark.spark
def test_filters_by_spark(tmp_path: Path, spark: Any) -> None:
    frame = spark.range(3000).selectExpr(
        "id", "concat('text ', id) AS s", "CAST(id AS int) AS i", "CAST(id AS decimal(9, 2)) AS d9",
        "CAST(id AS decimal(30, 2)) AS d30", "CAST(id AS float) AS f", "timestamp_micros(id * 1000) AS t",
        "CAST(id AS short) AS sh", "date_add(DATE'2020-01-01', CAST(id AS int)) AS day",
    )  # fmt: skip
    writer = frame.coalesce(1).write.option("parquet.enable.dictionary", "false")
    for name in frame.columns:
        writer = writer.option(f"parquet.bloom.filter.enabled#{name}", "true")
        writer = writer.option(f"parquet.bloom.filter.expected.ndv#{name}", "3000")
    writer.parquet(str(tmp_path / "out"))
    path = str(next((tmp_path / "out").glob("*.parquet")))
    table = pq.read_table(path)
    for name in table.column_names:
        values = ordinals(table.column(name))
        # By default, Spark's timestamps are INT96, which has no filters.
        assert values or name == "t"
        assert all(ask(path, Compare(name, "=", value)) == [True] for value in values[::100])
    assert ask(path, Compare("id", "=", 3001)) == [False]
    assert ask(path, Compare("s", "=", b"text 3001")) == [False]
    assert ask(path, Compare("d30", "=", 300_100)) == [False]
