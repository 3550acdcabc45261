"""Queries of one form with other values, one after the other, while files, columns and the table change: as DuckDB
answers. Plans are kept for queries that differ in their values only, and some need no DataFusion."""

from __future__ import annotations

import datetime
import decimal
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import cases, long

import needlepoint
from needlepoint.errors import NeedlepointError
from needlepoint.query.datafusion.planner import Planner

FORMS, TIMES = cases(60, 4), 10
INTEGERS = {f"{sign}{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)}
INTEGERS = {f"{'i' if name[0] != 'u' else ''}{name}": type for name, type in INTEGERS.items()}
TIMESTAMPS = {
    "ms": pa.timestamp("ms"), "us": pa.timestamp("us"), "ns": pa.timestamp("ns"),
    "zone_ms": pa.timestamp("ms", "UTC"), "zone_us": pa.timestamp("us", "UTC"),
}  # fmt: skip
DECIMALS = {"narrow": pa.decimal128(9, 2), "wide": pa.decimal128(30, 10)}
TEXTS = (
    "",
    "a",
    "b",
    "B",
    "ab",
    "é",
    "日本",
    "it's",
    "a'b''c",
    "\\",
    "%",
    "null",
    "5",
    "x AND y",
    "-- c",
    "/* */",
    "today",
)
FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, 5.0, -5.0, 16777217.0)
FIRST = datetime.datetime(2024, 1, 1)
LATER = [datetime.timedelta(microseconds=each) for each in (0, 1, 500, 250_000, 3_600_000_000, 1_234_567_890, -1)]
SELECTED = ("*", "id", "id, s", "ID, S", "s, id, part", "id, us, zone_us", 'id AS "Id", u64', 'id, "Mixed", d, b, bin')


