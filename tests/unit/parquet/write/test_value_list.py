"""Lists of values as DataFusion's example writes and reads them, in payloads and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.indexes.asking import Held, built, source_of

from needlepoint.errors import NotIndexable
from needlepoint.indexes.distinct.kind import DistinctKind
from needlepoint.indexes.distinct.search import DistinctIndex
from needlepoint.objects.local import LocalFile
from needlepoint.parquet.format.footer import read_footer
from needlepoint.parquet.inspect.anatomy import inspect
from needlepoint.parquet.write.embed import EmbeddingWriter, Payload, embed, remove
from needlepoint.parquet.write.retrofit import retrofit
from needlepoint.parquet.write.value_list import decode_values, encode_values, read_list
from needlepoint.predicate import Compare
from needlepoint.stores.base import IndexDamaged

KIND = DistinctKind()


def as_the_example_reads(data: bytes) -> set[str]:
    """`DistinctIndex::new_from_reader` of parquet_embedded_index.rs: `lines()` of the stated length."""
    assert data[:4] == b"IDX1"
    text = data[12 : 12 + int.from_bytes(data[4:12], "little")].decode()
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    *inner, last = lines or [""]
    return {*(line.removesuffix("\r") for line in inner), last} if lines else set()


def as_the_example_writes(values: list[str]) -> bytes:
    """`DistinctIndex::serialize`, whose set has no order."""
    data = "\n".join(values).encode()
    return b"IDX1" + len(data).to_bytes(8, "little") + data


def write_example_file(path: Path, columns: dict[str, list[Any]], listed: list[str], key: str | None = None) -> int:
    """Write a file as the example does: the list after the data, its offset in the footer."""
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
        return read_list(file, read_footer(file))


lines = st.text(st.characters(codec="utf-8"), max_size=5).filter(lambda text: "\n" not in text and text[-1:] != "\r")


@settings(deadline=None)
@given(st.sets(lines, max_size=6))
def test_the_example_reads_what_is_written(values: set[str]) -> None:
    data = encode_values(values)
    assert as_the_example_reads(data) == values
    assert set(decode_values(data)[0]) == (values or {""})
    assert set(decode_values(as_the_example_writes(list(values)))[0]) == (values or {""})


@pytest.mark.parametrize("value", ["a\nb", "\n", "a\r"])
def test_values_that_need_two_lines_are_refused(value: str) -> None:
    column = pa.array(["x", value])
    with pytest.raises(NotIndexable, match=r"column 'c' holds .* newline"):
        KIND.build(source_of({"c": column}, options={"compat": "datafusion"}))
    assert KIND.build(source_of({"c": column})).entries == 2


def test_a_payload_for_both() -> None:
    """DataFusion reads the list at the beginning; we also read the pages after it."""
    column = pa.array(["foo", None, "bar", "", "foo", "foo"])
    source = source_of({"c": column}, [0, 2, 4, 6], options={"compat": "datafusion"})
    payload = KIND.build(source).payload
    assert as_the_example_reads(payload) == {"foo", "bar", ""}
    index = built(KIND, source)
    assert isinstance(index, DistinctIndex)
    assert str(index.find([Compare("c", "=", b"foo")], 1.0).rows) == "0-2, 4-6"
    with pytest.raises(IndexDamaged):
        KIND.open(Held(encode_values(["foo"])), source.fields, {})


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
    """A value can look like a list, and a copied key can point to it."""
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
    # Arrow copies footer keys into new files.
    write_example_file(path, {"category": ["foo"] * 1000}, ["foo"])
    pq.write_table(pq.read_table(path).slice(0, 5), tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet") is None


@pytest.mark.parametrize("data", [b"", b"IDX", b"IDX2" + bytes(8), b"IDX1" + bytes(7), b"IDX1\xff" + bytes(7) + b"a"])
def test_damage(data: bytes) -> None:
    with pytest.raises(ValueError, match="list of"):
        decode_values(data)
    with pytest.raises(ValueError, match="decode"):
        decode_values(b"IDX1\x01" + bytes(7) + b"\xff")


def key_of(path: Path) -> str | None:
    found = (pq.read_metadata(path).metadata or {}).get(b"distinct_index_offset")
    return None if found is None else found.decode()


def listed(path: Path) -> set[str]:
    """The values that the example reads from a file."""
    return as_the_example_reads(path.read_bytes()[int(key_of(path) or "-1") :])


def payload_of(values: list[str], column: str = "c", compat: bool = True) -> Payload:
    options = {"compat": "datafusion"} if compat else {}
    return Payload("distinct", (column,), 1, KIND.build(source_of({column: pa.array(values)}, options=options)).payload)


def test_the_footer_points_at_the_list_wherever_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": ["foo", "bar"], "d": [1, 2]}), path)
    before = path.read_bytes()
    embed(str(path), [Payload("other", ("d",), 1, b"first" * 100)])
    embed(str(path), [payload_of(["foo", "bar"] * 600)])
    assert listed(path) == {"foo", "bar"}
    remove(str(path), lambda entry: entry.kind == "other")  # the list moves up
    assert listed(path) == {"foo", "bar"}
    retrofit(str(path))
    assert listed(path) == {"foo", "bar"}
    embed(str(path), [Payload("other", ("d",), 1, b"again" * 100)])
    assert listed(path) == {"foo", "bar"}
    embed(str(path), [payload_of(["foo", "bar", "baz"])])
    assert listed(path) == {"foo", "bar", "baz"}
    embed(str(path), [payload_of(["foo", "bar"], compat=False)])
    assert key_of(path) is None
    embed(str(path), [payload_of(["foo", "bar"])])
    remove(str(path), lambda entry: True)
    assert key_of(path) is None
    pq.write_table(pa.table({"c": ["foo", "bar"], "d": [1, 2]}), path)
    embed(str(path), [payload_of(["foo", "bar"])])
    remove(str(path), lambda entry: True)
    assert path.read_bytes() == before


def test_a_list_that_another_writer_left_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    offset = write_example_file(path, {"category": ["foo", "bar"], "c": ["x", "y"]}, ["foo", "bar"])
    embed(str(path), [payload_of(["x", "y"])])
    assert (key_of(path), listed(path)) == (str(offset), {"foo", "bar"})
    remove(str(path), lambda entry: True)
    assert (key_of(path), listed(path)) == (str(offset), {"foo", "bar"})
    # A copied key points nowhere.
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"distinct_index_offset": "7"}), path)
    embed(str(path), [payload_of(["x", "y"])])
    assert listed(path) == {"x", "y"}


def test_a_new_file_with_a_list(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"c": ["foo", "bar"]})
    with EmbeddingWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add(payload_of(["foo", "bar"]))
    assert listed(path) == {"foo", "bar"}
    assert [(index.kind, index.problem) for index in inspect(str(path)).indexes] == [("distinct", None)]
    assert pq.read_table(path).equals(table)
