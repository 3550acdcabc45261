from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.indexes.payloads import StoredBytes, text_source

from needlepoint.errors import SqlError
from needlepoint.indexes.text.evaluation import TextStatistics, bm25, evaluate, near
from needlepoint.indexes.text.kind import TextKind
from needlepoint.indexes.text.query_language import (
    AllOf,
    AnyOf,
    Fuzzy,
    Negation,
    Phrase,
    Prefix,
    Query,
    Term,
    Word,
    parse,
    terms,
)
from needlepoint.indexes.text.search import TextIndex
from needlepoint.indexes.text.statistics import statistics
from needlepoint.indexes.text.words import words
from needlepoint.predicate import TextMatch


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dairy", Word("dairy")),
        ("dairy cow", AllOf((Word("dairy"), Word("cow")))),
        ("dairy AND cow", AllOf((Word("dairy"), Word("cow")))),
        ("dairy OR cow goat", AnyOf((Word("dairy"), AllOf((Word("cow"), Word("goat")))))),
        ("(dairy OR cow) goat", AllOf((AnyOf((Word("dairy"), Word("cow"))), Word("goat")))),
        ("-dairy", Negation(Word("dairy"))),
        ("+dairy -cow", AllOf((Word("dairy"), Negation(Word("cow"))))),
        ("dairy NOT cow", AllOf((Word("dairy"), Negation(Word("cow"))))),
        ("dairy AND NOT -(cow)", AllOf((Word("dairy"), Negation(Negation(Word("cow")))))),
        ('"Ice  cream!"', Phrase(("ice", "cream"))),
        ('"ice"~3', Word("ice")),
        ('"ice cream"~3', Phrase(("ice", "cream"), 3)),
        ("e-mail", Phrase(("e", "mail"))),
        ("dair*", Prefix("dair")),
        ("DAIRY~", Fuzzy("dairy", 1)),
        ("dairy~2", Fuzzy("dairy", 2)),
        ("dairy~0", Word("dairy")),
        ('"AND"', Word("and")),
        ("and or not", AllOf((Word("and"), Word("or"), Word("not")))),
        ('a"b c"d(e)', AllOf((Word("a"), Phrase(("b", "c")), Word("d"), Word("e")))),
        ("ſTRASSE", Word("strasse")),
    ],
)
def test_grammar(text: str, expected: Query) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ('"ice', "the phrase at 1 is not closed"),
        ("(a (b)", "the parenthesis at 1 is not closed"),
        ("a)", "the ')' at 2 closes nothing"),
        ("a OR", "a word is missing at the end"),
        ("AND a", "a word is missing before 'AND' at 1"),
        ("a AND OR b", "a word is missing before 'OR' at 7"),
        ("()", "a word is missing before ')' at 2"),
        ("NOT", "a word is missing at the end"),
        ("a & b", "'&' at 3 has no letter and no digit"),
        ('a ""', "'' at 3 has no letter and no digit"),
        ("a -", "'-' at 3 has no letter"),
        ("*", "* or ~ is not at the end of '*' at 1"),
        ("da*ry", "* or ~ is not at the end"),
        ("dairy~3", "'dairy~3' at 1 is too fuzzy"),
        ("x" * 101 + "~1", "is too fuzzy"),
        ("e-mail*", "is several words, and * is for one"),
        ('"a b"~', "a number is missing after ~"),
        ("(" * 60 + "a" + ")" * 60, "parts, or"),
        ("NOT " * 60 + "a", "parts, or"),
        ("a " * 600, "parts, or"),
        ('"' + "a " * 600 + '" b', "parts, or"),
        ("a" * 20_000, "20,000 characters"),
    ],
)
def test_errors_name_the_place(text: str, problem: str) -> None:
    with pytest.raises(SqlError) as raised:
        parse(text)
    assert problem in str(raised.value)


@settings(deadline=None)
@given(st.text('ab"()-+~*12 ANDORNOT&é', max_size=30))
def test_anything_is_a_query_or_refused(text: str) -> None:
    try:
        evaluate(parse(text), pa.array(["a", None]))
    except SqlError as error:
        assert "text query" in str(error)


# A simple reference implementation with loops.


@functools.cache
def taken_apart(text: str) -> list[str]:
    return words(pa.array([text]))[0].as_py()


def edits(left: str, right: str) -> int:
    table = {(i, -1): i + 1 for i in range(-1, len(left))} | {(-1, j): j + 1 for j in range(-1, len(right))}
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a != b))
            if i and j and a == right[j - 1] and left[i - 1] == b:
                table[i, j] = min(table[i, j], table[i - 2, j - 2] + 1)
    return table[len(left) - 1, len(right) - 1]


def fits(word: str, term: Term) -> bool:
    match term:
        case Word(text):
            return word == text
        case Prefix(text):
            return word.startswith(text)
        case Fuzzy(text, distance):
            return edits(word, text) <= distance


def has_phrase(found: Sequence[str], phrase: Sequence[str], slop: int) -> bool:
    def nearest(start: int, left: Sequence[str]) -> list[int]:
        """Possible positions of the last word."""
        if not left:
            return [start]
        following = [at for at in range(start + 1, len(found)) if found[at] == left[0]]
        return [end for at in following for end in nearest(at, left[1:])]

    starts = [at for at, word in enumerate(found) if word == phrase[0]]
    return any(end - start - len(phrase) + 1 <= slop for start in starts for end in nearest(start, phrase[1:]))


def matches(query: Query, found: list[str]) -> bool:
    match query:
        case AllOf(parts):
            return all(matches(part, found) for part in parts)
        case AnyOf(parts):
            return any(matches(part, found) for part in parts)
        case Negation(part):
            return not matches(part, found)
        case Phrase(phrase, slop):
            return has_phrase(found, phrase, slop)
        case term:
            return any(fits(word, term) for word in found)


