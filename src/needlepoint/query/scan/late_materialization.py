"""Evaluates a predicate on the columns that were read for it, to find the rows that can match.

It may pass too many rows: what this evaluation does not support passes, and the query evaluates everything again.

>>> from needlepoint.predicate import And, Unknown
>>> table = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
>>> predicate = And((Compare("id", ">", 1), Not(Compare("name", "=", b"a")), Unknown()))
>>> matching(table, predicate).tolist()
[False, True, False]
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Sequence
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.indexes.text import evaluate, folded, folded_text, parse
from needlepoint.predicate import (
    Compare,
    CompareColumns,
    Condition,
    In,
    IsNotNull,
    IsNull,
    Leaf,
    Like,
    Not,
    Ordinal,
    Predicate,
    StartsWith,
    TextMatch,
    TimePart,
    columns_of,
    fold,
    leaves,
    without_not,
)

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


Mask = npt.NDArray[np.bool_]


def matching(table: pa.Table, predicate: Predicate) -> Mask:
    """Which rows can make the predicate TRUE."""
    return _evaluated(table, predicate, [])


def matching_exactly(table: pa.Table, predicate: Predicate) -> Mask | None:
    """Which rows make the predicate TRUE; None if that is not known."""
    passed_over: list[Condition] = []
    mask = _evaluated(table, predicate, passed_over)
    return None if passed_over else mask


def _evaluated(table: pa.Table, predicate: Predicate, passed_over: list[Condition]) -> Mask:
    def evaluated(condition: Condition) -> Any:
        mask = _evaluate(table, condition)
        if mask is None:
            passed_over.append(condition)
        return mask

    found = fold(
        without_not(predicate),
        lambda conditions: map(evaluated, conditions),
        all_of=partial(reduce, pc.and_kleene),
        any_of=partial(reduce, pc.or_kleene),
        nothing=lambda: pa.repeat(False, table.num_rows),
    )
    if found is None:
        return np.ones(table.num_rows, np.bool_)
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask


def sifting_columns(predicate: Predicate, types: dict[str, pa.DataType]) -> frozenset[str]:
    """The columns to read first; none if no value can rule a row out."""

    def column_of(condition: Condition) -> frozenset[str] | None:
        leaf = next(leaves(condition))
        if isinstance(leaf, TimePart):
            return None
        names = columns_of(leaf)
        found = [types.get(name) for name in names]
        usable = all(type is not None and (isinstance(leaf, IsNull | IsNotNull) or _comparable(type)) for type in found)
        return frozenset(names) if usable else None

    def union(columns: Sequence[frozenset[str]]) -> frozenset[str]:
        return frozenset[str]().union(*columns)

    found = fold(
        without_not(predicate),
        lambda conditions: map(column_of, conditions),
        all_of=union, any_of=union, nothing=frozenset[str],
    )  # fmt: skip
    return found or frozenset()


def _comparable(type: pa.DataType) -> bool:
    """Not floats: only DataFusion decides how NaN compares."""
    return bool(
        pa.types.is_integer(type)
        or pa.types.is_boolean(type)
        or pa.types.is_decimal(type)
        or pa.types.is_temporal(type)
        or pa.types.is_string(type)
        or pa.types.is_binary(type)
        or pa.types.is_fixed_size_binary(type)
    )


def _evaluate(table: pa.Table, condition: Condition) -> Any:
    """A boolean array with NULLs; None if the condition is not supported."""
    mask = _leaf(table, next(leaves(condition)))
    return pc.invert(mask) if isinstance(condition, Not) and mask is not None else mask


def _leaf(table: pa.Table, leaf: Leaf) -> Any:
    if not set(columns_of(leaf)) <= set(table.column_names):
        return None
    column = table.column(leaf.column)
    if isinstance(leaf, IsNull | IsNotNull):
        return column.is_null() if isinstance(leaf, IsNull) else column.is_valid()
    if not _comparable(column.type):
        return None
    try:
        match leaf:
            case Compare(_, operator, value):
                return _COMPARE[operator](column, scalar_of(value, column.type))
            case CompareColumns(_, operator, other):
                return _COMPARE[operator](column, table.column(other))
            case In(_, values):
                found = pc.is_in(column, _array_of(values, column.type))
                return pc.if_else(column.is_valid(), found, None)
            case StartsWith(_, prefix) if pa.types.is_string(column.type):
                return pc.starts_with(column, prefix.decode())
            case TextMatch(_, query) if pa.types.is_string(column.type):
                return pa.chunked_array([evaluate(parse(query), column)])
            case Like() if pa.types.is_string(column.type):
                return _holds(column, leaf)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return None  # the column's type cannot hold the value
    return None


def _holds(column: pa.ChunkedArray, like: Like) -> Any:
    """Whether each text contains the pieces, in order and without overlap."""
    pieces = list(map(folded_text, like.pieces)) if like.fold else like.pieces
    texts = folded(column) if like.fold else column
    if len(pieces) == 1 and not (like.starts or like.ends):
        return pc.match_substring(texts, pieces[0])
    pattern = ".*".join(map(re.escape, pieces))
    return pc.match_substring_regex(texts, f"(?s){'^' if like.starts else ''}{pattern}{'$' if like.ends else ''}")


@lru_cache(maxsize=16)  # every file of a table is compared with the same list
def _array_of(values: tuple[Ordinal, ...], type: pa.DataType) -> pa.Array:
    """The values of a column of this type."""
    if pa.types.is_integer(type) and all(isinstance(value, int) for value in values):
        return pa.array(values, type)
    return pa.array([scalar_of(value, type) for value in values], type)


def scalar_of(value: Ordinal, type: pa.DataType) -> pa.Scalar:
    """The value of a column of this type."""
    if isinstance(value, bytes):
        return pa.scalar(value.decode() if pa.types.is_string(type) else value, type)
    if pa.types.is_decimal(type):
        with decimal.localcontext(prec=100):
            return pa.scalar(decimal.Decimal(value).scaleb(-type.scale), type)
    if pa.types.is_temporal(type):
        return pa.scalar(int(value), pa.int32() if type.bit_width == 32 else pa.int64()).cast(type)
    return pa.scalar(bool(value) if pa.types.is_boolean(type) else value, type)
