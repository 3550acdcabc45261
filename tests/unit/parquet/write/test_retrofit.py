"""A retrofit adds correct page indexes and bloom filters, and does not change the rest of the file."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases, long
from tests.columns import ROWS, flat

from needlepoint.errors import FileChanged, NeedlepointError, NotIndexable, NotParquet, UnknownName
from needlepoint.objects import OpenObject, identify, open_object
from needlepoint.parquet.card.describe import FileDescription, describe
from needlepoint.parquet.format import bloom_filter, page_headers, thrift
from needlepoint.parquet.format.footer import FileMetadata, SchemaElement, read_footer
from needlepoint.parquet.read.filter_reader import probe
from needlepoint.parquet.write.bloom_build import build_filter, hash_array
from needlepoint.parquet.write.embed import Payload, embed, embedded, read_payload, remove
from needlepoint.parquet.write.page_bounds import (
    ASCENDING,
    DESCENDING,
    LONGEST,
    UNORDERED,
    SortOrder,
    order_of,
    raised,
    shortened,
)
from needlepoint.parquet.write.retrofit import retrofit

PAGES = {"write_batch_size": 50, "max_rows_per_page": 100, "row_group_size": 700}


def nested() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "list": pa.array([[*range(n % 4)] for n in range(ROWS)], pa.list_(pa.int64())),
            "point": pa.array([{"x": n} for n in range(ROWS)], pa.struct({"x": pa.int64()})),
        }
    )


def footer(path: Path) -> FileMetadata:
    with open_object(str(path)) as file:
        return read_footer(file)


def bounds(description: FileDescription, name: str) -> list[tuple[Any, ...]]:
    """Whether it is all NULL, minimum and maximum of each page; null counts and order of each chunk."""
    card = description.card
    leaf = card.find(name).first_leaf
    found: list[tuple[Any, ...]] = []
    for group in range(card.num_row_groups):
        index = description.page_bounds[card.chunk_index(leaf, group)]
        assert index is not None
        assert index.null_counts is not None
        pages = zip(index.null_pages.tolist(), index.min_values, index.max_values, strict=True)
        found.append(tuple(page if not page[0] else (True,) for page in pages))
        found.append((index.null_counts.tolist(), index.boundary_order))
    return found


def pages(description: FileDescription) -> dict[str, list[int]]:
    card = description.card
    return {name: getattr(card.pages, name).tolist() for name in ("offset", "size", "first_row")}


def chunk_bytes(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return [data[c.start : c.end] for group in footer(path).row_groups for c in group.columns]


@pytest.mark.covering
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_the_page_index_is_the_one_that_pyarrow_writes(tmp_path: Path, version: str, dictionary: bool) -> None:
    options: dict[str, Any] = {**PAGES, "data_page_version": version, "use_dictionary": dictionary}
    path, other = tmp_path / "file.parquet", tmp_path / "other.parquet"
    pq.write_table(flat(), path, **options)
    pq.write_table(flat(), other, **options, write_page_index=True)
    before, read = chunk_bytes(path), pq.read_table(path)
    done = retrofit(str(path))
    groups, columns = math.ceil(ROWS / 700), len(flat().column_names)
    assert (done.offset_indexes, done.column_indexes, done.bloom_filters) == (groups * columns, groups * columns, 0)
    assert done.skipped == ()
    assert done.identity == identify(str(path))
    assert chunk_bytes(path) == before
    assert pq.read_table(path).equals(read)

    added, written = describe(str(path)), describe(str(other))
    for name in flat().column_names:
        if name in ("half", "long"):  # pyarrow orders halves as bytes, and does not truncate
            continue
        assert bounds(added, name) == bounds(written, name), name
    assert pages(added)["first_row"] == pages(written)["first_row"]


def stored(table: pa.Table, name: str) -> list[Any]:
    return table.column(name).to_pylist()


@pytest.mark.parametrize("name", ["half", "long", "double", "string", "int64"])
def test_bounds_hold_for_the_values_of_each_page(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(flat().select([name]), path, **PAGES, use_dictionary=False)
    retrofit(str(path))
    description = describe(str(path))
    card = description.card
    decode = {
        "half": lambda raw: struct.unpack("<e", raw)[0],
        "double": lambda raw: struct.unpack("<d", raw)[0],
        "int64": lambda raw: struct.unpack("<q", raw)[0],
    }.get(name, bytes.decode)
    values = stored(flat(), name)
    ends = [*card.pages.first_row.tolist()[1:], ROWS]
    found = [index for index in description.page_bounds if index is not None]
    lows = [low for index in found for low in index.min_values]
    highs = [high for index in found for high in index.max_values]
    nulls = [null for index in found for null in index.null_pages.tolist()]
    for start, end, low, high, null in zip(card.pages.first_row.tolist(), ends, lows, highs, nulls, strict=True):
        present = [value for value in values[start:end] if value is not None]
        assert null == (not present)
        if present:
            assert decode(low) <= min(present)
            assert decode(high) >= max(present)
            assert max(len(low), len(high)) <= LONGEST
            if name != "long":
                assert (decode(low), decode(high)) == (min(present), max(present))


def test_orders_of_pages_and_zeros(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(flat(), path, **PAGES, use_dictionary=False)
    retrofit(str(path))
    description = describe(str(path))

    def orders(name: str) -> set[int]:
        return {order for _, order in bounds(description, name)[1::2]}

    assert orders("int64") == {ASCENDING}
    assert orders("down") == {DESCENDING}
    assert orders("int32") == {UNORDERED}
    assert orders("nulls") == {UNORDERED}
    for page in bounds(description, "zeros")[0]:
        assert page == (False, struct.pack("<d", -0.0), struct.pack("<d", 0.0))


def test_nan_and_types_without_order_get_no_bounds(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    table = pa.table(
        {
            "some": pa.array([math.nan if n == 900 else float(n) for n in range(ROWS)]),
            "all": pa.array([math.nan] * ROWS, pa.float32()),
            "legacy": pa.array(range(ROWS), pa.timestamp("ns")),
        }
    )
    pq.write_table(table, path, **PAGES, use_deprecated_int96_timestamps=True)
    done = retrofit(str(path))
    assert done.offset_indexes == 9
    assert done.column_indexes == 2  # for the row groups of `some` without NaN
    assert {(name, why.split(": ")[1]) for name, why in done.skipped} == {
        ("legacy", "the order of its type is not defined"),
        ("all", "it has NaNs"),
        ("some", "it has NaNs"),
    }
    assert pq.read_table(path).column("legacy").equals(table.column("legacy"))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_nested_columns_get_places_and_no_bounds(tmp_path: Path, version: str) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(nested(), path, **PAGES, data_page_version=version)
    done = retrofit(str(path))
    described = describe(str(path)).card
    assert done.column_indexes == 3
    assert ("point.x", "no bounds of pages: nested") in done.skipped
    chunks = [chunk for group in footer(path).row_groups for chunk in group.columns]
    assert all(chunk.offset_index_offset for chunk in chunks if chunk.path[0] != "list")
    assert described.num_rows == ROWS
    assert pq.read_table(path).equals(nested())


def test_a_page_that_begins_inside_a_record_gets_no_offset_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No current writer does that, so the result of the walk is patched; the walk has its own tests."""
    path = tmp_path / "file.parquet"
    pq.write_table(nested(), path)
    walk = page_headers.walk

    def joined(file: OpenObject, chunks: Sequence[page_headers.Chunk]) -> list[page_headers.ChunkPages | None]:
        found = walk(file, chunks)
        return [
            each and replace(each, joined=True) if c.max_repetition else each
            for c, each in zip(chunks, found, strict=True)
        ]

    monkeypatch.setattr(page_headers, "walk", joined)
    done = retrofit(str(path))
    assert ("list.list.element", "a page begins inside a record, or has no rows") in done.skipped
    assert (done.offset_indexes, done.column_indexes) == (2, 1)
    assert pq.read_table(path).equals(nested())


