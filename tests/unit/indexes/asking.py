"""Small indexes in memory, and conditions with the rows that DataFusion finds for them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, DrawFn, SearchStrategy
from tests.property.kinds import KINDS, Kind

from needlepoint.access import Rows
from needlepoint.indexes.base import ColumnSource, Condition, FileIndex, PayloadKind
from needlepoint.indexes.text.words import folds_alike
from needlepoint.parquet.card import array_container
from needlepoint.predicate import Between, Compare, In, IsNotNull, IsNull, Like, Not, StartsWith
from needlepoint.stores.base import IndexDamaged
from needlepoint.tables.schemas import ordinal

INDEXED = tuple(kind for kind in KINDS if kind.indexed)
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Held:
    """A payload in memory."""

    data: bytes

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self) -> bytes:
        return self.data

    def directory(self, unpack: Callable[[bytes, Path], None]) -> Path:
        raise AssertionError("a payload in memory is not unpacked")


def source_of(
    columns: Mapping[str, pa.Array],
    pages: Sequence[int] | None = None,
    groups: Sequence[int] | None = None,
    options: Mapping[str, Any] | None = None,
    batch_rows: int = 7,
    memory: int = 1 << 30,
) -> ColumnSource:
    """Columns as an indexer provides them; `pages` and `groups` are edges."""
    batch = pa.record_batch(dict(columns))
    groups = [0, batch.num_rows] if groups is None else groups
    edges = np.array(groups if pages is None else pages, np.int64)

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, batch.num_rows, batch_rows):
            yield batch.slice(first, batch_rows)

    return ColumnSource(
        fields=tuple(batch.schema),
        options=options or {},
        rows=batch.num_rows,
        row_group_rows=np.array(groups, np.int64),
        page_rows=dict.fromkeys(columns, edges),
        batches=batches,
        memory=memory,
        scratch=Path(),
    )


def built(kind: PayloadKind, source: ColumnSource) -> FileIndex:
    return kind.open(Held(kind.build(source).payload), source.fields, source.options)


def numbers(rows: Rows | None, count: int) -> set[int]:
    return set(range(count)) if rows is None else set(rows.numbers().tolist())


def plain_array(column: pa.Array) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


@cache
def _context(_thread: int) -> datafusion.SessionContext:
    return datafusion.SessionContext()


def true_rows(columns: Mapping[str, pa.Array], where: str) -> set[int]:
    """The rows for which the condition is TRUE in DataFusion."""
    plain = {name: plain_array(column) for name, column in columns.items()}
    count = len(next(iter(plain.values())))
    context = _context(threading.get_ident())
    context.deregister_table("t")
    batch = pa.record_batch({**plain, "row_": pa.array(range(count), pa.int64())})
    context.register_record_batches("t", [[batch]])
    found = context.sql(f"SELECT row_ FROM t WHERE {where}").collect()
    return {row for part in found for row in part.column(0).to_pylist()}


@dataclass(frozen=True)
class Asked:
    """The same condition for an index and for DataFusion."""

    condition: Condition
    sql: str


@st.composite
def edges(draw: DrawFn, rows: int) -> list[int]:
    """First rows of pages or row groups, then the number of rows."""
    inner = draw(st.sets(st.integers(1, rows - 1), max_size=8)) if rows > 1 else set()
    return [0, *sorted(inner), rows] if rows else [0]


@st.composite
def columns_of(draw: DrawFn, kind: Kind, rows: int) -> list[Any]:
    """Values of a column: few distinct ones, repeated, and NULLs."""
    few = draw(st.lists(kind.values, min_size=1, max_size=8))
    if kind.float:
        few += [0.0, -0.0]
    return draw(st.lists(st.none() | st.sampled_from(few), min_size=rows, max_size=rows))


@st.composite
def questions(draw: DrawFn, kind: Kind, values: Sequence[Any], name: str = "c") -> Asked:
    """Conditions on a column of this kind, mostly with values that it has."""
    there = [value for value in values if value is not None]
    one = st.sampled_from(there) | kind.values if there else kind.values

    def literal(value: Any) -> tuple[Any, str]:
        found = ordinal(plain_array(kind.array([value]))[0])
        assert found is not None
        return found, kind.literal(value).lake

    shape = draw(st.sampled_from(["compare", "in", "between", "null", "text" if kind.text else "compare"]))
    if shape == "null":
        return draw(
            st.sampled_from([Asked(IsNull(name), f"{name} IS NULL"), Asked(IsNotNull(name), f"{name} IS NOT NULL")])
        )
    if shape == "text":
        return draw(_texts(name, there))
    if shape == "compare":
        operator = draw(st.sampled_from(OPERATORS))
        value, text = literal(draw(one))
        asked = Asked(Compare(name, operator, value), f"{name} {operator} {text}")
    elif shape == "between":
        (low, low_text), (high, high_text) = (literal(draw(one)) for _ in range(2))
        asked = Asked(Between(name, low, high), f"{name} BETWEEN {low_text} AND {high_text}")
        if kind.float:  # not under NOT: planning only puts a weaker condition there
            return asked
    else:
        several = [
            literal(value)
            for value in draw(st.lists(one, min_size=1, max_size=draw(st.sampled_from([3, 3, 6, 6, 90]))))
        ]
        asked = Asked(
            In(name, tuple(value for value, _ in several)), f"{name} IN ({', '.join(text for _, text in several)})"
        )
    return Asked(Not(asked.condition), f"NOT ({asked.sql})") if draw(st.booleans()) else asked  # type: ignore[arg-type]


@st.composite
def _texts(draw: DrawFn, name: str, there: Sequence[str]) -> Asked:
    """LIKE, ILIKE and prefixes, with parts of existing values and others."""
    whole = draw(st.sampled_from(there)) if there else "abc"
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), min_size=2, max_size=6)))
    pieces = [whole[first:last] for first, last in zip(cuts[::2], cuts[1::2], strict=False) if last > first]
    pieces = [piece for piece in pieces if not set(piece) & set("%_\\\0")][:3] or ["a"]
    if draw(st.booleans()):
        prefix = pieces[0]
        text = prefix.replace("'", "''")
        asked = Asked(StartsWith(name, prefix.encode()), f"{name} LIKE '{text}%'")
        return Asked(Not(asked.condition), f"NOT ({asked.sql})") if draw(st.booleans()) else asked  # type: ignore[arg-type]
    starts, ends, fold = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    if fold and draw(st.booleans()) and all(folds_alike(letter) for letter in "".join(pieces)):
        pieces = [piece.upper() for piece in pieces if len(piece.upper()) == len(piece)] or ["A"]
    pattern = f"{'' if starts else '%'}{'%'.join(pieces)}{'' if ends else '%'}".replace("'", "''")
    return Asked(Like(name, tuple(pieces), starts, ends, fold), f"{name} {'ILIKE' if fold else 'LIKE'} '{pattern}'")


def any_kind() -> SearchStrategy[Kind]:
    return st.sampled_from(INDEXED)


def distorted(payload: bytes, data: DataObject) -> bytes:
    """A payload with changed contents and a correct checksum, as an attacker could write it."""
    header, arrays, blobs = array_container.unpack(payload)
    changed = [array.copy() for array in arrays]
    filled = [array for array in changed if len(array)]
    for _ in range(data.draw(st.integers(1, 3))):
        match data.draw(st.sampled_from(["number", "length", "header", "blob"])):
            case "number" if filled:
                array = data.draw(st.sampled_from(filled))
                array[data.draw(st.integers(0, len(array) - 1))] = data.draw(
                    st.integers(-3, 3) | st.sampled_from([2**31, 2**62, -(2**63), 2**63 - 1])
                )
            case "length":
                place = data.draw(st.integers(0, len(changed) - 1))
                changed[place] = data.draw(st.sampled_from([changed[place][:-1], np.repeat(changed[place], 2)]))
            case "header":
                name = data.draw(st.sampled_from(sorted(header)))
                header[name] = data.draw(
                    st.sampled_from([None, "wide", 1e400, [], {}, 2**70, ["c"], [{}], header[name]])
                )
            case "blob" if blobs:
                blobs = data.draw(st.sampled_from([[], [b""], [*blobs, b"x"], [blobs[0][::-1]], [blobs[0][:-1]]]))
    return array_container.pack(header, changed, blobs)


def check_damaged_payloads(
    tested: PayloadKind, source: ColumnSource, kind: Kind, values: list[Any], data: DataObject
) -> None:
    """A changed payload is refused or misses no row; a malicious one does no harm."""
    payload = tested.build(source).payload
    place = data.draw(st.integers(0, len(payload) - 1))
    other = bytes([payload[place] ^ data.draw(st.integers(1, 255))])
    asked = data.draw(questions(kind, values))
    for changed in (payload[:place], payload[:place] + other + payload[place + 1 :], payload + b"x"):
        try:
            index = tested.open(Held(changed), source.fields, {})
        except IndexDamaged:
            continue
        found = numbers(index.find([asked.condition], 1.0).rows, source.rows)
        assert found >= true_rows({"c": kind.array(values)}, asked.sql)
    try:
        hostile = tested.open(Held(distorted(payload, data)), source.fields, {})
    except IndexDamaged:
        return
    rows = hostile.find([asked.condition], 1.0).rows
    assert rows is None or rows.count >= 0
