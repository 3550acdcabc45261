from __future__ import annotations

from needlepoint.errors import SparkError, UnknownName
from needlepoint.spark.errors import reason, translated


def test_a_needlepoint_error_stays_what_it_is() -> None:
    error = UnknownName("column", "upc", ["id"])
    assert translated(error, "writing") is error


def test_a_locale_that_cannot_name_the_files_is_explained() -> None:
    failure = ValueError("java.nio.file.InvalidPathException: input contains unmappable characters: p=ü")
    error = translated(failure, "writing")
    assert isinstance(error, SparkError)
    assert error.message == "writing failed: input contains unmappable characters: p=ü."
    assert "LC_ALL=C.UTF-8" in error.hint


def test_long_reasons_are_cut_and_empty_ones_named() -> None:
    assert len(reason(ValueError("x" * 5000))) < 500
    assert reason(KeyboardInterrupt()) == "KeyboardInterrupt"
