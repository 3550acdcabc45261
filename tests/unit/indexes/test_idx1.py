"""Lists of values as DataFusion's example writes and reads them, and what is made of those that others wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.indexes.asking import Held, built, numbers, source_of

from needlepoint.errors import NotIndexable
from needlepoint.indexes.distinct import DistinctKind
from needlepoint.indexes.distinct_index import DistinctIndex
from needlepoint.indexes.idx1 import ListedValues, from_idx1, read_idx1, split, to_idx1
from needlepoint.objects import LocalFile
from needlepoint.parquet.footer import read_footer
from needlepoint.predicate import Compare, In, IsNull, Not, StartsWith
from needlepoint.stores.base import IndexDamaged

KIND = DistinctKind()


def as_the_example_reads(data: bytes) -> set[str]:
    """`DistinctIndex::new_from_reader` of parquet_embedded_index.rs: `lines()` of what is announced."""
    assert data[:4] == b"IDX1"
    text = data[12 : 12 + int.from_bytes(data[4:12], "little")].decode()
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    *inner, last = lines or [""]
    return {*(line.removesuffix("\r") for line in inner), last} if lines else set()


def as_the_example_writes(values: list[str]) -> bytes:
    """`DistinctIndex::serialize`, whose set has any order."""
    data = "\n".join(values).encode()
    return b"IDX1" + len(data).to_bytes(8, "little") + data


def write_example_file(path: Path, columns: dict[str, list[Any]], listed: list[str], key: str | None = None) -> int:
    """A file as the example writes it: the list after the data, its offset in the footer."""
    table = pa.table(columns)
    with open(path, "wb") as sink:
        writer = pq.ParquetWriter(sink, table.schema)
        writer.write_table(table)
        offset = sink.tell()
        sink.write(as_the_example_writes(listed))
        writer.add_key_value_metadata({"distinct_index_offset": str(offset) if key is None else key})
        writer.close()
    return offset


def read(path: Path) -> bytes | None:
    with LocalFile(str(path)) as file:
        return read_idx1(file, read_footer(file))


lines = st.text(st.characters(codec="utf-8"), max_size=5).filter(lambda text: "\n" not in text and text[-1:] != "\r")


@settings(deadline=None)
@given(st.sets(lines, max_size=6))
def test_the_example_reads_what_is_written(values: set[str]) -> None:
    data = to_idx1(values)
    assert as_the_example_reads(data) == values
    assert set(from_idx1(data)) == (values or {""})


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), unique=True, max_size=6), st.data())
def test_no_value_that_the_example_wrote_is_missed(values: list[str], data: st.DataObject) -> None:
    index = ListedValues.of(from_idx1(as_the_example_writes(values)))
    for value in values:
        asked = value.encode()
        prefix = value[: data.draw(st.integers(0, len(value)))].encode()
        others = [other for other in values if other != value]
        for condition in (Compare("c", "=", asked), In("c", (b"?", asked)), StartsWith("c", prefix), IsNull("c")):
            assert index.find([condition], 1.0).rows is None
        if others:
            assert index.find([Compare("c", "<>", asked)], 1.0).rows is None
            assert index.find([Not(Compare("c", "=", asked))], 1.0).rows is None


def test_values_that_are_not_there_rule_a_file_out() -> None:
    index = ListedValues.of(["foo", "bar"])
    for condition in (Compare("c", "=", b"baz"), In("c", (b"baz", b"qux")), In("c", ()), StartsWith("c", b"q")):
        assert not numbers(index.find([condition], 1.0).rows, 10)
    for maybe in (
        Compare("c", "=", b"a\nb"),
        Compare("c", ">", b"x"),
        Compare("c", "<>", b"foo"),
        Compare("c", "=", 5),
    ):
        assert index.find([maybe], 1.0).rows is None
    assert not numbers(ListedValues.of(["foo"]).find([Compare("c", "<>", b"foo")], 1.0).rows, 10)
    assert index.memory > 0


@pytest.mark.parametrize("value", ["a\nb", "\n", "a\r"])
def test_values_that_need_two_lines_are_refused(value: str) -> None:
    column = pa.array(["x", value])
    with pytest.raises(NotIndexable, match=r"column 'c' holds .* newline"):
        KIND.build(source_of({"c": column}, options={"compat": "datafusion"}))
    assert KIND.build(source_of({"c": column})).entries == 2


def test_a_payload_for_both() -> None:
    """DataFusion reads the list in front; here the pages behind it are known too."""
    column = pa.array(["foo", None, "bar", "", "foo", "foo"])
    source = source_of({"c": column}, [0, 2, 4, 6], options={"compat": "datafusion"})
    payload = KIND.build(source).payload
    assert as_the_example_reads(payload) == {"foo", "bar", ""}
    index = built(KIND, source)
    assert isinstance(index, DistinctIndex)
    assert str(index.find([Compare("c", "=", b"foo")], 1.0).rows) == "0-2, 4-6"
    assert isinstance(KIND.open(Held(to_idx1(["foo"])), source.fields, {}), ListedValues)


def test_the_list_in_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_example_file(path, {"category": ["foo", "bar", "foo"]}, ["foo", "bar"])
    block = read(path)
    assert block == as_the_example_writes(["foo", "bar"])
    assert pq.read_table(path).num_rows == 3


@pytest.mark.parametrize("key", ["", "4", "0", "-5", "1e3", " 100", "99999999", "9" * 30, "\u0661\u0662\u0663"])
def test_offsets_to_nowhere(tmp_path: Path, key: str) -> None:
    path = tmp_path / "a.parquet"
    write_example_file(path, {"category": ["foo", "bar", "foo"]}, ["foo", "bar"], key)
    assert read(path) is None


def test_a_list_inside_of_data_is_none(tmp_path: Path) -> None:
    """A value can look like a list, and a key that was copied can point at it."""
    path = tmp_path / "a.parquet"
    fake = as_the_example_writes(["nothing"])
    table = pa.table({"b": pa.array([fake])})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    offset = path.read_bytes().index(fake)
    with pq.ParquetWriter(
        path, table.schema, compression="none", use_dictionary=False, write_statistics=False
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"distinct_index_offset": str(offset)})
    assert path.read_bytes().index(fake) == offset
    assert read(path) is None


def test_a_file_without_a_list(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"category": ["foo"]}), path)
    assert read(path) is None
    # Arrow copies keys of the footer into files that it writes anew.
    write_example_file(path, {"category": ["foo"] * 1000}, ["foo"])
    pq.write_table(pq.read_table(path).slice(0, 5), tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet") is None


def test_a_list_is_adopted_only_for_the_column_it_is_of() -> None:
    columns = {"category": pa.array(["foo", None, "bar"]), "other": pa.array(["x", "foo", "bar"])}
    block = as_the_example_writes(["bar", "foo"])
    adopted = KIND.adopt(block, source_of({"category": columns["category"]}))
    assert adopted is not None
    assert (adopted.payload, adopted.entries) == (block, 2)
    assert KIND.adopt(block, source_of({"other": columns["other"]})) is None
    assert KIND.adopt(block, source_of({"n": pa.array([1])})) is None
    assert KIND.adopt(block, source_of({"category": pa.array(["foo\nbar"])})) is None
    assert KIND.adopt(block[:-1], source_of({"category": columns["category"]})) is None
    assert KIND.adopt(block, source_of({"category": pa.array([], pa.string())})) is not None


@pytest.mark.parametrize("data", [b"", b"IDX", b"IDX2" + bytes(8), b"IDX1" + bytes(7), b"IDX1\xff" + bytes(7) + b"a"])
def test_damage(data: bytes) -> None:
    with pytest.raises(IndexDamaged):
        split(data)
    with pytest.raises(IndexDamaged):
        from_idx1(b"IDX1\x01" + bytes(7) + b"\xff")
    with pytest.raises(IndexDamaged):
        from_idx1(to_idx1(["a"]) + b"more")
