"""Values of a column as an index keeps them: one form for all types whose ordinals are alike.

    integers, bool, dates, times, short decimals     integer   int64
    floats                                           float     float64; -0.0 as 0.0
    strings, binaries, uuids                         binary    as they are
    unsigned 64-bit integers, long decimals          wide      big-endian, so many bytes that order as the numbers do

A literal of a condition is an ordinal (predicate.py), and becomes the same form:

>>> stored_values(pa.array([True, None])).to_pylist(), Family("integer").literal(1)
([1, None], 1)
>>> wide = family_of(pa.uint64())
>>> stored_values(pa.array([258], pa.uint64())).to_pylist(), wide.literal(258)
([b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02'], b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02')
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.errors import NotIndexable
from needlepoint.predicate import Ordinal
from needlepoint.tables import plain

_ARROW = {"integer": pa.int64(), "float": pa.float64(), "binary": pa.large_binary(), "wide": pa.large_binary()}
# Decimals of so many digits fit into 64 bits.
_SHORT_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Family:
    """How values are stored; `width` is the bytes of a wide number, and `signed` whether there are negative ones."""

    form: str
    width: int = 0
    signed: bool = True

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self.form]

    @property
    def is_binary(self) -> bool:
        return self.form in ("binary", "wide")

    def to_dict(self) -> dict[str, Any]:
        return {"form": self.form, "width": self.width, "signed": self.signed}

    @classmethod
    def from_dict(cls, header: Mapping[str, Any]) -> Family:
        """ValueError for what is no family."""
        for family in _FAMILIES:
            if family.to_dict().items() <= header.items():
                return family
        raise ValueError(f"values stored as {header.get('form')!r}")

    def literal(self, value: Ordinal) -> Ordinal | None:
        """An ordinal as it is stored, or something in its place in the order that equals no stored value; None for
        what cannot be compared here: NaN, and values of another kind.

        >>> Family("wide", 8, signed=False).literal(-1), Family("float").literal(2**60 + 1)
        (b'', None)
        """
        match self.form:
            case "integer":
                return value if isinstance(value, int) else None
            case "float":
                return _float(value)
            case "wide":
                return self._wide(value) if isinstance(value, int) else None
        return value if isinstance(value, bytes) else None

    def literals(self, values: Sequence[Ordinal]) -> list[Ordinal] | None:
        """All of them; None when one cannot be compared."""
        found = [literal for value in values if (literal := self.literal(value)) is not None]
        return found if len(found) == len(values) else None

    def array(self, literals: Sequence[Ordinal]) -> pa.Array:
        """Of literals; those that no column can hold are left out."""
        if self.form == "integer":
            literals = [value for value in literals if -(2**63) <= value < 2**63]  # type: ignore[operator]
        return pa.array(literals, self.arrow)

    def _wide(self, value: int) -> bytes:
        raised = value + (1 << 8 * self.width - 1) if self.signed else value
        if raised < 0:
            return b""
        # One byte more than all values that are there have.
        return b"\xff" * (self.width + 1) if raised >> 8 * self.width else raised.to_bytes(self.width, "big")


_INTEGER, _FLOAT, _BINARY = Family("integer"), Family("float"), Family("binary")
_UNSIGNED, _LONG, _LONGEST = Family("wide", 8, signed=False), Family("wide", 16), Family("wide", 32)
_FAMILIES = (_INTEGER, _FLOAT, _BINARY, _UNSIGNED, _LONG, _LONGEST)


def family_of(type: pa.DataType) -> Family | None:
    """How values of a type are stored; None for types without ordinals."""
    type = plain(type)
    if pa.types.is_uint64(type):
        return _UNSIGNED
    if pa.types.is_decimal(type):
        if type.precision <= _SHORT_DIGITS:
            return _INTEGER
        return _LONGEST if pa.types.is_decimal256(type) else _LONG
    if pa.types.is_integer(type) or pa.types.is_boolean(type):
        return _INTEGER
    if pa.types.is_temporal(type) and not pa.types.is_interval(type):
        return _INTEGER
    if pa.types.is_floating(type):
        return _FLOAT
    if pa.types.is_string(type) or pa.types.is_binary(type) or pa.types.is_fixed_size_binary(type):
        return _BINARY
    return None


def require_family(kind: str, table: str, field: pa.Field) -> Family:
    """The family of a column; NotIndexable when it has none."""
    family = family_of(field.type)
    if family is None:
        of_table = f" of table '{table}'" if table else ""
        raise NotIndexable(
            f"column '{field.name}'{of_table} is {field.type}, which a {kind} index cannot hold.",
            hint="It takes numbers, strings, binaries, dates, times, timestamps, decimals, uuids and bools.",
        )
    return family


def stored_values(column: pa.Array) -> pa.Array:
    """A column as its family stores it, NULLs and NaN included."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    family = family_of(column.type)
    if family is None:
        raise NotIndexable(f"{column.type} cannot be indexed by value.")
    match family.form:
        case "float":
            # Adding zero makes -0.0 into 0.0.
            return pc.add(column.cast(pa.float64()), 0.0)
        case "integer":
            return _integers(column)
        case "wide":
            return _wide_numbers(column, family)
    return column.cast(pa.large_binary())


