"""The names that a query can say, for completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from needlepoint.query import SCHEMA, Limits

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake


@dataclass(frozen=True, slots=True)
class SqlNames:
    """Tables and views with the types of their columns, and functions."""

    tables: dict[str, dict[str, str]]
    functions: list[str]


def names_in_sql(lake: Lake, limits: Limits | None = None) -> SqlNames:
    """What a query with these limits can name. Tables whose files cannot be read are left out."""
    tables: dict[str, dict[str, str]] = {}
    columns = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = $schema"
    for row in lake.sql(columns, {"schema": SCHEMA}, limits=limits).rows():
        tables.setdefault(row["table_name"], {})[row["column_name"]] = row["data_type"]
    routines = "SELECT DISTINCT routine_name FROM information_schema.routines ORDER BY routine_name"
    return SqlNames(tables, [row["routine_name"] for row in lake.sql(routines, limits=limits).rows()])
