"""`matching_rows` beside a comparison in Python."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal

import pyarrow as pa
import pytest

from needlepoint.query.scan.page_reader import matching_rows

DAY = datetime.date(2000, 1, 6)
VALUES = {
    "n": (pa.int64(), [7, 8, None]),
    "s": (pa.string(), ["a", "", None]),
    "day": (pa.date32(), [DAY, DAY + datetime.timedelta(1), None]),
    "d": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("0.00"), None]),
    "ok": (pa.bool_(), [True, False, None]),
}


@pytest.mark.parametrize("names", [*itertools.permutations(VALUES, 1), *itertools.permutations(VALUES, 2)])
def test_one_row_and_several(names: tuple[str, ...]) -> None:
    columns = {name: VALUES[name] for name in names}
    rows = [dict(zip(names, each, strict=True)) for each in itertools.product(*(has for _, has in columns.values()))]
    schema = pa.schema([(name, type) for name, (type, _) in columns.items()])
    for wanted, present in itertools.product(rows, [*([row] for row in rows), rows, []]):
        table = pa.Table.from_pylist(present, schema)
        keys = {name: pa.array([wanted[name]], type) for name, (type, _) in columns.items()}
        expected = [row for row in present if None not in wanted.values() and row == wanted]
        assert matching_rows(table, keys).to_pylist() == expected, (wanted, present)
