"""Which values parts of times have between two bounds: never fewer than DataFusion computes."""

from __future__ import annotations

import datafusion
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint import time_parts
from needlepoint.time_parts import PARTS, absent, spans_of_months

DAY = 86_400
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ZONES = (None, "UTC", "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati", "-11:00")
CONTEXT = datafusion.SessionContext()


def parts_of(times: pa.Array, part: str) -> list[int | None]:
    frame = CONTEXT.from_arrow(pa.table({"t": times}))
    part_of = datafusion.functions.date_part(part, datafusion.col("t"))
    found: list[int | None] = frame.select(part_of.alias("p")).to_arrow_table()["p"].to_pylist()
    return found


@settings(max_examples=cases(600, 40))
@given(st.data())
def test_no_value_of_a_part_is_missed(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from([*UNITS, "D"]))
    zone = None if unit == "D" else data.draw(st.sampled_from(ZONES))
    part = data.draw(st.sampled_from(["month", "day", "dow"] if unit == "D" else [*PARTS]))
    day = 1 if unit == "D" else DAY * UNITS[unit]
    type = pa.date32() if unit == "D" else pa.timestamp(unit, zone)
    most = 2**31 - 1 if unit == "D" else 2**63 - 1
    near = st.integers(-1_000 * day, 30_000 * day) | st.integers(-800_000 * day, 800_000 * day)
    low = max(-most, min(most, data.draw(near | st.integers(-most, most))))
    width = data.draw(st.integers(0, 3 * day // min(day, 24)) | st.integers(0, 40 * day) | st.integers(0, 500 * day))
    high = min(most, low + width)
    between = [low, high, *data.draw(st.lists(st.integers(low, high), max_size=30))]
    found = parts_of(pa.array(between, pa.int32() if unit == "D" else pa.int64()).cast(type), part)
    cycle, least = PARTS[part]
    for value in range(least, least + cycle):
        bounds = np.array([low]), np.array([high])
        assert not (absent(part, (value,), *bounds, day, int(zone not in (None, "UTC")))[0] and value in found)


@pytest.mark.parametrize(
    ("part", "first", "last", "values"),
    [
        ("month", "2024-01-31T23:59:59", "2024-02-01T00:00:00", {1, 2}),
        ("month", "2023-11-02T00:00:00", "2024-02-01T00:00:00", {11, 12, 1, 2}),
        ("month", "2023-03-02T00:00:00", "2024-02-01T00:00:00", {*range(1, 13)}),
        ("month", "0000-02-02T00:00:00", "0000-03-01T00:00:00", {2, 3}),
        ("month", "-0044-03-15T00:00:00", "-0044-03-15T00:00:00", {3}),
        ("day", "2024-02-28T00:00:00", "2024-03-01T00:00:00", {28, 29, 30, 31, 1}),
        ("day", "1969-12-31T23:59:59", "1969-12-31T23:59:59", {31}),
        ("day", "2024-01-31T00:00:00", "2024-03-01T00:00:00", {*range(1, 32)}),
        ("dow", "2024-03-02T00:00:00", "2024-03-04T00:00:00", {6, 0, 1}),
        ("hour", "1969-12-31T22:59:59", "1970-01-01T01:00:00", {22, 23, 0, 1}),
        ("minute", "1969-12-31T23:58:59", "1970-01-01T00:00:00", {58, 59, 0}),
        ("second", "1969-12-31T23:59:59", "1970-01-01T00:00:00", {59, 0}),
        ("second", "1969-12-31T23:59:59", "1970-01-01T23:00:00", {*range(60)}),
    ],
)
def test_values_between_bounds(part: str, first: str, last: str, values: set[int]) -> None:
    low, high = (np.array([each], "datetime64[s]").astype(np.int64) for each in (first, last))
    cycle, least = PARTS[part]
    found = {each for each in range(least, least + cycle) if not absent(part, (each,), low, high, DAY)[0]}
    assert found == values


def test_no_values_are_nowhere_and_far_times_are_anywhere() -> None:
    low, high = np.array([0, -(2**63), 2**62]), np.array([0, -(2**63), 2**63 - 1])
    assert absent("month", (), low, high, DAY).tolist() == [True, False, False]
    assert not absent("month", (3,), low[1:], high[1:], DAY).any()
    assert absent("hour", (3,), low, high, DAY).tolist() == [True, True, False]
    assert spans_of_months([7], 89_999_960, 91_000_100, day=1) == []


@settings(max_examples=cases(300, 30))
@given(
    st.integers(-300_000, 100_000), st.integers(-10, 4_000), st.sets(st.integers(1, 12), min_size=1), st.integers(0, 1)
)
def test_spans_have_all_days_of_their_months(low: int, width: int, months: set[int], slack: int) -> None:
    high, hours = low + width, 24
    spans = spans_of_months(sorted(months), low * hours, high * hours + 23, hours, slack)
    days = np.arange(low, high + 1)
    wanted = days[np.isin(days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12 + 1, list(months))]
    if spans:
        inside = np.zeros(len(wanted), np.bool_)
        for start, stop in spans:
            inside |= (wanted * hours >= start) & (wanted * hours + 23 <= stop)
        assert inside.all()
        assert slack or sum(stop - start + 1 for start, stop in spans) == len(wanted) * hours
    else:
        assert not len(wanted) or width > 28 * 2 * time_parts._MOST_RUNS
