"""Rows read out of whole row groups by pyarrow itself: the way for pages that cannot be understood one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from needlepoint.objects import Cursor, OpenObject
from needlepoint.parquet.card.card import FileCard
from needlepoint.parquet.format import int96
from needlepoint.parquet.format.page_index import Int64Array
from needlepoint.parquet.format.validation import check_pages
from needlepoint.parquet.read.arrow_reader import open_reader
from needlepoint.parquet.read.take_rows import take


def read_whole(
    file: OpenObject, card: FileCard, columns: Sequence[str], rows: Int64Array
) -> tuple[dict[str, pa.ChunkedArray], int]:
    """The rows of these columns by name, and the number of row groups that were read.

    Row groups begin at rows 0, 100 and 200 of a file. Wanted are rows 120 and 205: groups 1 and 2 are read, and of
    what they hold, positions 20 and 105 are taken.
    """
    starts = card.row_group_rows
    group_of_row = np.searchsorted(starts, rows, side="right") - 1
    groups = np.unique(group_of_row)
    counts = starts[groups + 1] - starts[groups]
    shift = np.cumsum(counts) - counts - starts[groups]
    positions = rows + shift[np.searchsorted(groups, group_of_row)]
    fields = sorted((card.find(name) for name in dict.fromkeys(columns)), key=lambda each: each.first_leaf)
    reader = open_reader(pa.PythonFile(Cursor(file), mode="r"), int96_unit=int96.UNIT)
    int96.check(file.path, card.identity, reader.metadata.schema, columns)
    leaves = [leaf for each in fields for leaf in range(each.first_leaf, each.last_leaf)]
    check_pages(file, groups.tolist(), leaves)
    # One thread: the file is read through Python.
    table = reader.read_row_groups(groups.tolist(), column_indices=leaves, use_threads=False)
    if table.num_rows != counts.sum() or table.num_columns != len(fields):
        raise pa.ArrowInvalid(f"{table.num_rows} rows where the footer has {counts.sum()}")
    arrays = {each.name: take(column, positions) for each, column in zip(fields, table.columns, strict=True)}
    return arrays, len(groups)
