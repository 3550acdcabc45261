"""Files made of the rows of others: the same columns and types, with fewer rows, or more, or in another order.

pyarrow decodes and encodes. What it writes must have the schema of what it read, down to the physical types (INT96,
decimals in integers, UUID): a file with anything that it would write otherwise is not rewritten, and `refused` says why
before a row is read. So files are mixed only with files of the same schema, and no value is ever cast.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import FileChanged, NotParquet
from needlepoint.objects import Identity, as_source, identify, is_url, move
from needlepoint.parquet.card.card import ARROW_SCHEMA
from needlepoint.parquet.format import int96
from needlepoint.parquet.format.validation import ensure_sound
from needlepoint.parquet.write.embedded import INDEXES
from needlepoint.parquet.write.value_list import FOOTER_KEY

# Keys of a footer that describe the bytes of that one file.
_OWN_KEYS = (ARROW_SCHEMA, INDEXES, FOOTER_KEY)
# A page's size in bytes is looked at after so many values.
WRITE_BATCH = 64
BLOOM_BITS = 10.5  # of a filter for each value, at one wrong answer in a hundred
ROW_GROUP_ROWS = 1 << 20

# An integer of the width of its physical type is the same with its annotation and without.
_PLAIN_INTEGER = re.compile(r"^(\s*\w+ int(32|64) .*) \(Int\(bitWidth=\2, isSigned=true\)\);$")
# Polars stores decimals in 16 bytes, and pyarrow in as few as their digits take.
_DECIMAL_WIDTH = re.compile(r"fixed_len_byte_array\(\d+\)(?=.*\(Decimal\()")


@dataclass(frozen=True, slots=True)
class Form:
    """What the writer of a file chose. `drawn` are its columns with their physical types, as text."""

    schema: pa.Schema
    drawn: str
    key_value: Mapping[bytes, bytes]
    compression: Mapping[str, str]
    dictionaries: frozenset[str]
    statistics: frozenset[str]
    blooms: Mapping[str, int]  # bytes of the largest filter
    sorting: tuple[pq.SortingColumn, ...]
    row_groups: int
    rows: int
    types: Mapping[str, bool] = field(default_factory=dict)

    @property
    def kind(self) -> tuple[str, str]:
        """Files of the same kind can be mixed."""
        return self.drawn, str(self.schema.remove_metadata())

    def refused(self) -> str | None:
        """Why a file like this cannot be written; None when it can."""
        made = io.BytesIO()
        try:
            with pq.ParquetWriter(made, self.schema, **self.types) as writer:
                writer.write_table(taken(pa.Table.from_batches([], self.schema), np.empty(0, np.int64)))
            again = pq.ParquetFile(io.BytesIO(made.getvalue()))
        except (pa.ArrowException, ValueError) as error:
            return " ".join(str(error).split())
        for before, after in zip(self.drawn.splitlines(), _drawn(again).splitlines(), strict=False):
            if before != after:
                return f"'{before.strip(' ;')}' would become '{after.strip(' ;')}'"
        if again.schema_arrow.remove_metadata() != self.schema.remove_metadata():
            return "its types would be others"
        return None


@dataclass(frozen=True, slots=True)
class Pages:
    """How the pages of a new file are to be; None for what its form says."""

    rows: int
    bytes: int = 1 << 20
    compression: str | None = None
    dictionary_off: tuple[str, ...] = ()


def form_of(path: str, identity: Identity | None = None) -> Form:
    try:
        ensure_sound(path, identity)
        with pq.ParquetFile(as_source(path, identity)) as opened:
            return _form(opened)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise FileChanged(path, "is gone") from None
        raise NotParquet(path, f"cannot be read: {error}") from error


def _form(opened: pq.ParquetFile) -> Form:
    metadata, schema = opened.metadata, opened.schema
    columns = [schema.column(number) for number in range(len(schema))]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    blooms: dict[str, int] = {}
    for chunk in chunks:
        if chunk.bloom_filter_length:
            blooms[chunk.path_in_schema] = max(chunk.bloom_filter_length, blooms.get(chunk.path_in_schema, 0))
    stored: dict[bytes, bytes] = metadata.metadata or {}
    return Form(
        schema=opened.schema_arrow.remove_metadata(),
        drawn=_drawn(opened),
        key_value={key: value for key, value in stored.items() if key not in _OWN_KEYS},
        compression={chunk.path_in_schema: _codec(chunk.compression) for chunk in reversed(chunks)},
        dictionaries=frozenset(chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page),
        statistics=frozenset(chunk.path_in_schema for chunk in chunks if chunk.is_stats_set),
        blooms=blooms,
        sorting=tuple(groups[0].sorting_columns) if groups else (),
        row_groups=metadata.num_row_groups,
        rows=metadata.num_rows,
        types={
            "store_schema": ARROW_SCHEMA in stored,
            "store_decimal_as_integer": any(
                each.logical_type.type == "DECIMAL" and each.physical_type in ("INT32", "INT64") for each in columns
            ),
            "use_deprecated_int96_timestamps": any(each.physical_type == "INT96" for each in columns),
        },
    )


def _drawn(opened: pq.ParquetFile) -> str:
    # The first two lines are an address in memory and the name of the root, which differs by writer.
    lines = str(opened.schema).splitlines()[2:]
    lines = [_DECIMAL_WIDTH.sub("fixed_len_byte_array", line) for line in lines]
    return "\n".join(_PLAIN_INTEGER.sub(r"\1;", line) for line in lines)


def _codec(name: str) -> str:
    return "none" if name == "UNCOMPRESSED" else name.lower()


def writer_options(form: Form, pages: Pages) -> dict[str, Any]:
    """Options of pyarrow's writer. What is alike for all columns is said once: columns are named by paths there, and
    two can have the same."""
    paths, codecs = frozenset(form.compression), set(form.compression.values())
    if pages.compression is None:
        dictionaries, statistics = form.dictionaries, form.statistics
    else:
        dictionaries = frozenset(path for path in paths if not _is_of(path, pages.dictionary_off))
        statistics = paths
    return {
        **form.types,
        "compression": pages.compression or (codecs.pop() if len(codecs) == 1 else dict(form.compression) or "zstd"),
        "use_dictionary": dictionaries == paths or sorted(dictionaries) or False,
        "write_statistics": statistics == paths or sorted(statistics) or False,
        "write_page_index": True,
        "max_rows_per_page": pages.rows,
        "data_page_size": pages.bytes,
        "write_batch_size": min(WRITE_BATCH, pages.rows),
        "bloom_filter_options": {
            path: {"ndv": max(1, int(size * 8 / BLOOM_BITS)), "fpp": 0.01} for path, size in form.blooms.items()
        },
    }


def _is_of(path: str, columns: Sequence[str]) -> bool:
    return any(path == column or path.startswith(f"{column}.") for column in columns)


def common_keys(forms: Sequence[Form]) -> dict[bytes, bytes]:
    """Footer keys that all have, with the same value."""
    first, *others = [form.key_value for form in forms]
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def taken(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """These rows of a table, in this order. Arrow moves no views: they are texts for as long as that takes."""
    plain = pa.schema([each.with_type(_OF_VIEWS.get(each.type, each.type)) for each in table.schema])
    return table.cast(plain).take(pa.array(rows)).cast(table.schema)


_OF_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def read_unchanged(path: str, identity: Identity, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a file. FileChanged unless it is the one that was meant, before and after."""
    with opened(path, identity) as file:
        schema = file.schema_arrow.remove_metadata()
        if columns is None:
            return pa.Table.from_batches(file.iter_batches(1 << 16), schema)
        # By name: pyarrow takes `a.b` for the field of a struct, too.
        batches = [batch.select(columns) for batch in file.iter_batches(1 << 16, columns=list(columns))]
        return pa.Table.from_batches(batches, pa.schema([schema.field(name) for name in columns]))


