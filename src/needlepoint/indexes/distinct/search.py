"""An open distinct index: conditions select values, and values have pages.

    values   apple  banana  cherry  NaN  NULL       sorted; the last two places are for what has no place in the order
    pages    0 2    1       0 1 2        1          of each value

All conditions are about the one value of a row, so only values that every condition selects count. Three pages of ten
rows hold what is drawn above:

>>> from needlepoint.indexes.values import Family
>>> index = DistinctIndex.of(
...     Family("binary"), np.array([0, 10, 20, 30]), pa.array([b"apple", b"banana", b"cherry"], pa.large_binary()),
...     starts=np.array([0, 2, 3, 6, 6, 7]), pages=np.array([0, 2, 1, 0, 1, 2, 1]), text=True,
... )
>>> str(index.find([Compare("fruit", "<", b"b")], 1.0).rows), index.find([Compare("fruit", "=", b"b")], 1.0).rows.count
('0-10, 20-30', 0)
>>> index.find([Not(Compare("fruit", "=", b"cherry")), StartsWith("fruit", b"b")], 1.0).why
'1 of 3 values, on 1 of 3 pages'
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from needlepoint.access import Rows
from needlepoint.indexes.base import Answer, Condition
from needlepoint.indexes.distinct.payload import DistinctPayload
from needlepoint.indexes.text.words import folded, folded_text, folds_alike
from needlepoint.predicate import (
    And,
    Between,
    Compare,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Like,
    Not,
    Or,
    Ordinal,
    Predicate,
    StartsWith,
    after,
)

# Up to this many values of an IN, or ranges of values, are searched one by one; more are compared all at once.
_FEW = 64

Mask = npt.NDArray[np.bool_]

_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class DistinctIndex(DistinctPayload):
    __slots__ = ()

    @property
    def memory(self) -> int:
        counts = 0 if self.row_counts is None else self.row_counts.nbytes
        return int(self.values.nbytes + self.starts.nbytes + self.pages.nbytes + self.edges.nbytes + counts)

    def find(self, conditions: Sequence[Condition], seconds: float) -> Answer:
        masks = [mask for condition in conditions if (mask := self._selected(condition)) is not None]
        if not masks:
            return Answer(None)
        selected = np.logical_and.reduce(masks)
        pages = self._pages(selected)
        why = (
            f"{int(selected[:-2].sum()):,} of {len(self.values):,} values, "
            f"on {int(pages.sum()):,} of {len(pages):,} pages"
        )
        return Answer(None if len(pages) and pages.all() else Rows.where(self.edges, pages), why)

    def exactly(self, predicate: Predicate) -> Mask | None:
        """The values that make a predicate of this column TRUE, then whether NaN and NULL do; None where that is not
        certain for each of them.

        >>> from needlepoint.indexes.values import Family
        >>> index = DistinctIndex.of(
        ...     Family("integer"), np.array([0, 9]), pa.array([3, 5]), np.array([0, 1, 2, 2, 2]), np.array([0, 0]),
        ...     text=False,
        ... )
        >>> index.exactly(Or((Compare("n", ">", 4), IsNull("n")))).tolist(), index.exactly(Not(Compare("n", "=", 3)))
        ([False, True, False, True], None)
        """
        if self.family.form == "float":
            return None  # engines do not agree on how NaN compares
        match predicate:
            case Constant(value):
                return np.full(len(self.values) + 2, value)
            case And(children) | Or(children):
                masks = [self.exactly(child) for child in children]
                known = [mask for mask in masks if mask is not None]
                if len(known) < len(masks) or not masks:
                    return None
                both = np.logical_and if isinstance(predicate, And) else np.logical_or
                combined: Mask = both.reduce(known)
                return combined
            case IsNotNull():
                return self._mask((0, len(self.values)))
            case Compare() | In() | Between() | IsNull():
                mask = self._selected(predicate)
                if mask is not None:
                    mask[-2] = False  # there is no NaN
                return mask
        return None

    def _pages(self, selected: Mask) -> Mask:
        """The pages that hold any of the values."""
        found = np.zeros(len(self.edges) - 1, np.bool_)
        changes = np.flatnonzero(np.diff(selected, prepend=False, append=False))
        if len(changes) <= 2 * _FEW:
            for first, last in zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True):
                found[self.pages[self.starts[first] : self.starts[last]]] = True
        else:
            found[self.pages[np.repeat(selected, np.diff(self.starts))]] = True
        return found

    def _selected(self, condition: Condition) -> Mask | None:
        """The values for which the condition can be TRUE, then whether it can for NaN and for NULL; None: not known.
        Engines do not agree on how NaN compares with numbers, so it is selected unless it certainly does not match.
        """
        match condition:
            case IsNull() | Not(IsNotNull()):
                return self._mask(null=True)
            case IsNotNull() | Not(IsNull()):
                return self._mask((0, len(self.values)), nan=True)
            case Compare(_, operator, value):
                return self._compared(operator, value)
            case Not(Compare(_, operator, value)):
                return self._compared(_OPPOSITE[operator], value)
            case In(_, values):
                return self._any_of(values)
            case Not(In(_, values)):
                return self._unless(self._any_of(values))
            case Between(_, low, high):
                return self._between(low, high)
            case Not(Between(_, low, high)):
                return self._unless(self._between(low, high))
            case StartsWith(_, prefix):
                return self._begins(prefix)
            case Not(StartsWith(_, prefix)):
                return self._unless(self._begins(prefix))
            case Like():
                return self._like(condition)
        return None

    def _mask(self, *ranges: tuple[int, int], nan: bool = False, null: bool = False) -> Mask:
        mask = np.zeros(len(self.values) + 2, np.bool_)
        for first, last in ranges:
            mask[first:last] = True
        mask[-2:] = nan, null
        return mask

    def _unless(self, mask: Mask | None) -> Mask | None:
        """Where NOT a condition can be TRUE, given where the condition is; that of NULL is NULL."""
        if mask is None:
            return None
        inverted = ~mask
        inverted[-2:] = True, False
        if self.family.form == "float":
            # Zero and minus zero are one value here, but NOT IN of DataFusion distinguishes them.
            first, last = self._equal(0.0)
            inverted[first:last] = True
        return inverted

    def _equal(self, literal: Ordinal) -> tuple[int, int]:
        """The positions at which a value begins and ends among the values, or would."""
        return self._position(literal), self._position(literal, right=True)

    def _position(self, literal: Ordinal, *, right: bool = False) -> int:
        search: Any = bisect.bisect_right if right else bisect.bisect_left
        if self.family.is_binary:
            return int(search(self.values, literal, key=lambda value: value.as_py()))
        return int(search(self.values.to_numpy(), literal))

    def _compared(self, operator: str, value: Ordinal) -> Mask | None:
        literal = self.family.literal(value)
        if literal is None:
            return None
        first, last = self._equal(literal)
        if operator == "=":
            return self._mask((first, last))
        # An engine may take -0.0 for less than 0.0: both count as below and as above zero.
        below, above = (last, first) if self.family.form == "float" and literal == 0 else (first, last)
        match operator:
            case "<>":
                return self._mask((0, below), (above, len(self.values)), nan=True)
            case "<":
                return self._mask((0, below), nan=True)
            case "<=":
                return self._mask((0, last), nan=True)
            case ">":
                return self._mask((above, len(self.values)), nan=True)
            case ">=":
                return self._mask((first, len(self.values)), nan=True)
        return None

    def _any_of(self, values: Sequence[Ordinal]) -> Mask | None:
        literals = self.family.literals(values)
        if literals is None:
            return None
        if len(literals) <= _FEW:
            return self._mask(*map(self._equal, literals))
        found = pc.is_in(self.values, value_set=self.family.array(literals))
        return np.append(found.to_numpy(zero_copy_only=False), [False, False])

    def _between(self, low: Ordinal, high: Ordinal) -> Mask | None:
        ends = self.family.literals((low, high))
        return None if ends is None else self._mask((self._position(ends[0]), self._position(ends[1], right=True)))

    def _begins(self, prefix: bytes) -> Mask | None:
        if self.family.form != "binary":
            return None
        beyond = after(prefix)
        return self._mask((self._position(prefix), len(self.values) if beyond is None else self._position(beyond)))

    def _like(self, like: Like) -> Mask | None:
        if not self.text or (like.fold and not all(map(folds_alike, "".join(like.pieces)))):
            return None
        texts, pieces = self.values.cast(pa.large_string()), like.pieces
        if like.fold:
            texts, pieces = folded(texts), tuple(map(folded_text, pieces))
        # (?s): a dot is a newline too.
        pattern = f"(?s){'^' if like.starts else ''}{'.*'.join(map(_escaped, pieces))}{'$' if like.ends else ''}"
        try:
            found = pc.match_substring_regex(texts, pattern)
        except pa.ArrowInvalid:
            return None  # too long for a regular expression
        return np.append(found.to_numpy(zero_copy_only=False), [False, False])


def _escaped(text: str) -> str:
    """As RE2 takes it literally: letters and digits as they are, the rest by number.

    >>> _escaped("a.b")
    'a\\\\x{2e}b'
    """
    return "".join(letter if letter.isalnum() else f"\\x{{{ord(letter):x}}}" for letter in text)
