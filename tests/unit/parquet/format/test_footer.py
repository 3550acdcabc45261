from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from tests.cases import cases, long

from needlepoint.errors import NotParquet
from needlepoint.objects import open_object
from needlepoint.objects.local import LocalFile
from needlepoint.parquet.card.describe import build_card
from needlepoint.parquet.format.footer import FileMetadata, leaves, parse_footer, read_footer, top_level
from needlepoint.parquet.format.thrift import ThriftError
from needlepoint.parquet.read.page_reader import read_rows
from needlepoint.tables.discovery import discover_table

Lake = Callable[[str], str]
TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4")


def footer(path: str) -> FileMetadata:
    with LocalFile(path) as file:
        metadata = read_footer(file)
        assert file.requests == 1
        return metadata


def test_agrees_with_pyarrow(lake: Lake, any_file: str) -> None:
    path = lake(any_file)
    found = footer(path)
    expected = pq.read_metadata(path)
    assert found.num_rows == expected.num_rows
    assert len(found.row_groups) == expected.num_row_groups
    assert (found.created_by or b"").decode() == expected.created_by
    assert {k: v for k, v in found.key_value if v is not None} == (expected.metadata or {})
    columns = leaves(found.schema)
    assert [".".join(leaf.path) for leaf in columns] == [
        expected.schema.column(n).path for n in range(expected.num_columns)
    ]
    for leaf, number in zip(columns, range(expected.num_columns), strict=True):
        assert leaf.nested == (expected.schema.column(number).max_repetition_level > 0 or len(leaf.path) > 1)
    for number, group in enumerate(found.row_groups):
        theirs = expected.row_group(number)
        assert (group.num_rows, group.total_byte_size) == (theirs.num_rows, theirs.total_byte_size)
        for chunk, column in zip(group.columns, map(theirs.column, range(expected.num_columns)), strict=True):
            assert TYPES[chunk.physical_type] == column.physical_type
            assert CODECS[chunk.codec] == column.compression
            assert chunk.num_values == column.num_values
            assert chunk.total_compressed_size == column.total_compressed_size
            assert chunk.total_uncompressed_size == column.total_uncompressed_size
            assert chunk.data_page_offset == column.data_page_offset
            assert chunk.dictionary_page_offset == column.dictionary_page_offset
            assert (chunk.offset_index_offset is not None) == column.has_offset_index
            assert (chunk.column_index_offset is not None) == column.has_column_index
            statistics = column.statistics
            if statistics is not None and statistics.has_null_count:
                assert chunk.statistics is not None
                assert chunk.statistics.null_count == statistics.null_count


def test_statistics(lake: Lake) -> None:
    chunk = footer(lake("flat/default")).row_groups[0].columns[0]
    assert chunk.statistics is not None
    assert chunk.statistics.min_value == (0).to_bytes(8, "little")
    assert chunk.statistics.max_value == (499).to_bytes(8, "little")
    assert chunk.statistics.null_count == 0


def test_bloom_filter(tmp_path: Path) -> None:
    path = str(tmp_path / "bloom.parquet")
    table = pa.table({"id": range(100), "x": range(100)})
    pq.write_table(table, path, bloom_filter_options={"id": {"ndv": 100, "fpp": 0.01}})
    with_filter, without = footer(path).row_groups[0].columns
    assert with_filter.bloom_filter_offset and with_filter.bloom_filter_length
    assert without.bloom_filter_offset is None


def test_a_footer_longer_than_the_first_read(tmp_path: Path) -> None:
    path = str(tmp_path / "wide.parquet")
    table = pa.table({f"column {n}": [n] for n in range(1000)})
    pq.write_table(table, path)
    with LocalFile(path) as file:
        metadata = read_footer(file)
        assert file.requests == 2
    assert len(metadata.schema) == 1001
    found, _ = read_rows(path, build_card(path), ["column 7"], np.array([0]))
    assert found.to_pydict() == {"column 7": [7]}


def test_top_level_fields_of_a_nested_schema(lake: Lake) -> None:
    schema = footer(lake("nested/default")).schema
    ranges = top_level(schema)
    assert [schema[start].name for start, _ in ranges][:3] == ["id", "list", "large_list"]
    assert ranges[0] == (1, 2) and ranges[1] == (2, 5)


def refuse(path: Path, data: bytes, match: str = ".") -> NotParquet:
    path.write_bytes(data)
    with pytest.raises(NotParquet, match=match) as caught:
        build_card(str(path))
    assert caught.value.hint and caught.value.path == str(path)
    return caught.value


