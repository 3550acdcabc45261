"""The commonest question, `SELECT columns FROM table WHERE column = value`, understood without planning it.

Planning SQL against a stub costs a third of a point lookup, and here it can only say what the text says. The query is
run by DataFusion all the same, so what this does not recognise, or recognises too generously, costs time and no more.

>>> types = {"id": pa.int64(), "title": pa.string()}
>>> found = recognise("SELECT title FROM product WHERE id = 5", {"product": types}.get)
>>> found.table, sorted(found.request.columns), found.request.predicate
('product', ['id', 'title'], Compare(column='id', operator='=', value=5))
>>> recognise("SELECT upper(title) FROM product WHERE id = 5", {"product": types}.get) is None
True
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from needlepoint.predicate import Compare
from needlepoint.query.planning import Request, Types

_LOOKUP = re.compile(
    r"\s*SELECT\s+(\*|\w+(?:\s*,\s*\w+)*)\s+FROM\s+(\w+)\s+WHERE\s+(\w+)\s*=\s*(?:([0-9]{1,18})|'([^'\\]*)')\s*;?\s*",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Lookup:
    table: str
    request: Request
    schema: pa.Schema


def recognise(query: str, types_of: Callable[[str], Types | None]) -> Lookup | None:
    """The lookup a query is, or None when it is anything else. SQL folds names to lower case."""
    found = _LOOKUP.fullmatch(query)
    if found is None:
        return None
    selected, table, column = found[1].lower(), found[2].lower(), found[3].lower()
    types = types_of(table)
    if types is None or column not in types:
        return None
    columns = list(types) if selected == "*" else [name.strip() for name in selected.split(",")]
    if not types.keys() >= set(columns):
        return None
    if found[4] is not None and pa.types.is_integer(types[column]):
        predicate = Compare(column, "=", int(found[4]))
    elif found[5] is not None and pa.types.is_string(types[column]):
        predicate = Compare(column, "=", found[5].encode())
    else:
        return None
    schema = pa.schema([(name, types[name]) for name in columns])
    return Lookup(table, Request(frozenset([*columns, column]), predicate), schema)
