"""`match` compared with rows: it may return MAYBE too often, but never a wrong NEVER or ALWAYS."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from needlepoint.predicate import (
    And,
    Bounds,
    Compare,
    Condition,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Match,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    Zone,
    Zones,
    fold,
    match,
    without_not,
)
from needlepoint.predicate import leaves as leaves_of

PRESENT = {
    "n": st.integers(-3, 3),
    "big": st.integers(2**64, 2**64 + 3),
    "f": st.sampled_from([-1.5, 0.0, -0.0, 2.0, math.inf, math.nan]),
    "s": st.sampled_from([b"", b"\x00", b"\x00\x00", b"a", b"a\x00", b"ab", b"b", "ü".encode()]),
}
COLUMNS = {name: st.none() | values for name, values in PRESENT.items()}


def leaf(column: str) -> st.SearchStrategy[Predicate]:
    value = PRESENT[column]
    compare = st.builds(Compare, st.just(column), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), value)
    several = st.builds(In, st.just(column), st.lists(value, max_size=3).map(tuple))
    nulls = st.sampled_from([IsNull(column), IsNotNull(column)])
    starts = (
        [st.builds(StartsWith, st.just("s"), st.sampled_from([b"a", b"a\x00", b"\x00", b"z"]))] if column == "s" else []
    )
    return st.one_of(compare, several, nulls, *starts)


leaves = st.one_of(*(leaf(column) for column in COLUMNS), st.just(Unknown()), st.booleans().map(Constant))
predicates = st.recursive(
    leaves,
    lambda child: st.one_of(
        child.map(Not),
        st.lists(child, max_size=3).map(lambda c: And(tuple(c))),
        st.lists(child, max_size=3).map(lambda c: Or(tuple(c))),
    ),
    max_leaves=8,
)
row_sets = st.lists(st.lists(st.fixed_dictionaries(COLUMNS), min_size=1, max_size=4), min_size=1, max_size=3)


def order(value: object) -> object:
    """SQL's order of floats: NaN above all."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def truth(predicate: Predicate, row: dict[str, object], unknown: bool | None) -> bool | None:
    """SQL's three-valued logic, with a given answer for what is Unknown."""
    match_ = {"=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b,
              "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b}  # fmt: skip
    match predicate:
        case Unknown():
            return unknown
        case Constant(value):
            return value
        case Not(child):
            inner = truth(child, row, unknown)
            return None if inner is None else not inner
        case And(children) | Or(children):
            inner = [truth(child, row, unknown) for child in children]
            decisive = isinstance(predicate, Or)
            return decisive if decisive in inner else None if None in inner else not decisive
        case IsNull(column):
            return row[column] is None
        case IsNotNull(column):
            return row[column] is not None
    value = row[predicate.column]
    if value is None:
        return None
    match predicate:
        case Compare(_, operator, other):
            return match_[operator](order(value), order(other))
        case In(_, values):
            return any(order(value) == order(other) for other in values)
        case StartsWith(_, prefix):
            return value.startswith(prefix)
    raise AssertionError


def bounds_of(rows: list[dict[str, object]]) -> dict[str, Bounds]:
    found = {}
    for column in COLUMNS:
        values = [row[column] for row in rows if row[column] is not None]
        plain = [value for value in values if value == value]
        found[column] = Bounds(
            min(plain, default=None), max(plain, default=None), len(rows) - len(values), len(rows), column == "f"
        )
    return found


@given(predicates, row_sets)
def test_never_and_always_are_true_of_every_row(predicate: Predicate, sets: list[list[dict[str, object]]]) -> None:
    answers = match(predicate, Zones.of([bounds_of(rows) for rows in sets]))
    for rows, answer in zip(sets, answers.tolist(), strict=True):
        truths = {truth(predicate, row, unknown) for row in rows for unknown in (True, False, None)}
        if answer == Match.NEVER:
            assert True not in truths
        if answer == Match.ALWAYS:
            assert truths == {True}


@given(predicates)
def test_what_is_not_known_is_maybe(predicate: Predicate) -> None:
    nothing = Bounds(None, None, None, 10)
    for zones in (Zones(2, {}), Zones.of([dict.fromkeys(COLUMNS, nothing)] * 2)):
        answers = match(predicate, zones)
        constant = truth(predicate, dict.fromkeys(COLUMNS), None) if not _names_columns(predicate) else None
        if constant is None:
            assert len(answers) == 2
        elif not constant:
            assert (answers != Match.ALWAYS).all()


def _names_columns(predicate: Predicate) -> bool:
    match predicate:
        case And(children) | Or(children):
            return any(map(_names_columns, children))
        case Not(child):
            return _names_columns(child)
        case Unknown():
            return True
    return not isinstance(predicate, Constant)


def test_no_sets_no_answers() -> None:
    assert match(Compare("n", "=", 1), Zones.of([])).tolist() == []


@pytest.mark.parametrize("value", [2**70, -(2**70)])
def test_values_beyond_64_bits_compare(value: int) -> None:
    zones = Zones.of([{"n": Bounds(0, 10, 0, 5)}])
    assert match(Compare("n", "=", value), zones).tolist() == [Match.NEVER]
    assert np.array_equal(match(Compare("n", "<", 2**70), zones), [Match.ALWAYS])


@given(predicates, row_sets)
def test_not_moves_down_to_the_leaves(predicate: Predicate, sets: list[list[dict[str, object]]]) -> None:
    moved = without_not(predicate)
    for row in (row for rows in sets for row in rows):
        for unknown in (True, False, None):
            if truth(predicate, row, unknown) is True:
                # Each evaluation of Unknown may have another result.
                assert any(truth(moved, row, either) is True for either in (True, False, None)) or _mixes(predicate)


@given(predicates, row_sets, st.sets(st.sampled_from(sorted(COLUMNS))))
def test_a_fold_of_what_is_known_of_conditions_loses_no_row(
    predicate: Predicate, sets: list[list[dict[str, object]]], known: set[str]
) -> None:
    rows = [row for several in sets for row in several]

    def ask(conditions: Sequence[Condition]) -> list[frozenset[int] | None]:
        return [
            frozenset(n for n, row in enumerate(rows) if truth(each, row, None) is True)
            if next(leaves_of(each)).column in known
            else None
            for each in conditions
        ]

    found = fold(
        without_not(predicate),
        ask,
        all_of=lambda several: frozenset.intersection(*several),
        any_of=lambda several: frozenset.union(*several),
        nothing=frozenset[int],
    )
    if found is not None:
        assert found >= {n for n, row in enumerate(rows) if truth(predicate, row, False) is True}


def test_a_fold_asks_for_all_conditions_of_one_and_at_once() -> None:
    asked: list[list[Condition]] = []
    a, b, c, d = (Compare(name, "=", 1) for name in "abcd")

    def ask(conditions: Sequence[Condition]) -> list[int]:
        asked.append(list(conditions))
        return [len(conditions)]

    tree = And((a, And((b, Unknown())), Or((c, And((d, Not(a)))))))
    assert fold(tree, ask, all_of=min, any_of=sum, nothing=int) == 2
    assert asked == [[a, b], [c], [d, Not(a)]]


def _mixes(predicate: Predicate) -> bool:
    return "Unknown" in repr(predicate)


@given(leaves, row_sets, row_sets)
def test_joined_zones_answer_as_one(leaf: Predicate, left: list[object], right: list[object]) -> None:
    apart = [Zones.of([bounds_of(rows) for rows in sets]) for sets in (left, right)]
    together = Zones(
        len(left) + len(right),
        {name: Zone.joined([zones.columns[name] for zones in apart]) for name in COLUMNS},
    )
    answers = np.concatenate([match(leaf, zones) for zones in apart])
    assert np.array_equal(match(leaf, together), answers)


@given(st.sampled_from(["n", "s"]), st.data())
def test_binary_search_answers_as_comparing_does(column: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(PRESENT[column], min_size=2, max_size=12).map(sorted))
    sets = [{column: Bounds(low, high, 0, 5)} for low, high in zip(values[::2], values[1::2], strict=False)]
    zones = Zones.of(sets)
    ordered = dataclasses.replace(zones.columns[column], ordered=True)
    predicate = data.draw(leaf(column))
    expected = match(predicate, zones)
    assert np.array_equal(match(predicate, Zones(zones.count, {column: ordered})), expected)
    descending = ordered.backwards()
    assert descending.descending and not descending.ordered
    assert np.array_equal(match(predicate, Zones(zones.count, {column: descending})), expected[::-1])


def test_zones_of_which_nothing_is_known_join_whatever_fills_them() -> None:
    text = Zone.of([Bounds(b"a", b"b", 0, 5)])
    filled = dataclasses.replace(text, known=np.array([False]))
    for zones in ([filled, Zone.unknown(2)], [Zone.unknown(2), filled]):
        joined = Zones(3, {"s": Zone.joined(zones)})
        assert match(In("s", (b"a", b"x")), joined).tolist() == [Match.MAYBE] * 3
