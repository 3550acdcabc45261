"""The predicate of a query on one table, as a small tree of plain values.

Values are *ordinals*: the plain Python value whose order is the column's order. Integers, dates, times,
timestamps (in the column's unit), booleans and unscaled decimals are `int`; floats are `float`; strings
and binaries are `bytes` (UTF-8 order is byte order). Any other SQL is `Unknown`, which means
"maybe".

`match` decides with bounds alone, for many sets of rows at once. Here two files hold ids 10-20 and 30-40:

>>> zones = Zones.of([{"id": Bounds(10, 20, nulls=0, rows=100)}, {"id": Bounds(30, 40, nulls=0, rows=100)}])
>>> [Match(answer).name for answer in match(Compare("id", "=", 35), zones)]
['NEVER', 'MAYBE']
>>> [Match(answer).name for answer in match(And((Unknown(), Compare("id", "<", 25))), zones)]
['MAYBE', 'NEVER']
>>> [Match(answer).name for answer in match(Not(Compare("id", "<", 25)), zones)]
['NEVER', 'MAYBE']
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from needlepoint import time_parts

Ordinal = int | float | bytes
Answers = npt.NDArray[np.int8]
Known = TypeVar("Known")


class Match(enum.IntEnum):
    """How many rows of a set can make a predicate TRUE: none, some perhaps, or each one for certain."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values of one column in a set of rows are between `low` and `high`, both included.

    `None` means not known. `nan` says that NaN may occur outside the bounds (Parquet statistics leave it out).
    """

    low: Ordinal | None
    high: Ordinal | None
    nulls: int | None
    rows: int
    nan: bool = False


@dataclass(frozen=True, slots=True)
class Zone:
    """The bounds of one column in many sets of rows, as arrays. Where `known` is false, low and high mean nothing.

    `ordered` says that both low and high ascend, `descending` that they descend, wherever they are known or not: then
    bounds are found by binary search instead of being compared one by one.
    """

    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    known: npt.NDArray[np.bool_]
    all_null: npt.NDArray[np.bool_]
    no_null: npt.NDArray[np.bool_]
    nan: npt.NDArray[np.bool_]
    ordered: bool = False
    descending: bool = False

    @classmethod
    def of(cls, sets: Sequence[Bounds | None]) -> Zone:
        """None is a set without known bounds."""
        known = [bounds or _NOTHING for bounds in sets]
        bounded = [bounds.low is not None and bounds.high is not None for bounds in known]
        filler: Ordinal = next((b.low for b, has in zip(known, bounded, strict=True) if has and b.low is not None), 0)
        return cls(
            low=_array([b.low if has and b.low is not None else filler for b, has in zip(known, bounded, strict=True)]),
            high=_array(
                [b.high if has and b.high is not None else filler for b, has in zip(known, bounded, strict=True)]
            ),
            known=np.array(bounded, np.bool_),
            all_null=np.array([b.nulls is not None and b.nulls >= b.rows for b in known], np.bool_),
            no_null=np.array([b.nulls == 0 for b in known], np.bool_),
            nan=np.array([b.nan for b in known], np.bool_),
        )

    @classmethod
    def joined(cls, zones: Sequence[Zone]) -> Zone:
        """The sets of all zones, one after the other."""
        if len(zones) == 1:
            return zones[0]
        known = [zone for zone in zones if zone.known.any()]
        kinds = {zone.low.dtype for zone in known} or {np.dtype(np.int64)}
        filler = known[0].low[np.argmax(known[0].known)] if known else 0
        kind = kinds.pop() if len(kinds) == 1 else np.dtype(object)
        zones = [zone._of_kind(kind, filler) for zone in zones]
        return cls(
            np.concatenate([zone.low for zone in zones]),
            np.concatenate([zone.high for zone in zones]),
            np.concatenate([zone.known for zone in zones]),
            np.concatenate([zone.all_null for zone in zones]),
            np.concatenate([zone.no_null for zone in zones]),
            np.concatenate([zone.nan for zone in zones]),
            ordered=all(zone.ordered for zone in zones) and _ascend(zones),
        )

    def _of_kind(self, kind: np.dtype[Any], filler: Any) -> Zone:
        """Comparable with zones of this kind; `filler` stands where nothing is known."""
        if not self.known.any():
            same = np.full(len(self.known), _boxed(filler), kind)
            return replace(self, low=same, high=same, ordered=False, descending=False)
        if self.low.dtype == kind:
            return self
        return replace(self, low=self.low.astype(kind), high=self.high.astype(kind))

    def part(self, chosen: npt.NDArray[Any]) -> Zone:
        """The sets that `chosen`, numbers or a mask, names."""
        return Zone(
            self.low[chosen],
            self.high[chosen],
            self.known[chosen],
            self.all_null[chosen],
            self.no_null[chosen],
            self.nan[chosen],
        )

    def backwards(self) -> Zone:
        """The sets from the last to the first."""
        turned = self.part(np.arange(len(self.known))[::-1])
        return replace(turned, ordered=self.descending, descending=self.ordered)

    @classmethod
    def unknown(cls, count: int) -> Zone:
        """Nothing is known of so many sets."""
        nothing, no = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        return cls(nothing, nothing, no, no, no, no)


def _ascend(zones: Sequence[Zone]) -> bool:
    """Whether ordered zones are so one after the other."""
    filled = [zone for zone in zones if len(zone.low)]
    return all(
        bool(left.low[-1] <= right.low[0] and left.high[-1] <= right.high[0]) for left, right in pairwise(filled)
    )


@dataclass(frozen=True, slots=True)
class Zones:
    """The zones of all columns of which anything is known, over `count` sets of rows."""

    count: int
    columns: Mapping[str, Zone]

    @classmethod
    def of(cls, sets: Sequence[Mapping[str, Bounds]]) -> Zones:
        names = {name for bounds in sets for name in bounds}
        return cls(len(sets), {name: Zone.of([bounds.get(name) for bounds in sets]) for name in names})


_NOTHING = Bounds(None, None, None, 1)


def _array(values: Sequence[Ordinal]) -> npt.NDArray[Any]:
    """Ordinals of one column, which are all of one kind."""
    if len(values) == 0:
        return np.zeros(0, np.int64)
    if not isinstance(values[0], bytes):
        array = np.array(values)
        # Integers beyond 64 bits come as other types, and so do some that are mixed with them.
        if array.dtype == (np.float64 if isinstance(values[0], float) else np.int64):
            return array
    array = np.empty(len(values), object)
    array[:] = values
    return array


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something this tree cannot express: maybe."""


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE for every row, or for none."""

    value: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """`column operator value`, with one of = <> < <= > >=."""

    column: str
    operator: str
    value: Ordinal


@dataclass(frozen=True, slots=True)
class In:
    """`column IN (values)`; no value is NULL."""

    column: str
    values: tuple[Ordinal, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """`low <= column <= high`, both ends included, neither of them NaN. NaN orders above or below all numbers, and is
    never between two."""

    column: str
    low: Ordinal
    high: Ordinal


@dataclass(frozen=True, slots=True)
class CompareColumns:
    """`column operator other`, with one of = <> < <= > >=, for two columns of one type."""

    column: str
    operator: str
    other: str


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class IsNotNull:
    column: str


@dataclass(frozen=True, slots=True)
class StartsWith:
    """`column LIKE 'prefix%'`."""

    column: str
    prefix: bytes


@dataclass(frozen=True, slots=True)
class Like:
    """The text holds these pieces, in this order and apart: what `LIKE`, `contains` and regular expressions ask at
    least. `LIKE 'da_ry%cow'` has the pieces "da", "ry" and "cow", begins with the first and ends with the last.

    With `fold`, letters of either case are alike. TRUE where the pattern matches, and perhaps in other places: so it
    is never the only child of a NOT.
    """

    column: str
    pieces: tuple[str, ...]
    starts: bool = False
    ends: bool = False
    fold: bool = False


@dataclass(frozen=True, slots=True)
class TimePart:
    """The month, or another part, of a date or timestamp is one of the values (`time_parts.py`). A day has so many
    units of the column's ordinals, and the zone of the column may be `slack` days away. TRUE where the comparison is,
    and perhaps in other places: so it is never the only child of a NOT."""

    column: str
    part: str
    values: tuple[int, ...]
    day: int
    slack: int = 0


@dataclass(frozen=True, slots=True)
class TextMatch:
    """`text_match(column, 'query')`."""

    column: str
    query: str


@dataclass(frozen=True, slots=True)
class Not:
    child: Predicate


@dataclass(frozen=True, slots=True)
class And:
    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    children: tuple[Predicate, ...]


Leaf = Compare | In | Between | CompareColumns | IsNull | IsNotNull | StartsWith | Like | TimePart | TextMatch
Condition = Leaf | Not
"""A leaf, or after `without_not` a NOT directly above one."""
Predicate = Unknown | Constant | Condition | And | Or


def without_not(predicate: Predicate) -> Predicate:
    """The same predicate with NOT directly above leaves only.

    NOT (a AND b) is TRUE where NOT a OR NOT b is, with NULLs too.

    >>> without_not(Not(And((IsNull("a"), Not(IsNull("b"))))))
    Or(children=(Not(child=IsNull(column='a')), IsNull(column='b')))
    """
    match predicate:
        case And(children):
            return And(tuple(map(without_not, children)))
        case Or(children):
            return Or(tuple(map(without_not, children)))
        case Not(And(children)):
            return Or(tuple(without_not(Not(child)) for child in children))
        case Not(Or(children)):
            return And(tuple(without_not(Not(child)) for child in children))
        case Not(Not(child)):
            return without_not(child)
        case Not(Unknown() | Constant()):
            return Unknown()
    return predicate


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """All leaves that name a column."""
    match predicate:
        case And(children) | Or(children):
            for child in children:
                yield from leaves(child)
        case Not(child):
            yield from leaves(child)
        case Unknown() | Constant():
            return
        case _:
            yield predicate


def columns_of(leaf: Leaf) -> tuple[str, ...]:
    return (leaf.column, leaf.other) if isinstance(leaf, CompareColumns) else (leaf.column,)


def conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    """The parts of an AND and of the ANDs directly below it. Any other predicate is its own only part."""
    if isinstance(predicate, And):
        for child in predicate.children:
            yield from conjuncts(child)
    else:
        yield predicate


def fold(
    predicate: Predicate,
    ask: Callable[[Sequence[Condition]], Iterable[Known | None]],
    *,
    all_of: Callable[[Sequence[Known]], Known],
    any_of: Callable[[Sequence[Known]], Known],
    nothing: Callable[[], Known],
) -> Known | None:
    """What is known of a predicate, put together from what `ask` knows of its conditions. None is "not known": an AND
    does without it, and an OR that has it is not known either.

    `ask` gets all conditions of one AND at once, since `id > 3 AND id < 9` can be one question. `nothing` is what holds
    for a predicate that is never TRUE.

    >>> rows = {"a": {1, 2, 3}, "b": {3, 4}}
    >>> def find(predicate):
    ...     ask = lambda conditions: [rows.get(each.column) for each in conditions]
    ...     both, either = (lambda found: set.intersection(*found)), (lambda found: set.union(*found))
    ...     return fold(predicate, ask, all_of=both, any_of=either, nothing=set)
    >>> find(And((IsNull("a"), IsNull("b"), IsNull("c")))), find(Or((IsNull("a"), IsNull("b"))))
    ({3}, {1, 2, 3, 4})
    >>> find(Or((IsNull("a"), IsNull("c")))), find(And((IsNull("a"), Constant(False))))
    (None, set())
    """

    def of(part: Predicate) -> Known | None:
        return fold(part, ask, all_of=all_of, any_of=any_of, nothing=nothing)

    if isinstance(predicate, Constant):
        return None if predicate.value else nothing()
    if isinstance(predicate, Or):
        alternatives = [of(child) for child in predicate.children]
        known = [each for each in alternatives if each is not None]
        return any_of(known) if known and len(known) == len(alternatives) else None
    parts = list(conjuncts(predicate))
    conditions = [part for part in parts if not isinstance(part, And | Or | Constant | Unknown)]
    found = [*(ask(conditions) if conditions else ()), *(of(part) for part in parts if isinstance(part, Or | Constant))]
    known = [each for each in found if each is not None]
    return all_of(known) if known else None


def match(predicate: Predicate, zones: Zones) -> Answers:
    """For each set of rows: can a row in it make the predicate TRUE? SQL's NULL counts as not TRUE."""
    match predicate:
        case Constant(value):
            return _answers(zones.count, Match.ALWAYS if value else Match.NEVER)
        case And(children):
            return _combine(np.minimum, children, zones, Match.ALWAYS)
        case Or(children):
            return _combine(np.maximum, children, zones, Match.NEVER)
        case Not(child):
            # A child that is never TRUE may be NULL, and NOT NULL is NULL: only the other direction is certain.
            return np.where(match(child, zones) == Match.ALWAYS, Match.NEVER, Match.MAYBE).astype(np.int8)
        case Unknown():
            return _answers(zones.count, Match.MAYBE)
        case CompareColumns(column, operator, other):
            one, two = zones.columns.get(column), zones.columns.get(other)
            if one is None or two is None:
                return _answers(zones.count, Match.MAYBE)
            return _match_columns(operator, one, two)
        case _:
            zone = zones.columns.get(predicate.column)
            return _answers(zones.count, Match.MAYBE) if zone is None else _match_leaf(predicate, zone)


