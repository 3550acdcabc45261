from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import cases

from needlepoint.errors import FileError, NotParquet, UnknownName
from needlepoint.parquet.inspect.advice import RULES
from needlepoint.parquet.inspect.anatomy import Anatomy, inspect, inspect_pages
from needlepoint.parquet.inspect.layout import WASTE, EmbeddedIndex, Segment
from needlepoint.parquet.write.embed import Payload, embed

Lake = Callable[[str], str]
ROWS = 60_000


def test_what_pyarrow_says_too(lake: Lake, any_file: str) -> None:
    path = lake(any_file)
    anatomy, metadata = inspect(path), pq.read_metadata(path)
    assert (anatomy.rows, anatomy.size) == (metadata.num_rows, Path(path).stat().st_size)
    assert len(anatomy.row_groups) == metadata.num_row_groups
    assert len(anatomy.columns) == metadata.num_columns
    for number, column in enumerate(anatomy.columns):
        chunks = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
        assert column.compressed == sum(chunk.total_compressed_size for chunk in chunks)
        assert column.uncompressed == sum(chunk.total_uncompressed_size for chunk in chunks)
        assert column.page_index == sum(chunk.has_offset_index for chunk in chunks)
        assert column.values == sum(chunk.num_values for chunk in chunks)
        assert column.name == metadata.schema.column(number).path
        assert column.physical_type == metadata.schema.column(number).physical_type
        assert (column.pages is None) == (metadata.num_rows == 0)
    assert json.loads(json.dumps(anatomy.to_dict()))["rows"] == metadata.num_rows


def test_every_byte_is_accounted_for(lake: Lake, any_file: str) -> None:
    anatomy = inspect(lake(any_file))
    assert anatomy.segments[0].start == 4
    assert anatomy.segments[-1].end == anatomy.size
    assert all(one.end == next.start for one, next in zip(anatomy.segments, anatomy.segments[1:], strict=False))
    assert sum(anatomy.bytes_by_kind().values()) == anatomy.size - 4
    kinds = {each.kind for each in anatomy.segments if each.kind in WASTE}
    # Polars copies the metadata of a chunk after it; the other writers add nothing.
    assert kinds == ({"metadata copy"} if any_file.startswith("polars") else set())


@pytest.mark.long
def test_pages_by_index_and_by_headers_are_the_same(lake: Lake) -> None:
    def without_bounds(path: str, column: str) -> list[tuple[object, ...]]:
        # Not the bytes: with a page index, pyarrow omits the bounds from the headers.
        pages = inspect_pages(path, column)
        return [(page.row_group, page.kind, page.first_row, page.rows, page.values) for page in pages]

    table = pq.read_table(lake("flat/tiny_pages"))
    path = str(Path(lake("flat/tiny_pages")).with_name("without.parquet"))
    options = {"write_batch_size": 10, "data_page_size": 64, "row_group_size": 130}
    pq.write_table(table, path, **options)
    for column in table.column_names:
        assert without_bounds(path, column) == without_bounds(lake("flat/tiny_pages"), column)
    for one, other in zip(inspect(path).columns, inspect(lake("flat/tiny_pages")).columns, strict=True):
        assert one.pages and other.pages
        assert (one.pages.count, one.pages.max_rows) == (other.pages.count, other.pages.max_rows)


def test_pages_hold_all_rows_and_their_bounds(lake: Lake, any_file: str) -> None:
    path = lake(any_file)
    anatomy = inspect(path)
    for column in anatomy.columns[: 12 : cases(1, 3)]:
        data = [page for page in inspect_pages(path, column.name) if page.kind == "data"]
        assert sum(page.values for page in data) == column.values
        # A card joins a page that begins inside a record to the previous page.
        assert len(data) >= (column.pages.count if column.pages else 0)
        if all(page.rows is not None for page in data):
            assert sum(page.rows or 0 for page in data) == anatomy.rows


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        ("id", 0, 499),
        ("int8", -50, 49),
        ("uint64", 0, 99),
        ("float32", 0.0, 33.0),
        ("bool", False, True),
        ("large_string", "large 0", "large 99"),
        ("fixed", "0000000000", "0000000063"),
        ("decimal128", "0.00", "24.75"),
        ("date32", "2024-01-01", "2024-01-01"),
        ("timestamp_ms", "2024-01-01T00:00:00.000", "2024-01-01T00:08:19.000"),
        ("timestamp_ns", "2024-01-01T00:00:00.000000000Z", "2024-01-01T00:08:19.000493000Z"),
        ("time64", "00:00:00.000000", "00:08:19.000493"),
        ("uuid", "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000063"),
        ("dictionary", "word 0", "word 4"),
    ],
)
def test_bounds_are_readable(lake: Lake, column: str, low: object, high: object) -> None:
    pages = inspect_pages(lake("flat/tiny_plain"), column)
    if column == "float32":  # a third is not exact
        assert max(page.max for page in pages if isinstance(page.max, float)) == pytest.approx(high)
        return
    lows, highs = [page.min for page in pages if page.min is not None], [page.max for page in pages]
    assert min(lows) == low  # type: ignore[type-var]
    assert max(each for each in highs if each is not None) == high  # type: ignore[type-var]


def test_nested_columns_are_named_by_path(lake: Lake) -> None:
    path = lake("nested/tiny_pages")
    types = {column.name: column.type for column in inspect(path).columns}
    assert types["struct.y"] == "string"
    assert types["deep.a.b.list.element.list.element"] == "int32"
    assert inspect_pages(path, "list") == inspect_pages(path, "list.list.element")
    with pytest.raises(UnknownName, match=r"Did you mean 'struct\."):
        inspect_pages(path, "struct")
    with pytest.raises(UnknownName, match="Did you mean 'text'"):
        inspect_pages(path, "txet")


