"""A DataFrame joined with a table of the lake by key, of which only the keys that occur are fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from needlepoint.errors import UnknownName, UsageError
from needlepoint.spark.types import arrow_schema, conformed, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from needlepoint.lake import Lake

KEYS_AT_ONCE = 5_000  # one lookup asks the index for so many, and reads their pages together

_KEY = "__needlepoint_key"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def lookup_join(
    df: DataFrame,
    lake: Lake,
    table: str,
    on: str,
    columns: Sequence[str] | None = None,
    how: str = "inner",
) -> DataFrame:
    """`df` with columns of the table's rows that have the same value in `on`, as Spark's join by that name gives it.

    Tasks look up the distinct keys of `df` through the index, so this is for few keys compared with the table's; `df`
    is computed twice, once for its keys. NULL keys match nothing; `how` is "inner" or "left". Executors must reach the
    lake's store: Spark on one machine, or a shared file system. A task finds the rows that the table has when it runs.
    """
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    from needlepoint.lake import lake_opener

    if how not in ("inner", "left"):
        raise UsageError(f"how='{how}' is not possible here.", hint="It is 'inner' or 'left'.")
    if on not in df.columns:
        raise UnknownName("column", on, df.columns, where=" in the DataFrame")
    found = lake.registry.tables.get(table)
    wanted = _wanted(df, found.schema.names, on, columns)
    for column in wanted:
        found.field(column)
    # Where the table has uint64, Spark's join compares decimals; the keys are decimals too.
    schema = spark_schema(pa.schema([found.field(on).with_name(_KEY), *map(found.field, wanted)]))
    key = F.col(_quoted(on))
    key_type = schema[_KEY].dataType
    _check_types(df.schema[on].dataType, key_type, on, table)
    # A value that does not fit the table's type is in none of its rows.
    keys = df.select(key.try_cast(key_type).alias(_KEY)).where(F.col(_KEY).isNotNull()).distinct()
    fetch = _Fetch(lake_opener(lake), table, on, tuple(wanted), arrow_schema(schema))
    rows = keys.mapInArrow(fetch, schema)
    return df.join(rows, df[_quoted(on)] == rows[_KEY], how).drop(rows[_KEY])


class _Fetch:
    """Looks up the keys of a task; picklable."""

    def __init__(
        self, opener: Callable[[], Lake], table: str, on: str, columns: tuple[str, ...], schema: pa.Schema
    ) -> None:
        self._opener, self._table, self._on, self._columns, self._schema = opener, table, on, columns, schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[Any] = []
        for batch in batches:
            waiting += batch.column(0).to_pylist()
            while len(waiting) >= KEYS_AT_ONCE:
                yield from self._rows(waiting[:KEYS_AT_ONCE])
                waiting = waiting[KEYS_AT_ONCE:]
        if waiting:
            yield from self._rows(waiting)

    def _rows(self, keys: list[Any]) -> Iterator[pa.RecordBatch]:
        names = [self._on, *self._columns]
        for batch in self._opener().table(self._table).get({self._on: keys}, columns=names).to_arrow().to_batches():
            yield conformed(batch, self._schema)


def _wanted(df: DataFrame, known: Sequence[str], on: str, columns: Sequence[str] | None) -> list[str]:
    wanted = [name for name in (known if columns is None else columns) if name != on]
    taken = {name.lower() for name in df.columns}
    if both := [name for name in wanted if name.lower() in taken]:
        raise UsageError(
            f"the DataFrame has a column '{both[0]}' too.", hint="Rename it there, or name the `columns` to add."
        )
    return wanted


def _check_types(given: DataType, stored: DataType, on: str, table: str) -> None:
    """Keys are compared without a cast. Floats have two zeros and many NaN, which engines compare differently."""
    both = given.simpleString(), stored.simpleString()
    if (both[0] != both[1] and not set(both) <= set(_INTEGERS)) or both[0] in ("float", "double"):
        raise UsageError(
            f"'{on}' is {both[0]} in the DataFrame and {both[1]} in table '{table}'.",
            hint="Join by integers, texts, dates or times; cast the DataFrame's column to the table's type.",
        )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
