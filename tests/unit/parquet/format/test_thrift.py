from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.parquet.format import thrift
from needlepoint.parquet.format.thrift import Struct, ThriftError, Writer, parse

INT64 = st.integers(-(2**63), 2**63 - 1)
LEAVES = st.one_of(
    st.booleans(),
    INT64,
    st.floats(allow_nan=False),
    st.binary(max_size=40),
    st.lists(INT64, max_size=20),
    st.lists(st.binary(max_size=9), min_size=1, max_size=20),
)
FIELD_IDS = st.integers(-300, 32767)
TREES = st.recursive(
    st.dictionaries(FIELD_IDS, LEAVES, max_size=5),
    lambda trees: st.dictionaries(
        FIELD_IDS, st.one_of(LEAVES, trees, st.lists(trees, min_size=1, max_size=3)), max_size=4
    ),
    max_leaves=8,
)


def write(writer: Writer, tree: dict[int, Any]) -> None:
    for field, value in tree.items():
        match value:
            case bool():
                writer.boolean(field, value)
            case int():
                writer.integer64(field, value)
            case float():
                writer.double(field, value)
            case bytes():
                writer.binary(field, value)
            case dict():
                writer.begin(field)
                write(writer, value)
                writer.end()
            case [bytes(), *_]:
                writer.binaries(field, value)
            case [dict(), *_]:
                writer.structs(field, [encode(each) for each in value])
            case _:
                writer.integers(field, value, thrift.I64)


def encode(tree: dict[int, Any]) -> bytes:
    writer = Writer()
    write(writer, tree)
    return writer.finish()


def read(found: Struct, tree: dict[int, Any]) -> None:
    for field, value in tree.items():
        assert field in found
        match value:
            case bool():
                assert found.optional_boolean(field) is value
            case int():
                assert found.integer64(field) == found.optional_integer64(field) == value
            case float():
                assert found.optional_double(field) == value
            case bytes():
                assert found.binary(field) == value
            case dict():
                read(found.struct(field), value)
            case [bytes(), *_]:
                assert found.binaries(field) == value
            case [dict(), *_]:
                for each, expected in zip(found.structs(field), value, strict=True):
                    read(each, expected)
            case _:
                assert found.integers(field) == value


@settings(max_examples=cases(150), deadline=None)
@given(TREES)
def test_what_is_written_is_read(tree: dict[int, Any]) -> None:
    data = encode(tree)
    found = parse(b"before" + data + b"after", 6)
    assert (found.start, found.end) == (6, 6 + len(data))
    read(found, tree)


@settings(max_examples=cases(300), deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_an_error_at_most(data: bytes) -> None:
    with contextlib.suppress(ThriftError):
        parse(data)


@settings(max_examples=cases(100), deadline=None)
@given(TREES, st.data())
def test_cut_short_is_an_error(tree: dict[int, Any], data: st.DataObject) -> None:
    encoded = encode(tree)
    length = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ThriftError):
        parse(encoded[:length])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x18\xff\xff\xff\xff\x0fx", "a binary of"),
        (b"\x19\xf5\xff\xff\xff\xff\x0f", "a list of"),
        (b"\x1b\xff\xff\xff\xff\x0f\x55", "a map of"),
        (b"\x1c" * 100, "nested deeper"),
        (b"\x19\x19" + b"\x19" * 100, "nested deeper"),
        (b"\x16" + b"\xff" * 11, "64 bits"),
        (b"\x16" + b"\xff" * 9 + b"\x7f", "64 bits"),
        (b"\x1e\x00", "unknown type 14"),
        (b"\x1d1234", "inside a UUID"),
        (b"\x17\x00", "end inside"),
        (b"", "end inside"),
    ],
)
def test_wrong_lengths_and_types(data: bytes, message: str) -> None:
    with pytest.raises(ThriftError, match=message):
        parse(data)


