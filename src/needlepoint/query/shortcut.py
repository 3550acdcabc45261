"""The commonest questions, `SELECT columns FROM table WHERE column = value` or `IN (values)`, understood from the text.

Planning and running SQL costs more than finding the row. What this does not recognise goes to DataFusion, and so does a
lookup of which a file must be scanned.

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

from needlepoint.predicate import Compare, In, Leaf, Ordinal, Predicate, leaves
from needlepoint.query.sql.predicate_extraction import Request, Types

_NUMBER, _TEXT = r"[0-9]{1,18}", r"'[^'\\]*'"
_VALUES = rf"(?:=\s*({_NUMBER}|{_TEXT})|\bIN\s*\(\s*({_NUMBER}(?:\s*,\s*{_NUMBER})*|{_TEXT}(?:\s*,\s*{_TEXT})*)\s*\))"
# Each run of spaces has one place in it to match: two in a row would be tried in all their lengths.
_LOOKUP = re.compile(
    rf"\s*SELECT\s+(\*|\w+(?:\s*,\s*\w+)*)\s+FROM\s+(\w+)\s+WHERE\s+(\w+)\s*{_VALUES}\s*(?:;\s*)?",
    re.IGNORECASE | re.ASCII,
)
_ONE = re.compile(rf"{_NUMBER}|{_TEXT}")


@dataclass(frozen=True, slots=True)
class Lookup:
    """`values` are those asked for, in the column's type; None when it cannot hold one of them."""

    text: str
    table: str
    request: Request
    schema: pa.Schema
    column: str
    values: pa.Array | None

    def agrees(self, request: Request | None, schema: pa.Schema) -> bool:
        """Whether a request and a schema, which DataFusion made of the same query, ask for the same."""
        if request is None or request.columns != self.request.columns or schema.names != self.schema.names:
            return False
        found = [*leaves(request.predicate)]
        return len(found) == 1 and _asked(found[0]) == _asked(next(leaves(self.request.predicate)))


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
    if not types.keys() >= set(columns) or len(set(columns)) < len(columns):
        return None
    listed = found[4] or found[5]
    if listed[0] != "'" and pa.types.is_integer(types[column]):
        numbers = list(dict.fromkeys(map(int, listed.split(","))))
        asked, values = _one_of(column, tuple(numbers)), _array(numbers, types[column])
    elif listed[0] == "'" and pa.types.is_string(types[column]):
        texts = list(dict.fromkeys(text[1:-1] for text in _ONE.findall(listed)))
        asked, values = _one_of(column, tuple(text.encode() for text in texts)), _array(texts, types[column])
    else:
        return None
    schema = pa.schema([(name, types[name]) for name in columns])
    return Lookup(query, table, Request(frozenset([*columns, column]), asked), schema, column, values)


def _asked(leaf: Leaf) -> tuple[str, frozenset[Ordinal]] | None:
    match leaf:
        case Compare(column, "=", value):
            return column, frozenset([value])
        case In(column, values):
            return column, frozenset(values)
    return None


def _one_of(column: str, values: tuple[Ordinal, ...]) -> Predicate:
    return Compare(column, "=", values[0]) if len(values) == 1 else In(column, values)


def _array(values: list[int] | list[str], type: pa.DataType) -> pa.Array | None:
    try:
        return pa.array(values, type)
    except (pa.ArrowException, OverflowError):
        return None
