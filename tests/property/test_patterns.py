"""If DataFusion says that a text matches a pattern, the text contains the pieces extracted from the pattern."""

from __future__ import annotations

import datafusion
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from needlepoint.indexes.text.words import folded_text
from needlepoint.predicate import (
    And,
    Compare,
    Constant,
    In,
    IsNotNull,
    Leaf,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from needlepoint.query.sql.predicate_extraction import requests

# Letters with unusual case mappings: ſ is an s, the Kelvin sign a k; for İ and ı, engines differ.
LETTERS = "abk\u212asſAıİßẞσςΣµ\u01c6\u01c5ι\u1fbe1é\n .*(_%\\-"
texts = st.lists(st.text(LETTERS, max_size=8), min_size=1, max_size=12)
like_patterns = st.lists(st.sampled_from([*LETTERS, "%", "%", "_", "\\%", "\\_", "\\\\"]), max_size=7).map("".join)
atoms = st.sampled_from(
    [*"abksſAσ1é ", "a", "b", "\\.", "\\*", "\\(", "\\\\", ".", "[ab]", "[^]a]", "[\\]b]", "(a)", "(?:a|b)",
     "(a(b)|[)])", "\\w", "\\b", "\\d", "\\s", "(?P<n>s)", "^", "$", "\\_", "-"]
)  # fmt: skip
quantifiers = st.sampled_from(
    ["", "", "", "", "*", "+", "?", "{2}", "{0}", "{0,2}", "{1,}", "+?", "??", "*?", "+??", "{1}{0}"]
)
regexes = st.builds(
    lambda flags, start, parts, end: flags + start + "".join(parts) + end,
    st.sampled_from(["", "", "(?i)", "(?m)", "(?s)", "(?ims)", "(?x)"]),
    st.sampled_from(["", "", "^"]),
    st.lists(st.one_of(st.builds(str.__add__, atoms, quantifiers), st.sampled_from(["|", "", ""])), max_size=5),
    st.sampled_from(["", "", "$"]),
)


def possible(text: str, predicate: Predicate) -> bool:
    match predicate:
        case And(children):
            return all(possible(text, child) for child in children)
        case Or(children):
            return any(possible(text, child) for child in children)
        case Constant(value):
            return value
        case Unknown() | Not():
            return True
    return holds(text, predicate)


def holds(text: str, leaf: Leaf) -> bool:
    """Match each piece at its first possible position, and a last piece that ends the text at the end."""
    match leaf:
        case Compare(_, "=", value):
            return text.encode() == value
        case In(_, values):
            return text.encode() in values
        case StartsWith(_, prefix):
            return text.encode().startswith(prefix)
        case IsNotNull():
            return True
    assert isinstance(leaf, Like)
    wanted = [folded_text(piece) if leaf.fold else piece for piece in leaf.pieces]
    text = folded_text(text) if leaf.fold else text
    position = 0
    for number, piece in enumerate(wanted):
        if number == 0 and leaf.starts:
            found = 0 if text.startswith(piece) else -1
        elif number == len(wanted) - 1 and leaf.ends:
            found = len(text) - len(piece) if text.endswith(piece) else -1
        else:
            found = text.find(piece, position)
        if found < position:
            return False
        position = found + len(piece)
    return position == len(text) or not (leaf.ends and len(wanted) == 1)


def check(where: str, pattern: str, found: list[str]) -> None:
    """With the optimized plan: DataFusion's optimizer turns `0\\\\b` into LIKE '%0\\b%', which has another meaning."""
    CONTEXT.deregister_table("filled")
    CONTEXT.register_record_batches("filled", [pa.table({"s": found}).to_batches()])
    try:
        matched = CONTEXT.sql(f"SELECT s FROM filled WHERE {where}", param_values={"p": pattern}).to_pydict()["s"]
        plan = CONTEXT.sql(f"SELECT s FROM t WHERE {where}", param_values={"p": pattern}).optimized_logical_plan()
    except Exception as error:
        assert "regex" in str(error).lower(), error
        return
    asked = requests(plan, plan.display_indent(), {"t": {"s": pa.string()}})
    if "t" in asked:
        for text in matched:
            assert possible(text, asked["t"].predicate), (text, pattern, asked["t"].predicate)


CONTEXT = datafusion.SessionContext()
CONTEXT.register_listing_table("t", "/nonexistent/", schema=pa.schema([("s", pa.string())]))


@settings(max_examples=cases(300))
@given(like_patterns, texts, st.data())
def test_pieces_of_like(pattern: str, found: list[str], data: st.DataObject) -> None:
    # A text made of the pattern matches more often than a random one.
    fillings = [pattern.replace("%", data.draw(st.text(LETTERS, max_size=3))) for _ in range(3)]
    found = [*found, *fillings, *(text.swapcase() for text in fillings), *(text.replace("\\", "") for text in fillings)]
    check("s LIKE $p", pattern, found)
    check("s ILIKE $p", pattern, found)


@settings(max_examples=cases(500))
@given(regexes, texts, st.sampled_from(["", "i", "m", "s"]))
def test_pieces_of_regular_expressions(pattern: str, found: list[str], flags: str) -> None:
    found = [*found, pattern, pattern.replace("\\", ""), "ab", "aab", "aabb", "bs", "ba s", "a.b", "a\nb", "kK-1"]
    where = f"regexp_like(s, $p, '{flags}')" if flags else "s ~ $p"
    check(where, pattern, found)


@settings(max_examples=cases(200))
@given(st.text("ab*+?{}()[]|^$.\\iPx<>:=!0,1 -", max_size=12), texts)
def test_pieces_of_anything_that_looks_like_a_regular_expression(pattern: str, found: list[str]) -> None:
    check("s ~ $p", pattern, [*found, pattern, "a", "b", "ab", "ba", "aab", "abb", "1a0b"])
