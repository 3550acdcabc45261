"""Which columns are cast to a finer unit. tests/integration/test_units.py asks DataFusion."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from needlepoint.query.sql.rewriting.finer_times import digits_of, with_finer_times

TIMES = {
    "s": [pa.timestamp("s")],
    "ms": [pa.timestamp("ms")],
    "z": [pa.timestamp("ms", "UTC")],
    "ns": [pa.timestamp("ns")],
    "two": [pa.timestamp("us"), pa.timestamp("ms")],
}


def cast(column: str, unit: str, zone: str = "None") -> str:
    return f"nullif(arrow_cast({column}, 'Timestamp({unit}, {zone})'), NULL)"


QUOTED, ZONED = cast('"ms"', "Nanosecond"), cast("z", "Microsecond", 'Some("UTC")')


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("t.ms <= x.ns", f"{cast('t.ms', 'Nanosecond')} <= x.ns"),
        ('ns>"ms"', f"ns>{QUOTED}"),
        ("s <> ms AND ms > 5", f"{cast('s', 'Millisecond')} <> ms AND ms > 5"),
        ("ms = '2024-01-01 00:00:00.1' AND ns = ms(1)", None),
        ("a.two = b.two", f"{cast('a.two', 'Microsecond')} = {cast('b.two', 'Microsecond')}"),
        ("i = 5 AND ms IS NULL", None),
        ("ms::BIGINT < CAST(max(ms) AS INT) AND ns = '2024-01-01 00:00:00.0001'", None),
    ],
)
def test_columns_beside_finer_ones(condition: str, expected: str | None) -> None:
    query = "SELECT ms, ns < ms FROM t WHERE {} ORDER BY ms"
    times = {name: type for name, type in TIMES.items() if name != "s" or "s <>" in condition}
    assert with_finer_times(query.format(condition), times) == query.format(expected or condition)


def test_columns_beside_finer_texts() -> None:
    query = "SELECT z FROM t WHERE {} = TIMESTAMP '2024-01-01 00:00:00.0001' GROUP BY z"
    assert with_finer_times(query.format("z"), TIMES) == query.format(ZONED)
    assert with_finer_times(query.format("ns"), TIMES) == query.format("ns")
    both = {"two": [pa.timestamp("ms"), pa.timestamp("ns")]}
    assert with_finer_times(query.format("two"), both) == query.format(cast("two", "Nanosecond"))


def test_names_of_something_else_stay() -> None:
    query = "SELECT count(*) AS ms FROM t HAVING ms > ns"
    assert with_finer_times(query, TIMES) == query
    assert with_finer_times("SELECT * FROM t WHERE ms < ns", {"ns": TIMES["ns"]}).endswith("WHERE ms < ns")


def test_digits_of_parameters() -> None:
    time = datetime.datetime(2024, 1, 1)
    for micro, digits in ((0, 0), (500, 4), (1000, 3), (250_000, 2)):
        assert digits_of(pa.scalar(time.replace(microsecond=micro))) == digits
    assert [digits_of(pa.scalar(each)) for each in ("2024", None, 5)] == [0, 0, 0]
    assert with_finer_times("SELECT 1 FROM t WHERE ms = $p", {"ms": TIMES["ms"]}, 3).endswith("ms = $p")
    assert "Microsecond" in with_finer_times("SELECT 1 FROM t WHERE ms = $p", {"ms": TIMES["ms"]}, 4)
