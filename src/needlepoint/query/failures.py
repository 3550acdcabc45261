"""The border to DataFusion: its exceptions become one clear line."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from needlepoint.errors import NeedlepointError, NotParquet, SqlError, UnknownName
from needlepoint.objects.failures import is_by_object_store, object_store_error
from needlepoint.parquet.build import build_card
from needlepoint.query.page_reads import check_units
from needlepoint.query.reading import Reading
from needlepoint.query.scan import check_present

_MISSING_TABLE = re.compile(r"table '(?:[^']*?\.)?([^'.]+)' not found")
_MISSING_COLUMN = re.compile(r"No field named ([^\s]+?)\.?\s", re.DOTALL)
_VALID_FIELDS = re.compile(r"Valid fields are (.*?)\.?$", re.DOTALL)
_POSITION = re.compile(r" at Line: (\d+), Column: (\d+)")
_NOISE = re.compile(
    r"^((DataFusion|External|SQL|Arrow|Parquet|Schema|Cast) error: |Error during planning: "
    r"|This feature is not implemented: |Optimizer rule '\w+' failed caused by )+"
)
_NOT_SUPPORTED = re.compile(r"(?:DDL|DML|Statement) not supported: (\w+)")
# What one of our functions raised while DataFusion called it.
_OURS = re.compile(r"""value: SqlError\(("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\), traceback: """)
_PATH = re.compile(r"[^\s:,'\"]+")
_LONGEST = 500
_LONGEST_NAME = 200  # to be looked for in a query


class CannotSkip(NeedlepointError):
    """DataFusion's reader cannot skip rows in some encodings (DELTA_BINARY_PACKED as DuckDB writes it), but it can
    read them whole: the query is run again without filter pushdown."""


def look_into(failure: BaseException, readings: Iterable[Reading]) -> NoReturn:
    """Raise why a query failed while it read: FileChanged, a file that is not Parquet, CannotSkip, or what it was."""
    readings = list(readings)
    for reading in readings:
        check_present(reading)  # a file that changed or went away meanwhile is reason enough
    text = str(failure)
    if "Cannot cast" in text:
        for reading in readings:
            check_units(reading)
    if "parquet" not in text.lower() or is_by_object_store(text) or not isinstance(failure, Exception):
        raise failure
    # DataFusion does not say which file it could not read. Our own reader does, and it is most often a new one.
    for reading in readings:
        for file in sorted(reading.scanned, key=lambda file: file.id is not None):
            build_card(reading.path(file))
    raise CannotSkip(text) from failure


@contextmanager
def clear_error(query: str, tables: Callable[[], list[str]], *, above: int = 0) -> Iterator[None]:
    """DataFusion raises ValueError for SQL it cannot plan and bare Exception for what fails while running. It was given
    so many lines above what the user wrote, which is `query`."""
    try:
        yield
    except (NeedlepointError, KeyboardInterrupt, AssertionError):
        raise
    except RecursionError as error:
        raise SqlError("the query is too deeply nested.", hint="Ask in several queries.") from error
    except Exception as error:
        if type(error) not in (ValueError, Exception):
            raise
        if is_by_object_store(str(error)):
            # Without the cause: its text holds what nobody should see.
            raise object_store_error(_object(str(error)), str(error)) from None
        raise translate(str(error), query, tables(), above=above) from error


def translate(text: str, query: str, tables: list[str], *, above: int = 0) -> NeedlepointError:
    if found := _OURS.search(text):
        return SqlError(str(ast.literal_eval(found[1])))
    if found := _MISSING_TABLE.search(text):
        return UnknownName("table", found[1], tables, where=_place(query, found[1]))
    if found := _MISSING_COLUMN.search(text + " "):
        name = found[1].replace('"', "").split(".")[-1]
        valid = _VALID_FIELDS.search(text)
        known = {each.replace('"', "").split(".")[-1].strip() for each in valid[1].split(",")} if valid else set()
        exact = next((each for each in known if each.lower() == name.lower()), None)
        if exact is not None and exact != name:
            return SqlError(f"column '{exact}' has capital letters.", hint=f'Write it in double quotes: "{exact}".')
        return UnknownName("column", name, known, where=_place(query, name))
    if found := _NOT_SUPPORTED.search(text):
        return SqlError(
            f"{found[1]} is not a query.",
            hint="Tables are written by Spark or `needle ingest`; only indexes and views have CREATE and DROP.",
        )
    if "RecursionLimitExceeded" in text:
        return SqlError(
            "the query has more than 50 levels of parentheses.", hint="Take some of them out of the others."
        )
    if "Parquet error" in text or "ParquetError" in text or "Corrupt footer" in text:
        return NotParquet(_path(text) or "a file", _short(text), hint="Write it again or remove it, then sync.")
    return SqlError(_short(_with_position(text, above)))


def _path(text: str) -> str | None:
    """The first path of a Parquet file in a text, from its first slash on."""
    for run in _PATH.finditer(text):
        word = run[0]
        first, end = word.find("/"), word.rfind(".parquet")
        if 0 <= first < end - 1:
            return word[first : end + len(".parquet")]
    return None


def _object(text: str) -> str:
    found = re.search(r"Error performing \w+ (\S+)", text)
    return found[1].partition("?")[0] if found else "an object"


def _short(text: str) -> str:
    line = _NOISE.sub("", " ".join(text.split()))
    line = re.sub(r'^ParserError\("(.*)"\)$', r"\1", line)
    line = line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
    return line.rstrip(".") + "."


def _with_position(text: str, above: int) -> str:
    return _POSITION.sub(lambda found: f" at line {int(found[1]) - above}, column {found[2]}", text)


def _place(query: str, name: str) -> str:
    """Line and column of the first place where a query names something."""
    if len(name) > _LONGEST_NAME:
        return ""
    found = re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", query, re.IGNORECASE)
    if found is None:
        return ""
    line = query.count("\n", 0, found.start()) + 1
    return f" at line {line}, column {found.start() - query.rfind(chr(10), 0, found.start())}"
