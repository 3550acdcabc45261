"""What an index kind is: it builds a small payload from some columns of a file, and answers from it.

    build   a file's columns  ──►  payload (bytes)          once per file, when it is indexed
    open    payload           ──►  FileIndex                cached in memory
    find    conditions        ──►  rows that can match      never too few

A payload is in the lake's store (external) or inside the Parquet file itself (embedded); a kind does not know which.
Kinds are found by name through the entry point group `needlepoint.indexes`; docs/custom-index.md builds one.

Most kinds answer from these payloads (PayloadKind). The key index answers from one sorted store for all files of a
table (EntryKind); `index_stores.py` opens what either of them keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.access import Rows
from needlepoint.parquet.format import Int64Array
from needlepoint.predicate import Condition as Condition

Options = Mapping[str, Any]
"""Options of one index, as given with CREATE INDEX: JSON values."""

KeysAndRows = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Keys, one per line, and the number in the file of the row of each."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """What an index is built from: some columns of one file.

    `row_group_rows` and `page_rows` are edges: the first row of each row group, or of each page of a column, and the
    number of rows at the end. `batches()` reads the columns, with the table's names and types, a part at a time and in
    order; a column that the file lacks is all NULL. It can be called again. `memory` bounds what a build may hold, and
    `scratch` is an empty directory for temporary files.
    """

    fields: tuple[pa.Field, ...]
    options: Options
    rows: int
    row_group_rows: Int64Array
    page_rows: Mapping[str, Int64Array]
    batches: Callable[[], Iterator[pa.RecordBatch]]
    memory: int
    scratch: Path


@dataclass(frozen=True, slots=True)
class IndexPayload:
    """A payload, and how many entries (values, words, bits set …) it has, for `status` to show."""

    payload: bytes
    entries: int


class PayloadHandle(Protocol):
    """A payload that is not read yet."""

    @property
    def checksum(self) -> str:
        """The checksum of its bytes."""
        ...

    @property
    def size(self) -> int: ...

    def read(self) -> bytes:
        """The payload; IndexDamaged when its bytes are not those that were written."""
        ...

    def directory(self, unpack: Callable[[bytes, Path], None]) -> Path:
        """The directory to which `unpack(payload, directory)` has written the payload's files. The first process that
        needs a content unpacks it; the directory stays until the cache is swept."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of the file outside of which the conditions are not TRUE, and a few words for `explain`.

    None: the index does not know, or a scan is faster; then all rows can match. `exact`: nearly all of the rows match,
    so a reader fetches all columns at once; else it reads the columns of the conditions first.
    """

    rows: Rows | None
    why: str = ""
    exact: bool = False


class FileIndex(Protocol):
    """An open payload. Several threads use it at the same time."""

    @property
    def memory(self) -> int:
        """About how many bytes it holds."""
        ...

    def find(self, conditions: Sequence[Condition], seconds: float) -> Answer:
        """Rows for which all of the conditions, each about one of the index's columns, can be TRUE.

        A scan of the file takes about `seconds`: an index that needs longer answers None. It ignores conditions that it
        does not understand.
        """
        ...


@runtime_checkable
class ClosableIndex(Protocol):
    """An open payload that holds more than memory."""

    def close(self) -> None:
        """Let it go. A search that still runs can open it again."""
        ...


class IndexKind(Protocol):
    """What all kinds have. Payloads of another `version` are built again, unless the kind has it in `as_good`."""

    name: str
    version: int

    def check(self, table: str, fields: Sequence[pa.Field], options: Options) -> None:
        """Raise NotIndexable for columns, or UsageError for options, that the kind cannot take."""
        ...

    def build(self, source: ColumnSource) -> IndexPayload:
        """A pure function of the source. NotIndexable refuses a file, with the reason."""
        ...


class PayloadKind(IndexKind, Protocol):
    """A kind that answers from the payload of each file."""

    def open(self, stored: PayloadHandle, fields: Sequence[pa.Field], options: Options) -> FileIndex:
        """Open a payload; IndexDamaged when it is not one of this kind. Do not trust its bytes."""
        ...


class EntryKind(IndexKind, Protocol):
    """A kind that answers from one sorted store of entries for all files of a table (stores/base.py).

    Its payload holds the keys of one file: embedded in the file, it saves reading the column again.
    """

    def key_bytes(self, fields: Sequence[pa.Field]) -> int:
        """How wide its keys are: the store needs to know."""
        ...

    def keys(self, source: ColumnSource) -> Iterator[KeysAndRows]:
        """Keys and the numbers of their rows, ascending by row, a part at a time."""
        ...

    def pack(self, fields: Sequence[pa.Field], parts: Sequence[KeysAndRows]) -> IndexPayload:
        """The payload of these keys, which are all of a file."""
        ...

    def unpack(self, data: bytes, fields: Sequence[pa.Field], file_rows: int) -> Sequence[KeysAndRows]:
        """The keys in a payload; PayloadDamaged when it is not one of a file with so many rows."""
        ...

    def declaration(self, fields: Sequence[pa.Field]) -> dict[str, Any]:
        """What is kept beside an embedded payload, and must be equal for the payload to be used."""
        ...


# The names of earlier versions, for kinds of other packages.
Source, Built, Stored = ColumnSource, IndexPayload, PayloadHandle
