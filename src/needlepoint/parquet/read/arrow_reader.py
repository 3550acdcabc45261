"""pyarrow's Parquet reader below `pyarrow.parquet.ParquetFile`: the only module that uses pyarrow's private API.

`ParquetFile` cannot read one column by its number, and takes 130 µs for a small file where this reader takes 50. Any
release of pyarrow may change it, so pyproject.toml sets an upper bound, and the unit test of this module checks that
everything used here exists.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow._parquet import ParquetReader

__all__ = ["ParquetReader", "open_reader"]


def open_reader(source: pa.NativeFile, *, extensions: bool = True, int96_unit: str | None = None) -> ParquetReader:
    """A reader of a whole Parquet file; `metadata`, `read_column` and `read_row_groups` of it are used.

    Without `extensions`, Parquet's own UUID, JSON and the like are read as bytes. `int96_unit` is the unit of
    INT96 timestamps, nanoseconds if not given.
    """
    reader = ParquetReader()
    reader.open(source, pre_buffer=False, arrow_extensions_enabled=extensions, coerce_int96_timestamp_unit=int96_unit)
    return reader