def written(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Values:
    """Rows, and literals beside a column: as Needlepoint and as DuckDB read them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rows = 0
        self.has_more = self.is_wide = False

    def table(self, count: int) -> pa.Table:
        chance = self.chance

        def some(choose: Callable[[], Any], type: pa.DataType) -> pa.Array:
            return pa.array([None if chance.random() < 0.1 else choose() for _ in range(count)], type)

        columns = {"id": pa.array(range(self.rows, self.rows + count), pa.int64())}
        self.rows += count
        for name, type in INTEGERS.items():
            pool = [*bounds(type), 0, 1, 5, 7, 40, 100, 127]
            columns[name] = some(lambda pool=pool: chance.choice(pool), type)  # type: ignore[misc]
        columns |= {name: some(lambda: chance.choice(FLOATS), getattr(pa, name)()) for name in ("float32", "float64")}
        for name, type in DECIMALS.items():
            unscaled = [0, 1, -1, 5 * 10**type.scale, -5 * 10**type.scale, 123 * 10 ** (type.scale - 2), 10**8]
            columns[name] = some(
                lambda pool=unscaled, scale=type.scale: decimal.Decimal(chance.choice(pool)).scaleb(-scale), type
            )  # type: ignore[misc]
        for name, type in TIMESTAMPS.items():
            times = some(lambda: FIRST + chance.choice(LATER), pa.timestamp("us"))
            columns[name] = times.cast(pa.timestamp(type.unit), safe=False).cast(pa.int64()).cast(type)
        columns["d"] = some(lambda: FIRST.date() + datetime.timedelta(chance.choice((0, 1, 31, -1))), pa.date32())
        columns["s"] = some(lambda: chance.choice(TEXTS), pa.string())
        columns["large"] = some(lambda: chance.choice(TEXTS), pa.large_string())
        columns["few"] = some(lambda: chance.choice(TEXTS[:6]), pa.string()).dictionary_encode()
        columns["bin"] = some(lambda: chance.choice((b"", b"a", b"\x00\xff", b"ab")), pa.binary())
        columns["b"] = some(lambda: chance.random() < 0.5, pa.bool_())
        columns["Mixed"] = some(lambda: chance.choice((1, 2, 3)), pa.int32())
        widened = (pa.int64(), 10**12) if self.is_wide else (pa.int32(), -7)
        columns["widened"] = some(lambda: chance.choice((1, 2, 3, widened[1])), widened[0])
        if self.has_more:
            columns["more"] = some(lambda: chance.choice((1, 2, 3)), pa.int64())
        return pa.table(columns)

    def literal(self, column: str, kind: str) -> tuple[str, str]:
        chance = self.chance
        if kind == "null":
            return "NULL", "NULL"
        if column in TIMESTAMPS:
            digits = chance.choice(("seconds", "milliseconds", "microseconds"))
            text = (FIRST + chance.choice(LATER)).isoformat(chance.choice(" T"), digits)
            if kind == "instant" and column.startswith("zone"):
                text += chance.choice(("Z", "+00:00", "+09:00", "-02:30"))
                return f"TIMESTAMP '{text}'", f"TIMESTAMPTZ '{text}'"
            return (f"CAST('{text}' AS TIMESTAMP)" if kind == "cast" else f"timestamp  '{text}'",) * 2
        if column in ("s", "large", "few"):
            text = written(chance.choice(TEXTS))
            return (f"CAST({text} AS VARCHAR)" if kind == "cast" else text,) * 2
        if column.startswith("float"):
            special = f"CAST('{chance.choice(('NaN', 'inf', '-inf'))}' AS DOUBLE)"
            return (special if kind == "text" else chance.choice(("0.0", "-0.0", "1.5", "5", "-5.0", "0")),) * 2
        if column in DECIMALS:
            text = chance.choice(("0", "0.00", "5", "-5", "1.23", "1.230", "1.234", "0.005", "10000000", "99999999999"))
            return ({"text": f"'{text}'", "cast": f"CAST({text} AS DECIMAL(20, 4))"}.get(kind, text),) * 2
        if column == "d":
            day = (FIRST + datetime.timedelta(chance.choice((0, 1, 31, -1, 7)))).date()
            return (f"TIMESTAMP '{day} 12:00:00'" if kind == "cast" else f"DATE '{day}'",) * 2
        if column == "bin":
            value = chance.choice((b"", b"a", b"\x00\xff", b"b"))
            return f"X'{value.hex()}'", "'" + "".join(f"\\x{each:02X}" for each in value) + "'::BLOB"
        if column == "b":
            return (chance.choice(("TRUE", "false")),) * 2
        beyond = (-1, -5, -128, -129, 128, 200, 256, 65_536, -(2**31), 2**31, 2**63 - 1, 2**64 - 1, 10**17)
        number = chance.choice((*beyond, *range(9), 40, 100, chance.randrange(500)))
        forms = {
            "zeros": f"{'-' * (number < 0)}00{abs(number)}",
            "point": f"{number}.0",
            "exponent": f"{number}e0",
            "half": f"{number}.5",
            "cast": f"CAST({number} AS DECIMAL(20, 0))",
            "sum": f"{number} + 1",
        }
        return (forms.get(kind, str(number)),) * 2


def bounds(type: pa.DataType) -> tuple[int, int]:
    signed = pa.types.is_signed_integer(type)
    return (-(1 << type.bit_width - 1) if signed else 0), (1 << type.bit_width - signed) - 1


class Lake:
    """A table whose files, columns and definition change, and the same rows in DuckDB."""

    def __init__(self, root: Path, chance: random.Random, access: str) -> None:
        self.root, self.chance = root, chance
        self.lake = needlepoint.open(root, access=access, refresh=0)
        self.values = Values(chance)
        self.files: dict[Path, pa.Table] = {}
        self.written = self.answered = 0
        for _ in range(chance.choice((1, 3, 5))):
            self.add()
        self.create()

    def create(self) -> None:
        self.lake.create_table("t")
        for column in self.chance.sample(("id", "i8", "u64", "s", "us", "zone_us", "d", "narrow"), 3):
            self.lake.create_index("t", column)
        self.judge = self.connected()

    def add(self) -> None:
        chance, part = self.chance, self.chance.choice((1, 2))
        table = self.values.table(chance.choice((1, 20, 90)))
        place = self.root / f"t/part={part}/{self.written}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            table, place, row_group_size=chance.choice((7, 30, 1000)), max_rows_per_page=chance.choice((3, 20, 1000)),
            write_batch_size=3, compression=chance.choice(("zstd", "snappy")), use_dictionary=chance.random() < 0.5,
            write_page_index=chance.random() < 0.7, data_page_version=chance.choice(("1.0", "2.0")),
        )  # fmt: skip
        self.files[place] = table.append_column("part", pa.array([part] * len(table), pa.int64()))
        self.written += 1

    def change(self) -> None:
        kind = self.chance.choice(("add", "remove", "column", "type", "again"))
        if kind == "again":
            self.lake.drop_table("t")
            self.create()
            return
        if kind == "remove" and len(self.files) > 1:
            place = self.chance.choice(list(self.files))
            place.unlink()
            del self.files[place]
        else:
            self.values.has_more |= kind == "column"
            self.values.is_wide |= kind == "type"
            self.add()
        self.lake.sync("t")
        self.judge = self.connected()

    def connected(self) -> duckdb.DuckDBPyConnection:
        rows = pa.concat_tables(
            [
                table.set_column(table.column_names.index("few"), "few", table["few"].cast(pa.string()))
                for table in self.files.values()
            ],
            promote_options="permissive",
        )
        schema = self.lake.table("t").schema
        for name in set(schema.names) - set(rows.column_names):
            rows = rows.append_column(name, pa.nulls(len(rows), schema.field(name).type))
        made = duckdb.connect()
        made.execute("SET TimeZone = 'UTC'")
        made.register("rows", rows.select(schema.names))
        made.execute("CREATE TABLE t AS SELECT * FROM rows")
        made.execute("CREATE VIEW v AS SELECT id, i64, s, us AS moment, i8 + 0 AS sum FROM t WHERE id >= 1")
        return made

    def check(self, query: str, for_duck: str, given: dict[str, Any] | None = None) -> None:
        """The same rows, unless one of them refuses the query: a value has no room in a type."""
        try:
            expected = self.judge.sql(for_duck, params=given).to_arrow_table()
            found = self.lake.sql(query, given).to_arrow()
        except (duckdb.Error, NeedlepointError):
            return
        self.answered += 1
        if "LIMIT" in query and "ORDER" not in query:
            assert len(found) == len(expected), query
        else:
            assert shown(found, "ORDER" in query) == shown(expected, "ORDER" in query), (query, given)


def shown(table: pa.Table, is_sorted: bool) -> list[str]:
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.timestamp("us"))
        columns.append(column.to_pylist())
    rows = list(map(repr, zip(*columns, strict=True)))
    return rows if is_sorted else sorted(rows)


class Form:
    """A query in which the values are open."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.is_plain = chance, chance.random() < 0.5
        plain = ["id", *INTEGERS, "s", "s", *TIMESTAMPS, "part", "widened"]
        others = ["float32", "float64", *DECIMALS, "d", "large", "few", "bin", "b", '"Mixed"']
        kinds = ["plain"] * 3 + ([] if self.is_plain else ["text", "cast", "point", "exponent", "half", "sum", "null"])
        compared = ["<", "<=", ">", ">=", "=", "<>", "BETWEEN"] + ([] if self.is_plain else ["IN", "NOT IN"])
        self.conditions = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            column = chance.choice(plain if self.is_plain else plain + others)
            kind = "instant" if column.startswith("zone") and chance.random() < 0.6 else chance.choice(kinds)
            name = chance.choice((column, column.upper(), f'"{column}"')) if column != '"Mixed"' else column
            operator = "=" if column == "b" else chance.choice(compared)
            self.conditions.append((column.strip('"'), name, operator, kind))
        self.selected = chance.choice(SELECTED)
        ends = ("", " -- the end", "; ", " LIMIT 7", " ORDER BY id DESC LIMIT 5 OFFSET 2")
        self.end = chance.choice(("", "", ";") if self.is_plain else ends)

    def query(self, values: Values) -> tuple[str, str]:
        written = [self._condition(values, *each) for each in self.conditions]
        between = self.chance.choice((" AND ", " and\n"))
        texts = [between.join(each[side] for each in written) for side in (0, 1)]
        mine, theirs = (f"SELECT {self.selected} FROM t WHERE {text}{self.end}" for text in texts)
        return mine, theirs

    def _condition(self, values: Values, column: str, name: str, operator: str, kind: str) -> tuple[str, str]:
        def several(count: int) -> Iterator[tuple[str, ...]]:
            return zip(*(values.literal(column, kind) for _ in range(count)), strict=True)

        if operator == "BETWEEN":
            mine, theirs = (f"{name} BETWEEN {low} AND {high}" for low, high in several(2))
        elif operator in ("IN", "NOT IN"):
            more = ", NULL" if operator == "IN" and self.chance.random() < 0.3 else ""
            mine, theirs = (
                f"{name} {operator} ({', '.join((*each, each[0]))}{more})"
                for each in several(self.chance.choice((1, 5)))
            )
        else:
            space = self.chance.choice(("", " "))
            mine, theirs = (f"{name}{space}{operator}{space}{value}" for (value,) in several(1))
        return mine, theirs


@contextmanager
def counted_plans() -> Iterator[list[str]]:
    """The queries that DataFusion planned."""
    seen: list[str] = []
    original = Planner._rewritten
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Planner, "_rewritten", lambda self, asked: seen.append(asked.query) or original(self, asked))
        yield seen


