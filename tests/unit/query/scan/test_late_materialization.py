from __future__ import annotations

import pyarrow as pa
import pytest

from needlepoint.predicate import And, Like, Not, TextMatch, Unknown
from needlepoint.query.scan.late_materialization import matching, sifting_columns

TEXTS = ["dairy cow", "cow, dairy", "DAIRY cow", "da\niry.cow", None, "", "aXbXa", "aba"]


@pytest.mark.parametrize(
    ("like", "expected"),
    [
        (Like("s", ("dairy",)), ["dairy cow", "cow, dairy"]),
        (Like("s", ("dairy", "cow")), ["dairy cow"]),
        (Like("s", ("da", "iry.cow"), starts=True, ends=True), ["da\niry.cow"]),
        (Like("s", ("dairy",), ends=True), ["cow, dairy"]),
        (Like("s", ("dairy",), starts=True), ["dairy cow"]),
        (Like("s", ("Dairy",), fold=True), ["dairy cow", "cow, dairy", "DAIRY cow"]),
        (Like("s", ("DAIRY", "COW"), starts=True, ends=True, fold=True), ["dairy cow", "DAIRY cow"]),
        (Like("s", ("a", "ba"), starts=True, ends=True), ["aba"]),
        (Like("s", ("ab", "ba")), []),
    ],
)
def test_pieces_are_looked_for_in_order_and_apart(like: Like, expected: list[str]) -> None:
    table = pa.table({"s": TEXTS})
    predicate = And((like, Unknown()))
    assert table.filter(pa.array(matching(table, predicate))).column("s").to_pylist() == expected
    assert matching(table, Not(predicate)).all(), "a match of the pattern is not certain"
    assert sifting_columns(predicate, {"s": pa.string()}) == {"s"}


def test_text_queries_are_decided_either_way() -> None:
    table = pa.table({"s": pa.chunked_array([TEXTS[:2], TEXTS[2:]])})
    query = TextMatch("s", '"dairy cow"')
    assert matching(table, query).tolist() == [True, False, True, False, False, False, False, False]
    assert matching(table, Not(query)).tolist() == [False, True, False, True, False, True, True, True]
