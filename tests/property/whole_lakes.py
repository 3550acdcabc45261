"""Random lakes of several tables for whole queries, as plain values: a lake can be written, indexed and shrunk.

Tables share values, so that joins find matches, and often column names. Every table has a column of unique numbers.
`zero` columns hold -0.0, which DataFusion sorts and groups apart from 0.0; queries only compare them.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.property.generated import Writer, hive, write
from tests.property.kinds import BY_NAME, Kind, same
from tests.property.trees import Node

_KINDS = {
    f"decimal({precision},{scale})": Kind(
        f"decimal({precision},{scale})",
        pa.decimal128(precision, scale),
        f"DECIMAL({precision}, {scale})",
        st.nothing(),
        same,
    )
    for precision, scale in ((12, 2), (14, 4))
}
_KINDS["timestamp us Tokyo"] = Kind("Tokyo", pa.timestamp("us", "Asia/Tokyo"), "TIMESTAMPTZ", st.nothing(), same)
DAY = 86_400 * 10**6
_FIRST = 1_700_000_000 * 10**6 // DAY * DAY
ALL_NULL = 0.05

# Families of values: values of one family may be compared.
POOLS: dict[str, tuple[Any, ...]] = {
    "int": (0, 1, 2, 3, 4, 5, 7, 2**40),
    "text": ("", "a", "ab", "yes", "no", "Rome", "it's", "Zoë", "common prefix 12", "common prefix 13", "b"),
    "dec": tuple(map(decimal.Decimal, ("8.64", "4.11", "0.07", "1.10", "0.29", "-3.30", "5.00", "1001.15", "0.00"))),
    "real": (math.nan, 0.5, 1.0, -1.25, 5.0, math.inf, -math.inf, 3.0, 1e6),
    "zero": (math.nan, 0.0, -0.0, 0.5, 1.0, -1.25, 3.0, 4.0, 5.0, 6.0),
    "time": tuple(_FIRST + at for at in (0, 1, DAY, DAY - 1, DAY // 2, 40 * DAY, 400 * DAY)),
    "instant": tuple(_FIRST + at for at in (0, 1, DAY, DAY - 1, DAY // 2, 15 * DAY // 24, 40 * DAY, 400 * DAY)),
    "date": (datetime.date(2023, 12, 31), *(datetime.date(2024, 1, day) for day in (1, 2, 3, 9))),
    "bool": (True, False),
}
ROLES = {
    "k": ("int", "int64"),
    "n": ("int", "int32"),
    "s": ("text", "string"),
    "u": ("text", "string"),
    "d": ("dec", "decimal(12,2)"),
    "e": ("dec", "decimal(14,4)"),
    "g": ("real", "float64"),
    "r": ("real", "float32"),
    "f": ("zero", "float64"),
    "ts": ("time", "timestamp us"),
    "z": ("instant", "timestamp us Tokyo"),
    "w": ("instant", "timestamp us UTC"),
    "dt": ("date", "date"),
    "ok": ("bool", "bool"),
}
PARTITIONS = {
    "int": ("int64", tuple(range(16))),
    "text": ("string", (*"abcdefghijklmn", "a b", "Rome")),
    "date": ("date", tuple(datetime.date(2024, 1, day) for day in range(1, 17))),
}


def kind_of(name: str) -> Kind:
    return _KINDS.get(name) or BY_NAME[name]


@dataclass(frozen=True)
class Field:
    name: str
    family: str
    kind: str

    @property
    def sql(self) -> str:
        return self.name if self.name.isidentifier() and self.name.islower() else f'"{self.name}"'


@dataclass(frozen=True)
class DataFile:
    """`columns` holds the values by column name, in order; `partition` holds the values of partition columns. A `late`
    file is written after the indexes were made; one that is written `again` has the same rows, and another identity."""

    partition: tuple[Any, ...]
    columns: dict[str, tuple[Any, ...]]
    writer: Writer
    narrow: frozenset[str] = frozenset()
    late: bool = False
    again: bool = False

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True)
class DataTable:
    name: str
    fields: tuple[Field, ...]
    partitions: tuple[Field, ...]
    files: tuple[DataFile, ...]

    def write(self, root: Path, late: bool = False) -> None:
        """The files that are there before the indexes, or those that are written after them."""
        for number, file in enumerate(self.files):
            if not (file.late or file.again) if late else file.late:
                continue
            pairs = zip(self.partitions, file.partition, strict=True)
            directory = "/".join([self.name, *(f"{field.name}={hive(value)}" for field, value in pairs)])
            write(self.arrow(file), root / directory / f"{number}.parquet", file.writer)

    def arrow(self, file: DataFile) -> pa.Table:
        names = [field.name for field in self.fields if field.name in file.columns]
        arrays = [self._array(field, file) for field in self.fields if field.name in file.columns]
        return pa.table(arrays, names=names)

    def _array(self, field: Field, file: DataFile) -> pa.Array:
        return kind_of(field.kind).array(file.columns[field.name], pa.int32() if field.name in file.narrow else None)

    def rows(self) -> pa.Table:
        """All rows in full types, partition columns last."""
        fields = [*self.fields, *self.partitions]
        values: dict[str, list[Any]] = {each.name: [] for each in fields}
        for file in self.files:
            for each in self.fields:
                values[each.name] += file.columns.get(each.name, (None,) * file.rows)
            for each, value in zip(self.partitions, file.partition, strict=True):
                values[each.name] += [value] * file.rows
        return pa.table({each.name: kind_of(each.kind).array(values[each.name]) for each in fields})


@dataclass(frozen=True)
class DataIndex:
    table: str
    column: str
    kind: str
    embed: bool


@dataclass(frozen=True)
class DataView:
    name: str
    fields: tuple[Field, ...]
    query: Node


@dataclass(frozen=True)
class LakeSpec:
    tables: tuple[DataTable, ...]
    indexes: tuple[DataIndex, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    views: tuple[DataView, ...] = ()


def random_lake(chance: Random) -> LakeSpec:
    names = "abc"[: chance.choice((1, 2, 2, 3, 3))]
    pools = {family: _some(chance, POOLS[family], 2, 6) for family in POOLS}
    tables = tuple(_table(chance, name, pools) for name in names)
    indexes = tuple(_indexes(chance, tables)) if chance.random() < 0.7 else ()
    settings: dict[str, Any] = {"access": chance.choice(("auto", "auto", "pages", "scan"))}
    if chance.random() < 0.3:
        settings["range_limit"] = chance.choice((0, 5))
    return LakeSpec(tables, indexes, settings)


def _some(chance: Random, values: Sequence[Any], least: int, most: int) -> tuple[Any, ...]:
    return tuple(chance.sample(values, min(len(values), chance.randint(least, most))))


def _table(chance: Random, name: str, pools: dict[str, tuple[Any, ...]]) -> DataTable:
    suffix = f"_{name}" if chance.random() < 0.35 else ""
    roles = _some(chance, sorted(ROLES), 2, 6)
    fields = [Field("id" + suffix, "int", "int64")]
    for role in roles:
        shown = "B c" if role == "u" and chance.random() < 0.3 else role + suffix
        fields.append(Field(shown, *ROLES[role]))
    partitions = tuple(_partitions(chance, suffix))
    possible = _partition_values(chance, partitions)
    count = len(possible) if partitions and chance.random() < 0.5 else chance.choice((1, 1, 2, 3, 5))
    numbers = itertools.count()
    files = tuple(
        _file(chance, fields, possible[at % len(possible)], pools, numbers, first=at == 0) for at in range(count)
    )
    return DataTable(name, tuple(fields), partitions, files)


def _partitions(chance: Random, suffix: str) -> list[Field]:
    count = chance.choices((0, 1, 2), (4, 5, 1))[0]
    families = [chance.choice(sorted(PARTITIONS)) for _ in range(count)]
    return [Field(name + suffix, family, PARTITIONS[family][0]) for name, family in zip("pq", families, strict=False)]


def _partition_values(chance: Random, partitions: tuple[Field, ...]) -> list[tuple[Any, ...]]:
    """The first has a value in each column, from which the type is inferred."""
    if not partitions:
        return [()]
    most = chance.choice((1, 2, 3, 4, 8, 16)) if len(partitions) == 1 else 3
    pools = [_some(chance, PARTITIONS[field.family][1], 1, most) for field in partitions]
    values = list(itertools.islice(itertools.product(*pools), 16))
    if chance.random() < 0.2:
        values.append((None,) * len(partitions))
    return values


def _file(
    chance: Random,
    fields: Sequence[Field],
    partition: tuple[Any, ...],
    pools: dict[str, tuple[Any, ...]],
    numbers: itertools.count[int],
    first: bool,
) -> DataFile:
    rows = chance.choice((0, 1, 2, 3, 5, 8, 12, 20))
    columns: dict[str, tuple[Any, ...]] = {}
    for place, each in enumerate(fields):
        if place == 0:
            columns[each.name] = tuple(itertools.islice(numbers, rows))
            continue
        if not first and chance.random() < 0.06:
            continue  # the file is older than the column
        pool = tuple(
            value for value in _some(chance, pools[each.family], 1, 6) if each.kind != "int32" or value < 2**31
        )
        pool += (None,) * chance.choice((0, 0, 1, 2)) or (() if pool else (None,))
        pool = (None,) if chance.random() < ALL_NULL else pool
        columns[each.name] = tuple(chance.choice(pool) for _ in range(rows))
    narrow = frozenset(
        each.name
        for each in fields
        if each.kind == "int64" and not first and chance.random() < 0.25 and _fit_int32(columns.get(each.name, ()))
    )
    if chance.random() < 0.3:
        columns = _sorted(columns, chance.choice([*columns]))
    after = "" if first else chance.choices(("", "late", "again"), (8, 1, 1))[0]
    return DataFile(partition, columns, _writer(chance), narrow, late=after == "late", again=after == "again")


def _fit_int32(values: Sequence[Any]) -> bool:
    return all(value is None or value < 2**31 for value in values)


def _sorted(columns: dict[str, tuple[Any, ...]], by: str) -> dict[str, tuple[Any, ...]]:
    keys = columns[by]
    order = sorted(range(len(keys)), key=lambda row: (keys[row] is None, 0 if keys[row] is None else keys[row]))
    return {name: tuple(values[row] for row in order) for name, values in columns.items()}


def _writer(chance: Random) -> Writer:
    if chance.random() < 0.1:
        return Writer("duckdb", (("ROW_GROUP_SIZE", 10),))
    if chance.random() < 0.1:
        return Writer("polars", (("row_group_size", 7), ("statistics", chance.choice((True, "full")))))
    options = {
        "row_group_size": chance.choice((2, 5, 100)),
        "max_rows_per_page": chance.choice((1, 3, 1000)),
        "write_batch_size": chance.choice((1, 2, 8)),
        "use_dictionary": chance.random() < 0.5,
        "data_page_version": chance.choice(("1.0", "2.0")),
        "compression": chance.choice(("snappy", "zstd", "none")),
        "write_page_index": chance.random() < 0.7,
        "write_statistics": chance.random() < 0.8,
        "bloom_filters": chance.random() < 0.3,
    }
    return Writer("pyarrow", tuple(options.items()))


def _indexes(chance: Random, tables: Sequence[DataTable]) -> list[DataIndex]:
    found = []
    for table in tables:
        for each in table.fields:
            kinds = ["key", "distinct", "bloom"] + (["text", "text"] if each.family == "text" else [])
            if chance.random() < 0.35:
                found.append(DataIndex(table.name, each.name, chance.choice(kinds), chance.random() < 0.4))
    return found