def _answers(count: int, answer: Match) -> Answers:
    return np.full(count, answer, np.int8)


def _combine(combine: np.ufunc, children: Sequence[Predicate], zones: Zones, start: Match) -> Answers:
    answers = [match(child, zones) for child in children]
    if not answers:
        return _answers(zones.count, start)
    return answers[0] if len(answers) == 1 else combine.reduce(answers)


def _match_leaf(leaf: Leaf, zone: Zone) -> Answers:
    if zone.descending:
        return _match_leaf(leaf, zone.backwards())[::-1]
    match leaf:
        case IsNull():
            return _pick(never=zone.no_null, always=zone.all_null)
        case IsNotNull():
            return _pick(never=zone.all_null, always=zone.no_null)
        case Compare(_, operator, value):
            never, always = _compare(operator, value, zone)
        case In(_, values):
            never, always = _is_in(values, zone)
        case Between(_, low, high):
            # Outside of either end, whatever NaN does there: it is outside of the other.
            below = _compare(">=", low, replace(zone, nan=np.zeros_like(zone.nan)))
            above = _compare("<=", high, replace(zone, nan=np.zeros_like(zone.nan)))
            never, always = below[0] | above[0], below[1] & above[1] & ~zone.nan
        case StartsWith(_, prefix):
            never, always = _starts_with(prefix, zone)
        case TimePart(_, part, values, day, slack) if zone.low.dtype == np.int64:
            never = time_parts.absent(part, values, zone.low, zone.high, day, slack)
            always = np.zeros(len(zone.known), np.bool_)
        case Like() | TextMatch() | CompareColumns() | TimePart():
            never = always = np.zeros(len(zone.known), np.bool_)  # but NULL matches nothing
    return _pick(never=never & zone.known | zone.all_null, always=always & zone.known & zone.no_null)