def naive_scores(query: Query, texts: list[str | None]) -> list[float]:
    lists = [taken_apart(text) for text in texts if text is not None]
    average = sum(map(len, lists)) / max(len(lists), 1)
    scores = []
    for text in texts:
        found, total = [] if text is None else taken_apart(text), 0.0
        for term in terms(query):
            frequency = sum(any(fits(word, term) for word in each) for each in lists)
            times = sum(fits(word, term) for word in found)
            if times:
                idf = math.log(1 + (len(lists) - frequency + 0.5) / (frequency + 0.5))
                total += idf * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * len(found) / average))
        scores.append(total)
    return scores


WORDS = ["cow", "Cow", "cows", "goat", "dairy", "diary", "a", "b", "ab", "ba", "é", "É", "ſo", "so"]
some_texts = st.lists(
    st.none() | st.lists(st.sampled_from([*WORDS, "-", "a-b"]), max_size=7).map(" ".join), min_size=1, max_size=12
)
letters = st.sampled_from([*WORDS, "co", "d"]).map(lambda word: taken_apart(word)[0])
leaf_queries = (
    st.builds(Word, letters)
    | st.builds(Word, letters)
    | st.builds(Prefix, letters)
    | st.builds(Fuzzy, letters, st.integers(1, 2))
    | st.builds(Phrase, st.lists(letters, min_size=2, max_size=3).map(tuple), st.integers(0, 2))
)
some_queries = st.recursive(
    leaf_queries,
    lambda inner: (
        st.builds(Negation, inner)
        | st.builds(AllOf, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(AnyOf, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


@settings(max_examples=cases(300), deadline=None)
@given(some_queries, some_texts)
def test_evaluation_is_as_a_loop_over_words_says(query: Query, texts: list[str | None]) -> None:
    expected = [None if text is None else matches(query, taken_apart(text)) for text in texts]
    assert evaluate(query, pa.array(texts, pa.string())).to_pylist() == expected
    assert evaluate(query, pa.array(["x", *texts], pa.string_view())[1:]).to_pylist() == expected
    half = len(texts) // 2
    chunked = pa.chunked_array([texts[:half], texts[half:]], pa.large_string())
    assert evaluate(query, chunked).to_pylist() == expected


@settings(max_examples=cases(200), deadline=None)
@given(some_queries, some_texts, st.integers(0, 12))
def test_scores_are_as_the_formula_says(query: Query, texts: list[str | None], cut: int) -> None:
    array, wanted = pa.array(texts, pa.string()), terms(query)
    whole = TextStatistics.of(array, wanted)
    assert TextStatistics.of(array[:cut], wanted) + TextStatistics.of(array[cut:], wanted) == whole
    scores = bm25(query, array, whole)
    assert scores == pytest.approx(naive_scores(query, texts))
    parts = np.concatenate([bm25(query, array[:cut], whole), bm25(query, array[cut:], whole)])
    assert (parts == scores).all(), "a score does not depend on the batch"


@settings(deadline=None)
@given(st.lists(st.text("abcé", max_size=6), min_size=1, max_size=20), st.text("abcé", min_size=1, max_size=6))
def test_edits_are_counted_as_one_by_one(found: list[str], text: str) -> None:
    for distance in (1, 2):
        expected = [edits(word, text) <= distance for word in found]
        assert near(pa.array(found), text, distance).tolist() == expected


def opened(texts: list[str | None], place: Path) -> TextIndex:
    built = TextKind().build(text_source(pa.array(texts, pa.string()), place / "scratch"))
    return TextIndex(StoredBytes(built.payload, place / "cache"))


@settings(max_examples=cases(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(some_queries, some_texts, st.booleans())
def test_an_index_never_finds_too_few(tmp_path: Path, query: Query, texts: list[str | None], odd: bool) -> None:
    texts = [*texts, "x" * 70_000 + " dairy"] if odd else texts  # a word that no index contains
    index = opened(texts, tmp_path)
    sought = index._planner.matching(query)
    matching = {row for row, text in enumerate(texts) if text is not None and matches(query, taken_apart(text))}
    if sought is not None:
        rows = index._rows(sought)
        assert rows.tolist() == sorted(set(rows.tolist()))
        assert matching <= set(rows.tolist())


def test_words_are_found_exactly_and_exclude(tmp_path: Path) -> None:
    index = opened(["dairy cow", "dairy goat", "cow", None, "dairy cow goat"] + ["filler"] * 500, tmp_path)

    def found(query: str) -> list[int] | None:
        rows = index.find([TextMatch("t", query)], 1e9).rows
        return None if rows is None else rows.numbers().tolist()

    assert found("dairy -cow") == [1]
    assert found("dairy (cow OR goat) -goa*") == [0]
    assert found('"dairy cow"') == [0, 4]
    assert found("dairi~1 cow") == [0, 4]
    assert found("nowhere") == []
    assert found("-cow") is None
    assert found("dairy OR -cow") is None


@settings(max_examples=cases(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(some_texts, st.lists(letters, min_size=1, max_size=3))
def test_statistics_of_an_index_are_those_of_the_texts(
    tmp_path: Path, texts: list[str | None], found: list[str]
) -> None:
    wanted = [*map(Word, found), Prefix(found[0])]
    assert statistics(opened(texts, tmp_path), wanted) == TextStatistics.of(pa.array(texts, pa.string()), wanted)
    assert statistics(opened([*texts, "x" * 70_000], tmp_path), wanted) is None