def test_getters_check_types() -> None:
    found = parse(encode({1: 5, 2: b"\xff", 3: [1], 4: True}))
    for getter in (found.binary, found.struct, found.structs):
        with pytest.raises(ThriftError, match="field 1"):
            getter(1)
    # An optional field of another type counts as missing.
    for optional in (found.optional_binary, found.optional_struct, found.optional_boolean, found.optional_double):
        assert optional(1) is None
    with pytest.raises(ThriftError, match="UTF-8"):
        found.text(2)
    with pytest.raises(ThriftError, match="lists int"):
        found.texts(3)
    with pytest.raises(ThriftError, match="field 4 is a boolean, not an integer of 32 bits"):
        found.integer32(4)
    with pytest.raises(ThriftError, match="required field 9"):
        found.integer64(9)
    assert found.structs(9) == []
    assert found.optional_text(9) is None


@pytest.mark.parametrize(("kind", "bits"), [(thrift.I16, 16), (thrift.I32, 32), (thrift.I64, 64)])
def test_integers_of_another_width_are_refused(kind: int, bits: int) -> None:
    found = parse(bytes((1 << 4 | kind, 0x0E, 0)))
    getters = {32: (found.integer32, found.optional_integer32), 64: (found.integer64, found.optional_integer64)}
    for width, both in getters.items():
        for getter in both:
            if width == bits:
                assert getter(1) == 7
            else:
                with pytest.raises(ThriftError, match=f"is an integer of {bits} bits, not an integer of {width}"):
                    getter(1)


def test_kinds_parquet_does_not_use_are_passed_over() -> None:
    # 1: map<i32, binary> { 1: "a" }, 2: byte -1, 3: booleans with both ways of writing false, 4: a UUID
    data = b"\x1b\x01\x58\x02\x01a" + b"\x13\xff" + b"\x19\x31\x01\x02\x00" + b"\x1d" + bytes(16) + b"\0"
    found = parse(data)
    assert found.end == len(data)
    assert 2 in found
    assert found.booleans(3) == [True, False, False]
    assert parse(b"\x1b\x00\x00").end == 3


def test_doubles_are_little_endian() -> None:
    assert encode({1: 1.5}) == b"\x17" + struct.pack("<d", 1.5) + b"\0"


fields = st.lists(
    st.tuples(st.integers(1, 300), st.sampled_from(["integer64", "binary", "boolean"]), st.binary(max_size=5)),
    unique_by=lambda field: field[0],
)


def written(some: list[tuple[int, str, bytes]]) -> bytes:
    """Write the fields in the given order, which need not be ascending."""
    writer = thrift.Writer()
    for field, kind, value in some:
        if kind == "integer64":
            writer.integer64(field, len(value) - 3)
        elif kind == "boolean":
            writer.boolean(field, len(value) % 2 == 0)
        else:
            writer.binary(field, value)
    return writer.finish()


@given(
    fields, st.dictionaries(st.integers(1, 300), st.none() | st.binary(max_size=3), max_size=3), st.binary(max_size=3)
)
def test_a_rewritten_struct_differs_in_the_fields_asked_for(
    some: list[tuple[int, str, bytes]], change: dict[int, bytes | None], around: bytes
) -> None:
    data = around + written(some) + around
    assert thrift.rewrite(data, len(around), {}) == written(some)
    edits = {
        field: None if value is None else (thrift.BINARY, bytes([len(value)]) + value)
        for field, value in change.items()
    }
    found = thrift.rewrite(data, len(around), edits)
    parsed, spans = thrift.parse(found), thrift.spans(found)[0]
    assert parsed.end == len(found)
    kept = {field for field, _, _ in some} - {field for field, value in change.items() if value is None}
    assert {span.field for span in spans} == kept | {field for field, value in change.items() if value is not None}
    original = thrift.parse(written(some))
    for key, value in original._fields.items():
        if key >> 4 not in change:
            assert parsed._fields[key] == value
    for field, changed in change.items():
        assert changed is None or parsed.binary(field) == changed
