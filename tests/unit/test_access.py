from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from needlepoint.access import ROW_BITS, SOME_ROWS, Access, AccessPlan, Rows, RowsByFile

numbers = st.lists(st.integers(0, 40))


def as_set(selection: Access | Rows, size: int = 50) -> set[int]:
    if selection is Access.SKIP:
        return set()
    return set(range(size)) if selection is Access.SCAN else set(selection.numbers().tolist())


@given(numbers, numbers)
def test_rows_are_sets(left: list[int], right: list[int]) -> None:
    a, b = Rows.of(left), Rows.of(right)
    assert a.numbers().tolist() == sorted(set(left))
    assert a.count == len(set(left))
    assert set((a & b).numbers().tolist()) == set(left) & set(right)
    assert set((a | b).numbers().tolist()) == set(left) | set(right)
    assert (a.starts[1:] > a.stops[:-1]).all()


@given(st.lists(numbers, min_size=1, max_size=5))
def test_rows_counted_through_come_apart_again(files: list[list[int]]) -> None:
    ends = np.cumsum([41] * len(files))
    through = Rows.of([number + 41 * at for at, rows in enumerate(files) for number in rows])
    assert [part.numbers().tolist() for part in through.split(ends)] == [sorted(set(rows)) for rows in files]


@given(st.lists(st.tuples(st.booleans(), st.none() | numbers), min_size=1, max_size=5), st.data())
def test_narrowing_keeps_what_both_let_through(
    wanted: list[tuple[bool, list[int] | None]], data: st.DataObject
) -> None:
    """A step keeps all rows of files that it does not cover, and only the rows it names in the others."""
    plan = AccessPlan.scan_all(len(wanted))
    expected = [set(range(50))] * len(wanted)
    for _ in range(data.draw(st.integers(1, 3))):
        steps = data.draw(st.permutations(wanted))
        files = np.array([covered for covered, _ in steps])
        rows = {at: Rows.of(found) for at, (_, found) in enumerate(steps) if found}
        plan = plan.only(files, rows)
        expected = [
            before & set(found or []) if covered else before
            for before, (covered, found) in zip(expected, steps, strict=True)
        ]
        assert [as_set(plan.selection(at)) for at in range(len(wanted))] == expected
    skipped = np.array(data.draw(st.lists(st.booleans(), min_size=len(wanted), max_size=len(wanted))))
    plan = plan.without(skipped)
    expected = [set() if skip else before for skip, before in zip(skipped, expected, strict=True)]
    assert [as_set(plan.selection(at)) for at in range(len(wanted))] == expected
    assert plan.kept() == sum(map(bool, expected))
    whole = plan.scanning(range(len(wanted)))
    assert whole.scanned() == [at for at, before in enumerate(expected) if before]
    assert whole.rows == {}


places = st.dictionaries(st.integers(0, 5), numbers)


def as_dict(found: RowsByFile) -> dict[int, set[int]]:
    return {at: set(rows.numbers().tolist()) for at, rows in found.items()}


def filled(rows: dict[int, list[int]]) -> dict[int, set[int]]:
    return {at: set(wanted) for at, wanted in rows.items() if wanted}


def check(found: RowsByFile, expected: dict[int, set[int]]) -> None:
    """All views of the rows are the same."""
    assert as_dict(found) == expected
    assert list(found) == found.positions.tolist() == sorted(expected)
    assert len(found) == len(expected) and bool(found) == bool(expected)
    assert found.counts.tolist() == [len(expected[at]) for at in sorted(expected)]
    assert found.count == sum(map(len, expected.values()))
    assert found.ranges.tolist() == [len(Rows.of(sorted(expected[at])).starts) for at in sorted(expected)]
    assert [each.tolist() for each in found.numbers()] == [sorted(expected[at]) for at in sorted(expected)]
    assert all((at in found) == (at in expected) for at in range(-1, 11))
    assert found.get(10) is None


@given(places, st.randoms())
def test_rows_by_file_are_sets_by_position(rows: dict[int, list[int]], random: Random) -> None:
    check(RowsByFile.of({at: Rows.of(wanted) for at, wanted in rows.items()}), filled(rows))
    pairs = [(at, row) for at, wanted in rows.items() for row in wanted]
    random.shuffle(pairs)
    positions, wanted = np.array(pairs, np.int64).reshape(-1, 2).T
    check(RowsByFile.at(positions, wanted), filled(rows))


@given(st.lists(st.tuples(st.integers(0, 6), numbers), max_size=6), st.data())
def test_rows_counted_through_belong_to_files(files: list[tuple[int, list[int]]], data: st.DataObject) -> None:
    """Of files of any number of rows, of none too, at any ascending positions."""
    positions = np.array(sorted(data.draw(st.permutations(range(10)))[: len(files)]), np.int64)
    ends = np.cumsum([size for size, _ in files], dtype=np.int64)
    firsts = ends - [size for size, _ in files]
    wanted = [{row for row in rows if row < size} for size, rows in files]
    through = Rows.of([int(first) + row for first, rows in zip(firsts, wanted, strict=True) for row in sorted(rows)])
    found = RowsByFile.through(through, positions, ends)
    check(found, {at: rows for at, rows in zip(positions.tolist(), wanted, strict=True) if rows})


