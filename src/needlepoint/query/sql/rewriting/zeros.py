"""Zeros in comparisons have no sign: `f <= -0.0` runs as `f <= 0.0`, which means the same.

DataFusion 55 orders -0.0 below 0.0 when it combines conditions on one column, though not when it evaluates them: of
`f <= -0.0 AND f < 0.0` it keeps the first, which is true for zeros, and it takes `f = -0.0 AND f = 0.0` for FALSE.

>>> without_signs("SELECT -0.0, x - 0.0 FROM t WHERE f <= -0.0 AND g IN (1.5, CAST('-0.0' AS DOUBLE))")
"SELECT -0.0, x - 0.0 FROM t WHERE f <= 0.0 AND g IN (1.5, CAST('0.0' AS DOUBLE))"
>>> without_signs("SELECT coalesce(f, -0.0) FROM t WHERE coalesce(f, -0.0) IN (0.0, 1.5, 2.5, 3.5)")
'SELECT coalesce(f, -0.0) FROM t WHERE coalesce(f, 0.0) IN (0.0, 1.5, 2.5, 3.5)'
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from needlepoint.query.sql.tokens import Parentheses, tokens

_MAY_HAVE = re.compile(r"-\s*[0.(]")
_BEFORE = {"<", ">", "=", "BETWEEN", "AND"}  # `f < -0.0`, `f BETWEEN -1 AND -0.0`
_AFTER = {"<", ">", "=", "!", "BETWEEN", "IN", "NOT"}  # `-0.0 < f`, where the minus belongs to the zero:
_BEGINS = {"WHERE", "AND", "OR", "NOT", "ON", "HAVING", "WHEN", "SELECT", "(", ","}
_MOST_NESTED = 9
_KEEPS_VALUE = {"COALESCE", "NVL", "IFNULL"}
_FLOATS = {"DOUBLE", "FLOAT", "REAL", "FLOAT4", "FLOAT8"}


@dataclass(frozen=True, slots=True)
class _Zero:
    """A zero, or a parameter, with its first token and the one after it."""

    at: int
    first: int
    stop: int


def without_signs(query: str) -> str:
    """The query with 0.0 for -0.0 where it is compared."""
    if _MAY_HAVE.search(query) is None:
        return query
    found = tokens(query)
    words = [each[0].upper() for each in found]
    pairs = Parentheses.of(words)
    parts, position = [], 0
    for zero in _negative_zeros(words):
        if _is_compared(words, zero, pairs):
            token = found[zero.at]
            parts += [query[position : token.start()], token[0].replace("-", "")]
            position = token.end()
    return "".join((*parts, query[position:]))


def compared_without_signs(query: str, parameters: Mapping[str, pa.Scalar]) -> dict[str, pa.Scalar]:
    """The parameters with 0.0 for -0.0, where the query only compares it."""
    changed = {name: value for name, value in parameters.items() if _is_negative_zero(value)}
    if not changed:
        return dict(parameters)
    words = [each[0].upper() for each in tokens(query)]
    pairs = Parentheses.of(words)
    uses = {name: [at for at, word in enumerate(words) if word == f"${name.upper()}"] for name in changed}
    only_compared = {
        name for name, at in uses.items() if all(_is_compared(words, _Zero(n, n, n + 1), pairs) for n in at)
    }
    return {name: pa.scalar(0.0, value.type) if name in only_compared else value for name, value in parameters.items()}


def _negative_zeros(words: Sequence[str]) -> Iterator[_Zero]:
    for at, word in enumerate(words):
        if word == "-" and _is_float_zero("".join(words[at + 1 : at + 2])):
            yield _Zero(at, at, at + 2)
        elif words[max(at - 2, 0) : at] == ["CAST", "("] and words[at + 1 : at + 2] == ["AS"]:
            ends = next((place for place in range(at, len(words)) if words[place] == ")"), len(words))
            negative = word.startswith("'-") and _is_zero(word[2:-1])
            if negative and not _FLOATS.isdisjoint(words[at + 2 : ends]):
                yield _Zero(at, at - 2, ends + 1)


def _is_compared(words: Sequence[str], zero: _Zero, pairs: Parentheses) -> bool:
    """Whether a zero is compared, or one of the values of coalesce is it: `coalesce(f, -0.0) < 1`."""
    return any(
        _is_operand(words, value, pairs) for value in itertools.islice(_values(words, zero, pairs), _MOST_NESTED)
    )


def _values(words: Sequence[str], zero: _Zero, pairs: Parentheses) -> Iterator[_Zero]:
    """A zero, and each coalesce around it of which it is a value."""
    while True:
        yield zero
        opens = pairs.around[zero.first]
        if opens < 1 or words[opens - 1] not in _KEEPS_VALUE or words[zero.first - 1] not in ("(", ","):
            return
        zero = _Zero(zero.at, opens - 1, pairs.closed.get(opens, len(words)) + 1)


def _is_operand(words: Sequence[str], zero: _Zero, pairs: Parentheses) -> bool:
    first, stop = zero.first, zero.stop
    while words[first - 1 : first] == ["("] and words[stop : stop + 1] == [")"]:
        first, stop = first - 1, stop + 1
    before, after = "".join(words[max(first - 1, 0) : first]), "".join(words[stop : stop + 1])
    if before in _BEFORE:
        return True
    if after in _AFTER and before in _BEGINS:
        return True
    opens = pairs.around[zero.first]  # of a list, as in `f IN (1.5, -0.0)`
    return opens > 0 and words[opens - 1] == "IN" and words[zero.first - 1] in ("(", ",")


def _is_float_zero(word: str) -> bool:
    """
    >>> [_is_float_zero(word) for word in ("0.0", ".0", "0E0", "0", "0.5", "")]
    [True, True, True, False, False, False]
    """
    return ("." in word or "E" in word) and _is_zero(word)


def _is_zero(text: str) -> bool:
    try:
        return float(text) == 0
    except ValueError:
        return False


def _is_negative_zero(value: pa.Scalar) -> bool:
    if not pa.types.is_floating(value.type) or not value.is_valid:
        return False
    number = value.as_py()
    return number == 0 and math.copysign(1, number) < 0