@contextmanager
def opened(path: str, identity: Identity, int96_unit: str = "ns") -> Iterator[pq.ParquetFile]:
    """A file to be read. In nanoseconds, which hold all digits of an INT96, it is written again as it was; NotParquet
    when some do not fit."""
    _check(path, identity)
    try:
        ensure_sound(path, identity)
        with pq.ParquetFile(
            as_source(path, identity), pre_buffer=False, buffer_size=1 << 20, coerce_int96_timestamp_unit=int96_unit
        ) as file:
            int96.check(path, identity, file.schema, unit=int96_unit)
            yield file
    except FileNotFoundError:
        raise FileChanged(path, "is gone") from None
    except (pa.ArrowException, OSError) as error:
        _check(path, identity)
        raise NotParquet(path, f"cannot be read: {error}") from error
    _check(path, identity)


def _check(path: str, identity: Identity) -> None:
    try:
        now = identify(path)
    except FileNotFoundError:
        raise FileChanged(path, "is gone") from None
    if now != identity:
        raise FileChanged(path, "changed while it was read")


@contextmanager
def new_file(target: str, schema: pa.Schema, keys: Mapping[bytes, bytes], **options: Any) -> Iterator[pq.ParquetWriter]:
    """A writer of a file or object that is there when it is complete, and not when anything fails."""
    local = target
    if is_url(target):
        handle, local = tempfile.mkstemp(suffix=".parquet")
        os.close(handle)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
    try:
        with pq.ParquetWriter(local, schema.with_metadata(dict(keys) or None), **options) as writer:
            yield writer
        if local != target:
            move(local, target)
    except BaseException:
        Path(local).unlink(missing_ok=True)
        raise


def write_rows(target: str, form: Form, keys: Mapping[bytes, bytes], pages: Pages, tables: Iterable[pa.Table]) -> int:
    """Write tables one after the other, and return how many rows that are."""
    rows = 0
    with new_file(target, form.schema, keys, **writer_options(form, pages)) as writer:
        for table in tables:
            writer.write_table(table, ROW_GROUP_ROWS)
            rows += table.num_rows
    return rows


def without_rows(source: str, identity: Identity, target: str, gone: npt.NDArray[np.int64], page_rows: int) -> int:
    """Write a file like `source` without the rows with these numbers, which ascend; a row group at a time, each of
    which becomes one. Returns the number of rows that are left."""
    form = form_of(source, identity)
    options = writer_options(form, Pages(page_rows))
    left = first = 0
    with (
        opened(source, identity) as file,
        new_file(target, form.schema, form.key_value, sorting_columns=form.sorting or None, **options) as writer,
    ):
        schema = file.schema_arrow.remove_metadata()
        for number in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(number).num_rows
            start, end = np.searchsorted(gone, [first, first + rows])
            if end - start < rows:
                table = pa.Table.from_batches(file.iter_batches(1 << 16, row_groups=[number]), schema)
                here = np.delete(np.arange(rows), gone[start:end] - first)
                kept = table if start == end else taken(table.unify_dictionaries(), here)
                writer.write_table(kept, max(1, kept.num_rows))
                left += kept.num_rows
            first += rows
    return left