@given(places, st.lists(st.booleans(), min_size=6, max_size=6))
def test_rows_by_file_are_chosen_and_united(rows: dict[int, list[int]], chosen: list[bool]) -> None:
    found = RowsByFile.of({at: Rows.of(wanted) for at, wanted in rows.items()})
    kept = np.array(chosen)[found.positions]
    parts = [found.only(kept), found.only(~kept)]
    check(parts[0], {at: wanted for at, wanted in filled(rows).items() if chosen[at]})
    check(RowsByFile.united(parts), filled(rows))
    check(RowsByFile.united(parts[::-1]), filled(rows))
    check(RowsByFile.united([]), {})


def test_rows_at_the_end_of_a_file_stay_apart_from_those_of_the_next() -> None:
    last = (1 << ROW_BITS) - 1
    found = RowsByFile.of({0: Rows.of([last]), 1: Rows.of([0, last]), (1 << 22): Rows.of([0])})
    assert {at: rows.numbers().tolist() for at, rows in found.items()} == {0: [last], 1: [0, last], 1 << 22: [0]}
    assert [each.tolist() for each in found.numbers()] == [[last], [0, last], [0]]


SIZE = 50
masks = st.lists(st.booleans(), min_size=6, max_size=6)
steps = st.one_of(
    st.tuples(st.just("only"), masks, places),
    st.tuples(st.just("without"), masks, st.just({})),
    st.tuples(st.just("narrowed"), st.none(), places),
    st.tuples(st.just("narrowed"), masks, places),
    st.tuples(st.just("scanning"), masks, st.just({})),
    st.tuples(st.just("also"), st.none(), places),
    st.tuples(st.just("widened"), st.none(), places),
    st.tuples(st.just("by_rows"), st.none(), st.just({})),
)


@settings(max_examples=300)
@given(st.lists(steps, max_size=6))
def test_a_plan_is_a_set_of_rows_for_each_file(
    taken: list[tuple[str, list[bool] | None, dict[int, list[int]]]],
) -> None:
    plan, model, inexact = AccessPlan.scan_all(6), [set(range(SIZE)) for _ in range(6)], set[int]()
    sizes = np.full(6, SIZE)
    for name, mask, named in taken:
        rows = {at: Rows.of(wanted) for at, wanted in named.items()}
        chosen = {at for at, is_chosen in enumerate(mask or []) if is_chosen}
        files = np.array(mask or [False] * 6)
        in_part = set(plan.rows)
        if name == "only":
            plan = plan.only(files, rows)
            model = [model[at] & set(named.get(at, ())) if at in chosen else model[at] for at in range(6)]
            inexact -= chosen
        elif name == "without":
            plan = plan.without(files)
            model = [set() if at in chosen else model[at] for at in range(6)]
        elif name == "narrowed":
            chosen = set(named) if mask is None else chosen
            plan = plan.narrowed(rows, None if mask is None else np.array(sorted(chosen), np.int64))
            model = [model[at] & set(named.get(at, ())) if at in chosen else model[at] for at in range(6)]
            inexact |= chosen
        elif name == "scanning":
            plan = plan.scanning(chosen)
            model = [set(range(SIZE)) if at in chosen & in_part else model[at] for at in range(6)]
            inexact -= chosen
        elif name == "also":
            more = {at: each for at, each in rows.items() if plan.selection(at) is Access.SKIP}
            plan = plan.also(more)
            model = [set(named[at]) if at in more else model[at] for at in range(6)]
            inexact |= set(more)
        elif name == "widened":
            more = {at: plan.rows[at] | each for at, each in rows.items() if at in plan.rows}
            plan = plan.widened(more)
            model = [model[at] | set(named[at]) if at in more else model[at] for at in range(6)]
            inexact |= set(more)
        else:
            plan = plan.by_rows(sizes)
        inexact &= set(plan.rows)
        assert [as_set(plan.selection(at)) for at in range(6)] == model
        assert plan.states.dtype == np.int8
        assert plan.inexact == inexact
        assert set(plan.rows) == set(np.flatnonzero(plan.states == SOME_ROWS).tolist())
        assert plan.count(sizes) == sum(map(len, model))
        assert plan.kept() == sum(map(bool, model))
        assert plan.narrowable() == sorted([*plan.scanned(), *inexact])
    positions = np.array([4, 0, 3])
    part = plan.of_files(positions)
    assert [as_set(part.selection(at)) for at in range(3)] == [model[at] for at in positions]
    assert part.inexact == {at for at, position in enumerate(positions.tolist()) if position in inexact}
    assert plan.of_files(np.array([], np.int64)).kept() == 0
