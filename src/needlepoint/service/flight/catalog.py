"""Catalogs, schemas, tables and types as the commands of Flight SQL describe them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.errors import NeedlepointError
from needlepoint.lake import Lake
from needlepoint.query import CATALOG, SCHEMA, Limits, quoted


def _fields(*fields: str) -> pa.Schema:
    """From `name type`; a name with `!` is never NULL."""
    parts = [field.split(" ") for field in fields]
    types = {"utf8": pa.string(), "int32": pa.int32(), "uint8": pa.uint8(), "bool": pa.bool_(), "binary": pa.binary(),
             "list": pa.list_(pa.string())}  # fmt: skip
    return pa.schema([pa.field(name.rstrip("!"), types[type], not name.endswith("!")) for name, type in parts])


CATALOGS = _fields("catalog_name! utf8")
SCHEMAS = _fields("catalog_name utf8", "db_schema_name! utf8")
TABLE_TYPES = _fields("table_type! utf8")
TABLES = _fields("catalog_name utf8", "db_schema_name utf8", "table_name! utf8", "table_type! utf8")
TABLES_WITH_SCHEMA = TABLES.append(pa.field("table_schema", pa.binary(), False))
PRIMARY_KEYS = _fields(
    "catalog_name utf8", "db_schema_name utf8", "table_name! utf8", "column_name! utf8", "key_name utf8",
    "key_sequence! int32",
)  # fmt: skip
FOREIGN_KEYS = _fields(
    "pk_catalog_name utf8", "pk_db_schema_name utf8", "pk_table_name! utf8", "pk_column_name! utf8",
    "fk_catalog_name utf8", "fk_db_schema_name utf8", "fk_table_name! utf8", "fk_column_name! utf8",
    "key_sequence! int32", "fk_key_name utf8", "pk_key_name utf8", "update_rule! uint8", "delete_rule! uint8",
)  # fmt: skip
TYPES = _fields(
    "type_name! utf8", "data_type! int32", "column_size int32", "literal_prefix utf8", "literal_suffix utf8",
    "create_params list", "nullable! int32", "case_sensitive! bool", "searchable! int32", "unsigned_attribute bool",
    "fixed_prec_scale! bool", "auto_increment bool", "local_type_name utf8", "minimum_scale int32",
    "maximum_scale int32", "sql_data_type! int32", "datetime_subcode int32", "num_prec_radix int32",
    "interval_precision int32",
)  # fmt: skip

# Name, code of ODBC, size, sign around a literal, radix.
_SQL_TYPES: list[tuple[str, int, int, str | None, int | None]] = [
    ("BOOLEAN", -7, 1, None, None),
    ("TINYINT", -6, 3, None, 10),
    ("BIGINT", -5, 19, None, 10),
    ("VARBINARY", -3, 2147483647, "'", None),
    ("DECIMAL", 3, 76, None, 10),
    ("INTEGER", 4, 10, None, 10),
    ("SMALLINT", 5, 5, None, 10),
    ("FLOAT", 6, 24, None, 2),
    ("DOUBLE", 8, 53, None, 2),
    ("VARCHAR", 12, 2147483647, "'", None),
    ("DATE", 91, 10, "'", None),
    ("TIME", 92, 18, "'", None),
    ("TIMESTAMP", 93, 29, "'", None),
]


_TYPE_NAME = "ARROW:FLIGHT:SQL:TYPE_NAME"
_ARROW_TYPES = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.large_string(): "VARCHAR",
    pa.binary(): "VARBINARY", pa.large_binary(): "VARBINARY",
}  # fmt: skip


def catalogs() -> pa.Table:
    return pa.table([[CATALOG]], schema=CATALOGS)


def schemas(catalog: str | None, pattern: str | None) -> pa.Table:
    names = _fitting([SCHEMA], pattern) if catalog in (None, CATALOG) else []
    return pa.table([[CATALOG] * len(names), names], schema=SCHEMAS)


def table_types() -> pa.Table:
    return pa.table([["TABLE", "VIEW"]], schema=TABLE_TYPES)


def tables(lake: Lake, limits: Limits, asked: Any) -> pa.Table:
    """The tables and views that the caller may read, as the command CommandGetTables asks for them."""
    catalog = asked.catalog if asked.HasField("catalog") else None
    schema = asked.db_schema_filter_pattern if asked.HasField("db_schema_filter_pattern") else None
    pattern = asked.table_name_filter_pattern if asked.HasField("table_name_filter_pattern") else None
    found, views = lake.engine.visible(limits)
    kinds = dict.fromkeys(found, "TABLE") | dict.fromkeys(views, "VIEW")
    names = [name for name in sorted(kinds) if not asked.table_types or kinds[name] in asked.table_types]
    names = _fitting(names, pattern)
    if catalog not in (None, CATALOG) or not _fitting([SCHEMA], schema):
        names = []
    columns: list[Any] = [
        [CATALOG] * len(names), [SCHEMA] * len(names), names, [kinds[name] for name in names]
    ]  # fmt: skip
    if not asked.include_schema:
        return pa.table(columns, schema=TABLES)
    columns.append([_schema(lake, limits, name).serialize().to_pybytes() for name in names])
    return pa.table(columns, schema=TABLES_WITH_SCHEMA)


def _schema(lake: Lake, limits: Limits, name: str) -> pa.Schema:
    try:
        schema = lake.engine.queries.schema(f"SELECT * FROM {quoted(name)}", None, limits)
    except NeedlepointError:  # its files cannot be read now
        return pa.schema([])
    return pa.schema([field.with_metadata({_TYPE_NAME: _sql_type(field.type)}) for field in schema])


def _sql_type(type: pa.DataType) -> str:
    """
    >>> _sql_type(pa.int64()), _sql_type(pa.timestamp("us")), _sql_type(pa.list_(pa.int8()))
    ('BIGINT', 'TIMESTAMP', 'list<item: int8>')
    """
    if type in _ARROW_TYPES:
        return _ARROW_TYPES[type]
    groups = {"TIMESTAMP": pa.types.is_timestamp, "TIME": pa.types.is_time, "DATE": pa.types.is_date,
              "DECIMAL": pa.types.is_decimal, "VARBINARY": pa.types.is_fixed_size_binary}  # fmt: skip
    return next((name for name, fits in groups.items() if fits(type)), str(type))


def types(code: int | None) -> pa.Table:
    chosen = [each for each in _SQL_TYPES if code in (None, each[1])]
    rows = [
        {
            "type_name": name, "data_type": number, "column_size": size, "literal_prefix": sign, "literal_suffix": sign,
            "nullable": 1, "case_sensitive": name == "VARCHAR", "searchable": 3, "fixed_prec_scale": False,
            "local_type_name": name, "sql_data_type": number, "num_prec_radix": radix,
        }
        for name, number, size, sign, radix in chosen
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TYPES)


def _fitting(names: list[str], pattern: str | None) -> list[str]:
    """The names that match a pattern with % and _.

    >>> _fitting(["product", "price"], "prod%"), _fitting(["x"], None)
    (['product'], ['x'])
    """
    if pattern is None:
        return names
    column = pa.array(names, pa.string())
    found: list[str] = column.filter(pc.match_like(column, pattern)).to_pylist()
    return found
