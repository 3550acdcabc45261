"""The columns of one file as index kinds read them: with the table's names and types, a batch at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import NotParquet, PayloadDamaged
from needlepoint.indexes import ColumnSource, Options
from needlepoint.objects import Identity, as_source, is_url, open_object
from needlepoint.parquet import FileCard, FileDescription
from needlepoint.parquet.format import Int64Array, int96
from needlepoint.parquet.write import EmbeddedEntry, is_intact, read_payload
from needlepoint.tables import ALL, scale, unit_of

BATCH_ROWS = 1 << 16
# Bytes of a column that one read asks for. From an object store several requests at the same time bring them.
READ_AHEAD, REMOTE_READ_AHEAD = 1 << 20, 16 << 20


def _ignore(rows: int) -> None:
    return


@dataclass(frozen=True, slots=True)
class FileSource:
    """One version of a file. `trusted` are the checksums of embedded payloads that are used as they are; ALL is each.
    `memory` bounds what a build may hold. `saw` is told how many rows were read."""

    path: str
    identity: Identity
    description: FileDescription
    memory: int
    trusted: frozenset[str] = frozenset()
    saw: Callable[[int], None] = _ignore

    def columns(self, fields: tuple[pa.Field, ...], options: Options, scratch: Path) -> ColumnSource:
        card = self.description.card
        return ColumnSource(
            fields=fields,
            options=options,
            rows=card.num_rows,
            row_group_rows=card.row_group_rows,
            page_rows={each.name: _page_rows(card, each.name) for each in fields},
            batches=lambda: self._batches(fields),
            memory=self.memory,
            scratch=scratch,
        )

    def trusts(self, entry: EmbeddedEntry) -> bool:
        return trusts(self.trusted, entry)

    def is_sound(self, entry: EmbeddedEntry) -> bool:
        """Whether an embedded payload has the bytes that were written."""
        with open_object(self.path, self.identity) as opened:
            opened.check_unchanged(self.identity)
            return is_intact(opened, entry)

    def payload(self, entry: EmbeddedEntry) -> bytes | None:
        """An embedded payload; None when its bytes are damaged."""
        try:
            with open_object(self.path, self.identity) as opened:
                opened.check_unchanged(self.identity)
                return read_payload(opened, entry)
        except PayloadDamaged:
            return None

    def holds(self, entry: EmbeddedEntry, data: bytes) -> bool:
        """Whether an embedded payload is equal to these bytes: then they need not be embedded."""
        return entry.size == len(data) and self.payload(entry) == data

    def _batches(self, fields: tuple[pa.Field, ...]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema(fields)
        card = self.description.card
        present = [each.name for each in fields if card.has(each.name)]
        if not present:
            for start in range(0, card.num_rows, BATCH_ROWS):
                count = min(BATCH_ROWS, card.num_rows - start)
                yield pa.RecordBatch.from_arrays([pa.nulls(count, each.type) for each in fields], schema=schema)
            return
        try:
            with pq.ParquetFile(
                as_source(self.path, self.identity),
                pre_buffer=False,
                buffer_size=REMOTE_READ_AHEAD if is_url(self.path) else READ_AHEAD,
                coerce_int96_timestamp_unit=int96.UNIT,
            ) as opened:
                int96.check(self.path, self.identity, opened.schema, present)
                for batch in opened.iter_batches(BATCH_ROWS, columns=present, use_threads=False):
                    # By name: pyarrow also takes `a.b` for the field of a struct.
                    arrays = [
                        plain_array(batch.column(each.name), each.type)
                        if each.name in present
                        else pa.nulls(batch.num_rows, each.type)
                        for each in fields
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                    self.saw(batch.num_rows)
        except (pa.ArrowException, OSError) as error:
            names = ", ".join(f"'{name}'" for name in itertools.islice(present, 5))
            what = "column" if len(present) == 1 else "columns"
            raise NotParquet(self.path, f"{what} {names} cannot be read: {error}") from error


def trusts(trusted: frozenset[str], entry: EmbeddedEntry) -> bool:
    return ALL in trusted or entry.checksum in trusted


def _page_rows(card: FileCard, column: str) -> Int64Array:
    """The first rows of a column's pages, counted through the file, and the number of rows at the end."""
    if not card.has(column):
        return np.array([0, card.num_rows], np.int64)
    leaf = card.find(column).first_leaf
    return np.unique(np.append(card.pages.first_row[card.leaf_pages(leaf)], card.num_rows))


def plain_array(values: pa.Array, type: pa.DataType) -> pa.Array:
    """Of the table's type, whatever the file calls it."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if values.type.equals(type):
        return values
    try:
        return values.cast(type)
    except pa.ArrowInvalid:
        factor = scale(unit_of(values.type), type)
        if factor is None or factor == 1:
            raise
        return _clamped(values, factor).cast(type)


def _clamped(values: pa.Array, factor: int) -> pa.Array:
    """In a finer unit; a value out of its range becomes the nearest in it, which costs reading a row too many."""
    numbers, most = values.cast(pa.int64()).fill_null(0).to_numpy(), (2**63 - 1) // factor
    scaled = np.clip(numbers, -most, most) * factor
    scaled[numbers > most], scaled[numbers < -most] = 2**63 - 1, -(2**63)
    return pa.array(scaled, mask=values.is_null().to_numpy(zero_copy_only=False))