def test_not_parquet(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "file"
    good = Path(lake("flat/tiny_pages")).read_bytes()
    refuse(path, b"", "0 bytes")
    refuse(path, b"PAR1PAR1", "8 bytes")
    refuse(path, b"hello, world" * 10, "not a Parquet file")
    refuse(path, good[:-4], "truncated")
    refuse(path, b"\0" * 20 + b"PAR1", "footer claims 0 bytes")
    refuse(path, good[:-8] + (2**32 - 1).to_bytes(4, "little") + b"PAR1", "footer claims")
    refuse(path, good[:-8] + (len(good) - 12).to_bytes(4, "little") + b"PAR1")
    refuse(path, good[:-8] + (10).to_bytes(4, "little") + b"PAR1", "footer cannot be read")
    refuse(path, good[:-4] + b"PARE", "encrypted")
    for length in np.linspace(0, len(good) - 1, 40).astype(int).tolist():
        refuse(path, good[:length])


def test_garbage(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    path = tmp_path / "file"
    for length in (12, 13, 40, 1000, 70_000):
        refuse(path, random.bytes(length))
        body = random.bytes(length)
        refuse(path, b"PAR1" + body + length.to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("name", ["nested/row_groups", "polars", *long("flat/tiny_pages", "duckdb_nested")])
def test_flipped_bytes_in_the_footer(lake: Lake, tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    good = Path(lake(name)).read_bytes()
    length = int.from_bytes(good[-8:-4], "little")
    indexes = min(
        chunk.offset_index_offset or len(good) for group in footer(lake(name)).row_groups
         for chunk in group.columns
    )  # fmt: skip
    random = np.random.default_rng(11)
    refused = 0
    for start in (len(good) - 8 - length, min(indexes, len(good) - 8 - length)):
        for position in random.integers(start, len(good), cases(50, 20)).tolist():
            data = bytearray(good)
            data[position] ^= int(random.integers(1, 256))
            path.write_bytes(data)
            try:
                card = build_card(str(path))
                names = [field.name for field in card.fields]
                read_rows(str(path), card, names, np.arange(0, min(card.num_rows, 500), 37))
            except NotParquet as error:
                refused += 1
                assert error.path == str(path)
    assert refused


def test_encrypted_columns(tmp_path: Path) -> None:
    class Kms(pe.KmsClient):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return key_bytes

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return wrapped_key

    for plaintext in (True, False):
        configuration = pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["a"]}, plaintext_footer=plaintext)
        properties = pe.CryptoFactory(lambda _: Kms()).file_encryption_properties(
            pe.KmsConnectionConfig(), configuration
        )
        path = tmp_path / f"{plaintext}.parquet"
        pq.write_table(pa.table({"a": [1], "b": [2]}), path, encryption_properties=properties)
        with pytest.raises(NotParquet, match="encrypted"):
            build_card(str(path))


def test_a_summary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    metadata = pq.read_metadata(path)
    metadata.set_file_path("part.parquet")
    metadata.write_metadata_file(str(tmp_path / "_metadata"))
    with pytest.raises(NotParquet, match="is in another file"):
        build_card(str(tmp_path / "_metadata"))


def test_a_schema_that_is_no_tree(lake: Lake) -> None:
    metadata = footer(lake("nested/default"))
    with pytest.raises(ThriftError, match="tree"):
        top_level(metadata.schema[:-1])
    with pytest.raises(ThriftError, match="tree"):
        leaves((*metadata.schema, metadata.schema[-1]))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        build_card(str(tmp_path / "nowhere"))


def test_the_footer_alone_is_enough(lake: Lake) -> None:
    metadata = footer(lake("flat/default"))
    assert parse_footer(metadata.raw) == metadata
    assert metadata.schema_bytes in metadata.raw
    assert os.path.getsize(lake("flat/default")) > len(metadata.raw)  # noqa: PTH202


def test_a_footer_that_counts_other_rows_than_its_row_groups_is_refused(tmp_path: Path) -> None:
    """An early parquet-rs wrote 0; some readers then find the rows, and some find none."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(6)}), path)
    data = path.read_bytes()
    with open_object(str(path)) as file:
        metadata = read_footer(file)
    # FileMetaData { 2: schema, 3: num_rows }: six rows are 0c, zigzag
    place = data.index(metadata.schema_bytes) + len(metadata.schema_bytes)
    assert data[place : place + 2] == b"\x16\x0c"
    path.write_bytes(data[: place + 1] + b"\0" + data[place + 2 :])
    with open_object(str(path)) as file, pytest.raises(NotParquet, match="counts 0 rows, and its row groups have 6"):
        read_footer(file)
    with pytest.raises(NotParquet, match="counts 0 rows"):
        discover_table(str(tmp_path), ["a.parquet"], skip_unfinished=True)
