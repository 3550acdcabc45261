"""Files of the common Parquet writers, by names such as `arro3/nested/parquet_2_0/snappy`."""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import arro3.io
import datafusion
import duckdb
import fastparquet.writer
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from tests.cases import covering, long
from tests.unit.parquet.conftest import flat_table, nested_table

# Types that the Rust writers lack or change.
_ODD = ["float16", "null", "uuid", "string_view", "duration", "decimal32", "large_string", "dictionary"]
ROWS = 450
PYARROW = [f"pyarrow/{kind}/{page}/{codec}" for kind in ("flat", "nested") for page in ("1.0", "2.0")
           for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")]  # fmt: skip
ENCODINGS = [f"encodings/{encoding}/{page}" for page in ("1.0", "2.0")
             for encoding in ("PLAIN", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
                              "BYTE_STREAM_SPLIT", "RLE", "dictionary")]  # fmt: skip
ARRO3 = [f"arro3/{kind}/{page}/{codec}" for kind in ("flat", "nested") for page in ("parquet_1_0", "parquet_2_0")
         for codec in ("uncompressed", "snappy", "gzip(6)", "brotli(3)", "lz4", "lz4_raw", "zstd(1)")]  # fmt: skip
DATAFUSION = [f"datafusion/{kind}/{page}/{codec}" for kind in ("flat", "nested") for page in ("1.0", "2.0")
              for codec in ("uncompressed", "zstd(3)", "lz4")]  # fmt: skip
POLARS = [f"polars/{kind}/{codec}" for kind in ("flat", "nested")
          for codec in ("uncompressed", "snappy", "gzip", "brotli", "lz4", "zstd")]  # fmt: skip
DUCKDB = [f"duckdb/{kind}/{version}/{codec}" for kind in ("flat", "nested") for version in ("V1", "V2")
          for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw")]  # fmt: skip
FASTPARQUET = [f"fastparquet/{page}/{codec}/{times}" for page in (1, 2) for codec in ("UNCOMPRESSED", "SNAPPY", "GZIP")
               for times in ("int64", "int96")]  # fmt: skip
INT96 = ["int96/1.0", "int96/2.0"]
NAMES = PYARROW + ENCODINGS + ARRO3 + DATAFUSION + POLARS + DUCKDB + FASTPARQUET + INT96
# For each writer, every kind, page version, encoding and codec; `make test-all` runs all combinations.
_MATRICES = (PYARROW, ENCODINGS, ARRO3, DATAFUSION, POLARS, DUCKDB, FASTPARQUET, INT96)
SHORT = {name for names in _MATRICES for name in covering(names)}


FEW = {name for names in _MATRICES for name in (names[0], names[-1])}  # for tests that take long


def matrix(names: Sequence[str] = NAMES, short: Set[str] = SHORT) -> list[Any]:
    return [*(name for name in names if name in short), *long(*(name for name in names if name not in short))]


def write(name: str, path: Path) -> None:
    writer, *options = name.split("/")
    _WRITERS[writer](str(path), *options)


def _flat(*without: str) -> pa.Table:
    return flat_table(ROWS).drop_columns(list(without))


def _long_nested() -> pa.Table:
    """Records of very different lengths, some longer than a page."""
    table = nested_table(ROWS)
    lengths = np.random.default_rng(4).choice([0, 1, 2, 50, 400], ROWS, p=[0.2, 0.4, 0.3, 0.08, 0.02])
    long = [None if n % 13 == 5 else [None if k % 9 == 8 else n + k for k in range(length)]
            for n, length in enumerate(lengths.tolist())]  # fmt: skip
    return table.append_column("long", pa.array(long, pa.list_(pa.int32())))


def _pyarrow(path: str, kind: str, page: str, codec: str) -> None:
    pq.write_table(
        _flat() if kind == "flat" else _long_nested(), path, compression=codec, data_page_version=page,
        data_page_size=300, write_batch_size=16, row_group_size=200,
    )  # fmt: skip


def _encodings(path: str, encoding: str, page: str) -> None:
    table = _flat().select(["id", "int32", "int64", "float32", "float64", "string", "binary", "fixed", "bool"])
    fits = {
        "DELTA_BINARY_PACKED": ["id", "int32", "int64"],
        "DELTA_LENGTH_BYTE_ARRAY": ["string", "binary"],
        "DELTA_BYTE_ARRAY": ["string", "binary", "fixed"],
        "BYTE_STREAM_SPLIT": ["id", "int32", "int64", "float32", "float64", "fixed"],
        "RLE": ["bool"],
    }
    chosen: dict[str, Any] = {"use_dictionary": encoding == "dictionary"}
    if encoding in fits:
        chosen["column_encoding"] = dict.fromkeys(fits[encoding], encoding)
    pq.write_table(
        table, path, data_page_version=page, data_page_size=200, write_batch_size=10, row_group_size=400, **chosen
    )


def _arro3(path: str, kind: str, page: str, codec: str) -> None:
    # Without fixed-size lists in nested columns, which the Rust writer refuses.
    table = _flat(*_ODD) if kind == "flat" else _long_nested().drop_columns(["fixed_list"])
    arro3.io.write_parquet(
        table, path, compression=codec, writer_version=page, data_page_size_limit=300, write_batch_size=16,
        max_row_group_size=200, data_page_row_count_limit=100,
    )  # fmt: skip


def _datafusion(path: str, kind: str, page: str, codec: str) -> None:
    table = _flat(*_ODD) if kind == "flat" else _long_nested().drop_columns(["fixed_list"])
    options = datafusion.ParquetWriterOptions(
        data_pagesize_limit=300, write_batch_size=16, writer_version=page, compression=codec, max_row_group_size=200,
        data_page_row_count_limit=100,
    )  # fmt: skip
    datafusion.SessionContext().from_arrow(table).write_parquet_with_options(path, options)


def _polars(path: str, kind: str, codec: str) -> None:
    table = _flat("uuid", "null", "float16", "duration") if kind == "flat" else _long_nested()
    frame = pl.from_arrow(table.drop_columns([name for name in ("map", "deep") if name in table.column_names]))
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path, compression=codec, row_group_size=400, data_page_size=400)  # type: ignore[arg-type]


def _duckdb(path: str, kind: str, version: str, codec: str) -> None:
    table = _flat("float16", "null", "uuid", "string_view") if kind == "flat" else _long_nested()
    connection = duckdb.connect()
    connection.register("source", table)
    connection.sql(
        f"COPY source TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 400, COMPRESSION {codec}, PARQUET_VERSION {version})"
    )


def _fastparquet(path: str, page: str, codec: str, times: str) -> None:
    number = np.arange(ROWS)
    frame = pd.DataFrame(
        {
            "id": number,
            "real": np.where(number % 5 == 0, np.nan, number / 3),
            "flag": number % 3 == 0,
            "text": [None if n % 7 == 0 else f"text {n % 50}" for n in range(ROWS)],
            "raw": [bytes([n % 256]) * (n % 5) for n in range(ROWS)],
            "moment": pd.date_range("2024-01-01", periods=ROWS, freq="37s"),
            "kind": pd.Categorical([f"kind {n % 4}" for n in range(ROWS)]),
            "nullable": pd.array([None if n % 4 == 0 else n for n in range(ROWS)], dtype="Int32"),
        }
    )
    versions = fastparquet.writer.DATAPAGE_VERSION, fastparquet.writer.MAX_PAGE_SIZE
    fastparquet.writer.DATAPAGE_VERSION, fastparquet.writer.MAX_PAGE_SIZE = int(page), 600
    try:
        fastparquet.writer.write(path, frame, row_group_offsets=300, compression=codec, times=times, stats=True)
    finally:
        fastparquet.writer.DATAPAGE_VERSION, fastparquet.writer.MAX_PAGE_SIZE = versions


def _int96(path: str, page: str) -> None:
    table = _flat().select(["id", "timestamp_us", "timestamp_ns", "timestamp_s"])
    pq.write_table(
        table, path, use_deprecated_int96_timestamps=True, data_page_size=200, write_batch_size=10,
        data_page_version=page, use_dictionary=["timestamp_s"],
    )  # fmt: skip


_WRITERS: dict[str, Any] = {
    "pyarrow": _pyarrow, "encodings": _encodings, "arro3": _arro3, "datafusion": _datafusion, "polars": _polars,
    "duckdb": _duckdb, "fastparquet": _fastparquet, "int96": _int96,
}  # fmt: skip
