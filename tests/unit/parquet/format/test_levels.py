from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.parquet.format.levels import LevelsError, begins_record, bit_width, count_records, has_levels
from needlepoint.parquet.format.thrift import varint

# Runs as (value, times), or a list of groups of eight values.
RUNS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 5), st.integers(1, 40)),
        st.lists(st.lists(st.integers(0, 5), min_size=8, max_size=8), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=6,
)


def encode(runs: list[tuple[int, int] | list[list[int]]], highest: int) -> tuple[bytes, list[int]]:
    width = bit_width(highest)
    data, values = b"", []
    for run in runs:
        if isinstance(run, tuple):
            value, times = min(run[0], highest), run[1]
            data += varint(times << 1) + value.to_bytes((width + 7) // 8, "little")
            values += [value] * times
        else:
            flat = [min(value, highest) for group in run for value in group]
            packed = sum(value << (place * width) for place, value in enumerate(flat))
            data += varint(len(run) << 1 | 1) + packed.to_bytes(len(run) * width, "little")
            values += flat
    return data, values


@settings(max_examples=cases(200), deadline=None)
@given(RUNS, st.integers(1, 5), st.integers(0, 7))
def test_counts(runs: list[tuple[int, int] | list[list[int]]], highest: int, cut: int) -> None:
    data, values = encode(runs, highest)
    # The last group may be padded: it has more values than count.
    values = values[: max(1, len(values) - cut)]
    assert count_records(data, highest, len(values)) == (values.count(0), values[0] == 0)
    assert begins_record(data[:8], highest) == (values[0] == 0)
    assert has_levels(data, highest, len(values))


@settings(max_examples=cases(200), deadline=None)
@given(RUNS, st.integers(1, 5), st.data())
def test_levels_that_are_missing(
    runs: list[tuple[int, int] | list[list[int]]], highest: int, data: st.DataObject
) -> None:
    encoded, values = encode(runs, highest)
    assert has_levels(encoded, highest, len(values)) and not has_levels(encoded, highest, len(values) + 1)
    assert not has_levels(encoded[: data.draw(st.integers(0, len(encoded) - 1))], highest, len(values))


@settings(max_examples=cases(200), deadline=None)
@given(st.binary(max_size=40), st.integers(1, 300), st.integers(0, 2**40))
def test_any_bytes_end(data: bytes, highest: int, count: int) -> None:
    with contextlib.suppress(LevelsError):
        records, _ = count_records(data, highest, count)
        assert 0 <= records <= count
        assert has_levels(data, highest, count)
    with contextlib.suppress(LevelsError):
        begins_record(data[:8], highest)


@pytest.mark.parametrize("data", [b"", b"\x08", b"\x00\x00", b"\x01", b"\x03", b"\xff" * 9])
def test_too_short(data: bytes) -> None:
    with pytest.raises(LevelsError):
        count_records(data, 1, 4)