def test_done_again_it_adds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(flat(), path, **PAGES)
    assert retrofit(str(path), bloom=["int64"]).changed
    before = path.read_bytes()
    again = retrofit(str(path), bloom=["int64"])
    assert not again.changed
    assert again.identity == identify(str(path))
    assert path.read_bytes() == before
    more = retrofit(str(path), bloom=["int64", "string"])
    assert (more.offset_indexes, more.bloom_filters) == (0, 3)
    alone = retrofit(str(path), page_index=False, bloom=["double"])
    assert (alone.offset_indexes, alone.column_indexes, alone.bloom_filters) == (0, 0, 3)


def test_what_a_file_has_stays(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(flat(), path, **PAGES, write_page_index=True, bloom_filter_options={"int64": {"ndv": 100}})
    before = footer(path)
    done = retrofit(str(path), bloom=["int64", "int32"])
    assert (done.offset_indexes, done.column_indexes, done.bloom_filters) == (0, 0, 3)
    for old, new in zip(before.row_groups, footer(path).row_groups, strict=True):
        for was, is_now in zip(old.columns, new.columns, strict=True):
            assert was.offset_index_offset == is_now.offset_index_offset
            if was.path != ("int32",):
                assert was == is_now


def test_embedded_indexes_stay_valid(tmp_path: Path) -> None:
    path, other = tmp_path / "file.parquet", tmp_path / "other.parquet"
    payloads = [Payload("key", ("int64",), 1, b"a" * 5000), Payload("text", ("string",), 2, b"b")]
    pq.write_table(flat(), path, **PAGES)
    other.write_bytes(path.read_bytes())
    embed(str(path), payloads)
    retrofit(str(path), bloom=["int64"])
    with open_object(str(path)) as file:
        found = embedded(file, read_footer(file))
        assert found.ignored == ()
        assert [read_payload(file, entry) for entry in found.entries] == [payload.data for payload in payloads]
    retrofit(str(other), bloom=["int64"])
    assert path.read_bytes() != other.read_bytes()
    remove(str(path), lambda entry: True)
    assert path.read_bytes() == other.read_bytes()


def test_refusals(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"id": [1], "flag": [True], "list": [[1]]}), path)
    before = path.read_bytes()
    with pytest.raises(UnknownName, match="Did you mean 'id'"):
        retrofit(str(path), bloom=["ids"])
    with pytest.raises(NotIndexable, match=r"'flag' .* is boolean"):
        retrofit(str(path), bloom=["flag"])
    with pytest.raises(NotIndexable, match="is nested"):
        retrofit(str(path), bloom=["list.list.element"])
    planned = identify(str(path))
    assert path.read_bytes() == before
    retrofit(str(path))
    with pytest.raises(FileChanged):
        retrofit(str(path), identity=planned)
    path.write_bytes(before[:-3])
    with pytest.raises(NotParquet):
        retrofit(str(path))


