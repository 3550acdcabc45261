"""The boundary to pyarrow's private reader: what we use exists, and no other module uses private modules of pyarrow."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import needlepoint
from needlepoint.parquet.read.arrow_reader import ParquetReader, open_reader


def file_of(table: pa.Table) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2, store_schema=False)
    return pa.BufferReader(sink.getvalue())


def test_reads_single_columns_and_row_groups_of_one_thread() -> None:
    table = pa.table({"id": [1, 2, 3], "title": ["a", "b", None]})
    reader = open_reader(file_of(table))
    assert isinstance(reader, ParquetReader)
    assert reader.read_column(1) == table.column("title")
    assert reader.read_row_groups([1], column_indices=[0], use_threads=False) == table.select(["id"]).slice(2)
    assert reader.metadata.schema.names == ["id", "title"]


def test_logical_types_of_parquet_become_extension_types_unless_refused() -> None:
    stored = pa.array([b"\0" * 16])
    table = pa.table({"id": pa.ExtensionArray.from_storage(pa.uuid(), stored.cast(pa.binary(16)))})
    assert open_reader(file_of(table)).read_column(0).type == pa.uuid()
    assert open_reader(file_of(table), extensions=False).read_column(0).type == pa.binary(16)


def test_int96_is_read_in_the_unit_asked_for() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"at": pa.array([0], pa.timestamp("ns"))}), sink, use_deprecated_int96_timestamps=True)
    reader = open_reader(pa.BufferReader(sink.getvalue()), int96_unit="us")
    assert reader.read_column(0).type == pa.timestamp("us")


def test_only_one_module_uses_private_modules_of_pyarrow() -> None:
    root = Path(needlepoint.__file__).parent
    private = re.compile(r"\b(pyarrow|pa|pq)(\.\w+)*\.(_[a-z]|lib\b|core\b)")
    users = [path for path in root.rglob("*.py") if private.search(path.read_text("utf-8"))]
    assert [path.relative_to(root).as_posix() for path in users] == ["parquet/read/arrow_reader.py"]
