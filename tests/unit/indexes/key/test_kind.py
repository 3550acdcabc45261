from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.indexes.asking import source_of

from needlepoint.errors import NotIndexable, PayloadDamaged, UsageError
from needlepoint.indexes.hashing import hash_values
from needlepoint.indexes.key.encoding import encode, key_bytes
from needlepoint.indexes.key.kind import KeyKind
from needlepoint.indexes.key.search import keys_of, range_of
from needlepoint.tables.schemas import ordinal

GOLDEN = Path(__file__).parents[3] / "golden" / "keys.json"

values = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(min_value=datetime.datetime(1700, 1, 1), max_value=datetime.datetime(2200, 1, 1)),
    pa.time64("us"): st.times(),
    pa.decimal128(38, 4): st.decimals(-(10**33), 10**33, places=4, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
}


def as_bytes(keys: np.ndarray) -> list[bytes]:
    return [bytes(key) for key in keys]


@pytest.mark.parametrize("type", values, ids=str)
@given(data=st.data())
def test_keys_order_as_values_do_and_equal_values_have_equal_keys(type: pa.DataType, data: st.DataObject) -> None:
    array = pa.array(data.draw(st.lists(values[type], min_size=1, max_size=20)), type)
    keys = as_bytes(encode(array))
    assert {len(key) for key in keys} == {key_bytes(type)}
    scalars = [ordinal(scalar) for scalar in array]
    for left, left_key in zip(scalars, keys, strict=True):
        for right, right_key in zip(scalars, keys, strict=True):
            if left == right:
                assert left_key == right_key
            elif left < right:  # type: ignore[operator]
                assert left_key[:8] <= right_key[:8]


@pytest.mark.parametrize("type", values, ids=str)
@given(data=st.data())
def test_a_predicates_value_has_the_key_of_the_stored_value(type: pa.DataType, data: st.DataObject) -> None:
    array = pa.array(data.draw(st.lists(values[type], min_size=1, max_size=20)), type)
    assert as_bytes(keys_of([ordinal(scalar) for scalar in array], type)) == as_bytes(encode(array))


@given(st.lists(st.floats(), min_size=1), st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_range_of_floats_contains_its_values_and_every_nan(numbers: list[float], low: float, high: float) -> None:
    keys = as_bytes(encode(pa.array(numbers)))
    ranges = range_of(low, high, pa.float64())
    for number, key in zip(numbers, keys, strict=True):
        if math.isnan(number) or low <= number <= high:
            assert any(first <= key <= last for first, last in ranges)


@given(st.lists(st.text(), min_size=1), st.text(), st.text())
def test_a_range_of_strings_contains_its_values(texts: list[str], low: str, high: str) -> None:
    ranges = range_of(low.encode(), high.encode(), pa.string())
    for text, key in zip(texts, as_bytes(encode(pa.array(texts))), strict=True):
        if low.encode() <= text.encode() <= high.encode():
            assert any(first <= key <= last for first, last in ranges)


def test_every_nan_and_both_zeros_have_one_key() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    assert len(set(as_bytes(encode(pa.array(nans))))) == 1
    assert len(set(as_bytes(encode(pa.array([0.0, -0.0]))))) == 1


def test_slices_and_small_widths_encode_the_same() -> None:
    texts = pa.array(["x", None, "dairy cow", "", "y" * 300, "y" * 300 + "z"]).drop_null()
    assert as_bytes(encode(texts.slice(2))) == as_bytes(encode(texts))[2:]
    assert as_bytes(encode(pa.array([5], pa.int8()))) == as_bytes(encode(pa.array([5], pa.int64())))
    assert as_bytes(encode(pa.array([1.5], pa.float32()))) == as_bytes(encode(pa.array([1.5], pa.float64())))
    assert as_bytes(encode(texts.cast(pa.large_binary()))) == as_bytes(encode(texts))


def test_hashes_differ() -> None:
    texts = pa.array([f"{number}" for number in range(200_000)]).cast(pa.large_binary())
    assert len(np.unique(hash_values(texts))) == 200_000


@pytest.mark.parametrize("type", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.null()], ids=str)
def test_types_without_keys_are_refused(type: pa.DataType) -> None:
    with pytest.raises(NotIndexable, match="cannot hold"):
        key_bytes(type, "c", "t")


