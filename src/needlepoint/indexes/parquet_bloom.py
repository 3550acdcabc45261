"""Row groups that Parquet's own bloom filters rule out.

A filter holds hashes of the bytes that a column stores, and a predicate has ordinals. Where an ordinal is not stored as
one of a few known byte strings, the answer is "maybe":

    integers, dates, times    little-endian, of the stored width; a value outside the type's range is not there
    timestamps, durations     the same, if the file's unit is the table's
    floats                    IEEE; 0.0 is probed as 0.0 and -0.0; NaN has too many forms: maybe
    decimals                  INT32 and INT64 the same, fixed length big-endian; variable length: maybe
    strings, binaries, uuids  as they are
    the rest, and booleans    maybe
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from needlepoint.objects import OpenObject
from needlepoint.parquet import FileCard, KnownFilters, has_filters, probe
from needlepoint.parquet.format import hash_values, thrift
from needlepoint.predicate import And, Compare, Constant, In, Or, Ordinal, Predicate
from needlepoint.tables import plain

Answers = npt.NDArray[np.bool_]

# parquet.thrift, Type
_INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY, _FIXED = 1, 2, 4, 5, 6, 7
_WIDTH = {_INT32: 4, _INT64: 8}


def may_match(
    file: OpenObject,
    card: FileCard,
    predicate: Predicate,
    row_groups: Sequence[int],
    schema: pa.Schema | None = None,
    known: KnownFilters | None = None,
) -> Answers:
    """For each of the row groups: can a row in it make the predicate TRUE, as far as the bloom filters know?

    The caller checks that the open file is the one that the card describes, before and after. The predicate is in the
    units of `schema`, the table's; without it, in the file's. The places of filters are added to `known`.
    """
    return _FilterProbe(file, card, schema, {} if known is None else known).may_match(
        predicate, np.asarray(row_groups, np.int64)
    )


def filtered_columns(card: FileCard) -> tuple[str, ...]:
    """The flat columns that have a filter in any row group."""
    groups = range(card.num_row_groups)
    return tuple(
        field.name
        for field in card.fields
        if not card.leaves[field.first_leaf].nested and has_filters(card, field.first_leaf, groups)
    )


class _FilterProbe:
    def __init__(self, file: OpenObject, card: FileCard, schema: pa.Schema | None, known: KnownFilters) -> None:
        self._file, self._card, self._schema, self._known = file, card, schema, known

    def may_match(self, predicate: Predicate, groups: npt.NDArray[np.int64]) -> Answers:
        match predicate:
            case Constant(False):
                return np.zeros(len(groups), np.bool_)
            case And(children):
                answers = np.ones(len(groups), np.bool_)
                for child in children:  # each is evaluated only for the row groups that are left
                    answers[answers] = self.may_match(child, groups[answers])
                return answers
            case Or(children):
                answers = np.zeros(len(groups), np.bool_)
                for child in children:
                    answers[~answers] = self.may_match(child, groups[~answers])
                return answers
            case Compare(column, "=", value):
                return self._any_of(column, (value,), groups)
            case In(column, values):
                return self._any_of(column, values, groups)
        return np.ones(len(groups), np.bool_)

    def _any_of(self, column: str, values: Sequence[Ordinal], groups: npt.NDArray[np.int64]) -> Answers:
        numbers = [number for number, field in enumerate(self._card.fields) if field.name == column]
        maybe = np.ones(len(groups), np.bool_)
        if len(numbers) != 1 or not len(groups):
            return maybe
        leaf = self._card.fields[numbers[0]].first_leaf
        wanted: list[int] = groups.tolist()
        if self._card.leaves[leaf].nested or not has_filters(self._card, leaf, wanted):
            return maybe
        stored = self._stored(numbers[0], values)
        if stored is None:
            return maybe
        probed = probe(self._file, self._card, leaf, wanted, hash_values(stored), self._known)
        found: Answers = np.any(probed, axis=1)
        return found

    def _stored(self, number: int, values: Sequence[Ordinal]) -> list[bytes] | None:
        field = self._card.fields[number]
        type = plain(self._card.arrow_schema.field(number).type)
        if self._schema is not None and not _same_unit(type, plain(self._schema.field(field.name).type)):
            return None
        # SchemaElement.type_length; a flat field is one element
        width = thrift.parse(field.raw).optional_integer32(2)
        return stored_values(values, type, self._card.leaves[field.first_leaf].physical_type, width)


def _same_unit(file: pa.DataType, table: pa.DataType) -> bool:
    if pa.types.is_decimal(file) or pa.types.is_decimal(table):
        return getattr(file, "scale", None) == getattr(table, "scale", None)
    timed = pa.types.is_temporal(file) or pa.types.is_temporal(table)
    return not timed or bool(file.id == table.id and getattr(file, "unit", None) == getattr(table, "unit", None))


def stored_values(
    values: Sequence[Ordinal], type: pa.DataType, physical: int, width: int | None = None
) -> list[bytes] | None:
    """The bytes as which a column stores any of these values; None when they are not known.

    Values the column cannot hold have none. `width` is the length of fixed-length values.

    >>> stored_values([1, 200], pa.int8(), 1), stored_values([-0.0], pa.float32(), 4)
    ([b'\\x01\\x00\\x00\\x00'], [b'\\x00\\x00\\x00\\x00', b'\\x00\\x00\\x00\\x80'])
    >>> stored_values([-2], pa.decimal128(5, 2), 7, 3), stored_values([1], pa.bool_(), 0)
    ([b'\\xff\\xff\\xfe'], None)
    """
    if pa.types.is_floating(type):
        format = _FLOAT_FORMATS.get((physical, type.bit_width))
        numbers = [value for value in values if isinstance(value, (int, float)) and not math.isnan(value)]
        return None if format is None or len(numbers) < len(values) else _stored_floats(numbers, format)
    texts = [value for value in values if isinstance(value, bytes)]
    if len(texts) == len(values) and (pa.types.is_string(type) or pa.types.is_binary(type)):
        return texts if physical == _BYTE_ARRAY else None
    if len(texts) == len(values) and pa.types.is_fixed_size_binary(type):
        return [text for text in texts if len(text) == type.byte_width] if physical == _FIXED else None
    layout = _integer_layout(type, physical, width)
    integers = [value for value in values if isinstance(value, int)]
    return None if layout is None or len(integers) < len(values) else layout.pack(integers)


_FLOAT_FORMATS = {(_FLOAT, 32): "<f", (_DOUBLE, 64): "<d", (_FIXED, 16): "<e"}


def _stored_floats(values: Sequence[float], format: str) -> list[bytes]:
    """A file with a narrower type than the table's does not hold values that the type rounds."""
    found: list[bytes] = []
    for value in values:
        try:
            data = struct.pack(format, value)
        except OverflowError:
            continue
        if value == 0:
            found += (struct.pack(format, 0.0), struct.pack(format, -0.0))
        elif struct.unpack(format, data)[0] == value:
            found.append(data)
    return found


