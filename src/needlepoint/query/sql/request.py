"""What a query needs of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from needlepoint.predicate import Constant, Predicate

MOST_DIGITS_OF_INT64 = 18

Types = Mapping[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class Request:
    """What one query needs of one table, over all its scans of the table.

    unprunable   columns that DataFusion must not prune by: wide decimals, and floats whose predicates depend on the
                 order of NaN or on the sign of zero
    zeros        columns in which DataFusion would distinguish -0.0 from 0.0, with the zero it looks for
    nested       whether a predicate is on a list, struct or map
    together     columns that share a condition with another column
    limit        the rows of its LIMIT, if any rows of this table that match will do
    """

    columns: frozenset[str]
    predicate: Predicate
    unprunable: frozenset[str] = frozenset()
    nested: bool = False
    zeros: Mapping[str, float] = field(default_factory=dict)
    together: frozenset[str] = frozenset()
    limit: int | None = None

    def hiding(self, columns: Iterable[str], zeros: Mapping[str, float]) -> Request:
        """The request, with these columns unprunable and these zeros."""
        known = {name: zero for name, zero in zeros.items() if name in self.columns}
        return replace(self, unprunable=self.unprunable.union(columns, known), zeros=known)


def everything(columns: Iterable[str]) -> Request:
    """All columns of all rows, in any condition."""
    names = frozenset(columns)
    return Request(names, Constant(True), together=names)


def misleads(type: pa.DataType) -> bool:
    """Whether DataFusion 55 loses rows by the statistics of a column: those of floats exclude NaN, and old writers
    ordered decimals in byte arrays as unsigned bytes."""
    return bool(pa.types.is_floating(type) or (pa.types.is_decimal(type) and type.precision > MOST_DIGITS_OF_INT64))
