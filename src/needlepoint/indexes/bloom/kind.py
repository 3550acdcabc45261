"""The bloom index: filters of our own, for columns whose files have none, and over several columns together.

    filter    file   group 0   group 1          split blocks of 32 bytes, as in Parquet (parquet/format/bloom_filter.py)
    a         ▒▒▒▒   ▒▒        ▒▒               each as large as its distinct values need
    b         ▒▒     ▒▒        ▒
    a and b   ▒▒▒▒   ▒▒        ▒▒               of rows: a = 1 and b = 2 in two different rows is not there

It answers `=` and IN. Hashes are those of ordinals, so it makes no difference how wide a file stores a number. NULLs
are not in the filters. Neither is NaN: the index says nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from needlepoint.errors import UsageError
from needlepoint.indexes.base import ColumnSource, FileIndex, IndexPayload, Options, PayloadHandle
from needlepoint.indexes.bloom.build import FilterBuilder, hash_column
from needlepoint.indexes.bloom.payload import NAME, VERSION, to_bytes
from needlepoint.indexes.bloom.search import BloomIndex
from needlepoint.indexes.values import require_family

FALSE_POSITIVES = 0.01
_MOST_COLUMNS = 16


class BloomKind:
    """Options: `fpp`, the share of absent values that seem to be there; 0.01 is one in a hundred."""

    name = NAME
    version = VERSION

    def check(self, table: str, fields: Sequence[pa.Field], options: Options) -> None:
        if not 1 <= len(fields) <= _MOST_COLUMNS:
            raise UsageError(f"a bloom index has 1 to {_MOST_COLUMNS} columns, not {len(fields)}.")
        for column in fields:
            require_family(self.name, table, column)
        _false_positives(options)

    def build(self, source: ColumnSource) -> IndexPayload:
        names = [column.name for column in source.fields]
        families = [require_family(self.name, "", column) for column in source.fields]
        builder = FilterBuilder(source.row_group_rows, len(names), _false_positives(source.options), source.memory)
        for batch in source.batches():
            builder.add([hash_column(batch.column(name)) for name in names])
        counts, words = builder.finish()
        return IndexPayload(to_bytes(names, families, source.row_group_rows, counts, words), builder.entries)

    def open(self, stored: PayloadHandle, fields: Sequence[pa.Field], options: Options) -> FileIndex:
        return BloomIndex.from_bytes(stored.read(), [column.name for column in fields])


def _false_positives(options: Options) -> float:
    for name in options:
        if name != "fpp":
            raise UsageError(f"a bloom index has no option '{name}'.", hint="It has: fpp.")
    fpp = options.get("fpp", FALSE_POSITIVES)
    if not isinstance(fpp, (int, float)) or isinstance(fpp, bool) or not 1e-6 <= fpp <= 0.5:
        raise UsageError(f"fpp={fpp!r} is not a share from 0.000001 to 0.5.")
    return float(fpp)
