"""The names that a query can say, for completion."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from needlepoint.errors import NeedlepointError
from needlepoint.query import Limits, quoted

if TYPE_CHECKING:
    from needlepoint.lake.lake import Lake


@dataclass(frozen=True, slots=True)
class SqlNames:
    """Tables and views with the types of their columns, and functions."""

    tables: dict[str, dict[str, str]]
    functions: list[str]


def names_in_sql(lake: Lake, limits: Limits | None = None) -> SqlNames:
    """What a query with these limits can name; of the limits, only `tables` matter. Tables whose files cannot be read
    are left out."""
    limits = None if limits is None else Limits(tables=limits.tables)
    tables, views = lake.engine.visible(limits)
    found: dict[str, dict[str, str]] = {}
    for name in (*sorted(tables), *sorted(views)):
        with contextlib.suppress(NeedlepointError):
            schema = lake.engine.queries.schema(f"SELECT * FROM {quoted(name)}", None, limits)
            found[name] = {field.name: str(field.type) for field in schema}
    routines = "SELECT DISTINCT routine_name FROM information_schema.routines ORDER BY routine_name"
    return SqlNames(found, [row["routine_name"] for row in lake.sql(routines, limits=limits).rows()])
