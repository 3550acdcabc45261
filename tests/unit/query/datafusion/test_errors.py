from __future__ import annotations

import traceback

import pytest

from needlepoint.errors import ObjectStoreError
from needlepoint.query.attempt import EngineFault
from needlepoint.query.datafusion.errors import clear_error, translate


def test_an_object_store_that_fails_is_named_without_what_it_said() -> None:
    """The text is DataFusion's error of a scan."""
    text = (
        "DataFusion error: Object Store error: Generic S3 error: Error performing GET https://s3/bucket/a.parquet?x=1 "
        "in 3ms - Server returned non-2xx status code: 403 Forbidden: <Code>InvalidAccessKeyId</Code>"
        "<AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId>"
    )
    with pytest.raises(ObjectStoreError) as caught, clear_error("SELECT 1", list):
        raise Exception(text)
    assert caught.value.where == "https://s3/bucket/a.parquet"
    assert "credentials are not accepted" in str(caught.value)
    assert "AKIDEXAMPLE" not in "".join(traceback.format_exception(caught.value))


def test_too_many_parentheses_are_said_to_be_so() -> None:
    said = "SQL error: RecursionLimitExceeded (current limit: 50)"
    assert str(translate(said, "", [])).startswith("the query has more than 50 levels of parentheses.")


def test_a_panic_is_a_fault_of_the_engine() -> None:
    class PanicException(BaseException):
        """Has the name of pyo3's exception, which cannot be imported."""

    with pytest.raises(EngineFault, match="index out of bounds"), clear_error("SELECT 1", list):
        raise PanicException("index out of bounds: the len is 1")
    assert isinstance(translate("Internal error: a plan without ends", "SELECT 1", []), EngineFault)
    assert not isinstance(translate("Error during planning: no", "SELECT 1", []), EngineFault)


def test_a_text_that_cannot_be_cast_has_a_hint() -> None:
    error = translate("DataFusion error: Arrow error: Cannot cast string 'x' to value of Int64 type", "", [])
    assert str(error).startswith("Cannot cast string 'x' to value of Int64 type. ") and "TRY_CAST" in error.hint


def test_a_subquery_that_is_not_supported_is_no_unknown_column() -> None:
    said = (
        "DataFusion error: Optimizer rule 'scalar_subquery_to_join' failed\ncaused by\nSchema error: No field named n. "
    )
    assert str(translate(said, "SELECT n", [])).startswith("DataFusion does not support this correlated subquery.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('Unsupported ast node Pivot { table: Table { name: "t"', "PIVOT is not supported. Write the query without"),
        ('Unsupported ast node in sqltorel: Collate { expr: Ident { value: "s"', "COLLATE is not supported."),
        ("Unsupported JOIN operator Semi(On(BinaryOp { left: 1", "SEMI is not supported. Write LEFT SEMI JOIN."),
        ("Physical plan does not support logical expression Exists(Exists { subquery", "supported in conditions"),
    ],
)
def test_nodes_that_are_not_supported_are_named(text: str, message: str) -> None:
    assert message in str(translate(f"This feature is not implemented: {text}", "SELECT 1", []))
