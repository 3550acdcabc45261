"""An index changes the speed of an answer, never the answer: one table, many queries."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy
from tests.cases import cases
from tests.property.generated import Column, TableSpec, tables
from tests.property.predicates import predicates, values
from tests.property.queries import queries, selections
from tests.property.worlds import World, world

QUESTIONS = 12


ACCESS = st.sampled_from([{}, {"access": "pages"}, {"access": "pages", "costs": ""}])


def index_kinds(column: Column) -> SearchStrategy[list[str]]:
    """Index kinds that the column supports, at most two."""
    kinds = ["key", "distinct", "bloom"] if column.kind.indexed else []
    kinds += ["text", "text"] if column.kind.text else []
    return st.lists(st.sampled_from(kinds), max_size=2, unique=True) if kinds else st.just([])


def make_indexes(lake: World, data: DataObject) -> None:
    if data.draw(st.integers(0, 2), label="indexes") == 0:
        return  # only bounds and bloom filters prune
    for number, column in enumerate(lake.spec.columns):
        for kind in data.draw(index_kinds(column), label=f"index {column.name}"):
            lake.create_index(column, kind, data.draw(st.booleans(), label="embed"), f"ix{number}_{kind}")


@settings(max_examples=cases(120, 3))
@given(tables(), st.data())
def test_selections(spec: TableSpec, data: DataObject) -> None:
    with world(spec, **data.draw(ACCESS)) as made:
        make_indexes(made, data)
        for _ in range(QUESTIONS):
            made.check(data.draw(selections(spec), label="query"))


@settings(max_examples=cases(120, 3))
@given(tables(), st.data())
def test_queries(spec: TableSpec, data: DataObject) -> None:
    # With a low limit, the planner gives up on ranges, which is another code path.
    with world(spec, range_limit=data.draw(st.sampled_from([0, 5, 20_000])), **data.draw(ACCESS)) as made:
        make_indexes(made, data)
        for _ in range(QUESTIONS):
            made.check(data.draw(queries(spec), label="query"))


@settings(max_examples=cases(120, 3))
@given(tables(), st.data())
def test_reads_in_parts(spec: TableSpec, data: DataObject) -> None:
    with world(spec, **data.draw(ACCESS)) as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr("needlepoint.query.scan.scan_tasks.FILES_IN_A_PART", data.draw(st.integers(1, 3)))
        make_indexes(made, data)
        names = made.lake.table("t").schema.names
        for _ in range(QUESTIONS):
            wanted = data.draw(st.none() | st.lists(st.sampled_from(names), min_size=1, unique=True), label="columns")
            made.check_read(data.draw(predicates(spec), label="where").lake, wanted)


@settings(max_examples=cases(120, 3))
@given(tables(), st.data())
def test_gets(spec: TableSpec, data: DataObject) -> None:
    with world(spec) as made:
        make_indexes(made, data)
        for _ in range(QUESTIONS):
            chosen = data.draw(
                st.lists(st.sampled_from(made.keyed()), min_size=1, max_size=2, unique=True), label="columns"
            )
            keys = {c.name: data.draw(st.lists(st.none() | values(c), max_size=4), label=c.name) for c in chosen}
            wanted = data.draw(
                st.none() | st.lists(st.sampled_from(made.lake.table("t").schema.names), min_size=1, unique=True)
            )
            made.check_get(keys, wanted)
