"""Rewriting files changes no row, and deleting rows changes no other row, for all types, writers and partitions."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from tests.cases import cases
from tests.property.generated import TableSpec, tables
from tests.property.predicates import predicates
from tests.property.queries import queries
from tests.property.test_answers import make_indexes
from tests.property.worlds import World, world

from needlepoint.maintenance.ordering import is_sortable


def orders(made: World) -> st.SearchStrategy[dict[str, Any]]:
    names = [column.name for column in made.spec.columns]
    sortable = [name for name in names if is_sortable(made.lake.table("t").schema.field(name).type)]
    columns = st.lists(st.sampled_from(sortable), min_size=1, max_size=3, unique=True)
    return st.just({}) | columns.map(lambda some: {"sort_by": some}) | columns.map(lambda some: {"zorder": some})


@settings(max_examples=cases(120, 3))
@given(tables(), st.data())
def test_compaction(spec: TableSpec, data: DataObject) -> None:
    with world(spec) as made:
        make_indexes(made, data)
        before = made.rows()
        for _ in range(2):
            options = data.draw(orders(made), label="order")
            size = data.draw(st.sampled_from([1 << 20, 3000, 500]), label="target size")
            page_rows = data.draw(st.none() | st.integers(1, 20), label="page rows")
            done = made.lake.compact("t", target_size=size, page_rows=page_rows,
                swap_bytes=data.draw(st.integers(1, 9000)),
                **options,
            )  # fmt: skip
            assert made.rows() == before, done
            for _ in range(3):
                made.check(data.draw(queries(spec), label="query"))
        made.lake.sweep(now=True)
        made.check(data.draw(queries(spec), label="query"))


@settings(max_examples=cases(120, 3))
@given(tables(), st.data())
def test_deletion(spec: TableSpec, data: DataObject) -> None:
    with world(spec) as made:
        make_indexes(made, data)
        for _ in range(3):
            where = data.draw(predicates(spec), label="where")
            left = made.rows(f"({where.duck}) IS NOT TRUE")
            count = sum(made.rows().values())
            deleted = made.lake.delete("t", where.lake)
            assert deleted.rows == count - sum(left.values())
            assert made.rows() == left
            made.check(data.draw(queries(spec), label="query"))
        made.lake.sweep(now=True)
        made.check(data.draw(queries(spec), label="query"))