def _match_columns(operator: str, one: Zone, two: Zone) -> Answers:
    """Values of one column from 10 to 20 are all less than those of another from 30 to 40.

    >>> one = Zone.of([Bounds(10, 20, nulls=0, rows=9)] * 2)
    >>> two = Zone.of([Bounds(30, 40, nulls=0, rows=9), Bounds(15, 40, nulls=0, rows=9)])
    >>> [[Match(each).name for each in _match_columns(operator, one, two)] for operator in ("<", "=")]
    [['ALWAYS', 'MAYBE'], ['NEVER', 'MAYBE']]
    >>> texts = Zone.of([Bounds(b"a", b"b", nulls=0, rows=9)] * 2)
    >>> [Match(each).name for each in _match_columns("<=", texts, Zone.unknown(2))]
    ['MAYBE', 'MAYBE']
    """
    null, no_null = one.all_null | two.all_null, one.no_null & two.no_null
    known = one.known & two.known & ~(one.nan | two.nan)
    if _holds_bytes(one) != _holds_bytes(two):  # nothing is known of one of them
        return _pick(never=null, always=np.zeros_like(null))
    below, above = one.high < two.low, one.low > two.high
    apart = below | above
    same = known & (one.low == one.high) & (two.low == two.high) & ~apart
    match operator:
        case "=" | "<>":
            never, always = (apart, same) if operator == "=" else (same, apart)
        case "<" | ">=":
            never, always = one.low >= two.high, below
        case _:
            never, always = one.high <= two.low, above
    if operator in (">=", "<="):
        never, always = always, never
    return _pick(never=never & known | null, always=always & known & no_null)