@pytest.mark.parametrize(("access", "seed"), [("pages", 1), *long(("auto", 2), ("scan", 3), ("pages", 4), ("auto", 5))])
def test_same_answers_as_duckdb(tmp_path: Path, access: str, seed: int) -> None:
    chance = random.Random(seed)
    lake = Lake(tmp_path, chance, access)
    with lake.lake, counted_plans() as planned:
        for _ in range(FORMS):
            form = Form(chance)
            for _ in range(TIMES):
                lake.check(*form.query(lake.values))
                if chance.random() < 0.03:
                    lake.change()
        assert len(planned) < lake.answered


@pytest.mark.parametrize("access", long("pages", "auto"))
def test_parameters_and_views(tmp_path: Path, access: str) -> None:
    chance = random.Random(6)
    lake = Lake(tmp_path, chance, access)
    aware = FIRST.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=5)))
    pools: dict[str, tuple[Any, ...]] = {
        "id": (1, 5, 10**12, -1, 3.0), "i8": (1, -5, 200, 5.0, None), "u64": (0, -1, 2**63, 7), "b": (True, False),
        "float64": (0.0, -0.0, 5), "narrow": (decimal.Decimal("5.00"), decimal.Decimal("1.230"), 5),
        "d": (FIRST.date(),), "us": (FIRST, FIRST + LATER[3]), "ms": (FIRST, FIRST + LATER[2]), "zone_us": (aware,),
        "s": ("", "a", "it's", "日本", "--", None), "bin": (b"a", b""),
    }  # fmt: skip
    with lake.lake:
        lake.lake.sql("CREATE VIEW v AS SELECT id, i64, s, us AS moment, i8 + 0 AS sum FROM t WHERE id >= 1")
        for _ in range(FORMS):
            column, operator = chance.choice(list(pools)), chance.choice(("=", "<", ">=", "<>"))
            query = f"SELECT id, {column} FROM t WHERE {column} {operator} $value"
            for value in pools[column]:
                lake.check(query, query, {"value": value})
            column = chance.choice(("id", "i64", "s", "moment", "sum"))
            for _ in range(3):
                value = lake.values.literal({"moment": "us", "sum": "i64"}.get(column, column), "plain")[0]
                query = f"SELECT * FROM v WHERE {column} {operator} {value}"
                lake.check(query, query)
            if chance.random() < 0.3:
                lake.change()
    assert lake.answered > 10
