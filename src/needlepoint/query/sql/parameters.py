"""Checks and converts parameters in one place, so that errors name the parameter and not a library's type."""

from __future__ import annotations

import decimal
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from needlepoint.errors import SqlError
from needlepoint.query.sql.tokens import tokens

Parameters = Mapping[str, pa.Scalar]

_FORM = 'Pass {"name": value}, and write $name in the query.'
_MOST_DIGITS = 76  # of a decimal
_SIGNS = "$?:"
_UNUSED: Parameters = {" ": pa.scalar(None)}
_ZERO_FREE = {int, str}  # types without -0.0
_INT64, _UINT64 = range(-(1 << 63), 1 << 63), range(1 << 64)


def check_parameters(query: str, parameters: Mapping[str, Any] | None) -> Parameters | None:
    """The parameters as Arrow scalars; SqlError names a wrong one."""
    check_text(query)
    if parameters is None:
        return None
    if not isinstance(parameters, Mapping):
        raise SqlError(f"the parameters are {_kind(parameters)}.", hint=_FORM)
    scalars = {_name(name): _scalar(name, value) for name, value in parameters.items()}
    if {*map(type, parameters.values())} <= _ZERO_FREE:
        return scalars
    from needlepoint.query.sql.rewriting.zeros import compared_without_signs

    return compared_without_signs(query, scalars)


def for_datafusion(query: str, parameters: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The parameters that DataFusion gets. Given none, it plans a query with placeholders and fails when it runs. Given
    an unused one, it reports the missing placeholder at once."""
    if parameters:
        return dict(parameters)
    return dict(_UNUSED) if any(sign in query for sign in _SIGNS) else None


def number_marks(query: str) -> tuple[str, int]:
    """The query with `$p1`, `$p2`, … instead of each `?`, and their number.

    >>> number_marks("SELECT '?' FROM t WHERE a = ? AND b = ?")
    ("SELECT '?' FROM t WHERE a = $p1 AND b = $p2", 2)
    """
    marks = [each.start() for each in tokens(query) if each[0] == "?"]
    if marks and placeholders(query):
        raise SqlError("the query has parameters of both kinds, ? and $name.", hint="Use one kind.")
    parts, position = [], 0
    for number, mark in enumerate(marks, 1):
        parts += [query[position:mark], f"$p{number}"]
        position = mark + 1
    return "".join((*parts, query[position:])), len(marks)


def named_by_place(query: str, values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The query with names for its `?`, and the values by these names.

    >>> named_by_place("SELECT * FROM t WHERE a = ?", [7])
    ('SELECT * FROM t WHERE a = $p1', {'p1': 7})
    """
    query, marks = number_marks(query)
    if marks != len(values):
        raise SqlError(f"the query has {marks} `?`, and there are {len(values)} parameters.", hint="Pass one for each.")
    return query, {f"p{number}": value for number, value in enumerate(values, 1)}


def placeholders(query: str) -> list[str]:
    """The names of `$name` in a query, each once, in their order; numbers in the order of numbers.

    >>> placeholders("SELECT '$x' FROM t WHERE a = $low AND b = $high OR c = $low"), placeholders("SELECT $2, $1")
    (['low', 'high'], ['1', '2'])
    """
    names = list(dict.fromkeys(each[0][1:] for each in tokens(query) if each[0][0] == "$" and len(each[0]) > 1))
    return sorted(names, key=int) if names and all(name.isdecimal() for name in names) else names


def check_text(query: str) -> None:
    if not isinstance(query, str):
        raise SqlError(f"the query is {_kind(query)}.", hint="Pass a string.")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise SqlError(f"the query is not valid Unicode: {error}.", hint="Remove the lone surrogate.") from None


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise SqlError(f"the name of a parameter is {name!r}, {_kind(name)}.", hint=f"A name is a string. {_FORM}")
    if name.startswith("$"):
        raise SqlError(f"a parameter is named '{name}'.", hint=f"Write '{name[1:]}': only the query has the $.")
    return name


def _scalar(name: str, value: Any) -> pa.Scalar:
    if isinstance(value, pa.Scalar):
        return value
    try:
        if isinstance(value, int) and value not in _INT64:
            return _large(value)
        found = pa.scalar(value)
        if pa.types.is_nested(found.type):
            pa.array([found])  # as DataFusion does, which not all such values allow
        return found
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        why = " ".join(str(error).split())
        raise SqlError(
            f"parameter ${name} is {_kind(value)} that no SQL type can hold: {why}.",
            hint="Pass a string, a number, a date or time, bytes, true, false or None.",
        ) from None


def _large(value: int) -> pa.Scalar:
    """The type that DataFusion gives to such a number as a literal."""
    if value in _UINT64:
        return pa.scalar(value, pa.uint64())
    digits = len(str(abs(value))) if abs(value) < 10**_MOST_DIGITS else _MOST_DIGITS + 1
    if digits > _MOST_DIGITS:
        raise OverflowError(f"numbers have at most {_MOST_DIGITS} digits")
    type = pa.decimal128(38, 0) if digits <= 38 else pa.decimal256(_MOST_DIGITS, 0)
    return pa.scalar(decimal.Decimal(value), type)


def _kind(value: object) -> str:
    """
    >>> _kind([]), _kind(5)
    ('a list', 'an int')
    """
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
