"""Files of many writers, types and layouts, each written once per run."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import covering, long

ROWS = 500


def flat_table(rows: int = ROWS) -> pa.Table:
    """A column of every flat type, with nulls in most, and a required one."""
    random = np.random.default_rng(7)

    def some(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if n % 7 == 3 else value for n, value in enumerate(values)], type=kind)

    numbers = random.integers(0, 100, rows).tolist()
    start = datetime.datetime(2024, 1, 1)
    moments = [start + datetime.timedelta(seconds=n, microseconds=n * 7 % 1000) for n in range(rows)]
    times = [moment.time() for moment in moments]
    columns: dict[str, pa.Array] = {"id": pa.array(random.permutation(rows))}
    for bits in (8, 16, 32, 64):
        columns[f"int{bits}"] = some([n - 50 for n in numbers], getattr(pa, f"int{bits}")())
        columns[f"uint{bits}"] = some(numbers, getattr(pa, f"uint{bits}")())
    columns |= {
        "float16": some(np.float16(numbers).tolist(), pa.float16()),
        "float32": some([n / 3 for n in numbers], pa.float32()),
        "float64": some([n / 3 if n else float("nan") for n in numbers], pa.float64()),
        "bool": some([n % 2 == 0 for n in numbers], pa.bool_()),
        "string": some([f"text {n} é" * (n % 4) for n in range(rows)], pa.string()),
        "large_string": some([f"large {n}" for n in numbers], pa.large_string()),
        "string_view": some([f"a string longer than twelve {n}" for n in numbers], pa.string_view()),
        "binary": some([bytes([n]) * (n % 9) for n in numbers], pa.binary()),
        "fixed": some([n.to_bytes(5, "big") for n in numbers], pa.binary(5)),
        "decimal128": some([decimal.Decimal(n) / 4 for n in numbers], pa.decimal128(20, 2)),
        "decimal32": some([decimal.Decimal(n) / 4 for n in numbers], pa.decimal128(5, 2)),
        "date32": some([moment.date() for moment in moments], pa.date32()),
        "date64": some([moment.date() for moment in moments], pa.date64()),
        "timestamp_s": some([moment.replace(microsecond=0) for moment in moments], pa.timestamp("s")),
        "timestamp_ms": some([moment.replace(microsecond=0) for moment in moments], pa.timestamp("ms")),
        "timestamp_us": some(moments, pa.timestamp("us", tz="Europe/Vienna")),
        "timestamp_ns": some(moments, pa.timestamp("ns", tz="UTC")),
        "time32": some([time.replace(microsecond=0) for time in times], pa.time32("ms")),
        "time64": some(times, pa.time64("us")),
        "duration": some(numbers, pa.duration("us")),
        "dictionary": some([f"word {n % 5}" for n in numbers], pa.string()).dictionary_encode(),
        "null": pa.nulls(rows),
        "all_null": pa.nulls(rows, pa.string()),
        "uuid": pa.ExtensionArray.from_storage(
            pa.uuid(), some([n.to_bytes(16, "big") for n in numbers], pa.binary(16))
        ),
    }
    schema = pa.schema(
        [pa.field(name, column.type, nullable=name != "id") for name, column in columns.items()],
        metadata={"owner": "tests"},
    )
    return pa.Table.from_arrays(list(columns.values()), schema=schema)


def nested_table(rows: int = ROWS) -> pa.Table:
    """Nested lists, structs and maps, with nulls and empty ones on every level."""

    def rotate(value: Callable[[int], Any]) -> list[Any]:
        return [None if n % 11 == 4 else value(n) for n in range(rows)]

    point = pa.struct([("x", pa.int32()), ("y", pa.string())])
    return pa.table(
        {
            "id": pa.array(range(rows)),
            "list": pa.array(rotate(lambda n: [None if k == 2 else k + n for k in range(n % 5)])),
            "large_list": pa.array(rotate(lambda n: ["w"] * (n % 3)), pa.large_list(pa.string())),
            "fixed_list": pa.array([[n, n + 1] for n in range(rows)], pa.list_(pa.int16(), 2)),
            "struct": pa.array(rotate(lambda n: {"x": n, "y": None if n % 3 else "long text " * 9}), point),
            "map": pa.array(
                rotate(lambda n: [(f"key {k}", k) for k in range(n % 4)]), pa.map_(pa.string(), pa.int64())
            ),
            "points": pa.array(rotate(lambda n: [{"x": k, "y": "y" * k * 5} for k in range(n % 6)]), pa.list_(point)),
            "deep": pa.array(
                rotate(lambda n: {"a": {"b": [[n] * (n % 3), [], None]}}),
                pa.struct([("a", pa.struct([("b", pa.list_(pa.list_(pa.int32())))]))]),
            ),
            "text": pa.array(rotate(lambda n: f"text {n}")),
        }
    )


def _layouts() -> dict[str, dict[str, Any]]:
    """Options of pyarrow's writer by file name."""
    small = {"write_page_index": True, "write_batch_size": 10}
    layouts: dict[str, dict[str, Any]] = {
        "default": {},
        "row_groups": {"row_group_size": 70, "write_page_index": True},
        "no_index": {"row_group_size": 90, "data_page_size": 64, "write_batch_size": 10},
        "rows_per_page": {"write_page_index": True, "max_rows_per_page": 25, "use_dictionary": False},
        "tiny_pages": {**small, "data_page_size": 64, "row_group_size": 130},
        "tiny_plain": {**small, "data_page_size": 64, "use_dictionary": False},
        "version_2": {**small, "data_page_size": 100, "data_page_version": "2.0"},
        "old_format": {**small, "data_page_size": 100, "version": "1.0"},
        "no_arrow_schema": {**small, "data_page_size": 100, "store_schema": False},
        "no_statistics": {**small, "data_page_size": 100, "write_statistics": False},
        "checksums": {**small, "data_page_size": 100, "write_page_checksum": True},
    }
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        for page in ("1.0", "2.0"):
            layouts[f"{codec}_{page}"] = {
                **small, "data_page_size": 200, "compression": codec, "data_page_version": page,
                "row_group_size": 200,
            }  # fmt: skip
    return layouts


