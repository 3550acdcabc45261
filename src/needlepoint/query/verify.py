"""Verifies indexes: compares their row counts with those of a scan, for sampled values.

The bytes of all cards and zone maps are compared with their checksums.

Every predicate is evaluated again on the rows that an index names, so a wrong index can only lose rows; except where
it answers alone, with counts of its own. One scan counts the rows for all samples of an index. For each sample, the
index then names the rows, and the query runs as queries do, which may ask it for counts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from needlepoint.errors import FileChanged, NotParquet
from needlepoint.indexes import IndexDamage
from needlepoint.objects import as_source
from needlepoint.parquet import check_file_texts
from needlepoint.parquet.format import int96
from needlepoint.query.engine import Engine
from needlepoint.query.sql.statements import quoted, text_literal
from needlepoint.tables import Index, Snapshot, Table

FILES_SAMPLED = 8
# The length of the text pieces to search for.
SHORTEST, LONGEST = 3, 24


@dataclass(frozen=True, slots=True)
class Check:
    """The row counts of a condition, by index and by scan."""

    index: str
    kind: str
    condition: str
    indexed: int
    scanned: int


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """`damaged` says which cards and zone maps cannot be read, and `indexes` which indexes: queries scan their files.
    `unfinished` are batches whose publishers died: sync or repair finishes them."""

    table: str
    checks: tuple[Check, ...]
    damaged: tuple[str, ...] = ()
    indexes: tuple[IndexDamage, ...] = ()
    unfinished: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged, and no answer differs."""
        return not (self.differences or self.damaged or self.indexes)

    @property
    def differences(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.indexed != check.scanned)


@dataclass(frozen=True, slots=True)
class _Sample:
    """A condition with its parameters; `shown` has the values inserted."""

    condition: str
    parameters: Mapping[str, Any]
    shown: str


def verify_indexes(engine: Engine, table: Table, samples: int, seed: int | None) -> VerifyReport:
    snapshot = engine.state(table.name).snapshot
    chance = random.Random(seed)
    checks: list[Check] = []
    for index in snapshot.indexes:
        rows = _sampled_rows(snapshot, index, samples, chance)
        wanted = [sample for number, row in enumerate(rows) for sample in _conditions(index, row, number, chance)]
        checks += _compared(engine, table, index, wanted)
    damaged = engine.state(table.name).registry.cards.check(table)
    return VerifyReport(table.name, tuple(checks), tuple(dict.fromkeys(damaged.values())))


def _compared(engine: Engine, table: Table, index: Index, samples: Sequence[_Sample]) -> Iterator[Check]:
    if not samples:
        return
    name = quoted(table.name)
    counts = ", ".join(
        f"count(*) FILTER (WHERE {sample.condition}) AS c{number}" for number, sample in enumerate(samples)
    )
    parameters = {name: value for sample in samples for name, value in sample.parameters.items()}
    scanned = engine.sql(f"SELECT {counts} FROM {name}", parameters, use_indexes=False).to_arrow()
    for number, sample in enumerate(samples):
        query = f"SELECT count(*) FROM {name} WHERE {sample.condition}"
        expected = int(scanned.column(number)[0].as_py())
        indexed = _indexed(engine, query, sample, index, expected)
        if indexed != expected:
            # The table may have changed since the scan: run both again, one right after the other.
            expected = _count(engine, query, sample, False)
            indexed = _indexed(engine, query, sample, index, expected)
        yield Check(index.name, index.kind, sample.shown, indexed, expected)


def _indexed(engine: Engine, query: str, sample: _Sample, index: Index, expected: int) -> int:
    """The row count by this index at any cost: other indexes, and the cost model, would hide its result. If that is
    right, the count as queries have it."""
    by_rows = _count(engine, query, sample, index.name)
    return by_rows if by_rows != expected else _count(engine, query, sample, True)


def _count(engine: Engine, query: str, sample: _Sample, use_indexes: bool | str) -> int:
    answer = engine.sql(query, sample.parameters, use_indexes=use_indexes, is_noted=False).to_arrow()
    return int(answer.column(0)[0].as_py())


def _sampled_rows(snapshot: Snapshot, index: Index, samples: int, chance: random.Random) -> list[dict[str, pa.Scalar]]:
    """The index's columns, from sampled rows of sampled row groups and files."""
    files = [file for file in snapshot.files if index.id in file.indexed]
    rows: list[dict[str, pa.Scalar]] = []
    chosen = chance.sample(files, min(FILES_SAMPLED, len(files)))
    for file in chosen:
        path = f"{snapshot.table.location}/{file.path}"
        try:
            with pq.ParquetFile(as_source(path, file.identity), coerce_int96_timestamp_unit=int96.UNIT) as opened:
                present = [name for name in index.columns if name in opened.schema_arrow.names]
                groups = opened.metadata.num_row_groups
                if len(present) < len(index.columns) or not groups:
                    continue
                table = opened.read_row_group(chance.randrange(groups), columns=present)
                check_file_texts(path, table)
        except FileNotFoundError:
            raise FileChanged(path, "is gone", hint="Run sync, then verify again.") from None
        except (pa.ArrowException, OSError) as error:
            raise NotParquet(path, f"columns {index.shown_columns} cannot be read: {error}") from error
        for _ in range(-(-samples // len(chosen)) if table.num_rows else 0):
            at = chance.randrange(table.num_rows)
            found = {name: _plain(table.column(name)[at], snapshot.table.schema.field(name).type) for name in present}
            if all(value.is_valid for value in found.values()):
                rows.append(found)
    return rows[:samples]


def _plain(value: pa.Scalar, type: pa.DataType) -> pa.Scalar:
    return pa.array([value.as_py()]).cast(type)[0] if not value.type.equals(type) else value


def _conditions(index: Index, row: Mapping[str, pa.Scalar], number: int, chance: random.Random) -> Iterator[_Sample]:
    names = {column: f"s{number}_{place}" for place, column in enumerate(row)}
    yield _Sample(
        " AND ".join(f"{quoted(column)} = ${name}" for column, name in names.items()),
        {names[column]: value for column, value in row.items()},
        " AND ".join(f"{column} = {_shown(value)}" for column, value in row.items()),
    )
    if index.kind == "distinct":
        column, name = quoted(index.column), names[index.column]
        shown = f"{index.column} <> {_shown(row[index.column])}"
        yield _Sample(f"{column} <> ${name}", {name: row[index.column]}, shown)
    text = row[index.column].as_py()
    if index.kind == "text" and isinstance(text, str) and text:
        start = chance.randrange(max(1, len(text) - SHORTEST + 1))
        part = text[start : start + chance.randint(SHORTEST, LONGEST)]
        pattern = "%" + part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        literal = text_literal(pattern)
        yield _Sample(f"{quoted(index.column)} LIKE {literal}", {}, f"{index.column} LIKE {literal}")


def _shown(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 60 else f"{text[:57]}…"
