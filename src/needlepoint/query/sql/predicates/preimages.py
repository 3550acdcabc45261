"""Which values of a column a comparison of an expression admits.

    10 - CAST(i AS BIGINT) * 2 > 4        the expression, and where its result is: from 5
         CAST(i AS BIGINT) * 2            up to 5
         CAST(i AS BIGINT)                up to 2
              i                           up to 2

From the outside to the inside, each function or operator with one argument that is not a literal turns the ranges of
its result into ranges of this argument (ranges.py), down to the column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from needlepoint.predicate import And, Compare, Constant, In, Or, Ordinal, Predicate, Unknown
from needlepoint.query.sql.predicates import ranges
from needlepoint.query.sql.predicates.ranges import Interval, Range, Ranges
from needlepoint.tables import ordinal

# An expression is not followed deeper, and more ranges than this are taken as one.
_DEEPEST, _MOST_RANGES = 20, 20
_TARGET = re.compile(r" AS (\w+)(?:\((\w+)(?:, (-?\d+))?\))?\)$")
_TYPES = {
    **{f"{sign}Int{bits}": getattr(pa, f"{sign.lower()}int{bits}")() for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "Float32": pa.float32(), "Float64": pa.float64(), "Date32": pa.date32(), "Boolean": pa.bool_(),
}  # fmt: skip
_ROUNDING = {"floor", "ceil", "round", "trunc"}
_ARITHMETIC = {"+", "-", "*", "/"}

Types = Mapping[str, pa.DataType]


class Preimage(NamedTuple):
    """The column is in one of the ranges wherever the comparison is TRUE."""

    column: str
    ranges: Ranges

    def predicate(self) -> Predicate:
        """May be TRUE for other rows too.

        >>> Preimage("id", [Range(5, 5), Range(7, 7)]).predicate()
        And(children=(In(column='id', values=(5, 7)), Unknown()))
        """
        points = sorted({low for low, high in self.ranges if low == high and low is not None})
        spans = [Range(low, high) for low, high in self.ranges if low != high or low is None]
        if len(spans) > _MOST_RANGES:
            lows, highs = zip(*spans, strict=True)
            spans = [Range(None if None in lows else min(lows), None if None in highs else max(highs))]
        found = [And(self._ends(span)) for span in spans]
        equal: list[Predicate] = []
        if points:
            values: tuple[Ordinal, ...] = tuple(points)
            equal.append(Compare(self.column, "=", values[0]) if len(values) == 1 else In(self.column, values))
        match equal, found:
            case [], []:
                return And((Constant(False), Unknown()))
            case [], [only]:
                return And((*only.children, Unknown()))
            case [only], []:
                return And((only, Unknown()))
        return And((Or((*equal, *found)), Unknown()))

    def _ends(self, span: Range) -> tuple[Predicate, ...]:
        ends = ((">=", span.low), ("<=", span.high))
        return tuple(Compare(self.column, sign, end) for sign, end in ends if end is not None)


def preimage(
    expression: Any, operator: str, values: tuple[Ordinal, ...], type: pa.DataType, types: Types
) -> Preimage | None:
    """Where the comparison with a value of this type, or with several by "IN", can be TRUE; None if not known."""
    if expression.variant_name() == "Cast" and operator in ("=", "IN") and same_type(pa.string(), type):
        expression = expression.rex_call_operands()[0]
        inside = type_of(expression, types)
        texts = [value for value in values if isinstance(value, bytes)]
        found, type = None if inside is None else ranges.of_texts(texts, inside), inside
    else:
        found = _compared(operator, values, type)
    for _ in range(_DEEPEST):
        if found is None or type is None:
            return None
        if expression.variant_name() == "Column":
            name = expression.to_variant().name()
            return Preimage(name, found) if name in types and same_type(types[name], type) else None
        step = _inward(expression, found, type, types)
        if step is None:
            return None
        expression, found, type = step
    return None


def _compared(operator: str, values: tuple[Ordinal, ...], type: pa.DataType) -> Ranges | None:
    if any(isinstance(value, bytes) or math.isnan(value) for value in values):
        return None
    step = 0 if pa.types.is_floating(type) else 1  # -0.0 may be less than 0.0
    match operator:
        case "=" | "IN":
            return [Range(value, value) for value in values]
        case ">" | ">=":
            return [Range(_number(values[0]) + step * (operator == ">"), None)]
        case "<" | "<=":
            return [Range(None, _number(values[0]) - step * (operator == "<"))]
    return None


def _number(value: Ordinal) -> int | float:
    assert not isinstance(value, bytes)
    return value


_Step = tuple[Any, Ranges | None, pa.DataType | None]


def _inward(expression: Any, found: Ranges, type: pa.DataType, types: Types) -> _Step | None:
    """The argument of an expression, the ranges of its values, and its type."""
    match expression.variant_name():
        case "Cast":
            inner = expression.rex_call_operands()[0]
            inside = type_of(inner, types)
            return None if inside is None else (inner, ranges.cast(found, inside, type), inside)
        case "BinaryExpr" if expression.rex_call_operator() in _ARITHMETIC:
            return _arithmetic(expression, found, type, types)
        case "Negative":
            inner = expression.rex_call_operands()[0]
            return inner, _linear(found, type, -1, None), type
        case "ScalarFunction":
            return _function(expression, found, type, types)
    return None


def _arithmetic(expression: Any, found: Ranges, type: pa.DataType, types: Types) -> _Step | None:
    operator, (left, right) = expression.rex_call_operator(), expression.rex_call_operands()
    reverse = left.variant_name() == "Literal"
    inner, literal = (right, left) if reverse else (left, right)
    if literal.variant_name() != "Literal" or (reverse and operator == "/"):
        return None
    scalar = literal.python_value()
    if scalar.type == pa.month_day_nano_interval():
        return None if reverse and operator == "-" else _moved(inner, operator, scalar, found, type)
    number = ordinal(scalar)
    if number is None or isinstance(number, bytes) or not math.isfinite(number):
        return None
    if pa.types.is_decimal(type):
        return _decimal(inner, operator, reverse, scalar, found, type, types)
    if scalar.type != type:
        return None
    match operator:
        case "+":
            return inner, _linear(found, type, 1, number), type
        case "-":
            return inner, _linear(found, type, -1, number) if reverse else _linear(found, type, 1, -number), type
        case "*" if pa.types.is_integer(type):
            return inner, ranges.times(found, int(number), type, _extent(inner, types)), type
        case "/" if pa.types.is_integer(type):
            return inner, ranges.divided(found, int(number), type), type
        case "*" | "/" if pa.types.is_float64(type) and number != 0:
            factor = Fraction(number) if operator == "*" else 1 / Fraction(number)
            return inner, ranges.linear(found, factor, Fraction(0)), type
    return None


def _linear(found: Ranges, type: pa.DataType, sign: int, number: int | float | None) -> Ranges | None:
    """From where `number + x`, or `number - x`, gets into the ranges."""
    if pa.types.is_integer(type):
        whole = int(number or 0)
        return ranges.added(found, whole, type) if sign > 0 else ranges.subtracted_from(found, whole, type)
    if pa.types.is_float64(type):
        return ranges.linear(found, Fraction(sign), Fraction(number or 0))
    return ranges.exact(found, Fraction(sign)) if pa.types.is_decimal(type) and number is None else None


def _extent(inner: Any, types: Types) -> pa.DataType | None:
    """The type of the integers that an expression casts to a wider one."""
    inside = type_of(inner.rex_call_operands()[0], types) if inner.variant_name() == "Cast" else None
    return inside if inside is not None and pa.types.is_integer(inside) else None


def _moved(inner: Any, operator: str, scalar: Any, found: Ranges, type: pa.DataType) -> _Step | None:
    value = scalar.as_py()
    if value is None or operator not in ("+", "-") or not (pa.types.is_date32(type) or pa.types.is_timestamp(type)):
        return None
    interval = Interval(value.months, value.days, value.nanoseconds)
    return inner, ranges.moved(found, interval if operator == "+" else -interval, type), type


def _decimal(
    inner: Any, operator: str, reverse: bool, scalar: Any, found: Ranges, type: pa.DataType, types: Types
) -> _Step | None:
    """Decimals have their scales: 1.5 + 1 is 15 + 10 with the scale 1."""
    inside, number = type_of(inner, types), ordinal(scalar)
    if inside is None or not pa.types.is_decimal(inside) or not pa.types.is_decimal(scalar.type):
        return None
    if number is None or isinstance(number, bytes) or type.scale != _scale(operator, inside, scalar.type):
        return None
    if operator == "*":
        return inner, ranges.exact(found, Fraction(number)) if number else None, inside
    factor, summand = (
        Fraction(10) ** (type.scale - inside.scale),
        Fraction(10) ** (type.scale - scalar.type.scale) * number,
    )
    if operator == "-":
        factor, summand = (-factor, summand) if reverse else (factor, -summand)
    return inner, ranges.exact(found, factor, summand), inside


def _scale(operator: str, left: pa.DataType, right: pa.DataType) -> int | None:
    match operator:
        case "+" | "-":
            return max(int(left.scale), int(right.scale))
        case "*":
            return int(left.scale + right.scale)
    return None


def _function(expression: Any, found: Ranges, type: pa.DataType, types: Types) -> _Step | None:
    name, operands = expression.rex_call_operator(), expression.rex_call_operands()
    if name in ("date_trunc", "date_part") and len(operands) == 2:
        unit, inside = literal_text(operands[0]), type_of(operands[1], types)
        if unit is None or inside is None:
            return None
        if name == "date_trunc":
            return operands[1], ranges.truncated(found, unit, inside) if same_type(inside, type) else None, inside
        part = {"year": ranges.year, "epoch": ranges.epoch}.get(unit.lower())
        return operands[1], None if part is None else part(found, inside), inside
    if name == "nullif" and operands[1].variant_name() == "Literal":
        return operands[0], found, type
    if name == "abs" and pa.types.is_integer(type):
        positive = ranges.clipped(found, (0, ranges.extent_of(type)[1]))
        return operands[0], [*positive, *ranges.subtracted_from(positive, 0, type)], type
    if name in _ROUNDING and len(operands) == 1 and pa.types.is_float64(type):
        return operands[0], ranges.cast(found, pa.float64(), pa.int64()), type  # also less than 1 away
    return None


def type_of(expression: Any, types: Types) -> pa.DataType | None:
    """The type of an expression, if it is a column, a cast, or arithmetic with one literal."""
    match expression.variant_name():
        case "Column":
            return types.get(expression.to_variant().name())
        case "Cast":
            return _target(expression.canonical_name())
        case "Negative":
            return type_of(expression.rex_call_operands()[0], types)
        case "BinaryExpr" if (operator := expression.rex_call_operator()) in _ARITHMETIC:
            left, right = expression.rex_call_operands()
            inner, literal = (right, left) if left.variant_name() == "Literal" else (left, right)
            if literal.variant_name() != "Literal":
                return None
            inside, other = type_of(inner, types), literal.python_value().type
            if inside is not None and pa.types.is_decimal(inside) and pa.types.is_decimal(other):
                scale = _scale(operator, inside, other)
                return None if scale is None or scale > 38 else pa.decimal128(38, scale)
            return inside if inside == other or other == pa.month_day_nano_interval() else None
    return None


def _target(cast: str) -> pa.DataType | None:
    """The type at the end of the text of a cast.

    >>> _target("CAST(t.x AS Decimal128(20, 2))"), _target("CAST(t.x AS Timestamp(ms))"), _target("CAST(t.x AS Utf8)")
    (Decimal128Type(decimal128(20, 2)), TimestampType(timestamp[ms]), None)
    """
    found = _TARGET.search(cast)
    if found is None:
        return None
    name, first, second = found.groups()
    if name == "Decimal128" and first and second:
        return pa.decimal128(int(first), int(second))
    if name == "Timestamp" and first and second is None:
        return pa.timestamp("us" if first == "µs" else first)
    return None if first else _TYPES.get(name)


def literal_text(expression: Any) -> str | None:
    """The value of a literal, if it is a text."""
    if expression.variant_name() != "Literal":
        return None
    scalar = expression.python_value()
    value = scalar.as_py() if pa.types.is_string(scalar.type) or pa.types.is_string_view(scalar.type) else None
    return value if isinstance(value, str) else None


def same_type(column: pa.DataType, literal: pa.DataType) -> bool:
    """Whether ordinals of a column and of a literal compare."""
    if pa.types.is_string(column):
        return bool(
            pa.types.is_string(literal) or pa.types.is_large_string(literal) or pa.types.is_string_view(literal)
        )
    if pa.types.is_binary(column):
        return bool(
            pa.types.is_binary(literal) or pa.types.is_large_binary(literal) or pa.types.is_binary_view(literal)
        )
    if pa.types.is_timestamp(column) and pa.types.is_timestamp(literal):
        return bool(column.unit == literal.unit and (column.tz is None) == (literal.tz is None))
    return bool(column.equals(literal))