@dataclass(frozen=True, slots=True)
class _IntegerLayout:
    """Integers of `bits`, stored in `width` bytes."""

    bits: int
    width: int
    signed: bool = True
    order: Literal["little", "big"] = "little"

    def pack(self, values: Sequence[int]) -> list[bytes]:
        low, high = (-(1 << self.bits - 1), 1 << self.bits - 1) if self.signed else (0, 1 << self.bits)
        width, order, signed = self.width, self.order, self.signed
        return [value.to_bytes(width, order, signed=signed) for value in values if low <= value < high]


def _integer_layout(type: pa.DataType, physical: int, width: int | None) -> _IntegerLayout | None:
    stored = _WIDTH.get(physical)
    if pa.types.is_decimal(type):
        if physical == _FIXED and width:
            return _IntegerLayout(8 * width, width, order="big")
        # Variable length: there may be leading zeros.
        return _IntegerLayout(8 * stored, stored) if stored else None
    if stored is None:
        return None
    if pa.types.is_integer(type):
        return _IntegerLayout(type.bit_width, stored, not pa.types.is_unsigned_integer(type))
    # Seconds and date64 are stored in another unit than they are read in.
    seconds = getattr(type, "unit", None) == "s" and not pa.types.is_duration(type)
    if pa.types.is_temporal(type) and not pa.types.is_date64(type) and not seconds:
        return _IntegerLayout(8 * stored, stored)
    return None