def read_or_error(path: Path) -> object:
    try:
        return pq.read_table(path).to_pydict()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return type(error)


@pytest.mark.parametrize("dictionary", [True, *long(False)])
def test_flipped_bytes_are_errors_of_ours_or_make_no_difference(tmp_path: Path, dictionary: bool) -> None:
    path = tmp_path / "file.parquet"
    table = flat().select(["int64", "string", "decimal38", "half"]).slice(0, 600)
    pq.write_table(table, path, write_batch_size=50, max_rows_per_page=100, use_dictionary=dictionary)
    good = path.read_bytes()
    random = np.random.default_rng(7)
    for place in random.integers(4, len(good), cases(250, 80)).tolist():
        bad = bytearray(good)
        bad[place] ^= 1 << int(random.integers(8))
        path.write_bytes(bad)
        before = read_or_error(path)
        try:
            done = retrofit(str(path), bloom=["int64", "string"])
        except NeedlepointError:
            assert path.read_bytes() == bad
            continue
        assert str(read_or_error(path)) == str(before), (place, done)


@pytest.mark.parametrize("rows", [0, 1])
def test_small_files(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(flat().slice(0, rows), path)
    before = pq.read_table(path)
    done = retrofit(str(path), bloom=["int64"])
    assert done.changed == bool(rows)
    assert pq.read_table(path).equals(before)
    pq.ParquetWriter(path, flat().schema).close()
    assert not retrofit(str(path), bloom=["int64"]).changed


# Bloom filters

FILTERED = ("int8", "int32", "int64", "uint32", "uint64", "float", "double", "half", "string", "long", "binary",
            "fixed", "date", "timestamp", "seconds", "decimal9", "decimal38", "dictionary", "nulls")  # fmt: skip


def bitsets(path: Path, column: str) -> list[tuple[int, bytes]]:
    data = path.read_bytes()
    found = []
    for group in footer(path).row_groups:
        (chunk,) = (chunk for chunk in group.columns if chunk.path == (column,))
        offset, length = chunk.bloom_filter_offset or 0, chunk.bloom_filter_length or 0
        header = bloom_filter.decode_header(data[offset : offset + length])
        assert header is not None
        assert header.length + header.num_bytes == length
        found.append((header.num_bytes, data[offset + header.length : offset + length]))
    return found


def test_filters_are_those_that_pyarrow_writes(tmp_path: Path) -> None:
    path, other = tmp_path / "file.parquet", tmp_path / "other.parquet"
    pq.write_table(flat(), path, row_group_size=700)
    done = retrofit(str(path), page_index=False, bloom=FILTERED)
    assert done.bloom_filters == 3 * len(FILTERED)
    checked = 0
    for column in FILTERED:
        for group, (size, bitset) in enumerate(bitsets(path, column)):
            part = flat().slice(700 * group, 700)
            distinct = len(part.column(column).unique().drop_null())
            if column == "nulls" or distinct == 0:
                assert bitset == bytes(32)
                continue
            pq.write_table(part, other, bloom_filter_options={column: {"ndv": distinct, "fpp": 0.01}})
            ((theirs, expected),) = bitsets(other, column)
            if size == theirs and column not in ("float", "double", "half"):
                assert bitset == expected, column
                checked += 1
    assert checked > 30


def test_every_value_is_found_and_few_others(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    numbers = np.random.default_rng(2).integers(0, 2**62, 20_000)
    pq.write_table(pa.table({"id": numbers}), path, row_group_size=10_000)
    retrofit(str(path), page_index=False, bloom=["id"])
    card = describe(str(path)).card
    with open_object(str(path)) as file:
        for group in range(2):
            here = numbers[group * 10_000 : (group + 1) * 10_000]
            found = probe(file, card, 0, [group], hash_array(pa.array(here)))
            assert found.all()
            others = np.random.default_rng(3).integers(0, 2**62, 20_000)
            assert probe(file, card, 0, [group], hash_array(pa.array(others))).mean() < 0.012


def test_equal_floats_of_other_bits_are_found() -> None:
    data = build_filter(pa.chunked_array([pa.array([0.0, struct.unpack("<d", b"\1\0\0\0\0\0\xf8\x7f")[0]])]))
    header = bloom_filter.decode_header(data)
    assert header is not None
    blocks = np.frombuffer(data[header.length :], "<u4").reshape(-1, 8)
    for value in (0.0, -0.0, math.nan):
        hashes = bloom_filter.hash_values([struct.pack("<d", value)])
        assert bloom_filter.contains(blocks[:1], hashes).all(), value


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_hashes_are_xxh64(eight: list[int], four: list[int]) -> None:
    for numbers, type, width in ((eight, pa.int64(), 8), (four, pa.int32(), 4)):
        expected = [xxhash.xxh64_intdigest(number.to_bytes(width, "little", signed=True)) for number in numbers]
        assert hash_array(pa.array(numbers, type)).tolist() == expected


# Truncated bounds

letters = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\U0010ffff\ud7ff\ue000é"), max_size=120)


@given(letters.map(str.encode) | st.binary(max_size=150) | st.integers(0, 90).map(lambda n: b"\xff" * n), st.booleans())
@settings(max_examples=cases(300))
def test_cut_bounds_are_bounds(value: bytes, text: bool) -> None:
    low, high = shortened(value, text=text), raised(value, text=text)
    assert low <= value <= high
    assert len(low) <= LONGEST
    if text:
        try:
            value.decode()
        except UnicodeDecodeError:
            return
        low.decode()
        high.decode()


# Orders


def element(physical: int, *, converted: int | None = None, logical: int | None = None, signed: bool = True) -> Any:
    writer = thrift.Writer()
    writer.integer32(1, physical)
    writer.binary(4, b"name")
    if converted is not None:
        writer.integer32(6, converted)
    if logical is not None:
        writer.begin(10)
        writer.begin(logical)
        if logical == 10:
            writer.raw(1, thrift.BYTE, b"\x20")
            writer.boolean(2, signed)
        writer.end()
        writer.end()
    return SchemaElement("name", physical, 2 if physical == 7 else None, 0, 0, writer.finish())


@pytest.mark.parametrize(
    ("physical", "annotation", "order"),
    [
        (0, {}, SortOrder.SIGNED),
        (1, {"converted": 13}, SortOrder.UNSIGNED),
        (1, {"logical": 10, "signed": False}, SortOrder.UNSIGNED),
        (2, {"logical": 10}, SortOrder.SIGNED),
        (2, {"logical": 8}, SortOrder.SIGNED),
        (3, {}, None),
        (5, {}, SortOrder.FLOAT),
        (6, {}, SortOrder.BYTES),
        (6, {"converted": 0}, SortOrder.TEXT),
        (6, {"logical": 13}, SortOrder.BYTES),
        (6, {"converted": 5}, None),  # a decimal of variable length
        (6, {"logical": 17}, None),  # GEOMETRY
        (6, {"logical": 99}, None),
        (7, {"logical": 5}, SortOrder.DECIMAL),
        (7, {"logical": 14}, SortOrder.BYTES),
        (7, {"logical": 15}, SortOrder.HALF),
        (7, {"converted": 21}, None),  # INTERVAL
    ],
)
def test_orders_of_types(physical: int, annotation: dict[str, Any], order: SortOrder | None) -> None:
    assert order_of(element(physical, **annotation)) == order
