"""Kinds of columns: their Arrow type, their values, and literals in both SQL dialects.

Values are plain: timestamps and times are integers in the column's unit, uuids are bytes.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_ALL = frozenset({"pyarrow", "duckdb", "polars", "spark"})
_NOT_SPARK = frozenset({"pyarrow", "duckdb", "polars"})
_NOT_POLARS = frozenset({"pyarrow", "duckdb"})  # Polars keeps times in nanoseconds and has no fixed-size binary
_PYARROW = frozenset({"pyarrow"})
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


class Sql(NamedTuple):
    """The same SQL for DataFusion and for DuckDB."""

    lake: str
    duck: str

    @classmethod
    def of(cls, template: str, *parts: Sql) -> Sql:
        return cls(template.format(*(part.lake for part in parts)), template.format(*(part.duck for part in parts)))


@dataclass(frozen=True, eq=False)
class Kind:
    """All `writers` write it as the same Parquet type. `narrower` types, or coarser ones, hold its values in some
    files."""

    name: str
    type: pa.DataType
    duck_type: str
    values: SearchStrategy[Any]
    literal: Callable[[Any], Sql]
    writers: frozenset[str] = frozenset({"pyarrow", "duckdb", "polars", "spark"})
    indexed: bool = True
    narrower: tuple[pa.DataType, ...] = ()

    def __repr__(self) -> str:
        return self.name

    def array(self, values: Sequence[Any], type: pa.DataType | None = None) -> pa.Array:
        wanted = type or self.type
        if pa.types.is_dictionary(wanted):
            return pa.array(values, wanted.value_type).dictionary_encode()
        if pa.types.is_temporal(wanted) and not pa.types.is_date(wanted):
            return pa.array(values, pa.int64()).cast(self.type).cast(wanted)
        if isinstance(wanted, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(wanted, pa.array(values, wanted.storage_type))
        return pa.array(values, wanted)

    def fits(self, value: Any, type: pa.DataType) -> bool:
        if value is None:
            return True
        if pa.types.is_timestamp(type) or pa.types.is_time(type):
            return value % (_PER_SECOND[self.type.unit] // _PER_SECOND[type.unit]) == 0
        if pa.types.is_floating(type):
            return math.isnan(value) or float(pa.scalar(value, pa.float64()).cast(type, safe=False).as_py()) == value
        low = 0 if pa.types.is_unsigned_integer(type) else -(2 ** (type.bit_width - 1))
        return bool(low <= value < low + 2**type.bit_width)

    @property
    def text(self) -> bool:
        return self.name in ("string", "dictionary")

    @property
    def number(self) -> bool:
        return pa.types.is_integer(self.type)

    @property
    def float(self) -> bool:
        return pa.types.is_floating(self.type)


def same(text: str) -> Sql:
    return Sql(text, text)


# Integers

_SIGNED = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}


def _integer_literal(value: int) -> Sql:
    # DataFusion reads -9223372036854775808 as the negation of a number that is too large.
    return same(str(value) if value > -(2**63) else f"CAST('{value}' AS BIGINT)")


def _integers(bits: int, signed: bool) -> Kind:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    name = f"{'' if signed else 'u'}int{bits}"
    family = [pa.type_for_alias(f"{'' if signed else 'u'}int{each}") for each in (8, 16, 32) if each < bits]
    values = st.integers(max(low, -5), 10) | st.sampled_from([low, low + 1, high - 1, high]) | st.integers(low, high)
    duck = ("" if signed else "U") + _SIGNED[bits]
    writers = _ALL if signed else _NOT_SPARK
    return Kind(name, pa.type_for_alias(name), duck, values, _integer_literal, writers, narrower=tuple(family))


# Floats


def _float_literal(type: str) -> Callable[[float], Sql]:
    return lambda value: same(f"CAST('{value!r}' AS {type})")


def _floats(width: int) -> SearchStrategy[float]:
    special = st.sampled_from([math.nan, 0.0, math.inf, -math.inf, 1.0, -1.0, 0.1 if width == 64 else 0.5])
    return special | st.floats(width=width, allow_nan=False)


# Strings and bytes


def _string_literal(value: str) -> Sql:
    quoted = "'" + value.replace("'", "''") + "'"
    # DuckDB ends a literal at NUL.
    return same(quoted if "\0" not in value else "(" + quoted.replace("\0", "' || chr(0) || '") + ")")


def _strings() -> SearchStrategy[str]:
    characters = st.characters(codec="utf-8")
    special = [
        "",
        " ",
        "a",
        "ab",
        "abc",
        "B",
        "Zoë",
        "e\u0301",
        "\uffff",
        "\U0010ffff",
        "it's",
        "50%",
        "a_b",
        "\n",
        "\\",
        "a\0",
        "\0",
        "ab\0c",
    ]
    return (
        st.sampled_from(special)
        | st.text(characters, max_size=6)
        | st.builds("common prefix {}".format, st.integers(0, 99))  # alike in the first 8 bytes of a key
        | st.builds(lambda size, end: "x" * size + end, st.integers(60, 70), st.sampled_from(["", "a", "\U0010ffff"]))
        | st.builds(lambda size, end: "long " * size + end, st.integers(50, 900), st.sampled_from(["", "a", "b"]))
    )


def _binary_literal(value: bytes) -> Sql:
    return Sql(f"X'{value.hex()}'", f"from_hex('{value.hex()}')")


def _binaries() -> SearchStrategy[bytes]:
    return (
        st.sampled_from([b"", b"a", b"\xff", b"\xff" * 8, b"\xff" * 9, b"ab\x00c", b"\x80"])
        | st.binary(max_size=6)
        | st.builds(lambda size, end: b"\xff" * size + end, st.integers(60, 70), st.sampled_from([b"", b"a", b"\xff"]))
    )


def _uuid_literal(value: bytes) -> Sql:
    text = value.hex()
    dashed = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return Sql(f"X'{text}'", f"CAST('{dashed}' AS UUID)")


def _sixteen_bytes() -> SearchStrategy[bytes]:
    return st.binary(min_size=16, max_size=16) | st.integers(0, 9).map(lambda n: b"\x80" * 15 + bytes([n]))


# Dates and times. DataFusion coerces to nanoseconds, which reach from 1678 to 2261: no timestamps beyond that.

_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST, _LAST = (int((datetime.datetime(year, 1, 1) - _EPOCH).total_seconds()) * 10**6 for year in (1700, 2250))


def _timestamp_text(value: int, per_second: int) -> str:
    seconds, rest = divmod(value, per_second)
    digits = len(str(per_second)) - 1
    return f"{(_EPOCH + datetime.timedelta(seconds=seconds)).isoformat(sep=' ')}.{rest:0{digits}d}"


def _microsecond_literal(value: int) -> Sql:
    text = _timestamp_text(value, 10**6)
    return Sql(f"arrow_cast('{text}', 'Timestamp(Microsecond, None)')", f"TIMESTAMP '{text}'")


def _nanosecond_literal(value: int) -> Sql:
    text = _timestamp_text(value, 10**9)
    return Sql(f"TIMESTAMP '{text}'", f"CAST('{text}' AS TIMESTAMP_NS)")


def _zoned_literal(unit: str, per_second: int) -> Callable[[int], Sql]:
    def literal(value: int) -> Sql:
        text = _timestamp_text(value, per_second)
        return Sql(
            f"arrow_cast('{text}Z', 'Timestamp({unit}, Some(\"UTC\"))')",
            f"TIMESTAMPTZ '{_timestamp_text(value * 10**6 // per_second, 10**6)}+00'",
        )

    return literal


def _time_literal(value: int) -> Sql:
    text = _timestamp_text(value, 10**6)[11:]
    return Sql(f"arrow_cast('{text}', 'Time64(Microsecond)')", f"TIME '{text}'")


def _microseconds() -> SearchStrategy[int]:
    day = 86_400 * 10**6
    return (
        st.sampled_from([0, -1, 1, day, day - 1])
        | st.integers(0, 50).map(lambda n: n * day)
        | st.integers(-3, 3).map(lambda n: n * 1000)
        | st.integers(_FIRST, _LAST)
    )


def _dates() -> SearchStrategy[datetime.date]:
    return st.dates(datetime.date(2020, 1, 1), datetime.date(2020, 2, 1)) | st.dates(datetime.date(1, 1, 1))


# Decimals


def _decimals(precision: int, scale: int, writers: frozenset[str]) -> Kind:
    type = f"DECIMAL({precision}, {scale})"
    most = 10**precision - 1

    def value(unscaled: int) -> decimal.Decimal:
        with decimal.localcontext(prec=60):
            return decimal.Decimal(unscaled).scaleb(-scale)

    numbers = st.integers(-20, 20).map(lambda n: n * 5) | st.sampled_from([most, -most]) | st.integers(-most, most)
    return Kind(
        f"decimal({precision},{scale})", pa.decimal128(precision, scale), type, numbers.map(value),
        lambda value: same(f"CAST('{value:f}' AS {type})"), writers,
    )  # fmt: skip


KINDS = (
    *(_integers(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)),
    Kind("float32", pa.float32(), "FLOAT", _floats(32), _float_literal("REAL")),
    Kind("float64", pa.float64(), "DOUBLE", _floats(64), _float_literal("DOUBLE"), narrower=(pa.float32(),)),
    Kind("bool", pa.bool_(), "BOOLEAN", st.booleans(), lambda value: same(str(value).upper())),
    Kind("string", pa.string(), "VARCHAR", _strings(), _string_literal),
    Kind("dictionary", pa.dictionary(pa.int32(), pa.string()), "VARCHAR", _strings(), _string_literal),
    Kind("binary", pa.binary(), "BLOB", _binaries(), _binary_literal),
    Kind("fixed", pa.binary(16), "BLOB", _sixteen_bytes(), _binary_literal, _PYARROW),
    Kind("uuid", pa.uuid(), "UUID", _sixteen_bytes(), _uuid_literal, _NOT_POLARS),
    Kind("date", pa.date32(), "DATE", _dates(), lambda value: same(f"DATE '{value.isoformat()}'")),
    Kind("timestamp us", pa.timestamp("us"), "TIMESTAMP", _microseconds(), _microsecond_literal, _NOT_SPARK,
         narrower=(pa.timestamp("ms"),)),
    Kind(
        "timestamp ns", pa.timestamp("ns"), "TIMESTAMP_NS",
        st.builds(lambda us, ns: us * 1000 + ns, _microseconds(), st.just(0) | st.integers(0, 999)),
        _nanosecond_literal, _NOT_SPARK, narrower=(pa.timestamp("us"), pa.timestamp("ms")),
    ),
    Kind(
        "timestamp us UTC", pa.timestamp("us", "UTC"), "TIMESTAMPTZ", _microseconds(),
        _zoned_literal("Microsecond", 10**6), _NOT_SPARK,
        narrower=(pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin")),
    ),
    Kind(
        # DuckDB keeps zoned timestamps in microseconds: values are no finer than that, and it cannot write the type.
        "timestamp ns UTC", pa.timestamp("ns", "UTC"), "TIMESTAMPTZ", _microseconds().map(lambda us: us * 1000),
        _zoned_literal("Nanosecond", 10**9), frozenset({"pyarrow", "polars"}),
        narrower=(pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("ns", "Europe/Berlin")),
    ),
    Kind("time", pa.time64("us"), "TIME", st.integers(0, 86_400 * 10**6 - 1), _time_literal, _NOT_POLARS,
         narrower=(pa.time32("ms"),)),
    _decimals(9, 2, _ALL),
    _decimals(20, 4, _ALL),
    _decimals(38, 10, _ALL),
    Kind("list", pa.list_(pa.int64()), "BIGINT[]", st.lists(st.integers(0, 3), max_size=3), same, indexed=False),
    Kind(
        "struct", pa.struct([("x", pa.int64()), ("y", pa.string())]), "STRUCT(x BIGINT, y VARCHAR)",
        st.fixed_dictionaries({"x": st.none() | st.integers(0, 3), "y": st.sampled_from([None, "", "a"])}),
        same, indexed=False,
    ),
)  # fmt: skip

BY_NAME = {kind.name: kind for kind in KINDS}
