"""Hive partitions: `partner=ABC/year=2024/part-0.parquet` says partner and year of every row in the file.

>>> parse("partner=a%2Fb/year=2024/part-0.parquet")
(('partner', 'a/b'), ('year', '2024'))
>>> parse("year=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
(('year', None),)
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

import pyarrow as pa

from needlepoint.errors import SchemaConflict

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

Values = tuple[tuple[str, str | None], ...]


def parse(path: str) -> Values:
    """Partition columns and raw values in a path relative to the table's location."""
    found = []
    for part in path.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            found.append((unquote(name), None if value == HIVE_NULL else unquote(value)))
    return tuple(found)


def discover(paths: Iterable[str], location: str, base: pa.Schema | None = None) -> tuple[tuple[str, pa.DataType], ...]:
    """Names and types of the partition columns that all paths share: int64, date or string.

    A column of `base` keeps its type as long as that holds all values: it must not change because files were removed.
    """
    columns: tuple[str, ...] | None = None
    seen: list[set[str]] = []
    first = ""
    for path in paths:
        values = parse(path)
        names = tuple(name for name, _ in values)
        if columns is None:
            for name in names:
                if names.count(name) > 1:
                    raise SchemaConflict(
                        f"{location}: {path} has more than one value of partition column '{name}'.",
                        hint="Give each directory on the way to a file another column.",
                    )
            columns, first, seen = names, path, [set() for _ in names]
        if names != columns:
            raise SchemaConflict(
                f"{location}: {path} is partitioned by {', '.join(names) or 'nothing'}, "
                f"but {first} by {', '.join(columns) or 'nothing'}.",
                hint="All files of a table have the same partition columns.",
            )
        for known, (_, value) in zip(seen, values, strict=True):
            if value is not None:
                known.add(value)
    types = {} if base is None else {field.name: field.type for field in base}
    return tuple((name, _infer(known, types.get(name))) for name, known in zip(columns or (), seen, strict=True))


def _infer(values: set[str], before: pa.DataType | None) -> pa.DataType:
    """
    >>> [str(_infer({"1", "2"}, before)) for before in (None, pa.int64(), pa.string(), pa.date32())]
    ['int64', 'int64', 'string', 'string']
    """
    if not values:
        return before or pa.string()
    found = pa.string()
    if all(_INTEGER.fullmatch(value) for value in values):
        found = pa.int64()
    elif all(_to_date(value) is not None for value in values):
        found = pa.date32()
    return found if before is None or before == found else pa.string()


def _to_date(value: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(value) if _DATE.fullmatch(value) else None
    except ValueError:
        return None


def typed(path: str, fields: Sequence[pa.Field], location: str) -> dict[str, pa.Scalar]:
    """The partition values of a file as scalars of the table's types."""
    raw = dict(parse(path))
    return {field.name: _scalar(raw.get(field.name), field, path, location) for field in fields}


def _scalar(value: str | None, field: pa.Field, path: str, location: str) -> pa.Scalar:
    plain: object = value
    if value is not None and pa.types.is_integer(field.type):
        plain = int(value) if _INTEGER.fullmatch(value) else None
    elif value is not None and pa.types.is_date(field.type):
        plain = _to_date(value)
    if plain is None and value is not None:
        raise SchemaConflict(
            f"{location}: partition value '{field.name}={value}' of {path} is not {field.type}.",
            hint="Run sync: it works out the types of the partition columns again.",
        )
    return pa.scalar(plain, type=field.type)
