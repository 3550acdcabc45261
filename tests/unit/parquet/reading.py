"""Compare the rows of a file read by page with those of a scan."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.cases import cases

from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.format.int96 import UNIT
from needlepoint.parquet.read.caches import Caches
from needlepoint.parquet.read.page_reader import read_rows


@cache
def whole(path: str) -> pa.Table:
    return pq.read_table(path, coerce_int96_timestamp_unit=UNIT)


@cache
def _plain_whole(path: str) -> pa.Table:
    return plain(whole(path))


@cache
def card_of(path: str) -> FileCard:
    # From its stored form, as queries get it.
    return FileCard.from_bytes(build_card(path).to_bytes())


def numbers(*rows: int) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


def plain(table: pa.Table) -> pa.Table:
    """Decode dictionaries, since the numbering of values is not part of the answer. `take` does not support views."""
    columns = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        elif pa.types.is_string_view(column.type):
            column = column.cast(pa.string())
        columns.append(column.combine_chunks())
    return pa.table(columns, names=table.column_names)


def same(found: pa.Table, table: pa.Table, rows: np.ndarray, decoded: pa.Table | None = None) -> bool:
    assert found.schema.equals(table.schema, check_metadata=True)
    found.validate(full=True)
    left, right = plain(found), (decoded or plain(table)).take(pa.array(rows, pa.int64()))
    # NaN does not equal NaN, but is the same answer.
    return left.equals(right) or repr(left.to_pylist()) == repr(right.to_pylist())


def check(
    path: str,
    rows: np.ndarray,
    columns: list[str] | None = None,
    card: FileCard | None = None,
    caches: Caches | None = None,
) -> None:
    table = whole(path)
    columns = table.column_names if columns is None else columns
    found, stats = read_rows(path, card or card_of(path), columns, rows, caches)
    assert same(found, table.select(columns), rows, _plain_whole(path).select(columns))
    # Zero pages would mean that whole row groups were read, because the pages were not understood.
    assert (stats.pages > 0) == (len(rows) > 0 and len(columns) > 0)


def check_subsets(path: str, card: FileCard | None = None, caches: Caches | None = None) -> None:
    """Every kind of subset: no row, one, the first, the last, a few, a range, every other row, all."""
    count = whole(path).num_rows
    check(path, numbers(), card=card, caches=caches)
    check(path, np.arange(count), card=card, caches=caches)
    if not count:
        return
    random = np.random.default_rng(1)
    for size in (1, 1, 1, 3, 40)[-cases(5, 3) :]:
        check(path, np.sort(random.choice(count, min(count, size), replace=False)), card=card, caches=caches)
    check(path, numbers(0), card=card, caches=caches)
    check(path, numbers(count - 1), card=card, caches=caches)
    check(path, np.arange(count // 3, count // 2), card=card, caches=caches)
    check(path, np.arange(0, count, 2), card=card, caches=caches)
