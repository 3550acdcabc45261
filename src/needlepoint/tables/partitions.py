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


def discover(paths: Iterable[str], location: str) -> tuple[tuple[str, pa.DataType], ...]:
    """Names and types of the partition columns that all paths share: int64, date or string."""
    columns: tuple[str, ...] | None = None
    seen: list[set[str]] = []
    first = ""
    for path in paths:
        values = parse(path)
        names = tuple(name for name, _ in values)
        if columns is None:
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
    return tuple((name, _infer(known)) for name, known in zip(columns or (), seen, strict=True))


def _infer(values: set[str]) -> pa.DataType:
    if values and all(_INTEGER.fullmatch(value) for value in values):
        return pa.int64()
    if values and all(_to_date(value) is not None for value in values):
        return pa.date32()
    return pa.string()


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
