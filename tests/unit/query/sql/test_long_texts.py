"""Users may write long texts: all code that parses them takes linear time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from needlepoint.errors import SqlError, UnknownName
from needlepoint.query.datafusion.errors import translate
from needlepoint.query.point_lookup import recognise
from needlepoint.query.scan.scan_tasks import with_condition
from needlepoint.query.sql.predicates.patterns import LONGEST_PIECE, MOST_PIECES, of_like, of_regex, of_text
from needlepoint.query.sql.statements import parse

LENGTH = 1_000_000
# Linear code takes well below a second; quadratic code takes minutes or hours.
ENOUGH = 10.0


def _refused(call: Callable[[], object]) -> None:
    with pytest.raises(SqlError):
        call()


LOOKUP = "SELECT a FROM t WHERE id = 5"
CASES: dict[str, Callable[[], object]] = {
    "blank lines before a comment": lambda: recognise(LOOKUP + "\n" * LENGTH + "-- a comment"),
    "blank lines before the end": lambda: recognise(LOOKUP + "\n" * LENGTH + ";" + "\n" * LENGTH + "x"),
    "spaces between words": lambda: recognise("SELECT a" + " " * LENGTH + ", b" + " " * LENGTH + "x"),
    "a list that does not end": lambda: recognise(LOOKUP[:-3] + "IN (" + "12345, " * (LENGTH // 7) + "x"),
    "columns that do not end": lambda: recognise("SELECT " + "abc, " * (LENGTH // 5) + "FROM t"),
    "a like of letters": lambda: of_like("a" * LENGTH),
    "a like of pieces": lambda: of_like("a%" * (LENGTH // 2)),
    "a regex of letters": lambda: of_regex("a" * LENGTH),
    "a regex of classes": lambda: of_regex("[a-c]" * (LENGTH // 5) + "$"),
    "a regex of groups": lambda: of_regex("(" * (LENGTH // 2) + ")" * (LENGTH // 2)),
    "a regex of counts": lambda: of_regex("a{1}" * (LENGTH // 4)),
    "comments that do not end": lambda: with_condition("SELECT 1 FROM t", "id = 1 " + "/*" * (LENGTH // 2)),
    "quotes": lambda: with_condition("SELECT 1 FROM t", "'" * LENGTH),
    "quotes that do not end": lambda: with_condition("SELECT 1 FROM t", "\"'" * (LENGTH // 2)),
    "many options": lambda: parse("CREATE INDEX ON t (a) WITH (" + "embed, " * (LENGTH // 7) + "embed)"),
    "no option": lambda: _refused(lambda: parse("CREATE INDEX ON t (a) WITH (a = " + " " * LENGTH + "?)")),
    "a long number": lambda: _refused(lambda: parse("CREATE INDEX ON t (a) WITH (a = " + "1" * LENGTH + ")")),
    "spaces in a statement": lambda: _refused(lambda: parse("CREATE INDEX" + " " * LENGTH + "x" + " " * LENGTH + "y")),
    "many columns": lambda: _refused(lambda: parse("CREATE INDEX ON t (" + "a , " * (LENGTH // 4) + ")")),
    "quoted columns": lambda: _refused(lambda: parse("CREATE INDEX ON t (" + '"' * (LENGTH + 1) + ")")),
    "slashes in an error": lambda: translate("Parquet error: " + "/a" * (LENGTH // 2), "", []),
    "an unknown column": lambda: translate(f"No field named {'-' * LENGTH}. x", "-" * LENGTH, ["t"]),
    "an unknown table": lambda: translate(f"table '{'a.' * (LENGTH // 2)}b' not found", "", ["t"]),
    "a field of ours": lambda: translate("""value: SqlError("'""" * (LENGTH // 17), "", []),
}


@pytest.mark.parametrize("case", CASES)
def test_time_grows_with_the_length(case: str) -> None:
    started = time.perf_counter()
    CASES[case]()
    assert time.perf_counter() - started < ENOUGH


def test_a_misspelt_name_is_compared_with_others_when_it_is_short() -> None:
    known = ["title" * 1000]
    started = time.perf_counter()
    assert "Did you mean" not in str(UnknownName("column", "title" * 100_000, known))
    assert time.perf_counter() - started < ENOUGH
    assert "Did you mean 'title'" in str(UnknownName("column", "titel", ["title"]))


def test_a_lookup_may_end_with_a_semicolon_and_spaces() -> None:
    for end in ("", ";", " ; ", "\n\n;\n"):
        assert recognise(LOOKUP + end) is not None
    assert recognise(LOOKUP + ";;") is None


def test_of_a_long_pattern_its_first_pieces_are_asked() -> None:
    pieces = of_like("%".join(f"piece{number}" for number in range(100)))
    assert pieces is not None and len(pieces.texts) == MOST_PIECES
    assert pieces.starts and not pieces.ends
    long = of_text("x" * (LONGEST_PIECE + 1), starts=True, ends=True)
    assert long is not None and long.texts == ("x" * LONGEST_PIECE,) and long.starts and not long.ends
    short = of_text("x" * LONGEST_PIECE, ends=True)
    assert short is not None and short.ends


def test_the_path_of_a_file_is_found_in_an_error() -> None:
    said = "Parquet error: external: reading file:/lake/t/p=1/a.parquet: EOF, /other/b.parquet"
    assert "/lake/t/p=1/a.parquet" in str(translate(said, "", []))
    assert str(translate("Parquet error: EOF", "", [])).startswith("a file")
