"""A table with a column of every flat type, for tests that cover all of them."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 2000


def flat() -> pa.Table:
    random = np.random.default_rng(1)
    numbers = random.integers(-(2**31), 2**31, ROWS)
    holes = [n % 5 == 0 or 300 <= n < 500 for n in range(ROWS)]  # some pages are all NULL

    def column(values: Any, type: pa.DataType) -> pa.Array:
        return pa.array([None if hole else value for hole, value in zip(holes, values, strict=True)], type)

    ordered = range(ROWS)
    return pa.table(
        {
            "int8": column((numbers % 256 - 128).tolist(), pa.int8()),
            "int32": column(numbers.tolist(), pa.int32()),
            "int64": pa.array(ordered, pa.int64()),
            "down": pa.array([-number for number in ordered], pa.int64()),
            "uint32": column((numbers % 2**32).tolist(), pa.uint32()),
            "uint64": column([int(number) % 2**64 for number in numbers], pa.uint64()),
            "bool": column([number % 2 == 0 for number in ordered], pa.bool_()),
            "float": column((numbers / 7).tolist(), pa.float32()),
            "double": column((numbers / 7).tolist(), pa.float64()),
            "half": column(np.float16(numbers / 2**20).tolist(), pa.float16()),
            "zeros": pa.array([(0.0, -0.0)[number % 2] for number in ordered], pa.float64()),
            "string": column([f"text {number}" for number in numbers], pa.string()),
            "long": column([f"{'é' * 60}{number}" for number in numbers], pa.large_string()),
            "binary": column([struct.pack("<q", number) for number in numbers], pa.binary()),
            "fixed": column([struct.pack("<q", number) for number in numbers], pa.binary(8)),
            "date": column((numbers % 9999).tolist(), pa.date32()),
            "timestamp": column([int(number) * 1000 for number in numbers], pa.timestamp("us")),
            "seconds": column(numbers.tolist(), pa.timestamp("s")),
            "time": column([int(number) % 86_400_000 for number in numbers], pa.time32("ms")),
            "decimal9": column([Decimal(int(n)).scaleb(-2) for n in numbers % 10**6 - 5 * 10**5], pa.decimal128(9, 2)),
            "decimal38": column([Decimal(int(number)).scaleb(-5) for number in numbers], pa.decimal128(38, 5)),
            "dictionary": column([f"word {number % 30}" for number in numbers], pa.string()).dictionary_encode(),
            "nulls": pa.nulls(ROWS, pa.int64()),
        }
    )
