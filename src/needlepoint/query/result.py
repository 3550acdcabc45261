"""The result of a query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from needlepoint.errors import UsageError
from needlepoint.printable import count
from needlepoint.query.row_stream import RowStream

if TYPE_CHECKING:
    import pandas
    import polars

    from needlepoint.query.report.explain import Report


_OFFSET = re.compile(r"([+-]\d\d)(\d\d)?")


@dataclass(frozen=True, slots=True)
class ReadBytes:
    """Bytes of data files that a query read, and those of all files of its tables."""

    read: int
    there: int


class Result:
    """The rows, in several formats, and the report.

    A result of more than 32 MB is large: it is read while it is consumed, by `batches`, or by any other method, which
    holds all of it in memory.
    """

    def __init__(
        self,
        rows: pa.Table | RowStream,
        make_report: Callable[[], Report],
        count_bytes: Callable[[], ReadBytes] = lambda: ReadBytes(0, 0),
    ) -> None:
        self._found = rows
        self.make_report = make_report
        self.count_bytes = count_bytes

    @cached_property
    def report(self) -> Report:
        """What the query read and why; made when it is asked for. Of a large result, ask for it after the rows."""
        return self.make_report()

    @property
    def bytes(self) -> ReadBytes:
        """What was read until now, of what there is; quicker than the report, which has the same."""
        return self.count_bytes()

    @property
    def is_complete(self) -> bool:
        """Whether all rows are there; those of a large result are read while they are consumed."""
        return not isinstance(self._found, RowStream) or "_rows" in self.__dict__

    @cached_property
    def schema(self) -> pa.Schema:
        found = self._found.schema
        return _with_known_zones(found.empty_table()).schema if any(map(_is_zoned, found.types)) else found

    @cached_property
    def _rows(self) -> pa.Table:
        """In one table, as the query returned them."""
        return self._found.to_table() if isinstance(self._found, RowStream) else self._found

    @cached_property
    def _table(self) -> pa.Table:
        return _with_known_zones(self._rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in parts. Of a large result, each part is read when it is asked for, so its size does not matter;
        but only once, and FileChanged says that a file was replaced meanwhile."""
        if self.is_complete:
            yield from self._table.to_batches()
            return
        stream = cast(RowStream, self._found)
        for batch in stream.batches():
            yield from _with_known_zones(pa.Table.from_batches([batch])).to_batches()

    def close(self) -> None:
        """End the query of a large result whose rows are not wanted any more."""
        if isinstance(self._found, RowStream):
            self._found.close()

    def to_arrow(self) -> pa.Table:
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        try:
            return self._table.to_pandas()
        except ImportError:
            raise UsageError("pandas is not installed.", hint="pip install 'needlepoint[pandas]'") from None

    def to_polars(self) -> polars.DataFrame:
        try:
            import polars
        except ImportError:
            raise UsageError("polars is not installed.", hint="pip install 'needlepoint[polars]'") from None
        return polars.DataFrame(self._table)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per row. If two columns have one name, the second is `name_2`."""
        seen = Counter[str]()
        names = []
        for name in self._table.column_names:
            seen[name] += 1
            names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
        return list(self._table.rename_columns(names).to_pylist())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, as `rows()` has them."""
        return iter(self.rows())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for any library that reads Arrow: `polars.DataFrame(result)`, `duckdb.sql("FROM result")`."""
        return self._table.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        from needlepoint.query.report.html import table_html

        return table_html(self._table)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __repr__(self) -> str:
        rows = count(len(self), "row") if self.is_complete else "more rows than are read yet"
        return f"Result({rows}: {', '.join(self._found.schema.names)})"


def _is_zoned(type: pa.DataType) -> bool:
    return isinstance(type, pa.TimestampType) and type.tz is not None


def _with_known_zones(table: pa.Table) -> pa.Table:
    """DataFusion also writes offsets as +00 and -0330; Python and Arrow need +00:00 and -03:30."""
    for number, type in enumerate(table.schema.types):
        if _is_zoned(type) and (offset := _OFFSET.fullmatch(type.tz)):
            known = pa.timestamp(type.unit, f"{offset[1]}:{offset[2] or '00'}")
            table = table.set_column(
                number, table.schema.field(number).with_type(known), table.column(number).cast(known)
            )
    return table