def test_gaps_dead_footers_and_embedded_indexes(lake: Lake, tmp_path: Path) -> None:
    good = Path(lake("flat/default")).read_bytes()
    length = int.from_bytes(good[-8:-4], "little") + 8
    footer = good[-length:]
    path = tmp_path / "file.parquet"

    path.write_bytes(good + footer)
    assert inspect(str(path)).bytes_by_kind()["dead footer"] == length
    path.write_bytes(good + footer + footer)
    assert inspect(str(path)).wasted == 2 * length
    path.write_bytes(good[:-length] + b"\0" * 100 + footer)
    assert inspect(str(path)).bytes_by_kind()["padding"] == 100
    path.write_bytes(good[:-length] + b"what is this" * 1000 + footer)
    anatomy = inspect(str(path))
    assert anatomy.bytes_by_kind()["unknown"] == anatomy.wasted == 12_000
    assert any(advice.problem.startswith("wasted: 12.0 kB") for advice in anatomy.advice)

    table = pa.table({"id": [1, 2, 3]})
    blob = b"IDX1" + (5).to_bytes(8, "little") + b"a\nb\nc"
    with path.open("wb") as sink, pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        offset = sink.tell()
        sink.write(blob)
        writer.add_key_value_metadata({"distinct_index_offset": str(offset)})
    embed(str(path), [Payload("key", ("id",), 3, b"abc" * 1000), Payload("text", (), 1, b"")])
    anatomy = inspect(str(path))
    foreign = EmbeddedIndex("distinct", (), offset, len(blob))
    key, text, last = anatomy.indexes
    assert (key.kind, key.columns, key.version, key.size, key.codec, key.problem) == (
        "key",
        ("id",),
        3,
        3000,
        "zstd",
        None,
    )
    assert (text.size, text.length, text.problem) == (0, 4, None)
    assert last == foreign
    assert Segment("embedded index", offset, offset + len(blob) + (key.length or 0) + 4) in anatomy.segments
    assert anatomy.wasted == 0
    assert "distinct_index_offset" in [each.key for each in anatomy.key_values]

    data = bytearray(path.read_bytes())
    data[(key.offset or 0) + 6] ^= 1
    path.write_bytes(data)
    assert [each.problem for each in inspect(str(path)).indexes] == ["does not match its checksum", None, None]
    keys = dict(pq.read_metadata(path).metadata)
    pq.write_table(pa.table({"id": [4]}).replace_schema_metadata(keys), path)
    problems = [each.problem or "" for each in inspect(str(path)).indexes]
    assert problems[0].startswith("describes other data")
    assert problems[2] == "is not there"


@pytest.mark.parametrize("value", ["[", "{}", '[{"offset": -1, "length": "x"}]', '[{"offset": 1e400}]'])
def test_nonsense_about_indexes_does_no_harm(tmp_path: Path, value: str) -> None:
    path = tmp_path / "file.parquet"
    table = pa.table({"id": [1]}).replace_schema_metadata(
        {"needlepoint.indexes": value, "distinct_index_offset": "99999999"}
    )
    pq.write_table(table, path)
    assert inspect(str(path)).wasted == 0


def problems(anatomy: Anatomy) -> list[str]:
    return [advice.problem.split(":")[0] for advice in anatomy.advice]


def write(path: Path, **options: object) -> Anatomy:
    random = np.random.default_rng(0)
    table = pa.table(
        {"id": random.integers(0, 2**62, ROWS), "text": [f"text number {n}" for n in random.permutation(ROWS)]}
    )
    settings = {"write_page_index": True, "max_rows_per_page": 1000, "use_dictionary": False, "compression": "zstd"}
    pq.write_table(table, path, **{**settings, **options})
    return inspect(str(path))


def test_advice(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    assert problems(write(path)) == []
    without = write(path, write_page_index=False)
    assert problems(without) == ["no page index"]
    assert "write_page_index=True" in without.advice[0].remedy and "Spark" in without.advice[0].remedy
    assert set(without.advice[0].columns) == {"id", "text"}
    large = write(path, max_rows_per_page=ROWS, data_page_size=1 << 20)
    assert problems(large) == ["large pages"]
    assert "rows" in large.advice[0].problem
    assert problems(write(path, use_dictionary=True)) == ["useless dictionary"]
    fallen = write(path, use_dictionary=True, dictionary_pagesize_limit=50_000)
    assert problems(fallen) == ["useless dictionary"] and "PLAIN" in fallen.advice[0].problem
    assert problems(write(path, write_statistics=False)) == ["no minimum and maximum"]
    assert problems(write(path, row_group_size=2000)) == ["tiny row groups"]
    assert problems(write(path, compression="none")) == ["not compressed"]
    assert problems(write(path, max_rows_per_page=50)) == ["tiny pages"]
    assert len(RULES) == 8  # each has a case here or above


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"hello, this is text\n", "not a Parquet file"),
        (b"", "too few"),
        (b"PAR1 and no end of it", "truncated"),
        (b"PARE" + b"x" * 20 + b"\x08\0\0\0PARE", "encrypted"),
    ],
)
def test_what_is_no_parquet_file(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(content)
    with pytest.raises(NotParquet, match=says):
        inspect(str(path))


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(FileError, match="directory"):
            inspect(str(path))


def test_bloom_filters_are_found(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"a": [1, 2], "b": [1, 2]}), path, bloom_filter_options={"a": {"ndv": 10, "fpp": 0.1}})
    anatomy = inspect(str(path))
    assert [column.bloom_filters for column in anatomy.columns] == [1, 0]
    assert "bloom filter" in anatomy.bytes_by_kind() and anatomy.wasted == 0