def _integers(column: pa.Array) -> pa.Array:
    type = column.type
    if pa.types.is_decimal(type):
        low = _words(column)[:, -1].byteswap().view(np.int64)
        return pa.array(low, mask=_nulls(column))
    if pa.types.is_temporal(type):
        column = column.view(pa.int32() if type.bit_width == 32 else pa.int64())
    return column.cast(pa.int64())


def _wide_numbers(column: pa.Array, family: Family) -> pa.Array:
    if pa.types.is_uint64(column.type):
        words = np.where(_nulls(column), 0, pc.fill_null(column, 0).to_numpy()).astype(">u8").view(np.uint64)[:, None]
    else:
        words = _words(column)
        words[:, 0] ^= np.uint64(0x80)  # the sign, in the first of the big-endian bytes
    flat = pa.py_buffer(np.ascontiguousarray(words).tobytes())
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(family.width), len(column), [None, flat])
    found = fixed.cast(pa.large_binary())
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.large_binary())) if column.null_count else found


def _words(column: pa.Array) -> npt.NDArray[np.uint64]:
    """Decimals as words of 64 bits whose memory is big-endian bytes; NULLs are any number."""
    if not pa.types.is_decimal256(column.type):
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    count = column.type.bit_width // 64
    data = np.frombuffer(column.buffers()[1] or b"", np.uint64)
    little = data.reshape(-1, count)[column.offset : column.offset + len(column)]
    words: npt.NDArray[np.uint64] = little[:, ::-1].byteswap()
    return words


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _float(value: Ordinal) -> float | None:
    if isinstance(value, bytes):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if math.isnan(number) or number != value else number + 0.0


def is_nan(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Which of the stored values are NaN."""
    if not pa.types.is_floating(values.type):
        return np.zeros(len(values), np.bool_)
    found: npt.NDArray[np.bool_] = pc.fill_null(pc.is_nan(values), False).to_numpy(zero_copy_only=False)
    return found


def joined_binaries(lengths: npt.NDArray[np.int64], data: bytes) -> pa.Array:
    """Binaries of these lengths, one after the other in the bytes; ValueError when they do not fill them."""
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    # Each is looked at: a sum that overflows could come out right.
    if ((lengths < 0) | (lengths > len(data))).any() or int(offsets[-1]) != len(data):
        raise ValueError(f"{len(data)} bytes of values where {int(offsets[-1])} were announced")
    buffers: list[Any] = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers)


def ascending_once(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each number once, in order: what np.unique does, whose hashing of 64-bit numbers takes ten times as long."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]
