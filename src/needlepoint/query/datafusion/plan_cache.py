"""Logical plans of queries that run again.

What a query needs of its tables depends on its text, its parameters, its views, and the schemas of its tables, not on
their files. So it is planned once for each of these, unless its text says what time it is: DataFusion replaces now() by
a literal.

>>> plan_key("SELECT * FROM t WHERE day = today()", None, [], {}, ()) is None
True
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping

import pyarrow as pa

from needlepoint.query.cache.table_state import TableState
from needlepoint.query.sql.views import View

LIMIT_BYTES = 16 << 20
# Of a plan: what each has, and what it has for each character of a text, such as the values of a long list.
PLAN_BYTES, BYTES_OF_CHARACTER = 20_000, 20
_TELLS_TIME = re.compile(r"\b(?:now|today|current_\w+|local\w*|date\s*\(\s*\))", re.IGNORECASE)


def plan_key(
    query: str,
    parameters: Mapping[str, pa.Scalar] | None,
    views: list[View],
    tables: Mapping[str, TableState],
    options: tuple[Hashable, ...],
) -> Hashable | None:
    """What a plan depends on; None if it depends on the time."""
    if any(map(_TELLS_TIME.search, (query, *(view for _, view in views)))):
        return None
    schemas = tuple(sorted((name, state.schema_bytes) for name, state in tables.items()))
    return query, _exact(parameters), tuple(views), schemas, options


def plan_bytes(query: str, views: list[View]) -> int:
    return PLAN_BYTES + BYTES_OF_CHARACTER * (len(query) + sum(len(view) for _, view in views))


def _exact(parameters: Mapping[str, pa.Scalar] | None) -> Hashable:
    """The parameters with their types, bit by bit: 1, 1.0 and 1.00 are equal, and so are 0.0 and -0.0."""
    if not parameters:
        return parameters is None
    arrays = [pa.array([value], value.type) for value in parameters.values()]
    batch = pa.RecordBatch.from_arrays(arrays, [*parameters])
    return batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()