LAYOUTS = _layouts()
FLAT = [f"flat/{name}" for name in LAYOUTS]
NESTED = [f"nested/{name}" for name in LAYOUTS]
OTHERS = ["duckdb", "duckdb_nested", "polars", "polars_nested", "delta", "split", "empty", "no_rows"]
NAMES = FLAT + NESTED + OTHERS
# The files that are not in LONG still cover every codec and page version, flat or nested.
_CODECS = FLAT[-12:] + NESTED[-12:]
LONG = sorted({*_CODECS} - {*covering(_CODECS, "/_")})


def _write(name: str, path: str) -> None:
    kind, _, layout = name.partition("/")
    if kind == "flat":
        table = flat_table()
        if layout == "old_format":
            table = table.drop_columns(["timestamp_ns"])  # version 1.0 cannot hold nanoseconds
        pq.write_table(table, path, **LAYOUTS[layout])
    elif kind == "nested":
        pq.write_table(nested_table(), path, **LAYOUTS[layout])
    elif kind in ("duckdb", "duckdb_nested"):
        table = (flat_table() if kind == "duckdb" else nested_table()).drop_columns(
            ["float16", "null", "uuid", "string_view"] if kind == "duckdb" else []
        )
        connection = duckdb.connect()
        connection.register("source", table)
        connection.sql(f"COPY source TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 100)")
    elif kind in ("polars", "polars_nested"):
        table = (
            flat_table().drop_columns(["uuid", "null", "float16", "duration"])
            if kind == "polars"
            else nested_table().drop_columns(["map", "deep"])
        )
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        frame.write_parquet(path, row_group_size=150, data_page_size=256)
    elif kind == "delta":
        table = flat_table().select(["id", "int32", "string", "fixed", "float64", "bool"])
        pq.write_table(
            table, path, use_dictionary=False, write_page_index=True, max_rows_per_page=40,
            column_encoding={"id": "DELTA_BINARY_PACKED", "int32": "DELTA_BINARY_PACKED",
                             "string": "DELTA_BYTE_ARRAY", "fixed": "DELTA_BYTE_ARRAY",
                             "float64": "BYTE_STREAM_SPLIT", "bool": "RLE"},
        )  # fmt: skip
    elif kind == "split":
        # Empty row groups between others.
        table = flat_table()
        with pq.ParquetWriter(path, table.schema, write_page_index=True) as writer:
            for part in (table[:0], table[:10], table[10:10], table[10:], table[:0]):
                writer.write_table(part)
    elif kind == "empty":
        pq.ParquetWriter(path, flat_table().schema).close()
    else:
        pq.write_table(nested_table()[:0], path)


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The path of the named file, which is written at the first call."""
    directory: Path = tmp_path_factory.mktemp("files")

    def path_of(name: str) -> str:
        path = directory / f"{name.replace('/', '-')}.parquet"
        if not path.exists():
            _write(name, str(path))
        return str(path)

    return path_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "any_file" in metafunc.fixturenames:
        short = [name for name in NAMES if name not in LONG]
        metafunc.parametrize("any_file", [*short, *long(*LONG)])
