"""Conditions on computed values: an index changes the speed of an answer, never the answer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from tests.cases import cases
from tests.property.computed import UNLIKE, conditions
from tests.property.generated import TableSpec, tables
from tests.property.kinds import Sql
from tests.property.queries import Query
from tests.property.test_answers import ACCESS, QUESTIONS, make_indexes
from tests.property.worlds import world


@settings(max_examples=cases(150, 4))
@given(tables(), st.data())
def test_computed_values(spec: TableSpec, data: DataObject) -> None:
    with world(spec, **data.draw(ACCESS)) as made:
        make_indexes(made, data)
        for _ in range(QUESTIONS):
            where = data.draw(conditions(spec), label="where")
            made.check(Query(Sql.of("SELECT id FROM t WHERE {}", where)), unlike=UNLIKE)
