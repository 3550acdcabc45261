"""DB-API 2.0 (PEP 249) over a lake, for tools that speak it.

    connection = needlepoint.connect("lake")
    cursor = connection.cursor()
    cursor.execute("SELECT title FROM product WHERE product_id = ?", [384209819])
    cursor.fetchall()  # [('Dairy Cow Lullabies',)]

Parameters are `?` with a sequence, or `$name` with a mapping. There are no transactions: a statement is done when
`execute` returns, `commit` does nothing, and so does `rollback`.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

import pyarrow as pa

import needlepoint
from needlepoint.errors import NeedlepointError, Unsupported, UsageError
from needlepoint.lake.lake import Lake
from needlepoint.query import named_by_place
from needlepoint.settings import SettingOverrides, Settings

apilevel = needlepoint.apilevel
threadsafety = needlepoint.threadsafety  # threads may share connections, and have cursors of their own
paramstyle = needlepoint.paramstyle

Parameters = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]


class Warning(Exception):
    pass


class Error(Exception):
    pass


class InterfaceError(Error):
    pass


class DatabaseError(Error):
    pass


class DataError(DatabaseError):
    pass


class OperationalError(DatabaseError):
    pass


class IntegrityError(DatabaseError):
    pass


class InternalError(DatabaseError):
    pass


class ProgrammingError(DatabaseError):
    pass


class NotSupportedError(DatabaseError):
    pass


class _TypeGroup:
    """Equal to the type codes of its types, which are Arrow's names."""

    def __init__(self, *starts: str) -> None:
        self._starts = starts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.startswith(self._starts)

    def __hash__(self) -> int:
        return hash(self._starts)


STRING = _TypeGroup("string", "large_string")
BINARY = _TypeGroup("binary", "large_binary", "fixed_size_binary")
NUMBER = _TypeGroup("int", "uint", "float", "double", "halffloat", "decimal")
DATETIME = _TypeGroup("timestamp", "date", "time")
ROWID = _TypeGroup()

Date, Time, Timestamp, Binary = datetime.date, datetime.time, datetime.datetime, bytes
DateFromTicks, TimestampFromTicks = datetime.date.fromtimestamp, datetime.datetime.fromtimestamp


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802  # the name in PEP 249
    return datetime.datetime.fromtimestamp(ticks).time()


def connect(root: str | Path, *, create: bool = False, **settings: Unpack[SettingOverrides]) -> Connection:
    """Connect to the lake in a directory or at `s3://bucket/prefix`. `create` makes one if there is none."""
    with _errors():
        return Connection(Lake(root, create=create, settings=Settings.from_environment(**settings)))


class Connection:
    """A lake. Closing the connection closes it."""

    Warning, Error, InterfaceError, DatabaseError = Warning, Error, InterfaceError, DatabaseError
    DataError, OperationalError, IntegrityError = DataError, OperationalError, IntegrityError
    InternalError, ProgrammingError, NotSupportedError = InternalError, ProgrammingError, NotSupportedError

    def __init__(self, lake: Lake) -> None:
        self._lake: Lake | None = lake

    @property
    def lake(self) -> Lake:
        if self._lake is None:
            raise InterfaceError("the connection is closed.")
        return self._lake

    def cursor(self) -> Cursor:
        return Cursor(self)

    def commit(self) -> None:
        self.check_open()

    def rollback(self) -> None:
        self.check_open()

    def check_open(self) -> None:
        _ = self.lake

    def close(self) -> None:
        if self._lake is not None:
            self._lake.close()
            self._lake = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cursor:
    """The rows of the latest statement."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1
        self._table: pa.Table | None = None
        self._rows: Iterator[Row] | None = None
        self._closed = False

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        self._check_open()
        self._table = self._rows = self.description = None
        self.rowcount = -1
        query, named = operation, parameters
        with _errors():
            if isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes):
                query, named = named_by_place(operation, parameters)
            table = self.connection.lake.sql(query, named).to_arrow()  # type: ignore[arg-type]  # it names what is wrong
        self._table, self._rows, self.rowcount = table, _tuples(table), table.num_rows
        self.description = [
            (field.name, str(field.type), None, None, None, None, field.nullable) for field in table.schema
        ]
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Parameters]) -> Cursor:
        for parameters in seq_of_parameters:
            self.execute(operation, parameters)
        return self

    def fetchone(self) -> Row | None:
        return next(self._open_rows(), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        return list(itertools.islice(self._open_rows(), self.arraysize if size is None else size))

    def fetchall(self) -> list[Row]:
        return list(self._open_rows())

    def fetch_arrow_table(self) -> pa.Table:
        """All rows of the statement as an Arrow table."""
        self._open_rows()
        return self._table

    def __iter__(self) -> Iterator[Row]:
        return self._open_rows()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Types come from the values."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Columns have any size."""

    def close(self) -> None:
        self._closed = True
        self._table = self._rows = self.description = None

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed.")
        self.connection.check_open()

    def _open_rows(self) -> Iterator[Row]:
        self._check_open()
        if self._rows is None:
            raise InterfaceError("there are no rows: execute a statement first.")
        return self._rows


def _tuples(table: pa.Table) -> Iterator[Row]:
    for batch in table.to_batches(max_chunksize=1024):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@contextmanager
def _errors() -> Iterator[None]:
    """Our errors as those of PEP 249; the cause is kept."""
    try:
        yield
    except Unsupported as error:
        raise NotSupportedError(str(error)) from error
    except UsageError as error:
        raise ProgrammingError(str(error)) from error
    except NeedlepointError as error:
        raise OperationalError(str(error)) from error