def _pick(never: npt.NDArray[np.bool_], always: npt.NDArray[np.bool_]) -> Answers:
    return np.where(never, Match.NEVER, np.where(always, Match.ALWAYS, Match.MAYBE)).astype(np.int8)


def _holds_bytes(zone: Zone) -> bool:
    return zone.low.dtype == object and len(zone.low) > 0 and isinstance(zone.low[0], bytes)


def _compare(operator: str, value: Ordinal, zone: Zone) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Where no value compares TRUE, and where every value does."""
    if isinstance(value, bytes) != _holds_bytes(zone) or (isinstance(value, float) and math.isnan(value)):
        nowhere = np.zeros(len(zone.low), np.bool_)
        return nowhere, nowhere
    low, high, boxed = zone.low, zone.high, _boxed(value)
    below, above = (_below_ordered, _above_ordered) if zone.ordered else (np.less, np.greater)
    match operator:
        case "=" | "<>":
            outside = below(high, boxed) | above(low, boxed)
            every = ~(outside | below(low, boxed) | above(high, boxed))
            # NaN equals no number and differs from each.
            return (outside, every & ~zone.nan) if operator == "=" else (every & ~zone.nan, outside)
        case "<":
            never, always = ~below(low, boxed), below(high, boxed)
        case "<=":
            never, always = above(low, boxed), ~above(high, boxed)
        case ">":
            never, always = ~above(high, boxed), above(low, boxed)
        case ">=":
            never, always = below(high, boxed), ~below(low, boxed)
        case _:
            raise ValueError(operator)
    return never & ~zone.nan, always & ~zone.nan


def _below_ordered(ascending: npt.NDArray[Any], value: Any) -> npt.NDArray[np.bool_]:
    if _beyond(ascending, value):
        return np.full(len(ascending), value > 0)
    found: npt.NDArray[np.bool_] = np.arange(len(ascending)) < np.searchsorted(ascending, value, "left")
    return found


def _beyond(values: npt.NDArray[Any], value: Any) -> bool:
    """Whether the value is out of range for the array: numpy would search for it as a rounded float."""
    return values.dtype == np.int64 and isinstance(value, int) and not -(2**63) <= value < 2**63


def _above_ordered(ascending: npt.NDArray[Any], value: Any) -> npt.NDArray[np.bool_]:
    if _beyond(ascending, value):
        return np.full(len(ascending), value < 0)
    found: npt.NDArray[np.bool_] = np.arange(len(ascending)) >= np.searchsorted(ascending, value, "right")
    return found


def _is_in(values: Sequence[Ordinal], zone: Zone) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    if not values:
        return np.ones(len(zone.low), np.bool_), np.zeros(len(zone.low), np.bool_)
    comparable = isinstance(values[0], bytes) == _holds_bytes(zone)
    if not comparable or (isinstance(values[0], float) and any(value != value for value in values)):
        nowhere = np.zeros(len(zone.low), np.bool_)
        return nowhere, nowhere
    if zone.ordered:
        inside = _values_inside(_array(values), zone)
    else:
        ascending = np.sort(_array(values))
        inside = np.searchsorted(ascending, zone.high, "right") - np.searchsorted(ascending, zone.low, "left")
    return inside == 0, (zone.low == zone.high) & (inside > 0) & ~zone.nan


def _values_inside(values: npt.NDArray[Any], zone: Zone) -> npt.NDArray[np.int64]:
    """How many of the values are in each of the ordered sets, found by searching for the values."""
    first = np.searchsorted(zone.high, values, "left")
    beyond = np.maximum(np.searchsorted(zone.low, values, "right"), first)
    count = len(zone.low) + 1
    return np.cumsum(np.bincount(first, minlength=count) - np.bincount(beyond, minlength=count))[:-1]


def _boxed(value: Ordinal | None) -> Any:
    """numpy takes bare bytes for its own string type, which drops zeros at the end."""
    if not isinstance(value, bytes):
        return value
    box = np.empty((), object)
    box[()] = value
    return box


def _starts_with(prefix: bytes, zone: Zone) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    if not _holds_bytes(zone):
        nowhere = np.zeros(len(zone.low), np.bool_)
        return nowhere, nowhere
    below = _below_ordered if zone.ordered else np.less
    first = _boxed(prefix)
    beyond = _boxed(after(prefix))
    never = below(zone.high, first)
    inside = ~below(zone.low, first)
    if beyond is not None:
        never = never | ~below(zone.low, beyond)
        inside = inside & below(zone.high, beyond)
    return never, inside


def after(prefix: bytes) -> bytes | None:
    """The least value above all that begin with the prefix; None when there is none.

    >>> after(b"ab\\xff")
    b'ac'
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