def test_keys_are_what_they_were_in_the_first_version() -> None:
    """The golden file is never regenerated: existing stores have these keys."""
    arrays = {
        "int64": pa.array([-(2**63), -1, 0, 384209819, 2**63 - 1]),
        "uint64": pa.array([0, 2**64 - 1], pa.uint64()),
        "bool": pa.array([False, True]),
        "date32": pa.array([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
        "timestamp": pa.array([datetime.datetime(2024, 2, 29, 12)], pa.timestamp("us")),
        "decimal": pa.array([decimal.Decimal("-1.50"), decimal.Decimal("9" * 30 + ".99")], pa.decimal128(38, 2)),
        "float64": pa.array([-math.inf, -1.5, -0.0, 2.25, math.inf, math.nan]),
        "string": pa.array(["", "a", "dairy cow", "Ünïcode ✓", "y" * 256, "y" * 257, "y" * 1000]),
        "uuid": pa.array([uuid.UUID("12345678123456781234567812345678").bytes], pa.binary(16)),
    }
    found = {name: [key.hex() for key in as_bytes(encode(array))] for name, array in arrays.items()}
    assert found == json.loads(GOLDEN.read_text())


@given(st.lists(st.floats(), min_size=1), st.floats(), st.floats())
def test_a_range_that_begins_or_ends_with_nan_contains_its_values(
    numbers: list[float], low: float, high: float
) -> None:
    """In the total order of IEEE 754, which DataFusion uses."""
    ranges = range_of(low, high, pa.float64())
    for number, key in zip(numbers, as_bytes(encode(pa.array(numbers))), strict=True):
        if total(low) <= total(number) <= total(high):
            assert any(first <= key <= last for first, last in ranges)


def total(number: float) -> tuple[int, float]:
    """-NaN, numbers, NaN; zeros of both signs are equal."""
    return (int(math.copysign(1, number)), 0.0) if math.isnan(number) else (0, number)


@pytest.mark.parametrize("type", [pa.int64(), pa.string()])
def test_a_payload_has_the_keys_of_the_file(type: pa.DataType) -> None:
    column = pa.array([None if row % 3 == 0 else str(row) for row in range(50)]).cast(type)
    source = source_of({"c": column})
    kind = KeyKind()
    made = kind.build(source)
    ((keys, rows),) = kind.unpack(made.payload, source.fields, source.rows)
    assert made.entries == len(rows)
    assert rows.tolist() == [row for row in range(50) if row % 3]
    assert as_bytes(keys) == as_bytes(encode(column.drop_null()))
    for data in (b"", made.payload[:-1], b"NPKX" + made.payload[4:]):
        with pytest.raises(PayloadDamaged):
            kind.unpack(data, source.fields, source.rows)
    with pytest.raises(PayloadDamaged, match="of other rows"):
        kind.unpack(made.payload, source.fields, 49)


def test_check() -> None:
    kind = KeyKind()
    kind.check("t", [pa.field("c", pa.int64())], {})
    with pytest.raises(NotIndexable, match="one column"):
        kind.check("t", [pa.field("c", pa.int64()), pa.field("d", pa.int64())], {})
    with pytest.raises(UsageError, match="no option 'fpp'"):
        kind.check("t", [pa.field("c", pa.int64())], {"fpp": 0.1})
    with pytest.raises(NotIndexable, match="column 'c' of table 't' is list"):
        kind.check("t", [pa.field("c", pa.list_(pa.int64()))], {})
