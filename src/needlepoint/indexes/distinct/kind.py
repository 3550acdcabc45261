"""The distinct index: every value that a column of a file holds, and the pages that hold it (search.py).

A column with few values in files with many pages gains most; one with many is refused, as its index would be as large
as the column.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from needlepoint.errors import NotIndexable, UsageError
from needlepoint.indexes.base import ColumnSource, FileIndex, IndexPayload, Options, PayloadHandle
from needlepoint.indexes.distinct.build import ValueCollector
from needlepoint.indexes.distinct.payload import NAME, VERSION
from needlepoint.indexes.distinct.search import DistinctIndex
from needlepoint.indexes.values import require_family, stored_values
from needlepoint.tables import plain

MOST_VALUES = 10_000
MOST_VALUE_BYTES = 16 << 20


class DistinctKind:
    """Options: `most_values` and `most_bytes` allow longer lists, `compat="datafusion"` writes one for DataFusion."""

    name = NAME
    version = VERSION

    def check(self, table: str, fields: Sequence[pa.Field], options: Options) -> None:
        if len(fields) != 1:
            raise UsageError(f"a distinct index has one column, not {len(fields)}.", hint="Create one for each column.")
        (column,) = fields
        require_family(self.name, table, column)
        _limits(options)
        if _compatible(options) and not _is_text(column):
            raise NotIndexable(
                f"column '{column.name}' is {column.type}, and a list for DataFusion holds strings.",
                hint="Leave out compat.",
            )

    def build(self, source: ColumnSource) -> IndexPayload:
        (column,) = source.fields
        family = require_family(self.name, "", column)
        edges = source.page_rows.get(column.name, source.row_group_rows)
        collector = ValueCollector(column.name, edges, family, *_limits(source.options))
        for batch in source.batches():
            collector.add(stored_values(batch.column(0)))
        payload = collector.payload(text=_is_text(column))
        listed = payload.value_list(column.name) if _compatible(source.options) else b""
        return IndexPayload(listed + payload.to_bytes(), len(payload.values))

    def open(self, stored: PayloadHandle, fields: Sequence[pa.Field], options: Options) -> FileIndex:
        return DistinctIndex.from_bytes(stored.read(), text=_is_text(fields[0]))


def _is_text(column: pa.Field) -> bool:
    return bool(pa.types.is_string(plain(column.type)))


def _limits(options: Options) -> tuple[int, int]:
    known = {"most_values": MOST_VALUES, "most_bytes": MOST_VALUE_BYTES, "compat": None}
    for name, value in options.items():
        if name not in known:
            raise UsageError(f"a distinct index has no option '{name}'.", hint=f"It has: {', '.join(known)}.")
        if name != "compat" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise UsageError(f"{name}={value!r} is not a number of at least 1.")
    return options.get("most_values", MOST_VALUES), options.get("most_bytes", MOST_VALUE_BYTES)


def _compatible(options: Options) -> bool:
    compat = options.get("compat")
    if compat not in (None, "datafusion"):
        raise UsageError(f"compat={compat!r} is not known.", hint="It can be 'datafusion'.")
    return compat is not None
