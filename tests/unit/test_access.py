from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from needlepoint.access import Access, AccessPlan, Rows

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
