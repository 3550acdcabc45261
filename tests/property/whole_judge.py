"""A lake, a DuckDB with copies of its rows, and a plain DataFusion: which of them answers a query correctly.

right       the lake and DuckDB agree
wrong       they differ, and plain DataFusion, which has all rows in memory, agrees with DuckDB
fails       the lake raises an error where DuckDB and plain DataFusion agree
inherited   plain DataFusion differs from DuckDB too: avoid the bug, or document it and do not generate it
refused     neither the lake nor plain DataFusion answers
unasked     DuckDB does not answer, differs from itself without its optimizer, or rounds decimals
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pyarrow as pa
from tests.property.trees import DUCK, LAKE, PLAIN
from tests.property.whole_lakes import LakeSpec, kind_of
from tests.property.whole_queries import WholeQuery

import needlepoint

FINDINGS = ("wrong", "fails", "inherited")
_DECIMAL_LITERALS = "datafusion.sql_parser.parse_float_as_decimal"
# DataFusion's hash joins have bugs that its merge joins do not have, and the other way round. If one of them answers
# correctly, the lake has to.
_VARIANTS: tuple[dict[str, str], ...] = ({}, {"datafusion.optimizer.prefer_hash_join": "false"})
_REFUSALS = (
    "SqlError: NOT IN",
    "SqlError: JOIN … USING",
    "SqlError: SELECT * is not supported",
    "SqlError: ROLLUP, CUBE and GROUPING SETS",
    "SqlError: Schema contains duplicate unqualified field name",
    "SqlError: Projections require unique expression names",
)
# Plain DataFusion answers such a query only where its optimizer finds out that it has no rows.
_UNSUPPORTED = "SqlError: DataFusion does not support this correlated subquery"


@dataclass(frozen=True)
class Verdict:
    name: str
    expected: Any = None
    found: Any = None

    @property
    def is_finding(self) -> bool:
        return self.name in FINDINGS


class Judge:
    def __init__(self, spec: LakeSpec) -> None:
        self.spec = spec
        self.root = Path(tempfile.mkdtemp(prefix="needlepoint-whole-"))
        try:
            for table in spec.tables:
                table.write(self.root)
            self.lake = needlepoint.open(self.root, refresh=600, history="off", workers=1, **spec.settings)
            for table in spec.tables:
                self.lake.create_table(table.name)
            for number, index in enumerate(spec.indexes):
                options = {"most_values": 1_000_000} if index.kind == "distinct" else {}
                self.lake.create_index(
                    index.table, index.column, index.kind, embed=index.embed, name=f"ix{number}", **options
                )
            if any(file.late or file.again for table in spec.tables for file in table.files):
                for table in spec.tables:
                    table.write(self.root, late=True)
                self.lake.engine.snapshots.forget()
            self.rows = {table.name: table.rows() for table in spec.tables}
            self.duck = _duck(spec, self.rows, {name: self.lake.table(name).schema.names for name in self.rows})
            self._plain: dict[int, datafusion.SessionContext] = {}
            self._make_views()
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        self.names: list[str] = []  # columns of the latest answer
        self.runs = 1  # of each query, of which the last answers

    def _make_views(self) -> None:
        """Leave out views that plain DataFusion or DuckDB refuses."""
        views, self.spec = self.spec.views, replace(self.spec, views=())
        plain, kept = self.plain(0), []
        for view in views:
            with suppress(Exception):
                plain.sql(f"CREATE VIEW {view.name} AS {view.query.sql(PLAIN)}")
                plain.sql(f"SELECT * FROM {view.name}").collect()
                self.duck.execute(f"CREATE VIEW {view.name} AS {view.query.sql(DUCK)}")
                kept.append(view)
        made = []
        for view in kept:
            try:
                self.lake.sql(f"CREATE VIEW {view.name} AS {view.query.sql(LAKE)}")
                made.append(view)
            except needlepoint.NeedlepointError as error:
                # docs/reliability.md says what is refused; views over such a view cannot be created either.
                if len(made) == kept.index(view) and not str(error).startswith(("NOT IN", "ROLLUP")):
                    raise
        self.spec = replace(self.spec, views=tuple(made))

    def close(self) -> None:
        self.lake.close()
        self.duck.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Verdicts

    def verdict(self, query: WholeQuery) -> Verdict:
        parameters = query.tree.parameters()
        expected = self.ask_duck(query.duck, parameters)
        if isinstance(expected, str):
            return Verdict("unasked", found=expected)
        found = self.ask(query.lake, parameters)
        if isinstance(found, list) and self._agree(query, expected, found):
            return Verdict("right")
        if isinstance(found, str) and found.startswith(_REFUSALS):
            return Verdict("refused", expected, found)  # as docs/reliability.md says, instead of a wrong answer
        if isinstance(found, str) and found.startswith(_UNSUPPORTED) and not expected:
            return Verdict("refused", expected, found)
        answers = [self.ask_plain(query.tree.sql(PLAIN), parameters, at) for at in range(len(_VARIANTS))]
        if any(isinstance(plain, list) and self._agree(query, expected, plain) for plain in answers):
            return Verdict("fails" if isinstance(found, str) else "wrong", expected, found)
        if isinstance(found, str) and any(isinstance(plain, str) for plain in answers):
            return Verdict("refused", expected, found)
        again = self.ask_duck(query.duck, parameters, optimize=False)
        if isinstance(again, str) or not self._agree(query, expected, again):
            return Verdict("unasked", expected, again)
        if isinstance(found, list) and self._agree(query, expected, _rounded(found, expected)):
            return Verdict("unasked", expected, found)  # DuckDB rounds decimals of 38 digits where set operations meet
        return Verdict("inherited", expected, found)

    def ask_duck(self, sql: str, parameters: dict[str, Any], optimize: bool = True) -> list[Any] | str:
        try:
            if not optimize:
                self.duck.execute("PRAGMA disable_optimizer")
            answer = self.duck.sql(sql, params=parameters or None)
            self.names = answer.columns
            return _fetched(answer)
        except duckdb.Error as error:
            return str(error)
        finally:
            if not optimize:
                self.duck.execute("PRAGMA enable_optimizer")

    def ask(self, sql: str, parameters: dict[str, Any]) -> list[Any] | str:
        """The rows, or the error."""
        try:
            answers = [self.lake.sql(sql, parameters or None).to_arrow() for _ in range(self.runs)]
            return _rows(answers[-1])
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic is not an Exception
            return f"{type(error).__name__}: {str(error)[:300]}"

    def ask_plain(self, sql: str, parameters: dict[str, Any], variant: int = 0) -> list[Any] | str:
        try:
            context = self.plain(variant)
            frame = context.sql(sql, param_values=parameters) if parameters else context.sql(sql)
            return _rows(frame.to_arrow_table())
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            return f"{type(error).__name__}: {str(error)[:300]}"

    def _agree(self, query: WholeQuery, expected: list[Any], found: list[Any]) -> bool:
        if len(expected) != len(found):
            return False
        found = _as_decimals(found, expected)
        if expected == found:
            return True
        keys = query.keys
        if len(keys) >= len(self.names):
            return False
        if any(key not in self.names for key in keys):
            return False  # such a key is not in the answer, but all columns of the answer are keys too
        places = [self.names.index(key) for key in keys]
        if [[row[at] for at in places] for row in expected] != [[row[at] for at in places] for row in found]:
            return False
        if not keys:
            return Counter(expected) == Counter(found)
        unlimited = self.duck.sql(query.unlimited, params=query.tree.parameters() or None)
        return not Counter(found) - Counter(_fetched(unlimited))

    def plain(self, variant: int) -> datafusion.SessionContext:
        """DataFusion with the rows in memory, without any of our code."""
        if variant not in self._plain:
            config = datafusion.SessionConfig({_DECIMAL_LITERALS: "true", **_VARIANTS[variant]})
            self._plain[variant] = context = datafusion.SessionContext(config)
            for name, rows in self.rows.items():
                ordered = rows.select(self.lake.table(name).schema.names)
                batches = ordered.to_batches() or [pa.RecordBatch.from_pylist([], ordered.schema)]
                context.register_record_batches(name, [batches])
            for view in self.spec.views:
                context.sql(f"CREATE VIEW {view.name} AS {view.query.sql(PLAIN)}")
        return self._plain[variant]


def _duck(spec: LakeSpec, rows: dict[str, pa.Table], names: dict[str, list[str]]) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute("SET TimeZone = 'UTC'")
    made.execute("SET threads = 1")
    for table in spec.tables:
        fields = {field.name: field for field in (*table.fields, *table.partitions)}
        wanted = ", ".join(f'CAST("{name}" AS {kind_of(fields[name].kind).duck_type}) AS "{name}"'
                           for name in names[table.name])  # fmt: skip
        made.register("given", rows[table.name])
        made.execute(f"CREATE TABLE {table.name} AS SELECT {wanted} FROM given")
        made.unregister("given")
    return made


def _fetched(answer: duckdb.DuckDBPyRelation) -> list[Any]:
    """DuckDB makes Python values of instants only with pytz."""
    is_zoned = any(str(column) == "TIMESTAMP WITH TIME ZONE" for column in answer.types)
    return _rows(answer.to_arrow_table()) if is_zoned else _plain_rows(answer.fetchall())


def _rows(table: pa.Table) -> list[Any]:
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):  # as UTC: DataFusion's casts to TIMESTAMPTZ have no zone
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.timestamp("us"))
        values = column.to_pylist()
        if pa.types.is_floating(column.type):
            values = [_number(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True)) if columns else []


def _as_decimals(found: list[Any], expected: list[Any]) -> list[Any]:
    """Floats as decimals where DuckDB has decimals: without a decimal beside it, a literal such as 8.64 is a float."""
    places = {at for row in expected for at, value in enumerate(row) if isinstance(value, Decimal)}
    if not any(isinstance(row[at], float) for row in found for at in places):
        return found
    return [
        tuple(Decimal(repr(v)) if at in places and isinstance(v, float) else v for at, v in enumerate(row))
        for row in found
    ]


def _rounded(found: list[Any], expected: list[Any]) -> list[Any]:
    """Decimals with as many digits after the point as the expected ones of their column."""
    digits: dict[int, Decimal] = {}
    for row in expected:
        digits |= {at: Decimal(1).scaleb(int(v.as_tuple().exponent)) for at, v in enumerate(row) if _is_decimal(v)}
    return [
        tuple(
            v.quantize(digits[at], ROUND_HALF_UP) if at in digits and _is_decimal(v) else v for at, v in enumerate(row)
        )
        for row in found
    ]


def _is_decimal(value: Any) -> bool:
    return isinstance(value, Decimal) and value.is_finite()


def _plain_rows(rows: list[Any]) -> list[Any]:
    if not any(isinstance(value, float) for row in rows[:1] + rows[-1:] for value in row):
        for row in rows:
            if any(isinstance(value, float) for value in row):
                break
        else:
            return rows
    return [tuple(_number(value) for value in row) for row in rows]


def _number(value: Any) -> Any:
    """NaN equals itself, and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value
