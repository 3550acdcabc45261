from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from needlepoint.access import Access, AccessPlan, Rows

numbers = st.lists(st.integers(0, 40))
selections = st.one_of(st.sampled_from(list(Access)), numbers.filter(bool).map(Rows.of))


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


@given(st.lists(st.tuples(selections, selections), max_size=5))
def test_narrowing_keeps_what_both_let_through(pairs: list[tuple[Access | Rows, Access | Rows]]) -> None:
    plan = AccessPlan(tuple(left for left, _ in pairs)).narrow([right for _, right in pairs])
    for (left, right), both in zip(pairs, plan.selections, strict=True):
        assert as_set(both) == as_set(left) & as_set(right)
        assert not isinstance(both, Rows) or both.count
    assert plan.kept() == [i for i, both in enumerate(plan.selections) if as_set(both)]
